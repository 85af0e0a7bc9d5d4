"""What an audit reads from a job's SQLite ledger: every start in order, every robots.txt, and what may be missing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import zstandard

from gossamer.frontier.answers import RobotsEra, RobotsVersion, Start
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.frontier.sqlite_schema import explained
from gossamer.model.outcome import RobotsFile
from gossamer.model.url import host_of

_CACHE_KILOBYTES = 24 << 10
_FETCH_ROWS = 1000
#: Every canonical URL has a slash behind `https://`.
_AUTHORITY = 8

# A robots.txt that redirects elsewhere is logged under the group it was fetched for, but is a start of the group it
# reached. Casts make numbers of whatever a damaged ledger holds. The newest URLs are not in `fingerprints` yet.
_STARTS = """
    WITH recent(fp, url) AS MATERIALIZED (
        SELECT fp, url FROM urls
        WHERE seq > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'merged_seq'), 0)
    )
    SELECT
        CASE f.kind
            WHEN 'robots' THEN coalesce((SELECT grp FROM hosts WHERE host = host_of(f.url)), host_of(f.url))
            ELSE f.grp
        END AS reached,
        CAST(f.started_at AS REAL) AS started_at, CAST(f.delay AS REAL), coalesce(f.url, u.url, r.url, ''),
        f.kind <> 'robots', CAST(f.robots AS INTEGER), f.grp
    FROM fetches f
    LEFT JOIN fingerprints p ON p.fp = f.fp AND f.url IS NULL
    LEFT JOIN urls u ON u.seq = p.seq
    LEFT JOIN recent r ON r.fp = f.fp AND f.url IS NULL AND p.fp IS NULL
    ORDER BY reached, started_at, f.id
"""
_LAST_RUN = "SELECT substr(batch, 1, instr(batch, '-') - 1) FROM log ORDER BY position DESC LIMIT 1"
_DOUBTFUL_RUNS = """
    WITH runs(id) AS (
        SELECT substr(batch, 1, instr(batch, '-') - 1) FROM log
        UNION SELECT substr(key, 5) FROM meta WHERE key LIKE 'run:%'
    )
    SELECT count(*) FROM runs
    WHERE id IS NOT ? AND id NOT IN (SELECT substr(key, 5) FROM meta WHERE key LIKE 'run:%' AND value = 'whole')
"""
_CRASHES = """
    SELECT total(crashes) + total(reason = 'poison') + coalesce((SELECT n FROM totals WHERE name = 'crashes'), 0)
    FROM urls NOT INDEXED WHERE crashes > 0
"""


class SqliteAuditReader(SqliteReader):
    """Implements `AuditReader` for a job in a folder. Reads in bounded memory; SQLite sorts on disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._unzstd = zstandard.ZstdDecompressor()
        self._db.create_function("host_of", 1, host_of, deterministic=True)
        self._db.execute(f"PRAGMA cache_size=-{_CACHE_KILOBYTES}")

    def starts(self) -> Iterator[Start]:
        """Stream every recorded start by politeness group, and within a group in the order of time."""
        with explained(self._path), closing(self._db.execute(_STARTS)) as rows:
            while page := rows.fetchmany(_FETCH_ROWS):
                for group, started_at, delay, url, is_page, robots, logged in page:
                    if url.find("/", _AUTHORITY) < 0:
                        raise self._damaged("a request for a URL it does not have")
                    yield Start(group, started_at, delay, url, bool(is_page), robots, group != logged)

    # -- robots.txt ------------------------------------------------------------------------------------

    def robots_era(self, origin: str, moment: float) -> RobotsEra | None:
        """Return which robots.txt of an origin was in force at a moment; None before the first."""
        rows = self._ask(
            "SELECT CAST(fetched_at AS REAL), CAST(version AS INTEGER), CAST(status AS INTEGER) FROM robots"
            " WHERE origin = ? AND fetched_at <= ? ORDER BY fetched_at DESC LIMIT 2",
            (origin, moment),
        )
        if not rows:
            return None
        after = self._ask(
            "SELECT min(CAST(fetched_at AS REAL)) FROM robots WHERE origin = ? AND fetched_at > ?",
            (origin, moment),
        )[0][0]
        versions = [RobotsVersion(*row) for row in rows]
        previous = versions[1] if len(versions) > 1 else None
        return RobotsEra(versions[0], previous, math.inf if after is None else after)

    def has_robots(self, origin: str, version: int) -> bool:
        """Say whether this version of an origin's robots.txt is stored, whenever it was read."""
        return bool(
            self._ask("SELECT 1 FROM robots WHERE origin = ? AND version = ? LIMIT 1", (origin, version))
        )

    def last_answer(self, origin: str, moment: float) -> float:
        """Return when an origin last answered for its robots.txt before a moment; 0.0 if it never did."""
        rows = self._ask(
            "SELECT CAST(fetched_at AS REAL) FROM robots WHERE origin = ? AND fetched_at < ? AND status > 0"
            " ORDER BY fetched_at DESC LIMIT 1",
            (origin, moment),
        )
        return float(rows[0][0]) if rows else 0.0

    def robots_unreachable_since(self, origin: str) -> float:
        """Return when the robots.txt of an origin first could not be had; 0.0 where its last try was answered."""
        rows = self._ask("SELECT CAST(since AS REAL) FROM robots_failures WHERE origin = ?", (origin,))
        return float(rows[0][0]) if rows else 0.0

    def robots_file(self, origin: str, moment: float) -> RobotsFile | None:
        """Return the robots.txt of an origin that was in force at a moment; None before the first."""
        rows = self._ask(
            "SELECT origin, CAST(fetched_at AS REAL), CAST(status AS INTEGER), body, CAST(version AS INTEGER)"
            " FROM robots WHERE origin = ? AND fetched_at <= ? ORDER BY fetched_at DESC LIMIT 1",
            (origin, moment),
        )
        if not rows:
            return None
        name, fetched_at, status, packed, version = rows[0]
        try:
            body = self._unzstd.decompress(packed)
        except (zstandard.ZstdError, TypeError) as error:
            raise self._damaged("a robots.txt that cannot be unpacked") from error
        return RobotsFile(name, fetched_at, status, body, version)

    # -- what may be missing ---------------------------------------------------------------------------

    def doubtful_runs(self) -> int:
        """Return how many runs may have ended with requests under way, whose starts are then not in the log.

        A run is known by the batches it committed (`<run id>-<n>`) and by a note `run:<run id>`, and is beyond
        doubt where that note says `whole`: it ended with nothing under way. So is the last run if no URL is
        live: a URL stays live until the visit that fetched it is committed.
        """
        last = None if self._has_live() else next((run for (run,) in self._ask(_LAST_RUN)), None)
        return int(self._ask(_DOUBTFUL_RUNS, (last,))[0][0])

    def _has_live(self) -> bool:
        return bool(self._ask("SELECT 1 FROM urls WHERE state = 0 LIMIT 1"))

    def crashes(self) -> int:
        """Return how many visits ended with their worker process. Reads the whole table of URLs."""
        return int(self._ask(_CRASHES)[0][0])
