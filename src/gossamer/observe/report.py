"""The coverage receipt of a job: what became of every URL, in numbers that add up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from gossamer.model.outcome import REASONS, Cursor, State

_TOP_HOSTS = 20
_SLOWEST = 5
_HTTP_REASON = re.compile(r"http_(\d{3})\Z")

#: How to go on with what is held; other reasons are simply retried.
_REMEDIES = {
    "page_limit": "gossamer resume {job} --max-pages N",
    "host_limit": "gossamer resume {job} --max-pages-per-host N",
    "switched_off": "gossamer sources {job} --on HOST",
    "robots_unreachable": "gossamer resume {job}",
    "wait_too_long": "gossamer resume {job}",
}


class HostLine(Protocol):
    """What a job did on one host."""

    @property
    def host(self) -> str: ...  # noqa: D102 - a plain value
    @property
    def pages(self) -> int: ...  # noqa: D102
    @property
    def failed(self) -> int: ...  # noqa: D102
    @property
    def forbidden(self) -> int: ...  # noqa: D102
    @property
    def mean_elapsed(self) -> float: ...  # noqa: D102


class TimingLine(Protocol):
    """How long one politeness group took to answer."""

    @property
    def group(self) -> str: ...  # noqa: D102 - a plain value
    @property
    def fetches(self) -> int: ...  # noqa: D102
    @property
    def mean_elapsed(self) -> float: ...  # noqa: D102
    @property
    def longest(self) -> float: ...  # noqa: D102


class ReportSource(Protocol):
    """What a report is made of. Inside `snapshot` all answers describe the same moment."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Hold one moment of the ledger."""
        ...

    def counts(self) -> Mapping[tuple[State, str], int]:
        """Return the number of URLs by state and reason."""
        ...

    def totals(self) -> Mapping[str, int]:
        """Return the running totals: records, fetches, wire_bytes."""
        ...

    def meta(self) -> Mapping[str, str]:
        """Return the notes about the job."""
        ...

    def span(self) -> tuple[float, float] | None:
        """Return when the first request went out and the last answer came in."""
        ...

    def host_count(self) -> int:
        """Return the number of hosts."""
        ...

    def robots_files(self) -> int:
        """Return the number of origins whose robots.txt was read."""
        ...

    def top_hosts(self, limit: int) -> Sequence[HostLine]:
        """Return the hosts with the most pages."""
        ...

    def slowest(self, limit: int) -> Sequence[TimingLine]:
        """Return the groups that took longest to answer."""
        ...

    def cursors(self) -> Sequence[Cursor]:
        """Return the outputs and how far each has come."""
        ...


class Outcomes(msgspec.Struct, frozen=True):
    """How many URLs share a state and a reason, and what that means."""

    state: str
    reason: str
    urls: int
    meaning: str


class Host(msgspec.Struct, frozen=True):
    """One of the hosts with the most pages."""

    host: str
    pages: int
    failed: int
    #: Refused by robots.txt.
    forbidden: int
    mean_elapsed_ms: float


class Slow(msgspec.Struct, frozen=True):
    """One of the politeness groups that took longest to answer."""

    group: str
    fetches: int
    mean_elapsed_ms: float
    longest_ms: float


class Robots(msgspec.Struct, frozen=True):
    """What robots.txt files had a say in."""

    #: Origins whose robots.txt was read.
    files: int
    #: URLs not fetched because a rule forbids it.
    forbidden: int
    #: URLs held because a robots.txt could not be read.
    unreachable: int


class Held(msgspec.Struct, frozen=True):
    """URLs that wait for the user, and the command that revives them."""

    reason: str
    urls: int
    meaning: str
    remedy: str


class Output(msgspec.Struct, frozen=True):
    """An output and how far it has come."""

    output: str
    records: int
    bytes: int
    #: Records of the log that it has not written yet.
    behind: int


class Report(msgspec.Struct, frozen=True):
    """The coverage receipt. The numbers of `outcomes` add up to `urls`. Times are RFC 3339, in UTC."""

    job: str
    #: Nothing is left to fetch: seeding is closed and no URL is queued.
    complete: bool
    #: Every seed has been added.
    seeded: bool
    urls: int
    pages: int
    requests: int
    wire_bytes: int
    #: Empty before the first request.
    first_request: str
    last_answer: str
    seconds: float
    outcomes: tuple[Outcomes, ...]
    host_count: int
    hosts: tuple[Host, ...]
    slowest: tuple[Slow, ...]
    robots: Robots
    held: tuple[Held, ...]
    outputs: tuple[Output, ...]
    version: int = 1

    def by_state(self) -> dict[str, int]:
        """Return the number of URLs of each state that occurs."""
        sums: dict[str, int] = {}
        for outcome in self.outcomes:
            sums[outcome.state] = sums.get(outcome.state, 0) + outcome.urls
        return sums


def build_report(source: ReportSource, *, job: str = "") -> Report:
    """Put the receipt together from one moment of a ledger. Reads all of it: seconds for ten million URLs."""
    with source.snapshot():
        counts = source.counts()
        totals = source.totals()
        span = source.span()
        seeded = source.meta().get("seeding") == "closed"
        queued = sum(n for (state, _), n in counts.items() if state is State.QUEUED)
        first, last = span or (0.0, 0.0)
        return Report(
            job=job,
            complete=seeded and not queued,
            seeded=seeded,
            urls=sum(counts.values()),
            pages=totals.get("records", 0),
            requests=totals.get("fetches", 0),
            wire_bytes=totals.get("wire_bytes", 0),
            first_request=instant_text(first) if span else "",
            last_answer=instant_text(last) if span else "",
            seconds=round(max(last - first, 0.0), 3),
            outcomes=_outcomes(counts),
            host_count=source.host_count(),
            hosts=tuple(_host(line) for line in source.top_hosts(_TOP_HOSTS)),
            slowest=tuple(_slow(line) for line in source.slowest(_SLOWEST)),
            robots=Robots(
                source.robots_files(),
                counts.get((State.REFUSED, "robots"), 0),
                counts.get((State.HELD, "robots_unreachable"), 0),
            ),
            held=_held(counts, job),
            outputs=_outputs(source.cursors(), totals.get("records", 0)),
        )


def encode_report(report: Report) -> bytes:
    """Return a report as indented JSON, with a line end: what `report.json` holds."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def reason_text(reason: str) -> str:
    """Return what a reason means, in words; empty for one this version does not know."""
    status = _HTTP_REASON.match(reason)
    if status:
        return REASONS["http_<status>"].replace("this status", f"status {status[1]}")
    return REASONS.get(reason, "")


def instant_text(moment: float) -> str:
    """Return an instant as RFC 3339 in UTC, to the second; a moment no calendar has is shown as it is."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(moment)


def _outcomes(counts: Mapping[tuple[State, str], int]) -> tuple[Outcomes, ...]:
    order = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return tuple(Outcomes(state.label, reason, n, reason_text(reason)) for (state, reason), n in order)


def _held(counts: Mapping[tuple[State, str], int], job: str) -> tuple[Held, ...]:
    held = []
    for (state, reason), n in sorted(counts.items()):
        if state is State.HELD:
            remedy = _REMEDIES.get(reason, f"gossamer retry {{job}} --reason {shlex.quote(reason)}")
            # Not str.format: a reason from a damaged ledger may hold braces.
            held.append(
                Held(
                    reason,
                    n,
                    reason_text(reason),
                    remedy.replace("{job}", shlex.quote(job) if job else "JOB"),
                )
            )
    return tuple(held)


def _host(line: HostLine) -> Host:
    return Host(line.host, line.pages, line.failed, line.forbidden, _milliseconds(line.mean_elapsed))


def _slow(line: TimingLine) -> Slow:
    return Slow(line.group, line.fetches, _milliseconds(line.mean_elapsed), _milliseconds(line.longest))


def _outputs(cursors: Sequence[Cursor], records: int) -> tuple[Output, ...]:
    return tuple(Output(c.output, c.records, c.offset, max(records - c.records, 0)) for c in cursors)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)
