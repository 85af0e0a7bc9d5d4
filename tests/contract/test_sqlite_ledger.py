"""The ledger of one machine keeps the contract, and its own books: counts, totals, what revive brings back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.contracts import Failpoint, Ledger, no_failpoint
from gossamer.frontier.sqlite_bloom import BloomPlan
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.frontier.sqlite_schema import connect_readonly
from gossamer.model.outcome import Crashed, Outcome, Retry, Settled, State, Visit
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW, REDIRECTED, batch, fingerprint_of, found, names_of, visit
from gossamer.testing.ledger_contract import Cut, LedgerContract, PowerCut, saying

DIED = Crashed(alone=True)
POISON = Crashed(alone=True, poison=True)
FAILED = Settled(State.FAILED, "http_404", status=404)


def ask(ledger: Ledger, question: str, *parameters: object) -> list[tuple[Any, ...]]:
    assert isinstance(ledger, SqliteLedger)
    with closing(connect_readonly(ledger._path)) as db:
        return db.execute(question, parameters).fetchall()


class TestSqliteLedger(LedgerContract):
    async def make(self, place: Path, failpoint: Failpoint = no_failpoint) -> SqliteLedger:
        return SqliteLedger(place / "ledger.sqlite", FakeClock(NOW), failpoint)

    async def state_of(self, ledger: Ledger, fingerprint: int) -> tuple[State, str] | None:
        rows = ask(ledger, "SELECT state, reason FROM urls WHERE fp = ?", fingerprint)
        return (State(rows[0][0]), rows[0][1]) if rows else None

    async def fetch_count(self, ledger: Ledger) -> int:
        return len(ask(ledger, "SELECT id FROM fetches"))


class TestSqliteLedgerWithBloomFilter(TestSqliteLedger):
    forgets_finished = True

    async def make(self, place: Path, failpoint: Failpoint = no_failpoint) -> SqliteLedger:
        return SqliteLedger(place / "ledger.sqlite", FakeClock(NOW), failpoint, BloomPlan(0.0001, 1000))


def recount(ledger: SqliteLedger) -> Counter[tuple[State, str]]:
    rows = ask(ledger, "SELECT state, reason, count(*) FROM urls GROUP BY state, reason")
    return Counter({(State(state), reason): n for state, reason, n in rows})


def open_ledger(place: Path, failpoint: Failpoint = no_failpoint) -> SqliteLedger:
    return SqliteLedger(place / "ledger.sqlite", FakeClock(NOW), failpoint)


def test_counts_equal_a_recount_after_every_kind_of_change(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        names = [f"a.test/{number}" for number in range(8)]
        live = (await ledger.add([*map(found, names), found("a.test/far", depth=9, refusal="depth")])).live
        outcomes: list[Outcome] = [
            FAILED,
            REDIRECTED,
            Retry("timeout", NOW),
            DIED,
            msgspec.structs.replace(DIED, poison=True),
        ]
        for number, (item, outcome) in enumerate(zip(live, outcomes, strict=False)):
            await ledger.commit(batch(str(number), visit(item, outcome, found(f"b.test/{number}"))))
            assert await ledger.counts() == recount(ledger)
        await ledger.commit(batch("late", visit(live[0]), visit(live[5]), visit(live[5])))
        await ledger.add([found("a.test/far", depth=1), found(names[1], chain=(names[1], names[2]))])
        assert await ledger.counts() == recount(ledger)
        await ledger.hold("host_limit", "b.test")
        await ledger.hold("page_limit")
        assert await ledger.counts() == recount(ledger)
        await ledger.revive("reason = ?", ["host_limit"])
        assert await ledger.counts() == recount(ledger)
        assert (await ledger.counts())[State.QUEUED, ""] == 5
        await ledger.close()

    asyncio.run(main())


@pytest.mark.parametrize("call", ["add", "commit", "hold", "revive"])
def test_counts_equal_a_recount_after_a_failure(tmp_path: Path, call: str) -> None:
    async def main() -> None:
        cut = Cut()
        ledger = open_ledger(tmp_path, cut)
        one, two, _ = (await ledger.add([found(f"a.test/{number}") for number in range(3)])).live
        await ledger.commit(batch("0", visit(two, FAILED)))
        cut.at = f"{call}:written"
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "add": lambda: ledger.add([found("new.test/1")]),
            "commit": lambda: ledger.commit(batch("1", visit(one, FAILED, found("new.test/1")))),
            "hold": lambda: ledger.hold("page_limit"),
            "revive": lambda: ledger.revive("1 = 1"),
        }
        with pytest.raises(PowerCut):
            await calls[call]()
        cut.at = ""
        await ledger.add([found("new.test/2")])
        assert await ledger.counts() == recount(ledger)
        assert names_of(await ledger.take("new.test", 9, NOW)) == ["new.test/2"]
        await ledger.close()

    asyncio.run(main())


def test_revive_queues_what_was_held_or_failed_and_nothing_that_was_fetched(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        one, two, three = (await ledger.add([found(f"a.test/{number}") for number in range(3)])).live
        await ledger.commit(batch("1", visit(one), visit(two, FAILED)))
        await ledger.hold("robots_unreachable")
        assert await ledger.revive("1 = 1") == 2
        taken = await ledger.take("a.test", 9, NOW)
        assert names_of(taken) == names_of([two, three])
        late = await ledger.commit(batch("late", visit(three)))
        assert late.lost == {three.request.fingerprint}
        assert (await ledger.commit(batch("2", *map(visit, taken)))).lost == frozenset()
        await ledger.close()

    asyncio.run(main())


def test_totals_add_up_and_a_repeated_batch_adds_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        for _ in range(2):
            await ledger.commit(batch("1", visit(one), visit(two, FAILED)))
        await ledger.commit(batch("2", visit(one)))
        assert await ledger.totals() == {"records": 1, "fetches": 3, "wire_bytes": 3000}
        await ledger.close()

    asyncio.run(main())


def _with_root(sent: Visit, root: str) -> Visit:
    return msgspec.structs.replace(sent, root=root)


def test_roots_come_from_seeds_and_from_winning_visits(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_ledger(tmp_path)
        added = await ledger.add([found("a.test/1")], roots=["http://a.test"], progress="1")
        (one,) = added.live
        await ledger.add([], roots=["http://a.test"])
        won = visit(one, REDIRECTED)
        await ledger.commit(batch("1", _with_root(won, "http://b.test")))
        await ledger.commit(batch("2", _with_root(won, "http://late.test")))
        assert sorted(await ledger.roots(10)) == ["http://a.test", "http://b.test"]
        assert await ledger.get_meta("seeding") == "1"
        await ledger.close()

    asyncio.run(main())


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
