from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gossamer.frontier import sqlite_fingerprints
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.testing.frontier_cases import NOW, fingerprint_of, found


@pytest.fixture(autouse=True)
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_fingerprints, "_MIN_RECENT", 10)
    monkeypatch.setattr(sqlite_fingerprints, "_MAX_RECENT", 10)


def indexed(path: Path) -> int:
    with sqlite3.connect(path) as db:
        return int(db.execute("SELECT count(*) FROM fingerprints").fetchone()[0])


def test_a_url_is_known_whether_it_is_in_memory_merged_or_read_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    names = [f"a.test/{number}" for number in range(37)]

    async def add(chunk: list[str]) -> int:
        ledger = SqliteLedger(path, lambda: NOW)
        try:
            new = [
                (await ledger.add([found(name) for name in chunk[i : i + 4]])).new
                for i in range(0, len(chunk), 4)
            ]
            assert (await ledger.add([found(name) for name in chunk])).new == 0
            return sum(new)
        finally:
            await ledger.close()

    assert asyncio.run(add(names[:25])) == 25
    assert 0 < indexed(path) < 25
    assert asyncio.run(add(names)) == 12
    with SqliteReader(path) as reader:
        assert all(reader.url(fingerprint_of(name)) is not None for name in names)
        assert reader.url(fingerprint_of("a.test/other")) is None


@pytest.mark.parametrize("boundary", ["add:written", "merge:before", "merge:written", "merge:done"])
def test_a_failure_at_any_boundary_of_a_merge_loses_and_doubles_nothing(
    tmp_path: Path, boundary: str
) -> None:
    path = tmp_path / "ledger.sqlite"

    class PowerCut(Exception):
        pass

    def failpoint(name: str) -> None:
        if name == boundary:
            raise PowerCut

    async def main() -> None:
        broken = SqliteLedger(path, lambda: NOW, failpoint)
        with pytest.raises(PowerCut):
            await broken.add([found(f"a.test/{number}") for number in range(12)])
        with pytest.raises(PowerCut):
            await broken.add([found(f"a.test/{number}") for number in range(24)])
        await broken.close()
        ledger = SqliteLedger(path, lambda: NOW)
        await ledger.add([found(f"a.test/{number}") for number in range(24)])
        taken = await ledger.take("a.test", 100, NOW)
        assert sorted(item.request.fingerprint for item in taken) == sorted(
            fingerprint_of(f"a.test/{number}") for number in range(24)
        )
        await ledger.close()

    asyncio.run(main())
