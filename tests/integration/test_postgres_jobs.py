"""Jobs of one database: made once, listed, steered, deleted, and blind to each other but for the clocks of hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gossamer.errors import UsageError
from gossamer.frontier.postgres_jobs import create_job, delete_job, list_jobs, open_job, steer_job
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.model.outcome import Cursor, RobotsFile, StoredCookie, Visit
from gossamer.testing.frontier_cases import NOW, batch, found, names_of, visit
from gossamer.testing.ledger_contract import saying
from gossamer.testing.postgres_rig import ask, new_database, workers
from gossamer.testing.postgres_server import programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")


@pytest.fixture
def dsn() -> Iterator[str]:
    with new_database() as address:
        yield address


def test_two_who_submit_a_job_at_once_get_the_same_one(dsn: str) -> None:
    async def main() -> None:
        pools = [PostgresPool(dsn) for _ in range(6)]
        made = await asyncio.gather(*[create_job(pool, "shop", "seeds", "", NOW) for pool in pools])
        assert len({job.id for job in made}) == 1
        assert [job.name for job in await list_jobs(pools[0])] == ["shop"]
        with pytest.raises(UsageError, match="job shop"):
            await create_job(pools[0], "shop", "other seeds", "", NOW)
        for pool in pools:
            await pool.close()

    asyncio.run(main())


def test_a_submit_that_died_half_way_is_seen_and_goes_on_where_it_was(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            await ledger.add([found("a.test/1"), found("a.test/2")], progress="2")
            assert [job.seeding for job in await list_jobs(ledger._pool)] == ["2"]
            assert (await create_job(ledger._pool, "job", "spec", "", NOW + 1)).seeding == "2"
            await ledger.add([found("a.test/2"), found("a.test/3")], progress="3")
            await ledger.close_seeding()
            assert (await open_job(ledger._pool, "job")).seeding == "closed"

    asyncio.run(main())


def test_a_job_is_paused_and_stopped_for_all_workers(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, 2) as (one, other):
            job = await open_job(one._pool, "job")
            assert (job.paused, job.stopped) == (False, False)
            await steer_job(one._pool, job.id, paused=True, stopped=False)
            assert (await open_job(other._pool, "job")).paused
            with pytest.raises(UsageError, match="no job nothing"):
                await open_job(other._pool, "nothing")

    asyncio.run(main())


def full_visit(item: Visit) -> Visit:
    """Let a visit bring something for every table."""
    file = RobotsFile("http://a.test", NOW, 200, b"", 1)
    failed = RobotsFile("http://b.test", NOW, 0, b"", 1)
    return Visit(
        item.known,
        item.outcome,
        item.record,
        item.found,
        item.fetches,
        (file, failed),
        "http://root.test",
        (StoredCookie("a", b"1"),),
        item.content,
        ("odd",),
    )


def test_a_deleted_job_leaves_nothing_and_others_keep_everything(dsn: str) -> None:
    tables = [
        row[0]
        for row in ask(
            dsn,
            "SELECT c.table_name FROM information_schema.columns c JOIN information_schema.tables t USING (table_name)"
            " WHERE c.table_schema = 'gossamer' AND c.column_name = 'job' AND t.table_type = 'BASE TABLE'",
        )
    ]

    def rows(job: int) -> dict[str, int]:
        return {t: ask(dsn, f"SELECT count(*) FROM {t} WHERE job = %s", job)[0][0] for t in tables}

    async def main() -> None:
        async with workers(dsn) as (one,), workers(dsn, job="other") as (other,):
            for ledger in (one, other):
                (page,) = (await ledger.add([found("a.test/1")], progress="1")).live
                sent = full_visit(saying(page, 7, 9, found("a.test/2")))
                await ledger.commit(batch("1", sent))
                await ledger.save_cursors([Cursor("out")])
            before = rows(other._job)
            assert all(
                n for name, n in before.items() if name in {"urls", "pages", "fetches", "near_contents"}
            )
            assert {name for name, n in before.items() if not n and "_" not in name} == set()
            await delete_job(one._pool, "job")
            assert set(rows(one._job).values()) == {0}
            assert rows(other._job) == before
            assert [job.name for job in await list_jobs(other._pool)] == ["other"]

    asyncio.run(main())


def test_jobs_know_the_same_urls_independently(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (one,), workers(dsn, job="other") as (other,):
            (page,) = (await one.add([found("a.test/1")])).live
            await one.commit(batch("1", visit(page)))
            assert (await other.add([found("a.test/1")])).new == 1
            assert names_of(await other.take("a.test", 9, NOW)) == ["a.test/1"]
            assert await other.log(0, 9) == []
            assert await one.hosts(0, 9) == ([], 0)
            assert (await other.commit(batch("1", visit(page)))).position == 1

    asyncio.run(main())
