"""Answers from the ledger of a shared job, read-only, also while workers are writing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from gossamer.frontier.postgres_jobs import JOB_ROWS, JobRow
from gossamer.frontier.postgres_moment import PostgresMoment
from gossamer.frontier.sqlite_rows import MAX_DETAIL
from gossamer.model.outcome import Cursor, GroupState, State

_LOG_ROWS = 1000
_MAX_FETCHES = 1000
#: Hosts and groups that a report may name.
_MAX_NAMED = 100

_URL_ROWS = """
    SELECT u.seq, u.fp, u.url, coalesce(s.host, ''), u.state, u.reason, coalesce(u.detail, ''), u.depth, u.source,
           u.parent, u.tries, u.crashes, u.not_before, coalesce(u.status, 0), coalesce(u.settled_at, 0), u.request
    FROM {urls} u LEFT JOIN sources s ON s.id = u.host
"""
_URL_ROW = _URL_ROWS.format(urls="urls")
# The reasons of a state, by skipping through the index.
_REASONS = """
    WITH RECURSIVE found(reason) AS (
        (SELECT reason FROM urls WHERE job = {job:d} AND state = {state:d} ORDER BY reason LIMIT 1)
        UNION ALL
        SELECT (SELECT reason FROM urls WHERE job = {job:d} AND state = {state:d} AND reason > f.reason ORDER BY reason LIMIT 1)
        FROM found f WHERE f.reason IS NOT NULL
    )
    SELECT reason FROM found WHERE reason IS NOT NULL LIMIT {limit:d}
"""
_OF_A_REASON = "(SELECT * FROM urls WHERE job = {job:d} AND state = {state:d} AND reason = %s ORDER BY seq)"
#: A state with more reasons is sorted.
_MAX_MERGED = 32
_COUNTS = """
    SELECT state, reason, sum(n)::bigint AS n FROM counts WHERE job = %s GROUP BY state, reason HAVING sum(n) > 0
    ORDER BY state, n DESC, reason COLLATE "C"
"""
_LOG_END = """
    SELECT position, committed_at, records, worker FROM log WHERE job = %s AND position < %s
    ORDER BY position DESC LIMIT %s
"""
_LOSSES = """
    SELECT host, count(*) FILTER (WHERE state = 7), count(*) FILTER (WHERE state = 6) FROM urls
    WHERE job = %s AND (state = 7 OR (state = 6 AND reason = 'robots')) AND state <> 0 AND host = ANY(%s)
    GROUP BY host
"""
# All that a report asks of the fetch log, which is read once.
_TRAFFIC = """
    WITH each AS MATERIALIZED (
        SELECT grp, min(started_at) AS first, max(started_at + elapsed) AS last, count(*) FILTER (WHERE kind = 'page') AS n,
               avg(elapsed) FILTER (WHERE kind = 'page') AS mean, max(elapsed) FILTER (WHERE kind = 'page') AS longest
        FROM fetches WHERE job = %s GROUP BY grp
    )
    (SELECT 'span', '', 0, min(first), max(last) FROM each HAVING count(*) > 0)
    UNION ALL
    (SELECT 'slow', grp, n, mean, longest FROM each WHERE n > 0 ORDER BY mean DESC, grp COLLATE "C" LIMIT %s)
    UNION ALL
    (SELECT 'named', grp, n, mean, longest FROM each WHERE n > 0 AND grp = ANY(%s))
"""
_FETCHES = """
    SELECT coalesce(nullif(url, %s), ''), attempt, started_at, elapsed, status, wire_bytes, problem
    FROM fetches WHERE job = %s AND fp = %s ORDER BY id LIMIT %s
"""
_GROUP = """
    SELECT g.grp, g.last_start, g.delay, g.until, g.failures, g.slowness
    FROM sources s JOIN groups g ON g.grp = s.grp WHERE s.job = %s AND s.host = %s
"""


def read_jobs(moment: PostgresMoment) -> list[JobRow]:
    """Return every job of a database, by name."""
    return [JobRow(*row) for row in moment.ask(f'{JOB_ROWS} ORDER BY j.name COLLATE "C"')]


def listing(
    job: int, state: State | None, reason: str | None, host: str | None, merged: Sequence[str] = ()
) -> tuple[str, list[object]]:
    """Return the question for URLs in the order of their discovery, but for its last parameter: how many of them.

    `merged` are all reasons of `state`: the index has the URLs of each in this order, so that they need not be sorted.
    """
    parameters: list[object] = list(merged)
    part = _OF_A_REASON.format(job=job, state=state) if merged else ""
    urls = f"({' UNION ALL '.join([part] * len(merged))})" if merged else "urls"
    # Numbers as constants, so that the planner sees which index has the rows.
    where = [f"u.job = {job:d}", *([] if state is None else [f"u.state = {state:d}"])]
    if reason is not None:
        where.append("u.reason = %s")
        parameters.append(reason)
    if host is not None:
        where.append("u.host = (SELECT id FROM sources WHERE job = %s AND host = %s)")
        parameters += [job, host]
    return f"{_URL_ROWS.format(urls=urls)} WHERE {' AND '.join(where)} ORDER BY u.seq LIMIT %s", parameters


class _Traffic(msgspec.Struct, frozen=True):
    """What the fetch log of a job says, in numbers."""

    span: tuple[float, float] | None
    slowest: list[Timing]
    #: Of the groups of the hosts with the most pages.
    named: dict[str, Timing]


class PostgresReader:
    """Implements `JobReader` for a job in a database. All answers are those of its moment, which its owner ends."""

    def __init__(self, moment: PostgresMoment, job: int) -> None:
        self._moment = moment
        self._job = job
        self._ask = moment.ask
        self._known_traffic: _Traffic | None = None

    def __repr__(self) -> str:
        return f"<PostgresReader {self._moment.place} job {self._job}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        return None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Answer from one moment, as always."""
        yield

    # -- the whole job ---------------------------------------------------------------------------------

    def counts(self) -> dict[tuple[State, str], int]:
        """Return the number of URLs by state and reason."""
        return {(self._state(state), reason): n for state, reason, n in self._ask(_COUNTS, (self._job,))}

    def totals(self) -> dict[str, int]:
        """Return the running totals: records, fetches, wire_bytes."""
        sql = "SELECT name, sum(n)::bigint FROM totals WHERE job = %s GROUP BY name"
        return dict(self._ask(sql, (self._job,)))

    def meta(self) -> dict[str, str]:
        """Return the notes about the job, such as how far seeding has come."""
        return dict(self._ask("SELECT key, value FROM meta WHERE job = %s", (self._job,)))

    def is_drained(self) -> bool:
        """Say whether the job is done: seeding is closed and no live URL is left."""
        return self.meta().get("seeding") == "closed" and not self._has_live()

    def _has_live(self) -> bool:
        return bool(self._ask("SELECT 1 FROM urls WHERE job = %s AND state = 0 LIMIT 1", (self._job,)))

    def roots(self, limit: int) -> list[str]:
        """Return URLs whose scope is the job's: seeds, and what they redirected to."""
        sql = "SELECT root FROM roots WHERE job = %s LIMIT %s"
        return [root for (root,) in self._ask(sql, (self._job, limit))]

    def cursors(self) -> list[Cursor]:
        """Return the outputs and how far each has come."""
        rows = self._ask(
            'SELECT output, position, "offset", records FROM cursors WHERE job = %s ORDER BY output COLLATE "C"',
            (self._job,),
        )
        return [Cursor(*row) for row in rows]

    def first_commit(self) -> float:
        """Return when the first batch was committed, or 0.0 before it."""
        return self._committed("ASC")

    def last_commit(self) -> float:
        """Return when the last batch was committed, or 0.0 before the first."""
        return self._committed("DESC")

    def _committed(self, order: str) -> float:
        sql = f"SELECT committed_at FROM log WHERE job = %s ORDER BY position {order} LIMIT 1"  # noqa: S608 - our own words
        rows = self._ask(sql, (self._job,))
        return float(rows[0][0]) if rows else 0.0

    def records_since(self, moment: float) -> int:
        """Return how many records were committed after a moment, reading the log from its end."""
        return sum(records for records, _ in self._commits_since(moment))

    def workers_since(self, moment: float) -> int:
        """Return how many workers have committed something after a moment."""
        return len({worker for _, worker in self._commits_since(moment)})

    def _commits_since(self, moment: float) -> Iterator[tuple[int, str]]:
        """Yield records and worker of each commit. The clocks of workers differ: it reads on until a page has none."""
        before = 1 << 62
        while True:
            page = self._ask(_LOG_END, (self._job, before, _LOG_ROWS))
            newer = [(records, worker) for _, at, records, worker in page if at > moment]
            yield from newer
            if not newer or len(page) < _LOG_ROWS:
                return
            before = page[-1][0]

    def span(self) -> tuple[float, float] | None:
        """Return when the first request went out and the last answer came in. Reads the job's whole fetch log."""
        return self._traffic().span

    def _traffic(self) -> _Traffic:
        if self._known_traffic is None:
            groups = [group for _, _, group, _ in self._hosts(_MAX_NAMED)]
            span, slowest, named = None, [], {}
            for kind, group, number, mean, longest in self._ask(_TRAFFIC, (self._job, _MAX_NAMED, groups)):
                match kind:
                    case "span":
                        span = (mean, longest)
                    case "slow":
                        slowest.append(Timing(group, number, mean, longest))
                    case _:
                        named[group] = Timing(group, number, mean, longest)
            self._known_traffic = _Traffic(span, slowest, named)
        return self._known_traffic

    # -- hosts -----------------------------------------------------------------------------------------

    def host_count(self) -> int:
        """Return the number of hosts that have a URL in the ledger."""
        return int(self._ask("SELECT count(*) FROM sources WHERE job = %s", (self._job,))[0][0])

    def robots_files(self) -> int:
        """Return the number of origins whose robots.txt was read."""
        sql = "SELECT count(DISTINCT origin) FROM robots WHERE job = %s AND status > 0"
        return int(self._ask(sql, (self._job,))[0][0])

    def _hosts(self, limit: int) -> list[tuple[Any, ...]]:
        sql = "SELECT id, host, grp, pages FROM sources WHERE job = %s ORDER BY pages DESC, id LIMIT %s"
        return self._ask(sql, (self._job, limit))

    def top_hosts(self, limit: int) -> list[HostNumbers]:
        """Return the hosts with the most pages, a hundred at most. Reads what failed and the whole fetch log, once."""
        hosts = self._hosts(min(limit, _MAX_NAMED))
        losses = {
            host: (failed, forbidden)
            for host, failed, forbidden in self._ask(_LOSSES, (self._job, [row[0] for row in hosts]))
        }
        timings = self._traffic().named
        return [
            HostNumbers(host, pages, *losses.get(key, (0, 0)), timing.fetches, timing.mean_elapsed)
            for key, host, group, pages in hosts
            for timing in (timings.get(group, Timing(group, 0, 0.0, 0.0)),)
        ]

    def slowest(self, limit: int) -> list[Timing]:
        """Return the politeness groups that took longest to answer, on average, a hundred at most."""
        return self._traffic().slowest[:limit]

    # -- URLs ------------------------------------------------------------------------------------------

    def urls(
        self,
        *,
        state: State | None = None,
        reason: str | None = None,
        host: str | None = None,
        limit: int | None = None,
    ) -> Iterator[UrlRow]:
        """Stream URLs in the order of their discovery, each once. The server sorts them first, on disk if need be.

        Those of a settled state, with or without a reason, are in this order in their index: the first come at once.
        """
        merged = self._reasons(state) if state and reason is None and host is None else []
        sql, parameters = listing(self._job, state, reason, host, merged)
        yield from map(self._url_row, self._moment.stream(sql, [*parameters, limit]))

    def _reasons(self, state: State) -> list[str]:
        """Return the reasons of a settled state; none where there are too many to be merged."""
        sql = _REASONS.format(job=self._job, state=state, limit=_MAX_MERGED + 1)
        reasons = [reason for (reason,) in self._ask(sql)]
        return reasons if len(reasons) <= _MAX_MERGED else []

    def url(self, fingerprint: int) -> UrlRow | None:
        """Return one URL, or None where the ledger has never accepted it."""
        rows = self._ask(f"{_URL_ROW} WHERE u.job = %s AND u.fp = %s", (self._job, fingerprint))
        return self._url_row(rows[0]) if rows else None

    def explain(self, fingerprint: int) -> Explanation | None:
        """Return all that is known about a URL, by its keys; for a redirect to a very long URL it reads the job's URLs."""
        row = self.url(fingerprint)
        if row is None:
            return None
        fetches = self._ask(_FETCHES, (row.url, self._job, fingerprint, _MAX_FETCHES))
        return Explanation(
            row,
            chain_of(row, row.fingerprint, self.url),
            tuple(FetchRow(*fetch) for fetch in fetches),
            self._redirect(row),
            self._group(row.host),
        )

    def forgets_finished(self) -> bool:
        """Say that every URL keeps its row."""
        return False

    def forgotten(self, url: str, fingerprint: int) -> Forgotten | None:
        """Return None: every URL keeps its row."""
        del url, fingerprint
        return None

    def _redirect(self, row: UrlRow) -> str:
        if row.hop or row.state != State.REDIRECTED:
            return row.hop
        if row.detail.startswith("http") and len(row.detail) < MAX_DETAIL:
            return row.detail
        rows = self._ask(
            "SELECT url FROM urls WHERE job = %s AND parent = %s AND source = 'redirect' LIMIT 1",
            (self._job, row.fingerprint),
        )
        return str(rows[0][0]) if rows else ""

    def _group(self, host: str) -> GroupState:
        rows = self._ask(_GROUP, (self._job, host))
        return GroupState(*rows[0]) if rows else GroupState(host)

    def _url_row(self, row: Sequence[Any]) -> UrlRow:
        *fields, packed = row
        fields[4] = self._state(fields[4])
        return UrlRow(*[*fields, self._hop(packed) if packed else "", ""])

    def _hop(self, packed: bytes) -> str:
        try:
            return hop_of(packed)
        except (msgspec.MsgspecError, TypeError) as error:
            raise self._damaged("a request that cannot be unpacked") from error

    def _state(self, number: int) -> State:
        try:
            return State(number)
        except ValueError as error:
            raise self._damaged(f"the unknown state {number!r}") from error

    def _damaged(self, what: str) -> LedgerFailed:
        return LedgerFailed(
            f"the ledger at {self._moment.place} is damaged: it holds {what}; restore the database from a copy"
        )
