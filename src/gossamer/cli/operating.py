"""How an operator's command reaches the servers of shared jobs, and leaves no trace there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import uvloop

from gossamer.cli.backends import Backends
from gossamer.config.redis import RedisSettings
from gossamer.config.settings import FrontierSettings, PolitenessSettings
from gossamer.errors import BackendUnreachable, UsageError
from gossamer.frontier import controls
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.frontier.postgres_schema import check_version
from gossamer.frontier.redis_link import redis_library
from gossamer.frontier.redis_scheduler import RedisScheduler

T = TypeVar("T")

#: The name under which an operator speaks to Redis: no job has one that begins with a dot.
_OPERATOR = ".operator"
_PATIENCE_SECONDS = 10.0


def with_pool(backends: Backends, work: Callable[[PostgresPool], Awaitable[T]]) -> T:
    """Do `work` on a database whose tables fit. Raises `UsageError` where no database was named."""
    dsn = backends.database()
    limits = replace(backends.limits, connections=1, patience_seconds=_PATIENCE_SECONDS)

    async def run() -> T:
        await asyncio.to_thread(check_version, dsn)
        pool = PostgresPool(dsn, limits)
        try:
            return await work(pool)
        finally:
            await pool.close()

    return uvloop.run(run())


def check_client(redis: RedisSettings | None) -> None:
    """Raise `UsageError` where a Redis was named that nothing here can speak to: before anything is half done."""
    if redis is not None:
        redis_library()


async def bring_into_force(pool: PostgresPool, redis: RedisSettings | None, job: str) -> None:
    """Tell Redis, where one was named, what the database says about a job and its hosts."""
    if redis is None:
        return
    try:
        async with on_schedule(redis, _OPERATOR) as operator:
            await controls.restore_controls(operator, pool, job)
            await operator.forget()
    except (BackendUnreachable, UsageError) as error:
        raise type(error)(
            f"{error}; it is noted in the database, and workers hear of it from there"
        ) from error


@asynccontextmanager
async def on_schedule(
    redis: RedisSettings, job: str, frontier: FrontierSettings | None = None
) -> AsyncIterator[RedisScheduler]:
    """Speak to the schedule as one who works on a job."""
    schedule = RedisScheduler(
        job, redis, frontier or FrontierSettings(), PolitenessSettings(), time.time, random.random
    )
    await schedule.open()
    try:
        yield schedule
    finally:
        await schedule.close()
