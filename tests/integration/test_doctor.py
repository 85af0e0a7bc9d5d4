"""`doctor` on real servers, healthy and not, and its judgements on facts that a test cannot make."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gossamer.cli.main import main
from gossamer.frontier.postgres_schema import VERSION
from gossamer.model.server import ClockReading, PostgresFacts, RedisFacts, best_reading
from gossamer.observe import doctor
from gossamer.observe.doctor import Check
from gossamer.testing.postgres_server import migrated_database, programs, shared_server
from gossamer.testing.redis_server import (
    RedisServer,
    free_port,
    is_redis_installed,
    redis_cluster,
    redis_server,
)

needs_servers = pytest.mark.skipif(
    not is_redis_installed() or programs() is None, reason="needs redis-server and PostgreSQL"
)
NEAR = ClockReading(0.001, 0.0)
POSTGRES = PostgresFacts(150_004, "15.4", VERSION, "", NEAR)
REDIS = RedisFacts(
    "Redis",
    "7.0.15",
    "noeviction",
    1_000_000,
    1000,
    appends_to_file=True,
    cluster="",
    unwritable="",
    clock=NEAR,
)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[str]:
    server = shared_server()
    name = migrated_database(server)
    yield server.dsn(name)
    server.drop(name)


def verdicts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str
) -> tuple[int, dict[str, dict[str, str]]]:
    code = main(["doctor", "--json", "--jobs-dir", str(tmp_path / "jobs"), *words])
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)}


# -- on real servers -----------------------------------------------------------------------------------


@needs_servers
def test_healthy_servers_are_ok_and_the_exit_code_is_0(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, redis: RedisServer, postgres: str
) -> None:
    code, seen = verdicts(capsys, tmp_path, "--redis", redis.url, "--postgres", postgres)
    assert code == 0
    bad = {name for name, check in seen.items() if check["verdict"] != "ok"}
    # The test server keeps nothing on disk. A busy machine may also make servers look far away.
    assert bad - {"postgres distance", "redis distance"} == {"redis persistence"}
    assert {"postgres tables", "postgres writes", "redis eviction", "redis memory", "clocks"} <= seen.keys()
    assert "PostgreSQL" in seen["clocks"]["found"]
    assert redis.ask("KEYS", "*") == "*0\r\n"


@needs_servers
def test_people_read_a_line_for_each_with_its_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, redis: RedisServer
) -> None:
    assert main(["doctor", "--jobs-dir", str(tmp_path), "--redis", redis.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in {"ok", "warn", "fail"} for line in lines)
    (persistence,) = [line for line in lines if "redis persistence" in line]
    assert persistence.startswith("warn")
    assert persistence.endswith("remedy: redis-cli CONFIG SET appendonly yes")


@needs_servers
def test_a_redis_that_evicts_fails_with_the_line_that_cures_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, redis: RedisServer
) -> None:
    redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        code, seen = verdicts(capsys, tmp_path, "--redis", redis.url)
        assert (code, seen["redis eviction"]["verdict"]) == (2, "fail")
        command = seen["redis eviction"]["remedy"].split()
        assert command[0] == "redis-cli"
        redis.ask(*command[1:])
        assert verdicts(capsys, tmp_path, "--redis", redis.url)[0] == 0
    finally:
        redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")


@needs_servers
def test_a_redis_that_is_full_fails_with_the_line_that_makes_room(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with redis_server() as server:
        limit = int(server.info("memory", "used_memory")) + 200_000
        server.ask("CONFIG", "SET", "maxmemory", str(limit))
        number = 0
        while not server.ask("SET", f"k{number}", "x" * 10_000).startswith("-OOM"):
            number += 1
        code, seen = verdicts(capsys, tmp_path, "--redis", server.url)
        writes = seen["redis writes"]
        assert (code, writes["verdict"], seen["redis memory"]["verdict"]) == (2, "fail", "warn")
        assert "full" in writes["found"]
        command, _, otherwise = writes["remedy"].partition(", ")
        assert otherwise == "or wait until workers made room"
        assert command.split()[0] == "redis-cli"
        server.ask(*command.split()[1:])
        assert verdicts(capsys, tmp_path, "--redis", server.url)[1]["redis writes"]["verdict"] == "ok"


@needs_servers
def test_a_replica_of_redis_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, redis: RedisServer
) -> None:
    with redis_server("--replicaof", "127.0.0.1", str(redis.port)) as replica:
        code, seen = verdicts(capsys, tmp_path, "--redis", replica.url)
    assert (code, seen["redis writes"]["verdict"]) == (2, "fail")


@needs_servers
def test_a_node_of_a_cluster_is_known_for_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with redis_cluster() as nodes:
        code, seen = verdicts(capsys, tmp_path, "--redis", nodes[0].url)
    assert code == 0
    assert seen["redis cluster"]["found"].startswith("cluster mode, state ok")


@needs_servers
def test_a_database_without_tables_fails_with_the_command_that_makes_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = shared_server()
    dsn = server.dsn(server.database())
    code, seen = verdicts(capsys, tmp_path, "--postgres", dsn)
    assert code == 2
    assert (seen["postgres tables"]["verdict"], seen["postgres tables"]["remedy"]) == (
        "fail",
        "gossamer db upgrade",
    )


@needs_servers
def test_a_database_that_may_only_be_read_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, postgres: str
) -> None:
    only_read = f"{postgres}?options=-c%20default_transaction_read_only%3Don"
    code, seen = verdicts(capsys, tmp_path, "--postgres", only_read)
    assert (code, seen["postgres writes"]["verdict"]) == (2, "fail")


@pytest.mark.parametrize("server", ["--redis", "--postgres"])
def test_a_server_that_does_not_answer_is_exit_code_6_and_the_rest_is_still_checked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: str
) -> None:
    scheme = {"--redis": "redis://", "--postgres": "postgresql://you:secret@"}[server]
    code, seen = verdicts(capsys, tmp_path, server, f"{scheme}127.0.0.1:{free_port()}/0")
    name = server.removeprefix("--")
    assert (code, seen[name]["verdict"], seen["jobs folder"]["verdict"]) == (6, "fail", "ok")
    assert seen[name]["remedy"]
    assert "secret" not in json.dumps(seen)


@needs_servers
def test_a_redis_that_hangs_does_not_hang_the_doctor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with redis_server() as server:
        server.pause()
        began = time.monotonic()
        try:
            code, _ = verdicts(capsys, tmp_path, "--redis", server.url)
        finally:
            server.go_on()
    assert code == 6
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("words", [["--redis", "nonsense"], ["--postgres", "nonsense"]])
def test_an_address_that_is_none_is_a_failed_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    code, seen = verdicts(capsys, tmp_path, *words)
    assert (code, seen[words[0].removeprefix("--")]["verdict"]) == (2, "fail")


# -- judgements ----------------------------------------------------------------------------------------


def judged(checks: Iterator[Check] | list[Check]) -> dict[str, str]:
    return {check.name: check.verdict for check in checks if check.verdict != "ok"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"version_number": 140_010, "version": "14.10"}, {"postgres": "fail"}),
        ({"schema_version": "0000"}, {"postgres tables": "fail"}),
        ({"schema_version": "9999"}, {"postgres tables": "fail"}),
        ({"unwritable": "read-only"}, {"postgres writes": "fail"}),
        ({"clock": ClockReading(0.05, 0.0)}, {"postgres distance": "warn"}),
    ],
)
def test_a_postgres_is_judged_by_its_facts(changes: dict[str, object], expected: dict[str, str]) -> None:
    assert judged(doctor.check_postgres(replace(POSTGRES, **changes), VERSION)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"version": "6.2.14"}, {"redis": "fail"}),
        ({"product": "Valkey", "version": "8.0.1"}, {}),
        ({"policy": "volatile-lru"}, {"redis eviction": "fail"}),
        ({"policy": "volatile-lru", "max_memory_bytes": 0}, {}),
        ({"policy": "allkeys-lfu", "max_memory_bytes": 0}, {"redis eviction": "fail"}),
        ({"appends_to_file": False}, {"redis persistence": "warn"}),
        ({"used_memory_bytes": 900_000}, {"redis memory": "warn"}),
        ({"cluster": "ok"}, {}),
        ({"cluster": "fail"}, {"redis cluster": "fail"}),
        ({"unwritable": "READONLY"}, {"redis writes": "fail"}),
        ({"unwritable": "no room", "is_full": True}, {"redis writes": "fail"}),
    ],
)
def test_a_redis_is_judged_by_its_facts(changes: dict[str, object], expected: dict[str, str]) -> None:
    assert judged(doctor.check_redis(replace(REDIS, **changes))) == expected


@needs_servers
@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--min-replicas-to-write", "1"), "lower min-replicas-to-write"),
        (("--replicaof", "127.0.0.1 1"), "name the primary"),
    ],
)
def test_what_helps_against_a_redis_that_refuses_writes_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...], remedy: str
) -> None:
    with redis_server(*options) as server:
        code, seen = verdicts(capsys, tmp_path, "--redis", server.url)
    assert (code, seen["redis writes"]["verdict"]) == (2, "fail")
    assert remedy in seen["redis writes"]["remedy"]


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [
        ({"Redis": 0.9}, "ok"),
        ({"Redis": 1.1}, "warn"),
        ({"Redis": -1.1}, "warn"),
        # Each is near enough to us, but they are not to each other.
        ({"Redis": 0.7, "PostgreSQL": -0.7}, "warn"),
    ],
)
def test_clocks_that_differ_by_more_than_a_second_are_warned_of(
    ahead: dict[str, float], verdict: str
) -> None:
    assert doctor.check_clocks(ahead).verdict == verdict


def test_the_quickest_answer_tells_the_skew_and_the_median_the_distance() -> None:
    samples = [(0.0, 5.9, 1.0), (10.0, 15.05, 10.1), (20.0, 25.1, 20.4)]
    reading = best_reading(samples)
    assert reading.round_trip == pytest.approx(0.4)
    assert reading.ahead == pytest.approx(5.0)


def test_an_extra_may_be_missing_unless_its_server_is_named() -> None:
    assert doctor.check_extra("redis", ["hiredis"], is_needed=False).verdict == "warn"
    assert doctor.check_extra("redis", ["hiredis"], is_needed=True).verdict == "fail"


def test_too_few_files_and_too_old_a_python_are_noticed() -> None:
    assert doctor.check_files(256).verdict == "warn"
    assert doctor.check_python((3, 10, 4)).verdict == "fail"


def test_a_jobs_folder_that_cannot_be_made_fails_and_none_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert doctor.check_jobs_dir(tmp_path / "file" / "jobs").verdict == "fail"
    assert doctor.check_jobs_dir(tmp_path / "new" / "jobs").verdict == "ok"
    assert not (tmp_path / "new").exists()
