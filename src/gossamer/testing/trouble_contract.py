"""What every `Scheduler` must do about the pace of a group: origins that ask for more, hosts that keep failing."""
# ruff: noqa: D102 - a test's name is its docstring

from __future__ import annotations

from gossamer.model.outcome import GroupState, Pause
from gossamer.testing.frontier_cases import NOW, info
from gossamer.testing.scheduler_contract import Bench, SchedulerMaker, on_schedule, some

_FAILED = Pause(failed=True, trouble="host_failing")


async def fail(bench: Bench, times: int, pause: Pause = _FAILED) -> None:
    """Let the group's leases fail one after the other, each put back as a probe is."""
    for _ in range(times):
        (lease,) = await bench.lease(1)
        await bench.scheduler.release(lease, pause, put_back=True)


class TroubleContract(SchedulerMaker):
    """A group is as slow as the slowest of its origins, and is left alone when it fails."""

    @on_schedule(per_host=2)
    async def test_a_lease_tells_the_group_its_delay_and_its_slowness(self, bench: Bench) -> None:
        await bench.schedule(info("a.test", group="test"), *some("a.test", 2))
        (lease,) = await bench.lease()
        assert (lease.group, lease.delay, lease.slowness) == ("test", 1.0, 0.0)
        await bench.scheduler.release(lease, Pause(NOW, 4.0, slowness=4.0, failed=True))
        bench.clock.advance(4)
        (lease,) = await bench.lease()
        assert (lease.delay, lease.slowness, lease.failures) == (4.0, 4.0, 1)
        (state,) = await bench.scheduler.group_states(["test"])
        assert state == GroupState("test", NOW, 4.0, 0.0, 1, 4.0)

    @on_schedule()
    async def test_one_origin_does_not_lower_what_another_asks_for(self, bench: Bench) -> None:
        for host in ("a.test", "b.test"):
            await bench.schedule(info(host, group="test"), *some(host, 9))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW, 10.0, origin="http://a.test", floor=10.0))
        bench.clock.advance(10)
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW + 10, 1.0, origin="http://b.test", floor=1.0))
        assert (await bench.scheduler.outlook()).next_due == NOW + 20

    @on_schedule()
    async def test_an_origin_that_asks_for_less_than_before_gets_it(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 9))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW, 10.0, origin="http://a.test", floor=10.0))
        bench.clock.advance(10)
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW + 10, 1.0, origin="http://a.test", floor=1.0))
        assert (await bench.scheduler.outlook()).next_due == NOW + 11

    @on_schedule()
    async def test_a_lease_that_was_too_early_waits_for_the_longer_delay(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 2))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW, 1.0))
        bench.clock.advance(1)
        (lease,) = await bench.lease()
        pause = Pause(delay=5.0, origin="http://a.test", floor=5.0)
        await bench.scheduler.release(lease, pause, put_back=True)
        assert (await bench.scheduler.outlook()).next_due == NOW + 5
        bench.clock.advance(4)
        (lease,) = await bench.lease()
        assert lease.delay == 5.0

    @on_schedule(per_host=4, delay=0)
    async def test_a_parked_host_is_probed_by_one_request_at_a_time(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 8))
        assert len(await bench.lease(1)) == 1
        await fail(bench, 5)
        assert await bench.lease() == [], "one lease is out already"

    @on_schedule(delay=0)
    async def test_a_parked_host_that_fails_its_probes_is_given_up(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 8))
        await fail(bench, 7)
        assert await bench.scheduler.stalled(NOW + 300) == []
        await fail(bench, 1)
        (stall,) = await bench.scheduler.stalled(NOW + 300)
        assert (stall.host, stall.reason) == ("a.test", "host_failing")
        assert (await bench.scheduler.outlook()).queued == 0

    @on_schedule(delay=0)
    async def test_a_host_that_is_given_up_stays_so_when_more_of_it_is_found(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 8))
        await fail(bench, 8, Pause(failed=True, trouble="blocked"))
        await bench.scheduler.stalled(NOW + 300)
        await bench.schedule("a.test", *some("a.test", 2, first=20))
        (stall,) = await bench.scheduler.stalled(NOW + 300)
        assert stall.reason == "blocked"

    @on_schedule(delay=0)
    async def test_an_answer_ends_the_parking(self, bench: Bench) -> None:
        await bench.schedule("a.test", *some("a.test", 8))
        await fail(bench, 7)
        await fail(bench, 1, Pause(failed=False))
        await fail(bench, 4)
        assert await bench.scheduler.stalled(NOW + 300) == []

    @on_schedule(delay=0)
    async def test_a_host_given_up_by_an_earlier_run_gets_its_probes_again(self, bench: Bench) -> None:
        await bench.schedule(info("a.test", failures=50), *some("a.test", 8))
        assert await bench.scheduler.stalled(NOW + 300) == []
        await fail(bench, 2)
        assert await bench.scheduler.stalled(NOW + 300) == []
        await fail(bench, 1)
        assert [stall.host for stall in await bench.scheduler.stalled(NOW + 300)] == ["a.test"]

    @on_schedule(active_hosts=1)
    async def test_a_host_that_was_never_filled_is_not_pushed_out_by_another(self, bench: Bench) -> None:
        await bench.scheduler.activate([info("a.test")])
        assert await bench.scheduler.missing(["b.test"]) == []
        (refill,) = await bench.scheduler.hungry(9)
        await bench.scheduler.push(refill, [])
        assert await bench.scheduler.missing(["b.test"]) == ["b.test"]
