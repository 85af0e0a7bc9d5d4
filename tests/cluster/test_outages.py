"""A server goes away, or hangs, and comes back: workers wait, and go on by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import LONGEST_SECONDS, Crew, Servers, check_done, submit
from .site import Site

#: What a worker may grow by while it waits.
MEMORY_BYTES = 64 << 20
#: Connections of one worker to either server, at most.
CONNECTIONS = 12


@contextmanager
def postgres_stopped(servers: Servers) -> Iterator[None]:
    servers.postgres.stop(immediate=True)
    try:
        yield
    finally:
        servers.postgres.start()


def postgres_frozen(servers: Servers) -> AbstractContextManager[None]:
    return servers.frozen_postgres()


@contextmanager
def redis_frozen(servers: Servers) -> Iterator[None]:
    servers.redis.pause()
    try:
        yield
    finally:
        servers.redis.go_on()


Outage = Callable[[Servers], AbstractContextManager[None]]
Note = Callable[[str, object], None]
OUTAGES = [postgres_stopped, postgres_frozen, redis_frozen]


def survive(
    web: SyntheticWeb, servers: Servers, crew: Crew, outage: Outage, seconds: float, note: Note
) -> None:
    site = Site(web, 300, 20, answer_seconds=0.05)
    submit(servers, site)
    workers = [crew.start(), crew.start()]
    assert site.after_hits(80).wait(LONGEST_SECONDS)
    before = [worker.memory() for worker in workers]
    with outage(servers):
        time.sleep(seconds)
        grown = [worker.memory() - was for worker, was in zip(workers, before, strict=True)]
    back_at = time.monotonic()
    redis_before = servers.redis_connections()
    sessions_before = sessions(servers)
    assert site.after_hits(20).wait(15.0), [worker.said() for worker in workers]
    resumed = time.monotonic() - back_at
    assert all(worker.is_running() for worker in workers)
    crew.finish()
    refetched = site.page_hits().total() - len(site.urls)
    greetings = servers.redis_connections() - redis_before, sessions(servers) - sessions_before
    note("figures", f"{resumed=:.2f} {grown=} {greetings=} {refetched=}")
    assert max(grown) < MEMORY_BYTES
    assert max(greetings) < 2 * CONNECTIONS
    check_done(servers, site)


def sessions(servers: Servers) -> int:
    return servers.number("SELECT sessions FROM pg_stat_database WHERE datname = current_database()")


@pytest.mark.parametrize("outage", [postgres_stopped, redis_frozen])
def test_workers_wait_for_a_server_and_go_on_by_themselves(
    web: SyntheticWeb, servers: Servers, crew: Crew, outage: Outage, record_property: Note
) -> None:
    survive(web, servers, crew, outage, 2.0, record_property)


@pytest.mark.soak
@pytest.mark.parametrize("outage", OUTAGES)
def test_workers_wait_for_a_minute(
    web: SyntheticWeb, servers: Servers, crew: Crew, outage: Outage, record_property: Note
) -> None:
    survive(web, servers, crew, outage, 60.0, record_property)
