"""Asks a PostgreSQL what it is like, without leaving anything behind."""

from __future__ import annotations

import asyncio
import time

from gossamer.config.postgres import PostgresLimits
from gossamer.errors import BackendUnreachable, GossamerError
from gossamer.frontier.postgres_pool import SCHEMA, PostgresPool, Query, TakesNoWrites
from gossamer.frontier.postgres_schema import schema_version
from gossamer.model.server import ClockReading, PostgresFacts, best_reading

_SAMPLES = 20
_ABOUT = "SELECT current_setting('server_version_num')::integer, current_setting('server_version')"
_NOW = "SELECT extract(epoch FROM clock_timestamp())::double precision"
_TEMPORARY = "CREATE TEMPORARY TABLE gossamer_doctor(n integer) ON COMMIT DROP"
_TABLES = """
    SELECT coalesce(bool_and(has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE')), true)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind IN ('r', 'p')
"""


async def look_at_postgres(dsn: str, seconds: float = 5.0) -> PostgresFacts:
    """Return what the server is like. Raises `BackendUnreachable` where it does not answer in time, `UsageError`."""
    limits = PostgresLimits(1, statement_seconds=seconds, connect_seconds=seconds, patience_seconds=0.0)
    pool = PostgresPool(dsn, limits)
    try:
        ((about, _),) = await pool.ask(Query(_ABOUT))
        return PostgresFacts(
            version_number=about[0][0],
            version=about[0][1],
            schema_version=await asyncio.to_thread(schema_version, dsn),
            unwritable=await _unwritable(pool),
            clock=await _clock(pool),
        )
    finally:
        await pool.close()


async def _unwritable(pool: PostgresPool) -> str:
    try:
        await pool.ask(Query(_TEMPORARY))
    except GossamerError as error:
        if isinstance(error, BackendUnreachable) and not isinstance(error, TakesNoWrites):
            raise
        return str(error)
    ((allowed, _),) = await pool.ask(Query(_TABLES, (SCHEMA,)))
    return "" if allowed[0][0] else f"this user may not write the tables in the schema {SCHEMA}"


async def _clock(pool: PostgresPool) -> ClockReading:
    samples = []
    for _ in range(_SAMPLES):
        sent, began = time.time(), time.monotonic()
        ((shown, _),) = await pool.ask(Query(_NOW))
        samples.append((sent, float(shown[0][0]), sent + time.monotonic() - began))
    return best_reading(samples)
