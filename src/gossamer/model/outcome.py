"""What became of a URL: its state, the reason, and what one visit asks the ledger to write."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from gossamer.model.request import Known, Request


class State(IntEnum):
    """Where a URL stands. The numbers are stored; the names are what people see."""

    QUEUED = 0
    HELD = 1
    FETCHED = 2
    REDIRECTED = 3
    UNCHANGED = 4
    DUPLICATE = 5
    REFUSED = 6
    FAILED = 7

    @property
    def label(self) -> str:
        """The lower-case name used on the command line and in reports."""
        return self.name.lower()


#: The reason of URLs whose host an operator has switched off. What of them is under way is finished.
SWITCHED_OFF = "switched_off"

#: Every reason a URL can have, with what it means and what a user can do about it.
REASONS: dict[str, str] = {
    "": "waiting for its turn",
    "ok": "fetched, and the server answered with a success",
    "http_<status>": "the server answered with this status; 5xx and 429 were retried first",
    "duplicate": "fetched, and its content is that of another page; --skip-duplicates keeps one record of each content",
    "redirect": "the server redirected; the target is a URL of its own",
    "robots": "robots.txt forbids it (see `explain` for the rule)",
    "scope": "outside the scope of the job",
    "shard": "belongs to another shard: the job with that --shard fetches it",
    "excluded": "matches --exclude, or matches none of --include",
    "depth": "further from the seeds than --depth allows; a higher --depth revives it",
    "trap": "it looks like a place without end: a calendar, a loop, a session (see `explain`); --no-traps allows it",
    "private_address": "the name leads to a private address; --allow-private or --allow-network permits it",
    "bad_redirect": "a redirect without a usable http or https target",
    "redirect_loop": "its redirects lead in a circle",
    "too_many_redirects": "its chain of redirects is longer than --max-redirects",
    "dns_error": "the host name could not be resolved",
    "connect_error": "no connection could be made",
    "tls_error": "the encrypted connection failed",
    "timeout": "no complete answer within --timeout",
    "disconnected": "the server closed the connection too early",
    "protocol_error": "the answer was not valid HTTP",
    "too_large": "the body is larger than --max-size",
    "headers_too_large": "the response head is larger than the limits",
    "bad_content_encoding": "the body could not be decompressed",
    "poison": "its worker process died each time it was tried alone",
    "page_limit": "held: --max-pages was reached; a higher limit revives it",
    "host_limit": "held: --max-pages-per-host was reached; a higher limit revives it",
    "robots_unreachable": "held: robots.txt could not be fetched, so nothing may be; a resume tries again",
    "host_failing": "held: its host failed again and again and was left alone; a resume tries again",
    "blocked": "held: the site answers with a block page or CAPTCHA; go slower or ask its owner, then resume",
    SWITCHED_OFF: "held: an operator has switched its host off; `gossamer sources JOB --on HOST` revives it",
    "wait_too_long": "held: the host asked for a longer wait than --max-wait-seconds; a resume tries again",
}


class Settled(msgspec.Struct, frozen=True, gc=False, tag="settled"):
    """The URL leaves the queue with this state and reason."""

    state: State
    reason: str
    detail: str = ""
    status: int = 0


class Retry(msgspec.Struct, frozen=True, gc=False, tag="retry"):
    """A transient failure: the URL stays queued and is due again at `not_before`."""

    reason: str
    not_before: float
    detail: str = ""
    status: int = 0


class Hop(msgspec.Struct, frozen=True, gc=False, tag="hop"):
    """The input stays open under its own name and goes on at `request.hop` (only in `scrape`)."""

    request: Request


class Deferred(msgspec.Struct, frozen=True, gc=False, tag="deferred"):
    """The lease was spent on robots.txt; nothing about the URL changed."""


class Crashed(msgspec.Struct, frozen=True, gc=False, tag="crashed"):
    """The worker died, or its lease ran out. Counted apart from retries."""

    #: Whether it was the only URL its worker held.
    alone: bool
    #: Settle it as poison instead of queueing it again.
    poison: bool = False


Outcome = Settled | Retry | Hop | Deferred | Crashed


class Found(msgspec.Struct, frozen=True, gc=False):
    """A URL discovered on a page or given as a seed; not yet known to be new.

    With a `refusal` it is recorded as refused for that reason instead of being queued.
    """

    request: Request
    refusal: str = ""
    #: What exactly it was refused for, for people.
    detail: str = ""


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """One request that went out: a row of the fetch log, which `audit` replays."""

    url: str
    group: str
    started_at: float
    #: The delay of the group in force at that moment.
    delay: float
    elapsed: float
    status: int
    wire_bytes: int
    problem: str = ""
    #: Version of the robots.txt that allowed it; 0 for robots.txt itself and with --no-robots.
    robots: int = 0
    kind: str = "page"


#: Status of a robots.txt that could not be had. It says nothing; the ledger only notes since when.
ROBOTS_UNREACHABLE = 0
#: Status of one that could not be had for so long that its last copy is used, or its absence assumed: no body.
ROBOTS_ASSUMED = -1


class RobotsFile(msgspec.Struct, frozen=True, gc=False):
    """A robots.txt as an origin served it, or what stands in for it. `version` is a hash of what it says."""

    origin: str
    fetched_at: float
    #: 200 with rules; 404 when the origin has none; or one of those above, which no server sends.
    status: int
    body: bytes
    version: int
    #: Seconds between two requests that it asks us for, when it was read; 0.0 for nothing. Ledgers give back 0.0.
    crawl_delay: float = 0.0


class StoredRobots(msgspec.Struct, frozen=True, gc=False):
    """What a ledger has of an origin's robots.txt."""

    #: The newest that was stored, however old; None where there never was one.
    file: RobotsFile | None = None
    #: When it first could not be had since it last answered; 0.0 where its last try was answered.
    unreachable_since: float = 0.0


class StoredCookie(msgspec.Struct, frozen=True, gc=False):
    """A cookie as the ledger keeps it: by a key that a later cookie of the same place has too."""

    key: str
    #: As the cookie jar wrote it; empty where there was no more room for it.
    data: bytes
    #: The server has taken it back. `data` then makes any jar that loads it do the same.
    removed: bool = False


class Content(msgspec.Struct, frozen=True, gc=False):
    """What of a page decides whether another says the same."""

    #: 64 bits of the hash of its body.
    exact: int
    #: The simhash of its text, or None where it was not computed.
    near: int | None = None


class Visit(msgspec.Struct, frozen=True, gc=False):
    """Everything one lease produced, ready to be committed."""

    known: Known
    outcome: Outcome
    #: The encoded page record, or empty where the visit yields none.
    record: bytes = b""
    found: tuple[Found, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    robots: tuple[RobotsFile, ...] = ()
    #: A URL whose scope root joins the job: the target of a seed's redirect.
    root: str = ""
    #: Cookies that were set, changed or removed, for the next run to begin with.
    cookies: tuple[StoredCookie, ...] = ()
    #: Hashes of what the page holds, where the job asks for them: see `Content`.
    content: Content | None = None
    #: Lines for the job's log that no outcome tells of.
    notes: tuple[str, ...] = ()

    @property
    def settles(self) -> bool:
        """Whether the lease is spent; a deferred one is already back in its window."""
        return not isinstance(self.outcome, Deferred)


class Pause(msgspec.Struct, frozen=True, gc=False):
    """What a finished fetch means for its politeness group."""

    #: When the first byte went out; 0.0 if none did, and then no start counts.
    started_at: float = 0.0
    #: The group's delay from now on; None leaves it.
    delay: float | None = None
    #: The group rests until this instant (Retry-After, back-off).
    until: float = 0.0
    #: Whether the group failed (counts up) or answered (resets the count); None leaves it.
    failed: bool | None = None
    #: Why the group's URLs would be held if it went on failing.
    trouble: str = "host_failing"
    #: The seconds the group is slowed down for its trouble; None leaves them.
    slowness: float | None = None
    #: The least delay that an origin asks for, where that is longer than our own: no other origin of the group lowers it.
    origin: str = ""
    floor: float = 0.0


class GroupState(msgspec.Struct, frozen=True, gc=False):
    """What must survive a restart of a politeness group's clock."""

    group: str
    last_start: float = 0.0
    delay: float = 0.0
    #: Not before this instant: Retry-After or back-off.
    until: float = 0.0
    failures: int = 0
    #: What of the delay is for the trouble it had; wears off as it answers.
    slowness: float = 0.0


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """How far an output has consumed the record log, and how long its file was then."""

    output: str
    position: int = 0
    offset: int = 0
    records: int = 0


class Revival(msgspec.Struct, frozen=True):
    """Which URLs to queue again. What is live, fetched or redirected never is."""

    states: tuple[State, ...]
    #: Empty for any.
    reason: str = ""
    except_reasons: tuple[str, ...] = ()
    #: Empty for any.
    host: str = ""
    fingerprint: int | None = None
    #: No further from the seeds than this.
    max_depth: int | None = None
    #: Only on hosts that have fewer page records than this.
    pages_below: int | None = None


class Batch(msgspec.Struct, frozen=True):
    """Visits committed together. `id` lets a ledger recognise a batch whose COMMIT reply was lost."""

    id: str
    visits: tuple[Visit, ...]
    groups: tuple[GroupState, ...] = ()
    cursors: tuple[Cursor, ...] = ()
    at: float = 0.0
    #: Records the job may have in all, those of this batch included; None for any number.
    max_records: int | None = None


class Committed(msgspec.Struct, frozen=True):
    """What a commit did.

    `position` is the batch's place in the record log. `lost` are fingerprints whose visit changed nothing,
    because somebody else had settled them, the attempt was stale, or the job has all the records it may have. `live`
    are the requests now waiting because of this batch: new ones, improved ones, and those to be tried again.
    """

    position: int
    lost: frozenset[int]
    live: list[Known]
    #: The number of URLs that were new to the ledger.
    added: int = 0
    #: The batch as it stands in the record log: how many records, and their JSON lines.
    records: int = 0
    lines: bytes = b""
    #: True where the ledger had this batch already and did nothing.
    repeated: bool = False
    #: Fingerprints that were settled as duplicates: their links count, their records do not.
    duplicates: frozenset[int] = frozenset()
    #: Records of the job when this batch was in, as far as the ledger had to look: see `Batch.max_records`.
    total: int | None = None
