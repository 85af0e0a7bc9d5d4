"""How processes reach their servers, from the command line: prefixes, limits, and a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.testing.postgres_server import PostgresServer
from gossamer.testing.redis_server import RedisServer, redis_cluster
from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import PATIENT, Crew, Servers, check_books, gossamer, submit, wait_until
from .site import Site

QUICK = ("--delay", "0")


def keys_of(redis: RedisServer) -> set[str]:
    """Return the prefixes of all keys."""
    lines = redis.ask("KEYS", "*").split("\r\n")[2::2]
    return {line.partition(":")[0] for line in lines if line}


def pages_of(servers: Servers) -> int:
    return servers.number("SELECT count(*) FROM pages")


def test_a_prefix_from_a_file_a_flag_or_the_environment_leads_to_the_same_schedule(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    servers.redis.ask("FLUSHALL")
    site = Site(web, 2000, 2)
    config = servers.folder / "servers.toml"
    config.write_text('redis_prefix = "team"\npostgres_connections = 2\n', "utf-8")
    submit(servers, site, "--config", str(config), "--delay", "0.05")
    crew.hire("--config", str(config))
    wait_until(lambda: pages_of(servers) > 4, "pages are crawled")
    assert keys_of(servers.redis) == {"team"}
    stored = str(servers.ask("SELECT settings FROM jobs"))
    assert "team" not in stored
    assert "postgres_connections" not in stored
    paused = gossamer(servers, "pause", "job", "--redis-prefix", "team")
    assert paused.returncode == 0, paused.stderr
    assert servers.redis.ask("GET", "team:{g:0}:control:job").split()[1] == "paused"
    resumed = gossamer(servers, "resume", "job", "--config", str(config))
    assert resumed.returncode == 0, resumed.stderr
    assert keys_of(servers.redis) == {"team"}


def test_a_worker_holds_no_more_connections_than_it_may(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 400, 20)
    submit(servers, site, *QUICK)
    crew.start("--postgres-connections", "1")
    held = [0]

    def is_done() -> bool:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gossamer' AND backend_type = 'client backend'"
        held.append(servers.number(f"{asked} AND datname = current_database()"))
        return not crew.running()

    wait_until(is_done, "the worker has ended", seconds=60)
    crew.finish()
    assert max(held) == 1
    assert pages_of(servers) == 400


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--redis-timeout", "0"), "redis_timeout (flag) must be at least 0.1, not 0.0"),
        (("--postgres-connections", "many"), "postgres_connections (flag): 'many' is not a whole number"),
        (("--redis-partitions", "5000"), "redis_partitions must be at most 1023, not 5000"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line_before_any_work(
    servers: Servers, flags: tuple[str, ...], problem: str
) -> None:
    ended = gossamer(servers, "worker", "--exit-when-done", *flags)
    assert (ended.returncode, ended.stderr) == (2, f"gossamer: {problem}\n")


# -- Redis Cluster -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    with redis_cluster() as started:
        yield started


@pytest.fixture
def clustered(postgres: PostgresServer, nodes: list[RedisServer], tmp_path: Path) -> Iterator[Servers]:
    for node in nodes:
        node.ask("FLUSHALL")
    servers = Servers(postgres, nodes[0], tmp_path)
    yield servers
    postgres.drop(servers.database)


def test_any_node_of_a_redis_cluster_will_do(
    web: SyntheticWeb, clustered: Servers, nodes: list[RedisServer]
) -> None:
    site = Site(web, 300, 30)
    release = site.hold(after=100)
    submit(clustered, site, *QUICK, *PATIENT)
    checked = gossamer(clustered, "doctor")
    assert "cluster mode, state ok" in checked.stdout
    crew = Crew(clustered)
    try:
        crew.start()
        crew.start("--redis", nodes[2].url)
        wait_until(lambda: pages_of(clustered) > 10, "pages are crawled")
        assert all(keys_of(node) == {"gossamer"} for node in nodes), "the schedule lies on all nodes"
        paused = gossamer(clustered, "pause", "job", "--redis", nodes[1].url)
        assert paused.returncode == 0, paused.stderr
        resumed = gossamer(clustered, "resume", "job")
        assert resumed.returncode == 0, resumed.stderr
        release.set()
        crew.finish()
    finally:
        crew.bury()
    shown = gossamer(clustered, "status", "job")
    assert shown.returncode == 0, shown.stderr
    assert "job: done" in shown.stdout
    assert "300, of which 300 settled" in shown.stdout
    check_books(clustered, clustered.number("SELECT id FROM jobs"))
    deleted = gossamer(clustered, "db", "delete", "job", "--yes")
    assert deleted.returncode == 0, deleted.stderr
