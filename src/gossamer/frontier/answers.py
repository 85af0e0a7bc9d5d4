"""What a ledger answers about a job, as values, and the questions: the same for a folder and a shared database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self

import msgspec

from gossamer.model.outcome import Cursor, GroupState, RobotsFile, State

_MAX_CHAIN = 1000


class UrlRow(msgspec.Struct, frozen=True):
    """A URL as the ledger has it."""

    seq: int
    fingerprint: int
    url: str
    host: str
    state: State
    reason: str
    detail: str
    depth: int
    source: str
    #: The page it was found on, as this ledger names its rows; None for a seed.
    parent: int | None
    #: How often in a row it failed and was queued again.
    tries: int
    crashes: int
    #: Not to be fetched before this instant.
    not_before: float
    #: The last HTTP status; 0 where there was none.
    status: int
    #: When it left the queue; 0.0 while it has not.
    settled_at: float
    #: Where an input that was redirected goes on (only in `scrape`); else empty.
    hop: str
    #: The page it was found on, where the row of that page may be gone; else empty.
    parent_url: str


def chain_of(row: UrlRow, own: int, find: Callable[[int], UrlRow | None]) -> tuple[UrlRow, ...]:
    """Follow parents from a row that its ledger names `own`. An improved URL changes its parent: circles are possible."""
    chain: list[UrlRow] = []
    seen = {own}
    parent = row.parent
    while parent is not None and parent not in seen and len(chain) < _MAX_CHAIN:
        seen.add(parent)
        found = find(parent)
        if found is None:
            break
        chain.append(found)
        parent = found.parent
    return tuple(chain)


class FetchRow(msgspec.Struct, frozen=True):
    """One request that went out for a URL."""

    #: What was fetched, where it differs from the URL itself; else empty.
    url: str
    attempt: int
    started_at: float
    elapsed: float
    status: int
    wire_bytes: int
    problem: str


class Explanation(msgspec.Struct, frozen=True):
    """All the ledger knows about one URL."""

    row: UrlRow
    #: The pages that led to it: the one it was found on first, a seed last.
    chain: tuple[UrlRow, ...]
    fetches: tuple[FetchRow, ...]
    #: Where it redirected to; empty where it did not, or where nobody knows.
    redirects_to: str
    #: The clock of its politeness group.
    group: GroupState


class Forgotten(msgspec.Struct, frozen=True):
    """What is left of a URL without a row, which the job's Bloom filter takes for known."""

    #: How probable it is that the filter says so of a URL the job has never seen, at most.
    error_rate: float
    #: Where there are any, it is certain.
    fetches: tuple[FetchRow, ...]


class HostNumbers(msgspec.Struct, frozen=True):
    """What a job did on one host."""

    host: str
    pages: int
    failed: int
    #: Refused by robots.txt.
    forbidden: int
    #: Page requests that went out to its politeness group, and their mean duration in seconds.
    fetches: int
    mean_elapsed: float


class Timing(msgspec.Struct, frozen=True):
    """How long a politeness group took to answer, in seconds."""

    group: str
    fetches: int
    mean_elapsed: float
    longest: float


class Start(msgspec.Struct, frozen=True, gc=False):
    """A request whose first byte went out, as the fetch log has it."""

    #: The politeness group it reached.
    group: str
    started_at: float
    #: The delay in force, in seconds.
    delay: float
    #: May be empty where it is another job's.
    url: str
    #: False for a robots.txt.
    is_page: bool
    #: Version of the robots.txt that allowed it.
    robots: int
    #: A robots.txt fetched for another group, which redirected here. `delay` is then that group's.
    is_guest: bool
    #: False where another job of the same database made it.
    is_own: bool = True


class RobotsVersion(msgspec.Struct, frozen=True, gc=False):
    """Which robots.txt of an origin was read when."""

    fetched_at: float
    version: int
    status: int


class RobotsEra(msgspec.Struct, frozen=True, gc=False):
    """The robots.txt in force at a moment, the one before it, and the moment the next one was read."""

    current: RobotsVersion
    previous: RobotsVersion | None
    until: float


class _Extras(msgspec.Struct, frozen=True):
    """The part of a packed request that explains where an input went."""

    hop: str = ""


_decode_extras = msgspec.msgpack.Decoder(_Extras).decode


def hop_of(packed: bytes) -> str:
    """Return where a packed request goes on. Raises `MsgspecError` or `TypeError` for what is none."""
    return _decode_extras(packed).hop


class JobReader(Protocol):
    """Answers about one job, also while it is worked on. Changes nothing, and never blocks who works.

    * Inside `snapshot` all answers are the same moment of the ledger.
    * Memory does not depend on the size of the job.
    * What cannot be read raises `LedgerFailed`; a server that is away, `BackendUnreachable`.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Answer from one moment of the ledger."""
        ...

    def counts(self) -> Mapping[tuple[State, str], int]:
        """Return the number of URLs by state and reason: by state, the largest first."""
        ...

    def totals(self) -> Mapping[str, int]:
        """Return the running totals: records, fetches, wire_bytes."""
        ...

    def meta(self) -> Mapping[str, str]:
        """Return the notes about the job, such as how far seeding has come."""
        ...

    def is_drained(self) -> bool:
        """Say whether the job is done: seeding is closed and no live URL is left."""
        ...

    def roots(self, limit: int) -> list[str]:
        """Return URLs whose scope is the job's: seeds, and what they redirected to."""
        ...

    def cursors(self) -> Sequence[Cursor]:
        """Return the outputs and how far each has come."""
        ...

    def first_commit(self) -> float:
        """Return when the first batch was committed, or 0.0 before it."""
        ...

    def last_commit(self) -> float:
        """Return when the last batch was committed, or 0.0 before the first."""
        ...

    def records_since(self, moment: float) -> int:
        """Return how many records were committed after a moment."""
        ...

    def span(self) -> tuple[float, float] | None:
        """Return when the first request went out and the last answer came in; None before the first."""
        ...

    def host_count(self) -> int:
        """Return the number of hosts that have a URL in the ledger."""
        ...

    def robots_files(self) -> int:
        """Return the number of origins whose robots.txt was read."""
        ...

    def top_hosts(self, limit: int) -> Sequence[HostNumbers]:
        """Return the hosts with the most pages."""
        ...

    def slowest(self, limit: int) -> Sequence[Timing]:
        """Return the politeness groups that took longest to answer, on average."""
        ...

    def urls(
        self,
        *,
        state: State | None = None,
        reason: str | None = None,
        host: str | None = None,
        limit: int | None = None,
    ) -> Iterator[UrlRow]:
        """Stream URLs in the order of their discovery, each at most once."""
        ...

    def url(self, fingerprint: int) -> UrlRow | None:
        """Return one URL, or None where the ledger has never accepted it."""
        ...

    def explain(self, fingerprint: int) -> Explanation | None:
        """Return all that is known about a URL."""
        ...

    def forgets_finished(self) -> bool:
        """Say whether finished URLs lose their rows, and only a Bloom filter remembers them."""
        ...

    def forgotten(self, url: str, fingerprint: int) -> Forgotten | None:
        """Return what is left of a URL without a row; None where the job has certainly never seen it."""
        ...


class AuditReader(Protocol):
    """What an audit asks of one job. A context manager; inside `snapshot` all answers are the same moment."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Answer from one moment of the ledger."""
        ...

    def starts(self) -> Iterator[Start]:
        """Stream every recorded start by politeness group, and within a group in the order of time.

        Among them are those of other jobs that the same database knows of, as far as they can matter.
        """
        ...

    def robots_era(self, origin: str, moment: float) -> RobotsEra | None:
        """Return which robots.txt of an origin was in force at a moment; None before the first."""
        ...

    def has_robots(self, origin: str, version: int) -> bool:
        """Say whether this version of an origin's robots.txt is stored, whenever it was read."""
        ...

    def last_answer(self, origin: str, moment: float) -> float:
        """Return when an origin last answered for its robots.txt before a moment; 0.0 if it never did."""
        ...

    def robots_unreachable_since(self, origin: str) -> float:
        """Return when the robots.txt of an origin first could not be had; 0.0 where its last try was answered."""
        ...

    def robots_file(self, origin: str, moment: float) -> RobotsFile | None:
        """Return the robots.txt of an origin that was in force at a moment; None before the first."""
        ...

    def doubtful_runs(self) -> int:
        """Return how many runs may have ended with requests under way, whose starts are then not in the log."""
        ...

    def crashes(self) -> int:
        """Return how many visits ended with their worker process."""
        ...
