"""The servers of shared jobs, as one process sees them: PostgreSQL, which holds the ledgers, and Redis, which has the clock."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import msgspec

from gossamer.config.job_file import JobSpec, spec_from
from gossamer.config.postgres import PostgresLimits
from gossamer.config.redis import RedisSettings
from gossamer.contracts import Clock, EventLog, Failpoint
from gossamer.errors import BackendLost
from gossamer.frontier.postgres_jobs import JobRow
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.frontier.postgres_schema import check_version
from gossamer.model.outcome import Batch, Committed
from gossamer.observe.health import Vitals
from gossamer.observe.metrics import Metrics

#: How often a worker looks what others have changed.
LOOK_SECONDS = 1.0
#: A server may be away for so long before a worker gives up.
_PATIENCE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Servers:
    """Where shared jobs live."""

    postgres: str
    redis: RedisSettings
    limits: PostgresLimits = field(default_factory=PostgresLimits)


class Cluster:
    """The servers as one process sees them, and how it is doing."""

    def __init__(
        self, servers: Servers, pool: PostgresPool, clock: Clock, failpoint: Failpoint, log: EventLog
    ) -> None:
        self.servers = servers
        self.pool = pool
        self.clock = clock
        self.failpoint = failpoint
        self.log = log
        self.worker = f"{socket.gethostname()}-{os.getpid()}"
        self._began = time.monotonic()
        self.metrics = Metrics()
        self.vitals = Vitals(self.metrics, clock, ("postgres", "redis"))
        #: Servers that do not answer.
        self._lost: set[str] = set()

    def ledger(self, job: int) -> MeasuredLedger:
        """Return this process' view of a job's ledger."""
        return MeasuredLedger(self.pool, job, self.clock, self.failpoint, self.worker, self)

    def seconds_to_look(self) -> float:
        """Return how long to wait before the next look: the looks of a process fall together, into one transaction."""
        return LOOK_SECONDS - (time.monotonic() - self._began) % LOOK_SECONDS

    def redis_lost(self, error: BackendLost) -> None:
        """Note that Redis did not answer."""
        self._failed("redis", error)

    def redis_back(self) -> None:
        """Note that Redis answers."""
        self._answered("redis")

    def postgres_lost(self, error: BackendLost) -> None:
        """Note that PostgreSQL did not answer."""
        self._failed("postgres", error)

    def postgres_back(self) -> None:
        """Note that PostgreSQL answers."""
        self._answered("postgres")

    def _failed(self, backend: str, error: BackendLost) -> None:
        """Count a failure; only the first of a row is worth a line."""
        self.vitals.failed(backend)
        if backend not in self._lost:
            self._lost.add(backend)
            self.log.write(f"{backend}_lost", detail=str(error))

    def _answered(self, backend: str) -> None:
        self.vitals.answered(backend)
        if backend in self._lost:
            self._lost.remove(backend)
            self.log.write(f"{backend}_back")


class MeasuredLedger(PostgresLedger):
    """A ledger whose commits are counted and timed."""

    def __init__(
        self,
        pool: PostgresPool,
        job: int,
        clock: Clock,
        failpoint: Failpoint,
        worker: str,
        cluster: Cluster,
    ) -> None:
        super().__init__(pool, job, clock, failpoint, worker=worker)
        self._cluster = cluster

    async def commit(self, batch: Batch) -> Committed:
        """Commit, and tell the metrics."""
        began = time.monotonic()
        committed = await super().commit(batch)
        self._cluster.metrics.take(batch.visits, committed, time.monotonic() - began)
        return committed


@asynccontextmanager
async def open_cluster(
    servers: Servers, clock: Clock, failpoint: Failpoint, log: EventLog, *, patient: bool
) -> AsyncIterator[Cluster]:
    """Connect. A patient one waits for servers that go away later; whether they fit is checked at once."""
    await asyncio.to_thread(check_version, servers.postgres)
    limits = replace(servers.limits, patience_seconds=_PATIENCE_SECONDS) if patient else servers.limits
    pool = PostgresPool(servers.postgres, limits)
    cluster = Cluster(servers, pool, clock, failpoint, log)
    pool.answered, pool.failed = cluster.postgres_back, cluster.postgres_lost
    try:
        yield cluster
    finally:
        await pool.close()


def job_spec(job: JobRow) -> JobSpec:
    """Return the job as it was asked for."""
    return spec_from(msgspec.json.decode(job.settings, type=dict))
