"""What a `SqliteReader` answers, as values."""

from __future__ import annotations

import msgspec

from gossamer.model.outcome import GroupState, State


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
    #: Row of the page it was found on; None for a seed.
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
