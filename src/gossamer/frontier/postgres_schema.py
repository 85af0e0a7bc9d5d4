"""The schema of the PostgreSQL ledger: its version, and how a database is brought up to it."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import BackendLost, UsageError
from gossamer.frontier.postgres_pool import SCHEMA, driver, explained, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

#: All there are in `migrations/versions`, in their order. A database of any other version is newer than this program.
VERSIONS = ("0001", "0002")
#: The version this program works with.
VERSION = VERSIONS[-1]
_KNOWN = ("", *VERSIONS)
_MIGRATIONS = Path(__file__).parent / "migrations"
#: Taken for the length of a migration; any number nobody else uses.
_LOCK = 7_067_835_516_011
_CONNECT_SECONDS = 10
#: A migration waits no longer for a table. Whoever wants the table meanwhile waits behind it, be it only to read.
_LOCK_SECONDS = 0.5
#: Then it lets the others through, and tries again: for five minutes in all.
_PAUSES_SECONDS = (0.5, 1.0, 2.0, *(4.0,) * 66)


def schema_version(dsn: str) -> str:
    """Return the version of the tables in a database; empty where there are none."""
    with _connected(dsn) as connection:
        return _version(connection)


def check_version(dsn: str) -> None:
    """Raise `UsageError` unless this program and the database fit together."""
    version = schema_version(dsn)
    if version == VERSION:
        return
    if version in _KNOWN:
        raise UsageError(f"the database {place_of(dsn)} is not prepared: run `gossamer db upgrade`")
    raise _newer(dsn, version)


def upgrade(dsn: str, *, to: str = VERSION, pause: Callable[[float], None] = time.sleep) -> bool:
    """Bring a database up to date, or to an older version than that; False where it was.

    * Safe to run twice, from several processes at once, and while workers work: see `migrations/versions`.
    * It happens as a whole or not at all.
    * A table that some transaction does not let go of is waited for in short pieces, so that workers are held up for
      half a second at a time; after some minutes it raises `UsageError`.
    """
    for seconds in _PAUSES_SECONDS:
        try:
            return _migrate(dsn, to)
        except BackendLost as lost:
            if not isinstance(lost.__cause__, driver().errors.LockNotAvailable):
                raise
        pause(seconds)
    raise UsageError(
        f"a transaction does not let go of the tables in {place_of(dsn)}: end it (pg_stat_activity lists it), then run"
        " `gossamer db upgrade` again"
    )


def _migrate(dsn: str, to: str) -> bool:
    driver()
    alembic, config_of, engines = _tools()
    engine = engines.create_engine(
        "postgresql+psycopg://", creator=lambda: _connect(dsn), poolclass=engines.pool.NullPool
    )
    with _explained(dsn), engine.begin() as connection:
        run = connection.exec_driver_sql
        # Until the end of the transaction: whoever comes second finds the work done.
        run(f"SELECT pg_advisory_xact_lock({_LOCK})")
        version = _version(connection.connection.driver_connection)
        if version not in _KNOWN:
            raise _newer(dsn, version)
        if version >= to:
            return False
        run(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        run(f"SET LOCAL search_path = {SCHEMA}")
        run(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS * 1000:.0f}ms'")
        config = config_of()
        config.set_main_option("script_location", str(_MIGRATIONS))
        config.attributes.update(connection=connection, schema=SCHEMA)
        alembic.upgrade(config, to)
    return True


def _tools() -> tuple[Any, Any, Any]:
    try:
        import sqlalchemy  # noqa: PLC0415 - only migrations need it
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("PostgreSQL needs an extra: pip install 'gossamer[postgres]'") from error
    return command, Config, sqlalchemy


def _version(connection: psycopg.Connection[tuple[Any, ...]]) -> str:
    found = connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.alembic_version",)).fetchone()
    if found is None or found[0] is None:
        return ""
    row = connection.execute(f"SELECT version_num FROM {SCHEMA}.alembic_version").fetchone()  # noqa: S608 - a constant
    return str(row[0]) if row else ""


def _newer(dsn: str, version: str) -> UsageError:
    return UsageError(
        f"the database {place_of(dsn)} was made by a newer Gossamer (version {version}, known: {VERSION}): upgrade this one"
    )


def _connect(dsn: str) -> psycopg.Connection[tuple[Any, ...]]:
    connection: psycopg.Connection[tuple[Any, ...]] = driver().connect(dsn, connect_timeout=_CONNECT_SECONDS)
    return connection


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with _explained(dsn), closing(_connect(dsn)) as connection:
        yield connection


@contextmanager
def _explained(dsn: str) -> Iterator[None]:
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        raise explained(psycopg, error, place_of(dsn)) from error
    except _tools()[2].exc.DBAPIError as error:
        raise explained(psycopg, error.orig or error, place_of(dsn)) from error.orig
