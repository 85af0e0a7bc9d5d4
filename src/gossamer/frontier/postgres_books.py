"""What a PostgreSQL ledger keeps besides URLs and records: fetches, robots.txt, cookies, clocks, outputs and numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import zstandard

from gossamer.frontier.postgres_arrays import Bigints, Blobs, Floats, Integers, Texts, storable
from gossamer.frontier.postgres_pool import Query
from gossamer.model.outcome import (
    ROBOTS_ASSUMED,
    ROBOTS_UNREACHABLE,
    Cursor,
    GroupState,
    RobotsFile,
    StoredCookie,
    Visit,
)
from gossamer.model.url import host_of
from gossamer.policy.cookies import MAX_COOKIES

#: First half of the key of a job's lock on its books.
_BOOKS = 0x676F7373
#: Cookies whose removal is remembered, the newest: until every worker has looked, about a second later.
MAX_REMOVED_COOKIES = 500
_NO_ANSWER = frozenset({ROBOTS_UNREACHABLE, ROBOTS_ASSUMED})
_NEVER_ASKED = RobotsFile("", 0.0, ROBOTS_UNREACHABLE, b"", 0)

_FETCHES = """
    INSERT INTO fetches(job, worker, fp, url, grp, kind, attempt, started_at, delay, elapsed, status, wire_bytes, problem,
                        robots)
    SELECT %s::integer, %s, CASE w.kind WHEN 'page' THEN w.fp END, w.url, w.grp, w.kind, w.attempt, w.started_at, w.delay,
           w.elapsed, w.status, w.wire_bytes, w.problem, w.robots
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::integer[], %s::double precision[],
                %s::double precision[], %s::double precision[], %s::integer[], %s::bigint[], %s::text[], %s::bigint[])
        AS w(fp, url, grp, kind, attempt, started_at, delay, elapsed, status, wire_bytes, problem, robots)
"""
# One row for all workers of a job: whoever numbers its commit is alone until the commit is seen by everyone. So no
# reader can meet a position and later one below it. Of a job that was deleted there is no head, and nothing may be written:
# it has no position, which the log refuses.
_HEAD = """
    WITH head AS (
        UPDATE log_heads SET position = position + 1 WHERE job = %s::integer RETURNING position
    )
    INSERT INTO log(job, position, number, batch, worker, committed_at, records, lost, duplicates)
    SELECT %s::integer, position, %s::bigint, %s, %s, %s::double precision, %s::integer, %s, %s
    FROM (VALUES (1)) AS one LEFT JOIN head ON true
    RETURNING position
"""
_SOURCES = """
    INSERT INTO sources AS s(job, host, grp, pages, last_crawl, robots_status, robots_fetched_at, crawl_delay)
    SELECT %s::integer, w.host, w.host, w.n, CASE WHEN w.n > 0 THEN %s::double precision ELSE 0 END,
           CASE WHEN w.fetched_at > 0 THEN w.status END, w.fetched_at, w.crawl_delay
    FROM unnest(%s::text[], %s::integer[], %s::integer[], %s::double precision[], %s::double precision[])
        AS w(host, n, status, fetched_at, crawl_delay)
    ON CONFLICT (host, job) DO UPDATE SET
        pages = s.pages + excluded.pages, last_crawl = greatest(s.last_crawl, excluded.last_crawl),
        robots_fetched_at = greatest(s.robots_fetched_at, excluded.robots_fetched_at),
        robots_status = CASE WHEN excluded.robots_fetched_at > s.robots_fetched_at THEN excluded.robots_status
                             ELSE s.robots_status END,
        crawl_delay = CASE WHEN excluded.robots_fetched_at > s.robots_fetched_at THEN excluded.crawl_delay
                           ELSE s.crawl_delay END
"""
_GROUPS = """
    INSERT INTO groups AS g(grp, last_start, delay, until, failures, slowness)
    SELECT * FROM unnest(%s::text[], %s::double precision[], %s::double precision[], %s::double precision[],
                         %s::integer[], %s::double precision[])
    ON CONFLICT (grp) DO UPDATE SET
        last_start = greatest(g.last_start, excluded.last_start), until = greatest(g.until, excluded.until),
        delay = CASE WHEN excluded.last_start >= g.last_start THEN excluded.delay ELSE g.delay END,
        failures = CASE WHEN excluded.last_start >= g.last_start THEN excluded.failures ELSE g.failures END,
        slowness = CASE WHEN excluded.last_start >= g.last_start THEN excluded.slowness ELSE g.slowness END
"""
_CURSORS = """
    INSERT INTO cursors(job, output, position, "offset", records)
    SELECT %s::integer, * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT (job, output) DO UPDATE SET
        position = excluded.position, "offset" = excluded."offset", records = excluded.records
"""
_COUNTS = """
    INSERT INTO counts(job, state, reason, n) SELECT %s::integer, * FROM unnest(%s::integer[], %s::text[], %s::bigint[])
"""
_TOTALS = "INSERT INTO totals(job, name, n) SELECT %s::integer, * FROM unnest(%s::text[], %s::bigint[])"
_FOLD_COUNTS = """
    WITH old AS (DELETE FROM counts WHERE job = %s::integer RETURNING state, reason, n)
    INSERT INTO counts SELECT %s::integer, state, reason, sum(n) FROM old GROUP BY state, reason HAVING sum(n) <> 0
"""
_FOLD_TOTALS = """
    WITH old AS (DELETE FROM totals WHERE job = %s::integer RETURNING name, n)
    INSERT INTO totals SELECT %s::integer, name, sum(n) FROM old GROUP BY name
"""
_ROBOTS = """
    INSERT INTO robots(job, origin, fetched_at, status, version, body)
    SELECT %s::integer, * FROM unnest(%s::text[], %s::double precision[], %s::integer[], %s::bigint[], %s::bytea[])
    ON CONFLICT DO NOTHING
"""
_ROBOTS_FAILED = """
    INSERT INTO robots_failures(job, origin, since) VALUES (%s::integer, %s, %s::double precision) ON CONFLICT DO NOTHING
"""
_ROBOTS_ANSWERED = "DELETE FROM robots_failures WHERE job = %s::integer AND origin = %s"
# A cookie that a server removed leaves a row for a while, under a key that no cookie has (a line end before its own): workers
# that have the cookie read it as they read a newer one. What it holds has expired, also for workers that know of no such rows.
_DROP_COOKIES = "DELETE FROM cookies WHERE job = %s::integer AND key = ANY(%s::text[])"
_REMOVE_COOKIES = """
    WITH gone AS (DELETE FROM cookies WHERE job = %s::integer AND key = ANY(%s::text[]) RETURNING key)
    INSERT INTO cookies(job, key, data)
    SELECT %s::integer, chr(10) || w.key, w.data
    FROM unnest(%s::text[], %s::bytea[]) WITH ORDINALITY AS w(key, data, place)
    WHERE w.key IN (SELECT key FROM gone) ORDER BY w.place
    ON CONFLICT (job, key) DO UPDATE SET id = DEFAULT, data = excluded.data
"""
_ADD_COOKIES = """
    INSERT INTO cookies(job, key, data) SELECT %s::integer, * FROM unnest(%s::text[], %s::bytea[])
"""
_TRIM_COOKIES = """
    DELETE FROM cookies WHERE job = %s::integer AND id <=
        (SELECT id FROM cookies WHERE job = %s::integer AND left(key, 1) <> chr(10) ORDER BY id DESC LIMIT 1 OFFSET %s)
"""
_TRIM_REMOVED = """
    DELETE FROM cookies WHERE job = %s::integer AND left(key, 1) = chr(10) AND id <=
        (SELECT id FROM cookies WHERE job = %s::integer AND left(key, 1) = chr(10) ORDER BY id DESC LIMIT 1 OFFSET %s)
"""
_COOKIES = "SELECT data FROM cookies WHERE job = %s::integer AND left(key, 1) <> chr(10) ORDER BY id"
_COOKIES_AFTER = "SELECT id, data FROM cookies WHERE job = %s::integer AND id > %s::bigint ORDER BY id"
_ROOTS = """
    INSERT INTO roots(job, root) SELECT %s::integer, * FROM unnest(%s::text[]) ON CONFLICT DO NOTHING
"""
_NOTES = """
    INSERT INTO notes(job, at, worker, level, url, note)
    SELECT %s::integer, %s::double precision, %s, 'warning', * FROM unnest(%s::text[], %s::text[])
"""
_HOST_INFO = """
    SELECT s.pages, o.is_off IS NULL, g.grp, g.last_start, g.delay, g.until, g.failures, g.slowness
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS w(host, grp, place)
    LEFT JOIN LATERAL (SELECT pages FROM sources WHERE job = %s::integer AND host = w.host OFFSET 0) s ON true
    LEFT JOIN LATERAL (SELECT true AS is_off FROM sources WHERE host = w.host AND NOT active LIMIT 1) o ON true
    LEFT JOIN LATERAL (SELECT * FROM groups WHERE grp = w.grp OFFSET 0) g ON true
    ORDER BY w.place
"""
_compress = zstandard.ZstdCompressor(level=1).compress


def lock_books(job: int) -> Query:
    """Be the only one who writes what a job knows of robots.txt, cookies, roots and contents, until the commit."""
    return Query("SELECT pg_advisory_xact_lock(%s::integer, %s::integer)", (_BOOKS, job))


def fetches(job: int, worker: str, visits: Sequence[Visit]) -> list[Query]:
    """Write the fetch log. A row names its URL unless the row of that URL does."""
    rows = [(visit.known, fetch) for visit in visits for fetch in visit.fetches]
    if not rows:
        return []
    made = [fetch for _, fetch in rows]
    urls = [
        None if fetch.kind == "page" and fetch.url == known.request.url else fetch.url
        for known, fetch in rows
    ]
    columns = (
        Bigints([known.request.fingerprint for known, _ in rows]),
        Texts(urls),
        Texts([fetch.group for fetch in made]),
        Texts([fetch.kind for fetch in made]),
        Integers([known.attempt for known, _ in rows]),
        Floats([fetch.started_at for fetch in made]),
        Floats([fetch.delay for fetch in made]),
        Floats([fetch.elapsed for fetch in made]),
        Integers([fetch.status for fetch in made]),
        Bigints([fetch.wire_bytes for fetch in made]),
        Texts([fetch.problem for fetch in made]),
        Bigints([fetch.robots for fetch in made]),
    )
    return [Query(_FETCHES, (job, worker, *columns))]


def sources(job: int, pages: Sequence[Visit], visits: Sequence[Visit], at: float) -> list[Query]:
    """Count page records towards their hosts, and note what the newest robots.txt that was read of a host said.

    Only under the lock of the log's head: whoever holds a row here and then waits for the head waits for ever. By
    name, as whoever changes several hosts does.
    """
    counted = Counter(visit.known.request.host for visit in pages)
    files = sorted((file for visit in visits for file in visit.robots), key=lambda file: file.fetched_at)
    newest = {host_of(f"{file.origin}/"): file for file in files}
    hosts = sorted({*counted, *newest})
    if not hosts:
        return []
    said = [newest.get(host, _NEVER_ASKED) for host in hosts]
    columns = (
        Texts(hosts),
        Integers([counted[host] for host in hosts]),
        Integers([file.status for file in said]),
        Floats([file.fetched_at for file in said]),
        Floats([file.crawl_delay for file in said]),
    )
    return [Query(_SOURCES, (job, at, *columns))]


def number() -> Query:
    """Take the number that the pages of a commit go by."""
    return Query("SELECT nextval('commit_seq')")


def log_entry(
    job: int, number: int, batch: str, worker: str, at: float, records: int, lost: bytes, duplicates: bytes
) -> Query:
    """Give the commit its position in the record log. Everything after it keeps other commits of the job waiting."""
    return Query(_HEAD, (job, job, number, batch, worker, at, records, lost, duplicates))


def groups(states: Sequence[GroupState]) -> list[Query]:
    """Keep the clocks of politeness groups: of two states the later start counts, and the later rest."""
    if not states:
        return []
    ordered = [state for _, state in sorted({state.group: state for state in states}.items())]
    columns = (
        Texts([state.group for state in ordered]),
        Floats([state.last_start for state in ordered]),
        Floats([state.delay for state in ordered]),
        Floats([state.until for state in ordered]),
        Integers([state.failures for state in ordered]),
        Floats([state.slowness for state in ordered]),
    )
    return [Query(_GROUPS, columns)]


def cursors(job: int, kept: Sequence[Cursor]) -> list[Query]:
    """Keep how far outputs have come."""
    if not kept:
        return []
    ordered = [cursor for _, cursor in sorted({cursor.output: cursor for cursor in kept}.items())]
    columns = (
        Texts([cursor.output for cursor in ordered]),
        Bigints([cursor.position for cursor in ordered]),
        Bigints([cursor.offset for cursor in ordered]),
        Bigints([cursor.records for cursor in ordered]),
    )
    return [Query(_CURSORS, (job, *columns))]


def counts(job: int, deltas: Mapping[tuple[int, str], int]) -> list[Query]:
    """Add to the numbers of URLs by state and reason."""
    rows = [(state, reason, n) for (state, reason), n in deltas.items() if n]
    if not rows:
        return []
    states, reasons, numbers = zip(*rows, strict=True)
    return [Query(_COUNTS, (job, Integers(states), Texts(reasons), Bigints(numbers)))]


def totals(job: int, visits: Sequence[Visit], records: int) -> list[Query]:
    """Add to the running totals."""
    made = [fetch for visit in visits for fetch in visit.fetches]
    more = {"records": records, "fetches": len(made), "wire_bytes": sum(fetch.wire_bytes for fetch in made)}
    some = {name: n for name, n in more.items() if n}
    return [Query(_TOTALS, (job, Texts(list(some)), Bigints(some.values())))] if some else []


def fold(job: int) -> tuple[Query, Query]:
    """Sum up the numbers. Those that are being added meanwhile stay as they are."""
    return Query(_FOLD_COUNTS, (job, job)), Query(_FOLD_TOTALS, (job, job))


def robots(job: int, files: Sequence[RobotsFile]) -> list[Query]:
    """Store what was read or assumed, and note when a row of failures began or ended."""
    queries = [
        Query(_ROBOTS_FAILED, (job, storable(file.origin), file.fetched_at))
        if file.status in _NO_ANSWER
        else Query(_ROBOTS_ANSWERED, (job, storable(file.origin)))
        for file in files
    ]
    kept = [file for file in files if file.status != ROBOTS_UNREACHABLE]
    if kept:
        columns = (
            Texts([file.origin for file in kept]),
            Floats([file.fetched_at for file in kept]),
            Integers([file.status for file in kept]),
            Bigints([file.version for file in kept]),
            Blobs([_compress(file.body) for file in kept]),
        )
        queries.append(Query(_ROBOTS, (job, *columns)))
    return queries


def cookies(job: int, stored: Sequence[StoredCookie]) -> list[Query]:
    """Keep the newest cookies, in the order they were set."""
    if not stored:
        return []
    last: dict[str, StoredCookie] = {}
    for cookie in stored:
        # One that is set again becomes the newest.
        last.pop(cookie.key, None)
        last[cookie.key] = cookie
    gone = {key: cookie.data for key, cookie in last.items() if cookie.removed}
    others = [key for key in last if key not in gone]
    kept = {key: last[key].data for key in others if last[key].data}
    queries = [
        Query(_DROP_COOKIES, (job, Texts([*others, *(f"\n{key}" for key in kept)]))),
        Query(_ADD_COOKIES, (job, Texts(list(kept)), Blobs(list(kept.values())))),
        Query(_TRIM_COOKIES, (job, job, MAX_COOKIES)),
    ]
    if gone:
        keys = Texts(list(gone))
        queries.append(Query(_REMOVE_COOKIES, (job, keys, job, keys, Blobs(list(gone.values())))))
        queries.append(Query(_TRIM_REMOVED, (job, job, MAX_REMOVED_COOKIES)))
    return queries


def all_cookies(job: int) -> Query:
    """Ask for the cookies there are, in the order they were set."""
    return Query(_COOKIES, (job,))


def cookies_after(job: int, number: int) -> Query:
    """Ask for the cookies that were set or removed since the one of that number, in the order that happened."""
    return Query(_COOKIES_AFTER, (job, number))


def roots(job: int, found: Iterable[str]) -> list[Query]:
    """Let URLs span the scope."""
    some = sorted(set(found))
    return [Query(_ROOTS, (job, Texts(some)))] if some else []


def notes(job: int, worker: str, visits: Sequence[Visit], at: float) -> list[Query]:
    """Keep what is odd about a visit, with its URL and worker."""
    rows = [(visit.known.request.url, note) for visit in visits for note in visit.notes]
    if not rows:
        return []
    urls, texts = zip(*rows, strict=True)
    return [Query(_NOTES, (job, at, worker, Texts(urls), Texts(texts)))]


def host_info(job: int, hosts: Sequence[str], groups: Sequence[str]) -> Query:
    """Ask for page counts of hosts and the clocks of their groups, in this order."""
    return Query(_HOST_INFO, (Texts(hosts), Texts(groups), job))
