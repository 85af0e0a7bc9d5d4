"""How a job's SQLite file is made, upgraded, opened and refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gossamer.errors import LedgerFailed
from gossamer.frontier import sqlite_schema, sqlite_urls
from gossamer.frontier.sqlite_schema import VERSION, connect, connect_readonly, explained


@contextmanager
def ledger(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as db:
        yield db


def version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_a_new_file_gets_the_newest_version_and_every_table(tmp_path: Path) -> None:
    with ledger(tmp_path / "l.sqlite") as db:
        assert version_of(db) == VERSION
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables >= {
        "urls",
        "hosts",
        "counts",
        "totals",
        "roots",
        "groups",
        "fetches",
        "robots",
        "log",
        "cursors",
    }


def test_a_commit_is_on_the_disk_before_it_counts(tmp_path: Path) -> None:
    with ledger(tmp_path / "l.sqlite") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_opening_again_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with ledger(path) as db:
        db.execute("INSERT INTO meta VALUES ('key', 'value')")
    with ledger(path) as db:
        assert db.execute("SELECT value FROM meta").fetchall() == [("value",)]


def test_an_older_ledger_is_upgraded_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "l.sqlite"
    with ledger(path) as db:
        db.execute("INSERT INTO meta VALUES ('key', 'value')")
    newer = (*sqlite_schema.MIGRATIONS, "ALTER TABLE meta ADD COLUMN a;", "ALTER TABLE meta ADD COLUMN b;")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", newer)
    monkeypatch.setattr(sqlite_schema, "VERSION", len(newer))
    with ledger(path) as db:
        assert version_of(db) == VERSION + 2
        assert db.execute("SELECT * FROM meta").fetchall() == [("key", "value", None, None)]


def test_a_migration_that_fails_leaves_the_ledger_at_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.sqlite"
    with ledger(path):
        pass
    newer = (*sqlite_schema.MIGRATIONS, "CREATE TABLE half(a); INSERT INTO absent VALUES (1);")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", newer)
    monkeypatch.setattr(sqlite_schema, "VERSION", len(newer))
    with pytest.raises(LedgerFailed):
        connect(path)
    with closing(sqlite3.connect(path)) as db:
        assert version_of(db) == VERSION
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)


def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with ledger(path) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(LedgerFailed, match="newer Gossamer"):
        connect(path)
    with pytest.raises(LedgerFailed, match="version"):
        connect_readonly(path)


def test_a_file_that_is_no_database_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    path.write_bytes(b"not a database, but long enough to have a header " * 50)
    with pytest.raises(LedgerFailed, match="damaged"):
        connect(path)


def test_a_ledger_in_a_folder_that_does_not_exist_names_the_folder_as_the_problem(tmp_path: Path) -> None:
    with pytest.raises(LedgerFailed, match="check its folder"):
        connect(tmp_path / "absent" / "l.sqlite")


def test_a_reader_sees_what_is_committed_while_the_writer_works_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "a job?.sqlite"
    with ledger(path) as db, closing(connect_readonly(path)) as reader:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO meta VALUES ('key', 'value')")
        assert reader.execute("SELECT count(*) FROM meta").fetchone() == (0,)
        db.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM meta").fetchone() == (1,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM meta")


def test_a_reader_does_not_make_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerFailed):
        connect_readonly(tmp_path / "absent.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("database or disk is full", "make room"),
        ("disk I/O error", "make room"),
        ("attempt to write a readonly database", "check its folder"),
        ("unable to open database file", "check its folder"),
        ("database is locked", "another program"),
        ("database disk image is malformed", "restore it from a copy"),
        ("file is not a database", "restore it from a copy"),
        ("no such table: urls", "restore it from a copy"),
        ("something unheard of", "something unheard of"),
    ],
)
def test_every_sqlite_error_becomes_a_line_that_names_the_file_and_what_to_do(text: str, advice: str) -> None:
    with pytest.raises(LedgerFailed, match=advice) as caught, explained(Path("job/ledger.sqlite")):
        raise sqlite3.OperationalError(text)
    assert "job/ledger.sqlite" in str(caught.value)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


@pytest.mark.parametrize("due", ["<=", ">"])
def test_the_next_urls_of_a_host_are_read_in_order_from_the_index_of_live_urls(
    tmp_path: Path, due: str
) -> None:
    with ledger(tmp_path / "l.sqlite") as db:
        plan = explain(db, sqlite_urls._TAKE.format(due=due), (1, 0.0, 10))
    assert any("urls_live" in step for step in plan)
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN u") for step in plan)


def test_live_hosts_are_found_by_skipping_through_the_index(tmp_path: Path) -> None:
    with ledger(tmp_path / "l.sqlite") as db:
        plan = explain(db, sqlite_urls._LIVE_HOSTS, {"after": 0, "limit": 10})
    assert sum("INDEX urls_live (host>?)" in step for step in plan) == 2
    assert not any(step.startswith("SCAN urls") for step in plan)


def explain(
    db: sqlite3.Connection, question: str, parameters: tuple[object, ...] | dict[str, object]
) -> list[str]:
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {question}", parameters)]


def test_reading_the_ledger_of_an_older_gossamer_upgrades_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.sqlite"
    with monkeypatch.context() as older:
        older.setattr(sqlite_schema, "VERSION", 1)
        with ledger(path) as db:
            assert version_of(db) == 1
    with closing(connect_readonly(path)) as db:
        assert version_of(db) == VERSION
        assert db.execute("SELECT count(*) FROM cookies").fetchone() == (0,)
