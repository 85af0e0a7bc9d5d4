"""The ledger of one machine keeps the contract, and its own books: counts, totals, what revive brings back."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from gossamer.contracts import Failpoint, JobLedger, Ledger, no_failpoint
from gossamer.frontier.sqlite_bloom import BloomPlan
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.frontier.sqlite_schema import connect_readonly
from gossamer.model.outcome import Crashed, Retry, Settled, State
from gossamer.testing.books_contract import BooksContract
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW, batch, fingerprint_of, found, visit
from gossamer.testing.ledger_contract import LedgerContract, LedgerMaker, saying

DIED = Crashed(alone=True)
POISON = Crashed(alone=True, poison=True)


def ask(ledger: Ledger, question: str, *parameters: object) -> list[tuple[Any, ...]]:
    assert isinstance(ledger, SqliteLedger)
    with closing(connect_readonly(ledger._path)) as db:
        return db.execute(question, parameters).fetchall()


class SqliteMaker(LedgerMaker):
    async def make(self, place: Path, failpoint: Failpoint = no_failpoint) -> SqliteLedger:
        return SqliteLedger(place / "ledger.sqlite", FakeClock(NOW), failpoint)

    async def state_of(self, ledger: Ledger, fingerprint: int) -> tuple[State, str] | None:
        rows = ask(ledger, "SELECT state, reason FROM urls WHERE fp = ?", fingerprint)
        return (State(rows[0][0]), rows[0][1]) if rows else None

    async def fetch_count(self, ledger: Ledger) -> int:
        return len(ask(ledger, "SELECT id FROM fetches"))


class TestSqliteLedger(SqliteMaker, LedgerContract):
    pass


class TestSqliteBooks(SqliteMaker, BooksContract):
    async def recount(self, ledger: JobLedger) -> Counter[tuple[State, str]]:
        return recount(ledger)


def recount(ledger: Ledger) -> Counter[tuple[State, str]]:
    rows = ask(ledger, "SELECT state, reason, count(*) FROM urls GROUP BY state, reason")
    return Counter({(State(state), reason): n for state, reason, n in rows})


class TestSqliteLedgerWithBloomFilter(TestSqliteLedger):
    forgets_finished = True

    async def make(self, place: Path, failpoint: Failpoint = no_failpoint) -> SqliteLedger:
        return SqliteLedger(place / "ledger.sqlite", FakeClock(NOW), failpoint, BloomPlan(0.0001, 1000))


def open_ledger(place: Path, failpoint: Failpoint = no_failpoint) -> SqliteLedger:
    return SqliteLedger(place / "ledger.sqlite", FakeClock(NOW), failpoint)


def test_a_long_detail_is_cut(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        failed = visit(one, Settled(State.FAILED, "protocol_error", "x" * 10_000))
        await ledger.commit(batch("1", failed, visit(two, Retry("timeout", NOW, "y" * 10_000))))
        lengths = ask(ledger, "SELECT length(detail) FROM urls ORDER BY seq")
        assert lengths == [(500,), (500,)]
        await ledger.close()

    asyncio.run(main())


def test_a_closed_ledger_is_a_single_file(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        await ledger.add([found("a.test/1")])
        await ledger.close()

    asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_a_killed_process_leaves_what_it_had_committed(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        await ledger.add([found("a.test/1")])
        ledger._db.execute("BEGIN IMMEDIATE")
        ledger._db.execute("DELETE FROM urls")
        # What a kill leaves behind: the files as they are now, an open transaction among them.
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
        ledger._db.execute("ROLLBACK")
        await ledger.close()
        survivor = open_ledger(copy)
        assert [item.request.fingerprint for item in await survivor.take("a.test", 9, NOW)] == [
            fingerprint_of("a.test/1")
        ]
        await survivor.close()

    asyncio.run(main())


def test_a_duplicate_names_the_page_it_repeats_and_the_numbers_add_up(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        live = (await ledger.add([found(f"a.test/{number}") for number in range(4)])).live
        for number, content in enumerate([(1, 0xFF), (1, 0xFF), (2, 0xFE), (3, 0xFFFF0000)]):
            await ledger.commit(batch(str(number), saying(live[number], *content)))
        rows = ask(ledger, "SELECT state, detail, status FROM urls ORDER BY seq")
        assert rows == [
            (int(State.FETCHED), None, 200),
            (int(State.DUPLICATE), "same as http://a.test/0", 200),
            (int(State.DUPLICATE), "nearly the same as http://a.test/0", 200),
            (int(State.FETCHED), None, 200),
        ]
        assert await ledger.counts() == recount(ledger)
        assert (await ledger.totals())["records"] == 2
        await ledger.close()

    asyncio.run(main())
