"""The ledger of many machines keeps the contract, on a real PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gossamer.contracts import Failpoint, JobLedger, Ledger, no_failpoint
from gossamer.frontier.postgres_jobs import create_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.model.outcome import State
from gossamer.testing.books_contract import BooksContract
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW
from gossamer.testing.ledger_contract import LedgerContract
from gossamer.testing.postgres_server import PostgresServer, migrated_database, programs, shared_server

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")


class TestPostgresLedger(LedgerContract, BooksContract):
    @pytest.fixture(autouse=True)
    def _databases(self) -> Iterator[None]:
        """Give each place a database of its own: clocks of hosts are shared by all jobs of one."""
        self.server: PostgresServer = shared_server()
        self.databases: dict[Path, str] = {}
        yield
        for name in self.databases.values():
            self.server.drop(name)

    async def make(self, place: Path, failpoint: Failpoint = no_failpoint) -> PostgresLedger:
        if place not in self.databases:
            self.databases[place] = migrated_database(self.server)
        dsn = self.server.dsn(self.databases[place])
        pool = PostgresPool(dsn)
        job = await create_job(pool, "job", "spec", "", NOW)
        return PostgresLedger(pool, job.id, FakeClock(NOW), failpoint)

    async def state_of(self, ledger: Ledger, fingerprint: int) -> tuple[State, str] | None:
        rows = ask(ledger, "SELECT state, reason FROM urls WHERE fp = %s", fingerprint)
        return (State(rows[0][0]), rows[0][1]) if rows else None

    async def fetch_count(self, ledger: Ledger) -> int:
        return int(ask(ledger, "SELECT count(*) FROM fetches")[0][0])

    async def recount(self, ledger: JobLedger) -> Counter[tuple[State, str]]:
        rows = ask(ledger, "SELECT state, reason, count(*) FROM urls GROUP BY state, reason")
        return Counter({(State(state), reason): n for state, reason, n in rows})


def ask(ledger: Ledger, question: str, *parameters: object) -> list[tuple[Any, ...]]:
    assert isinstance(ledger, PostgresLedger)
    with psycopg.connect(ledger._pool._dsn, options="-c search_path=gossamer") as connection:
        return connection.execute(question, parameters).fetchall()
