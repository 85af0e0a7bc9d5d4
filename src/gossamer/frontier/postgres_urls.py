"""The table of URLs in a PostgreSQL ledger: the statements that look up, lock, write and list its rows.

Lock order, which every transaction keeps so that none can wait in a circle: what room is left (`postgres_room.py`) or the
switch of a host (`postgres_sweeps.py`), then rows of `urls` by fingerprint, then new
rows by fingerprint, then the books of a job (`postgres_books.py`), groups by name, and last the head of the job's log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gossamer.frontier.postgres_arrays import Bigints, Blobs, Floats, Integers, Texts
from gossamer.frontier.postgres_plan import Finding, Improvement, Plan, Requeuing, Settling
from gossamer.frontier.postgres_pool import Query
from gossamer.frontier.sqlite_rows import MAX_DETAIL, known_from, packed_extras
from gossamer.model.outcome import Found, State, Visit
from gossamer.model.request import Known, Request

#: Numbers that one value of the sequence stands for.
SEQ_BLOCK = 1024

_IS_VISIT, _IS_FOUND, _RETURNS = 1, 0, 2
_QUEUED, _REFUSED = int(State.QUEUED), int(State.REFUSED)

# One look at every URL of a batch. Those it may change are locked in the order of fingerprints; of the others it is
# enough that they exist. They must not be part of the insert: its conflict check would wait for whoever changes them.
_LOOK_UP = """
    WITH seen AS MATERIALIZED (
        SELECT u.fp, w.role = 1 OR u.depth > w.depth OR u.priority > w.priority
                     OR (w.role = 2 AND u.state = 3 AND u.visit = 1) AS matters
        FROM unnest(%s::bigint[], %s::integer[], %s::integer[], %s::integer[]) AS w(fp, depth, priority, role)
        CROSS JOIN LATERAL (
            SELECT fp, state, depth, priority, visit FROM urls WHERE job = %s::integer AND fp = w.fp OFFSET 0
        ) u
    ), locked AS MATERIALIZED (
        SELECT u.* FROM (SELECT fp FROM seen WHERE matters ORDER BY fp) s
        CROSS JOIN LATERAL (
            SELECT fp, state, reason, depth, priority, attempt, visit FROM urls WHERE job = %s::integer AND fp = s.fp
            FOR NO KEY UPDATE
        ) u
    )
    SELECT * FROM locked
    UNION ALL SELECT fp, NULL, NULL, NULL, NULL, NULL, NULL FROM seen WHERE NOT matters
"""
_INSERT = """
    INSERT INTO urls(job, fp, seq, host, url, state, reason, detail, priority, depth, parent, source, request)
    SELECT %s::integer, w.fp, w.seq, w.host, w.url, w.state, w.reason, w.detail, w.priority, w.depth,
           nullif(w.parent, w.fp), w.source, w.request
    FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::integer[], %s::text[], %s::text[],
                %s::integer[], %s::integer[], %s::bigint[], %s::text[], %s::bytea[])
        AS w(fp, seq, host, url, state, reason, detail, priority, depth, parent, source, request)
    ON CONFLICT (fp, job) DO NOTHING
"""
_OVERTAKEN = """
    SELECT w.fp, u.depth, u.priority FROM unnest(%s::bigint[], %s::bigint[]) AS w(fp, seq)
    CROSS JOIN LATERAL (SELECT seq, depth, priority FROM urls WHERE job = %s::integer AND fp = w.fp OFFSET 0) u
    WHERE u.seq <> w.seq
"""
# Changes are inserts that always meet the row they change, since it is locked: so they go by the key and by nothing
# else. An UPDATE that joins a list with the table reads all of it where the planner does not know yet how large it is.
_SETTLE = """
    INSERT INTO urls AS u(job, fp, state, reason, detail, status, attempt, settled_at, seq, host, priority, depth, source, url)
    SELECT %s::integer, w.*, %s::integer, %s::double precision, 0, 0, 0, 0, '', ''
    FROM unnest(%s::bigint[], %s::integer[], %s::text[], %s::text[], %s::integer[]) AS w(fp, state, reason, detail, status)
    ON CONFLICT (fp, job) DO UPDATE SET
        state = excluded.state, reason = excluded.reason, detail = excluded.detail, status = excluded.status,
        settled_at = excluded.settled_at, attempt = u.attempt + excluded.attempt
"""
_REQUEUE = """
    INSERT INTO urls(job, fp, attempt, tries, crashes, not_before, detail, host, request, state, seq, priority, depth,
                     source, url)
    SELECT %s::integer, *, 0, 0, 0, 0, '', ''
    FROM unnest(%s::bigint[], %s::integer[], %s::integer[], %s::integer[], %s::double precision[], %s::text[],
                %s::bigint[], %s::bytea[])
    ON CONFLICT (fp, job) DO UPDATE SET
        attempt = excluded.attempt, tries = excluded.tries, crashes = excluded.crashes, detail = excluded.detail,
        not_before = excluded.not_before, host = excluded.host, request = excluded.request
"""
_IMPROVE = """
    INSERT INTO urls(job, fp, depth, priority, parent, state, reason, seq, host, source, url)
    SELECT %s::integer, w.fp, w.depth, w.priority, nullif(w.parent, w.fp), w.state, w.reason, 0, 0, '', ''
    FROM unnest(%s::bigint[], %s::integer[], %s::integer[], %s::bigint[], %s::integer[], %s::text[])
        AS w(fp, depth, priority, parent, state, reason)
    ON CONFLICT (fp, job) DO UPDATE SET
        depth = excluded.depth, priority = excluded.priority, parent = excluded.parent, state = excluded.state,
        reason = excluded.reason
"""
_REOPEN = """
    INSERT INTO urls AS u(job, fp, request, seq, host, priority, depth, state, source, url)
    SELECT %s::integer, *, 0, 0, 0, 0, 0, '', '' FROM unnest(%s::bigint[], %s::bytea[])
    ON CONFLICT (fp, job) DO UPDATE SET
        state = 0, reason = '', request = excluded.request, attempt = u.attempt + 1, tries = 0, visit = u.visit + 1
"""
_FIELDS = """
    u.seq, u.fp, u.url, u.priority, u.depth, p.url, u.source, u.attempt, u.tries, u.crashes, u.not_before, u.request,
    u.etag, u.last_modified, u.visit
"""
_PARENT = "LEFT JOIN LATERAL (SELECT url FROM urls WHERE job = u.job AND fp = u.parent OFFSET 0) p ON true"
_READ = f"""
    SELECT s.host, {_FIELDS} FROM unnest(%s::bigint[]) WITH ORDINALITY AS w(fp, place)
    CROSS JOIN LATERAL (SELECT * FROM urls WHERE job = %s::integer AND fp = w.fp OFFSET 0) u
    JOIN sources s ON s.id = u.host {_PARENT} ORDER BY w.place
"""  # noqa: S608 - a constant
# Those that wait are looked for only where too few are due (LIMIT 0 reads nothing): with none, it would go through
# all that are due.
_TAKE = f"""
    WITH source AS MATERIALIZED (
        SELECT id FROM sources WHERE job = %s::integer AND host = %s
    ), due AS MATERIALIZED (
        SELECT 0 AS part, * FROM urls WHERE job = %s::integer AND state = 0 AND host = (SELECT id FROM source)
            AND not_before <= %s ORDER BY priority, seq LIMIT %s
    ), waiting AS (
        SELECT 1 AS part, * FROM urls WHERE job = %s::integer AND state = 0 AND host = (SELECT id FROM source)
            AND not_before > %s ORDER BY priority, seq LIMIT %s - (SELECT count(*) FROM due)
    )
    SELECT {_FIELDS} FROM (SELECT * FROM due UNION ALL SELECT * FROM waiting) u {_PARENT}
    ORDER BY u.part, u.priority, u.seq
"""  # noqa: S608 - a constant
_LIVE_HOSTS = """
    WITH RECURSIVE live(id) AS (
        (SELECT host FROM urls WHERE job = %s::integer AND state = 0 AND host > %s ORDER BY host LIMIT 1)
        UNION ALL
        SELECT (SELECT host FROM urls WHERE job = %s::integer AND state = 0 AND host > live.id ORDER BY host LIMIT 1)
        FROM live WHERE live.id IS NOT NULL
    )
    SELECT s.id, s.host FROM (SELECT id FROM live WHERE id IS NOT NULL LIMIT %s) l JOIN sources s ON s.id = l.id
"""
_HAS_LIVE = "SELECT 1 FROM urls WHERE job = %s::integer AND state = 0 LIMIT 1"
_SOURCES = "SELECT host, id FROM sources WHERE job = %s::integer AND host = ANY(%s::text[])"
# What was decided about a host holds for all jobs: each has a copy, so that the deletion of one does not undo it.
_ADD_SOURCES = """
    INSERT INTO sources(job, host, grp, active, min_delay)
    SELECT %s::integer, w.host, w.host, coalesce(d.active, true), coalesce(d.min_delay, 0)
    FROM unnest(%s::text[]) AS w(host)
    CROSS JOIN LATERAL (
        SELECT bool_and(active) AS active, max(min_delay) AS min_delay FROM sources WHERE host = w.host
    ) d
    ON CONFLICT DO NOTHING
"""


def look_up(job: int, visits: Sequence[Visit], found: Iterable[Found]) -> Query:
    """Read what is known of URLs, and lock those that these visits and findings may change."""
    wanted: dict[int, tuple[int, int, int]] = {}
    for each in found:
        request = each.request
        role = _RETURNS if request.redirected_from and request.url in request.redirected_from else _IS_FOUND
        rival = wanted.get(request.fingerprint)
        if rival is None:
            wanted[request.fingerprint] = request.depth, request.priority, role
        else:
            # The best of each: what is locked in vain does no harm.
            depth, priority, other = rival
            wanted[request.fingerprint] = (
                min(depth, request.depth),
                min(priority, request.priority),
                max(role, other),
            )
    for visit in visits:
        wanted[visit.known.request.fingerprint] = 0, 0, _IS_VISIT
    depths, priorities, roles = zip(*wanted.values(), strict=True) if wanted else ((), (), ())
    columns = Bigints(wanted), Integers(depths), Integers(priorities), Integers(roles)
    return Query(_LOOK_UP, (*columns, job, job))


def numbers(count: int) -> Query:
    """Take numbers for that many new URLs, in blocks."""
    blocks = -(-count // SEQ_BLOCK)
    return Query("SELECT nextval('url_seq') FROM generate_series(1, %s::integer)", (blocks,))


def numbered(items: Sequence[Finding], blocks: Sequence[tuple[int, ...]]) -> list[Known]:
    """Give numbers to findings in the order they were made: it decides between URLs of equal priority."""
    return [
        Known(item.found.request, blocks[place // SEQ_BLOCK][0] + place % SEQ_BLOCK)
        for place, item in enumerate(items)
    ]


def insert(job: int, items: Sequence[Finding], known: Sequence[Known], hosts: Mapping[str, int]) -> Query:
    """Insert what is new, in the order of fingerprints; whatever another has inserted meanwhile is left alone."""
    both = sorted(zip(known, items, strict=True), key=lambda pair: pair[0].request.fingerprint)
    requests = [item.request for item, _ in both]
    found = [item.found for _, item in both]
    # A page is never its own parent, so its fingerprint can stand for having none.
    parents = [item.found.request.fingerprint if item.parent is None else item.parent for _, item in both]
    columns = (
        Bigints([request.fingerprint for request in requests]),
        Bigints([item.seq for item, _ in both]),
        Bigints([hosts[request.host] for request in requests]),
        Texts([request.url for request in requests]),
        Integers([_REFUSED if each.refusal else _QUEUED for each in found]),
        Texts([each.refusal for each in found]),
        Texts([each.detail[:MAX_DETAIL] or None for each in found]),
        Integers([request.priority for request in requests]),
        Integers([request.depth for request in requests]),
        Bigints(parents),
        Texts([request.source for request in requests]),
        Blobs([packed_extras(request) for request in requests]),
    )
    return Query(_INSERT, (job, *columns))


def overtaken(job: int, known: Sequence[Known]) -> Query:
    """Name those that another transaction has inserted first."""
    return Query(
        _OVERTAKEN, (Bigints([k.request.fingerprint for k in known]), Bigints([k.seq for k in known]), job)
    )


def changes(job: int, plan: Plan, at: float, hosts: Mapping[str, int]) -> list[Query]:
    """Write what a plan says of known URLs."""
    queries = []
    if plan.settled:
        queries.append(settle(job, plan.settled, at, 1))
    if plan.requeued:
        queries.append(_requeue(job, plan.requeued, hosts))
    if plan.improved:
        queries.append(_improve(job, plan.improved))
    if plan.reopened:
        queries.append(_reopen(job, plan.reopened))
    return queries


def settle(job: int, settled: Sequence[Settling], at: float, attempts: int) -> Query:
    """Let URLs leave the queue. They must be locked."""
    fps, states, reasons, details, status = zip(*settled, strict=True)
    columns = Bigints(fps), Integers(states), Texts(reasons), Texts(details), Integers(status)
    return Query(_SETTLE, (job, attempts, at, *columns))


def _requeue(job: int, requeued: Sequence[Requeuing], hosts: Mapping[str, int]) -> Query:
    known = [item.known for item in requeued]
    columns = (
        Bigints([each.request.fingerprint for each in known]),
        Integers([each.attempt for each in known]),
        Integers([each.tries for each in known]),
        Integers([each.crashes for each in known]),
        Floats([each.not_before for each in known]),
        Texts([item.note for item in requeued]),
        Bigints([hosts[each.request.host] for each in known]),
        Blobs([packed_extras(each.request) for each in known]),
    )
    return Query(_REQUEUE, (job, *columns))


def _improve(job: int, improved: Sequence[Improvement]) -> Query:
    fps, depths, priorities, parents, states, reasons = zip(*improved, strict=True)
    stored = [fp if parent is None else parent for fp, parent in zip(fps, parents, strict=True)]
    columns = Bigints(fps), Integers(depths), Integers(priorities), Bigints(stored)
    return Query(_IMPROVE, (job, *columns, Integers(states), Texts(reasons)))


def _reopen(job: int, requests: Sequence[Request]) -> Query:
    fps = Bigints([request.fingerprint for request in requests])
    return Query(_REOPEN, (job, fps, Blobs([packed_extras(request) for request in requests])))


def read(job: int, fingerprints: Sequence[int]) -> Query:
    """Read URLs as requests, in this order: for `known_of`."""
    return Query(_READ, (Bigints(fingerprints), job))


def known_of(row: tuple[Any, ...]) -> Known:
    """Return the request that a row of `read` stands for."""
    return known_from(*row)


def take(job: int, host: str, limit: int, now: float) -> Query:
    """Ask for a host's live requests: those that are due, then those that wait."""
    return Query(_TAKE, (job, host, job, now, limit, job, now, limit))


def live_hosts(job: int, after: int, limit: int) -> Query:
    """Ask for hosts with live URLs by skipping through the index of live URLs: it cannot miss one."""
    return Query(_LIVE_HOSTS, (job, after, job, limit))


def has_live(job: int) -> Query:
    """Ask whether a live URL is left."""
    return Query(_HAS_LIVE, (job,))


def sources(job: int, hosts: Sequence[str]) -> Query:
    """Ask for the ids of hosts."""
    return Query(_SOURCES, (job, Texts(hosts)))


def add_sources(job: int, hosts: Iterable[str]) -> Query:
    """Make rows for hosts that have none."""
    return Query(_ADD_SOURCES, (job, Texts(sorted(hosts))))
