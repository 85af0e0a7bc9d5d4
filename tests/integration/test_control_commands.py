"""The commands that steer jobs, on real servers, and on a real crawl where they end one."""

from __future__ import annotations

import asyncio
import fcntl
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import psycopg
import pytest

from gossamer.cli.job_lookup import job_is_locked
from gossamer.cli.main import main
from gossamer.config.job_file import JobSpec
from gossamer.config.redis import RedisSettings
from gossamer.config.settings import FrontierSettings, PolitenessSettings, Settings
from gossamer.errors import UsageError
from gossamer.frontier import controls
from gossamer.frontier.controls import Controls, read_controls, restore_controls
from gossamer.frontier.postgres_jobs import create_job, open_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.frontier.redis_controls import Held
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import (
    ROBOTS_ASSUMED,
    ROBOTS_UNREACHABLE,
    Deferred,
    GroupState,
    RobotsFile,
    Visit,
)
from gossamer.testing.frontier_cases import NOW, batch, found, visit
from gossamer.testing.postgres_server import migrated_database, programs, shared_server
from gossamer.testing.redis_server import RedisServer, free_port, is_redis_installed, redis_server
from gossamer.testing.synthetic_web import SyntheticWeb

T = TypeVar("T")

needs_servers = pytest.mark.skipif(
    not is_redis_installed() or programs() is None, reason="needs redis-server and PostgreSQL"
)


@dataclass(frozen=True)
class Shared:
    """A database with one job in it, and an empty Redis."""

    dsn: str
    redis: RedisServer

    @property
    def servers(self) -> list[str]:
        return ["--postgres", self.dsn, "--redis", self.redis.url]

    def ask(self, work: Callable[[PostgresPool], Awaitable[T]]) -> T:
        async def run() -> T:
            pool = PostgresPool(self.dsn)
            try:
                return await work(pool)
            finally:
                await pool.close()

        return asyncio.run(run())

    def standing(self, job: str = "news") -> tuple[bool, bool]:
        row = self.ask(lambda pool: open_job(pool, job))
        return row.paused, row.stopped

    def controls(self) -> Controls:
        return self.ask(lambda pool: read_controls(pool, "news"))

    def in_redis(self, key: str, job: str = "") -> str:
        return f"gossamer:{{g:0}}:{key}{':' if job else ''}{job}"

    def told(self) -> Controls:
        """Return what Redis has been told about the job."""
        word = self.redis.ask("GET", self.in_redis("control", "news")).split("\r\n")[1:2] or [""]
        off = self.redis.ask("SMEMBERS", self.in_redis("off")).split("\r\n")[2::2]
        delays = self.redis.ask("HGETALL", self.in_redis("delays")).split("\r\n")[2::2]
        pairs = zip(delays[::2], map(float, delays[1::2]), strict=True)
        standing = word[0] or "running"
        assert standing in {"running", "paused", "stopped"}
        return Controls(
            standing,  # type: ignore[arg-type]
            frozenset(off),
            frozenset((host, delay) for host, delay in pairs if delay),
        )


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def shared(redis: RedisServer) -> Iterator[Shared]:
    redis.ask("FLUSHALL")
    server = shared_server()
    name = migrated_database(server)
    made = Shared(server.dsn(name), redis)
    made.ask(write_job)
    yield made
    server.drop(name)


async def write_job(pool: PostgresPool, name: str = "news", pages: int = 3) -> None:
    spec = JobSpec("crawl", ("http://a.example/",), "", (), Settings())
    job = await create_job(pool, name, "spec", msgspec.json.encode(spec.to_toml()).decode(), NOW)
    ledger = PostgresLedger(pool, job.id, lambda: NOW)
    names = [f"a.example/{n}" for n in range(pages)] + ["b.example/0"]
    added = await ledger.add([found(each) for each in names])
    live = sorted(added.live, key=lambda item: item.request.url)
    visits = [visit(item) for item in live[:-1]]
    late = GroupState("a.example", NOW, 2.5, time.time() + 600, 4)
    await ledger.commit(batch(f"{name}-1", *visits[:1], groups=(late,)))
    await ledger.commit(batch(f"{name}-2", *visits[1:]))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


# -- db upgrade ----------------------------------------------------------------------------------------


@needs_servers
def test_an_upgrade_makes_the_tables_and_the_second_has_nothing_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = shared_server()
    dsn = server.dsn(server.database())
    code, out, _ = run(capsys, "db", "upgrade", "--postgres", dsn)
    assert (code, "were made, version 0002" in out) == (0, True)
    code, out, _ = run(capsys, "db", "upgrade", "--postgres", dsn)
    assert (code, out.startswith("Nothing to do")) == (0, True)


@needs_servers
def test_of_many_upgrades_at_once_one_does_the_work() -> None:
    server = shared_server()
    dsn = server.dsn(server.database())
    command = [sys.executable, "-m", "gossamer", "db", "upgrade", "--postgres", dsn]
    with ThreadPoolExecutor(4) as pool:
        ended = list(
            pool.map(
                lambda _: subprocess.run(command, capture_output=True, text=True, check=True, timeout=60),
                range(4),
            )
        )
    assert sorted(each.stdout.split()[0] for each in ended) == ["Nothing", "Nothing", "Nothing", "The"]


@needs_servers
@pytest.mark.parametrize("words", [["db", "upgrade"], ["pause", "news"]])
def test_a_database_of_a_newer_gossamer_is_exit_code_2_and_left_alone(
    capsys: pytest.CaptureFixture[str], shared: Shared, words: list[str]
) -> None:
    with psycopg.connect(shared.dsn) as connection:
        connection.execute("UPDATE gossamer.alembic_version SET version_num = '9999'")
    code, _, err = run(capsys, *words, "--postgres", shared.dsn)
    assert (code, "newer Gossamer" in err) == (2, True)


@pytest.mark.parametrize("words", [["db", "upgrade"], ["pause", "x"], ["sources", "x"], ["resume", "x"]])
def test_a_database_that_does_not_answer_is_exit_code_6(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    code, _, err = run(capsys, *words, "--postgres", f"postgresql://you:secret@127.0.0.1:{free_port()}/x")
    assert (code, err.count("\n"), "secret" in err) == (6, 1, False)


@pytest.mark.parametrize("words", [["db", "upgrade"], ["sources", "x"]])
def test_a_database_must_be_named(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, _, err = run(capsys, *words)
    assert (code, "GOSSAMER_POSTGRES" in err) == (2, True)


# -- pause, stop and resume ----------------------------------------------------------------------------


@needs_servers
def test_pause_stop_and_resume_are_kept_in_the_database_and_told_to_redis(
    capsys: pytest.CaptureFixture[str], shared: Shared
) -> None:
    for word, standing, told in [
        ("pause", (True, False), "paused"),
        ("stop", (False, True), "stopped"),
        ("resume", (False, False), "running"),
    ]:
        code, out, err = run(capsys, word, "news", *shared.servers)
        assert (code, err) == (0, "")
        assert ("resumed" if word == "resume" else told) in out
        assert shared.standing() == standing
        assert shared.told().standing == told
    assert "already running" in run(capsys, "resume", "news", *shared.servers)[1]
    # The operator leaves nothing behind.
    assert ".operator" not in shared.redis.ask("HKEYS", shared.in_redis("rules"))


@needs_servers
def test_a_stopped_job_is_not_paused(capsys: pytest.CaptureFixture[str], shared: Shared) -> None:
    run(capsys, "stop", "news", *shared.servers)
    code, _, err = run(capsys, "pause", "news", *shared.servers)
    assert (code, "`gossamer resume news`" in err) == (2, True)
    assert shared.standing() == (False, True)


@needs_servers
def test_without_redis_the_database_has_it_and_with_redis_away_it_has_it_too(
    capsys: pytest.CaptureFixture[str], shared: Shared
) -> None:
    code, _, err = run(capsys, "pause", "news", "--postgres", shared.dsn)
    assert (code, "no Redis was named" in err, shared.standing()) == (0, True, (True, False))
    away = f"redis://127.0.0.1:{free_port()}/0"
    code, _, err = run(capsys, "resume", "news", "--postgres", shared.dsn, "--redis", away)
    assert (code, "noted in the database" in err, shared.standing()) == (6, True, (False, False))


@needs_servers
def test_an_unknown_job_and_files_for_workers_are_usage_errors(
    capsys: pytest.CaptureFixture[str], shared: Shared
) -> None:
    for word in ("pause", "stop", "resume", "sources"):
        code, _, err = run(capsys, word, "olds", "--postgres", shared.dsn)
        assert (code, "there is no job olds" in err) == (2, True)
    code, _, err = run(capsys, "resume", "news", "-o", "news.csv", "--postgres", shared.dsn)
    assert (code, "gossamer export news -o news.csv" in err) == (2, True)


@pytest.mark.parametrize("word", ["pause", "stop"])
def test_a_running_crawl_is_ended_and_can_be_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, word: str
) -> None:
    with SyntheticWeb.in_thread() as web:
        command = [sys.executable, "-m", "gossamer", "crawl", web.url("docs"), "--job", "docs"]
        command += ["--allow-private", "--delay", "0.2", "--jobs-dir", str(tmp_path), "-q"]
        crawl = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            wait_until(lambda: job_is_locked(tmp_path / "docs") == crawl.pid and has_signals(crawl.pid))
            code, out, _ = run(capsys, word, "docs", "--jobs-dir", str(tmp_path))
            assert (code, f"Process {crawl.pid}" in out, "gossamer resume docs" in out) == (0, True, True)
            assert crawl.wait(60) == 143
        finally:
            crawl.kill()
            crawl.communicate()
    code, _, err = run(capsys, word, "docs", "--jobs-dir", str(tmp_path))
    assert (code, "no process works on job docs" in err) == (2, True)


def has_signals(pid: int) -> bool:
    """Say whether a process catches SIGTERM already."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_does_not_hold_the_lock_is_never_signalled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "news"
    folder.mkdir()
    (folder / "job.toml").write_text("")
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(str(bystander.pid))
            lock.flush()
            code, _, err = run(capsys, "stop", "news", "--jobs-dir", str(tmp_path))
        assert (code, "not to be found here" in err) == (2, True)
        assert bystander.poll() is None
    finally:
        bystander.communicate(b"\n")
    assert bystander.returncode == 0


# -- sources -------------------------------------------------------------------------------------------


@needs_servers
def test_hosts_are_listed_with_pages_delay_and_back_off(
    capsys: pytest.CaptureFixture[str], shared: Shared
) -> None:
    code, out, _ = run(capsys, "sources", "news", "--postgres", shared.dsn)
    assert code == 0
    heading, first, second = out.splitlines()
    assert heading.split() == ["host", "pages", "last", "crawl", "active", "delay", "back-off", "robots.txt"]
    assert first.split()[:2] == ["a.example", "3"]
    assert "2.5 s" in first
    assert "4 failures" in first
    assert second.split() == ["b.example", "0", "-", "yes", "-", "-", "-"]
    _, out, _ = run(capsys, "sources", "news", "--format", "jsonl", "--postgres", shared.dsn)
    hosts = [json.loads(line) for line in out.splitlines()]
    assert (hosts[0]["pages"], hosts[0]["delay"], hosts[0]["failures"]) == (3, 2.5, 4)
    assert (hosts[1]["last_crawl"], hosts[1]["backs_off_until"], hosts[1]["active"]) == (None, None, True)


@needs_servers
@pytest.mark.parametrize(
    ("status", "crawl_delay", "shown"),
    [
        (200, 0.0, "200"),
        (200, 7.5, "200, 7.5 s"),
        (404, 0.0, "404: all allowed"),
        (ROBOTS_UNREACHABLE, 0.0, "unreachable"),
        (ROBOTS_ASSUMED, 2.0, "unreachable: given up, 2 s"),
    ],
)
def test_a_host_is_listed_with_what_its_robots_txt_said(
    capsys: pytest.CaptureFixture[str], shared: Shared, status: int, crawl_delay: float, shown: str
) -> None:
    async def learn(pool: PostgresPool) -> None:
        ledger = PostgresLedger(pool, (await open_job(pool, "news")).id, lambda: NOW)
        (waiting,) = await ledger.take("b.example", 9, NOW)
        file = RobotsFile("https://b.example:8443", NOW, status, b"", 1, crawl_delay)
        await ledger.commit(batch("robots", Visit(waiting, Deferred(), robots=(file,))))

    shared.ask(learn)
    _, out, _ = run(capsys, "sources", "news", "--postgres", shared.dsn)
    assert [line.split(maxsplit=6)[6] for line in out.splitlines()[2:]] == [shown]
    _, out, _ = run(capsys, "sources", "news", "--format", "jsonl", "--postgres", shared.dsn)
    other, host = (json.loads(line) for line in out.splitlines())
    assert (host["robots_status"], host["crawl_delay"] or 0.0) == (status, crawl_delay)
    assert host["robots_fetched_at"] == "1970-01-12T13:46:40Z"
    assert (other["robots_status"], other["robots_fetched_at"], other["crawl_delay"]) == (None, None, None)


@needs_servers
def test_a_host_is_switched_and_slowed_for_all_jobs_and_back(
    capsys: pytest.CaptureFixture[str], shared: Shared
) -> None:
    shared.ask(lambda pool: write_job(pool, "other"))
    words = ["--off", "B.Example", "--delay", "a.example", "20"]
    code, out, err = run(capsys, "sources", "news", *words, *shared.servers)
    assert (code, err) == (0, "")
    assert "b.example is off" in out
    wanted = Controls("running", frozenset({"b.example"}), frozenset({("a.example", 20.0)}))
    assert shared.controls() == shared.told() == wanted
    _, out, _ = run(capsys, "sources", "other", "--format", "jsonl", "--postgres", shared.dsn)
    a, b = (json.loads(line) for line in out.splitlines())
    assert (a["min_delay"], b["active"]) == (20.0, False)
    words = ["--on", "b.example", "--delay", "a.example", "0"]
    run(capsys, "sources", "other", *words, *shared.servers)
    assert shared.controls() == shared.told() == Controls("running")


@needs_servers
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--off", "c.example"], "has no URL of c.example"),
        (["--delay", "c.example", "3"], "has no URL of c.example"),
        (["--delay", "a.example", "-1"], "seconds from 0"),
        (["--delay", "a.example", "nan"], "seconds from 0"),
        (["--off", "a.example", "--on", "A.example"], "decide on one"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], shared: Shared, words: list[str], message: str
) -> None:
    code, _, err = run(capsys, "sources", "news", *words, *shared.servers)
    assert (code, message in err) == (2, True)
    assert shared.controls() == Controls("running")


@needs_servers
def test_a_job_of_very_many_hosts_is_listed_page_by_page(
    capsys: pytest.CaptureFixture[str], shared: Shared
) -> None:
    with psycopg.connect(shared.dsn) as connection:
        connection.execute(
            "INSERT INTO gossamer.sources(job, host, grp)"
            " SELECT 1, 'h' || n || '.example', 'h' FROM generate_series(1, 2500) n"
        )
    _, out, _ = run(capsys, "sources", "news", "--format", "jsonl", "--postgres", shared.dsn)
    hosts = [json.loads(line)["host"] for line in out.splitlines()]
    assert (len(hosts), len(set(hosts)), hosts == sorted(hosts)) == (2502, 2502, True)
    _, out, err = run(capsys, "sources", "news", "--postgres", shared.dsn)
    assert (len(out.splitlines()), "--format jsonl lists all" in err) == (1001, True)


# -- restoring -----------------------------------------------------------------------------------------


def with_schedule(
    shared: Shared, work: Callable[[RedisScheduler, PostgresPool], Awaitable[None]], partitions: int = 1
) -> None:
    async def run(pool: PostgresPool) -> None:
        schedule = RedisScheduler(
            "news",
            RedisSettings(url=shared.redis.url, partitions=partitions),
            FrontierSettings(),
            PolitenessSettings(),
            time.time,
            lambda: 0.5,
        )
        await schedule.open()
        try:
            await work(schedule, pool)
        finally:
            await schedule.close()

    shared.ask(run)


@needs_servers
def test_what_redis_lost_in_a_wipe_is_restored_by_whoever_opens_the_job(shared: Shared) -> None:
    async def work(schedule: RedisScheduler, pool: PostgresPool) -> None:
        await controls.steer(pool, "news", "pause")
        await controls.switch_host(pool, "news", "b.example", on=False)
        await controls.set_host_delay(pool, "news", "a.example", 9.0)
        shared.redis.ask("FLUSHALL")
        assert shared.told() == Controls("running")
        told = await restore_controls(schedule, pool, "news")
        assert told == shared.told()
        assert told == Controls("paused", frozenset({"b.example"}), frozenset({("a.example", 9.0)}))
        assert await schedule.control() == "paused"

    with_schedule(shared, work)


@needs_servers
def test_whoever_looks_again_tells_only_what_has_changed(shared: Shared) -> None:
    async def work(schedule: RedisScheduler, pool: PostgresPool) -> None:
        await controls.switch_host(pool, "news", "b.example", on=False)
        await controls.set_host_delay(pool, "news", "a.example", 9.0)
        told = await restore_controls(schedule, pool, "news")
        trips, questions = schedule.round_trips, pool.round_trips
        assert await restore_controls(schedule, pool, "news") == told
        assert (schedule.round_trips, pool.round_trips) == (trips + 1, questions + 1)
        assert await restore_controls(schedule, pool, "news", told) == told
        assert (schedule.round_trips, pool.round_trips) == (trips + 1, questions + 2)
        await controls.switch_host(pool, "news", "b.example", on=True)
        await restore_controls(schedule, pool, "news", told)
        assert shared.told() == Controls("running", delays=frozenset({("a.example", 9.0)}))

    with_schedule(shared, work)


@needs_servers
def test_what_was_taken_back_while_redis_did_not_hear_is_taken_back_there(
    capsys: pytest.CaptureFixture[str], shared: Shared
) -> None:
    run(capsys, "pause", "news", *shared.servers)
    words = ["--off", "b.example", "--delay", "a.example", "20"]
    run(capsys, "sources", "news", *words, *shared.servers)
    unheard = ["--postgres", shared.dsn]
    words = ["--on", "b.example", "--delay", "a.example", "0"]
    run(capsys, "sources", "news", *words, *unheard)
    run(capsys, "resume", "news", *unheard)
    assert shared.told() == Controls("paused", frozenset({"b.example"}), frozenset({("a.example", 20.0)}))

    async def work(schedule: RedisScheduler, pool: PostgresPool) -> None:
        await restore_controls(schedule, pool, "news")

    with_schedule(shared, work)
    assert shared.told() == Controls("running")


@needs_servers
def test_a_part_of_the_schedule_that_lost_its_copy_gets_it_back(shared: Shared) -> None:
    async def work(schedule: RedisScheduler, pool: PostgresPool) -> None:
        await controls.switch_host(pool, "news", "b.example", on=False)
        await restore_controls(schedule, pool, "news")
        shared.redis.ask("DEL", "gossamer:{g:1}:off")
        await restore_controls(schedule, pool, "news")
        assert "b.example" in shared.redis.ask("SMEMBERS", "gossamer:{g:1}:off")

    with_schedule(shared, work, partitions=3)


class Interrupted:
    """A schedule in whose first telling an operator decides otherwise, and is done before it goes on."""

    def __init__(self, schedule: RedisScheduler, operator: Callable[[], Awaitable[None]]) -> None:
        self._schedule = schedule
        self._operator: Callable[[], Awaitable[None]] | None = operator

    async def pause(self, job: str) -> None:
        await self._schedule.pause(job)

    async def stop(self, job: str) -> None:
        await self._schedule.stop(job)

    async def resume(self, job: str) -> None:
        await self._schedule.resume(job)

    async def set_delay(self, host: str, seconds: float) -> None:
        await self._schedule.set_delay(host, seconds)

    async def held(self, job: str) -> list[Held]:
        return await self._schedule.held(job)

    async def switch(self, host: str, *, on: bool) -> None:
        operator, self._operator = self._operator, None
        if operator is not None:
            await operator()
        await self._schedule.switch(host, on=on)


@needs_servers
def test_a_decision_made_while_controls_are_restored_is_not_undone(shared: Shared) -> None:
    async def work(schedule: RedisScheduler, pool: PostgresPool) -> None:
        async def switch_on() -> None:
            await controls.switch_host(pool, "news", "b.example", on=True)
            await schedule.switch("b.example", on=True)

        await controls.switch_host(pool, "news", "b.example", on=False)
        await restore_controls(Interrupted(schedule, switch_on), pool, "news")
        assert shared.told() == Controls("running")

    with_schedule(shared, work)


@needs_servers
def test_controls_of_a_job_that_does_not_exist_are_a_usage_error(shared: Shared) -> None:
    with pytest.raises(UsageError, match="no job olds"):
        shared.ask(lambda pool: read_controls(pool, "olds"))


# -- export --------------------------------------------------------------------------------------------


async def write_local(folder: Path, name: str, *urls: str) -> None:
    (folder / name).mkdir(parents=True)
    ledger = SqliteLedger(folder / name / "ledger.sqlite", lambda: NOW)
    added = await ledger.add([found(url) for url in urls])
    for number, item in enumerate(added.live):
        await ledger.commit(batch(f"{name}-{number}", visit(item)))
    await ledger.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs"
    asyncio.run(write_local(folder, "one", "a.example/1", "a.example/2"))
    asyncio.run(write_local(folder, "two", "a.example/2", "a.example/3"))
    return folder


def urls_in(text: str) -> list[str]:
    return [json.loads(line)["url"].removeprefix("http://") for line in text.splitlines()]


def test_export_writes_the_records_of_the_log_in_every_form(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path
) -> None:
    plain, packed, rows = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz", tmp_path / "c.csv"
    words = ["-o", str(plain), "-o", str(packed), "-o", str(rows), "--jobs-dir", str(jobs)]
    code, out, err = run(capsys, "export", "one", *words)
    assert (code, out) == (0, "")
    assert err.startswith("2 records written to")
    assert plain.read_bytes() == (
        b'{"url":"http://a.example/1","attempt":0}\n{"url":"http://a.example/2","attempt":0}\n'
    )
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert len(rows.read_text().splitlines()) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl.gz", "c.csv", "jobs"]


def test_export_keeps_the_fields_that_are_asked_for(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path
) -> None:
    words = ["-o", str(tmp_path / "a.csv"), "--fields", "attempt,url", "--jobs-dir", str(jobs), "-q"]
    assert run(capsys, "export", "one", *words) == (0, "", "")
    assert (tmp_path / "a.csv").read_text().splitlines()[:2] == ["attempt,url", "0,http://a.example/1"]
    code, _, err = run(
        capsys, "export", "one", "-o", str(tmp_path / "b.csv"), "--fields", "ulr", "--jobs-dir", str(jobs)
    )
    assert (code, "did you mean 'url'" in err) == (2, True)


def test_of_several_jobs_each_url_is_written_once(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path
) -> None:
    path = tmp_path / "all.jsonl"
    run(capsys, "export", "one", "two", "-o", str(path), "--jobs-dir", str(jobs))
    assert urls_in(path.read_text()) == ["a.example/1", "a.example/2", "a.example/3"]


def test_export_to_standard_output_is_data_alone(jobs: Path) -> None:
    command = [sys.executable, "-m", "gossamer", "export", "one", "-o", "-", "--jobs-dir", str(jobs)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert urls_in(ended.stdout) == ["a.example/1", "a.example/2"]


def test_a_file_that_exists_is_not_overwritten_and_an_empty_one_is_filled(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path
) -> None:
    foreign, empty, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "c.jsonl"
    foreign.write_text("{}\n")
    empty.touch()
    code, _, err = run(capsys, "export", "one", "-o", str(other), "-o", str(foreign), "--jobs-dir", str(jobs))
    assert (code, "exists already" in err, foreign.read_text()) == (2, True, "{}\n")
    assert not other.exists()
    assert not list(tmp_path.glob(".part-*"))
    assert run(capsys, "export", "one", "-o", str(empty), "--jobs-dir", str(jobs))[0] == 0
    assert len(empty.read_text().splitlines()) == 2


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    capsys: pytest.CaptureFixture[str],
    jobs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "a.jsonl"
    link = os.link

    def slow_link(source: Path, target: Path) -> None:
        path.write_text("{}\n")
        link(source, target)

    monkeypatch.setattr(os, "link", slow_link)
    code, _, _ = run(capsys, "export", "one", "-o", str(path), "--jobs-dir", str(jobs))
    assert (code, path.read_text()) == (2, "{}\n")
    assert not list(tmp_path.glob(".part-*"))


def test_what_a_killed_export_left_is_begun_again(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path
) -> None:
    (tmp_path / ".part-a.jsonl").write_text('{"url":"half')
    assert run(capsys, "export", "one", "-o", str(tmp_path / "a.jsonl"), "--jobs-dir", str(jobs))[0] == 0
    assert urls_in((tmp_path / "a.jsonl").read_text()) == ["a.example/1", "a.example/2"]
    assert not list(tmp_path.glob(".part-*"))


def test_an_export_does_not_disturb_another_one_to_the_same_file(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path
) -> None:
    part = tmp_path / ".part-a.jsonl"
    with part.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write('{"url":"half')
        other.flush()
        code, _, err = run(capsys, "export", "one", "-o", str(tmp_path / "a.jsonl"), "--jobs-dir", str(jobs))
        assert (code, "being written by another" in err) == (2, True)
        assert part.read_text() == '{"url":"half'


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.gz"])
def test_a_damaged_log_leaves_no_file(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path, name: str
) -> None:
    db = sqlite3.connect(jobs / "one" / "ledger.sqlite")
    db.execute("UPDATE log SET data = x'00' WHERE position = 1")
    db.commit()
    db.close()
    code, _, err = run(capsys, "export", "one", "-o", str(tmp_path / name), "--jobs-dir", str(jobs))
    assert (code, "is damaged" in err) == (5, True)
    assert [path.name for path in tmp_path.iterdir()] == ["jobs"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["one", "one", "-o", "a.jsonl"], "named twice"),
        (["one", "-o", "a.txt"], "unknown kind of output"),
        (["oen", "-o", "a.jsonl"], "did you mean one?"),
        (["one"], "-o"),
    ],
)
def test_export_says_what_is_wrong_with_its_command(
    capsys: pytest.CaptureFixture[str], jobs: Path, words: list[str], message: str
) -> None:
    code, _, err = run(capsys, "export", *words, "--jobs-dir", str(jobs))
    assert (code, message in err) == (2, True)


@needs_servers
def test_a_shared_job_is_exported_with_exactly_the_records_of_its_log(
    capsys: pytest.CaptureFixture[str], shared: Shared, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    assert run(capsys, "export", "news", "-o", str(path), "--postgres", shared.dsn)[0] == 0
    entries = shared.ask(lambda pool: PostgresLedger(pool, 1, lambda: NOW).log(0, 99))
    assert path.read_bytes() == b"".join(entry.lines for entry in entries)
    assert sorted(urls_in(path.read_text())) == ["a.example/0", "a.example/1", "a.example/2"]
    shared.ask(lambda pool: write_job(pool, "more", 5))
    both = tmp_path / "both.jsonl"
    assert run(capsys, "export", "news", "more", "-o", str(both), "--postgres", shared.dsn)[0] == 0
    assert both.read_bytes().startswith(path.read_bytes())
    assert sorted(urls_in(both.read_text())) == [f"a.example/{n}" for n in range(5)]


def test_a_job_that_is_being_crawled_can_be_exported(
    capsys: pytest.CaptureFixture[str], jobs: Path, tmp_path: Path
) -> None:
    written, go_on = threading.Event(), threading.Event()

    def crawl() -> None:
        async def work() -> None:
            ledger = SqliteLedger(jobs / "one" / "ledger.sqlite", lambda: NOW)
            added = await ledger.add([found("a.example/9")])
            await ledger.commit(batch("late", visit(added.live[0])))
            written.set()
            go_on.wait(30)
            await ledger.close()

        asyncio.run(work())

    crawler = threading.Thread(target=crawl)
    crawler.start()
    assert written.wait(30)
    try:
        code, _, _ = run(capsys, "export", "one", "-o", str(tmp_path / "a.jsonl"), "--jobs-dir", str(jobs))
    finally:
        go_on.set()
        crawler.join()
    assert code == 0
    assert urls_in((tmp_path / "a.jsonl").read_text()) == ["a.example/1", "a.example/2", "a.example/9"]
