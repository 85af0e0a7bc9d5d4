"""Records come back from PostgreSQL as they were; of text that it cannot hold there is a mark for what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from gossamer.contracts import Ledger
from gossamer.frontier.migrations.versions.v0001_ledger import PARTITIONS
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import Settled, State
from gossamer.model.record import PageRecord, encode_record, instant
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW, batch, found, visit
from gossamer.testing.postgres_rig import ask, new_database, workers
from gossamer.testing.postgres_server import programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")


@pytest.fixture
def dsn() -> Iterator[str]:
    with new_database() as address:
        yield address


PAGE = PageRecord(
    url="http://a.test/1",
    final_url="http://a.test/1?b&a",
    status=200,
    content_type="text/html; charset=utf-8",
    fetched_at=instant(1_700_000_000.25),
    depth=0,
    parent="",
    title="",
    description="",
    language="en",
    headings=[],
    links=[],
    noindex=False,
    content_hash="ab" * 32,
    bytes=1 << 40,
    elapsed_ms=0,
    attempt=1,
)


def page(**fields: Any) -> PageRecord:
    return msgspec.structs.replace(PAGE, **fields)


RECORDS = {
    "plain": page(),
    "whole seconds": page(fetched_at=instant(1_700_000_000.0)),
    "unicode": page(title="ü \U0001f600 \u2028 \x7f", description='\\u0000 "quoted" \\ / \t\n\x1b'),
    "lists": page(headings=["b", "", "a"], links=["http://a.test/ü", "http://a.test/2"]),
    "every field": page(simhash="00ff00ff00ff00ff", redirected_from=("http://a.test/0", "http://b.test/")),
    "NUL": page(title="nul \0 inside", headings=["\\\0\\"]),
}
DATA = {
    "item": msgspec.Raw(b'{"zz": 1, "a": {"y": [1.50, 2, 12345678901234567890123], "x": null}, "b": 1e3}'),
    "article": msgspec.Raw(b"[]"),
}


async def lines_of(ledger: Ledger, records: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Commit pages with these records, one at a time; returns what went to running outputs, and what the log has."""
    pages = (await ledger.add([found(f"a.test/{n}") for n in range(len(records))])).live
    live = []
    for number, (item, record) in enumerate(zip(pages, records, strict=True)):
        sent = msgspec.structs.replace(visit(item), record=record)
        live.append((await ledger.commit(batch(str(number), sent))).lines)
    return live, [entry.lines for entry in await ledger.log(0, len(records))]


def in_postgres(dsn: str, records: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    async def main() -> tuple[list[bytes], list[bytes]]:
        async with workers(dsn) as (ledger,):
            return await lines_of(ledger, records)

    return asyncio.run(main())


def test_records_come_back_byte_by_byte_as_sqlite_has_them(dsn: str, tmp_path: Path) -> None:
    async def in_sqlite() -> tuple[list[bytes], list[bytes]]:
        ledger = SqliteLedger(tmp_path / "ledger.sqlite", FakeClock(NOW))
        try:
            return await lines_of(ledger, records)
        finally:
            await ledger.close()

    records = [encode_record(record) for record in RECORDS.values()]
    live, late = in_postgres(dsn, records)
    assert live == late == [record + b"\n" for record in records]
    assert asyncio.run(in_sqlite()) == (live, late)
    # Several in a commit are separate lines, in the order of the commit.
    assert b"".join(late).count(b"\n") == len(records)


def test_data_comes_back_with_every_digit_in_the_order_of_postgresql_for_running_and_late_outputs_alike(
    dsn: str,
) -> None:
    sent = encode_record(page(data=DATA))
    live, late = in_postgres(dsn, [sent, encode_record(page())])
    assert live == late
    assert msgspec.json.decode(late[0]) == msgspec.json.decode(sent)
    assert late[0].endswith(
        b',"data":{"item":{"a":{"x":null,"y":[1.50,2,12345678901234567890123]},"b":1000,"zz":1},"article":[]}}\n'
    )


def test_a_field_that_a_newer_worker_has_written_is_not_lost(dsn: str) -> None:
    newer = encode_record(page()).removesuffix(b"}") + b',"sentiment":0.25,"words":[]}'
    _, late = in_postgres(dsn, [newer])
    assert set(msgspec.json.decode(late[0])) == set(msgspec.json.decode(newer))
    assert late[0].startswith(encode_record(page()).removesuffix(b"}"))


BROKEN = {
    rb'{"url":"a","title":"nul \u0000 inside"}': "nul \ufffd inside",
    rb'{"url":"a","title":"half a pair \ud800 and \udc00"}': "half a pair \ufffd and \ufffd",
    rb'{"url":"a","title":"no escape: \\u0000, a pair: \ud83d\ude00, half: \ud83d"}': r"no escape: \u0000, a pair: "
    "\U0001f600, half: \ufffd",
    b'{"url":"a","title":"\xff\xed\xa0\x80"}': "\ufffd" * 4,
}


@pytest.mark.parametrize("record", BROKEN)
def test_a_record_that_postgresql_refuses_is_stored_with_marks_for_what_cannot_be(
    dsn: str, record: bytes
) -> None:
    live, late = in_postgres(dsn, [record, encode_record(page())])
    assert [msgspec.json.decode(line)["title"] for line in late] == [BROKEN[record], ""]
    assert msgspec.json.decode(live[0]) == msgspec.json.decode(late[0])


def test_an_analyst_finds_records_by_what_they_hold_and_by_an_index_of_their_own(dsn: str) -> None:
    records = [page(url=f"http://a.test/{n}", language="en" if n == 7 else "de") for n in range(20)]
    in_postgres(dsn, [encode_record(record) for record in records])
    english = """SELECT job, url, status, record->'bytes' FROM records WHERE record @> '{"language": "en"}'"""
    assert ask(dsn, english) == [("job", "http://a.test/7", 200, 1 << 40)]
    with psycopg.connect(dsn, options="-c search_path=gossamer", autocommit=True) as connection:
        # As docs/outputs.md has it: on a partition at a time it keeps nobody from writing.
        for n in range(PARTITIONS):
            connection.execute(f"CREATE INDEX CONCURRENTLY ON pages_{n:02} USING gin (record jsonb_path_ops)")
        # The tables are too small for the planner to mind.
        connection.execute("SET enable_seqscan = off; SET enable_indexscan = off")
        assert connection.execute(english).fetchall() == [("job", "http://a.test/7", 200, 1 << 40)]
        plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {english}").fetchall())
    assert plan.count("Index Cond: (record @>") == PARTITIONS, plan


def test_words_of_servers_are_stored_with_marks_for_what_cannot_be(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            (page,) = (await ledger.add([found("a.test/1")])).live
            failed = Settled(State.FAILED, "protocol_error", "bad \0 header \udcff ü")
            (fetch,) = visit(page).fetches
            odd = msgspec.structs.replace(fetch, problem="\0", url="http://a.test/\ud800")
            sent = msgspec.structs.replace(visit(page, failed), fetches=(odd,), notes=("\0note",))
            await ledger.commit(batch("1", sent))
            await ledger.set_meta("key", "a\0b")
            assert await ledger.get_meta("key") == "a�b"

    asyncio.run(main())
    assert ask(dsn, "SELECT detail FROM urls") == [("bad � header � ü",)]
    assert ask(dsn, "SELECT problem, url FROM fetches") == [("�", "http://a.test/�")]
    assert ask(dsn, "SELECT note FROM notes") == [("�note",)]
