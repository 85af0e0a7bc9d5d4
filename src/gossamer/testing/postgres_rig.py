"""Short ways to have a PostgreSQL ledger in a test: a new database, its pools, its jobs and their workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from gossamer.config.postgres import PostgresLimits
from gossamer.contracts import Failpoint, no_failpoint
from gossamer.frontier.postgres_jobs import create_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool, driver
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW
from gossamer.testing.postgres_server import PostgresServer, migrated_database, shared_server


@contextmanager
def new_database(server: PostgresServer | None = None) -> Iterator[str]:
    """Make a database with the tables of a ledger, and delete it in the end; yields its address."""
    server = server or shared_server()
    name = migrated_database(server)
    try:
        yield server.dsn(name)
    finally:
        server.drop(name)


@asynccontextmanager
async def workers(
    dsn: str,
    count: int = 1,
    *,
    job: str = "job",
    failpoint: Failpoint = no_failpoint,
    limits: PostgresLimits | None = None,
) -> AsyncIterator[list[PostgresLedger]]:
    """Open a job for workers that have nothing in common but the database."""
    pools = [PostgresPool(dsn, limits) for _ in range(count)]
    try:
        ids = [(await create_job(pool, job, "spec", "", NOW)).id for pool in pools]
        yield [
            PostgresLedger(pool, each, FakeClock(NOW), failpoint, worker=f"w{number}")
            for number, (pool, each) in enumerate(zip(pools, ids, strict=True))
        ]
    finally:
        for pool in pools:
            await pool.close()


def ask(dsn: str, question: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Read the tables behind the ledger's back."""
    with driver().connect(dsn, options="-c search_path=gossamer") as connection:
        rows: list[tuple[Any, ...]] = connection.execute(question, parameters).fetchall()
        return rows
