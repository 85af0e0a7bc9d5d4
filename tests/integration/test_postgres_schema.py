"""A database is brought up to date once, however often and by however many at once; and a newer one is left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from gossamer.errors import UsageError
from gossamer.frontier.postgres_schema import VERSION, check_version, schema_version, upgrade
from gossamer.testing.postgres_rig import ask
from gossamer.testing.postgres_server import programs, shared_server

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")

UPGRADE = "import sys; from gossamer.frontier.postgres_schema import upgrade; print(upgrade(sys.argv[1]))"


@pytest.fixture
def dsn() -> Iterator[str]:
    """Make a database without any table."""
    server = shared_server()
    name = server.database()
    yield server.dsn(name)
    server.drop(name)


def test_an_upgrade_makes_the_tables_and_a_second_one_changes_nothing(dsn: str) -> None:
    assert schema_version(dsn) == ""
    with pytest.raises(UsageError, match="gossamer db upgrade"):
        check_version(dsn)
    assert upgrade(dsn)
    assert schema_version(dsn) == VERSION
    check_version(dsn)
    tables = ask(dsn, "SELECT oid FROM pg_class WHERE relkind = 'r' ORDER BY oid")
    assert not upgrade(dsn)
    assert ask(dsn, "SELECT oid FROM pg_class WHERE relkind = 'r' ORDER BY oid") == tables


def test_several_processes_upgrade_at_once_and_one_does_it(dsn: str) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", UPGRADE, dsn], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in processes)
    assert said == ["False", "False", "False", "True"]
    assert schema_version(dsn) == VERSION


def test_a_newer_database_is_refused_and_left_as_it_is(dsn: str) -> None:
    upgrade(dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE gossamer.alembic_version SET version_num = '9999'")
    for use in (upgrade, check_version):
        with pytest.raises(UsageError, match="newer Gossamer"):
            use(dsn)
    assert schema_version(dsn) == "9999"


def test_the_tables_that_grow_have_partitions(dsn: str) -> None:
    upgrade(dsn)
    rows = ask(dsn, "SELECT inhparent::regclass::text, count(*) FROM pg_inherits GROUP BY 1 ORDER BY 1")
    counted = {name: n for name, n in rows if not name.endswith(("_pkey", "_live", "_settled"))}
    assert {name: counted[name] for name in ("urls", "pages", "fetches")} == {
        "urls": 16,
        "pages": 16,
        "fetches": 16,
    }
