"""The scheduler on Redis keeps the contract: on a server, and on a cluster of three nodes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator

import pytest
import redis

from gossamer.config.redis import RedisSettings
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.model.outcome import Pause
from gossamer.model.schedule import Lost
from gossamer.testing.frontier_cases import NOW
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_cluster, redis_server
from gossamer.testing.scheduler_contract import (
    Bench,
    LeaseContract,
    OrderContract,
    Plan,
    SchedulerContract,
    SchedulerMaker,
    some,
)
from gossamer.testing.trouble_contract import TroubleContract

pytestmark = pytest.mark.skipif(not is_redis_installed(), reason="needs redis-server")


class Maker(SchedulerMaker):
    settings: RedisSettings

    async def make(self, plan: Plan) -> RedisScheduler:
        return await redis_scheduler(plan, self.unused())

    async def crew(self, plan: Plan, *jobs: str) -> list[Bench]:
        """Make a worker for each of the jobs, all on one schedule."""
        shared = self.unused()
        return [
            Bench(await redis_scheduler(plan, shared, job=job, aged=not number), plan)
            for number, job in enumerate(jobs)
        ]

    def unused(self) -> RedisSettings:
        """Return the server with a prefix under which nothing is stored yet."""
        return dataclasses.replace(self.settings, prefix=new_prefix())


class HandingOverContract(Maker):
    """A lost lease goes from worker to worker until one of them settles it."""

    @pytest.mark.parametrize("report", ["", "start", "release"])
    def test_what_a_taker_does_not_settle_goes_to_the_next(self, report: str) -> None:
        async def main() -> None:
            holder, taker, heir = await self.crew(Plan(delay=0), "job", "job", "job")
            one, two = some("a.test", 2)
            await holder.schedule("a.test", one, two)
            (lease,) = await holder.lease()
            if report:
                await holder.scheduler.started(lease, NOW)
            if report == "release":
                await holder.scheduler.release(lease, Pause(NOW))
            await holder.queued()
            holder.clock.advance(60)
            # One that came to its end is no longer under way.
            assert await taker.scheduler.expired() == [Lost(lease, begun=report == "start")]
            taker.clock.advance(59)
            # It is heard of, but whether it ever heard the answer nobody knows.
            for bench in (taker, heir):
                assert await bench.scheduler.expired() == []
            assert await taker.scheduler.offer([one]) == 0
            heir.clock.advance(1)
            ((again, begun),) = [(lost.lease, lost.begun) for lost in await heir.scheduler.expired()]
            assert (again.token, again.known, begun) == (lease.token, lease.known, report == "start")
            await heir.scheduler.settle([again])
            assert (await heir.scheduler.outlook()).in_flight == 0
            assert await heir.scheduler.offer([one]) == 1

        asyncio.run(main())

    def test_settlements_of_those_who_lost_a_lease_change_nothing(self) -> None:
        async def main() -> None:
            holder, taker, heir = await self.crew(Plan(delay=0), "job", "job", "job")
            (one,) = some("a.test", 1)
            await holder.schedule("a.test", one)
            (lease,) = await holder.lease()
            for bench in (taker, heir):
                bench.clock.advance(60)
                assert len(await bench.lost()) == 1
            for bench in (holder, taker):
                await bench.scheduler.release(lease, Pause(NOW), put_back=True)
                await bench.scheduler.settle([lease], frozenset([one.request.fingerprint]))
                assert await bench.stale() == 2
                assert (await bench.scheduler.outlook()).in_flight == 1
                assert await bench.scheduler.offer([one]) == 0
            await heir.scheduler.settle([lease])
            assert (await heir.scheduler.outlook()).in_flight == 0
            assert await heir.stale() == 0

        asyncio.run(main())

    def test_a_lease_that_another_job_found_expired_goes_to_its_own_with_its_past(self) -> None:
        async def main() -> None:
            mine, other = await self.crew(Plan(delay=0, per_host=2), "mine", "other")
            await mine.schedule("a.test", *some("a.test", 2))
            begun, silent = await mine.lease()
            await mine.scheduler.started(begun, NOW)
            await mine.queued()
            mine.clock.advance(60)
            assert await other.scheduler.expired() == []
            lost = await mine.scheduler.expired()
            assert {(item.lease.token, item.begun) for item in lost} == {
                (begun.token, True),
                (silent.token, False),
            }
            assert await mine.scheduler.expired() == []
            mine.clock.advance(60)
            assert len(await mine.scheduler.expired()) == 2
            await mine.scheduler.settle([begun, silent])
            assert (await mine.scheduler.outlook()).in_flight == 0

        asyncio.run(main())


class EpochContract(Maker):
    """What begins on a lease from before a wipe is a delay apart from what begins after it."""

    def wipe(self) -> None:
        with redis.Redis.from_url(self.settings.url) as client:
            client.flushall()

    @pytest.mark.parametrize("per_host", [1, 3])
    @pytest.mark.parametrize("noticed_after", [0.0, 0.5, 2.5, 99.0])
    def test_requests_of_two_epochs_are_a_delay_apart(self, per_host: int, noticed_after: float) -> None:
        async def main() -> None:
            holder, other = await self.crew(Plan(delay=2, per_host=per_host), "job", "job")
            await holder.schedule("a.test", *some("a.test", 2))
            (old,) = await holder.lease()
            self.wipe()
            clock, begun_at = holder.clock, 0.0
            await other.schedule("a.test", *some("a.test", 2))
            while not await other.lease():
                if clock() >= NOW + noticed_after:
                    await holder.queued()
                if holder.scheduler.begin_by(old) > clock():
                    begun_at = clock()
                clock.advance(0.25)
            assert clock() >= max(begun_at, NOW) + 2
            assert holder.scheduler.begin_by(old) <= clock()
            assert (begun_at == 0) == (noticed_after == 0), "until it is noticed, it may begin"
            assert clock() < NOW + 10

        asyncio.run(main())

    def test_nothing_begins_while_redis_is_not_heard_of(self) -> None:
        async def main() -> None:
            (bench,) = await self.crew(Plan(), "job")
            await bench.schedule("a.test", *some("a.test", 1))
            (lease,) = await bench.lease()
            slack = self.settings.slack_seconds
            bench.clock.advance(2 * slack)
            assert bench.scheduler.begin_by(lease) == NOW + slack
            await bench.queued()
            assert bench.scheduler.begin_by(lease) == NOW + 3 * slack

        asyncio.run(main())

    def test_a_lease_of_the_new_epoch_may_begin(self) -> None:
        async def main() -> None:
            (bench,) = await self.crew(Plan(delay=0), "job")
            await bench.schedule("a.test", *some("a.test", 1))
            (old,) = await bench.lease()
            self.wipe()
            await bench.schedule("a.test", *some("a.test", 1))
            (new,) = await bench.lease()
            slack = self.settings.slack_seconds
            assert [bench.scheduler.begin_by(lease) for lease in (old, new)] == [0.0, NOW + slack]

        asyncio.run(main())


class TestRedisScheduler(HandingOverContract, EpochContract, SchedulerContract, TroubleContract):
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls) -> Iterator[None]:
        with redis_server() as server:
            cls.settings = RedisSettings(url=server.url)
            yield


class TestRedisSchedulerInPartitions(HandingOverContract, EpochContract, SchedulerContract, TroubleContract):
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls) -> Iterator[None]:
        with redis_server() as server:
            cls.settings = RedisSettings(url=server.url, partitions=5)
            yield


class OnCluster(Maker):
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _cluster(cls) -> Iterator[None]:
        with redis_cluster() as nodes:
            cls.settings = RedisSettings(url=nodes[0].url, cluster=True)
            yield


class TestLeasesOnRedisCluster(OnCluster, LeaseContract):
    pass


class TestOrderOnRedisCluster(OnCluster, OrderContract):
    pass


@pytest.mark.soak
class TestRedisClusterScheduler(OnCluster, HandingOverContract, SchedulerContract, TroubleContract):
    pass
