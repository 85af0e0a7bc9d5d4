"""Changes to many URLs of a PostgreSQL ledger at once: hold, revive, deepen. Piece by piece, each a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from gossamer.frontier.postgres_books import counts
from gossamer.frontier.postgres_pool import PostgresPool, Query, Session
from gossamer.model.outcome import SWITCHED_OFF, Revival, State

#: Rows changed in one transaction: locks are held for a moment only.
_ROWS_AT_ONCE = 5000
_DEEPEN_SECONDS = 600.0

# Those that match are read first, then locked in the order of fingerprints and looked at again. The last row says how
# many there were, so that the caller knows whether to go on.
_CHANGE = """
    WITH matching AS MATERIALIZED (
        SELECT u.fp, u.state FROM urls u WHERE u.job = %s::integer AND {condition} LIMIT {rows}
    ), locked AS MATERIALIZED (
        SELECT u.* FROM (SELECT fp, state FROM matching ORDER BY fp) s CROSS JOIN LATERAL (
            SELECT fp, state, reason FROM urls WHERE job = %s::integer AND fp = s.fp AND state = s.state
            FOR NO KEY UPDATE
        ) u
    ), done AS (
        INSERT INTO urls AS u(job, fp, seq, host, priority, depth, state, source, url)
        SELECT %s::integer, fp, 0, 0, 0, 0, 0, '', '' FROM locked
        ON CONFLICT (fp, job) DO UPDATE SET {change}
    )
    SELECT state, reason, count(*) FROM locked GROUP BY state, reason
    UNION ALL SELECT -1, '', count(*) FROM matching
"""
# The two indexes together have every URL of a job.
_NEARER = """
    WITH mine AS (
        SELECT fp, parent, depth, source FROM urls WHERE job = %s::integer AND state = 0 AND parent IS NOT NULL
        UNION ALL
        SELECT fp, parent, depth, source FROM urls WHERE job = %s::integer AND state <> 0 AND parent IS NOT NULL
    ), nearer AS MATERIALIZED (
        SELECT u.fp, p.depth + (u.source = 'link')::integer AS depth
        FROM mine u CROSS JOIN LATERAL (SELECT depth FROM urls WHERE job = %s::integer AND fp = u.parent OFFSET 0) p
        WHERE u.depth > p.depth + (u.source = 'link')::integer
    ), locked AS MATERIALIZED (
        SELECT u.fp, n.depth FROM (SELECT * FROM nearer ORDER BY fp) n CROSS JOIN LATERAL (
            SELECT fp FROM urls WHERE job = %s::integer AND fp = n.fp FOR NO KEY UPDATE
        ) u
    )
    INSERT INTO urls AS u(job, fp, depth, seq, host, priority, state, source, url)
    SELECT %s::integer, fp, depth, 0, 0, 0, 0, '', '' FROM locked
    ON CONFLICT (fp, job) DO UPDATE SET depth = least(u.depth, excluded.depth)
"""
_HAS_DEPTH = "SELECT 1 FROM urls WHERE job = %s::integer AND state = 6 AND reason = 'depth' LIMIT 1"
_REVIVED = "state = 0, reason = '', not_before = 0, crashes = 0, tries = 0, attempt = u.attempt + 1"
_IS_OFF = "EXISTS (SELECT 1 FROM sources o WHERE o.host = %s AND NOT o.active)"
#: First half of the key of the lock on switching a host.
_SWITCH = 0x676F7377
_OF_HOST = "u.host = (SELECT id FROM sources WHERE job = u.job AND host = %s)"

#: Called when a piece is written, before it is committed.
Written = Callable[[], None]


async def hold(pool: PostgresPool, job: int, reason: str, host: str, written: Written) -> int:
    """Move queued URLs, of one host or of all, to held; for `SWITCHED_OFF` only while that host is switched off."""
    condition, parameters = "u.state = 0", []
    change, lock = "state = 1, reason = %s, attempt = u.attempt + 1", []
    if host:
        condition, parameters = f"{condition} AND {_OF_HOST}", [host]
    if reason == SWITCHED_OFF:
        # At its attempt, so that a visit under way still counts.
        condition, change = f"{condition} AND {_IS_OFF}", "state = 1, reason = %s"
        parameters, lock = [host, host], [lock_switch(host)]
    statement = _CHANGE.format(condition=condition, change=change, rows=_ROWS_AT_ONCE)
    query = Query(statement, (job, *parameters, job, job, reason))
    return await _sweep(pool, job, query, (int(State.HELD), reason), written, *lock)


def lock_switch(host: str) -> Query:
    """Be the only one who switches a host or holds its URLs for that, until the commit. Before any row is locked.

    Otherwise whoever holds what was switched off a moment ago could come after whoever revives it.
    """
    return Query("SELECT pg_advisory_xact_lock(%s::integer, hashtext(%s))", (_SWITCH, host))


async def revive(pool: PostgresPool, job: int, which: Revival, written: Written) -> int:
    """Queue URLs again that match and are not live."""
    condition, parameters = _condition(which)
    statement = _CHANGE.format(condition=condition, change=_REVIVED, rows=_ROWS_AT_ONCE)
    query = Query(statement, (job, *parameters, job, job))
    return await _sweep(pool, job, query, (int(State.QUEUED), ""), written)


def _condition(which: Revival) -> tuple[str, list[object]]:
    # Constants, so that the planner sees that the index of settled URLs has them all.
    states = ",".join(str(int(state)) for state in which.states)
    clauses = ["u.state <> 0 AND u.state NOT IN (2, 3)", f"u.state IN ({states})"]
    parameters: list[object] = []
    asked: list[tuple[str, object]] = [("u.reason <> %s", reason) for reason in which.except_reasons]
    if which.reason:
        asked.append(("u.reason = %s", which.reason))
    if which.host:
        asked.append((_OF_HOST, which.host))
    if which.fingerprint is not None:
        asked.append(("u.fp = %s::bigint", which.fingerprint))
    if which.max_depth is not None:
        asked.append(("u.depth <= %s::integer", which.max_depth))
    if which.pages_below is not None:
        fewer = "EXISTS (SELECT 1 FROM sources s WHERE s.id = u.host AND s.pages < %s::bigint)"
        asked.append((fewer, which.pages_below))
    for clause, value in asked:
        clauses.append(clause)
        parameters.append(value)
    return " AND ".join(clauses), parameters


async def _sweep(
    pool: PostgresPool, job: int, query: Query, after: tuple[int, str], written: Written, *before: Query
) -> int:
    changed = 0

    async def work(session: Session) -> tuple[int, int]:
        *_, result = await session.run(*before, query)
        moved = {(state, reason): n for state, reason, n in result.rows if state >= 0}
        deltas = Counter({before: -n for before, n in moved.items()})
        deltas[after] += sum(moved.values())
        await session.run(*counts(job, deltas))
        written()
        await session.commit()
        return sum(moved.values()), result.rows[-1][2]

    while True:
        done, matching = await pool.transact(work)
        changed += done
        if matching < _ROWS_AT_ONCE:
            return changed


async def deepen(pool: PostgresPool, job: int, max_depth: int, written: Written) -> int:
    """Let a page that was found nearer after it was fetched bring its links nearer too, as far as that leads."""

    async def work(session: Session) -> None:
        (refused,) = await session.run(Query(_HAS_DEPTH, (job,)))
        # It reads every URL of the job.
        await session.run(session.allow(_DEEPEN_SECONDS))
        while refused.rows and (await session.run(Query(_NEARER, (job,) * 5)))[0].changed:
            pass
        written()
        await session.commit()

    await pool.transact(work)
    return await revive(pool, job, Revival((State.REFUSED,), "depth", max_depth=max_depth), written)
