"""What does a page cost PostgreSQL and Redis? Fills a ledger and a schedule on servers of its own, on loopback."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg

from bench import measure, report
from gossamer.config.redis import SHARED_FRONTIER, RedisSettings
from gossamer.config.settings import PolitenessSettings
from gossamer.frontier.postgres_jobs import create_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.model.outcome import Batch, Fetch, Found, GroupState, Pause, Settled, State, Visit
from gossamer.model.record import PageRecord, encode_record, instant
from gossamer.model.request import Known, Request
from gossamer.model.schedule import HostInfo
from gossamer.model.url import fingerprint
from gossamer.testing.postgres_server import PostgresServer, migrated_database
from gossamer.testing.redis_server import RedisServer, redis_server

PAGE = report.DOCS / "scaling.md"
FETCHED = Settled(State.FETCHED, "ok", "", 200)
HOSTS = 1000
#: New URLs of a page: as in the table of the growing ledger in docs/bench.md, and when most links are known.
MANY, FEW = 20, 5
#: Links of a page, as in the comparison.
LINKS = 18
COMMIT_PAGES = 100
LEASES = 64


def url(number: int) -> str:
    return f"https://shop{number % HOSTS}.example/catalogue/section-{number // 97 % 50}/item-{number}?page={number % 7}"


def request(number: int) -> Request:
    address = url(number)
    return Request(
        address, fingerprint(address), f"shop{number % HOSTS}.example", 1, parent=url(number // MANY)
    )


def record(number: int) -> bytes:
    """Return a page record of the usual fields."""
    words = random.Random(number)
    text = " ".join(f"{words.getrandbits(30):x}" for _ in range(20))
    links = [url(words.randrange(10_000_000)) for _ in range(LINKS)]
    return encode_record(
        PageRecord(
            url=url(number),
            final_url=url(number),
            status=200,
            content_type="text/html; charset=utf-8",
            fetched_at=instant(1.7e9 + number),
            depth=1,
            parent=url(number // MANY),
            title=text[:60],
            description=text,
            language="en",
            headings=[],
            links=links,
            noindex=False,
            content_hash=f"{words.getrandbits(256):064x}",
            bytes=29_000,
            elapsed_ms=300,
            attempt=1,
        )
    )


def visit(known: Known, number: int, new: int) -> Visit:
    """Return a page that was fetched, with its record and the URLs it is the first to name."""
    host = known.request.host
    found = tuple(Found(request(number * new + place)) for place in range(1, new + 1))
    fetch = Fetch(known.request.url, host, 1.7e9 + number, 1.0, 0.3, 200, 7_000, robots=1)
    return Visit(known, FETCHED, record(number), found, (fetch,))


@dataclass(frozen=True, slots=True)
class Postgres:
    """Bytes on disk with indexes, of each row and in all of each page; and what commits took."""

    url_bytes: float
    fetch_bytes: float
    record_bytes: float
    page_bytes: float
    wal_bytes: float
    client_ms: float
    server_ms: float


async def measure_postgres(pages: int, new: int) -> Postgres:
    """Fetch so many pages with `new` new URLs each, and see what PostgreSQL has of it."""
    server = PostgresServer(durable=True)
    try:
        server.start()
        dsn = server.dsn(migrated_database(server))
        pool = PostgresPool(dsn)
        job = await create_job(pool, "bench", "spec", "", 1.0)
        ledger = PostgresLedger(pool, job.id, time.time)
        waiting = (await ledger.add([Found(request(0))])).live
        start = ask(dsn, "SELECT pg_current_wal_lsn()::text")
        spent, busy = 0.0, server_seconds(server.pid)
        done = 0
        while done < pages:
            batch, waiting = waiting[:COMMIT_PAGES], waiting[COMMIT_PAGES:]
            visits = tuple(visit(known, done + place, new) for place, known in enumerate(batch))
            hosts = {known.request.host for known in batch}
            groups = tuple(GroupState(host, 1.7e9 + done, 1.0) for host in hosts)
            begun = time.process_time()
            committed = await ledger.commit(Batch(f"bench-{done}", visits, groups, at=1.7e9))
            spent += time.process_time() - begun
            waiting += committed.live
            done += len(batch)
        busy = server_seconds(server.pid) - busy
        wal = float(ask(dsn, f"SELECT pg_current_wal_lsn() - '{start}'::pg_lsn"))
        sizes = {table: table_bytes(dsn, table) for table in ("urls", "fetches", "pages")}
        whole = float(ask(dsn, "SELECT pg_database_size(current_database())"))
        empty = float(ask(dsn, "SELECT pg_database_size('postgres')"))
        await ledger.close()
        return Postgres(
            sizes["urls"] / (done * new + 1),
            sizes["fetches"] / done,
            sizes["pages"] / done,
            (whole - empty) / done,
            wal / done,
            1000 * spent / done,
            1000 * busy / done,
        )
    finally:
        server.remove()


def ask(dsn: str, question: str) -> Any:
    connect: Any = psycopg.connect
    with connect(dsn, options="-c search_path=gossamer") as connection:
        row = connection.execute(question).fetchone()
        assert row is not None
        return row[0]


def table_bytes(dsn: str, table: str) -> float:
    """Return the bytes of all partitions of a table, with their indexes."""
    tree = f"SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('{table}')"
    return float(ask(dsn, tree))


def server_seconds(pid: int) -> float:
    """Return the CPU seconds of a server and all its processes so far, also of those that have ended."""
    return measure.sample(psutil.Process(pid), 0.0).cpu


@dataclass(frozen=True, slots=True)
class Redis:
    """What a schedule takes of Redis, and what one page does."""

    urls: int
    hosts: int
    bytes_per_url: float
    used_mb: float
    round_trips: float
    server_us: float
    client_us: float


async def measure_redis(hosts: int, urls_per_host: int) -> Redis:
    """Fill a schedule, then lease and settle one page of every host."""
    with redis_server() as server:
        settings = RedisSettings(url=server.url)
        scheduler = RedisScheduler(
            "bench", settings, SHARED_FRONTIER, PolitenessSettings(), time.time, random.Random(1).random
        )
        await scheduler.open()
        empty = int(server.info("memory", "used_memory"))
        await fill(scheduler, hosts, urls_per_host)
        used = int(server.info("memory", "used_memory")) - empty
        # A Redis that is new lets every group wait a delay first.
        await asyncio.sleep(1.5)
        trips, spent, busy = scheduler.round_trips, time.process_time(), redis_seconds(server)
        done = 0
        while leases := await scheduler.lease(LEASES):
            for lease in leases:
                await scheduler.started(lease, time.time())
                await scheduler.release(lease, Pause(time.time(), 1.0))
            await scheduler.settle(leases)
            done += len(leases)
            if done >= hosts:
                break
        trips = scheduler.round_trips - trips
        spent, busy = time.process_time() - spent, redis_seconds(server) - busy
        await scheduler.close()
        return Redis(
            hosts * urls_per_host,
            hosts,
            used / (hosts * urls_per_host),
            used / 1e6,
            trips / done,
            1e6 * busy / done,
            1e6 * spent / done,
        )


async def fill(scheduler: RedisScheduler, hosts: int, urls_per_host: int) -> None:
    names = [f"shop{number}.example" for number in range(hosts)]
    for first in range(0, hosts, 1000):
        part = await scheduler.missing(names[first : first + 1000])
        await scheduler.activate([HostInfo(name, 0, GroupState(name)) for name in part])
    while refills := await scheduler.hungry(32):
        for refill in refills:
            number = int(refill.host[4:].partition(".")[0])
            places = [number + HOSTS * 100 * place for place in range(urls_per_host)]
            known = [
                Known(Request(url(place), fingerprint(f"{refill.host}{place}"), refill.host, 1), place + 1)
                for place in places
            ]
            await scheduler.push(refill, known)


def redis_seconds(server: RedisServer) -> float:
    return float(server.info("cpu", "used_cpu_user")) + float(server.info("cpu", "used_cpu_sys"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=30_000, help="pages in the ledger")
    parser.add_argument("--hosts", type=int, default=20_000, help="hosts in the schedule")
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/scaling.md")
    given = parser.parse_args()
    many, few = (asyncio.run(measure_postgres(given.pages, new)) for new in (MANY, FEW))
    redis = asyncio.run(measure_redis(given.hosts, 10))
    rows = [
        ["Bytes of a URL, with its indexes", f"{many.url_bytes:,.0f}", f"{few.url_bytes:,.0f}"],
        ["Bytes of a fetch, with its indexes", f"{many.fetch_bytes:,.0f}", f"{few.fetch_bytes:,.0f}"],
        ["Bytes of a page record, with its indexes", f"{many.record_bytes:,.0f}", f"{few.record_bytes:,.0f}"],
        ["Bytes of a page with all of it", f"{many.page_bytes:,.0f}", f"{few.page_bytes:,.0f}"],
        ["Bytes of WAL a page", f"{many.wal_bytes:,.0f}", f"{few.wal_bytes:,.0f}"],
        ["CPU ms a page, PostgreSQL's", f"{many.server_ms:.3f}", f"{few.server_ms:.3f}"],
        ["CPU ms a page, the worker's", f"{many.client_ms:.3f}", f"{few.client_ms:.3f}"],
    ]
    redis_rows = [
        ["Bytes of a scheduled URL, with its share of its host", f"{redis.bytes_per_url:,.0f}"],
        [f"MB of {redis.hosts:,} hosts with {redis.urls:,} URLs", f"{redis.used_mb:,.0f}"],
        ["Round trips a page", f"{redis.round_trips:.3f}"],
        ["CPU µs a page, Redis's", f"{redis.server_us:.0f}"],
        ["CPU µs a page, the worker's", f"{redis.client_us:.0f}"],
    ]
    names = [f"{MANY} new URLs a page", f"{FEW} new URLs a page"]
    text = (
        f"{report.table(['PostgreSQL', *names], rows)}\n\n{report.table(['Redis', 'measured'], redis_rows)}"
    )
    last = (
        f"{given.pages:,} pages with a record of {len(record(1)):,} bytes each, {COMMIT_PAGES} in a"
        f" commit, fsync on; {LEASES} leases at a time, one worker. {report.machine()}."
    )
    print(f"{text}\n\n{last}")
    if given.write_docs:
        report.write_section("backends", f"{text}\n\n{last}", PAGE)


if __name__ == "__main__":
    main()
