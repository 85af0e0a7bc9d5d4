"""The tables are upgraded under running workers: those of the version before go on, and none is kept waiting for long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gossamer.config.postgres import PostgresLimits
from gossamer.errors import UsageError
from gossamer.frontier import migrations, postgres_books, postgres_schema
from gossamer.frontier.postgres_arrays import Integers, Texts
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import Query
from gossamer.frontier.postgres_schema import VERSION, VERSIONS, check_version, schema_version, upgrade
from gossamer.model.outcome import Deferred, RobotsFile, Visit
from gossamer.testing.frontier_cases import NOW, batch, found, visit
from gossamer.testing.postgres_rig import ask, workers
from gossamer.testing.postgres_server import programs, shared_server

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")

# As version 0001 wrote to `sources`. Everything else it wrote is written in the same way today.
SOURCES_0001 = """
    INSERT INTO sources AS s(job, host, grp, pages, last_crawl)
    SELECT %s::integer, w.host, w.host, w.n, %s::double precision FROM unnest(%s::text[], %s::integer[]) AS w(host, n)
    ON CONFLICT (host, job) DO UPDATE SET
        pages = s.pages + excluded.pages, last_crawl = greatest(s.last_crawl, excluded.last_crawl)
"""
HOSTS = ("a.test", "b.test", "c.test")
WORKERS = 3
#: Commits of each worker before the upgrade, and after it.
COMMITS = 10
SHAPE = """
    SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
    WHERE table_schema = 'gossamer' AND table_name <> 'alembic_version'
"""
RULES = "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype IN ('c', 'u', 'p')"
WAITING = "SELECT 1 FROM pg_locks WHERE relation = 'gossamer.sources'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted"


@pytest.fixture
def dsn() -> Iterator[str]:
    """Make a database with the tables of version 0001."""
    server = shared_server()
    name = server.database()
    assert upgrade(server.dsn(name), to="0001")
    yield server.dsn(name)
    server.drop(name)


@pytest.fixture
def version_0001(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let ledgers write as those of version 0001 did, until it is undone."""

    def sources(job: int, pages: Sequence[Visit], visits: Sequence[Visit], at: float) -> list[Query]:
        counted = Counter(item.known.request.host for item in pages)
        return [Query(SOURCES_0001, (job, at, Texts(list(counted)), Integers(counted.values())))]

    monkeypatch.setattr(postgres_books, "sources", sources)
    return monkeypatch


class Worker:
    """Adds pages of every host and commits them, again and again."""

    def __init__(self, ledger: PostgresLedger, name: str) -> None:
        self.ledger = ledger
        self.name = name
        self.commits = 0
        self.longest = 0.0

    async def commit(self) -> None:
        names = [f"{host}/{self.name}/{self.commits}" for host in HOSTS]
        began = time.monotonic()
        pages = (await self.ledger.add([found(each) for each in names])).live
        done = await self.ledger.commit(batch(f"{self.name}-{self.commits}", *map(visit, pages)))
        self.longest = max(self.longest, time.monotonic() - began)
        assert (done.records, done.repeated) == (len(HOSTS), False)
        self.commits += 1

    async def commit_often(self) -> None:
        for _ in range(COMMITS):
            await self.commit()

    async def commit_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self.commit()


def test_nothing_is_lost_where_several_upgrade_while_workers_of_the_version_before_commit(
    dsn: str, version_0001: pytest.MonkeyPatch
) -> None:
    async def main() -> list[Worker]:
        async with workers(dsn, WORKERS) as ledgers:
            crew = [Worker(ledger, f"w{number}") for number, ledger in enumerate(ledgers)]
            await asyncio.gather(*(worker.commit_often() for worker in crew))
            with ThreadPoolExecutor() as pool:
                upgrading = [asyncio.wrap_future(pool.submit(upgrade, dsn)) for _ in range(3)]
                ended = asyncio.gather(*upgrading)
                await asyncio.gather(*(worker.commit_until(ended.done) for worker in crew))
                assert sorted(await ended) == [False, False, True]
            await asyncio.gather(*(worker.commit_often() for worker in crew))
            assert [ledger._pool.deadlocks for ledger in ledgers] == [0] * WORKERS
            return crew

    crew = asyncio.run(main())
    commits = sum(worker.commits for worker in crew)
    assert schema_version(dsn) == VERSION
    assert max(worker.longest for worker in crew) < 15.0
    assert ask(dsn, "SELECT count(*), count(DISTINCT record->>'url') FROM pages") == [
        (3 * commits, 3 * commits)
    ]
    assert ask(dsn, "SELECT count(*), max(position) FROM log") == [(commits, commits)]
    told = ask(
        dsn, "SELECT host, pages, robots_status, robots_fetched_at, crawl_delay FROM sources ORDER BY host"
    )
    assert told == [(host, commits, None, 0, 0) for host in HOSTS]


def test_after_the_upgrade_workers_of_both_versions_work_on_one_job(
    dsn: str, version_0001: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with workers(dsn, 2) as ledgers:
            older, newer = (Worker(ledger, f"w{number}") for number, ledger in enumerate(ledgers))
            await older.commit()
            upgrade(dsn)
            await older.commit()
            (waiting,) = (await newer.ledger.add([found("a.test/robots")])).live
            version_0001.undo()
            file = RobotsFile("http://a.test", NOW, 200, b"", 1, 5.0)
            await newer.ledger.commit(batch("robots", Visit(waiting, Deferred(), robots=(file,))))
            await newer.commit()

    asyncio.run(main())
    told = ask(dsn, "SELECT pages, robots_status, crawl_delay FROM sources ORDER BY host")
    assert told == [(3, 200, 5.0), (3, None, 0), (3, None, 0)]


def test_an_upgrade_that_must_wait_for_a_table_lets_workers_through(
    dsn: str, version_0001: pytest.MonkeyPatch
) -> None:
    """A transaction that reads, a backup say, keeps the table for as long as it likes."""

    async def main(reader: psycopg.Connection[tuple[Any, ...]]) -> tuple[bool, float]:
        async with workers(dsn, limits=PostgresLimits(lock_seconds=20.0, patience_seconds=20.0)) as (ledger,):
            worker, other = Worker(ledger, "w"), Worker(ledger, "x")
            await worker.commit()
            worker.longest = 0.0
            reader.execute("SELECT 1 FROM gossamer.sources")
            loop = asyncio.get_running_loop()
            let_through = threading.Event()

            def pause(_seconds: float) -> None:
                # Between two tries nobody waits for it.
                assert not ask(dsn, WAITING)
                asyncio.run_coroutine_threadsafe(other.commit(), loop).result(timeout=30)
                if let_through.is_set():
                    reader.rollback()

            with ThreadPoolExecutor() as pool:
                upgrading = asyncio.wrap_future(pool.submit(upgrade, dsn, pause=pause))
                try:
                    await until(lambda: bool(ask(dsn, WAITING)))
                    # This one waits behind the upgrade, which waits for the reader.
                    await worker.commit()
                    let_through.set()
                    return await upgrading, worker.longest
                finally:
                    reader.rollback()

    with closing(psycopg.connect(dsn)) as reader:
        upgraded, longest = asyncio.run(main(reader))
    assert upgraded
    assert longest < 10.0
    assert schema_version(dsn) == VERSION


def test_an_upgrade_that_cannot_have_a_table_says_so_and_changes_nothing(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_schema, "_PAUSES_SECONDS", (0.25, 0.75))
    before = ask(dsn, SHAPE)
    paused: list[float] = []
    with closing(psycopg.connect(dsn)) as reader:
        reader.execute("SELECT 1 FROM gossamer.sources")
        with pytest.raises(UsageError, match="does not let go of the tables") as refusal:
            upgrade(dsn, pause=paused.append)
    assert paused == [0.25, 0.75]
    assert "gossamer db upgrade" in str(refusal.value)
    assert (schema_version(dsn), ask(dsn, SHAPE)) == ("0001", before)
    assert upgrade(dsn)


def test_a_program_does_not_work_on_older_tables_and_says_what_to_do(dsn: str) -> None:
    with pytest.raises(UsageError, match="gossamer db upgrade"):
        check_version(dsn)
    assert not upgrade(dsn, to="0001")
    assert upgrade(dsn)
    assert not upgrade(dsn, to="0001")
    check_version(dsn)


def test_every_migration_only_adds(dsn: str) -> None:
    """What an older worker names is still there, and what it does not name needs no value."""
    for before, after in pairwise(VERSIONS):
        assert schema_version(dsn) == before
        shape, rules = set(ask(dsn, SHAPE)), set(ask(dsn, RULES))
        upgrade(dsn, to=after)
        gone = shape - set(ask(dsn, SHAPE))
        assert not gone, f"{after} changes what {before} has: {gone}"
        known = {table for table, *_ in shape}
        demanding = [
            (table, column)
            for table, column, _, nullable, default in set(ask(dsn, SHAPE)) - shape
            if table in known and nullable == "NO" and default is None
        ]
        assert not demanding, f"{after} wants what {before} does not write: {demanding}"
        stricter = [rule for rule in set(ask(dsn, RULES)) ^ rules if rule[0] in known]
        assert not stricter, f"{after} allows something else than {before}: {stricter}"


def test_every_migration_in_the_folder_has_its_place() -> None:
    folder = Path(migrations.__file__).parent / "versions"
    assert sorted(path.name[1:5] for path in folder.glob("v*.py")) == list(VERSIONS)


async def until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never was"
        await asyncio.sleep(0.01)
