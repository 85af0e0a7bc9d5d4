"""Queueing URLs of a job again, in a folder or in a database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gossamer.config.postgres import PostgresLimits
from gossamer.frontier.job_folder import JobFolder
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import Revival


def revive_local(folder: JobFolder, which: Revival) -> int:
    """Queue URLs again; returns how many. Whoever asks holds the lock of the job."""
    return asyncio.run(_revive(lambda: SqliteLedger(folder.ledger, time.time), which))


def revive_shared(dsn: str, limits: PostgresLimits, job: int, which: Revival) -> int:
    """Queue URLs again, whoever works on the job meanwhile; returns how many."""
    return asyncio.run(_revive(lambda: PostgresLedger(PostgresPool(dsn, limits), job, time.time), which))


async def _revive(opened: Callable[[], SqliteLedger | PostgresLedger], which: Revival) -> int:
    ledger = opened()
    try:
        return await ledger.revive(which)
    finally:
        await ledger.close()
