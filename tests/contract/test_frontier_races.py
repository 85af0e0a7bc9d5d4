"""Races between the ledger and each scheduler: every order in which their calls can mix ends well."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from gossamer.config.redis import RedisSettings
from gossamer.contracts import Scheduler
from gossamer.model.outcome import Committed, Crashed, Outcome, Pause, Retry
from gossamer.model.request import Known, Lease
from gossamer.model.schedule import Refill
from gossamer.testing import frontier_rig
from gossamer.testing.frontier_cases import FETCHED, NOW, batch, found, names_of, url_of, visit
from gossamer.testing.frontier_rig import Rig, interleavings
from gossamer.testing.ledger_contract import Cut, PowerCut
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_server
from gossamer.testing.scheduler_contract import Plan, assert_apart

Step = Callable[[], Awaitable[None]]
MakeRig = Callable[..., AbstractAsyncContextManager[Rig]]


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    if not is_redis_installed():
        pytest.skip("needs redis-server")
    with redis_server() as server:
        yield server.url


@pytest.fixture(params=["memory", "redis"])
def rig(request: pytest.FixtureRequest) -> MakeRig:
    if request.param == "memory":
        return frontier_rig.rig
    url = request.getfixturevalue("redis_url")
    made = 0

    async def make(plan: Plan) -> Scheduler:
        nonlocal made
        made += 1
        # The first is an old server; what comes after it was wiped.
        return await redis_scheduler(plan, RedisSettings(url=url, prefix=new_prefix()), aged=made == 1)

    return partial(frontier_rig.rig, make=make)


class SlowRefill:
    """A refill in three steps, between which anything may happen."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._refills: list[Refill] = []
        self._read: list[list[Known]] = []

    @property
    def steps(self) -> list[Step]:
        return [self.ask, self.read, self.push]

    async def ask(self) -> None:
        self._refills = await self._rig.scheduler.hungry(99)

    async def read(self) -> None:
        take = self._rig.ledger.take
        self._read = [await take(refill.host, refill.limit, self._rig.clock()) for refill in self._refills]

    async def push(self) -> None:
        for refill, known in zip(self._refills, self._read, strict=True):
            await self._rig.scheduler.push(refill, known)


class Ending:
    """The end of a visit in three steps: commit, settle, offer."""

    def __init__(self, rig: Rig, lease: Lease, outcome: Outcome) -> None:
        self._rig = rig
        self._lease = lease
        self._outcome = outcome
        self._committed = Committed(0, frozenset(), [])

    @property
    def steps(self) -> list[Step]:
        return [self.commit, self.settle, self.offer]

    async def commit(self) -> None:
        self._committed = await self._rig.commit(visit(self._lease.known, self._outcome))

    async def settle(self) -> None:
        await self._rig.scheduler.settle([self._lease])

    async def offer(self) -> None:
        await self._rig.scheduler.offer(self._committed.live)


async def mix(order: Sequence[int], *sequences: list[Step]) -> None:
    steps = [iter(sequence) for sequence in sequences]
    for turn in order:
        await next(steps[turn])()


@pytest.mark.parametrize("order", interleavings(3, 3))
def test_a_slow_refill_cannot_revive_a_finished_url(
    rig: MakeRig, tmp_path: Path, order: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with rig(tmp_path, Plan(window_urls=4)) as r:
            lease = await leased_while_hungry(r)
            await mix(order, Ending(r, lease, FETCHED).steps, SlowRefill(r).steps)
            assert names_of([again.known for again in await r.drain()]) == ["a.test/2"]
            assert (await r.scheduler.outlook()).queued == 0
            assert len(await r.records()) == 2

    asyncio.run(main())


@pytest.mark.parametrize("order", interleavings(3, 3))
@pytest.mark.parametrize("offered", [True, False])
def test_a_slow_refill_does_not_lose_a_retry(
    rig: MakeRig, tmp_path: Path, order: tuple[int, ...], offered: bool
) -> None:
    async def main() -> None:
        async with rig(tmp_path, Plan(window_urls=4)) as r:
            lease = await leased_while_hungry(r)
            ending = Ending(r, lease, Retry("timeout", NOW + 3)).steps
            if not offered:
                ending[2] = nothing
            await mix(order, ending, SlowRefill(r).steps)
            drained = await r.drain(sweep=not offered)
            assert sorted(names_of([again.known for again in drained])) == ["a.test/1", "a.test/2"]
            assert sorted(await r.records()) == [(url_of("a.test/1"), 1), (url_of("a.test/2"), 0)]

    asyncio.run(main())


async def nothing() -> None:
    """Take the place of a call whose process died, or whose reply was lost."""


async def leased_while_hungry(r: Rig) -> Lease:
    """Lease one URL of a host that waits for its refill, and add another the schedule has not heard of."""
    known = await r.add("a.test/1")
    await r.scheduler.activate(await r.ledger.host_info(["a.test"]))
    await r.scheduler.offer(known)
    (lease,) = await r.scheduler.lease(1)
    await r.scheduler.release(lease, Pause(NOW))
    await r.add("a.test/2")
    return lease


@pytest.mark.parametrize("order", interleavings(2, 6))
def test_a_url_found_while_its_host_is_being_activated_is_not_forgotten(
    rig: MakeRig, tmp_path: Path, order: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with rig(tmp_path) as r:
            await r.add("a.test/1")
            live: list[Known] = []

            async def add() -> None:
                live.extend(await r.add("a.test/2"))

            async def offer() -> None:
                await r.scheduler.offer(live)

            await mix(order, [add, offer], [*activation(r, "a.test"), *SlowRefill(r).steps])
            drained = await r.drain(sweep=False)
            assert names_of([lease.known for lease in drained]) == ["a.test/1", "a.test/2"]

    asyncio.run(main())


def activation(r: Rig, host: str) -> list[Step]:
    missing: list[str] = []

    async def ask() -> None:
        missing.extend(await r.scheduler.missing([host]))

    async def nothing_between() -> None:
        await asyncio.sleep(0)

    async def activate() -> None:
        await r.scheduler.activate(await r.ledger.host_info(missing))

    return [ask, nothing_between, activate]


@pytest.mark.parametrize("order", interleavings(3, 3))
def test_two_activations_of_one_host_make_one_window(
    rig: MakeRig, tmp_path: Path, order: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with rig(tmp_path) as r:
            await r.add("a.test/1", "a.test/2")
            await mix(order, activation(r, "a.test"), activation(r, "a.test"))
            assert (await r.scheduler.outlook()).hosts == 1
            assert len(await r.drain(sweep=False)) == 2

    asyncio.run(main())


def test_a_url_added_to_an_active_host_whose_window_was_exhausted_is_fetched(
    rig: MakeRig, tmp_path: Path
) -> None:
    async def main() -> None:
        async with rig(tmp_path) as r:
            await r.add("a.test/1")
            await r.drain()
            await r.scheduler.offer(await r.add("a.test/2"))
            assert names_of([lease.known for lease in await r.drain(sweep=False)]) == ["a.test/2"]

    asyncio.run(main())


def test_a_host_the_schedule_takes_for_finished_is_found_by_the_sweep(rig: MakeRig, tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as r:
            await r.add("a.test/1")
            await r.drain()
            await r.add("a.test/2")  # and the process that should have offered it died
            assert await r.drain(sweep=False) == []
            assert names_of([lease.known for lease in await r.drain()]) == ["a.test/2"]

    asyncio.run(main())


def test_more_urls_than_a_window_holds_all_get_their_turn(rig: MakeRig, tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Plan(window_urls=4, delay=0)) as r:
            names = [f"a.test/{number:02}" for number in range(30)]
            await r.scheduler.activate(await r.ledger.host_info(["a.test"]))
            for number in range(0, 30, 3):
                await r.scheduler.offer(await r.add(*names[number : number + 3]))
            assert (await r.scheduler.outlook()).queued <= 4
            assert names_of([lease.known for lease in await r.drain(sweep=False)]) == names

    asyncio.run(main())


@pytest.mark.parametrize("order", interleavings(3, 2))
@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_an_expired_lease_and_its_late_holder_yield_one_record(
    rig: MakeRig, tmp_path: Path, order: tuple[int, ...], delay: float
) -> None:
    async def main() -> None:
        async with rig(tmp_path, Plan(delay=delay)) as r:
            await r.add("a.test/1")
            await r.sweep()
            (lease,) = await r.scheduler.lease(1)
            r.clock.advance(r.plan.lease_seconds)
            assert [lost.lease for lost in await r.scheduler.expired()] == [lease]

            async def late_commit() -> None:
                await r.commit(visit(lease.known, FETCHED, found("a.test/late")))

            async def late_settle() -> None:
                await r.scheduler.settle([lease])

            crash = Ending(r, lease, Crashed(alone=False)).steps
            await mix(order, crash, [late_commit, late_settle])
            await r.drain()
            assert [url for url, _ in await r.records()].count(url_of("a.test/1")) == 1
            assert await r.ledger.hosts(0, 9) == ([], 0)

    asyncio.run(main())


def test_a_cache_that_learns_from_winners_never_hides_a_url_the_ledger_lacks(
    rig: MakeRig, tmp_path: Path
) -> None:
    async def main() -> None:
        async with rig(tmp_path, Plan(delay=0)) as r:
            (one,) = await r.add("a.test/1")
            cache: set[int] = set()

            async def commit(item: Known, link: str) -> None:
                sent = visit(item, FETCHED, found(link))
                committed = await r.commit(sent)
                if item.request.fingerprint not in committed.lost:
                    cache.update(finding.request.fingerprint for finding in sent.found)

            await commit(one, "a.test/won")
            await commit(one, "a.test/lost")
            for name in ("a.test/won", "a.test/lost"):
                known_before = found(name).request.fingerprint in cache
                assert (await r.ledger.add([found(name)])).new == (not known_before)

    asyncio.run(main())


def test_after_a_lost_commit_reply_the_links_are_still_fetched(rig: MakeRig, tmp_path: Path) -> None:
    async def main() -> None:
        cut = Cut()
        async with rig(tmp_path, failpoint=cut) as r:
            await r.add("a.test/1")
            await r.sweep()
            (lease,) = await r.scheduler.lease(1)
            await r.scheduler.release(lease, Pause(NOW))
            sent = batch("1", visit(lease.known, FETCHED, found("a.test/2"), found("b.test/3")))
            cut.at = "commit:done"
            with pytest.raises(PowerCut):
                await r.ledger.commit(sent)
            cut.at = ""
            again = await r.ledger.commit(sent)
            await r.scheduler.settle([lease])
            await r.scheduler.offer(again.live)
            await r.drain()
            assert sorted(await r.records()) == [
                (url_of(name), 0) for name in ("a.test/1", "a.test/2", "b.test/3")
            ]

    asyncio.run(main())


@pytest.mark.parametrize("committed", [True, False])
def test_starts_are_a_delay_apart_across_a_restart(rig: MakeRig, tmp_path: Path, committed: bool) -> None:
    async def main() -> None:
        async with rig(tmp_path, Plan(delay=5)) as r:
            await r.add(*[f"a.test/{number}" for number in range(4)])
            await r.sweep()
            (lease,) = await r.scheduler.lease(1)
            starts = [(r.clock(), "first")]
            if committed:
                await r.fetch(lease)
            r.clock.advance(1)
            plan = dataclasses.replace(r.plan, resumed_at=r.clock() if not committed else 0.0)
            await r.lose_the_schedule(plan)
            for _ in range(60):
                await r.sweep()
                for again in await r.scheduler.lease(9):
                    starts.append((r.clock(), again.request.url))
                    await r.fetch(again)
                r.clock.advance(0.5)
            assert len(starts) == 4 + (not committed)
            assert_apart(starts, 5)

    asyncio.run(main())


def test_a_second_crash_of_one_lease_changes_nothing(rig: MakeRig, tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Plan(delay=0)) as r:
            await r.add("a.test/1")
            await r.sweep()
            (lease,) = await r.scheduler.lease(1)
            (again,) = (await r.commit(visit(lease.known, Crashed(alone=True)))).live
            late = await r.commit(visit(lease.known, Crashed(alone=True)))
            assert late.lost == {lease.request.fingerprint}
            assert await r.ledger.take("a.test", 9, NOW) == [again]

    asyncio.run(main())
