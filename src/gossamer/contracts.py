"""The seams of Gossamer: what each part promises to the others, held to one contract suite per seam."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from gossamer.model.outcome import (
    Batch,
    Committed,
    Cursor,
    Found,
    GroupState,
    Pause,
    Revival,
    RobotsFile,
    State,
    StoredCookie,
    StoredRobots,
)
from gossamer.model.page import Facts
from gossamer.model.request import Known, Lease
from gossamer.model.response import FetchFailure, Response
from gossamer.model.schedule import Added, HostInfo, LogEntry, Lost, Outlook, Refill, Stall

#: Seconds since the epoch. It never runs backwards within a process.
Clock = Callable[[], float]

#: Called with the name of a boundary a process may die at. Does nothing, but in crash tests.
Failpoint = Callable[[str], None]


def no_failpoint(_name: str) -> None:
    """Pass every boundary."""


class Ledger(Protocol):
    """The truth about one job: every URL, its state and reason, and every record. Survives any crash.

    * A fingerprint is accepted once. Adding it again changes nothing, unless the new finding has a smaller
      depth or priority, which improves it, and reopens it if only its depth had refused it.
    * A content (`Visit.content`) has one record: a page that is committed with one that another page has, or a
      nearly equal one, is settled as a duplicate of it, without its record but with its links. Of one batch the
      page whose record would come first has it. A visit that does not count has no content.
    * `commit` is one transaction. A visit counts only if its URL is still live at the attempt it was leased
      at; records, links and logs of the others are dropped, all but the fetches, which did happen, and
      the cookies, which did arrive.
    * A job never has more records than `Batch.max_records`, whoever commits at the same time. A visit whose record is
      one too many does not count, and its URL stays live at its attempt, as if it had been given back.
    * A batch is applied once, however often it is sent.
    * Records appear in the log in commit order and are never changed.
    """

    async def add(self, found: Sequence[Found], *, roots: Iterable[str] = (), progress: str = "") -> Added:
        """Accept URLs, and in the same transaction the scope roots and the note how far seeding has come."""
        ...

    async def commit(self, batch: Batch) -> Committed:
        """Write outcomes, records, new URLs and the fetch log of a batch, or nothing of it."""
        ...

    async def take(self, host: str, limit: int, now: float) -> list[Known]:
        """Return the host's next live requests, due ones first, then by priority and age. Takes nothing away."""
        ...

    async def hosts(self, after: int, limit: int) -> tuple[list[str], int]:
        """Return hosts that have live URLs, and the key to pass as `after` next time; 0 begins anew."""
        ...

    async def host_info(self, hosts: Sequence[str], groups: Mapping[str, str] = {}) -> list[HostInfo]:
        """Return page counts and the persisted politeness state of hosts; notes the group of those named in `groups`.

        A host that was never named there is a group of its own.
        """
        ...

    async def is_drained(self) -> bool:
        """Say whether seeding is closed and no live URL is left: the job is done."""
        ...

    async def deepen(self, max_depth: int) -> int:
        """Recompute depths from the pages URLs were found on, where those came nearer; queue what is now near enough."""
        ...

    async def close_seeding(self) -> None:
        """Note that every seed has been added."""
        ...

    async def hold(self, reason: str, host: str = "") -> int:
        """Move all queued URLs (of one host) to held; returns how many.

        Visits under way no longer count, unless the reason is `SWITCHED_OFF`: those are finished.
        """
        ...

    async def robots(self, origin: str) -> StoredRobots:
        """Return the newest robots.txt stored for an origin, and since when it has not answered.

        A committed file of status `ROBOTS_UNREACHABLE` is not stored: the first one in a row notes the time. Nor does one of
        status `ROBOTS_ASSUMED` end the row. Any other does.
        """
        ...

    async def cookies(self) -> list[bytes]:
        """Return the cookies that visits have brought, the one set longest ago first: a bounded number, the newest."""
        ...

    async def log(self, after: int, limit: int) -> list[LogEntry]:
        """Return batches of the record log behind a position."""
        ...

    async def cursors(self) -> list[Cursor]:
        """Return the outputs and how far each has come."""
        ...

    async def save_cursors(self, cursors: Sequence[Cursor]) -> None:
        """Store how far outputs have come, after their bytes are safe on disk."""
        ...

    async def close(self) -> None:
        """Finish what is being written and let go of the ledger."""
        ...


class JobLedger(Ledger, Protocol):
    """A ledger with what a job needs before and after its crawl: its numbers, its notes, and what may be tried again."""

    async def revive(self, which: Revival) -> int:
        """Queue URLs again that are held, refused or failed and match, as if they had never been tried."""
        ...

    async def roots(self, limit: int) -> list[str]:
        """Return scope roots, those of the seeds and of their redirects, up to a number of them."""
        ...

    async def counts(self) -> Counter[tuple[State, str]]:
        """Return the number of URLs by state and reason."""
        ...

    async def totals(self) -> dict[str, int]:
        """Return the running totals: records, fetches, wire_bytes."""
        ...

    async def get_meta(self, key: str) -> str:
        """Return a note about the job, or an empty string."""
        ...

    async def set_meta(self, key: str, value: str) -> None:
        """Store a note about the job."""
        ...


class Grouping(Protocol):
    """Names the politeness group of hosts, before they are scheduled."""

    async def groups(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the groups of those hosts that are not groups of their own."""
        ...


class Scheduler(Protocol):
    """Decides who may be fetched now. Disposable: all it holds can be rebuilt from the ledger.

    * A request is in at most one place: a window or a lease. Pushing one that is queued, leased, or was
      settled while the push was under way is refused.
    * Two starts in one politeness group are at least its delay apart, and at most `per_host` leases of
      a group are open at a time; of one that is parked for its failures, one.
    * A group's delay is never shorter than the longest that one of its origins asks for (`Pause.floor`).
    * A lease is released and settled by its token. A stale token changes nothing and is counted.
    * Memory is bounded by windows: `window_urls` for each of at most `active_hosts` hosts.
    """

    async def missing(self, hosts: Sequence[str]) -> list[str]:
        """Return those of `hosts` that are not scheduled and for which there is room."""
        ...

    async def activate(self, infos: Sequence[HostInfo]) -> None:
        """Schedule hosts, empty and hungry, with the politeness state they had."""
        ...

    async def offer(self, known: Sequence[Known]) -> int:
        """Put freshly committed requests into the windows that have room for them; returns how many fitted."""
        ...

    async def hungry(self, limit: int) -> list[Refill]:
        """Return refills for hosts whose windows ran low; each must be answered by `push`."""
        ...

    async def push(self, refill: Refill, known: Sequence[Known]) -> int:
        """Fill a window. Fewer than `refill.limit` means the ledger has no more for this host now."""
        ...

    async def lease(self, limit: int) -> list[Lease]:
        """Lease up to `limit` due requests. Empty means none is due now: see `outlook`."""
        ...

    def begin_by(self, lease: Lease) -> float:
        """Return, without waiting, the moment before which the request of a lease must begin, as far as is known now.

        It never lies behind the expiry of the lease, and may move. One that is too late is released, put back, without
        a start.
        """
        ...

    async def started(self, lease: Lease, at: float) -> None:
        """Note that the first byte is about to go out: the group is due again `delay` after `at`."""
        ...

    async def release(self, lease: Lease, pause: Pause, *, put_back: bool = False) -> None:
        """Free the host's slot and set when it is due; with `put_back` the request returns to its window."""
        ...

    async def settle(self, leases: Sequence[Lease], recorded: frozenset[int] = frozenset()) -> None:
        """Forget requests after their commit. `recorded` are the fingerprints that count as pages."""
        ...

    async def expired(self) -> list[Lost]:
        """Take leases past their expiry from their holders, whose slots are free from now on.

        The caller must commit and settle them: until then their requests are leased to nobody else. Where schedules are
        shared, those it does not settle within the time of a lease are taken from it in turn.
        """
        ...

    async def stalled(self, horizon: float) -> list[Stall]:
        """Unschedule hosts with nothing leased that cannot be served.

        They cannot be leased before `horizon`, have used up their pages, have failed too often, or are switched off.
        """
        ...

    async def group_states(self, groups: Iterable[str]) -> list[GroupState]:
        """Return what of these groups' clocks must survive a restart."""
        ...

    async def outlook(self) -> Outlook:
        """Describe what waits and until when."""
        ...


class Ruling(msgspec.Struct, frozen=True):
    """What robots.txt says about one URL."""

    allowed: bool
    #: The line that decided, for people.
    rule: str
    #: Seconds between two requests that keep its Crawl-delay and its Request-rate.
    crawl_delay: float | None
    #: Version of the robots.txt, for the fetch log.
    version: int


class Unknown(msgspec.Struct, frozen=True):
    """No usable robots.txt at hand: fetch it before anything else of this origin."""


class Unreachable(msgspec.Struct, frozen=True):
    """The robots.txt could not be fetched, so nothing of its origin may be: wait, or give up for this run."""

    until: float
    detail: str
    #: Tried often enough: hold the URL.
    exhausted: bool


class Lesson(msgspec.Struct, frozen=True):
    """What a robots.txt request taught: the file for the ledger, and lines for the log of what is odd about it."""

    file: RobotsFile
    notes: tuple[str, ...] = ()


class RobotsCache(Protocol):
    """Remembers the robots.txt of each origin. Answers without waiting once it knows.

    * Where a robots.txt cannot be had, nothing is allowed: until it answers, or until it was unreachable for
      `robots_unreachable_days`, counted across runs. Then the last copy is used, or all is allowed if there is none.
    """

    def rule(self, origin: str, url: str) -> Ruling | Unknown | Unreachable:
        """Say whether `url` of `origin` may be fetched."""
        ...

    async def recall(self, origin: str) -> bool:
        """Load what the ledger has for this origin; False if there is nothing fresh."""
        ...

    def learn(self, origin: str, answer: Response | FetchFailure, now: float) -> Lesson:
        """Take in the answer to a robots.txt request."""
        ...


class Extractor(Protocol):
    """Reads the facts of documents of one kind: HTML, or XML."""

    def extract(
        self,
        body: bytes,
        content_type: str,
        url: str,
        x_robots_tag: Sequence[str] = (),
        content_language: str = "",
        *,
        with_text: bool = False,
    ) -> Facts:
        """Extract; never raises, whatever the bytes. The text a reader would see only `with_text`."""
        ...


class CookieJar(Protocol):
    """Keeps cookies by the rules of RFC 6265."""

    def store(self, url: str, set_cookie_headers: Sequence[str], now: float) -> tuple[StoredCookie, ...]:
        """Take in the Set-Cookie headers of a response from `url`; returns what the ledger must write of it."""
        ...

    def header_for(self, url: str, now: float) -> str:
        """Return the Cookie header for a request to `url`; empty for none."""
        ...


class Fetcher(Protocol):
    """Fetches one URL, one hop. What goes wrong with the page is returned, not raised."""

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        max_body_bytes: int | None = None,
        truncate: bool = False,
        started: Callable[[float], None] | None = None,
    ) -> Response | FetchFailure:
        """Fetch `url`. `started` is called right before the first byte goes out."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class EventLog(Protocol):
    """The structured log of a job. Writing never waits and never raises."""

    def write(self, event: str, /, **fields: object) -> None:
        """Note that something happened."""
        ...


class Sink(Protocol):
    """An output that consumes the record log. It owns its file; the ledger owns its cursor.

    * `open` makes the file agree with the cursor: it cuts off what was written after it, or raises
      `OutputFailed` where it cannot. A file shorter than its cursor, or with other columns than are now asked
      for, is begun again from position 0.
    * The cursor that `open` returns must be saved before the first `write`: by it the next `open` knows
      the bytes in the file for this job's. A new output whose file already holds bytes is a `UsageError`,
      and then nothing is touched, and nothing may be saved.
    * `write` returns the new cursor only after the bytes are safe on disk. A position that was written is
      passed over, and a failed write is final: the sink writes no more.
    * A caller that is cancelled waits for the write under way, and `cursor` knows of it.
    * Pipes and devices cannot be cut: they get every record at least once.
    """

    @property
    def output(self) -> str:
        """The name of the output in the ledger: an absolute path, or `-`."""
        ...

    @property
    def cursor(self) -> Cursor:
        """How far the output has come, as of the last complete write."""
        ...

    async def open(self, cursor: Cursor, *, is_new: bool) -> Cursor:
        """Prepare the file and return the cursor to go on from. `is_new`: the ledger has no cursor for it yet."""
        ...

    async def write(self, entry: LogEntry) -> Cursor:
        """Append one batch and return the cursor behind it."""
        ...

    async def close(self) -> None:
        """Finish the file."""
        ...
