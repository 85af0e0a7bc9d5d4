"""A web of a million hosts that fits into memory: its ledger in arrays, its servers as a distribution, its time made up."""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gossamer.config.settings import PolitenessSettings
from gossamer.engine.committer import Done
from gossamer.engine.crew import Desk
from gossamer.engine.report import Report
from gossamer.model.outcome import (
    Batch,
    Committed,
    Cursor,
    Deferred,
    Fetch,
    Found,
    GroupState,
    Pause,
    Settled,
    State,
    StoredRobots,
    Visit,
)
from gossamer.model.request import Known, Lease, Request
from gossamer.model.response import Response
from gossamer.model.schedule import Added, HostInfo, LogEntry
from gossamer.policy.politeness import pause_after
from gossamer.testing.clock import FakeClock

FETCHED = Settled(State.FETCHED, "ok", "", 200)
#: A host has fewer pages than this, so that host and page make one number.
_PAGES = 1 << 24
#: Rounding of times around a million seconds.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Web:
    """How many hosts there are, how many pages they have, and how fast they answer."""

    hosts: int = 1_000_000
    #: The host of rank r has `scale` / r ** `exponent` pages, at least one and at most `largest`.
    exponent: float = 1.1
    scale: int = 100_000
    largest: int = 10_000
    #: Seconds of a request: lognormal.
    median_seconds: float = 0.3
    sigma: float = 0.8
    seed: int = 1

    @property
    def mean_seconds(self) -> float:
        return self.median_seconds * math.exp(self.sigma**2 / 2)

    def sizes(self) -> array[int]:
        """Return the pages of each host; large and small ones are found in any order."""
        sizes = [
            max(1, min(self.largest, int(self.scale / rank**self.exponent)))
            for rank in range(1, self.hosts + 1)
        ]
        random.Random(self.seed).shuffle(sizes)
        return array("I", sizes)


def mean_gap(web: Web, politeness: PolitenessSettings) -> float:
    """Return the mean seconds between two starts at a host that is never short of work: its delay, or longer where
    the last answer took long, and the jitter."""
    least = politeness.delay
    factor = politeness.response_factor if politeness.adaptive else 1.0
    x = math.log(least / (factor * web.median_seconds)) / web.sigma
    fast = 0.5 * (1 + math.erf(x / math.sqrt(2)))
    slow = 0.5 * (1 + math.erf((web.sigma - x) / math.sqrt(2)))
    return (least * fast + factor * web.mean_seconds * slow) * (1 + politeness.jitter / 2)


class ArrayLedger:
    """Answers as a ledger that holds the whole web and finds nothing new. Implements `Ledger`.

    The pages of a host are nearly always done in their order, so one number tells which; the others are listed.
    """

    def __init__(self, sizes: array[int]) -> None:
        self.sizes = sizes
        #: Pages done of each host.
        self.done = array("I", bytes(4 * len(sizes)))
        #: The first page that is not, and those behind it that are.
        self._next = array("I", bytes(4 * len(sizes)))
        self._ahead: dict[int, set[int]] = {}
        self.left = sum(sizes)
        self._live = bytearray(b"\1" * len(sizes))
        self._starts = array("d", bytes(8 * len(sizes)))
        self._delays = array("d", bytes(8 * len(sizes)))

    async def take(self, host: str, limit: int, now: float) -> list[Known]:
        del now
        number = int(host)
        ahead = self._ahead.get(number, ())
        first = self._next[number]
        last = min(first + limit + len(ahead), self.sizes[number])
        pages = [page for page in range(first, last) if page not in ahead][:limit]
        return [Known(Request(f"http://{host}/{page}", number * _PAGES + page, host), page) for page in pages]

    async def hosts(self, after: int, limit: int) -> tuple[list[str], int]:
        found: list[str] = []
        place = after
        while len(found) < limit:
            number = self._live.find(1, place)
            if number < 0:
                return found, 0
            found.append(str(number))
            place = number + 1
        return found, place

    async def host_info(self, hosts: Sequence[str], groups: Mapping[str, str] = {}) -> list[HostInfo]:
        del groups
        return [
            HostInfo(host, self.done[number], GroupState(host, self._starts[number], self._delays[number]))
            for host, number in ((host, int(host)) for host in hosts)
        ]

    async def commit(self, batch: Batch) -> Committed:
        for visit in batch.visits:
            if visit.settles:
                self._settle(*divmod(visit.known.request.fingerprint, _PAGES))
        for state in batch.groups:
            self._starts[int(state.group)] = state.last_start
            self._delays[int(state.group)] = state.delay
        return Committed(0, frozenset(), [])

    def _settle(self, number: int, page: int) -> None:
        ahead = (
            self._ahead.setdefault(number, set()) if page != self._next[number] else self._ahead.get(number)
        )
        assert page >= self._next[number], "a page was committed twice"
        if ahead is None:
            self._next[number] += 1
        else:
            assert page not in ahead, "a page was committed twice"
            ahead.add(page)
            while self._next[number] in ahead:
                ahead.remove(self._next[number])
                self._next[number] += 1
            if not ahead:
                del self._ahead[number]
        self.done[number] += 1
        self.left -= 1
        if self.done[number] == self.sizes[number]:
            self._live[number] = 0

    async def is_drained(self) -> bool:
        return not self.left

    async def hold(self, reason: str, host: str = "") -> int:
        raise AssertionError(f"{host or 'all'} held for {reason}: nothing goes wrong in this web")

    # What a crawl without seeds, cookies and outputs has no use for.

    async def add(self, found: Sequence[Found], *, roots: Iterable[str] = (), progress: str = "") -> Added:
        raise NotImplementedError

    async def deepen(self, max_depth: int) -> int:
        raise NotImplementedError

    async def close_seeding(self) -> None:
        raise NotImplementedError

    async def robots(self, origin: str) -> StoredRobots:
        raise NotImplementedError

    async def cookies(self) -> list[bytes]:
        return []

    async def log(self, after: int, limit: int) -> list[LogEntry]:
        raise NotImplementedError

    async def cursors(self) -> list[Cursor]:
        return []

    async def save_cursors(self, cursors: Sequence[Cursor]) -> None:
        assert not cursors

    async def close(self) -> None: ...


class VirtualTime(selectors.SelectSelector):
    """Never waits: where an event loop would, it moves the clock to the next timer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the crawl waits for something that will never happen")
        if timeout > 0:
            self._clock.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the clock's."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(VirtualTime(clock))
        self._now = clock

    def time(self) -> float:
        return self._now()


@dataclass(slots=True)
class Seen:
    """What the servers saw, on their own clocks: it owes nothing to the scheduler."""

    #: Hosts' last starts; 0.0 where there was none.
    last: array[float]
    began: float
    starts: int = 0
    pages: int = 0
    #: Starts sooner than the delay after the last one, and requests beside another to the same host.
    too_early: int = 0
    beside_another: int = 0
    #: Waits in steps of 2 %: hosts' first requests since the begin, and later ones since the last start.
    first_waits: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    longest_wait: float = 0.0


_STEP = math.log(1.02)


def note_wait(waits: dict[int, int], seconds: float) -> None:
    step = int(math.log(max(seconds, 1e-3)) / _STEP)
    waits[step] = waits.get(step, 0) + 1


def quantile(waits: dict[int, int], share: float) -> float:
    """Return the wait that `share` of all did not exceed, up to the width of a step."""
    wanted = share * sum(waits.values())
    for step in sorted(waits):
        wanted -= waits[step]
        if wanted <= 0:
            return math.exp((step + 1) * _STEP)
    return 0.0


class Servers:
    """All the hosts, and a crew of `slots` that asks them. Implements `Crew`.

    A host is asked for its robots.txt first, as a worker would; it allows everything. `after_start` is called with
    the number of starts so far.
    """

    def __init__(
        self,
        web: Web,
        politeness: PolitenessSettings,
        slots: int,
        clock: FakeClock,
        after_start: Callable[[int], None],
    ) -> None:
        self._web = web
        self._politeness = politeness
        self._slots = slots
        self._clock = clock
        self._after_start = after_start
        self._random = random.Random(web.seed)
        self._mu = math.log(web.median_seconds)
        self._busy: set[int] = set()
        self._has_rules = bytearray(web.hosts)
        self._desk: Desk | None = None
        self.seen = Seen(array("d", bytes(8 * web.hosts)), clock())

    def free(self) -> int:
        return self._slots - len(self._busy)

    def submit(self, lease: Lease) -> None:
        now = self._clock()
        number = int(lease.request.host)
        self._check(number, lease, now)
        self._busy.add(number)
        self.seen.starts += 1
        seconds = self._random.lognormvariate(self._mu, self._web.sigma)
        asyncio.get_running_loop().call_later(seconds, self._answer, lease, number, now, seconds)
        self._after_start(self.seen.starts)

    def _check(self, number: int, lease: Lease, now: float) -> None:
        seen = self.seen
        last = seen.last[number]
        seen.last[number] = now
        seen.beside_another += number in self._busy
        if not last:
            note_wait(seen.first_waits, now - seen.began)
            return
        wait = now - last
        seen.too_early += wait < max(self._politeness.delay, lease.delay) - _ROUNDING
        seen.longest_wait = max(seen.longest_wait, wait)
        note_wait(seen.waits, wait)

    def _answer(self, lease: Lease, number: int, started: float, seconds: float) -> None:
        assert self._desk is not None
        self._busy.discard(number)
        host = lease.request.host
        floor = self._politeness.delay
        if not self._has_rules[number]:
            self._has_rules[number] = 1
            fetch = Fetch(
                f"http://{host}/robots.txt", host, started, lease.delay, seconds, 404, 0, kind="robots"
            )
            pause = Pause(started, max(floor, lease.slowness), origin=host, floor=floor)
            report = Report(Visit(lease.known, Deferred(), fetches=(fetch,)), pause)
        else:
            self.seen.pages += 1
            url = lease.request.url
            fetch = Fetch(url, host, started, lease.delay, seconds, 200, 0)
            answer = Response(url, 200, (), b"", started, seconds, 0)
            pause = pause_after(
                answer, lease, host, floor, self._politeness, self._clock(), self._random.random()
            )
            report = Report(Visit(lease.known, FETCHED, fetches=(fetch,)), pause)
        self._desk.reported(lease, report)
        self._desk.ready()

    def learn(self, done: Iterable[Done], lost: frozenset[int]) -> None:
        del done
        assert not lost

    def hand_back(self) -> None:
        """Do nothing: a request begins at once."""

    def revoke(self, leases: Iterable[Lease]) -> None:
        assert not list(leases), "a lease expired under a request that is answered"

    def join(self, root: str) -> None:
        raise NotImplementedError

    async def run(self, desk: Desk) -> None:
        self._desk = desk
        await asyncio.Event().wait()
