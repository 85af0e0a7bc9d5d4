"""The commands that answer from a ledger, on jobs in a real PostgreSQL: as on those in a folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import psycopg
import pytest
from click.testing import CliRunner, Result

from gossamer.cli import ledger_commands, politeness_commands
from gossamer.cli.main import main
from gossamer.config.job_file import JobSpec, write_job_file
from gossamer.errors import BackendUnreachable, GossamerError, LedgerFailed, UsageError
from gossamer.frontier.answers import Start
from gossamer.frontier.postgres_audit import PostgresAuditReader
from gossamer.frontier.postgres_jobs import create_job, steer_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_moment import PostgresMoment, ReadLimits
from gossamer.frontier.postgres_pool import PostgresPool, TakesNoWrites
from gossamer.frontier.postgres_reader import PostgresReader
from gossamer.frontier.postgres_schema import VERSION
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import Batch, Crashed, Deferred, Fetch, RobotsFile, Settled, State, Visit
from gossamer.model.request import Known
from gossamer.policy.robots_file import robots_version
from gossamer.testing.postgres_server import PostgresServer, migrated_database, shared_server
from gossamer.testing.small_job import HOME, found, write_small_job

COMMANDS = [*ledger_commands.COMMANDS, *politeness_commands.COMMANDS]
SITE = click.Group("gossamer", commands={str(command.name): command for command in COMMANDS})
SPEC = JobSpec("crawl", (HOME,))
RULES = b"User-agent: *\nDisallow: /private/\n"
T = 1_800_000_000.0


@dataclass(frozen=True)
class Shared:
    """A database of jobs, and how to speak to it."""

    dsn: str

    def run(self, *words: str, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(SITE, [*words, "--postgres", self.dsn], env=env)

    def answer(self, *words: str) -> str:
        result = self.run(*words)
        assert result.exit_code == 0, result.exception
        return result.stdout

    def refusal(self, *words: str) -> GossamerError:
        return refusal_of(self.run(*words))

    def change(self, sql: str, *parameters: object) -> None:
        with psycopg.connect(self.dsn, options="-c search_path=gossamer") as connection:
            assert connection.execute(sql, parameters).rowcount > 0

    @asynccontextmanager
    async def ledger(self, name: str, spec: JobSpec = SPEC, at: float = T) -> AsyncIterator[PostgresLedger]:
        """Open a job, as a worker does; makes it where there is none."""
        pool = PostgresPool(self.dsn)
        settings = msgspec.json.encode(spec.to_toml()).decode()
        job = await create_job(pool, name, "spec", settings, at)
        ledger = PostgresLedger(pool, job.id, lambda: T, worker="w")
        try:
            yield ledger
        finally:
            await ledger.close()

    def steer(self, name: str, *, paused: bool, stopped: bool) -> None:
        async def work() -> None:
            async with self.ledger(name) as ledger:
                await steer_job(ledger._pool, ledger._job, paused=paused, stopped=stopped)

        asyncio.run(work())


def refusal_of(result: Result) -> GossamerError:
    error = result.exception
    assert isinstance(error, GossamerError), error
    assert "\n" not in str(error)
    return error


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture(scope="module")
def database(server: PostgresServer) -> Iterator[Shared]:
    """Return a database that the tests below share: making one takes a second."""
    name = migrated_database(server)
    yield Shared(server.dsn(name))
    server.drop(name)


@pytest.fixture
def shared(database: Shared) -> Shared:
    """Return a database without jobs."""
    with psycopg.connect(database.dsn, options="-c search_path=gossamer") as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'gossamer'::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition AND relname <> 'alembic_version'"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"DELETE FROM {table}")
    return database


@pytest.fixture
def big(server: PostgresServer) -> Iterator[Shared]:
    """Return a database of its own, for many rows."""
    name = migrated_database(server)
    yield Shared(server.dsn(name))
    server.drop(name)


@pytest.fixture
def news(shared: Shared) -> Shared:
    """Return a database with the small job in it."""
    asyncio.run(write_news(shared, time.time()))
    return shared


async def write_news(shared: Shared, now: float) -> None:
    async with shared.ledger("news", at=now - 40) as ledger:
        await write_small_job(ledger, now)


@dataclass(frozen=True)
class Twins:
    """The same job in a database and in a folder."""

    shared: Shared
    jobs_dir: Path

    def answers(self, *words: str) -> tuple[str, str]:
        here = CliRunner().invoke(SITE, [*words, "--jobs-dir", str(self.jobs_dir)])
        there = self.shared.run(*words)
        assert (there.exit_code, str(there.exception)) == (here.exit_code, str(here.exception))
        return there.stdout, here.stdout


@pytest.fixture
def twins(shared: Shared, tmp_path: Path) -> Twins:
    now = time.time()
    folder = tmp_path / "news"
    folder.mkdir()
    write_job_file(folder / "job.toml", SPEC)

    async def write() -> None:
        await write_news(shared, now)
        ledger = SqliteLedger(folder / "ledger.sqlite", lambda: now)
        await write_small_job(ledger, now)
        await ledger.close()

    asyncio.run(write())
    return Twins(shared, tmp_path)


# -- the same answers ----------------------------------------------------------------------------------


URLS = [
    HOME,
    *(
        f"https://a.example/{path}"
        for path in ("page?a=1&b=2", "broken", "old", "secret", "deep", "busy", "new")
    ),
    "https://b.example/later",
]


@pytest.mark.parametrize(
    "words",
    [
        *(("explain", "news", url) for url in URLS),
        ("report", "news"),
        ("report", "news", "--json"),
        ("urls", "news"),
        ("urls", "news", "--format", "jsonl"),
        ("urls", "news", "--state", "queued"),
        ("urls", "news", "--state", "failed"),
        ("urls", "news", "--reason", "http_404"),
        ("urls", "news", "--host", "B.Example"),
        ("urls", "news", "--state", "fetched", "--host", "b.example"),
        ("urls", "news", "--limit", "2"),
        ("urls", "news", "--limit", "0"),
        ("urls", "news", "--reason", "timeuot"),
        ("explain", "news", "https://elsewhere.example/"),
        ("explain", "news", "https://a.example/unheard-of"),
        ("explain", "news", "mailto:a@b.example"),
        ("retry", "news", "--reason", "depth"),
    ],
    ids=" ".join,
)
def test_a_job_in_a_database_is_answered_for_as_one_in_a_folder(twins: Twins, words: tuple[str, ...]) -> None:
    there, here = twins.answers(*words)
    assert there == here
    assert there or "--limit" in words or words[0] in {"explain", "retry", "urls"}


def test_a_status_differs_only_in_who_works_on_the_job(twins: Twins) -> None:
    there, here = (text.splitlines() for text in twins.answers("status", "news"))
    assert there[0] == "job      news: running, 1 worker committed in the last minute"
    assert here[0] == "job      news: resumable, no process works on it"
    assert there[1:] == here[1:]


def test_an_audit_differs_only_in_the_line_about_other_jobs(twins: Twins) -> None:
    there, here = (text.splitlines() for text in twins.answers("audit", "news"))
    assert there.pop(2) == "other jobs  0 requests to the same hosts, which the gaps were held to as well"
    assert there == here
    assert there[0].startswith("job         news: NOT polite, 5 violations")


def test_robots_is_answered_from_the_ledger_of_a_shared_job(twins: Twins) -> None:
    there, here = twins.answers("robots", "https://a.example/secret", "--job", "news")
    assert there.splitlines()[:-1] == here.splitlines()[:-1], "but for the age of the file"
    assert there.startswith("forbidden   https://a.example/secret\n")
    assert "Disallow: /secret (line 2" in there
    unread = twins.shared.refusal("robots", "https://b.example/", "--job", "news")
    assert "job news has no robots.txt of https://b.example" in str(unread)


@pytest.mark.parametrize(
    "filters",
    [
        (),
        ("--state", "refused"),
        ("--state", "held"),
        ("--reason", "robots"),
        ("--host", "b.example"),
        ("--url", "https://A.example/secret"),
        ("--url", "https://a.example/deep"),
        ("--url", HOME),
        ("--reason", "http_404"),
    ],
    ids=" ".join,
)
def test_retry_queues_the_same_urls_and_the_counts_stay_right(twins: Twins, filters: tuple[str, ...]) -> None:
    there, here = twins.answers("retry", "news", *filters)
    assert there.splitlines()[0] == here.splitlines()[0]
    for words in (("urls", "news"), ("report", "news", "--json")):
        there, here = twins.answers(*words)
        assert there == here
    listed = Counter(line.split("\t")[0] for line in twins.answers("urls", "news")[0].splitlines())
    outcomes: Counter[str] = Counter()
    for outcome in json.loads(twins.answers("report", "news", "--json")[0])["outcomes"]:
        outcomes[outcome["state"]] += outcome["urls"]
    assert outcomes == listed


def test_what_was_queued_again_is_live_for_workers(news: Shared) -> None:
    text = news.answer("retry", "news", "--url", "https://a.example/broken")
    assert (
        text == "1 URL is queued again.\nWorkers take them up by themselves; `gossamer worker` starts one.\n"
    )

    async def take() -> list[str]:
        async with news.ledger("news") as ledger:
            return [known.request.url for known in await ledger.take("a.example", 10, time.time())]

    assert "https://a.example/broken" in asyncio.run(take())


def test_retry_says_so_where_no_worker_would_take_them_up(news: Shared) -> None:
    news.steer("news", paused=True, stopped=False)
    assert "The job is paused: no worker takes them up" in news.answer("retry", "news")


# -- where a job stands --------------------------------------------------------------------------------


def states(shared: Shared) -> dict[str, str]:
    rows = [line.split() for line in shared.answer("jobs").splitlines()[1:]]
    return {row[0]: row[1] for row in rows}


def test_jobs_shows_name_state_numbers_and_when_it_was_made(news: Shared) -> None:
    head, row = news.answer("jobs").splitlines()
    assert re.split("  +", head) == ["name", "state", "pages", "queued", "failed", "last activity", "created"]
    assert row.split()[:5] == ["news", "running", "2", "2", "1"]
    made, active = row.split()[6], row.split()[5]
    assert made < active


def test_a_job_is_seeding_then_running_then_done_and_may_be_paused_or_stopped(shared: Shared) -> None:
    async def begin() -> None:
        async with shared.ledger("job") as ledger:
            await ledger.add([found(HOME)], progress="1")

    async def close() -> None:
        async with shared.ledger("job") as ledger:
            await ledger.close_seeding()

    asyncio.run(begin())
    assert states(shared) == {"job": "seeding"}
    asyncio.run(close())
    assert states(shared) == {"job": "running"}
    shared.steer("job", paused=True, stopped=False)
    assert states(shared) == {"job": "paused"}
    shared.steer("job", paused=False, stopped=True)
    assert states(shared) == {"job": "stopped"}
    shared.change("UPDATE urls SET state = 7")
    assert states(shared) == {"job": "done"}


@pytest.mark.parametrize(
    ("heard", "line"),
    [
        (lambda now: str(now - 5), "not all added yet 1"),
        (lambda now: str(now - 61), "not all added yet 1: submit stopped half-way: submit it again to go on"),
        (lambda now: "rubbish", "not all added yet 1: submit stopped half-way: submit it again to go on"),
        (lambda now: "", "not all added yet 1: submit stopped half-way: submit it again to go on"),
    ],
)
def test_status_says_when_a_submit_has_stopped_half_way(
    shared: Shared, heard: Callable[[float], str], line: str
) -> None:
    async def begin() -> None:
        async with shared.ledger("job", at=time.time() - 3600) as ledger:
            await ledger.add([found(HOME)], progress="1")
            await ledger.set_meta("seeding_at", heard(time.time()))

    asyncio.run(begin())
    assert shared.answer("status", "job").splitlines()[1] == f"seeds    {line}"


def test_nobody_is_said_to_be_at_work_who_committed_nothing_lately(shared: Shared) -> None:
    asyncio.run(write_news(shared, time.time() - 120))
    assert ": running, no worker committed in the last minute" in shared.answer("status", "news")


def test_jobs_says_when_there_are_none_and_where(shared: Shared) -> None:
    result = shared.run("jobs")
    assert (result.exit_code, result.stdout) == (0, "")
    assert re.match(r"no jobs in 127\.0\.0\.1:\d+/test_", result.stderr)


def test_two_jobs_do_not_see_each_other(news: Shared) -> None:
    async def other() -> None:
        async with news.ledger("weather") as ledger:
            await ledger.add([found("https://c.example/")])

    asyncio.run(other())
    assert len(news.answer("urls", "weather").splitlines()) == 1
    assert len(news.answer("urls", "news").splitlines()) == 9
    assert json.loads(news.answer("report", "weather", "--json"))["host_count"] == 1
    assert "does not know" in str(news.refusal("explain", "weather", HOME))


# -- which place ---------------------------------------------------------------------------------------


def test_the_database_may_come_from_the_environment(news: Shared) -> None:
    result = CliRunner().invoke(SITE, ["jobs"], env={"GOSSAMER_POSTGRES": news.dsn})
    assert "news" in result.stdout


def test_a_folder_on_the_command_line_wins_over_a_database_in_the_environment(
    news: Shared, tmp_path: Path
) -> None:
    words = ["jobs", "--jobs-dir", str(tmp_path)]
    result = CliRunner().invoke(SITE, words, env={"GOSSAMER_POSTGRES": news.dsn})
    assert (result.stdout, result.stderr) == ("", f"no jobs in {tmp_path}\n")


def test_a_folder_and_a_database_at_once_are_a_usage_error(news: Shared, tmp_path: Path) -> None:
    assert "two places" in str(news.refusal("jobs", "--jobs-dir", str(tmp_path)))


EVERY = [["status"], ["urls"], ["report"], ["retry"], ["audit"], ["explain", HOME]]


@pytest.mark.parametrize("words", EVERY, ids=lambda words: words[0])
def test_an_unknown_job_is_a_usage_error_that_names_the_nearest(news: Shared, words: list[str]) -> None:
    error = news.refusal(words[0], "newz", *words[1:])
    assert isinstance(error, UsageError)
    assert "did you mean news?" in str(error)


@pytest.mark.parametrize(
    "words", [["jobs"], *([w[0], "news", *w[1:]] for w in EVERY)], ids=lambda words: words[0]
)
def test_a_server_that_is_away_is_one_line_without_the_password_and_exit_code_6(words: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dsn = f"postgresql://me:hush@127.0.0.1:{taken.getsockname()[1]}/db"
        error = Shared(dsn).refusal(*words)
    assert isinstance(error, BackendUnreachable)
    assert error.exit_code == 6
    assert "hush" not in str(error)


def test_a_database_without_tables_is_a_usage_error_with_the_remedy(server: PostgresServer) -> None:
    name = server.database()
    error = Shared(server.dsn(name)).refusal("jobs")
    server.drop(name)
    assert isinstance(error, UsageError)
    assert "gossamer db upgrade" in str(error)


def test_a_database_of_a_newer_version_is_not_read(news: Shared) -> None:
    news.change("UPDATE alembic_version SET version_num = '9999'")
    try:
        error = news.refusal("jobs")
    finally:
        news.change("UPDATE alembic_version SET version_num = %s", VERSION)
    assert "newer Gossamer" in str(error)


def test_settings_that_cannot_be_read_are_one_line(news: Shared) -> None:
    news.change("UPDATE jobs SET settings = 'x'")
    assert isinstance(news.refusal("audit", "news"), LedgerFailed)
    assert "submit it again" in str(news.refusal("explain", "news", HOME))


def test_a_state_from_nowhere_is_damage_and_a_row_of_its_own_among_jobs(news: Shared) -> None:
    news.change("UPDATE urls SET state = 99")
    assert "unknown state 99" in str(news.refusal("urls", "news"))
    news.change("UPDATE counts SET state = 99")
    assert states(news) == {"news": "unreadable"}


# -- one moment, in bounded memory and time ------------------------------------------------------------


def add_many(shared: Shared, name: str, number: int) -> None:
    async def write() -> None:
        async with shared.ledger(name) as ledger:
            for first in range(0, number, 5000):
                last = min(first + 5000, number)
                await ledger.add([found(f"https://a.example/{i}") for i in range(first, last)])

    asyncio.run(write())


def job_id(shared: Shared, name: str) -> int:
    with psycopg.connect(shared.dsn) as connection:
        row = connection.execute("SELECT id FROM gossamer.jobs WHERE name = %s", (name,)).fetchone()
    assert row is not None
    return int(row[0])


def test_urls_streams_page_by_page_and_sees_one_moment(shared: Shared) -> None:
    add_many(shared, "big", 2500)
    with PostgresMoment(shared.dsn) as moment:
        reader = PostgresReader(moment, job_id(shared, "big"))
        rows = reader.urls()
        first = next(rows)
        shared.change("UPDATE urls SET reason = 'later'")
        open_rows = moment.ask("SELECT count(*) FROM pg_cursors")
        rest = list(rows)
    assert open_rows == [(1,)]
    assert [row.url for row in (first, *rest)] == [f"https://a.example/{i}" for i in range(2500)]
    assert {row.reason for row in rest} == {""}


def test_two_answers_are_of_one_moment_whatever_is_committed_between_them(news: Shared) -> None:
    with PostgresMoment(news.dsn) as moment:
        reader = PostgresReader(moment, job_id(news, "news"))
        before = reader.counts()
        news.answer("retry", "news")
        assert reader.counts() == before
        assert len(list(reader.urls(state=State.QUEUED))) == before[State.QUEUED, ""]


def test_a_listing_that_is_left_early_takes_nothing_with_it(shared: Shared) -> None:
    add_many(shared, "big", 1500)
    with PostgresMoment(shared.dsn) as moment:
        reader = PostgresReader(moment, job_id(shared, "big"))
        rows = reader.urls()
        next(rows)
        rows.close()  # type: ignore[attr-defined]
        assert moment.ask("SELECT count(*) FROM pg_cursors") == [(0,)]
        assert sum(reader.counts().values()) == 1500


def test_a_moment_changes_nothing(news: Shared) -> None:
    with PostgresMoment(news.dsn) as moment, pytest.raises(TakesNoWrites, match="read-only"):
        moment.ask("DELETE FROM urls RETURNING 1")


def test_a_question_that_takes_too_long_is_given_up(shared: Shared) -> None:
    with (
        PostgresMoment(shared.dsn, ReadLimits(question_seconds=0.5)) as moment,
        pytest.raises(BackendUnreachable, match="timeout"),
    ):
        moment.ask("SELECT pg_sleep(30)")


def test_a_server_that_falls_silent_is_hung_up_on(shared: Shared) -> None:
    with PostgresMoment(shared.dsn, ReadLimits(question_seconds=1.0, grace_seconds=0.5)) as moment:
        ((process,),) = moment.ask("SELECT pg_backend_pid()")
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(BackendUnreachable):
                moment.ask("SELECT 1")
        finally:
            os.kill(process, signal.SIGCONT)


def test_whoever_stops_reading_is_told_to_ask_again(shared: Shared) -> None:
    add_many(shared, "big", 1500)
    with PostgresMoment(shared.dsn, ReadLimits(idle_seconds=1.0)) as moment:
        ((process,),) = moment.ask("SELECT pg_backend_pid()")
        rows = PostgresReader(moment, job_id(shared, "big")).urls()
        next(rows)
        wait_for_the_end_of(shared, process)
        with pytest.raises(LedgerFailed, match="nobody read on"):
            list(rows)


def wait_for_the_end_of(shared: Shared, process: int) -> None:
    deadline = time.monotonic() + 60
    with psycopg.connect(shared.dsn, autocommit=True) as connection:
        while connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (process,)).fetchone():
            assert time.monotonic() < deadline


@pytest.mark.parametrize("analysed", [False, True])
def test_explain_finds_a_url_among_many_by_its_keys(big: Shared, analysed: bool) -> None:
    add_many(big, "big", 10)
    job = job_id(big, "big")
    fill(big, job, 100_000)
    if analysed:
        analyse(big)
    wanted = found("https://a.example/7").request
    with PostgresMoment(big.dsn) as moment:
        spied = Spy(moment)
        explanation = PostgresReader(spied, job).explain(wanted.fingerprint)  # type: ignore[arg-type]
        assert explanation is not None
        assert explanation.row.url == wanted.url
        plans = [moment.ask(f"EXPLAIN {sql}", parameters) for sql, parameters in spied.asked]
    for (sql, _), plan in zip(spied.asked, plans, strict=True):
        text = "\n".join(line for (line,) in plan)
        assert "Seq Scan on urls" not in text, sql
        assert "Seq Scan on fetches" not in text, sql
    assert len(plans) >= 3


class Spy:
    """A moment that remembers what it was asked."""

    def __init__(self, moment: PostgresMoment) -> None:
        self.place = moment.place
        self._moment = moment
        self.asked: list[tuple[str, Any]] = []

    def ask(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        self.asked.append((sql, parameters))
        return self._moment.ask(sql, parameters)


def fill(shared: Shared, job: int, number: int) -> None:
    """Make settled URLs and their fetches, faster than by commits."""
    shared.change(
        """
        INSERT INTO urls(fp, seq, host, job, priority, depth, state, reason, source, url, settled_at)
        SELECT hashint8extended(n, 1), 1000000 + n, (SELECT min(id) FROM sources), %s, 0, 1,
               CASE WHEN n %% 3 = 0 THEN 7 ELSE 2 END, CASE WHEN n %% 3 = 0 THEN 'timeout' ELSE 'ok' END, 'link',
               'https://a.example/filled/' || n, 1
        FROM generate_series(1, %s) AS n
        """,
        job,
        number,
    )
    shared.change(
        """
        INSERT INTO fetches(job, fp, grp, kind, attempt, started_at, delay, elapsed, status, wire_bytes, problem, robots,
                            worker)
        SELECT %s, hashint8extended(n, 1), 'h' || n %% 100, 'page', 0, n, 1, 0.1, 200, 10, '', 1, 'w'
        FROM generate_series(1, %s) AS n
        """,
        job,
        number,
    )


def analyse(shared: Shared) -> None:
    with psycopg.connect(shared.dsn, autocommit=True) as connection:
        connection.execute("ANALYZE gossamer.urls, gossamer.fetches")


# -- audit ---------------------------------------------------------------------------------------------


def page(path: str, at: float, *, origin: str = "https://a.example", delay: float = 1.0) -> Fetch:
    host = origin.removeprefix("https://")
    return Fetch(origin + path, host, T + at, delay, 0.1, 200, 10, robots=robots_version(RULES))


def robots_fetch(at: float, url: str = "https://a.example/robots.txt", group: str = "a.example") -> Fetch:
    return Fetch(url, group, T + at, 1.0, 0.1, 200, 10, kind="robots")


def robots_file(origin: str = "https://a.example", body: bytes = RULES) -> RobotsFile:
    return RobotsFile(origin, T - 50, 200, body, robots_version(body))


async def write_fetches(
    shared: Shared, name: str, fetches: list[Fetch], batch: str = "run-1", files: tuple[RobotsFile, ...] = ()
) -> None:
    """Commit a visit for each fetch, in the order given, which need not be that of their starts."""
    async with shared.ledger(name) as ledger:
        urls = dict.fromkeys(fetch.url for fetch in fetches if fetch.kind == "page")
        added = await ledger.add([found(url) for url in urls])
        known = {item.request.url: item for item in added.live}
        nobody = Known(found("https://a.example/nobody").request, 999)
        visits = [
            Visit(known[fetch.url], Settled(State.FETCHED, "ok", status=200), fetches=(fetch,))
            if fetch.kind == "page"
            else Visit(nobody, Deferred(), fetches=(fetch,))
            for fetch in fetches
        ]
        robots = Visit(nobody, Deferred(), robots=files or (robots_file(),))
        await ledger.commit(Batch(batch, (*visits, robots), at=T))
        await ledger.set_meta("run:run", "whole")


def audit(shared: Shared, name: str = "job") -> dict[str, Any]:
    result = shared.run("audit", name, "--json")
    assert not isinstance(result.exception, GossamerError), result.exception
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def kinds(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(violation["kind"], violation["url"]) for violation in result["violations"]]


def test_a_polite_job_has_no_violations(shared: Shared) -> None:
    fetches = [page("/b", 2.1), robots_fetch(0), page("/a", 1.0)]
    asyncio.run(write_fetches(shared, "job", fetches))
    result = audit(shared)
    assert (result["polite"], result["violations"]) == (True, [])
    assert (result["requests"], result["pages"], result["robots_files"], result["groups"]) == (3, 2, 1, 1)
    assert result["unrecorded"] == {"runs": 0, "crashes": 0, "visits_at_most": 0}


@pytest.mark.parametrize(
    ("kind", "fetches", "files"),
    [
        ("gap", [page("/a", 0.0), page("/b", 0.9)], ()),
        ("forbidden", [page("/private/a", 0.0)], ()),
        ("unknown_robots", [page("/a", 0.0)], (robots_file(body=b"other"),)),
        ("before_robots", [page("/a", -60.0)], ()),
        (
            "crawl_delay",
            [page("/a", 0.0), page("/b", 1.5)],
            (
                RobotsFile(
                    "https://a.example", T - 50, 200, RULES + b"Crawl-delay: 2\n", robots_version(RULES)
                ),
            ),
        ),
    ],
)
def test_a_broken_promise_is_found(
    shared: Shared, kind: str, fetches: list[Fetch], files: tuple[RobotsFile, ...]
) -> None:
    if kind == "crawl_delay":
        version = robots_version(files[0].body)
        fetches = [msgspec.structs.replace(fetch, robots=version) for fetch in fetches]
        files = (msgspec.structs.replace(files[0], version=version),)
    asyncio.run(write_fetches(shared, "job", fetches, files=files))
    result = audit(shared)
    assert [found_kind for found_kind, _ in kinds(result)] == [kind]
    assert not result["polite"]
    assert main(["audit", "job", "--postgres", shared.dsn]) == 3


def test_a_start_too_soon_after_that_of_another_job_is_a_violation_of_whoever_came_second(
    shared: Shared,
) -> None:
    asyncio.run(write_fetches(shared, "first", [page("/a", 0.0), page("/c", 10.0)]))
    asyncio.run(write_fetches(shared, "second", [page("/b", 0.4), page("/d", 12.0)]))
    first, second = audit(shared, "first"), audit(shared, "second")
    assert kinds(second) == [("gap", "https://a.example/b")]
    assert "0.4000 s after the request before it" in second["violations"][0]["detail"]
    assert kinds(first) == []
    assert (first["requests"], first["groups"], first["other_requests"]) == (2, 1, 1)
    assert (second["requests"], second["groups"], second["other_requests"]) == (2, 1, 2)
    assert "other jobs  2 requests to the same hosts" in shared.run("audit", "second").stdout


def test_of_other_jobs_only_starts_that_can_matter_are_looked_at(shared: Shared) -> None:
    others = [page("/0", -61.0), page("/1", -0.5), page("/2", 5.0), page("/3", 11.0)]
    elsewhere = [page("/4", 5.0, origin="https://b.example")]
    asyncio.run(write_fetches(shared, "other", [*others, *elsewhere]))
    asyncio.run(write_fetches(shared, "job", [page("/a", 0.0), page("/b", 10.0)]))
    result = audit(shared)
    assert result["other_requests"] == 2
    assert kinds(result) == [("gap", "https://a.example/a")]


def test_the_crawl_delay_of_an_origin_counts_from_any_jobs_start(shared: Shared) -> None:
    body = RULES + b"Crawl-delay: 3\n"
    file = robots_file(body=body)
    mine = [msgspec.structs.replace(page("/a", 2.0), robots=file.version)]
    asyncio.run(write_fetches(shared, "other", [page("/b", 0.5)]))
    asyncio.run(write_fetches(shared, "job", mine, files=(file,)))
    assert kinds(audit(shared)) == [("crawl_delay", "https://a.example/a")]


def test_a_start_of_a_job_that_is_being_deleted_still_counts(shared: Shared) -> None:
    asyncio.run(write_fetches(shared, "other", [page("/b", 0.5)]))
    asyncio.run(write_fetches(shared, "job", [page("/a", 1.0)]))
    shared.change("DELETE FROM urls WHERE job = %s", job_id(shared, "other"))
    assert kinds(audit(shared)) == [("gap", "https://a.example/a")]


def test_a_request_for_a_url_that_is_gone_is_damage(shared: Shared) -> None:
    asyncio.run(write_fetches(shared, "job", [page("/a", 1.0)]))
    shared.change("DELETE FROM urls")
    assert "a URL it does not have" in str(shared.refusal("audit", "job"))


def starts(shared: Shared) -> list[Start]:
    with PostgresMoment(shared.dsn) as moment:
        return list(PostgresAuditReader(moment, job_id(shared, "job"), reach_seconds=0.0).starts())


@pytest.mark.parametrize("host", ["b.example", "[2001:db8::1]"])
@pytest.mark.parametrize("port", ["", ":8443"])
def test_a_robots_txt_that_redirects_is_a_start_of_the_group_it_reached(
    shared: Shared, host: str, port: str
) -> None:
    reached = robots_fetch(1.5, f"https://{host}{port}/robots.txt")
    asyncio.run(write_fetches(shared, "job", [page("/a", 1.0), reached]))
    assert kinds(audit(shared)) == []
    assert {(start.group, start.is_guest) for start in starts(shared)} == {("a.example", False), (host, True)}


def test_a_robots_txt_that_redirects_reaches_the_group_its_host_belongs_to(shared: Shared) -> None:
    reached = robots_fetch(1.5, "https://b.example:8443/robots.txt")
    asyncio.run(write_fetches(shared, "job", [page("/a", 1.0, origin="https://b.example"), reached]))
    shared.change("UPDATE sources SET grp = 'group' WHERE host = 'b.example'")
    assert [start.group for start in starts(shared)] == ["b.example", "group"]


def test_another_jobs_robots_txt_that_went_elsewhere_is_no_start_here(shared: Shared) -> None:
    asyncio.run(write_fetches(shared, "other", [robots_fetch(0.5, "https://b.example/robots.txt")]))
    asyncio.run(write_fetches(shared, "job", [page("/a", 1.0)]))
    result = audit(shared)
    assert (kinds(result), result["other_requests"]) == ([], 0)


def test_runs_that_did_not_end_whole_are_counted(shared: Shared) -> None:
    asyncio.run(write_fetches(shared, "job", [page("/a", 1.0)], batch="some-host-77-run-1"))
    assert audit(shared)["unrecorded"]["runs"] == 0

    async def note(key: str, value: str) -> None:
        async with shared.ledger("job") as ledger:
            await ledger.set_meta(key, value)

    asyncio.run(note("run:killed", "open"))
    assert audit(shared)["unrecorded"]["runs"] == 1
    asyncio.run(write_fetches(shared, "job", [page("/b", 3.0)], batch="some-host-78-silent-1"))
    assert audit(shared)["unrecorded"]["runs"] == 2


def test_visits_that_ended_with_their_worker_are_counted(shared: Shared) -> None:
    async def crash() -> None:
        async with shared.ledger("job") as ledger:
            added = await ledger.add([found(HOME), found(f"{HOME}x")])
            again = await ledger.commit(Batch("run-1", (Visit(added.live[0], Crashed(alone=False)),), at=T))
            await ledger.commit(
                Batch("run-2", (Visit(again.live[0], Crashed(alone=True, poison=True)),), at=T)
            )
            await ledger.set_meta("run:run", "whole")

    asyncio.run(crash())
    assert audit(shared)["unrecorded"]["crashes"] == 2


def test_starts_come_by_group_and_time_whatever_the_collation(shared: Shared) -> None:
    fetches = [
        page("/1", float(i), origin=f"https://{name}.example") for i, name in enumerate(["b", "-a", "a", "B"])
    ]
    files = tuple(robots_file(f"https://{name}.example") for name in ("b", "-a", "a"))
    asyncio.run(write_fetches(shared, "job", fetches[:3], files=files))
    assert [start.group for start in starts(shared)] == ["-a.example", "a.example", "b.example"]
