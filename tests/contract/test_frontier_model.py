"""Random crawls, restarts and races against SQLite and each scheduler: the invariants hold after every step.

The machine plays the engine and its workers. It loses replies, forgets to report starts, lets leases expire, commits
late and drops the scheduler; the numbers in the comments are those of the invariants in docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gossamer.config.redis import RedisSettings
from gossamer.contracts import Scheduler
from gossamer.engine.committer import parted
from gossamer.frontier.memory_scheduler import MemoryScheduler
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import (
    Batch,
    Crashed,
    Deferred,
    Found,
    Outcome,
    Pause,
    Retry,
    Settled,
    State,
    Visit,
)
from gossamer.model.request import Known, Lease
from gossamer.model.schedule import Refill
from gossamer.testing.frontier_cases import FETCHED, REDIRECTED, batch, found, visit
from gossamer.testing.frontier_rig import Rig, make_in_memory
from gossamer.testing.redis_rig import inspect_schedule, new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_server
from gossamer.testing.scheduler_contract import Plan

T = TypeVar("T")

HOSTS = ("a.test", "b.test", "c.test")
NAMES = st.sampled_from([f"{host}/{page}" for host in HOSTS for page in range(4)])
FINDINGS = st.builds(
    found,
    NAMES,
    depth=st.integers(0, 3),
    priority=st.integers(-1, 1),
    refusal=st.sampled_from(["", "", "", "depth", "scope"]),
)
PICK = st.integers(0, 99)
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.5, 10.0])
FAILED = Settled(State.FAILED, "http_404", status=404)


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a visit ends and what it asks of the politeness group."""

    outcome: str
    links: tuple[Found, ...]
    onward: str
    rest: float
    delay: float | None


ENDINGS = st.builds(
    Ending,
    st.sampled_from(["ok", "ok", "retry", "redirect", "failed"]),
    st.lists(FINDINGS, max_size=3).map(tuple),
    NAMES,
    st.sampled_from([0.0, 0.0, 3.0]),
    st.sampled_from([None, None, 3.0]),
)


@dataclasses.dataclass
class Worker:
    """A worker's view of its lease, which may long have been lost."""

    lease: Lease
    #: Who it has the lease from, and asks whether it may begin.
    holder: Scheduler
    started_at: float = 0.0
    #: The schedule knows that the slot is free.
    released: bool = False
    lost: bool = False


@dataclasses.dataclass(frozen=True)
class WindowSight:
    """A window and the group it belongs to, as a scheduler has them."""

    urls: int
    in_flight: int
    is_starting: bool
    is_ready: bool


@dataclasses.dataclass(frozen=True)
class Sight:
    """What is inside a schedule: its windows, and the fingerprints it holds."""

    windows: list[WindowSight]
    queued: list[int]
    leased: list[int]
    #: How many requests it says it has.
    places: int


class FrontierMachine(RuleBasedStateMachine):
    """An engine at work."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = Path(tempfile.mkdtemp(prefix="frontier-model-"))
        self.workers: list[Worker] = []
        self.uncommitted: list[tuple[Lease, Visit]] = []
        self.refills: list[tuple[Refill, list[Known] | None]] = []
        self.starts: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.last_batch: Batch | None = None
        self.batches = 0
        #: How often each fingerprint was settled, less how often it was reopened.
        self.settled: Counter[int] = Counter()
        #: Requests that lost a lease may be in a window although their late holder has settled them.
        self.suspects: set[int] = set()

    def run(self, work: Awaitable[T]) -> T:
        async def main() -> T:
            return await work

        return self.runner.run(main())

    @property
    def scheduler(self) -> Scheduler:
        return self.rig.scheduler

    def open(self, plan: Plan) -> None:
        """Open the ledger and a schedule."""
        self.ledger = SqliteLedger(self.place / "ledger.sqlite", plan.clock)
        self.rig = Rig(self.ledger, self.run(self.make(plan)), plan, self.make)

    async def make(self, plan: Plan) -> Scheduler:
        return await make_in_memory(plan)

    def look(self) -> Sight:
        """Look into the schedule."""
        assert isinstance(self.scheduler, MemoryScheduler)
        ready = {id(group) for *_, stamp, group in self.scheduler._heap if stamp == group.stamp}
        windows = [
            WindowSight(
                len(window),
                group.in_flight,
                is_starting=bool(group.starting and group.delay),
                is_ready=id(group) in ready,
            )
            for window, group in self.scheduler._windows.values()
        ]
        queued = [
            known.request.fingerprint
            for window, _ in self.scheduler._windows.values()
            for *_, known in (*window.entries, *window.later)
        ]
        leased = [lease.request.fingerprint for lease, _ in self.scheduler._leases.values()]
        return Sight(windows, queued, leased, len(self.scheduler._places))

    @initialize(
        delay=st.sampled_from([0.0, 1.0, 2.0]),
        per_host=st.sampled_from([1, 3]),
        window=st.sampled_from([1, 2, 5]),
        active=st.sampled_from([1, 2, 3]),
        seeds=st.lists(NAMES, min_size=2, max_size=6, unique=True),
    )
    def begin(self, delay: float, per_host: int, window: int, active: int, seeds: list[str]) -> None:
        plan = Plan(
            delay=delay, per_host=per_host, window_urls=window, active_hosts=active, lease_seconds=20.0
        )
        self.open(plan)
        self.run(self.rig.add(*seeds))

    # -- the engine ------------------------------------------------------------------------------------

    @rule(findings=st.lists(FINDINGS, min_size=1, max_size=6), offered=st.booleans())
    def add(self, findings: list[Found], offered: bool) -> None:
        added = self.run(self.ledger.add(findings))
        self._note_live(added.live)
        if offered:
            self.run(self.scheduler.offer(added.live))
        before = self._rows()
        assert self.run(self.ledger.add(findings)).live == []  # 5
        assert self._rows() == before

    @rule()
    def sweep(self) -> None:
        self.run(self._sweep_hosts())

    async def _sweep_hosts(self) -> None:
        hosts, _ = await self.ledger.hosts(0, 99)
        missing = await self.scheduler.missing(hosts)
        await self.scheduler.activate(await self.ledger.host_info(missing))

    @rule(limit=st.integers(1, 3), read=st.booleans())
    def ask_for_refills(self, limit: int, read: bool) -> None:
        for refill in self.run(self.scheduler.hungry(limit)):
            self.refills.append((refill, None))
            if read:
                self.read_for_a_refill(len(self.refills) - 1)

    @precondition(lambda self: self.refills)
    @rule(pick=PICK)
    def read_for_a_refill(self, pick: int) -> None:
        place = pick % len(self.refills)
        refill, _ = self.refills[place]
        known = self.run(self.ledger.take(refill.host, refill.limit, self.rig.clock()))
        self.refills[place] = (refill, known)

    @precondition(lambda self: any(known is not None for _, known in self.refills))
    @rule()
    def push_a_refill(self) -> None:
        place = next(i for i, (_, known) in enumerate(self.refills) if known is not None)
        refill, known = self.refills.pop(place)
        assert known is not None
        self.run(self.scheduler.push(refill, known))

    @rule()
    def refill_at_once(self) -> None:
        self.run(self.rig.refill())

    @rule(limit=st.integers(1, 4), seconds=SECONDS, prepared=st.booleans(), begin=st.booleans())
    def lease(self, limit: int, seconds: float, prepared: bool, begin: bool) -> None:
        self.rig.clock.advance(seconds)
        if prepared:
            self.run(self._sweep_hosts())
            self.run(self.rig.refill())
        leases = self.run(self.scheduler.lease(limit))
        assert len(leases) <= limit
        for lease in leases:
            self.workers.append(Worker(lease, self.scheduler))
            if begin:
                self._start(self.workers[-1], reported=limit % 2 == 0)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)

    @rule()
    def take_back_expired_leases(self) -> None:
        lost = [item.lease for item in self.run(self.scheduler.expired())]
        tokens = {lease.token for lease in lost}
        for worker in self.workers:
            worker.lost = worker.lost or worker.lease.token in tokens
        self.uncommitted += [(lease, Visit(lease.known, Crashed(alone=False))) for lease in lost]

    @precondition(lambda self: self.uncommitted)
    @rule(count=st.integers(1, 4), told=st.booleans())
    def commit(self, count: int, told: bool) -> None:
        done, later = parted(self.uncommitted[:count])
        self.uncommitted = later + self.uncommitted[count:]
        self.batches += 1
        groups = self.run(self.scheduler.group_states(HOSTS))
        visits = [item for _, item in done]
        self.last_batch = batch(str(self.batches), *visits, groups=tuple(groups), at=self.rig.clock())
        committed = self.run(self.ledger.commit(self.last_batch))
        self._note_settled(visits, committed.lost)
        self._note_live(committed.live)
        self.run(self.scheduler.settle([lease for lease, item in done if item.settles]))
        if told:
            self.run(self.scheduler.offer(committed.live))

    @precondition(lambda self: self.last_batch)
    @rule()
    def commit_the_last_batch_again(self) -> None:
        assert self.last_batch is not None
        before = self._rows(), self.run(self.ledger.log(0, 999))
        assert self.run(self.ledger.commit(self.last_batch)).repeated
        assert (self._rows(), self.run(self.ledger.log(0, 999))) == before

    @precondition(lambda self: self.starts)
    @rule()
    def restart(self) -> None:
        """The process dies: whatever was not committed is gone, and the ledger is all there is."""
        self.run(self.ledger.close())
        self.workers.clear()
        self.uncommitted.clear()
        self.refills.clear()
        self.suspects.clear()
        self.open(dataclasses.replace(self.rig.plan, resumed_at=self.rig.clock()))

    # -- its workers -----------------------------------------------------------------------------------

    @precondition(lambda self: any(not worker.started_at for worker in self.workers))
    @rule(pick=PICK, seconds=SECONDS, reported=st.booleans(), asked=st.booleans())
    def start(self, pick: int, seconds: float, reported: bool, asked: bool) -> None:
        self.rig.clock.advance(seconds)
        if asked:
            self.run(self.scheduler.outlook())
        waiting = [worker for worker in self.workers if not worker.started_at]
        self._start(waiting[pick % len(waiting)], reported=reported)

    def _start(self, worker: Worker, *, reported: bool) -> None:
        now = self.rig.clock()
        if now >= worker.holder.begin_by(worker.lease):
            return  # too late: a worker that slept through its lease, or through a wipe, does not begin
        worker.started_at = now
        starts = self.starts[worker.lease.request.host]
        if starts:
            assert now - starts[-1][0] >= worker.lease.delay  # 3
        starts.append((now, worker.lease.delay))
        if reported:
            self.run(self.scheduler.started(worker.lease, now))

    @precondition(lambda self: any(worker.started_at for worker in self.workers))
    @rule(seconds=SECONDS, pick=PICK, ending=ENDINGS, at_once=st.booleans())
    def finish(self, seconds: float, pick: int, ending: Ending, at_once: bool) -> None:
        self.rig.clock.advance(seconds)
        running = [worker for worker in self.workers if worker.started_at]
        self._finish(running[pick % len(running)], ending)
        if at_once:
            self.commit(count=99, told=True)

    @rule(
        endings=st.lists(ENDINGS, min_size=1, max_size=6),
        seconds=SECONDS,
        told=st.booleans(),
        slow=st.booleans(),
    )
    def crawl(self, endings: list[Ending], seconds: float, told: bool, slow: bool) -> None:
        """Go on for a while as a crawl does, with commits that lag a little or refills that do."""
        for ending in endings:
            self.lease(limit=2, seconds=seconds, prepared=True, begin=True)
            if slow:
                self.ask_for_refills(limit=9, read=True)
            for worker in [worker for worker in self.workers if worker.started_at][:2]:
                self._finish(worker, ending)
            if len(self.uncommitted) > (0 if slow else 2):
                self.commit(count=2, told=told)
            while slow and any(known is not None for _, known in self.refills):
                self.push_a_refill()

    def _finish(self, worker: Worker, ending: Ending) -> None:
        self.workers.remove(worker)
        known, now = worker.lease.known, self.rig.clock()
        results: dict[str, tuple[Outcome, tuple[Found, ...]]] = {
            "ok": (FETCHED, ending.links),
            "retry": (Retry("timeout", now + 2), ()),
            "redirect": (REDIRECTED, (_redirect(known, ending.onward),)),
            "failed": (FAILED, ()),
        }
        stale = self.run(self.scheduler.outlook()).stale
        until = now + ending.rest if ending.rest else 0.0
        pause = Pause(worker.started_at, ending.delay, until, failed=ending.outcome == "retry")
        self.run(self.scheduler.release(worker.lease, pause))
        assert self.run(self.scheduler.outlook()).stale == stale + worker.lost  # 4
        result, links = results[ending.outcome]
        self.uncommitted.append((worker.lease, visit(known, result, *links, at=worker.started_at)))

    @precondition(lambda self: any(not worker.started_at for worker in self.workers))
    @rule(pick=PICK, put_back=st.booleans())
    def give_up_before_the_start(self, pick: int, put_back: bool) -> None:
        waiting = [worker for worker in self.workers if not worker.started_at]
        worker = waiting[pick % len(waiting)]
        self.workers.remove(worker)
        self.run(self.scheduler.release(worker.lease, Pause(), put_back=put_back))
        outcome: Outcome = Deferred() if put_back else Retry("dns_error", self.rig.clock() + 1)
        self.uncommitted.append((worker.lease, Visit(worker.lease.known, outcome)))

    # -- what must always be true ----------------------------------------------------------------------

    @invariant()
    def a_request_is_in_one_place_and_live(self) -> None:  # 1
        live = {fp for fp, state in self._rows().items() if state[0] == State.QUEUED}
        sight = self.look()
        places = {*sight.queued, *sight.leased}
        assert len(places) == len(sight.queued) + len(sight.leased) == sight.places
        assert places <= live | self.suspects

    @invariant()
    def no_host_with_work_at_hand_is_forgotten(self) -> None:  # 2
        for window in self.look().windows:
            busy = window.is_starting or window.in_flight >= self.rig.plan.per_host
            assert not window.urls or busy or window.is_ready

    @invariant()
    def the_schedule_keeps_its_bounds(self) -> None:  # 7
        plan = self.rig.plan
        windows = self.look().windows
        assert len(windows) <= plan.active_hosts
        for window in windows:
            assert window.urls <= plan.window_urls
            assert window.in_flight <= plan.per_host

    @invariant()
    def the_counts_equal_a_recount(self) -> None:
        recount = Counter(self._rows().values())
        assert self.run(self.ledger.counts()) == recount

    # -- the end ---------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            if hasattr(self, "rig"):
                self._drain()
                self.run(self.ledger.close())
                self.let_go()
        finally:
            self.runner.close()
            shutil.rmtree(self.place)

    def let_go(self) -> None:
        """Close the schedule."""

    def _drain(self) -> None:
        """Workers fall silent; whatever was going on, every URL is settled once and each page has one record."""
        self.run(self.ledger.close_seeding())
        self.refills = [(refill, known or []) for refill, known in self.refills]
        while self.refills:
            self.push_a_refill()
        for _ in range(300):
            if self.run(self.ledger.is_drained()):
                break
            self.wait(21.0)
            self.take_back_expired_leases()
            while self.uncommitted:
                self.commit(count=4, told=True)
            self.sweep()
            self.refill_at_once()
            for lease in self.run(self.scheduler.lease(9)):
                self.workers.append(Worker(lease, self.scheduler))
            for worker in [worker for worker in self.workers if not worker.lost]:
                worker.started_at = worker.started_at or self.rig.clock()
                self.workers.remove(worker)
                self.run(self.scheduler.release(worker.lease, Pause(worker.started_at)))
                self.uncommitted.append((worker.lease, visit(worker.lease.known)))
        self._check_the_end()

    def _check_the_end(self) -> None:
        assert self.run(self.ledger.is_drained())
        rows = self._rows()
        assert {fp for fp, (state, _) in rows.items() if state != State.REFUSED} == set(self.settled)
        assert set(self.settled.values()) <= {1}
        urls = Counter(url for url, _ in self.run(self.rig.records()))
        fetched = {self.urls[fp] for fp, (state, _) in rows.items() if state == State.FETCHED}
        assert urls == Counter(fetched)

    def _note_settled(self, visits: list[Visit], lost: frozenset[int]) -> None:
        for item in visits:
            fingerprint = item.known.request.fingerprint
            if isinstance(item.outcome, Settled) and fingerprint not in lost:
                self.settled[fingerprint] += 1

    def _note_live(self, live: list[Known]) -> None:
        for known in live:
            if self.settled[known.request.fingerprint]:
                assert known.visit == 2
                self.settled[known.request.fingerprint] -= 1

    def _rows(self) -> dict[int, tuple[State, str]]:
        rows: list[tuple[Any, ...]] = self.ledger._db.execute(
            "SELECT fp, url, state, reason FROM urls"
        ).fetchall()
        self.urls = {fp: url for fp, url, _, _ in rows}
        return {fp: (State(state), reason) for fp, _, state, reason in rows}


def _redirect(known: Known, target: str) -> Found:
    chain = (*known.request.redirected_from, known.request.url)
    request = msgspec.structs.replace(found(target).request, redirected_from=chain)
    return Found(request, "" if len(chain) < 4 else "too_many_redirects")


TestFrontier = FrontierMachine.TestCase
TestFrontier.settings = settings(
    max_examples=120,
    stateful_step_count=60,
    deadline=None,
    # Shrinking a failure takes minutes, more than a test may: add `Phase.shrink` by hand to have it small.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class RedisFrontierMachine(FrontierMachine):
    """The same engine on Redis, where a schedule outlives its workers and may be wiped under them."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.prefix = new_prefix()
        self.is_aged = False

    async def make(self, plan: Plan) -> Scheduler:
        settings = RedisSettings(url=self.url, prefix=self.prefix)
        aged, self.is_aged = not self.is_aged, True
        return await redis_scheduler(plan, settings, aged=aged)

    def look(self) -> Sight:
        assert isinstance(self.scheduler, RedisScheduler)
        seen = self.run(inspect_schedule(self.scheduler))
        windows = [
            WindowSight(w.urls, w.busy, is_starting=bool(w.starting and w.delay), is_ready=w.ready)
            for w in seen.windows
        ]
        return Sight(windows, seen.queued, seen.leased, seen.places)

    @precondition(lambda self: self.starts)
    @rule()
    def restart(self) -> None:
        """The only worker dies with what it had not told anybody. Its leases expire."""
        self.suspects |= set(self.look().leased)
        self.run(self.ledger.close())
        self.let_go()
        self.workers.clear()
        self.uncommitted.clear()
        self.refills.clear()
        self.open(self.rig.plan)

    @precondition(lambda self: self.starts)
    @rule(noticed=st.booleans())
    def wipe(self, noticed: bool) -> None:
        """The server forgets everything. Who had not begun may do so until it notices, if it ever does."""
        assert isinstance(self.scheduler, RedisScheduler)
        self.run(self.scheduler._calls.flush())
        with redis.Redis.from_url(self.url) as client:
            for name in client.scan_iter(f"{self.prefix}:*"):
                client.delete(name)
        for worker in self.workers:
            worker.lost = True
        # What was under way is fetched again, although it may be committed yet.
        under_way = [*(worker.lease for worker in self.workers), *(lease for lease, _ in self.uncommitted)]
        self.suspects |= {lease.request.fingerprint for lease in under_way}
        if not noticed:
            # Another goes on. This one hears of nothing more.
            self.let_go()
            self.run(self.rig.lose_the_schedule(self.rig.plan))

    @precondition(lambda self: self.starts)
    @rule(noticed=st.booleans(), waits=st.lists(SECONDS, min_size=2, max_size=6))
    def wipe_under_leases(self, noticed: bool, waits: list[float]) -> None:
        """What was leased before a wipe begins among what is leased after it."""
        self.lease(limit=3, seconds=2.5, prepared=True, begin=False)
        self.wipe(noticed=noticed)
        for seconds in waits:
            self.lease(limit=3, seconds=seconds, prepared=True, begin=True)
            for worker in [worker for worker in self.workers if worker.lost and not worker.started_at]:
                self._start(worker, reported=False)

    def let_go(self) -> None:
        assert isinstance(self.scheduler, RedisScheduler)
        self.scheduler._calls._waiting.clear()
        self.run(self.scheduler.close())


@pytest.fixture(autouse=True, scope="module")
def _redis() -> Iterator[None]:
    if not is_redis_installed():
        yield
        return
    with redis_server() as server:
        RedisFrontierMachine.url = server.url
        yield


class LongRedisFrontierMachine(RedisFrontierMachine):
    """The same, for many more crawls."""


needs_redis = pytest.mark.skipif(not is_redis_installed(), reason="needs redis-server")

TestFrontierOnRedis = needs_redis(RedisFrontierMachine.TestCase)
TestFrontierOnRedis.settings = settings(TestFrontier.settings, max_examples=12)

# More than half a second for each crawl, and several times that on a busy machine.
TestFrontierOnRedisForLong = pytest.mark.timeout(1800)(
    pytest.mark.soak(needs_redis(LongRedisFrontierMachine.TestCase))
)
TestFrontierOnRedisForLong.settings = settings(TestFrontier.settings, max_examples=300)
