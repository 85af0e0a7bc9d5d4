"""The row of a host says what its robots.txt last said, whoever read it and in whatever order that is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.model.outcome import ROBOTS_UNREACHABLE, Deferred, RobotsFile, Visit
from gossamer.testing.frontier_cases import NOW, batch, found, visit
from gossamer.testing.postgres_rig import ask, new_database, workers
from gossamer.testing.postgres_server import programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")


@pytest.fixture
def dsn() -> Iterator[str]:
    with new_database() as address:
        yield address


def said(dsn: str) -> dict[str, tuple[Any, ...]]:
    rows = ask(
        dsn, "SELECT host, robots_status, robots_fetched_at, crawl_delay, pages, last_crawl FROM sources"
    )
    return {host: tuple(rest) for host, *rest in rows}


async def learn(ledger: PostgresLedger, name: str, *files: RobotsFile) -> None:
    (waiting,) = await ledger.take("a.test", 1, NOW)
    await ledger.commit(batch(name, Visit(waiting, Deferred(), robots=files), at=NOW + 9))


def test_a_host_that_was_never_asked_says_so_and_pages_do_not_change_what_was_said(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            one, *_ = (await ledger.add([found("a.test/1"), found("a.test/2"), found("b.test/1")])).live
            assert said(dsn)["a.test"] == (None, 0, 0, 0, 0)
            file = RobotsFile("http://a.test", NOW, 200, b"", 1, 2.5)
            await ledger.commit(batch("both", Visit(one, Deferred(), robots=(file,)), at=NOW))
            assert said(dsn)["a.test"] == (200, NOW, 2.5, 0, 0)
            again, *_ = await ledger.take("a.test", 9, NOW)
            await ledger.commit(batch("page", visit(again), at=NOW + 5))
            assert said(dsn) == {"a.test": (200, NOW, 2.5, 1, NOW + 5), "b.test": (None, 0, 0, 0, 0)}

    asyncio.run(main())


def test_the_newest_answer_of_a_host_counts_of_whatever_origin_and_in_whatever_order(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            await ledger.add([found("a.test/1")])
            plain = RobotsFile("http://a.test", NOW + 3, 404, b"", 1)
            secure = RobotsFile("https://a.test:8443", NOW + 1, 200, b"", 1, 9.0)
            await learn(ledger, "1", plain, secure)
            assert said(dsn)["a.test"][:3] == (404, NOW + 3, 0)
            # One that was read before and is committed after it.
            await learn(ledger, "2", RobotsFile("http://a.test", NOW + 2, 200, b"", 1, 9.0))
            assert said(dsn)["a.test"][:3] == (404, NOW + 3, 0)
            await learn(ledger, "3", RobotsFile("http://a.test", NOW + 4, ROBOTS_UNREACHABLE, b"", 0))
            assert said(dsn)["a.test"][:3] == (0, NOW + 4, 0)

    asyncio.run(main())


def test_two_jobs_know_what_each_was_told(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (one,), workers(dsn, job="other") as (other,):
            for ledger in (one, other):
                await ledger.add([found("a.test/1")])
            await learn(one, "1", RobotsFile("http://a.test", NOW, 200, b"", 1))
            rows = ask(dsn, "SELECT robots_status FROM sources ORDER BY job")
            assert rows == [(200,), (None,)]

    asyncio.run(main())


def test_workers_that_bring_pages_and_robots_txt_of_the_same_hosts_do_not_wait_for_each_other_for_ever(
    dsn: str,
) -> None:
    hosts = [f"{letter}.test" for letter in "abcdef"]

    async def work(ledger: PostgresLedger, number: int) -> None:
        # Each in an order of its own.
        mine = hosts[number:] + hosts[:number]
        for turn in range(10):
            names = [f"{host}/{number}/{turn}" for host in mine]
            pages = {
                item.request.host: item for item in (await ledger.add([found(each) for each in names])).live
            }
            # Half of them bring pages alone.
            origins = [f"http://{host}" for host in mine if number % 2]
            files = tuple(RobotsFile(origin, NOW + turn, 200, b"", 1) for origin in origins)
            first, *rest = (visit(pages[host]) for host in mine)
            await ledger.commit(
                batch(f"{number}-{turn}", msgspec.structs.replace(first, robots=files), *rest)
            )

    async def main() -> int:
        async with workers(dsn, 4) as ledgers:
            await asyncio.gather(*(work(ledger, number) for number, ledger in enumerate(ledgers)))
            return sum(ledger._pool.deadlocks for ledger in ledgers)

    assert asyncio.run(main()) == 0
    told = {host: row[:4] for host, row in said(dsn).items()}
    assert told == dict.fromkeys(hosts, (200, NOW + 9, 0, 40))
