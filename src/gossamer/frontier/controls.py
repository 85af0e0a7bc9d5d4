"""What operators decide about shared jobs and hosts: kept in PostgreSQL, brought into force in Redis.

A job is paused, stopped or running. A host is on or off and may have a least delay, both for all jobs of the database,
as the schedule has it: a site owner does not care which job asks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

import msgspec

from gossamer.errors import UsageError
from gossamer.frontier.postgres_pool import PostgresPool, Query
from gossamer.frontier.postgres_sweeps import hold, lock_switch, revive
from gossamer.frontier.redis_controls import Held
from gossamer.model.outcome import SWITCHED_OFF, Revival, State

Wish = Literal["pause", "stop", "resume"]
#: What a job is told to do: nothing special, or one of two.
Standing = Literal["running", "paused", "stopped"]

_MAX_ROUNDS = 20
_PAGE_ROWS = 1000

_JOB = "SELECT id, paused, stopped FROM jobs WHERE name = %s"
# Whoever stops a job means more than whoever pauses it.
_WISHES: dict[Wish, str] = {
    "pause": "paused = NOT old.stopped, stopped = old.stopped",
    "stop": "paused = false, stopped = true",
    "resume": "paused = false, stopped = false",
}
_STEER = """
    UPDATE jobs j SET {changes} FROM (SELECT id, paused, stopped FROM jobs WHERE name = %s FOR UPDATE) old
    WHERE j.id = old.id RETURNING old.paused, old.stopped, j.paused, j.stopped
"""
_STEERED_HOSTS = """
    SELECT host, bool_or(NOT active), max(min_delay) FROM sources WHERE NOT active OR min_delay > 0 GROUP BY host
"""
_IS_KNOWN = "SELECT 1 FROM sources WHERE host = %s AND job = (SELECT id FROM jobs WHERE name = %s)"
_SWITCH = "UPDATE sources SET active = %s WHERE host = %s"
_JOBS_OF_HOST = "SELECT job FROM sources WHERE host = %s ORDER BY job"
_SET_DELAY = "UPDATE sources SET min_delay = %s::double precision WHERE host = %s"
_SOURCES = """
    SELECT s.host, s.grp, s.pages, s.last_crawl, d.active, d.min_delay, coalesce(g.last_start, 0), coalesce(g.delay, 0),
           coalesce(g.until, 0), coalesce(g.failures, 0), s.robots_status, s.robots_fetched_at, s.crawl_delay
    FROM (SELECT * FROM sources WHERE job = %s::integer AND host > %s ORDER BY host LIMIT %s) s
    CROSS JOIN LATERAL (
        SELECT bool_and(active) AS active, max(min_delay) AS min_delay FROM sources WHERE host = s.host
    ) d
    LEFT JOIN LATERAL (SELECT * FROM groups WHERE grp = s.grp OFFSET 0) g ON true
    ORDER BY s.host
"""


class Schedule(Protocol):
    """The part of a shared schedule that obeys operators."""

    async def pause(self, job: str) -> None:
        """Let no worker lease URLs of a job until it is resumed."""
        ...

    async def stop(self, job: str) -> None:
        """Let no worker lease URLs of a job, for good."""
        ...

    async def resume(self, job: str) -> None:
        """Let a job go on."""
        ...

    async def switch(self, host: str, *, on: bool) -> None:
        """Let a host be leased from, or not, by any job."""
        ...

    async def set_delay(self, host: str, seconds: float) -> None:
        """Set the least delay of a host, for all jobs; 0 leaves each its own."""
        ...

    async def held(self, job: str) -> list[Held]:
        """Return what is in force for a job and for all hosts, as each partition has it."""
        ...


class Controls(msgspec.Struct, frozen=True):
    """What holds for one job: whether it runs, the hosts that are off, and the least delays of hosts."""

    #: Empty where nobody has looked yet.
    standing: Standing | Literal[""] = ""
    off: frozenset[str] = frozenset()
    delays: frozenset[tuple[str, float]] = frozenset()


class Steered(msgspec.Struct, frozen=True):
    """The effect of a wish."""

    before: Standing
    after: Standing


class Source(msgspec.Struct, frozen=True):
    """A host of a job, and how it is treated."""

    host: str
    group: str
    pages: int
    #: 0.0 before the first.
    last_crawl: float
    active: bool
    #: What an operator asked for; 0.0 for nothing.
    min_delay: float
    #: The clock of its politeness group, as of the last commit.
    last_start: float
    delay: float
    until: float
    failures: int
    #: What its robots.txt was last answered with, or one of those that stand for no answer; None before the first request.
    robots_status: int | None
    robots_fetched_at: float
    #: Seconds between two requests that its robots.txt asks for; 0.0 for nothing.
    crawl_delay: float


#: Before anybody has looked.
UNKNOWN = Controls()


async def steer(pool: PostgresPool, job: str, wish: Wish) -> Steered:
    """Note a wish about a job. A stopped job is not paused, but stays stopped. Raises `UsageError` for an unknown job."""
    sql = _STEER.format(changes=_WISHES[wish])
    ((rows, _),) = await pool.ask(Query(sql, (job,)))
    for was_paused, was_stopped, paused, stopped in rows:
        return Steered(_standing(was_paused, was_stopped), _standing(paused, stopped))
    raise _no_job(pool, job)


async def switch_host(pool: PostgresPool, job: str, host: str, *, on: bool) -> None:
    """Note that a host is on or off, for all jobs. Raises `UsageError` where `job` has no URL of it."""
    await _check_known(pool, job, host)
    await pool.ask(lock_switch(host), Query(_SWITCH, (on, host)))


async def settle_host(pool: PostgresPool, host: str, *, on: bool) -> int:
    """Hold the URLs of a host that is off, or queue them again when it is on, for all jobs; returns how many.

    Whatever is found later is held by the workers that find it.
    """
    ((jobs, _),) = await pool.ask(Query(_JOBS_OF_HOST, (host,)))
    which = Revival((State.HELD,), SWITCHED_OFF, host=host)
    changed = 0
    for (job,) in jobs:
        if on:
            changed += await revive(pool, job, which, _nothing)
        else:
            changed += await hold(pool, job, SWITCHED_OFF, host, _nothing)
    return changed


def _nothing() -> None:
    """Pass the boundary between a write and its commit."""


async def set_host_delay(pool: PostgresPool, job: str, host: str, seconds: float) -> None:
    """Note the least delay of a host, for all jobs; 0 for none. Raises `UsageError` where `job` has no URL of it."""
    await _check_known(pool, job, host)
    await pool.ask(Query(_SET_DELAY, (seconds, host)))


async def read_controls(pool: PostgresPool, job: str) -> Controls:
    """Return what holds for a job. Raises `UsageError` where there is no such job."""
    (found, _), (hosts, _) = await pool.read(Query(_JOB, (job,)), Query(_STEERED_HOSTS))
    for _, paused, stopped in found:
        return Controls(
            _standing(paused, stopped),
            frozenset(host for host, off, _ in hosts if off),
            frozenset((host, delay) for host, _, delay in hosts if delay > 0),
        )
    raise _no_job(pool, job)


async def restore_controls(
    schedule: Schedule, pool: PostgresPool, job: str, before: Controls = UNKNOWN
) -> Controls:
    """Make a schedule agree with what the database says about a job and all hosts; returns what that is.

    * Where they agree it costs one question to each, so a worker may do this whenever it looks around. With what was
      returned `before`, and no change since, the schedule is not even asked: it may have lost its copy meanwhile.
    * An operator writes to the database first. Whatever is decided while this runs is read again, or told after it by
      the one who decided: the last decision holds.
    """
    wanted = await read_controls(pool, job)
    for _ in range(_MAX_ROUNDS):
        if wanted == before or not await _tell(schedule, job, wanted):
            break
        before, wanted = wanted, await read_controls(pool, job)
    return wanted


async def _tell(schedule: Schedule, job: str, wanted: Controls) -> bool:
    """Tell a schedule where it differs from what is wanted; False where it does not."""
    parts = await schedule.held(job)
    word = "" if wanted.standing == "running" else wanted.standing
    differs = any(part.control != word for part in parts)
    hosts = {host for part in parts for host in wanted.off ^ part.off}
    slowed = {host for part in parts for host, _ in wanted.delays ^ part.delays}
    if differs:
        await _tell_standing(schedule, job, word)
    for host in sorted(hosts):
        await schedule.switch(host, on=host not in wanted.off)
    delays = dict(wanted.delays)
    for host in sorted(slowed):
        await schedule.set_delay(host, delays.get(host, 0.0))
    return differs or bool(hosts) or bool(slowed)


async def _tell_standing(schedule: Schedule, job: str, word: str) -> None:
    match word:
        case "paused":
            await schedule.pause(job)
        case "stopped":
            await schedule.stop(job)
        case _:
            await schedule.resume(job)


async def sources(pool: PostgresPool, job: str) -> AsyncGenerator[Source, None]:
    """Yield the hosts of a job by name, a page at a time. Raises `UsageError` where there is no such job."""
    ((found, _),) = await pool.ask(Query(_JOB, (job,)))
    if not found:
        raise _no_job(pool, job)
    after = ""
    while True:
        ((rows, _),) = await pool.ask(Query(_SOURCES, (found[0][0], after, _PAGE_ROWS)))
        for row in rows:
            yield Source(*row)
        if len(rows) < _PAGE_ROWS:
            return
        after = rows[-1][0]


async def _check_known(pool: PostgresPool, job: str, host: str) -> None:
    ((jobs, _), (known, _)) = await pool.ask(Query(_JOB, (job,)), Query(_IS_KNOWN, (host, job)))
    if not jobs:
        raise _no_job(pool, job)
    if not known:
        raise UsageError(f"job {job} has no URL of {host}: `gossamer sources {job}` lists its hosts")


def _standing(paused: bool, stopped: bool) -> Standing:
    return "stopped" if stopped else "paused" if paused else "running"


def _no_job(pool: PostgresPool, job: str) -> UsageError:
    return UsageError(f"there is no job {job} at {pool.place}: `gossamer jobs` lists those there are")
