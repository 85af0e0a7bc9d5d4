"""The commands that answer from a job's ledger, also while a crawl is writing it, and `retry`, which changes it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec

from gossamer.cli.backends import place_options
from gossamer.cli.job_lookup import Job, Place, read_settings
from gossamer.cli.options import GroupedCommand
from gossamer.cli.terminal import Table, escape, escape_json, say, write_lines
from gossamer.errors import LedgerFailed, UsageError
from gossamer.frontier.answers import JobReader, UrlRow
from gossamer.model.outcome import REASONS, SWITCHED_OFF, Revival, State
from gossamer.model.url import canonicalise, host_of
from gossamer.observe.report import build_report, encode_report, instant_text, reason_text
from gossamer.observe.wording import bytes_text, counted
from gossamer.policy.scope import MAX_ROOTS

_PACE_SECONDS = 60.0
#: Decided when a URL is found, by the job's settings: fetching it again would not decide it anew.
_SETTLED_BY_SETTINGS = ("scope", "shard", "excluded", "depth")
#: Decided by an operator: queued again it would only be held again.
_SETTLED_BY_OPERATORS = (SWITCHED_OFF,)
_RETRYABLE = (State.HELD, State.REFUSED, State.FAILED)
#: What a job that forgets finished URLs still lists completely.
_KEPT_STATES = tuple(state.label for state in (State.QUEUED, State.HELD, State.FAILED))
_HTTP_REASON = re.compile(r"http_\d{3}\Z")

_job = click.argument("job")
_reason = click.option(
    "--reason", metavar="REASON", help="only URLs with this reason, such as robots or http_404"
)
_host = click.option("--host", metavar="HOST", help="only URLs of this host")


def _state_option(states: tuple[State, ...]) -> Callable[[Any], Any]:
    return click.option(
        "--state", type=click.Choice([state.label for state in states]), help="only URLs in this state"
    )


# -- jobs and status -----------------------------------------------------------------------------------


@click.command(cls=GroupedCommand)
@place_options
def jobs(place: Place) -> None:
    """List all jobs and where each stands."""
    found = place.jobs()
    if not found:
        say(f"no jobs in {place.name}")
        return
    columns = ("name", "state", "pages", "queued", "failed", "last activity", *place.columns)
    Table(columns, [_job_row(job) for job in found], frozenset({"pages", "queued", "failed"})).show()


def _job_row(job: Job) -> tuple[str, ...]:
    try:
        with job.reader() as reader, reader.snapshot():
            by_state = _by_state(reader)
            pages = reader.totals().get("records", 0)
            queued, failed = by_state.get(State.QUEUED, 0), by_state.get(State.FAILED, 0)
            return (
                job.word,
                job.standing(reader),
                f"{pages:,}",
                f"{queued:,}",
                f"{failed:,}",
                _activity(reader),
                *job.facts(),
            )
    except LedgerFailed as error:
        return (job.word, "unreadable", "-", "-", "-", str(error), *job.facts())


def _activity(reader: JobReader) -> str:
    last = reader.last_commit()
    return instant_text(last) if last else "-"


def _by_state(reader: JobReader) -> dict[State, int]:
    sums: dict[State, int] = {}
    for (state, _), n in reader.counts().items():
        sums[state] = sums.get(state, 0) + n
    return sums


@click.command(cls=GroupedCommand)
@_job
@place_options
def status(job: str, place: Place) -> None:
    """Show how far a job has come, what is held, and who works on it."""
    found = place.find(job)
    with found.reader() as reader, reader.snapshot():
        lines = list(_status_lines(found, reader))
        counts = [
            (s.label, reason or "-", f"{n:,}", reason_text(reason))
            for (s, reason), n in reader.counts().items()
        ]
        outputs = [
            (c.output, f"{c.records:,}", bytes_text(c.offset), f"{c.position:,}") for c in reader.cursors()
        ]
    write_lines(lines)
    if counts:
        write_lines([""])
        Table(("state", "reason", "URLs", "meaning"), counts, frozenset({"URLs"})).show()
    if outputs:
        write_lines([""])
        Table(
            ("output", "records", "size", "position"), outputs, frozenset({"records", "size", "position"})
        ).show()


def _status_lines(job: Job, reader: JobReader) -> Iterator[str]:
    totals, by_state, now = reader.totals(), _by_state(reader), time.time()
    done = sum(n for state, n in by_state.items() if state not in {State.QUEUED, State.HELD})
    yield f"job      {escape(job.word)}: {job.standing(reader)}, {job.workers()}"
    yield f"seeds    {job.seeding(reader)}"
    yield f"URLs     {sum(by_state.values()):,}, of which {done:,} settled"
    yield f"pages    {totals.get('records', 0):,}, {_pace(reader, now):.1f} a second in the last minute"
    yield f"requests {totals.get('fetches', 0):,}, {bytes_text(totals.get('wire_bytes', 0))} received"
    yield f"activity {_activity(reader)}"


def _pace(reader: JobReader, now: float) -> float:
    """Return pages a second over the last minute, or over the job's life where it is younger."""
    age = now - (reader.first_commit() or now - _PACE_SECONDS)
    return reader.records_since(now - _PACE_SECONDS) / max(min(age, _PACE_SECONDS), 1.0)


# -- urls and explain ----------------------------------------------------------------------------------


@click.command(cls=GroupedCommand)
@_job
@_state_option(tuple(State))
@_reason
@_host
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="at most N lines")
@click.option(
    "--format",
    "style",
    type=click.Choice(["plain", "jsonl"]),
    default="plain",
    show_default=True,
    help="fields separated by tabs, or JSON lines",
)
@place_options
def urls(
    job: str,
    state: str | None,
    reason: str | None,
    host: str | None,
    limit: int | None,
    style: str,
    place: Place,
) -> None:
    """List the URLs of a job: state, reason, status, depth and URL, separated by tabs."""
    with place.find(job).reader() as reader:
        rows = reader.urls(
            state=_named_state(state),
            reason=_checked_reason(reader, reason),
            host=_host_name(host),
            limit=limit,
        )
        write_lines(map(_json_line if style == "jsonl" else _plain_line, rows))
        if reader.forgets_finished() and state not in _KEPT_STATES:
            say(
                "finished URLs are not listed: the job keeps no rows of them (--dedup bloom); `report` counts them"
            )


def _plain_line(row: UrlRow) -> str:
    return (
        f"{row.state.label}\t{escape(row.reason) or '-'}\t{row.status or '-'}\t{row.depth}\t{escape(row.url)}"
    )


def _json_line(row: UrlRow) -> str:
    shown = {
        "url": row.url,
        "state": row.state.label,
        "reason": row.reason,
        "detail": row.detail,
        "status": row.status or None,
        "depth": row.depth,
        "host": row.host,
        "source": row.source,
        "tries": row.tries,
        "settled_at": instant_text(row.settled_at) if row.settled_at else None,
    }
    return escape_json(msgspec.json.encode(shown).decode())


def _named_state(label: str | None) -> State | None:
    return None if label is None else State[label.upper()]


def _checked_reason(reader: JobReader, reason: str | None) -> str | None:
    """Return the reason if there can be such a one: a typing error must not look like an empty answer."""
    known = {*REASONS, *(reason for _, reason in reader.counts())} - {"http_<status>"}
    if reason is None or reason in known or _HTTP_REASON.match(reason):
        return reason
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone

    near = get_close_matches(reason, sorted(known), 1)
    advice = (
        f"did you mean {near[0]}?"
        if near
        else f"there are {', '.join(sorted(known - {''}))} and http_<status>"
    )
    raise UsageError(f"no reason {escape(reason)!r}: {escape(advice)}")


def _host_name(host: str | None) -> str | None:
    """Return a host as the ledger spells it: lower case, punycode, no port."""
    return None if host is None else host_of(canonicalise(f"http://{host}/"))


@click.command(cls=GroupedCommand)
@_job
@click.argument("url")
@place_options
def explain(job: str, url: str, place: Place) -> None:
    """Say in plain words what became of a URL, how it was found, and when it is tried next."""
    from gossamer.cli.explanation import explain_lines, forgotten_lines  # noqa: PLC0415 - for this alone

    found = place.find(job)
    canonical, fingerprint = _identified(found, url)
    with found.reader() as reader:
        explanation = reader.explain(fingerprint)
        if explanation is not None:
            write_lines(explain_lines(explanation, found.word, time.time()))
            return
        # In this order: a row that goes between the two questions is in the filter already.
        left = reader.forgotten(canonical, fingerprint)
        if left is None:
            raise _unknown(found, reader, canonical)
    write_lines(forgotten_lines(canonical, left))


def _identified(job: Job, url: str) -> tuple[str, int]:
    """Return a URL as the job spells it, and its fingerprint. Raises `InvalidUrl`."""
    policy = read_settings(job).urls
    canonical = policy.canonicalise(url)
    return canonical, policy.fingerprint(canonical)


def _unknown(job: Job, reader: JobReader, canonical: str) -> UsageError:
    from gossamer.cli.explanation import why_unknown  # noqa: PLC0415 - few URLs are asked about that are not known

    why = why_unknown(canonical, read_settings(job), reader.roots(MAX_ROOTS))
    return UsageError(f"job {escape(job.word)} does not know {escape(canonical)}: {why}")


def _known_fingerprint(job: Job, reader: JobReader, url: str) -> int:
    """Return the fingerprint of a URL the job knows, in whatever spelling. Raises `InvalidUrl`, `UsageError`."""
    canonical, fingerprint = _identified(job, url)
    if reader.url(fingerprint) is None and reader.forgotten(canonical, fingerprint) is None:
        raise _unknown(job, reader, canonical)
    return fingerprint


# -- report --------------------------------------------------------------------------------------------


@click.command(cls=GroupedCommand)
@_job
@click.option("--json", "as_json", is_flag=True, help="as JSON, the same as report.json")
@place_options
def report(job: str, as_json: bool, place: Place) -> None:
    """Account for every URL of a job: the coverage receipt."""
    from gossamer.cli.receipt import show_report  # noqa: PLC0415 - for this alone

    found = place.find(job)
    with found.reader() as reader:
        built = build_report(reader, job=found.word)
    if as_json:
        write_lines(escape_json(line) for line in encode_report(built).decode().rstrip("\n").split("\n"))
    else:
        show_report(built)


# -- retry ---------------------------------------------------------------------------------------------


@click.command(cls=GroupedCommand)
@_job
@_state_option(_RETRYABLE)
@_reason
@_host
@click.option("--url", metavar="URL", help="only this URL")
@place_options
def retry(
    job: str, state: str | None, reason: str | None, host: str | None, url: str | None, place: Place
) -> None:
    """Queue URLs again that failed, are held or, when asked for, were refused. Never repeats a page."""
    found = place.find(job)
    with found.reader() as reader:
        _checked_reason(reader, reason)
        forgets = reader.forgets_finished()
        fingerprint = _known_fingerprint(found, reader, url) if url else None
    if reason in _SETTLED_BY_SETTINGS:
        raise UsageError(f"{reason} follows from the job's settings, not from a fetch: {REASONS[reason]}")
    if reason in _SETTLED_BY_OPERATORS:
        raise UsageError(f"{reason} is what an operator has decided: {REASONS[reason]}")
    which = _revival(_named_state(state), reason, _host_name(host), fingerprint)
    revived = found.revive(which)
    if not revived:
        write_lines(
            [
                "Nothing to queue again: fetched pages, and what the settings of the job rule out, never are;"
                " with --dedup bloom nothing that was refused is either."
                if forgets
                else "Nothing to queue again: fetched pages, and what the settings of the job rule out, never are."
            ]
        )
        return
    verb = "is" if revived == 1 else "are"
    write_lines([f"{counted(revived, 'URL')} {verb} queued again.", escape(found.continuation())])


def _revival(state: State | None, reason: str | None, host: str | None, fingerprint: int | None) -> Revival:
    """Return what to revive. Refused URLs must be asked for in some way."""
    if state is not None:
        states: tuple[State, ...] = (state,)
    else:
        states = _RETRYABLE if reason or fingerprint is not None else (State.HELD, State.FAILED)
    return Revival(
        states, reason or "", (*_SETTLED_BY_SETTINGS, *_SETTLED_BY_OPERATORS), host or "", fingerprint
    )


COMMANDS: list[click.Command] = [jobs, status, urls, explain, report, retry]
