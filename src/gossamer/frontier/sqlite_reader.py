"""Answers from a job's SQLite ledger, read-only, also while a crawl is writing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from gossamer.errors import LedgerFailed
from gossamer.frontier.answers import (
    Explanation,
    FetchRow,
    Forgotten,
    HostNumbers,
    Timing,
    UrlRow,
    chain_of,
    hop_of,
)
from gossamer.frontier.sqlite_bloom import is_remembered, stored_plan
from gossamer.frontier.sqlite_schema import connect_readonly, explained
from gossamer.model.outcome import Cursor, GroupState, State

_PAGE_ROWS = 1000
_EDGE_ROWS = 1000
_MAX_FETCHES = 1000
#: The target of a redirect is the detail of its row, cut to this length.
_MAX_DETAIL = 500

_URL_ROW = """
    SELECT u.seq, u.fp, u.url, coalesce(h.host, ''), u.state, u.reason, coalesce(u.detail, ''), u.depth, u.source,
           u.parent, u.tries, u.crashes, u.not_before, coalesce(u.status, 0), coalesce(u.settled_at, 0), u.request,
           coalesce(u.parent_url, '')
    FROM urls u {hint} LEFT JOIN hosts h ON h.id = u.host
"""
_SPAN = """
    SELECT (SELECT min(started_at) FROM (SELECT started_at FROM fetches ORDER BY id LIMIT :edge)),
           (SELECT max(ended) FROM (SELECT started_at + elapsed AS ended FROM fetches ORDER BY id DESC LIMIT :edge))
"""


class SqliteReader:
    """Implements `JobReader` for a job in a folder. A context manager; not for several threads.

    * Every answer is a moment of the ledger between two commits. Inside `snapshot` all answers are the same moment.
    * `urls` holds no such moment between its pages, so that a slow consumer does not make the WAL of a
      running crawl grow.
    * What cannot be read raises `LedgerFailed`.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise LedgerFailed(
                f"there is no ledger at {path}: the job was never started, or the file was removed"
            )
        self._path = path
        self._db = connect_readonly(path)

    def __repr__(self) -> str:
        return f"<SqliteReader {self._path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Answer from one moment of the ledger. Keep it short: until it ends, a crawl's WAL cannot shrink."""
        self._ask("BEGIN")
        try:
            yield
        finally:
            self._ask("ROLLBACK")

    def _ask(self, sql: str, parameters: Sequence[object] | dict[str, object] = ()) -> list[Any]:
        with explained(self._path):
            return self._db.execute(sql, parameters).fetchall()

    # -- the whole job ---------------------------------------------------------------------------------

    def counts(self) -> dict[tuple[State, str], int]:
        """Return the number of URLs by state and reason."""
        rows = self._ask("SELECT state, reason, n FROM counts WHERE n > 0 ORDER BY state, n DESC, reason")
        return {(self._state(state), reason): n for state, reason, n in rows}

    def totals(self) -> dict[str, int]:
        """Return the running totals: records, fetches, wire_bytes."""
        return dict(self._ask("SELECT name, n FROM totals"))

    def meta(self) -> dict[str, str]:
        """Return the notes about the job, such as how far seeding has come."""
        return dict(self._ask("SELECT key, value FROM meta"))

    def is_drained(self) -> bool:
        """Say whether the job is done: seeding is closed and no live URL is left."""
        return self.meta().get("seeding") == "closed" and not self._ask(
            "SELECT 1 FROM urls WHERE state = 0 LIMIT 1"
        )

    def is_root(self, root: str) -> bool:
        """Say whether a seed, or the redirect of one, has brought this root into the scope."""
        return bool(self._ask("SELECT 1 FROM roots WHERE root = ?", (root,)))

    def roots(self, limit: int) -> list[str]:
        """Return URLs whose scope is the job's: seeds, and what they redirected to."""
        return [root for (root,) in self._ask("SELECT root FROM roots LIMIT ?", (limit,))]

    def cursors(self) -> list[Cursor]:
        """Return the outputs and how far each has come."""
        rows = self._ask('SELECT output, position, "offset", records FROM cursors ORDER BY output')
        return [Cursor(*row) for row in rows]

    def first_commit(self) -> float:
        """Return when the first batch was committed, or 0.0 before it."""
        rows = self._ask("SELECT committed_at FROM log ORDER BY position LIMIT 1")
        return float(rows[0][0]) if rows else 0.0

    def last_commit(self) -> float:
        """Return when the last batch was committed, or 0.0 before the first."""
        rows = self._ask("SELECT committed_at FROM log ORDER BY position DESC LIMIT 1")
        return float(rows[0][0]) if rows else 0.0

    def records_since(self, moment: float) -> int:
        """Return how many records were committed after a moment, reading the log from its end."""
        found = 0
        with (
            explained(self._path),
            closing(self._db.execute("SELECT committed_at, records FROM log ORDER BY position DESC")) as rows,
        ):
            for committed_at, records in rows:
                if committed_at <= moment:
                    break
                found += records
        return found

    def span(self) -> tuple[float, float] | None:
        """Return when the first request went out and the last answer came in; None before the first.

        Looks only at both ends of the fetch log, where the rows of concurrent requests are out of order.
        """
        first, last = self._ask(_SPAN, {"edge": _EDGE_ROWS})[0]
        return None if first is None else (first, last)

    # -- hosts -----------------------------------------------------------------------------------------

    def host_count(self) -> int:
        """Return the number of hosts that have a URL in the ledger."""
        return int(self._ask("SELECT count(*) FROM hosts")[0][0])

    def robots_files(self) -> int:
        """Return the number of origins whose robots.txt was read."""
        return int(self._ask("SELECT count(DISTINCT origin) FROM robots WHERE status > 0")[0][0])

    def top_hosts(self, limit: int) -> list[HostNumbers]:
        """Return the hosts with the most pages. Reads the whole table of URLs, and the fetch log, once."""
        hosts = self._ask(
            "SELECT id, host, grp, pages, forbidden FROM hosts ORDER BY pages DESC, id LIMIT ?", (limit,)
        )
        losses = self._losses_by_host([row[0] for row in hosts])
        timings = {timing.group: timing for timing in self._timings_of([row[2] for row in hosts])}
        numbers = []
        for key, host, group, pages, forgotten in hosts:
            timing = timings.get(group, Timing(group, 0, 0.0, 0.0))
            failed, forbidden = losses.get(key, (0, 0))
            numbers.append(
                HostNumbers(host, pages, failed, forbidden + forgotten, timing.fetches, timing.mean_elapsed)
            )
        return numbers

    def _losses_by_host(self, keys: Sequence[int]) -> dict[int, tuple[int, int]]:
        # SQLite sorts what it groups: leaving out the many rows that are neither keeps that small.
        sql = f"""
            SELECT host, sum(state = {State.FAILED:d}), sum(state = {State.REFUSED:d})
            FROM urls NOT INDEXED
            WHERE (state = {State.FAILED:d} OR (state = {State.REFUSED:d} AND reason = 'robots'))
                AND host IN ({_marks(keys)})
            GROUP BY host
        """  # noqa: S608 - numbers and marks
        return {host: (failed, forbidden) for host, failed, forbidden in self._ask(sql, keys)}

    def _timings_of(self, groups: Sequence[str]) -> list[Timing]:
        sql = f"""
            SELECT grp, count(*), avg(elapsed), max(elapsed) FROM fetches
            WHERE kind = 'page' AND grp IN ({_marks(groups)}) GROUP BY grp
        """  # noqa: S608 - only marks
        return [Timing(*row) for row in self._ask(sql, groups)]

    def slowest(self, limit: int) -> list[Timing]:
        """Return the politeness groups that took longest to answer, on average. Reads the whole fetch log."""
        rows = self._ask(
            "SELECT grp, count(*), avg(elapsed) AS mean, max(elapsed) FROM fetches WHERE kind = 'page'"
            " GROUP BY grp ORDER BY mean DESC, grp LIMIT ?",
            (limit,),
        )
        return [Timing(*row) for row in rows]

    # -- URLs ------------------------------------------------------------------------------------------

    def urls(
        self,
        *,
        state: State | None = None,
        reason: str | None = None,
        host: str | None = None,
        limit: int | None = None,
    ) -> Iterator[UrlRow]:
        """Stream URLs in the order of their discovery, each at most once, a page of rows at a time."""
        where = ["u.seq > ?"]
        parameters: list[object] = []
        for clause, value in (("u.state = ?", state), ("u.reason = ?", reason), ("h.host = ?", host)):
            if value is not None:
                where.append(clause)
                parameters.append(value)
        # By rowid: with the index of live URLs SQLite would sort all of them for every page.
        sql = f"{_URL_ROW.format(hint='NOT INDEXED')} WHERE {' AND '.join(where)} ORDER BY u.seq LIMIT ?"
        after, left = 0, limit
        while left is None or left > 0:
            size = _PAGE_ROWS if left is None else min(_PAGE_ROWS, left)
            rows = self._ask(sql, [after, *parameters, size])
            yield from map(self._url_row, rows)
            if len(rows) < size:
                return
            after, left = rows[-1][0], None if left is None else left - size

    def url(self, fingerprint: int) -> UrlRow | None:
        """Return one URL, or None where the ledger has never accepted it."""
        seq = self._seq_of(fingerprint)
        return self._row(seq) if seq is not None else None

    def _seq_of(self, fingerprint: int) -> int | None:
        """Look in the index, then among the newest rows, which are not in it yet."""
        rows = self._ask("SELECT seq FROM fingerprints WHERE fp = ?", (fingerprint,)) or self._ask(
            "SELECT seq FROM urls WHERE fp = ? AND seq >"
            " coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'merged_seq'), 0)",
            (fingerprint,),
        )
        return rows[0][0] if rows else None

    def _row(self, seq: int) -> UrlRow | None:
        rows = self._ask(_URL_ROW.format(hint="") + " WHERE u.seq = ?", (seq,))
        return self._url_row(rows[0]) if rows else None

    def explain(self, fingerprint: int) -> Explanation | None:
        """Return all that is known about a URL. Reads the fetch log, and for a redirect the URLs found after it."""
        with self.snapshot():
            row = self.url(fingerprint)
            if row is None:
                return None
            return Explanation(
                row,
                chain_of(row, row.seq, self._row),
                self._fetches(row.url, fingerprint),
                self._redirect(row),
                self._group(row.host),
            )

    def forgets_finished(self) -> bool:
        """Say whether finished URLs lose their rows, and only a Bloom filter remembers them."""
        with explained(self._path):
            return stored_plan(self._db) is not None

    def forgotten(self, url: str, fingerprint: int) -> Forgotten | None:
        """Return what is left of a URL without a row; None where the job has certainly never seen it."""
        with explained(self._path), self.snapshot():
            plan = stored_plan(self._db)
            if plan is None or not is_remembered(self._db, fingerprint):
                return None
            return Forgotten(plan.error_rate, self._fetches(url, fingerprint))

    def _fetches(self, url: str, fingerprint: int) -> tuple[FetchRow, ...]:
        rows = self._ask(
            "SELECT coalesce(nullif(url, ?), ''), attempt, started_at, elapsed, status, wire_bytes, problem"
            " FROM fetches WHERE fp = ? ORDER BY id LIMIT ?",
            (url, fingerprint, _MAX_FETCHES),
        )
        return tuple(FetchRow(*row) for row in rows)

    def _redirect(self, row: UrlRow) -> str:
        if row.hop or row.state != State.REDIRECTED:
            return row.hop
        if row.detail.startswith("http") and len(row.detail) < _MAX_DETAIL:
            return row.detail
        rows = self._ask(
            "SELECT url FROM urls NOT INDEXED WHERE seq > ? AND parent = ? AND source = 'redirect' LIMIT 1",
            (row.seq, row.seq),
        )
        return str(rows[0][0]) if rows else ""

    def _group(self, host: str) -> GroupState:
        rows = self._ask(
            "SELECT g.grp, last_start, delay, until, failures, slowness FROM hosts JOIN groups g ON g.grp = hosts.grp"
            " WHERE host = ?",
            (host,),
        )
        return GroupState(*rows[0]) if rows else GroupState(host)

    def _url_row(self, row: tuple[Any, ...]) -> UrlRow:
        *fields, packed, parent_url = row
        fields[4] = self._state(fields[4])
        return UrlRow(*[*fields, self._hop(packed) if packed else "", parent_url])

    def _hop(self, packed: bytes) -> str:
        try:
            return hop_of(packed)
        except (msgspec.MsgspecError, TypeError) as error:
            raise self._damaged("a request that cannot be unpacked") from error

    def _state(self, number: object) -> State:
        try:
            return State(number)  # type: ignore[arg-type]
        except ValueError as error:
            raise self._damaged(f"the unknown state {number!r}") from error

    def _damaged(self, what: str) -> LedgerFailed:
        return LedgerFailed(
            f"the ledger {self._path} is damaged: it holds {what}; restore it from a copy, or start over with --fresh"
        )


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
