"""What every `Scheduler` must do: subclass `SchedulerContract` as `Test…`, say how to make one, and pytest holds it to this."""
# ruff: noqa: D102 - a test's name is its docstring

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import pytest

from gossamer.config.settings import FrontierSettings, PolitenessSettings
from gossamer.contracts import Scheduler
from gossamer.model.outcome import GroupState, Pause
from gossamer.model.request import Known, Lease
from gossamer.model.schedule import HostInfo
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW, info, known, names_of

C = TypeVar("C", bound="SchedulerMaker")


@dataclass(frozen=True)
class Plan:
    """What a scheduler under test is made with."""

    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW))
    window_urls: int = 8
    active_hosts: int = 4
    lease_seconds: float = 60.0
    delay: float = 1.0
    per_host: int = 1
    jitter: float = 0.0
    #: What the source of chance answers, always.
    chance: float = 0.0
    max_pages_per_host: int | None = None
    resumed_at: float = 0.0

    @property
    def frontier(self) -> FrontierSettings:
        """The bounds of the schedule."""
        return FrontierSettings(
            window_urls=self.window_urls, active_hosts=self.active_hosts, lease_seconds=self.lease_seconds
        )

    @property
    def politeness(self) -> PolitenessSettings:
        """The pace of the schedule."""
        return PolitenessSettings(delay=self.delay, per_host=self.per_host, jitter=self.jitter)


class SchedulerMaker(ABC):
    """How the contract gets at a scheduler of the backend under test."""

    @abstractmethod
    async def make(self, plan: Plan) -> Scheduler:
        """Make an empty scheduler."""


def on_schedule(**plan: float) -> Callable[[Callable[[C, Bench], Awaitable[None]]], Callable[[C], None]]:
    """Run a test on a new scheduler, in an event loop of its own."""

    def decorate(test: Callable[[C, Bench], Awaitable[None]]) -> Callable[[C], None]:
        def run(self: C) -> None:
            async def main() -> None:
                made = Plan(**plan)  # type: ignore[arg-type]
                await test(self, Bench(await self.make(made), made))

            asyncio.run(main())

        run.__name__ = test.__name__
        return run

    return decorate


class Bench:
    """A scheduler, its clock, and the few sequences of calls that tests are made of."""

    def __init__(self, scheduler: Scheduler, plan: Plan) -> None:
        self.scheduler = scheduler
        self.plan = plan
        self.clock = plan.clock

    async def schedule(self, host: str | HostInfo, *items: Known) -> None:
        """Activate a host and fill its window with all the ledger has for it."""
        about = info(host) if isinstance(host, str) else host
        await self.scheduler.activate([about])
        (refill,) = [r for r in await self.scheduler.hungry(99) if r.host == about.host]
        await self.scheduler.push(refill, items)

    async def lease(self, limit: int = 99) -> list[Lease]:
        """Lease what is due now."""
        return await self.scheduler.lease(limit)

    async def lease_names(self, limit: int = 99) -> list[str]:
        """Lease what is due now and name it."""
        return names_of([lease.known for lease in await self.lease(limit)])

    async def finish(self, lease: Lease, *, started: bool = True, record: bool = True) -> None:
        """Fetch within no time, release and settle."""
        await self.scheduler.release(lease, Pause(self.clock() if started else 0.0))
        fingerprint = lease.request.fingerprint
        await self.scheduler.settle([lease], frozenset([fingerprint] if record else ()))

    async def drain(self, seconds: float, step: float = 0.25) -> list[tuple[float, str]]:
        """Fetch whatever becomes due for a while; returns when each request started."""
        starts = []
        end = self.clock() + seconds
        while self.clock() <= end:
            for lease in await self.lease():
                starts.append((self.clock(), lease.request.url.removeprefix("http://")))
                await self.finish(lease)
            self.clock.advance(step)
        return starts

    async def lost(self) -> list[Lease]:
        """Take the leases that have expired."""
        return [lost.lease for lost in await self.scheduler.expired()]

    async def queued(self) -> int:
        """Count the requests in windows."""
        return (await self.scheduler.outlook()).queued

    async def stale(self) -> int:
        """Count what came too late."""
        return (await self.scheduler.outlook()).stale


def some(host: str, count: int, first: int = 1) -> list[Known]:
    """Name requests of one host in the order the ledger has them."""
    return [known(f"{host}/{number}", number) for number in range(first, first + count)]


class WindowContract(SchedulerMaker):
    """A request is in one place only, and windows are bounded."""

    @on_schedule()
    async def test_a_host_must_be_active_before_it_takes_requests(self, bench: Bench) -> None:
        assert await bench.scheduler.offer(some("a.test", 2)) == 0
        assert await bench.scheduler.missing(["a.test"]) == ["a.test"]
        await bench.scheduler.activate([info("a.test")])
        assert await bench.scheduler.missing(["a.test"]) == []
        assert await bench.scheduler.offer(some("a.test", 2)) == 2

    @on_schedule()
    async def test_activating_twice_keeps_what_the_first_one_brought(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 2))
        await bench.scheduler.activate([info("a.test", pages=5)])
        assert await bench.queued() == 2
        assert await bench.scheduler.hungry(9) == []

    @on_schedule(per_host=9, delay=0)
    async def test_a_request_is_in_one_place_only(self, bench: Bench) -> None:
        one, two = some("a.test", 2)
        await bench.schedule("a.test", one, one)
        assert await bench.scheduler.offer([one, two, two]) == 1
        leases = await bench.lease()
        assert await bench.scheduler.offer([one, two]) == 0
        for lease in leases:
            await bench.scheduler.release(lease, Pause())
        assert await bench.scheduler.offer([one, two]) == 0
        assert (await bench.scheduler.outlook()).in_flight == 2
        assert await bench.lease() == []

    @on_schedule()
    async def test_a_host_has_one_refill_at_a_time(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        assert await bench.scheduler.hungry(9) == []
        assert await bench.scheduler.missing(["a.test"]) == []
        assert await bench.scheduler.hungry(9) == []
        assert await bench.scheduler.push(refill, some("a.test", 1)) == 1

    @on_schedule()
    async def test_a_refill_answered_twice_counts_once(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        await bench.scheduler.push(refill, some("a.test", 1))
        assert await bench.scheduler.push(refill, some("a.test", 1, first=2)) == 0
        assert (await bench.queued(), await bench.stale()) == (1, 1)

    @on_schedule()
    async def test_hungry_returns_no_more_refills_than_asked_for(self, bench: Bench) -> None:
        await bench.scheduler.activate([info(f"h{number}.test") for number in range(3)])
        refills = [*await bench.scheduler.hungry(2), *await bench.scheduler.hungry(2)]
        assert len({refill.host for refill in refills}) == len(refills) == 3

    @on_schedule()
    async def test_a_slow_refill_cannot_revive_a_finished_url(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        (one,) = some("a.test", 1)
        await bench.scheduler.offer([one])
        (lease,) = await bench.lease()
        await bench.finish(lease)
        assert await bench.scheduler.push(refill, [one]) == 0
        assert await bench.queued() == 0

    @on_schedule()
    async def test_a_slow_refill_leaves_a_retry_that_was_offered_meanwhile(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        (one,) = some("a.test", 1)
        await bench.scheduler.offer([one])
        (lease,) = await bench.lease()
        await bench.finish(lease)
        again = msgspec.structs.replace(one, attempt=1)
        assert await bench.scheduler.offer([again]) == 1
        await bench.scheduler.push(refill, [one])
        bench.clock.advance(1)
        assert [lease.known for lease in await bench.lease()] == [again]

    @on_schedule()
    async def test_after_a_refill_that_came_too_late_the_ledger_is_asked_again(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        (one,) = some("a.test", 1)
        await bench.scheduler.offer([one])
        (lease,) = await bench.lease()
        await bench.finish(lease)
        # Settled, and queued again in the ledger by a retry nobody offered: only the ledger can tell.
        await bench.scheduler.push(refill, [one])
        (second,) = await bench.scheduler.hungry(9)
        again = msgspec.structs.replace(one, attempt=1)
        assert await bench.scheduler.push(second, [again]) == 1

    @on_schedule(window_urls=2)
    async def test_a_request_turned_away_during_a_refill_is_asked_for_again(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        items = some("a.test", 3)
        assert await bench.scheduler.offer(items) == 2
        # It had read the ledger before any of the three was there.
        await bench.scheduler.push(refill, [])
        seen: list[Known] = []
        for _ in range(9):
            for lease in await bench.lease():
                seen.append(lease.known)
                await bench.finish(lease)
            for again in await bench.scheduler.hungry(9):
                await bench.scheduler.push(again, [item for item in items if item not in seen])
            bench.clock.advance(1)
        assert seen == items

    @on_schedule()
    async def test_a_url_offered_to_an_exhausted_host_wakes_it(self, bench: Bench) -> None:
        await bench.schedule("a.test")
        assert (await bench.scheduler.outlook()).next_due is None
        assert await bench.scheduler.offer(some("a.test", 1)) == 1
        assert (await bench.scheduler.outlook()).next_due is not None
        assert await bench.lease_names() == ["a.test/1"]

    @on_schedule()
    async def test_a_sweep_makes_an_idle_host_hungry_again(self, bench: Bench) -> None:
        await bench.schedule("a.test")
        assert await bench.scheduler.hungry(9) == []
        assert await bench.scheduler.missing(["a.test"]) == []
        assert [refill.host for refill in await bench.scheduler.hungry(9)] == ["a.test"]

    @on_schedule(window_urls=8)
    async def test_a_window_that_runs_low_is_refilled_before_it_is_empty(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        await bench.scheduler.push(refill, some("a.test", refill.limit))
        asked: list[int] = []
        while await bench.queued() and not asked:
            for lease in await bench.lease():
                await bench.finish(lease)
            asked += [again.limit for again in await bench.scheduler.hungry(9)]
            bench.clock.advance(1)
        assert asked
        assert await bench.queued() > 0

    @on_schedule(window_urls=2, delay=0, per_host=9)
    async def test_a_refill_looks_behind_what_is_leased(self, bench: Bench) -> None:
        items = some("a.test", 6)
        await bench.scheduler.activate([info("a.test")])
        seen: list[Known] = []
        for _ in range(6):
            for refill in await bench.scheduler.hungry(9):
                # Nothing is committed yet: the ledger returns what is leased as well.
                await bench.scheduler.push(refill, items[: refill.limit])
            seen += [lease.known for lease in await bench.lease()]
        assert seen == items

    @on_schedule(window_urls=4, delay=0)
    async def test_what_is_found_later_does_not_overtake_what_the_ledger_still_has(
        self, bench: Bench
    ) -> None:
        ledger = some("a.test", 12)
        await bench.scheduler.activate([info("a.test")])
        order: list[Known] = []
        for number in range(20):
            for refill in await bench.scheduler.hungry(9):
                await bench.scheduler.push(refill, [k for k in ledger if k not in order][: refill.limit])
            for lease in await bench.lease():
                order.append(lease.known)
                await bench.finish(lease)
            if number < 4:
                ledger += some("a.test", 1, first=100 + number)
                await bench.scheduler.offer(ledger[-1:])
        assert order == ledger

    @on_schedule(window_urls=8, active_hosts=3)
    async def test_windows_are_bounded_whatever_is_offered(self, bench: Bench) -> None:
        hosts = [f"h{number}.test" for number in range(9)]
        await bench.scheduler.activate([info(host) for host in await bench.scheduler.missing(hosts)])
        refills = await bench.scheduler.hungry(99)
        assert len(refills) == 3
        for host in hosts:
            await bench.scheduler.offer(some(host, 50))
        for refill in refills:
            # The refill and the offers brought different requests.
            await bench.scheduler.push(refill, some(refill.host, refill.limit, first=100))
        for host in hosts:
            await bench.scheduler.offer(
                [known(f"{host}/better", 0, priority=-number) for number in range(50)]
            )
        assert await bench.queued() == 24

    @on_schedule(window_urls=4)
    async def test_put_backs_and_refills_together_respect_the_bound(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 4))
        (lease,) = await bench.lease()
        await bench.scheduler.offer(some("a.test", 9, first=5))
        await bench.scheduler.release(lease, Pause(), put_back=True)
        assert await bench.queued() <= 4

    @on_schedule(active_hosts=3)
    async def test_no_more_hosts_are_active_than_allowed(self, bench: Bench) -> None:
        hosts = [f"h{number}.test" for number in range(9)]
        twice = [await bench.scheduler.missing(hosts[:3]), await bench.scheduler.missing(hosts[3:])]
        for missing in twice:
            await bench.scheduler.activate([info(host) for host in missing])
        assert (await bench.scheduler.outlook()).hosts == 3

    @pytest.mark.parametrize("page", [1, 2, 6])
    @pytest.mark.parametrize("links", [0, 1, 3])
    def test_crowded_hosts_take_turns_so_that_none_starves(self, page: int, links: int) -> None:
        """Six endless hosts share two places; they are swept in pages and offered the links of their own pages."""

        async def main() -> None:
            plan = Plan(window_urls=4, active_hosts=2, delay=0)
            bench = Bench(await self.make(plan), plan)
            hosts = [f"h{number}.test" for number in range(6)]
            served: Counter[str] = Counter()
            for turn in range(120):
                start = turn * page % len(hosts)
                await self._sweep(bench, hosts[start : start + page])
                for lease in await bench.lease(2):
                    served[lease.request.host] += 1
                    await bench.finish(lease)
                    if links:
                        await self._sweep(bench, [lease.request.host])
                        await bench.scheduler.offer(some(lease.request.host, links, first=1000 + 3 * turn))
                bench.clock.advance(1)
            assert set(served) == set(hosts)
            assert min(served.values()) * 5 >= max(served.values())

        asyncio.run(main())

    async def _sweep(self, bench: Bench, live: Sequence[str]) -> None:
        missing = await bench.scheduler.missing(live)
        await bench.scheduler.activate([info(host) for host in missing])
        for refill in await bench.scheduler.hungry(9):
            fresh = int(bench.clock() - NOW) * 100
            await bench.scheduler.push(refill, some(refill.host, refill.limit, first=10_000 + fresh))

    @on_schedule()
    async def test_stalled_hosts_are_unscheduled_with_the_reason(self, bench: Bench) -> None:
        await bench.schedule(info("slow.test", until=NOW + 1000), *some("slow.test", 2))
        await bench.schedule("a.test", *some("a.test", 2))
        (stall,) = await bench.scheduler.stalled(NOW + 300)
        assert (stall.host, stall.reason) == ("slow.test", "wait_too_long")
        assert await bench.scheduler.missing(["a.test", "slow.test"]) == ["slow.test"]
        assert await bench.queued() == 2
        assert await bench.lease_names() == ["a.test/1"]


class OrderContract(SchedulerMaker):
    """Between hosts the due time decides, within a host the priority, among equals the age."""

    @on_schedule(per_host=9, delay=0)
    async def test_a_host_serves_by_priority_then_in_the_order_of_discovery(self, bench: Bench) -> None:
        items = [
            known(f"a.test/{seq}", seq, priority=priority) for seq, priority in enumerate([5, 0, 5, 0, -1])
        ]
        await bench.schedule("a.test", *reversed(items))
        assert await bench.lease_names() == [f"a.test/{seq}" for seq in (4, 1, 3, 0, 2)]

    @on_schedule()
    async def test_hosts_are_served_by_due_time(self, bench: Bench) -> None:
        for host, until in (("c.test", 3.0), ("a.test", 1.0), ("b.test", 2.0)):
            await bench.schedule(info(host, until=NOW + until), *some(host, 1))
        assert await bench.lease() == []
        assert (await bench.scheduler.outlook()).next_due == NOW + 1
        bench.clock.advance(5)
        assert await bench.lease_names(2) == ["a.test/1", "b.test/1"]
        assert await bench.lease_names(2) == ["c.test/1"]

    @on_schedule(per_host=2, delay=0)
    async def test_hosts_without_a_delay_take_turns(self, bench: Bench) -> None:
        for host in ("a.test", "b.test"):
            await bench.schedule(host, *some(host, 4))
        assert sorted(await bench.lease_names(2)) == ["a.test/1", "b.test/1"]

    @on_schedule()
    async def test_hosts_of_one_group_take_turns_and_share_its_clock(self, bench: Bench) -> None:
        for host in ("a.test", "b.test"):
            await bench.schedule(info(host, group="test"), *some(host, 4))
        starts = await bench.drain(6)
        assert Counter(name[:6] for _, name in starts[:4]) == {"a.test": 2, "b.test": 2}
        assert_apart(starts, 1)

    @on_schedule(delay=0, per_host=9)
    async def test_a_request_waits_for_its_moment_and_then_takes_its_rank(self, bench: Bench) -> None:
        later = known("a.test/later", 1, priority=-1, not_before=NOW + 5)
        await bench.schedule("a.test", later)
        assert await bench.lease() == []
        assert (await bench.scheduler.outlook()).next_due == NOW + 5
        bench.clock.advance(5)
        await bench.scheduler.offer(some("a.test", 1, first=2))
        assert await bench.lease_names() == ["a.test/later", "a.test/2"]

    @on_schedule()
    async def test_lease_gives_no_more_than_asked_for(self, bench: Bench) -> None:
        for host in ("a.test", "b.test", "c.test"):
            await bench.schedule(host, *some(host, 1))
        assert len(await bench.lease(2)) == 2
        assert len(await bench.lease(2)) == 1
        assert await bench.lease(0) == []


def assert_apart(starts: Sequence[tuple[float, str]], delay: float) -> None:
    """Check that no two starts are closer than the delay."""
    times = sorted(at for at, _ in starts)
    assert all(b - a >= delay for a, b in itertools.pairwise(times)), times


class PaceContract(SchedulerMaker):
    """Starts in one group are at least its delay apart, whatever workers report, late or never."""

    @pytest.mark.parametrize("per_host", [1, 4])
    @pytest.mark.parametrize("lag", [0.0, 0.5, 3.0])
    def test_starts_are_a_delay_apart_however_late_they_are_reported(self, per_host: int, lag: float) -> None:
        async def main() -> None:
            plan = Plan(per_host=per_host, delay=1.0)
            bench = Bench(await self.make(plan), plan)
            await bench.schedule("a.test", *some("a.test", 7))
            starts: list[tuple[float, str]] = []
            running: list[tuple[float, Lease]] = []
            for _ in range(100):
                for lease in await bench.lease():
                    bench.clock.advance(0.25)  # the way to the wire
                    starts.append((bench.clock(), lease.request.url))
                    at = bench.clock()
                    bench.clock.advance(lag)
                    await bench.scheduler.started(lease, at)
                    running.append((at, lease))
                    assert len(running) <= per_host
                for at, lease in [item for item in running if item[0] + 2 <= bench.clock()]:
                    running.remove((at, lease))
                    await bench.scheduler.release(lease, Pause(at))
                    await bench.scheduler.settle([lease])
                bench.clock.advance(0.25)
            assert len(starts) == 7
            assert_apart(starts, 1)

        asyncio.run(main())

    @on_schedule(per_host=4, delay=0)
    async def test_no_more_than_per_host_leases_are_open(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 8))
        leases = await bench.lease()
        assert len(leases) == 4
        await bench.scheduler.release(leases[0], Pause(NOW))
        assert len(await bench.lease()) == 1

    @on_schedule(per_host=4)
    async def test_with_several_slots_the_next_lease_waits_for_the_start_of_the_one_before(
        self, bench: Bench
    ) -> None:
        await bench.schedule("a.test", *some("a.test", 8))
        (first,) = await bench.lease()
        bench.clock.advance(30)
        assert await bench.lease() == []
        await bench.scheduler.started(first, bench.clock())
        assert await bench.lease() == []
        assert (await bench.scheduler.outlook()).next_due == bench.clock() + 1
        bench.clock.advance(1)
        assert await bench.lease_names() == ["a.test/2"]

    @pytest.mark.parametrize("per_host", [1, 4])
    def test_a_start_that_is_only_told_on_release_counts(self, per_host: int) -> None:
        async def main() -> None:
            plan = Plan(per_host=per_host)
            bench = Bench(await self.make(plan), plan)
            await bench.schedule("a.test", *some("a.test", 3))
            (lease,) = await bench.lease()
            began = bench.clock.advance(5)
            bench.clock.advance(0.5)
            await bench.scheduler.release(lease, Pause(began))
            assert await bench.lease() == []
            bench.clock.advance(0.5)
            assert await bench.lease_names() == ["a.test/2"]

        asyncio.run(main())

    @on_schedule()
    async def test_a_lease_released_without_a_start_costs_no_delay(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 3))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause())
        assert await bench.lease_names() == ["a.test/2"]

    @pytest.mark.parametrize("per_host", [1, 4])
    @pytest.mark.parametrize("how", ["expired", "settled unreleased"])
    def test_a_lease_lost_without_a_word_is_taken_to_have_just_started(self, per_host: int, how: str) -> None:
        async def main() -> None:
            plan = Plan(per_host=per_host, delay=10.0)
            bench = Bench(await self.make(plan), plan)
            await bench.schedule("a.test", *some("a.test", 3))
            (lease,) = await bench.lease()
            lost_at = bench.clock.advance(60)
            if how == "expired":
                assert await bench.lost() == [lease]
            else:
                await bench.scheduler.settle([lease])
            assert await bench.lease() == []
            assert (await bench.scheduler.outlook()).next_due == lost_at + 10

        asyncio.run(main())

    @on_schedule(per_host=4)
    async def test_a_raised_delay_counts_from_the_last_start_of_the_group(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 5))
        (first,) = await bench.lease()
        await bench.scheduler.started(first, NOW)
        bench.clock.advance(1)
        (second,) = await bench.lease()
        await bench.scheduler.started(second, NOW + 1)
        await bench.scheduler.release(first, Pause(NOW, delay=10.0))
        assert (await bench.scheduler.outlook()).next_due == NOW + 11
        bench.clock.advance(10)
        assert [lease.delay for lease in await bench.lease()] == [10.0]

    @on_schedule()
    async def test_a_delay_raised_without_a_start_counts_from_the_start_reported_before(
        self, bench: Bench
    ) -> None:
        await bench.schedule("a.test", *some("a.test", 5))
        (lease,) = await bench.lease()
        await bench.scheduler.started(lease, NOW)
        await bench.scheduler.release(lease, Pause(delay=10.0))
        assert (await bench.scheduler.outlook()).next_due == NOW + 10

    @on_schedule(per_host=3, delay=0)
    async def test_a_delay_learnt_late_waits_for_leases_that_have_not_started(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 5))
        first, second, _ = await bench.lease()
        await bench.scheduler.release(first, Pause(NOW, delay=10.0))
        bench.clock.advance(20)
        assert await bench.lease() == []
        await bench.scheduler.release(second, Pause(NOW + 20))
        assert await bench.lease() == []

    @on_schedule(delay=2)
    async def test_after_a_resume_a_group_first_waits_out_its_delay(self, bench: Bench) -> None:
        plan = Plan(resumed_at=NOW, delay=2.0)
        bench = Bench(await self.make(plan), plan)
        await bench.schedule("new.test", *some("new.test", 1))
        await bench.schedule(info("slow.test", delay=7.0, last_start=NOW - 100), *some("slow.test", 1))
        await bench.schedule(info("paused.test", until=NOW + 30), *some("paused.test", 1))
        assert [(at - NOW, name) for at, name in await bench.drain(40)] == [
            (2, "new.test/1"),
            (7, "slow.test/1"),
            (30, "paused.test/1"),
        ]

    @on_schedule(delay=2)
    async def test_a_persisted_start_holds_the_group_back(self, bench: Bench) -> None:
        await bench.schedule(info("a.test", last_start=NOW - 1, delay=5.0), *some("a.test", 1))
        assert (await bench.scheduler.outlook()).next_due == NOW + 4

    @on_schedule(delay=0)
    async def test_a_persisted_delay_smaller_than_the_setting_is_raised_to_it(self, bench: Bench) -> None:
        plan = Plan(delay=3.0)
        bench = Bench(await self.make(plan), plan)
        await bench.schedule(info("a.test", last_start=NOW, delay=1.0), *some("a.test", 1))
        assert (await bench.scheduler.outlook()).next_due == NOW + 3

    @on_schedule(per_host=4)
    async def test_retry_after_holds_the_whole_group(self, bench: Bench) -> None:
        for host in ("a.test", "b.test"):
            await bench.schedule(info(host, group="test"), *some(host, 3))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW, until=NOW + 120, failed=True))
        bench.clock.advance(119)
        assert await bench.lease() == []
        (state,) = await bench.scheduler.group_states(["test"])
        assert state == GroupState("test", NOW, 1.0, NOW + 120, 1)
        bench.clock.advance(1)
        assert len(await bench.lease()) == 1

    @on_schedule(per_host=2, delay=0)
    async def test_a_shorter_pause_does_not_end_a_longer_one(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 4))
        one, two = await bench.lease()
        await bench.scheduler.release(one, Pause(NOW, until=NOW + 120, failed=True))
        await bench.scheduler.release(two, Pause(NOW, until=NOW + 5, failed=False))
        assert (await bench.scheduler.outlook()).next_due == NOW + 120
        assert [state.failures for state in await bench.scheduler.group_states(["a.test"])] == [0]

    @pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
    def test_jitter_only_adds(self, chance: float) -> None:
        async def main() -> None:
            plan = Plan(jitter=0.2, chance=chance, delay=10.0)
            bench = Bench(await self.make(plan), plan)
            await bench.schedule("a.test", *some("a.test", 3))
            (lease,) = await bench.lease()
            await bench.finish(lease)
            assert (await bench.scheduler.outlook()).next_due == NOW + 10 + 2 * chance

        asyncio.run(main())

    @on_schedule(active_hosts=1, delay=100)
    async def test_making_room_for_another_host_does_not_forget_the_clock(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 1))
        (lease,) = await bench.lease()
        await bench.finish(lease)
        assert await bench.scheduler.missing(["b.test"]) == ["b.test"]
        await bench.schedule("b.test")
        bench.clock.advance(50)
        assert await bench.scheduler.missing(["a.test"]) == ["a.test"]
        await bench.schedule("a.test", *some("a.test", 1, first=2))
        assert (await bench.scheduler.outlook()).next_due == NOW + 100


class LeaseContract(SchedulerMaker):
    """A lease is exclusive and temporary; only its token can release or settle it."""

    @on_schedule(delay=0)
    async def test_settling_frees_the_request_and_the_slot(self, bench: Bench) -> None:
        one, two = some("a.test", 2)
        await bench.schedule("a.test", one, two)
        (lease,) = await bench.lease()
        await bench.scheduler.settle([lease])
        assert (await bench.scheduler.outlook()).in_flight == 0
        assert await bench.scheduler.offer([one]) == 1
        assert await bench.lease_names() == ["a.test/1"]

    @on_schedule(delay=0)
    async def test_stale_tokens_change_nothing_and_are_counted(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 1))
        (old,) = await bench.lease()
        bench.clock.advance(60)
        assert await bench.lost() == [old]
        await bench.scheduler.settle([old])
        await bench.scheduler.offer([old.known])
        (new,) = await bench.lease()
        assert new.token != old.token
        before = await bench.scheduler.outlook(), await bench.scheduler.group_states(["a.test"])
        late = Pause(NOW + 9999, delay=99.0, until=NOW + 9999, failed=True)
        await bench.scheduler.started(old, NOW + 9999)
        await bench.scheduler.release(old, late)
        await bench.scheduler.release(old, late, put_back=True)
        await bench.scheduler.settle([old])
        after, groups = await bench.scheduler.outlook(), await bench.scheduler.group_states(["a.test"])
        assert after.stale == before[0].stale + 4
        assert (msgspec.structs.replace(after, stale=before[0].stale), groups) == before
        await bench.finish(new)
        assert (await bench.scheduler.outlook()).in_flight == 0

    @on_schedule(delay=0)
    async def test_releasing_or_settling_twice_counts_once(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 3))
        (lease,) = await bench.lease()
        for _ in range(2):
            await bench.scheduler.release(lease, Pause(NOW))
        assert len(await bench.lease()) == 1
        assert await bench.lease() == []
        for _ in range(2):
            await bench.scheduler.settle([lease])
        assert await bench.stale() == 2

    @on_schedule(delay=0, per_host=2)
    async def test_leases_expire_when_their_time_is_over_and_not_before(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 3))
        (early,) = await bench.lease(1)
        bench.clock.advance(30)
        (late,) = await bench.lease(1)
        bench.clock.advance(29.5)
        assert await bench.scheduler.expired() == []
        bench.clock.advance(0.5)
        assert await bench.lost() == [early]
        assert await bench.scheduler.expired() == []
        assert len(await bench.lease()) == 1, "its slot is free"
        assert late.expires_at == NOW + 90

    @on_schedule(delay=0)
    async def test_a_request_may_begin_until_its_lease_expires(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 1))
        (lease,) = await bench.lease()
        for _ in range(60):
            assert bench.scheduler.begin_by(lease) > bench.clock()
            bench.clock.advance(1)
            await bench.scheduler.outlook()
        assert bench.scheduler.begin_by(lease) == lease.expires_at

    @on_schedule(delay=0)
    async def test_a_lost_lease_is_not_leased_again_before_it_is_settled(self, bench: Bench) -> None:
        one, two = some("a.test", 2)
        await bench.scheduler.activate([info("a.test")])
        (refill,) = await bench.scheduler.hungry(9)
        await bench.scheduler.offer([one, two])
        (lease,) = await bench.lease()
        bench.clock.advance(60)
        assert await bench.lost() == [lease]
        outlook = await bench.scheduler.outlook()
        assert (outlook.queued, outlook.in_flight) == (1, 1)
        assert await bench.scheduler.offer([one]) == 0
        assert await bench.scheduler.push(refill, [one, two]) == 0
        assert await bench.lease_names() == ["a.test/2"]
        await bench.scheduler.settle([lease])
        assert (await bench.scheduler.outlook()).in_flight == 1
        assert await bench.scheduler.offer([one]) == 1

    @on_schedule(delay=5)
    async def test_what_the_old_holder_of_a_lost_lease_says_changes_nothing(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 2))
        (lease,) = await bench.lease()
        bench.clock.advance(60)
        assert await bench.lost() == [lease]
        before = await bench.scheduler.outlook(), await bench.scheduler.group_states(["a.test"])
        late = Pause(NOW + 9999, delay=99.0, until=NOW + 9999, failed=True)
        await bench.scheduler.started(lease, NOW + 9999)
        await bench.scheduler.release(lease, late)
        await bench.scheduler.release(lease, late, put_back=True)
        after, groups = await bench.scheduler.outlook(), await bench.scheduler.group_states(["a.test"])
        assert after.stale == before[0].stale + 3
        assert (msgspec.structs.replace(after, stale=before[0].stale), groups) == before

    @pytest.mark.parametrize("per_host", [1, 3])
    def test_a_lost_lease_had_begun_if_its_start_was_reported(self, per_host: int) -> None:
        async def main() -> None:
            plan = Plan(per_host=per_host, delay=0.0)
            bench = Bench(await self.make(plan), plan)
            for host in ("begun.test", "silent.test"):
                await bench.schedule(host, *some(host, 1))
            for lease in await bench.lease():
                if lease.request.host == "begun.test":
                    await bench.scheduler.started(lease, bench.clock())
            bench.clock.advance(60)
            lost = await bench.scheduler.expired()
            assert {item.lease.request.host: item.begun for item in lost} == {
                "begun.test": True,
                "silent.test": False,
            }

        asyncio.run(main())

    @on_schedule(delay=0)
    async def test_a_released_lease_waits_for_its_commit_however_long(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 1))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW))
        bench.clock.advance(9999)
        assert await bench.scheduler.expired() == []
        assert await bench.scheduler.offer([lease.known]) == 0

    @on_schedule()
    async def test_a_request_put_back_is_leased_again_first_after_the_delay(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 3))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW), put_back=True)
        assert await bench.queued() == 3
        assert await bench.lease() == []
        bench.clock.advance(1)
        (again,) = await bench.lease()
        assert (again.known, again.token != lease.token) == (lease.known, True)

    @on_schedule(max_pages_per_host=5, delay=0, per_host=3)
    async def test_leases_never_exceed_the_pages_allowed_to_a_host(self, bench: Bench) -> None:
        await bench.schedule(info("a.test", pages=2), *some("a.test", 8))
        first, second, third = await bench.lease()
        assert await bench.lease() == []
        await bench.finish(first)
        assert await bench.lease() == []
        await bench.finish(second, record=False)
        (fourth,) = await bench.lease()
        await bench.scheduler.release(third, Pause(), put_back=True)
        (fifth,) = await bench.lease()
        bench.clock.advance(60)
        lost = await bench.lost()
        assert len(lost) == 2
        assert await bench.lease() == []
        await bench.scheduler.settle(lost)
        leases = await bench.lease()
        assert len(leases) == 2
        for lease in leases:
            await bench.finish(lease)
        assert await bench.lease() == []
        assert {fourth.request.host, fifth.request.host} == {"a.test"}
        assert [stall.reason for stall in await bench.scheduler.stalled(NOW + 300)] == ["host_limit"]

    @on_schedule(delay=0, per_host=9)
    async def test_the_outlook_counts_every_request_once(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 4))
        await bench.schedule("b.test", known("b.test/later", 9, not_before=NOW + 5))
        leases = await bench.lease(2)
        await bench.scheduler.release(leases[0], Pause(NOW))
        outlook = await bench.scheduler.outlook()
        assert (outlook.queued, outlook.in_flight, outlook.hosts, outlook.stale) == (3, 2, 2, 0)


class SchedulerContract(WindowContract, OrderContract, PaceContract, LeaseContract):
    """The whole contract of a scheduler."""
