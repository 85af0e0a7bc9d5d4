"""The jobs of a PostgreSQL database: made by name, listed, paused, stopped and deleted."""

from __future__ import annotations

import msgspec

from gossamer.errors import UsageError
from gossamer.frontier.postgres_arrays import storable
from gossamer.frontier.postgres_pool import PostgresPool, Query, Session

#: A submit that was not heard of for so long has died.
DEAD_SUBMIT_SECONDS = 60.0
_DELETE_SECONDS = 3600.0
#: What has rows of a job, the job itself apart.
_TABLES = (
    "urls",
    "pages",
    "fetches",
    "log",
    "log_heads",
    "sources",
    "meta",
    "roots",
    "cursors",
    "notes",
    "counts",
    "totals",
    "robots",
    "robots_failures",
    "cookies",
    "contents",
    "near_contents",
)
_CREATE = """
    INSERT INTO jobs(name, spec, settings, created_at) VALUES (%s, %s, %s, %s::double precision)
    ON CONFLICT (name) DO NOTHING RETURNING id
"""
#: Asks for jobs as `JobRow` has them.
JOB_ROWS = """
    SELECT j.id, j.name, j.spec, j.settings, j.created_at, j.paused, j.stopped, coalesce(m.value, '')
    FROM jobs j LEFT JOIN meta m ON m.job = j.id AND m.key = 'seeding'
"""


class JobRow(msgspec.Struct, frozen=True):
    """A job as the database has it."""

    id: int
    name: str
    #: What makes it this job and no other, as text: two submits with another one are a mistake.
    spec: str
    #: The rest of its configuration, as text.
    settings: str
    created_at: float
    paused: bool
    stopped: bool
    #: How far seeding has come: empty before it began, `closed` when every seed was added. Whoever submits the same
    #: job again goes on from here.
    seeding: str


async def create_job(pool: PostgresPool, name: str, spec: str, settings: str, now: float) -> JobRow:
    """Make a job, or return the one of that name. Two who submit it at once get the same.

    Raises `UsageError` where the job of that name is another one.
    """

    async def work(session: Session) -> JobRow:
        (made,) = await session.run(Query(_CREATE, (storable(name), spec, settings, now)))
        for (job,) in made.rows:
            await session.run(Query("INSERT INTO log_heads VALUES (%s::integer, 0)", (job,)))
        (found,) = await session.commit(Query(f"{JOB_ROWS} WHERE j.name = %s", (name,)))
        return JobRow(*found.rows[0])

    job = await pool.transact(work)
    if job.spec != spec:
        raise UsageError(
            f"there is a job {name} with other seeds or another scope: choose another name, or delete it"
        )
    return job


async def open_job(pool: PostgresPool, name: str) -> JobRow:
    """Return the job of a name. Raises `UsageError` where there is none."""
    found = [job for job in await list_jobs(pool, name) if job.name == name]
    if not found:
        raise UsageError(f"there is no job {name} at {pool.place}: submit it first")
    return found[0]


async def list_jobs(pool: PostgresPool, name: str = "") -> list[JobRow]:
    """Return all jobs, or the one of a name, in the order they were made."""
    where, parameters = (" WHERE j.name = %s", (name,)) if name else ("", ())
    (found,) = await pool.read(Query(f"{JOB_ROWS}{where} ORDER BY j.id", parameters))
    return [JobRow(*row) for row in found.rows]


async def steer_job(pool: PostgresPool, job: int, *, paused: bool, stopped: bool) -> None:
    """Note whether workers should work on a job."""
    sql = "UPDATE jobs SET paused = %s, stopped = %s WHERE id = %s::integer"
    await pool.ask(Query(sql, (paused, stopped, job)))


async def change_settings(pool: PostgresPool, job: int, settings: str) -> None:
    """Note what a job is now to be done with; workers hear of it when they next open it."""
    await pool.ask(Query("UPDATE jobs SET settings = %s WHERE id = %s::integer", (settings, job)))


async def delete_job(pool: PostgresPool, name: str) -> None:
    """Delete a job and all it knows, its name last: a deletion that was cut short can be repeated."""
    job = await open_job(pool, name)
    await steer_job(pool, job.id, paused=True, stopped=True)
    for table in _TABLES:
        await _delete(pool, table, "job", job.id)
    await _delete(pool, "jobs", "id", job.id)


async def _delete(pool: PostgresPool, table: str, column: str, job: int) -> None:
    async def work(session: Session) -> None:
        statement = Query(f"DELETE FROM {table} WHERE {column} = %s::integer", (job,))  # noqa: S608 - our own names
        await session.commit(session.allow(_DELETE_SECONDS), statement)

    await pool.transact(work)
