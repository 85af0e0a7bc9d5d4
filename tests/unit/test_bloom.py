"""A Bloom filter never loses a fingerprint, keeps its error rate, and survives in a ledger what ledgers survive."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import LedgerFailed
from gossamer.frontier import sqlite_bloom, sqlite_fingerprints
from gossamer.frontier.sqlite_audit import SqliteAuditReader
from gossamer.frontier.sqlite_bloom import BloomPlan, SqliteBloom, is_remembered, open_bloom
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.frontier.sqlite_schema import connect
from gossamer.model.outcome import Crashed
from gossamer.policy.bloom import BloomSlice, blocks_for, error_share, expected_rate, find, next_slice
from gossamer.testing.frontier_cases import NOW, REDIRECTED, batch, fingerprint_of, found, visit
from gossamer.testing.ledger_contract import Cut, PowerCut

PLAN = BloomPlan(0.001, 100)


def fingerprints(count: int, seed: int = 0) -> list[int]:
    chance = random.Random(seed)
    return [chance.getrandbits(64) - (1 << 63) for _ in range(count)]


def filled(keys: list[int], error_rate: float, first: int) -> list[BloomSlice]:
    """Return a filter that grew while these were added."""
    slices: list[BloomSlice] = []
    while keys:
        slices.append(next_slice(slices, error_rate, first))
        room = slices[-1].room
        slices[-1].add(keys[:room])
        keys = keys[room:]
    return slices


# -- the filter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error_rate", [0.01, 0.0001])
def test_a_full_slice_keeps_its_error_rate_and_loses_nothing(error_rate: float) -> None:
    keys = fingerprints(200_000)
    part = BloomSlice(len(keys), blocks_for(len(keys), error_rate))
    part.add(keys)
    assert find([part], keys) == set(keys)
    wrong = len(find([part], fingerprints(200_000, seed=1)))
    assert error_rate / 2 < wrong / 200_000 < error_rate * 2


def test_a_filter_that_grew_keeps_the_error_rate_of_its_plan_and_loses_nothing() -> None:
    keys = fingerprints(200_000)
    slices = filled(keys, 0.001, 10_000)
    assert len(slices) == 5
    assert find(slices, keys) == set(keys)
    wrong = len(find(slices, fingerprints(200_000, seed=1)))
    assert 0.0005 / 2 < wrong / 200_000 < 0.001 * 2


def test_the_default_error_rate_costs_less_than_three_bytes_for_each_url_it_was_made_for() -> None:
    assert 20 < blocks_for(1_000_000, 0.0001) * 512 / 1_000_000 < 24
    assert next_slice([], 0.0001, 1_000_000).blocks * 512 / 1_000_000 < 26


def test_the_shares_of_all_slices_add_up_to_one_at_most() -> None:
    assert sum(error_share(number) for number in range(200)) <= 1.0 + 1e-9


@pytest.mark.parametrize("error_rate", [0.1, 0.001, 1e-6, 1e-8])
def test_the_size_is_the_smallest_that_keeps_the_rate(error_rate: float) -> None:
    blocks = blocks_for(1_000_000, error_rate)
    assert expected_rate(1_000_000 / blocks) <= error_rate < expected_rate(1_000_000 / (blocks - 50))


@given(st.sets(st.integers(-(2**63), 2**63 - 1), max_size=300), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_whatever_was_added_is_found_however_the_filter_grew(keys: set[int], first: int) -> None:
    assert find(filled(list(keys), 0.01, first), keys) == keys


# -- in a ledger ---------------------------------------------------------------------------------------


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as db:
        yield db


def opened(db: sqlite3.Connection) -> SqliteBloom:
    bloom = open_bloom(db, PLAN)
    assert bloom is not None
    return bloom


def commit(db: sqlite3.Connection, bloom: SqliteBloom, keys: list[int]) -> None:
    db.execute("BEGIN")
    for key in keys:
        bloom.add(key)
    bloom.save()
    db.execute("COMMIT")
    bloom.saved()


def fold(db: sqlite3.Connection, bloom: SqliteBloom) -> None:
    db.execute("BEGIN")
    bloom.fold()
    db.execute("COMMIT")
    bloom.folded()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_bloom, "_MIN_LOGGED", 50)
    monkeypatch.setattr(sqlite_bloom, "PAGE_BYTES", 128)
    monkeypatch.setattr(sqlite_bloom, "_PAGES_AT_ONCE", 2)
    monkeypatch.setattr(sqlite_fingerprints, "_MIN_RECENT", 20)
    monkeypatch.setattr(sqlite_fingerprints, "_MAX_RECENT", 20)


def test_a_filter_is_read_again_at_every_moment_of_a_fold(tmp_path: Path, small: None) -> None:
    keys = fingerprints(1000)
    moments = 0
    with database(tmp_path / "l.sqlite") as db:
        bloom = opened(db)
        for start in range(0, len(keys), 10):
            commit(db, bloom, keys[start : start + 10])
            if bloom.wants_fold:
                fold(db, bloom)
                moments += 1
            sofar = keys[: start + 10]
            again = opened(db)
            assert again.find(sofar) == set(sofar)
            # The same bits: nothing is in it that was not added.
            assert [part.bits for part in again._slices] == [part.bits for part in bloom._slices]
            assert [part.keys for part in again._slices] == [part.keys for part in bloom._slices]
    assert moments > 20


def test_folding_comes_to_an_end_and_drops_what_the_pages_contain(tmp_path: Path, small: None) -> None:
    with database(tmp_path / "l.sqlite") as db:
        bloom = opened(db)
        commit(db, bloom, fingerprints(300))
        folds = 0
        while bloom.wants_fold:
            fold(db, bloom)
            folds += 1
        assert folds > 1
        assert db.execute("SELECT count(*) FROM bloom_added").fetchone() == (0,)
        assert db.execute("SELECT keys FROM bloom_slices").fetchall() == [(100,), (200,)]


def test_what_is_rolled_back_is_forgotten(tmp_path: Path) -> None:
    kept, dropped = fingerprints(50), fingerprints(500, seed=1)
    with database(tmp_path / "l.sqlite") as db:
        bloom = opened(db)
        commit(db, bloom, kept)
        bits = [bytes(part.bits) for part in bloom._slices]
        db.execute("BEGIN")
        for key in dropped:
            bloom.add(key)
        bloom.save()
        db.execute("ROLLBACK")
        bloom.forget_unsaved()
        commit(db, bloom, [])
        assert [bytes(part.bits) for part in bloom._slices] == bits
        assert db.execute("SELECT count(*) FROM bloom_slices").fetchone() == (1,)


def test_a_reader_finds_what_is_in_pages_and_what_is_not_yet(tmp_path: Path, small: None) -> None:
    keys, fresh = fingerprints(500), fingerprints(500, seed=1)
    with database(tmp_path / "l.sqlite") as db:
        bloom = opened(db)
        for start in range(0, len(keys), 25):
            commit(db, bloom, keys[start : start + 25])
            if bloom.wants_fold:
                fold(db, bloom)
        assert db.execute("SELECT count(*) FROM bloom_pages").fetchone()[0] > 2
        assert db.execute("SELECT count(*) FROM bloom_added").fetchone()[0] > 0
        assert all(is_remembered(db, key) for key in keys)
        assert sum(is_remembered(db, key) for key in fresh) < 5


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE bloom_added SET fingerprints = x'00'",
        "INSERT INTO bloom_pages VALUES (0, x'00')",
        "UPDATE bloom_added SET slice = 7",
        "UPDATE meta SET value = 'x' WHERE key = 'bloom'",
    ],
)
def test_a_damaged_filter_is_reported_as_a_damaged_ledger(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "l.sqlite"

    async def main() -> None:
        ledger = SqliteLedger(path, lambda: NOW, bloom=PLAN)
        await ledger.add([found("a.test/1")])
        await ledger.close()

    asyncio.run(main())
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(damage)
    with pytest.raises(LedgerFailed, match="damaged"):
        SqliteLedger(path, lambda: NOW)


# -- forgetting ----------------------------------------------------------------------------------------


def test_index_entries_of_forgotten_rows_go_with_the_merges(tmp_path: Path, small: None) -> None:
    path = tmp_path / "l.sqlite"

    async def main() -> None:
        for round_ in range(4):
            ledger = SqliteLedger(path, lambda: NOW, bloom=PLAN)
            for number in range(5):
                names = [f"a.test/{round_}-{number}-{page}" for page in range(20)]
                live = (await ledger.add([found(name) for name in names])).live
                assert len(live) == 20
                await ledger.commit(batch(f"{round_}-{number}", *map(visit, live)))
                assert (await ledger.add([found(name) for name in names])).new == 0
            await ledger.close()

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM urls").fetchone() == (0,)
        assert db.execute("SELECT n FROM counts WHERE state = 2").fetchone() == (400,)
        assert db.execute("SELECT count(*) FROM fingerprints").fetchone()[0] <= 40


def test_the_number_of_a_forgotten_row_is_never_given_again(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"

    async def main() -> None:
        ledger = SqliteLedger(path, lambda: NOW, bloom=PLAN)
        (one,) = (await ledger.add([found("a.test/1")])).live
        await ledger.commit(batch("1", visit(one)))
        await ledger.close()
        ledger = SqliteLedger(path, lambda: NOW)
        (two,) = (await ledger.add([found("a.test/2")])).live
        await ledger.close()
        assert two.seq > one.seq

    asyncio.run(main())


def test_a_url_that_comes_back_by_its_redirects_is_found_in_the_index_after_a_merge(
    tmp_path: Path, small: None
) -> None:
    path = tmp_path / "l.sqlite"
    fill = iter(range(10_000))

    async def merge(ledger: SqliteLedger) -> None:
        await ledger.add([found(f"b.test/{next(fill)}") for _ in range(25)])

    async def main() -> None:
        ledger = SqliteLedger(path, lambda: NOW, bloom=PLAN)
        (one,) = (await ledger.add([found("a.test/1")])).live
        await merge(ledger)
        (two,) = (
            await ledger.commit(batch("1", visit(one, REDIRECTED, found("a.test/2", chain=("a.test/1",)))))
        ).live
        back = found("a.test/1", chain=("a.test/1", "a.test/2"))
        (again,) = (await ledger.commit(batch("2", visit(two, REDIRECTED, back)))).live
        await merge(ledger)
        await ledger.close()
        with SqliteReader(path) as reader:
            row = reader.url(fingerprint_of("a.test/1"))
            assert row is not None
            assert row.seq == again.seq

    asyncio.run(main())


def test_an_audit_still_counts_the_crashes_of_forgotten_urls(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"

    async def main() -> None:
        ledger = SqliteLedger(path, lambda: NOW, bloom=PLAN)
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        died = Crashed(alone=True)
        again, _ = (await ledger.commit(batch("1", visit(one, died), visit(two, died)))).live
        await ledger.commit(batch("2", visit(again)))
        await ledger.close()

    asyncio.run(main())
    with SqliteAuditReader(path) as reader:
        assert len(list(reader.urls())) == 1
        # The first crash of a URL counts as one, and one more for having been alone.
        assert reader.crashes() == 4


@pytest.mark.parametrize("boundary", ["add:written", "commit:written", "merge:written", "fold:written"])
def test_after_a_failure_a_url_is_known_exactly_if_it_was_committed(
    tmp_path: Path, small: None, boundary: str
) -> None:
    path = tmp_path / "l.sqlite"
    names = [f"a.test/{number}" for number in range(200)]

    async def main() -> None:
        cut = Cut()
        ledger = SqliteLedger(path, lambda: NOW, cut, PLAN)
        known: list[str] = []
        cuts = 0
        for start in range(0, 200, 20):
            chunk = names[start : start + 20]
            cut.at = boundary if start % 40 else ""
            try:
                await ledger.add([found(name) for name in chunk])
                live = await ledger.take("a.test", 20, NOW)
                await ledger.commit(batch(str(start), *map(visit, live)))
            except PowerCut:
                cuts += 1
            cut.at = ""
            with closing(sqlite3.connect(path)) as db:
                total = db.execute("SELECT coalesce(sum(n), 0) FROM counts").fetchone()[0]
            if total > len(known):
                known += chunk
            assert total == len(known)
        assert cuts > 0
        for _ in range(2):
            assert (await ledger.add([found(name) for name in known])).new == 0
            await ledger.close()
            ledger = SqliteLedger(path, lambda: NOW)
        assert (await ledger.add([found(name) for name in names])).new == 200 - len(known)
        await ledger.close()

    asyncio.run(main())
