"""A server goes away, or hangs, and comes back: workers wait, and go on by themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import (
    FLAGS,
    LEASE_SECONDS,
    LONGEST_SECONDS,
    PATIENT,
    RESUME_SECONDS,
    Crew,
    Servers,
    Worker,
    check_done,
    submit,
    wait_until,
)
from .site import Site

#: What a worker may grow by while it waits.
MEMORY_BYTES = 64 << 20
#: Connections of one worker to either server, at most.
CONNECTIONS = 12
#: How often each of them is tried in the first seconds of an outage, and all of them together later on.
TRIES_AT_ONCE, TRIES_A_SECOND = 6, 2
#: A stall of the machine that may cost a page its answer, or a worker its lease.
STALL_SECONDS = 0.5
#: After so long a worker that waits for a server is not ready.
SILENCE_SECONDS = 35.0


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
    # So few that something is left to do when the server is back, however long that takes.
    few = ("--max-uncommitted-pages", "20")
    submit(servers, site, *few, *(PATIENT if seconds < LEASE_SECONDS else ()))
    # Nor is the first done before the second is there.
    begun, release = site.after_hits(80), site.hold(after=40)
    workers = [crew.start("--health-port", "0"), crew.start("--health-port", "0")]
    for worker in workers:
        wait_until(lambda: worker.events("job_started"), "it has a part in the job")  # noqa: B023 - asked now
    release.set()
    assert begun.wait(LONGEST_SECONDS)
    before = [worker.memory() for worker in workers]
    gone_at = time.monotonic()
    with outage(servers):
        time.sleep(seconds)
        backend = "redis" if outage is redis_frozen else "postgres"
        tries = [worker.backend_errors(backend) for worker in workers]
        if seconds > SILENCE_SECONDS:
            check_waiting(workers, backend)
        grown = [worker.memory() - was for worker, was in zip(workers, before, strict=True)]
        away = time.monotonic() - gone_at
    back_at = time.monotonic()
    redis_before = servers.redis_connections()
    sessions_before = sessions(servers)
    assert site.after_hits(20).wait(LONGEST_SECONDS), [worker.said() for worker in workers]
    resumed = time.monotonic() - back_at
    assert resumed < RESUME_SECONDS + site.watch.total(back_at)
    assert all(worker.is_running() for worker in workers)
    crew.finish()
    refetched = site.page_hits().total() - len(site.urls)
    greetings = servers.redis_connections() - redis_before, sessions(servers) - sessions_before
    note("figures", f"{resumed=:.2f} {tries=} {grown=} {greetings=} {refetched=}")
    assert max(tries) < TRIES_AT_ONCE * CONNECTIONS + TRIES_A_SECOND * away
    assert max(grown) < MEMORY_BYTES
    assert max(greetings) < 2 * CONNECTIONS
    check_done(servers, site)


def check_waiting(workers: list[Worker], backend: str) -> None:
    """Assert that nobody would start a worker anew that waits for a server, or give it work."""
    for worker in workers:
        assert worker.health("/healthz") == (200, "ok\n")
        status, why = worker.health("/readyz")
        assert (status, why.startswith(f"{backend} has not answered for "), why.count("\n")) == (
            503,
            True,
            1,
        ), why


def test_workers_keep_what_they_fetched_while_postgres_hangs_for_longer_than_their_leases(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    began = time.monotonic()
    site = Site(web, 300, 20, answer_seconds=0.05)
    submit(servers, site, "--max-uncommitted-pages", "20")
    workers = [crew.start("--health-port", "0"), crew.start("--health-port", "0")]
    assert site.after_hits(80).wait(LONGEST_SECONDS)
    with servers.frozen_postgres():
        time.sleep(2 * LEASE_SECONDS + 1.0)
        assert servers.leases() > 0
        oldest = "gossamer_oldest_lease_seconds"
        wait_until(lambda: max(worker.metric(oldest) for worker in workers) > LEASE_SECONDS, "it shows")
    assert site.after_hits(20).wait(LONGEST_SECONDS), [worker.said() for worker in workers]
    crew.finish()
    check_done(servers, site)
    check_nothing_crashed(servers, site, crew, began)


def test_hosts_whose_robots_txt_cannot_be_asked_for_meanwhile_are_taken_for_nothing_worse(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    began = time.monotonic()
    site = Site(web, 60, 60)
    submit(servers, site, "-c", "8")
    crew.start()
    wait_until(lambda: len(site.hits()) >= 8, "the first robots.txt files were asked for", LONGEST_SECONDS)
    with postgres_stopped(servers):
        time.sleep(2 * LEASE_SECONDS + 1.0)
    # It is there at once, while the first still waits before it tries again.
    crew.start()
    crew.finish()
    check_done(servers, site)
    check_nothing_crashed(servers, site, crew, began)


def check_nothing_crashed(servers: Servers, site: Site, crew: Crew, began: float) -> None:
    """Assert that no lease ran out: nothing was fetched twice, and nothing is suspected of having killed a worker.

    Where the machine itself stood still for as long as a page may take, since the test began, nothing can be said.
    """
    if site.watch.longest(began) > STALL_SECONDS:
        return
    assert {url: count for url, count in site.page_hits().items() if count > 1} == {}
    assert servers.number("SELECT sum(crashes) FROM urls") == 0
    assert [event for worker in crew.all for event in worker.events("crashed")] == []


@pytest.mark.parametrize("outage", [postgres_stopped, redis_frozen])
def test_a_worker_that_waits_for_a_server_leaves_when_it_is_told_to(
    web: SyntheticWeb, servers: Servers, crew: Crew, outage: Outage
) -> None:
    site = Site(web, 300, 20, answer_seconds=0.05)
    submit(servers, site)
    leaving = crew.hire("--grace-seconds", "1")
    assert site.after_hits(80).wait(LONGEST_SECONDS)
    with outage(servers):
        time.sleep(1.0)
        leaving.send(signal.SIGTERM)
        assert leaving.wait() == 128 + signal.SIGTERM, leaving.said()
    crew.start()
    crew.finish()
    check_done(servers, site)


def test_a_crawl_in_the_foreground_says_that_it_waits_and_stops_when_it_is_told_to_twice(
    web: SyntheticWeb, servers: Servers
) -> None:
    site = Site(web, 300, 20, answer_seconds=0.05)
    crawl = [sys.executable, "-m", "gossamer", "crawl", *site.seeds, "--job", "job", *FLAGS]
    begun = site.after_hits(80)
    with subprocess.Popen(
        [*crawl, "--progress", "plain"], env=servers.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert begun.wait(LONGEST_SECONDS)
        assert process.stderr is not None
        with postgres_stopped(servers):
            said = read_until(process.stderr, "PostgreSQL does not answer")
            process.send_signal(signal.SIGINT)
            said += read_until(process.stderr, "press Ctrl-C again")
            process.send_signal(signal.SIGINT)
            said += process.communicate(timeout=LONGEST_SECONDS)[1]
    assert process.returncode == 128 + signal.SIGINT, said
    assert said.count("PostgreSQL does not answer") == 1, said
    assert "go on with: " in said
    subprocess.run([*crawl, "-q"], env=servers.environment(), check=True, timeout=LONGEST_SECONDS)
    check_done(servers, site)


def read_until(stream: IO[str], words: str) -> str:
    """Read up to the line that has these words."""
    said = ""
    while words not in said and (line := stream.readline()):
        said += line
    assert words in said, said
    return said


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
