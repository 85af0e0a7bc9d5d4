"""What an audit reads from the ledger of a shared job: every start in order, also those of other jobs nearby."""

from __future__ import annotations

import math
from collections.abc import Iterator

import zstandard

from gossamer.frontier.answers import RobotsEra, RobotsVersion, Start
from gossamer.frontier.postgres_moment import PostgresMoment
from gossamer.frontier.postgres_reader import PostgresReader
from gossamer.model.outcome import RobotsFile

#: Every canonical URL has a slash behind `https://`.
_AUTHORITY = 8

# A robots.txt that redirects elsewhere is logged under the group it was fetched for, but is a start of the group it
# reached. The host is what `host_of` says.
_REACHED = """
    CASE f.kind WHEN 'robots' THEN coalesce(
        (SELECT s.grp FROM sources s
         WHERE s.job = f.job AND s.host = regexp_replace(split_part(f.url, '/', 3), ':[0-9]*$', '')),
        regexp_replace(split_part(f.url, '/', 3), ':[0-9]*$', '')
    ) ELSE f.grp END
"""
_FIELDS = "f.id, f.job, f.fp, f.url, f.grp, f.kind, f.started_at, f.delay, f.robots"
# Of other jobs only those starts matter that one of ours may follow too soon: they are found by group and time.
_STARTS = f"""
    WITH mine AS MATERIALIZED (
        SELECT {_FIELDS}, {_REACHED} AS reached FROM fetches f WHERE f.job = %s
    ), spans AS MATERIALIZED (
        SELECT reached, min(started_at) - greatest(max(delay), %s) AS since, max(started_at) AS until
        FROM mine GROUP BY reached
    ), theirs AS (
        SELECT {_FIELDS}, s.reached FROM spans s JOIN fetches f
        ON f.grp = s.reached AND f.started_at BETWEEN s.since AND s.until AND f.job <> %s AND {_REACHED} = s.reached
    )
    SELECT f.reached, f.started_at, f.delay, coalesce(f.url, u.url, ''), f.kind <> 'robots', f.robots, f.grp, f.job
    FROM (SELECT * FROM mine UNION ALL SELECT * FROM theirs) f
    LEFT JOIN urls u ON f.url IS NULL AND u.fp = f.fp AND u.job = f.job
    ORDER BY f.reached COLLATE "C", f.started_at, f.id
"""  # noqa: S608 - constants
# What stands before the run in the id of a batch, the name of the worker, may hold anything.
_DOUBTFUL_RUNS = """
    WITH notes(id, value) AS (SELECT substr(key, 5), value FROM meta WHERE job = %s AND key LIKE 'run:%%'),
    runs(id) AS (SELECT substring(batch FROM '([^-]*)-[^-]*$') FROM log WHERE job = %s UNION SELECT id FROM notes)
    SELECT count(*) FROM runs WHERE id NOT IN (SELECT id FROM notes WHERE value = 'whole')
"""
_CRASHES = """
    SELECT coalesce(sum(crashes + (reason = 'poison')::integer), 0) FROM urls WHERE job = %s AND crashes > 0
"""
_ERA = """
    SELECT fetched_at, version, status FROM robots WHERE job = %s AND origin = %s AND fetched_at <= %s
    ORDER BY fetched_at DESC LIMIT 2
"""
_NEXT = "SELECT min(fetched_at) FROM robots WHERE job = %s AND origin = %s AND fetched_at > %s"
_LAST_ANSWER = """
    SELECT fetched_at FROM robots WHERE job = %s AND origin = %s AND fetched_at < %s AND status > 0
    ORDER BY fetched_at DESC LIMIT 1
"""
_FILE = """
    SELECT origin, fetched_at, status, body, version FROM robots WHERE job = %s AND origin = %s AND fetched_at <= %s
    ORDER BY fetched_at DESC LIMIT 1
"""


class PostgresAuditReader(PostgresReader):
    """Implements `AuditReader` for a job in a database. Reads in bounded memory; the server sorts on disk.

    Politeness belongs to the host: two jobs of one database keep its delay together. So the starts of other jobs are
    among those of this one. A robots.txt of another job that was redirected here from another group is not.
    """

    def __init__(self, moment: PostgresMoment, job: int, *, reach_seconds: float) -> None:
        """Look so many seconds behind the first start of the job on a host, or its delay, for those of other jobs."""
        super().__init__(moment, job)
        self._reach_seconds = reach_seconds
        self._unzstd = zstandard.ZstdDecompressor()

    def starts(self) -> Iterator[Start]:
        """Stream every recorded start by politeness group, and within a group in the order of time."""
        rows = self._moment.stream(
            _STARTS,
            (self._job, self._reach_seconds, self._job),
            seconds=self._moment.limits.audit_seconds,
        )
        for group, started_at, delay, url, is_page, robots, logged, job in rows:
            is_own = job == self._job
            known = url if url.find("/", _AUTHORITY) >= 0 else ""
            if is_own and not known:
                raise self._damaged("a request for a URL it does not have")
            yield Start(group, started_at, delay, known, is_page, robots, group != logged, is_own)

    # -- robots.txt ------------------------------------------------------------------------------------

    def robots_era(self, origin: str, moment: float) -> RobotsEra | None:
        """Return which robots.txt of an origin was in force at a moment; None before the first."""
        asked = (self._job, origin, moment)
        rows = self._ask(_ERA, asked)
        if not rows:
            return None
        after = self._ask(_NEXT, asked)[0][0]
        versions = [RobotsVersion(*row) for row in rows]
        previous = versions[1] if len(versions) > 1 else None
        return RobotsEra(versions[0], previous, math.inf if after is None else after)

    def has_robots(self, origin: str, version: int) -> bool:
        """Say whether this version of an origin's robots.txt is stored, whenever it was read."""
        sql = "SELECT 1 FROM robots WHERE job = %s AND origin = %s AND version = %s LIMIT 1"
        return bool(self._ask(sql, (self._job, origin, version)))

    def last_answer(self, origin: str, moment: float) -> float:
        """Return when an origin last answered for its robots.txt before a moment; 0.0 if it never did."""
        rows = self._ask(_LAST_ANSWER, (self._job, origin, moment))
        return float(rows[0][0]) if rows else 0.0

    def robots_unreachable_since(self, origin: str) -> float:
        """Return when the robots.txt of an origin first could not be had; 0.0 where its last try was answered."""
        sql = "SELECT since FROM robots_failures WHERE job = %s AND origin = %s"
        rows = self._ask(sql, (self._job, origin))
        return float(rows[0][0]) if rows else 0.0

    def robots_file(self, origin: str, moment: float) -> RobotsFile | None:
        """Return the robots.txt of an origin that was in force at a moment; None before the first."""
        rows = self._ask(_FILE, (self._job, origin, moment))
        if not rows:
            return None
        name, fetched_at, status, packed, version = rows[0]
        try:
            body = self._unzstd.decompress(packed)
        except zstandard.ZstdError as error:
            raise self._damaged("a robots.txt that cannot be unpacked") from error
        return RobotsFile(name, fetched_at, status, body, version)

    # -- what may be missing ---------------------------------------------------------------------------

    def doubtful_runs(self) -> int:
        """Return how many runs may have ended with requests under way, whose starts are then not in the log.

        A run of a worker is known by the batches it committed (`…<run id>-<n>`) and by a note `run:<run id>`, and is
        beyond doubt only where that note says `whole`. A worker that is at work counts too. Nobody is excused for
        having committed last: what it lost the lease of, another may have finished.
        """
        return int(self._ask(_DOUBTFUL_RUNS, (self._job, self._job))[0][0])

    def crashes(self) -> int:
        """Return how many visits ended with their worker process. Reads the whole table of URLs."""
        return int(self._ask(_CRASHES, (self._job,))[0][0])
