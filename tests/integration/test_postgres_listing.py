"""URLs are listed in the order of their discovery, each once, whatever index they are read by."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from gossamer.frontier.postgres_moment import PostgresMoment
from gossamer.frontier.postgres_reader import PostgresReader
from gossamer.model.outcome import State
from gossamer.testing.postgres_rig import new_database, workers
from gossamer.testing.postgres_server import programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")

# Failed for 3 reasons, refused for 40, fetched for none; and another job that must not show.
FILL = """
    INSERT INTO sources(job, host, grp) VALUES (1, 'a.test', 'a.test');
    INSERT INTO urls(fp, seq, host, job, priority, depth, state, reason, source, url)
        SELECT hashint8extended(n, 7), n, 1, job, 0, 0, CASE n % 3 WHEN 0 THEN 0 WHEN 1 THEN 7 ELSE 6 END,
               CASE n % 3 WHEN 0 THEN '' WHEN 1 THEN 'failure' || n % 9 ELSE 'refusal' || n % 40 END, 'link', 'http://a.test/' || n
        FROM generate_series(1, 600) n CROSS JOIN (VALUES (1), (2)) AS jobs(job);
"""


@pytest.fixture(scope="module")
def reader() -> Iterator[PostgresReader]:
    async def make() -> None:
        async with workers(dsn), workers(dsn, job="other"):
            pass

    with new_database() as dsn:
        asyncio.run(make())
        with psycopg.connect(dsn, options="-c search_path=gossamer") as connection:
            connection.execute(FILL)
        with PostgresMoment(dsn) as moment:
            yield PostgresReader(moment, 1)


@pytest.mark.parametrize(("state", "rest"), [(State.QUEUED, 0), (State.FAILED, 1), (State.REFUSED, 2)])
def test_a_state_is_listed_in_the_order_of_discovery_for_few_reasons_and_for_many(
    reader: PostgresReader, state: State, rest: int
) -> None:
    expected = [n for n in range(1, 601) if n % 3 == rest]
    rows = list(reader.urls(state=state))
    assert [row.seq for row in rows] == expected
    assert {(row.host, row.state) for row in rows} == {("a.test", state)}
    assert [row.seq for row in reader.urls(state=state, limit=5)] == expected[:5]
    assert [row.seq for row in reader.urls(state=state, host="a.test")] == expected


def test_a_reason_is_listed_with_its_state_and_without(reader: PostgresReader) -> None:
    expected = [n for n in range(1, 601) if n % 9 == 4]
    assert [row.seq for row in reader.urls(state=State.FAILED, reason="failure4")] == expected
    assert [row.seq for row in reader.urls(reason="failure4")] == expected
    assert list(reader.urls(state=State.REFUSED, reason="failure4")) == []


def test_a_state_that_no_url_has_is_listed_as_empty(reader: PostgresReader) -> None:
    assert list(reader.urls(state=State.FETCHED)) == []
    assert [row.seq for row in reader.urls()] == list(range(1, 601))
