"""Text that PostgreSQL cannot hold is stored all the same: records byte by byte, the rest with a mark for what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from gossamer.model.outcome import Settled, State
from gossamer.testing.frontier_cases import FETCHED, batch, found, visit
from gossamer.testing.postgres_rig import ask, new_database, workers
from gossamer.testing.postgres_server import programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")


@pytest.fixture
def dsn() -> Iterator[str]:
    with new_database() as address:
        yield address


RECORDS = [
    rb'{"title":"nul \u0000 inside","url":"http://a.test/0"}',
    rb'{"url":"a","title":"half a pair \ud800 and \udc00","b":1}',
    b'{"b":1,"a":2,  "spaced": [1.50, 1e3]}',
    '{"title":"whole \U0001f600 ü"}'.encode(),
    rb'{"title":"no escape: \\u0000 and a pair \ud83d\ude00"}',
]


def test_records_come_back_byte_by_byte_whatever_they_escape(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            pages = (await ledger.add([found(f"a.test/{n}") for n in range(len(RECORDS))])).live
            for number, (page, record) in enumerate(zip(pages, RECORDS, strict=True)):
                sent = msgspec.structs.replace(visit(page), record=record)
                await ledger.commit(batch(str(number), sent))
            assert [entry.lines for entry in await ledger.log(0, 9)] == [line + b"\n" for line in RECORDS]

    asyncio.run(main())
    titles = ask(dsn, "SELECT record->>'title' FROM records WHERE job = 'job' ORDER BY position")
    assert titles == [
        ("nul � inside",),
        ("half a pair � and �",),
        (None,),
        ("whole \U0001f600 ü",),
        (r"no escape: \u0000 and a pair " + "\U0001f600",),
    ]


def test_a_record_that_is_no_utf_8_does_not_stop_the_crawl(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
            broken = msgspec.structs.replace(visit(one, FETCHED), record=b'{"title":"\xff\xed\xa0\x80"}')
            done = await ledger.commit(batch("1", broken, visit(two)))
            assert done.records == 2
            (entry,) = await ledger.log(0, 9)
            assert entry.lines == done.lines
            assert '{"title":"����"}' in entry.lines.decode()

    asyncio.run(main())


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
