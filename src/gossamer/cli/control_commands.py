"""The commands that steer jobs: `pause`, `stop`, `sources`, and what `resume` does to a shared job."""

from __future__ import annotations

import asyncio
import math
import os
import random
import shlex
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click
import msgspec
import uvloop

from gossamer.cli.backends import postgres_option, redis_option
from gossamer.cli.job_lookup import find_job, job_is_locked
from gossamer.cli.terminal import Table, escape, escape_json, say, write_lines
from gossamer.config.redis import RedisSettings
from gossamer.config.settings import FrontierSettings, PolitenessSettings
from gossamer.errors import BackendUnreachable, UsageError
from gossamer.frontier import controls
from gossamer.frontier.controls import Source, Steered, Wish
from gossamer.frontier.postgres_pool import PostgresLimits, PostgresPool
from gossamer.frontier.postgres_schema import check_version
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.model.url import canonicalise, host_of
from gossamer.observe.report import instant_text
from gossamer.observe.wording import duration_text

T = TypeVar("T")

#: The name under which an operator speaks to Redis: no job has one that begins with a dot.
_OPERATOR = ".operator"
_PATIENCE_SECONDS = 10.0
_MAX_DELAY_SECONDS = 7 * 86_400.0
#: Hosts that a table shows; whoever wants more than can be read wants lines.
_MAX_TABLE_ROWS = 1000
_DONE = {"paused": "paused", "stopped": "stopped", "running": "resumed"}

_job = click.argument("job")
_jobs_dir = click.option(
    "--jobs-dir",
    type=click.Path(path_type=Path),
    default=Path("gossamer-jobs"),
    envvar="GOSSAMER_JOBS_DIR",
    show_default=True,
    metavar="DIR",
    help="folder of the jobs",
)


def named_database(postgres_url: str | None) -> str:
    """Return the database that was named. Raises `UsageError` where none was."""
    if not postgres_url:
        raise UsageError("which database? name it with --postgres URL, or in GOSSAMER_POSTGRES")
    return postgres_url


# -- pause, stop and resume ----------------------------------------------------------------------------


@click.command(short_help="let a job rest until it is resumed")
@_job
@redis_option
@postgres_option
@_jobs_dir
def pause(job: str, redis_url: str | None, postgres_url: str | None, jobs_dir: Path) -> None:
    """Let a job rest: what is under way is finished, and nothing more is begun until `resume`."""
    _rest(job, "pause", redis_url, postgres_url, jobs_dir)


@click.command(short_help="end the work on a job; it can be resumed")
@_job
@redis_option
@postgres_option
@_jobs_dir
def stop(job: str, redis_url: str | None, postgres_url: str | None, jobs_dir: Path) -> None:
    """End the work on a job: what is under way is finished, and its workers leave it. `resume` takes it up again."""
    _rest(job, "stop", redis_url, postgres_url, jobs_dir)


def _rest(job: str, wish: Wish, redis_url: str | None, postgres_url: str | None, jobs_dir: Path) -> None:
    if postgres_url:
        steer_shared(job, wish, postgres_url, redis_url)
    else:
        _end_local(job, jobs_dir)


def steer_shared(job: str, wish: Wish, postgres_url: str, redis_url: str | None) -> None:
    """Pause, stop or resume a job in a database, tell Redis where it is named, and say what that means."""

    async def work(pool: PostgresPool) -> Steered:
        steered = await controls.steer(pool, job, wish)
        await _bring_into_force(pool, redis_url, job)
        return steered

    steered = with_pool(postgres_url, work)
    again = "already " if steered.before == steered.after else ""
    if wish == "pause" and steered.after == "stopped":
        raise UsageError(f"job {job} is stopped: `gossamer resume {shlex.quote(job)}` lets it go on")
    state = "running" if again and steered.after == "running" else _DONE[steered.after]
    lines = [f"Job {escape(job)} is {again}{state}."]
    if steered.after != "running":
        lines.append("What is under way is finished; `gossamer resume` with the same servers lets it go on.")
    write_lines(lines)
    _say_when(redis_url)


def _say_when(redis_url: str | None) -> None:
    if not redis_url:
        say("no Redis was named: this is noted in the database, and --redis brings it into force at once")


def _end_local(job: str, jobs_dir: Path) -> None:
    found = find_job(jobs_dir, job)
    holder = job_is_locked(found.folder.path)
    if holder is None:
        raise UsageError(f"no process works on job {escape(found.word)}: there is nothing to end")
    if not holder or not _has_open(holder, found.folder.path / "lock"):
        raise UsageError(
            f"job {escape(found.word)} is worked on by a process that is not to be found here:"
            " stop it where it was started"
        )
    try:
        os.kill(holder, signal.SIGTERM)
    except ProcessLookupError:
        # It has ended since we looked, which is what was wanted.
        pass
    except PermissionError as error:
        raise UsageError(f"process {holder} is another user's: ask them to stop it") from error
    name = shlex.quote(found.word)
    write_lines(
        [
            f"Process {holder} finishes what is under way and ends. The same again ends it at once; both are safe.",
            escape(f"`gossamer resume {name}` goes on."),
        ]
    )


def _has_open(process: int, path: Path) -> bool:
    """Say whether a process of this machine has a file open: its number alone may be that of another one."""
    descriptors = Path(f"/proc/{process}/fd")
    if not Path("/proc/self/fd").exists():
        return True
    try:
        return any(_is_same(link, path) for link in descriptors.iterdir())
    except PermissionError:
        return True
    except OSError:
        return False


def _is_same(link: Path, path: Path) -> bool:
    try:
        return link.samefile(path)
    except OSError:
        return False


# -- sources -------------------------------------------------------------------------------------------


class SourceLine(msgspec.Struct, frozen=True):
    """A host as `sources --format jsonl` writes it. Instants are texts, or null where there is none."""

    host: str
    group: str
    pages: int
    last_crawl: str | None
    active: bool
    #: The least delay an operator has set; null for none.
    min_delay: float | None
    #: The delay in force when the group was last asked; null before that.
    delay: float | None
    #: The group is not asked before.
    backs_off_until: str | None
    failures: int


@click.command(short_help="list the hosts of a shared job, and switch them")
@_job
@click.option("--off", multiple=True, metavar="HOST", help="ask this host for nothing more (repeatable)")
@click.option("--on", multiple=True, metavar="HOST", help="ask this host again (repeatable)")
@click.option(
    "--delay",
    "delays",
    type=(str, float),
    multiple=True,
    metavar="HOST SECONDS",
    help="least time between requests to this host; 0 takes it back (repeatable)",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "jsonl"]),
    default="table",
    show_default=True,
    help="a table, or JSON lines",
)
@redis_option
@postgres_option
def sources(
    job: str,
    off: tuple[str, ...],
    on: tuple[str, ...],
    delays: tuple[tuple[str, float], ...],
    style: str,
    redis_url: str | None,
    postgres_url: str | None,
) -> None:
    """List the hosts of a shared job and how each is treated. Hosts are switched for all jobs of the database."""
    dsn = named_database(postgres_url)
    switched = {_host(host): False for host in off} | {_host(host): True for host in on}
    if len(switched) < len({*off}) + len({*on}):
        raise UsageError("--off and --on name the same host: decide on one")
    set_to = {_host(host): _checked_delay(host, seconds) for host, seconds in delays}
    if switched or set_to:
        with_pool(dsn, lambda pool: _change_hosts(pool, redis_url, job, switched, set_to))
        write_lines(_change_lines(switched, set_to))
        _say_when(redis_url)
    else:
        with_pool(dsn, lambda pool: _show_sources(pool, job, style))


def _host(text: str) -> str:
    """Return a host as the ledger spells it: lower case, punycode, no port."""
    return host_of(canonicalise(f"http://{text}/"))


def _checked_delay(host: str, seconds: float) -> float:
    if not (math.isfinite(seconds) and 0 <= seconds <= _MAX_DELAY_SECONDS):
        raise UsageError(f"--delay {host}: give seconds from 0 to {_MAX_DELAY_SECONDS:.0f}, not {seconds:g}")
    return seconds


async def _change_hosts(
    pool: PostgresPool,
    redis_url: str | None,
    job: str,
    switched: dict[str, bool],
    delays: dict[str, float],
) -> None:
    for host, is_on in switched.items():
        await controls.switch_host(pool, job, host, on=is_on)
    for host, seconds in delays.items():
        await controls.set_host_delay(pool, job, host, seconds)
    await _bring_into_force(pool, redis_url, job)


def _change_lines(switched: dict[str, bool], delays: dict[str, float]) -> list[str]:
    lines = [
        f"{host} is {'on' if is_on else 'off'}, for all jobs of this database."
        for host, is_on in switched.items()
    ]
    lines += [
        f"{host} is asked at most every {seconds:g} s, by all jobs of this database."
        if seconds
        else f"{host} has the delay of each job again."
        for host, seconds in delays.items()
    ]
    return lines


async def _show_sources(pool: PostgresPool, job: str, style: str) -> None:
    now = time.time()
    async with aclosing(controls.sources(pool, job)) as found:
        if style == "jsonl":
            async for source in found:
                write_lines([escape_json(msgspec.json.encode(_source_line(source, now)).decode())])
            return
        rows: list[tuple[str, ...]] = []
        async for source in found:
            if len(rows) == _MAX_TABLE_ROWS:
                say(f"the first {_MAX_TABLE_ROWS:,} hosts by name; --format jsonl lists all")
                break
            rows.append(_source_row(_source_line(source, now), source.until - now))
    columns = ("host", "pages", "last crawl", "active", "delay", "back-off")
    Table(columns, rows, frozenset({"pages", "delay"})).show()


def _source_line(source: Source, now: float) -> SourceLine:
    return SourceLine(
        source.host,
        source.group,
        source.pages,
        instant_text(source.last_crawl) if source.last_crawl else None,
        source.active,
        source.min_delay or None,
        source.delay if source.last_start else None,
        instant_text(source.until) if source.until > now else None,
        source.failures,
    )


def _source_row(line: SourceLine, rest_seconds: float) -> tuple[str, ...]:
    in_force = [] if line.delay is None else [f"{line.delay:g} s"]
    wanted = [] if line.min_delay is None else [f"at least {line.min_delay:g} s"]
    failures = f", {line.failures:,} failures" if line.failures else ""
    return (
        line.host,
        f"{line.pages:,}",
        line.last_crawl or "-",
        "yes" if line.active else "no",
        ", ".join(in_force + wanted) or "-",
        f"{duration_text(rest_seconds)}{failures}" if line.backs_off_until else "-",
    )


# -- servers -------------------------------------------------------------------------------------------


def with_pool(dsn: str, work: Callable[[PostgresPool], Awaitable[T]]) -> T:
    """Do `work` on a database whose tables fit."""

    async def run() -> T:
        await asyncio.to_thread(check_version, dsn)
        pool = PostgresPool(dsn, PostgresLimits(1, patience_seconds=_PATIENCE_SECONDS))
        try:
            return await work(pool)
        finally:
            await pool.close()

    return uvloop.run(run())


async def _bring_into_force(pool: PostgresPool, redis_url: str | None, job: str) -> None:
    if not redis_url:
        return
    try:
        async with _operator(redis_url) as schedule:
            await controls.restore_controls(schedule, pool, job)
    except BackendUnreachable as error:
        raise BackendUnreachable(
            f"{error}; it is noted in the database, and workers hear of it from there"
        ) from error


@asynccontextmanager
async def _operator(redis_url: str) -> AsyncIterator[RedisScheduler]:
    """Speak to the schedule as nobody's worker, and leave no trace of that."""
    async with on_schedule(redis_url, _OPERATOR) as operator:
        yield operator
        await operator.forget()


@asynccontextmanager
async def on_schedule(
    redis_url: str, job: str, frontier: FrontierSettings | None = None
) -> AsyncIterator[RedisScheduler]:
    """Speak to the schedule as one who works on a job."""
    schedule = RedisScheduler(
        job,
        RedisSettings(url=redis_url),
        frontier or FrontierSettings(),
        PolitenessSettings(),
        time.time,
        random.random,
    )
    await schedule.open()
    try:
        yield schedule
    finally:
        await schedule.close()


COMMANDS: list[click.Command] = [pause, stop, sources]
