"""The questions a crawl asks are answered from an index, on a table of 200,000 URLs and more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from gossamer.frontier import postgres_books as books
from gossamer.frontier import postgres_urls as urls
from gossamer.frontier.postgres_pool import PostgresPool, Query, Session
from gossamer.testing.frontier_cases import NOW, fingerprint_of, found, known, visit
from gossamer.testing.postgres_rig import new_database, workers
from gossamer.testing.postgres_server import programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")

FILL = """
    INSERT INTO sources(job, host, grp) SELECT 1, 'h' || n, 'h' || n FROM generate_series(1, 500) n;
    INSERT INTO urls(fp, seq, host, job, priority, depth, state, reason, source, url, parent)
        SELECT n * 46116860184273, n, 1 + n % 500, 1 + n % 2, n % 5, 3, s.state, s.reason, 'link',
               'http://h' || n % 500 || '/page/' || n, (n / 10) * 46116860184273
        FROM generate_series(1, 200000) n CROSS JOIN LATERAL (
            SELECT CASE WHEN n % 3 = 0 THEN 0 WHEN n % 7 = 0 THEN 7 ELSE 2 END AS state,
                   CASE WHEN n % 3 = 0 THEN '' WHEN n % 7 = 0 THEN 'http_404' ELSE 'ok' END AS reason
        ) s;
    INSERT INTO fetches(started_at, delay, elapsed, fp, wire_bytes, robots, job, attempt, status, grp, kind, problem, worker)
        SELECT n, 1, 0.1, n * 46116860184273, 1000, 0, 1 + n % 2, 0, 200, 'h' || n % 500, 'page', '', 'w'
        FROM generate_series(1, 100000) n;
    INSERT INTO log SELECT 1, n, n, n::text, 'w', 0, 1, '', '' FROM generate_series(1, 20000) n;
    INSERT INTO pages SELECT n, n, 1, 1, 0, 200, to_json(repeat('x', 500)) FROM generate_series(1, 20000) n;
"""
LISTED = "SELECT url FROM urls WHERE job = %s::integer AND state = 7 AND reason = %s AND seq > %s ORDER BY seq LIMIT 1000"
OF_A_STATE = "SELECT url FROM urls WHERE job = %s::integer AND state = 7 LIMIT %s"
ONE = "SELECT url FROM urls WHERE job = %s::integer AND fp = %s"
FETCHES = "SELECT started_at FROM fetches WHERE job = %s::integer AND fp = %s"
STARTS = "SELECT started_at FROM fetches WHERE grp = %s AND started_at > %s ORDER BY started_at LIMIT 1000"
QUESTIONS = {
    "take": urls.take(1, "h7", 256, NOW),
    "take some": urls.take(1, "h7", 2, NOW),
    "hosts with live URLs": urls.live_hosts(1, 0, 100),
    "is drained": urls.has_live(1),
    "look up and lock": urls.look_up(1, [visit(known("a.test/1"))], [found("a.test/2"), found("a.test/3")]),
    "list by state": Query(OF_A_STATE, (1, 1000)),
    "list by state and reason": Query(LISTED, (1, "http_404", 7)),
    "explain a URL": Query(ONE, (1, fingerprint_of("a.test/1"))),
    "fetches of a URL": Query(FETCHES, (1, fingerprint_of("a.test/1"))),
    "starts of a group": Query(STARTS, ("h7", 5.0)),
    "the record log": books.log(1, 1000, 8),
}


@pytest.fixture(scope="module")
def filled() -> Iterator[dict[str, str]]:
    """Explain every question on large tables, to a planner that is free to read them whole."""
    with new_database() as dsn:
        asyncio.run(_prepare(dsn))
        yield asyncio.run(_explain(dsn))


async def _prepare(dsn: str) -> None:
    async with workers(dsn), workers(dsn, job="other"):
        pass
    with closing(psycopg.connect(dsn, autocommit=True, options="-c search_path=gossamer")) as connection:
        connection.execute(FILL)
        connection.execute("VACUUM ANALYZE")


async def _explain(dsn: str) -> dict[str, str]:
    pool = PostgresPool(dsn)
    plans: dict[str, str] = {}

    async def work(session: Session) -> None:
        await session.run(Query("SET LOCAL enable_seqscan = on"))
        for name, (sql, parameters) in QUESTIONS.items():
            (lines,) = await session.run(Query(f"EXPLAIN (ANALYZE, TIMING OFF) {sql}", parameters))
            plans[name] = "\n".join(line for (line,) in lines.rows)
        await session.commit()

    await pool.transact(work)
    await pool.close()
    return plans


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_reads_a_whole_table_or_sorts_one(filled: dict[str, str], name: str) -> None:
    plan = filled[name]
    assert "Seq Scan" not in plan, plan
    assert "Index" in plan, plan
    removed = [int(line.split(":")[1]) for line in plan.splitlines() if "Rows Removed by" in line]
    assert sum(removed) < 1000, plan


def test_urls_that_wait_are_looked_for_only_where_too_few_are_due(filled: dict[str, str]) -> None:
    assert "never executed" in filled["take some"], filled["take some"]
    assert "never executed" not in filled["take"], filled["take"]
