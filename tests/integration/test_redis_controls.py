"""What an operator decides is kept in Redis and holds for every worker, also for those that come later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from gossamer.config.redis import RedisSettings
from gossamer.errors import UsageError
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.model.outcome import Pause
from gossamer.model.schedule import Stall
from gossamer.testing.frontier_cases import NOW, info
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_server
from gossamer.testing.scheduler_contract import Bench, Plan, some

pytestmark = pytest.mark.skipif(not is_redis_installed(), reason="needs redis-server")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as server:
        yield server.url


@pytest.fixture(params=[1, 3])
def redis(url: str, request: pytest.FixtureRequest) -> RedisSettings:
    return RedisSettings(url=url, prefix=new_prefix(), partitions=request.param)


def with_operator(
    redis: RedisSettings, plan: Plan, test: Callable[[Bench, RedisScheduler], Awaitable[None]]
) -> None:
    """Run a test with a worker of `job` and an operator who sits elsewhere."""

    async def main() -> None:
        bench = Bench(await redis_scheduler(plan, redis), plan)
        await test(bench, await redis_scheduler(plan, redis, job="operator", aged=False))

    asyncio.run(main())


@pytest.mark.parametrize("word", ["paused", "stopped"])
def test_a_job_that_is_paused_or_stopped_leases_nothing_until_it_is_resumed(
    redis: RedisSettings, word: str
) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        for host in ("a.test", "b.test"):
            await bench.schedule(host, *some(host, 2))
        (lease,) = await bench.lease(1)
        await (operator.pause("job") if word == "paused" else operator.stop("job"))
        assert await bench.lease() == []
        assert (await bench.scheduler.outlook()).next_due is None
        later = await redis_scheduler(bench.plan, redis, aged=False)
        assert (await later.control(), await later.lease(9)) == (word, [])
        # What is under way is finished.
        await bench.finish(lease)
        assert await bench.stale() == 0
        await operator.resume("job")
        assert await later.control() == ""
        assert len(await bench.lease()) == 1

    with_operator(redis, Plan(), test)


def test_another_job_goes_on_while_one_is_paused(redis: RedisSettings) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        await bench.schedule("a.test", *some("a.test", 2))
        await operator.pause("another")
        assert await bench.lease_names() == ["a.test/1"]

    with_operator(redis, Plan(), test)


def test_a_host_that_is_switched_off_is_not_leased_from_until_it_is_on_again(redis: RedisSettings) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        for host in ("a.test", "b.test"):
            await bench.schedule(host, *some(host, 2))
        await operator.switch("a.test", on=False)
        assert await bench.lease_names() == ["b.test/1"]
        bench.clock.advance(9)
        assert (await bench.scheduler.outlook()).next_due is None
        await operator.switch("a.test", on=True)
        # What it had is held in the ledger meanwhile, or was: it comes from there again.
        assert await bench.lease_names() == []
        assert await bench.scheduler.missing(["a.test", "b.test"]) == ["a.test"]
        assert (await bench.scheduler.outlook()).queued == 1
        await bench.schedule("a.test", *some("a.test", 2))
        assert await bench.lease_names() == ["a.test/1"]
        await operator.switch("a.test", on=True)
        assert await bench.scheduler.missing(["a.test"]) == [], "it was on"

    with_operator(redis, Plan(), test)


def test_a_host_that_is_switched_off_is_given_up_once_nothing_of_it_is_leased(redis: RedisSettings) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        for host in ("a.test", "b.test"):
            await bench.schedule(host, *some(host, 3))
        leases = {lease.request.host: lease for lease in await bench.lease()}
        await operator.switch("a.test", on=False)
        assert await bench.scheduler.stalled(NOW + 300) == []
        await bench.finish(leases["a.test"])
        assert await bench.scheduler.stalled(NOW + 300) == [Stall("a.test", "switched_off")]
        assert await bench.scheduler.missing(["a.test", "b.test"]) == ["a.test"]
        assert await bench.scheduler.stalled(NOW + 300) == []
        assert await bench.stale() == 0

    with_operator(redis, Plan(), test)


def test_a_host_that_is_switched_on_while_it_is_asked_has_nothing_but_that(redis: RedisSettings) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        items = some("a.test", 4)
        await bench.schedule("a.test", *items)
        (lease,) = await bench.lease()
        await operator.switch("a.test", on=False)
        await operator.switch("a.test", on=True)
        outlook = await bench.scheduler.outlook()
        assert (outlook.queued, outlook.in_flight, outlook.hosts) == (0, 1, 1)
        (refill,) = await bench.scheduler.hungry(9)
        assert await bench.scheduler.push(refill, items) == 3, "all but the one that is leased"
        await bench.finish(lease)
        assert [name for _, name in await bench.drain(9)] == ["a.test/2", "a.test/3", "a.test/4"]
        assert await bench.stale() == 0

    with_operator(redis, Plan(), test)


def test_a_job_that_is_cleared_keeps_its_leases_and_takes_everything_else_anew(redis: RedisSettings) -> None:
    async def test(bench: Bench, _operator: RedisScheduler) -> None:
        for host in ("a.test", "b.test", "c.test"):
            await bench.schedule(host, *some(host, 3))
        (lease,) = await bench.lease(1)
        assert isinstance(bench.scheduler, RedisScheduler)
        await bench.scheduler.clear()
        outlook = await bench.scheduler.outlook()
        assert (outlook.queued, outlook.in_flight, outlook.hosts) == (0, 1, 1)
        await bench.finish(lease)
        await bench.scheduler.clear()
        assert await bench.scheduler.missing(["a.test", "b.test", "c.test"]) == ["a.test", "b.test", "c.test"]
        assert await bench.stale() == 0

    with_operator(redis, Plan(), test)


def test_a_host_that_was_switched_off_before_it_was_scheduled_stays_off(redis: RedisSettings) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        await operator.switch("a.test", on=False)
        await bench.schedule(info("a.test", group="test"), *some("a.test", 2))
        await bench.schedule(info("b.test", group="test"), *some("b.test", 2))
        assert [name for _, name in await bench.drain(5)] == ["b.test/1", "b.test/2"]
        assert await bench.scheduler.stalled(NOW + 300) == [Stall("a.test", "switched_off")]

    with_operator(redis, Plan(), test)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_delay_set_for_a_host_holds_whatever_its_answers_say(redis: RedisSettings, when: str) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        if when == "before":
            await operator.set_delay("a.test", 20.0)
        await bench.schedule("a.test", *some("a.test", 9))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW, 1.0, origin="http://a.test", floor=1.0))
        await bench.queued()
        if when == "after":
            await operator.set_delay("a.test", 20.0)
        assert (await bench.scheduler.outlook()).next_due == NOW + 20
        bench.clock.advance(20)
        (lease,) = await bench.lease()
        assert lease.delay == 20.0
        await operator.set_delay("a.test", 0.0)
        await bench.scheduler.release(lease, Pause(NOW + 20, 1.0, origin="http://a.test", floor=1.0))
        assert (await bench.scheduler.outlook()).next_due == NOW + 21

    with_operator(redis, Plan(), test)


def test_a_delay_shorter_than_the_one_of_the_job_changes_nothing(redis: RedisSettings) -> None:
    async def test(bench: Bench, operator: RedisScheduler) -> None:
        await bench.schedule("a.test", *some("a.test", 2))
        await operator.set_delay("a.test", 0.5)
        (lease,) = await bench.lease()
        await bench.finish(lease)
        assert (await bench.scheduler.outlook()).next_due == NOW + 3

    with_operator(redis, Plan(delay=3.0), test)


def test_a_job_needs_a_name_that_can_be_part_of_a_key() -> None:
    with pytest.raises(UsageError, match="cannot name a shared job"):
        asyncio.run(redis_scheduler(Plan(), RedisSettings(), job="a:b", aged=False))
