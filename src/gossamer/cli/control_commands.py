"""The commands that steer jobs: `pause`, `stop`, `sources`, and what `resume` does to a shared job."""

from __future__ import annotations

import math
import os
import shlex
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import click
import msgspec

from gossamer.cli.backends import Backends, jobs_dir_option, server_options
from gossamer.cli.job_lookup import find_job, job_is_locked
from gossamer.cli.operating import bring_into_force, check_client, with_pool
from gossamer.cli.options import GroupedCommand
from gossamer.cli.terminal import Table, escape, escape_json, say, write_lines
from gossamer.config.redis import RedisSettings
from gossamer.errors import UsageError
from gossamer.frontier import controls
from gossamer.frontier.controls import Source, Steered, Wish
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.model.outcome import ROBOTS_ASSUMED, ROBOTS_UNREACHABLE
from gossamer.model.url import canonicalise, host_of
from gossamer.observe.report import instant_text
from gossamer.observe.wording import counted, duration_text

_MAX_DELAY_SECONDS = 7 * 86_400.0
_NO_ANSWER = {None: "-", ROBOTS_UNREACHABLE: "unreachable", ROBOTS_ASSUMED: "unreachable: given up"}
#: A robots.txt with such a status, or a higher one, has no rules.
_NO_RULES = 300
#: Hosts that a table shows; whoever wants more than can be read wants lines.
_MAX_TABLE_ROWS = 1000
_DONE = {"paused": "paused", "stopped": "stopped", "running": "resumed"}

_job = click.argument("job")


# -- pause, stop and resume ----------------------------------------------------------------------------


@click.command(cls=GroupedCommand)
@_job
@jobs_dir_option
@server_options
def pause(job: str, jobs_dir: Path, backends: Backends) -> None:
    """Let a job rest: what is under way is finished, and nothing more is begun until `resume`."""
    _rest(job, "pause", backends, jobs_dir)


@click.command(cls=GroupedCommand)
@_job
@jobs_dir_option
@server_options
def stop(job: str, jobs_dir: Path, backends: Backends) -> None:
    """End the work on a job: what is under way is finished, and its workers leave it. `resume` takes it up again."""
    _rest(job, "stop", backends, jobs_dir)


def _rest(job: str, wish: Wish, backends: Backends, jobs_dir: Path) -> None:
    if backends.postgres:
        steer_shared(job, wish, backends)
    else:
        _end_local(job, jobs_dir)


async def _as_it_is(_pool: PostgresPool) -> None:
    """Change nothing."""


def steer_shared(
    job: str, wish: Wish, backends: Backends, change: Callable[[PostgresPool], Awaitable[None]] = _as_it_is
) -> None:
    """Pause, stop or resume a job in a database, tell Redis where it is named, and say what that means.

    `change` comes first: a job that cannot be changed is left as it is.
    """
    check_client(backends.redis)

    async def work(pool: PostgresPool) -> Steered:
        await change(pool)
        steered = await controls.steer(pool, job, wish)
        await bring_into_force(pool, backends.redis, job)
        return steered

    steered = with_pool(backends, work)
    again = "already " if steered.before == steered.after else ""
    if wish == "pause" and steered.after == "stopped":
        raise UsageError(f"job {job} is stopped: `gossamer resume {shlex.quote(job)}` lets it go on")
    state = "running" if again and steered.after == "running" else _DONE[steered.after]
    lines = [f"Job {escape(job)} is {again}{state}."]
    if steered.after != "running":
        lines.append("What is under way is finished; `gossamer resume` with the same servers lets it go on.")
    write_lines(lines)
    _say_when(backends.redis)


def _say_when(redis: RedisSettings | None) -> None:
    if redis is None:
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
    #: 0 where it could not be had, -1 where it could not be had for so long that an older one holds; null before that.
    robots_status: int | None
    robots_fetched_at: str | None
    #: What robots.txt asks for; null for nothing.
    crawl_delay: float | None


@click.command(cls=GroupedCommand)
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
@server_options
def sources(
    job: str,
    off: tuple[str, ...],
    on: tuple[str, ...],
    delays: tuple[tuple[str, float], ...],
    style: str,
    backends: Backends,
) -> None:
    """List the hosts of a shared job and how each is treated. Hosts are switched for all jobs of the database."""
    backends.database()
    switched = {_host(host): False for host in off} | {_host(host): True for host in on}
    if len(switched) < len({*off}) + len({*on}):
        raise UsageError("--off and --on name the same host: decide on one")
    set_to = {_host(host): _checked_delay(host, seconds) for host, seconds in delays}
    if switched or set_to:
        check_client(backends.redis)
        moved = with_pool(backends, lambda pool: _change_hosts(pool, backends.redis, job, switched, set_to))
        write_lines(_change_lines(switched, set_to, moved))
        _say_when(backends.redis)
    else:
        with_pool(backends, lambda pool: _show_sources(pool, job, style))


def _host(text: str) -> str:
    """Return a host as the ledger spells it: lower case, punycode, no port."""
    return host_of(canonicalise(f"http://{text}/"))


def _checked_delay(host: str, seconds: float) -> float:
    if not (math.isfinite(seconds) and 0 <= seconds <= _MAX_DELAY_SECONDS):
        raise UsageError(f"--delay {host}: give seconds from 0 to {_MAX_DELAY_SECONDS:.0f}, not {seconds:g}")
    return seconds


async def _change_hosts(
    pool: PostgresPool,
    redis: RedisSettings | None,
    job: str,
    switched: dict[str, bool],
    delays: dict[str, float],
) -> dict[str, int]:
    """Do what was asked for; returns how many URLs of each host were held or queued again."""
    for host, is_on in switched.items():
        await controls.switch_host(pool, job, host, on=is_on)
    for host, seconds in delays.items():
        await controls.set_host_delay(pool, job, host, seconds)
    moved: dict[str, int] = {}
    try:
        # First: it takes effect at once, and millions of URLs take a while.
        await bring_into_force(pool, redis, job)
    finally:
        for host, is_on in switched.items():
            moved[host] = await controls.settle_host(pool, host, on=is_on)
    return moved


def _change_lines(switched: dict[str, bool], delays: dict[str, float], moved: dict[str, int]) -> list[str]:
    lines = [
        f"{host} is {'on' if is_on else 'off'}, for all jobs of this database:"
        f" {counted(moved[host], 'URL')} {'queued again' if is_on else 'held'}."
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
    columns = ("host", "pages", "last crawl", "active", "delay", "back-off", "robots.txt")
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
        source.robots_status,
        instant_text(source.robots_fetched_at) if source.robots_fetched_at else None,
        source.crawl_delay or None,
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
        _robots_text(line.robots_status) + (f", {line.crawl_delay:g} s" if line.crawl_delay else ""),
    )


def _robots_text(status: int | None) -> str:
    if status is None or status <= 0:
        return _NO_ANSWER[status]
    return str(status) if status < _NO_RULES else f"{status}: all allowed"


COMMANDS: list[click.Command] = [pause, stop, sources]
