"""The last thing a run says: what became of every URL, where the output lies, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TextIO

from gossamer.model.event import Snapshot
from gossamer.model.outcome import State
from gossamer.observe.line import Line, rendered, width_of
from gossamer.observe.report import reason_text
from gossamer.observe.wording import bytes_text, counted, duration_text, harmless, rate_text

_WIDTH = 80
#: Reasons of one state listed by name; servers may invent any number of statuses.
_MAX_REASONS = 8
#: States whose reasons explain themselves.
_PLAIN_STATES = frozenset({State.FETCHED, State.REDIRECTED, State.UNCHANGED, State.DUPLICATE})
#: Held for these reasons, URLs are tried again by a mere resume.
_RESUMABLE = ("robots_unreachable", "wait_too_long")

_STYLES = {State.FETCHED: "green", State.REFUSED: "yellow", State.HELD: "yellow", State.FAILED: "red"}
#: The order of a URL's luck, not that of the stored numbers.
_ORDER = (
    State.FETCHED,
    State.UNCHANGED,
    State.REDIRECTED,
    State.DUPLICATE,
    State.REFUSED,
    State.FAILED,
    State.HELD,
    State.QUEUED,
)


def render_summary(
    snapshot: Snapshot,
    *,
    job: str,
    ending: str,
    outputs: Sequence[tuple[str, int]],
    resume_command: str,
    place: str = "",
    stream: TextIO | None = None,
) -> str:
    """Return the summary of a run, in 80 columns, with its final line end.

    `outputs` are paths and the records in each. `place` is the flag that finds the job, where one is needed. `resume_command` is shown only where a resume would find
    something to do. Coloured if `stream` is a terminal that shows colours; plain text without one.
    """
    lines = [
        _headline(snapshot, job, ending),
        Line(),
        *_outcomes(snapshot),
        *_work(snapshot),
        *_outputs(outputs),
        *_next_steps(snapshot, job, resume_command, place),
    ]
    return rendered(lines, stream)


def _headline(snapshot: Snapshot, job: str, ending: str) -> Line:
    return Line(
        (harmless(job, 200), "bold"), f": {harmless(ending, 200)} after {duration_text(snapshot.elapsed)}"
    )


# -- what became of the URLs ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    state: State
    reason: str
    urls: int
    meaning: str


def _outcomes(snapshot: Snapshot) -> Iterator[Line]:
    rows = [row for state in _ORDER for row in _rows(state, snapshot.states.get(state.label, {}))]
    if not rows:
        yield Line("  no URL was added")
    reasons = max((width_of(row.reason) for row in rows), default=0)
    numbers = max((len(f"{row.urls:,}") for row in rows), default=0)
    shown: State | None = None
    for row in rows:
        label = "" if row.state is shown else row.state.label
        shown = row.state
        reason = row.reason + " " * (reasons - width_of(row.reason))
        line = Line("  ", (label.ljust(12), _STYLES.get(row.state, "")), reason, "  ")
        line.append(f"{row.urls:{numbers},}", style="bold")
        yield from _explained(line, row.meaning)


def _rows(state: State, reasons: dict[str, int]) -> Iterator[_Row]:
    order = sorted(((n, reason) for reason, n in reasons.items() if n), key=lambda item: (-item[0], item[1]))
    for n, reason in order[:_MAX_REASONS]:
        meaning = "" if state in _PLAIN_STATES else reason_text(reason).removeprefix("held: ")
        yield _Row(state, harmless(reason, 30) or "-", n, meaning)
    rest = order[_MAX_REASONS:]
    if rest:
        yield _Row(state, counted(len(rest), "other reason"), sum(n for n, _ in rest), "")


def _explained(line: Line, meaning: str) -> Iterator[Line]:
    """Yield a line with what it means beside it, continued below where it is long."""
    indent = line.width + 2
    first, *more = wrap(meaning, max(_WIDTH - indent, 20)) or [""]
    if first:
        line.append(f"  {first}", style="dim")
    yield line
    for words in more:
        yield Line((" " * indent + words, "dim"))


# -- the work, the results, and what next --------------------------------------------------------------


def _work(snapshot: Snapshot) -> Iterator[Line]:
    seconds = snapshot.elapsed or 1.0
    earlier = f" ({snapshot.run_pages:,} in this run)" if snapshot.pages != snapshot.run_pages else ""
    rate = rate_text(snapshot.run_pages / seconds)
    retries = f", {counted(snapshot.retries, 'retry', 'retries')}" if snapshot.retries else ""
    yield Line()
    yield _labelled("pages", f"{snapshot.pages:,}{earlier}, {rate} pages/s")
    yield _labelled(
        "traffic",
        f"{counted(snapshot.fetches, 'request')}{retries}, {bytes_text(snapshot.wire_bytes)} received,"
        f" {bytes_text(snapshot.wire_bytes / seconds)}/s",
    )


def _outputs(outputs: Sequence[tuple[str, int]]) -> Iterator[Line]:
    shown = [(harmless(path), counted(records, "record")) for path, records in outputs]
    width = max((width_of(path) for path, _ in shown), default=0)
    for i, (path, records) in enumerate(shown):
        yield _labelled("" if i else "output", path + " " * (width - width_of(path) + 2) + records)


def _next_steps(snapshot: Snapshot, job: str, resume_command: str, place: str) -> Iterator[Line]:
    name = shlex.quote(harmless(job)) + harmless(place)
    steps = [(f"gossamer report {name}", "the whole receipt")]
    if snapshot.count("failed"):
        steps.append((f"gossamer urls {name} --state failed", "what failed"))
    if resume_command and _resumable(snapshot):
        steps.insert(0, (harmless(resume_command), "go on from here"))
    width = max(width_of(command) for command, _ in steps)
    yield Line()
    for i, (command, purpose) in enumerate(steps):
        line = _labelled("" if i else "next", command)
        if line.width + width - width_of(command) + 2 + len(purpose) <= _WIDTH:
            line.append(" " * (width - width_of(command) + 2) + purpose, style="dim")
        yield line


def _resumable(snapshot: Snapshot) -> bool:
    held = snapshot.states.get("held", {})
    return bool(snapshot.seeding or snapshot.count("queued") or any(held.get(r, 0) for r in _RESUMABLE))


def _labelled(label: str, text: str) -> Line:
    return Line(("  " + label.ljust(12), "dim"), text)
