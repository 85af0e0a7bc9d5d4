"""The scheduler on Redis keeps the contract: on a server, and on a cluster of three nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gossamer.config.redis import RedisSettings
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_cluster, redis_server
from gossamer.testing.scheduler_contract import (
    LeaseContract,
    OrderContract,
    Plan,
    SchedulerContract,
    SchedulerMaker,
)
from gossamer.testing.trouble_contract import TroubleContract

pytestmark = pytest.mark.skipif(not is_redis_installed(), reason="needs redis-server")


class Maker(SchedulerMaker):
    settings: RedisSettings

    async def make(self, plan: Plan) -> RedisScheduler:
        kept = self.settings
        fresh = RedisSettings(
            url=kept.url, cluster=kept.cluster, prefix=new_prefix(), partitions=kept.partitions
        )
        return await redis_scheduler(plan, fresh)


class TestRedisScheduler(Maker, SchedulerContract, TroubleContract):
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls) -> Iterator[None]:
        with redis_server() as server:
            cls.settings = RedisSettings(url=server.url)
            yield


class TestRedisSchedulerInPartitions(Maker, SchedulerContract, TroubleContract):
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
class TestRedisClusterScheduler(OnCluster, SchedulerContract, TroubleContract):
    pass
