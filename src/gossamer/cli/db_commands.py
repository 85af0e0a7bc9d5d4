"""`db`: make the tables of shared jobs, bring them up to date, and delete a job from them."""

from __future__ import annotations

import asyncio
import shlex
import time

import click

from gossamer.cli.backends import Backends, named_database, postgres_option, server_options
from gossamer.cli.operating import on_schedule, with_pool
from gossamer.cli.options import GroupedCommand
from gossamer.cli.terminal import escape, write_lines
from gossamer.config.redis import RedisSettings
from gossamer.config.settings import FrontierSettings
from gossamer.errors import UsageError
from gossamer.frontier import controls
from gossamer.frontier.postgres_jobs import delete_job
from gossamer.frontier.postgres_pool import PostgresPool, place_of
from gossamer.frontier.postgres_schema import VERSION, schema_version
from gossamer.frontier.postgres_schema import upgrade as upgrade_schema
from gossamer.frontier.redis_scheduler import RedisScheduler

#: Workers look every second whether their job goes on, and then write down what they have.
_LEAVE_SECONDS = 3.0
#: Leases that are out for longer than this after the stop are those of workers that hang.
_MAX_DRAIN_SECONDS = 120.0
#: Fetched pages whose worker was not heard of for so long are no longer waited for.
_SILENT_SECONDS = 5.0
_POLL_SECONDS = 0.2


@click.group
def db() -> None:
    """Prepare the database of shared jobs, and delete jobs from it."""


@db.command(short_help="bring the tables up to date")
@postgres_option
def upgrade(postgres_url: str | None) -> None:
    """Make the tables, or bring them up to date. Safe to run twice, and from several machines at once."""
    dsn = named_database(postgres_url)
    before = schema_version(dsn)
    if upgrade_schema(dsn):
        what = f"upgraded from version {before} to {VERSION}" if before else f"made, version {VERSION}"
        write_lines([f"The tables in {escape(place_of(dsn))} were {what}."])
    else:
        write_lines([f"Nothing to do: the tables in {escape(place_of(dsn))} have version {VERSION}."])


@db.command(cls=GroupedCommand, short_help="delete a job and all it knows")
@click.argument("job")
@click.option("--yes", is_flag=True, help="do it: there is no way back")
@server_options
def delete(job: str, yes: bool, backends: Backends) -> None:
    """Delete a shared job with its URLs, records and requests. It is stopped first, and its workers leave it.

    What was cut short is finished by the same command.
    """
    dsn, redis = backends.database(), backends.redis
    if redis is None:
        raise UsageError("which Redis schedules it? name it with --redis URL, or in GOSSAMER_REDIS")
    if not yes:
        raise UsageError(
            f"this deletes job {job} at {place_of(dsn)} with all its records, for good:"
            f" `gossamer db delete {shlex.quote(job)} --yes` does it"
        )
    with_pool(backends, lambda pool: _delete(pool, redis, job))
    write_lines([f"Job {escape(job)} is deleted."])


async def _delete(pool: PostgresPool, redis: RedisSettings, job: str) -> None:
    """Stop a job, wait until its workers have left it, and delete it from both servers."""
    steered = await controls.steer(pool, job, "stop")
    async with on_schedule(redis, job, FrontierSettings(lease_seconds=_SILENT_SECONDS)) as schedule:
        await controls.restore_controls(schedule, pool, job)
        await _drain(schedule, 0.0 if steered.before == "stopped" else _LEAVE_SECONDS)
        # The database last: whatever is cut short, the job can still be named.
        await schedule.forget()
    await delete_job(pool, job)


async def _drain(schedule: RedisScheduler, at_least_seconds: float) -> None:
    """Wait until nothing of the job is leased. The leases of workers that died run out meanwhile."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < _MAX_DRAIN_SECONDS:
        await schedule.settle([lost.lease for lost in await schedule.expired()])
        if passed >= at_least_seconds and not (await schedule.outlook()).in_flight:
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise UsageError(
        f"{(await schedule.outlook()).in_flight} URLs of job {schedule.job} are still under way: end the workers that hang,"
        " and say it again"
    )


COMMANDS: list[click.Command] = [db]
