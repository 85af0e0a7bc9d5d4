"""The questions a crawl asks are answered from an index, on a table of 200,000 URLs and more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from gossamer.frontier import postgres_books as books
from gossamer.frontier import postgres_records as records
from gossamer.frontier import postgres_urls as urls
from gossamer.frontier.postgres_moment import PostgresMoment
from gossamer.frontier.postgres_pool import PostgresPool, Query, Session
from gossamer.frontier.postgres_reader import listing
from gossamer.frontier.postgres_roots import which_span
from gossamer.model.outcome import State
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
    INSERT INTO groups SELECT 'h' || n, 0, 0, 0, 0, 0 FROM generate_series(1, 500) n;
    INSERT INTO cookies(job, key, data) SELECT 1 + n % 2, n::text, repeat('x', 100)::bytea FROM generate_series(1, 100000) n;
    INSERT INTO roots(job, root) SELECT 1 + n % 2, 'h' || n FROM generate_series(1, 100000) n;
    INSERT INTO log SELECT 1, n, n, n::text, 'w', 0, 1, '', '' FROM generate_series(1, 20000) n;
    INSERT INTO pages SELECT n, n, 1, 1, 0, 200, to_jsonb(repeat('x', 500)) FROM generate_series(1, 20000) n;
"""
ONE = "SELECT url FROM urls WHERE job = %s::integer AND fp = %s"
FETCHES = "SELECT started_at FROM fetches WHERE job = %s::integer AND fp = %s"
STARTS = "SELECT started_at FROM fetches WHERE grp = %s AND started_at > %s ORDER BY started_at LIMIT 1000"
QUESTIONS = {
    "take": urls.take(1, "h7", 256, NOW),
    "take some": urls.take(1, "h7", 2, NOW),
    "hosts with live URLs": urls.live_hosts(1, 0, 100),
    "is drained": urls.has_live(1),
    "look up and lock": urls.look_up(1, [visit(known("a.test/1"))], [found("a.test/2"), found("a.test/3")]),
    "explain a URL": Query(ONE, (1, fingerprint_of("a.test/1"))),
    "fetches of a URL": Query(FETCHES, (1, fingerprint_of("a.test/1"))),
    "starts of a group": Query(STARTS, ("h7", 5.0)),
    "cookies since the last look": books.cookies_after(1, 99_990),
    "which are roots": which_span(1, [f"h{number}" for number in range(1000)]),
    "hosts to be scheduled": books.host_info(1, ["h7", "h8"], ["h7", "h8"]),
    "the record log": records.log(1, 1000, 8),
}


@pytest.fixture(scope="module")
def tables() -> Iterator[str]:
    """Make large tables; returns where."""
    with new_database() as dsn:
        asyncio.run(_prepare(dsn))
        yield dsn


@pytest.fixture(scope="module")
def filled(tables: str) -> dict[str, str]:
    """Explain every question of a worker, to a planner that is free to read tables whole."""
    return asyncio.run(_explain(tables))


@pytest.fixture(scope="module")
def listings(tables: str) -> dict[str, str]:
    """Explain what commands ask for, as they ask for it."""
    plans = {}
    with PostgresMoment(tables) as moment:
        for name, ((sql, parameters), limit) in LISTINGS.items():
            asked = f"EXPLAIN (ANALYZE, TIMING OFF) DECLARE listing CURSOR FOR {sql}"
            plans[name] = "\n".join(line for (line,) in moment.ask(asked, [*parameters, limit]))
    return plans


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


def test_a_look_for_cookies_reads_those_that_are_new(filled: dict[str, str]) -> None:
    plan = filled["cookies since the last look"]
    assert "cookies_age" in plan, plan
    read = [int(rows) for rows in re.findall(r"actual rows=(\d+)", plan)]
    assert read, plan
    assert set(read) == {5}, plan


LISTINGS = {
    "by state and reason": (listing(1, State.FAILED, "http_404", None), None),
    "by state": (listing(1, State.FAILED, None, None, ["http_404", "timeout"]), None),
    "some by state": (listing(1, State.FAILED, None, None, ["http_404", "timeout"]), 10),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_urls_of_a_state_are_listed_by_the_index_of_their_reasons(
    listings: dict[str, str], name: str
) -> None:
    plan = listings[name]
    assert "Merge Append" in plan, plan
    assert "Index Cond: ((job = 1) AND (state = 7) AND (reason = 'http_404'::text))" in plan, plan
    assert "Seq Scan" not in plan, plan


def test_urls_of_a_state_and_reason_are_not_sorted(listings: dict[str, str]) -> None:
    plan = listings["by state and reason"]
    assert "Sort Method" not in plan, plan
