"""Workers of one job keep to their hosts, so that connections stay in use; nobody waits long for a worker that is busy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from importlib import resources

import pytest

from gossamer.config.redis import RedisSettings
from gossamer.frontier.redis_affinity import PARTS
from gossamer.model.outcome import Pause
from gossamer.model.request import Lease
from gossamer.testing.frontier_cases import info
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_server
from gossamer.testing.scheduler_contract import Bench, Plan, some

pytestmark = pytest.mark.skipif(not is_redis_installed(), reason="needs redis-server")

HOSTS = [f"h{number}.test" for number in range(24)]
PLAN = Plan(active_hosts=100)
PATIENCE = RedisSettings().affinity_seconds


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as server:
        yield server.url


@pytest.fixture(params=[1, 5], ids=["one partition", "five partitions"])
def redis(request: pytest.FixtureRequest, url: str) -> RedisSettings:
    return RedisSettings(url=url, prefix=new_prefix(), partitions=request.param)


def on_two_workers(
    redis: RedisSettings, test: Callable[[Bench, Bench], Awaitable[None]], plan: Plan = PLAN
) -> None:
    """Run a test with two workers of one job that know of each other, and some hosts that nobody has asked yet."""

    async def main() -> None:
        made = replace(plan, clock=type(plan.clock)(plan.clock()))
        one = Bench(await redis_scheduler(made, redis), made)
        two = Bench(await redis_scheduler(made, redis, aged=False), made)
        for bench in (one, two, one):
            assert await bench.lease() == []
            await bench.scheduler.outlook()
        # Due just now: a host that has been due for long is anybody's.
        asked_at = made.clock() - made.delay
        await one.scheduler.activate([info(host, last_start=asked_at) for host in HOSTS])
        for refill in await one.scheduler.hungry(len(HOSTS)):
            await one.scheduler.push(refill, some(refill.host, 6))
        await test(one, two)

    asyncio.run(main())


def hosts_of(leases: list[Lease]) -> set[str]:
    return {lease.request.host for lease in leases}


async def take(bench: Bench, limit: int = 99, rest: float = 0.0) -> set[str]:
    """Lease, fetch within no time, and return the hosts; they are left alone for `rest` seconds."""
    leases = await bench.lease(limit)
    for lease in leases:
        await bench.scheduler.release(lease, Pause(bench.clock(), until=bench.clock() + rest))
    await bench.scheduler.settle(leases)
    # Reports go out with the next question.
    await bench.queued()
    return hosts_of(leases)


def test_new_hosts_are_divided_and_each_stays_with_its_worker(redis: RedisSettings) -> None:
    async def test(one: Bench, two: Bench) -> None:
        first, second = await take(one), await take(two)
        assert first | second == set(HOSTS)
        assert not first & second
        assert min(len(first), len(second)) >= 4
        for _ in range(3):
            one.clock.advance(1.0)
            assert (await take(two), await take(one)) == (second, first)

    on_two_workers(redis, test)


def test_a_host_whose_worker_is_late_goes_to_another_and_is_its_own_again(redis: RedisSettings) -> None:
    async def test(one: Bench, two: Bench) -> None:
        first, second = await take(one), await take(two)
        one.clock.advance(1.0)
        assert await take(two) == second
        one.clock.advance(PATIENCE - 0.01)
        assert await take(two) == set()
        one.clock.advance(0.01)
        assert await take(two) == first, "the other has not asked for them: it is busy"
        one.clock.advance(1.0 - PATIENCE)
        assert await take(two) == second
        one.clock.advance(PATIENCE)
        assert await take(one) == first

    on_two_workers(redis, test)


def test_a_worker_that_is_gone_keeps_no_host(redis: RedisSettings) -> None:
    async def test(one: Bench, two: Bench) -> None:
        first, second = await take(one, rest=20.0), await take(two, rest=20.0)
        one.clock.advance(3.5)
        assert await take(two) == set()
        one.clock.advance(16.5)
        assert await take(two) == first | second

    on_two_workers(redis, test)


def test_own_hosts_come_before_others_that_are_due_for_longer(redis: RedisSettings) -> None:
    async def test(one: Bench, two: Bench) -> None:
        first = await take(one)
        one.clock.advance(0.5)
        second = await take(two)
        one.clock.advance(3.0)
        assert await take(two, len(second)) == second
        assert await take(two, 3) < first

    on_two_workers(redis, test)


def test_the_outlook_is_that_of_the_worker_who_asks(redis: RedisSettings) -> None:
    async def test(one: Bench, two: Bench) -> None:
        await take(one)
        one.clock.advance(0.25)
        second = await take(two)
        due = one.clock() + 0.75
        assert (await one.scheduler.outlook()).next_due == due
        assert (await two.scheduler.outlook()).next_due == min(due + PATIENCE, due + 0.25)
        one.clock.advance(0.75)
        await take(one)
        assert (await one.scheduler.outlook()).next_due == one.clock() + 0.25 + PATIENCE
        one.clock.advance(0.25 + PATIENCE)
        assert await take(one) == second

    on_two_workers(redis, test)


def test_without_affinity_whoever_asks_first_has_all(redis: RedisSettings) -> None:
    async def test(one: Bench, two: Bench) -> None:
        assert await take(one) == set(HOSTS)
        one.clock.advance(1.0)
        assert await take(two) == set(HOSTS)

    on_two_workers(replace(redis, affinity_seconds=0.0), test)


def test_scripts_and_workers_count_the_same_parts() -> None:
    prelude = (resources.files("gossamer.frontier") / "lua" / "prelude.lua").read_text()
    assert re.findall(r"^local PARTS = (\d+)$", prelude, re.MULTILINE) == [str(PARTS)]


def test_who_has_no_host_that_is_due_is_told_to_wait_for_those_of_others(redis: RedisSettings) -> None:
    async def test(one: Bench, two: Bench) -> None:
        assert await take(one)
        assert await two.lease(99)
        one.clock.advance(1.0)
        assert (await two.scheduler.outlook()).next_due == one.clock() + PATIENCE

    on_two_workers(redis, test)
