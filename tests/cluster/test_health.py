"""What a worker says of itself, seen from outside and by a clock of our own, while servers come and go."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from gossamer.cluster import Cluster, open_cluster
from gossamer.cluster import Servers as Addresses
from gossamer.config.postgres import PostgresLimits
from gossamer.config.redis import RedisSettings
from gossamer.contracts import no_failpoint
from gossamer.errors import BackendLost
from gossamer.frontier.postgres_pool import PostgresPool, Query
from gossamer.testing.clock import FakeClock
from gossamer.testing.redis_server import RedisServer, free_port, redis_server
from gossamer.testing.synthetic_web import SyntheticWeb
from gossamer.workforce import Workforce

from .rig import LONGEST_SECONDS, Crew, Servers, Worker, check_done, submit, wait_until
from .site import Site


def is_up(worker: Worker, backend: str) -> bool:
    lines = worker.health("/metrics")[1].splitlines()
    (line,) = [line for line in lines if line.startswith(f'gossamer_backend_up{{backend="{backend}"}}')]
    return line.endswith(" 1")


def worker_command(servers: Servers, redis_url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer", "worker", "--exit-when-done"],
        env=servers.environment(GOSSAMER_REDIS=redis_url),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )


# -- from outside ----------------------------------------------------------------------------------------


def test_a_worker_without_a_job_is_ready_and_soon_says_when_redis_goes_and_comes(
    servers: Servers, crew: Crew
) -> None:
    worker = crew.hire("--health-port", "0")
    wait_until(lambda: worker.health("/readyz") == (200, "ok\n"), "it is ready")
    servers.redis.kill()
    try:
        wait_until(lambda: worker.backend_errors("redis") >= 3, "it tried again and again")
        assert not is_up(worker, "redis")
        assert is_up(worker, "postgres")
    finally:
        servers.redis.start()
    wait_until(lambda: is_up(worker, "redis"), "it has found Redis again")
    wait_until(lambda: worker.events("redis_back"), "it has said so")
    assert [len(worker.events(name)) for name in ("redis_lost", "redis_back", "postgres_lost")] == [1, 1, 0]


def test_a_worker_without_a_job_asks_redis_once_a_look(servers: Servers, crew: Crew) -> None:
    worker = crew.hire("--health-port", "0")
    wait_until(lambda: worker.health("/readyz")[0] == 200, "it is ready")
    began, pings = time.monotonic(), calls_of(servers.redis, "ping")
    connections, commands = servers.redis_connections(), commands_of(servers.redis)
    wait_until(lambda: calls_of(servers.redis, "ping") >= pings + 6, "it asked six times")
    # One of them may have been late, and the next on time.
    assert time.monotonic() - began > 3.5
    sent = commands_of(servers.redis) - commands
    # Those of this test are among them, each on a connection of its own.
    connected = servers.redis_connections() - connections
    assert sent <= calls_of(servers.redis, "ping") - pings + connected + 1


def commands_of(redis: RedisServer) -> int:
    return int(redis.info("stats", "total_commands_processed"))


def calls_of(redis: RedisServer, command: str) -> int:
    """Return how often a command was called since the server was started."""
    lines = redis.ask("INFO", "commandstats").splitlines()
    found = [line for line in lines if line.startswith(f"cmdstat_{command}:")]
    return int(found[0].partition("calls=")[2].partition(",")[0]) if found else 0


def test_an_outage_of_postgres_shows_in_metrics_and_as_two_lines_of_the_log(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 200, 20)
    submit(servers, site)
    worker = crew.start("--health-port", "0")
    assert site.after_hits(40).wait(LONGEST_SECONDS)
    assert is_up(worker, "postgres")
    servers.postgres.stop(immediate=True)
    try:
        wait_until(lambda: worker.backend_errors("postgres") >= 6, "it tried again and again")
        assert not is_up(worker, "postgres")
        assert is_up(worker, "redis")
    finally:
        servers.postgres.start()
    wait_until(lambda: worker.events("postgres_back"), "it has found PostgreSQL again")
    crew.finish()
    check_done(servers, site)
    assert [len(worker.events(name)) for name in ("postgres_lost", "postgres_back", "redis_lost")] == [
        1,
        1,
        0,
    ]
    (lost,) = worker.events("postgres_lost")
    assert f"127.0.0.1:{servers.postgres.port}" in lost["detail"]
    # Nothing of the driver's own warnings: whoever reads the log reads JSON.
    assert all(json.loads(line)["event"] for line in worker.said().splitlines())


def test_a_worker_does_not_start_without_a_redis_and_says_so_in_a_line(servers: Servers) -> None:
    ended = worker_command(servers, f"redis://127.0.0.1:{free_port()}/0")
    assert (ended.returncode, ended.stdout) == (6, "")
    (line,) = ended.stderr.splitlines()
    assert "no answer from Redis" in line
    assert "start it" in line


def test_a_worker_does_not_start_on_a_redis_that_evicts_although_there_is_no_job(servers: Servers) -> None:
    with redis_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as evicting:
        ended = worker_command(servers, evicting.url)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.endswith("set maxmemory-policy to noeviction")


def test_a_statement_that_the_server_itself_gives_up_is_no_outage(servers: Servers) -> None:
    async def scenario() -> None:
        pool = PostgresPool(servers.dsn, PostgresLimits(statement_seconds=0.1, patience_seconds=0.3))
        failures: list[BackendLost] = []
        pool.failed = failures.append
        try:
            with pytest.raises(BackendLost):
                await pool.ask(Query("SELECT pg_sleep(5)"))
        finally:
            await pool.close()
        assert failures == []

    asyncio.run(scenario())


# -- by a clock of our own -------------------------------------------------------------------------------


class Silent:
    """An event log for nobody."""

    def write(self, event: str, /, **fields: object) -> None:
        """Drop it."""


@asynccontextmanager
async def idle_worker(servers: Servers, clock: FakeClock) -> AsyncIterator[Cluster]:
    """Have a worker without a job in this process."""
    addresses = Addresses(servers.dsn, RedisSettings(url=servers.redis.url))
    async with open_cluster(addresses, clock, no_failpoint, Silent(), patient=True) as cluster:
        force = Workforce(cluster)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(force.run(), name="worker")
            yield cluster
            force.stop()
            await running


async def turned(cluster: Cluster, *, ready: str) -> None:
    """Wait until it is alive by the clock, and says of its backends what it should."""
    async with asyncio.timeout(LONGEST_SECONDS):
        while cluster.vitals.alive() or cluster.vitals.ready() != ready:
            await asyncio.sleep(0.02)


@contextmanager
def away(servers: Servers, backend: str) -> Iterator[None]:
    match backend:
        case "redis":
            servers.redis.kill()
        case _:
            servers.postgres.stop(immediate=True)
    try:
        yield
    finally:
        (servers.redis if backend == "redis" else servers.postgres).start()


@pytest.mark.parametrize(("backend", "other"), [("redis", "postgres"), ("postgres", "redis")])
def test_a_worker_that_waits_for_a_server_is_alive_and_after_half_a_minute_not_ready(
    servers: Servers, backend: str, other: str
) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        async with idle_worker(servers, clock) as cluster:
            await turned(cluster, ready="")
            with away(servers, backend):
                clock.advance(29.0)
                await turned(cluster, ready="")
                # Whoever is there has answered by then: only one of them is missed.
                clock.advance(61.0)
                await turned(cluster, ready=f"{backend} has not answered for 90 s")
            await turned(cluster, ready="")

    asyncio.run(scenario())
