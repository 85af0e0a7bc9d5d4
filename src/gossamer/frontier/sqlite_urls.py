"""The table of URLs in a SQLite ledger: accept, improve, settle, hold and revive. Runs inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from gossamer.frontier.room import Room
from gossamer.frontier.sqlite_bloom import SqliteBloom
from gossamer.frontier.sqlite_fingerprints import CHUNK, FingerprintIndex, chunks
from gossamer.frontier.sqlite_forget import forget, is_forgettable
from gossamer.frontier.sqlite_rows import INSERT, MAX_DETAIL, known_from, packed_extras, row_of
from gossamer.model.outcome import Crashed, Deferred, Found, Hop, Retry, Settled, State, Visit
from gossamer.model.request import Known, Request

_QUEUED = int(State.QUEUED)
_MAX_CACHED_HOSTS = 50_000
_ROWS_AT_ONCE = 20_000

_READ = """
    SELECT u.seq, u.fp, u.url, u.priority, u.depth, coalesce(u.parent_url, p.url), u.source, u.attempt, u.tries,
           u.crashes, u.not_before, u.request, u.etag, u.last_modified, u.visit
    FROM urls u LEFT JOIN urls p ON p.seq = u.parent
"""
_TAKE = f"""{_READ}
    WHERE u.state = 0 AND u.host = ? AND u.not_before {{due}} ?
    ORDER BY u.priority, u.seq LIMIT ?
"""
_NEARER = """
    UPDATE urls SET depth = p.depth + (urls.source = 'link') FROM urls p
    WHERE p.seq = urls.parent AND urls.depth > p.depth + (urls.source = 'link')
"""
_ROWS = f"""
    SELECT seq, fp, state, reason, depth, priority, attempt, visit FROM urls WHERE seq IN ({",".join("?" * CHUNK)})
"""  # noqa: S608 - only marks
_LAST_SEQ = """
    SELECT max(coalesce((SELECT max(seq) FROM urls), 0),
               coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_seq'), 0))
"""
_LIVE_HOSTS = """
    WITH RECURSIVE live(id) AS (
        SELECT min(host) FROM urls WHERE state = 0 AND host > :after
        UNION ALL
        SELECT (SELECT min(host) FROM urls WHERE state = 0 AND host > live.id) FROM live WHERE live.id IS NOT NULL
        LIMIT :limit
    )
    SELECT live.id, hosts.host FROM live JOIN hosts ON hosts.id = live.id
"""


class _Row(NamedTuple):
    """What deciding about a URL that is already in the table needs."""

    seq: int
    fp: int
    state: int
    reason: str
    depth: int
    priority: int
    attempt: int
    visit: int


class UrlTable:
    """Reads and writes `urls`, `hosts` and `counts`. Its caches follow the transaction: see `forget_unsaved`.

    With a Bloom filter, finished URLs lose their rows, and the filter alone knows them.
    """

    def __init__(self, db: sqlite3.Connection, bloom: SqliteBloom | None = None) -> None:
        self._db = db
        self._bloom = bloom
        self._next_seq = 0
        self._host_ids: dict[str, int] = {}
        self._deltas: Counter[tuple[int, str]] = Counter()
        self._index = FingerprintIndex(db)
        self.forget_unsaved()

    def forget_unsaved(self) -> None:
        """Drop what was learnt in a transaction that is rolled back."""
        self._deltas.clear()
        self._host_ids.clear()
        self._index.forget_unsaved()
        if self._bloom is not None:
            self._bloom.forget_unsaved()
        self._next_seq = self._db.execute(_LAST_SEQ).fetchone()[0] + 1

    def saved(self) -> None:
        """Keep what was learnt: the transaction is committed."""
        self._index.saved()
        if self._bloom is not None:
            self._bloom.saved()

    @property
    def wants_merge(self) -> bool:
        """Whether so many fingerprints are in memory that they should be merged into the index."""
        return self._index.is_full

    def merge(self) -> int:
        """Write the fingerprints in memory to the index; returns the row up to which `merged` may forget them."""
        self._index.merge(self._next_seq - 1)
        return self._next_seq - 1

    def merged(self, up_to: int) -> None:
        """Forget what the committed merge has written."""
        self._index.merged(up_to)

    def save_counts(self) -> None:
        """Write the changed numbers of URLs, and what the filter learnt; called last in every transaction."""
        self._db.executemany(
            "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT(state, reason) DO UPDATE SET n = n + excluded.n",
            [(state, reason, n) for (state, reason), n in self._deltas.items() if n],
        )
        self._deltas.clear()
        if self._bloom is not None:
            self._bloom.save()
            self._index.save()
            # The newest row may be deleted, and its number must not be given again.
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('last_seq', ?)", (str(self._next_seq - 1),))

    def _move(self, before: tuple[int, str] | None, after: tuple[int, str], n: int = 1) -> None:
        if before is not None:
            self._deltas[before] -= n
        self._deltas[after] += n

    def _host_id(self, host: str) -> int:
        known = self._host_ids.get(host)
        if known is not None:
            return known
        row = self._db.execute("SELECT id FROM hosts WHERE host = ?", (host,)).fetchone()
        if row is None:
            made = self._db.execute("INSERT INTO hosts(host, grp) VALUES (?, ?)", (host, host)).lastrowid
            assert made is not None
            row = (made,)
        if len(self._host_ids) >= _MAX_CACHED_HOSTS:
            self._host_ids.clear()
        self._host_ids[host] = row[0]
        return int(row[0])

    def count_pages(self, requests: Iterable[Request]) -> None:
        """Count page records towards their hosts."""
        pages = Counter(request.host for request in requests)
        rows = [(n, self._host_id(host)) for host, n in pages.items()]
        self._db.executemany("UPDATE hosts SET pages = pages + ? WHERE id = ?", rows)

    def _rows(self, seqs: Sequence[int]) -> dict[int, _Row]:
        """Read rows by their place, in chunks of one size so that the statement is prepared once."""
        rows: dict[int, _Row] = {}
        for chunk in chunks(sorted(seqs)):
            rows.update((row[0], _Row(*row)) for row in self._db.execute(_ROWS, chunk))
        return rows

    # -- accepting -------------------------------------------------------------------------------------

    def insert(self, found: Sequence[tuple[Found, Known | None]]) -> tuple[int, list[Known]]:
        """Accept what is new and improve what is known; returns the number of new URLs and all that now wait.

        Each comes with the page it was found on.
        """
        best: dict[int, tuple[Found, Known | None]] = {}
        for item in found:
            fingerprint = item[0].request.fingerprint
            rival = best.get(fingerprint)
            if rival is None or _rank(item[0]) < _rank(rival[0]):
                best[fingerprint] = item
        # What the filter does not know has no row: the index need not be asked.
        seen = best.keys() if self._bloom is None else self._bloom.find(best.keys())
        known = self._index.find([fp for fp in best if fp in seen])
        old = known.keys() if self._bloom is None else seen
        new = [item for fp, item in best.items() if fp not in old]
        live = self._insert_new(new)
        rows = self._rows(list(known.values())).values()
        for row in rows:
            live += self._improve(row, *best[row.fp])
        if len(rows) < len(old):
            gone = old - {row.fp for row in rows}
            live += [again for fp, item in best.items() if fp in gone for again in self._return(*item)]
        return len(new), live

    def _insert_new(self, new: Sequence[tuple[Found, Known | None]]) -> list[Known]:
        rows, live = [], []
        # In the order of finding: it decides between URLs of equal priority.
        for found, parent in new:
            request = found.request
            state = State.REFUSED if found.refusal else State.QUEUED
            self._move(None, (int(state), found.refusal))
            if self._bloom is not None:
                self._bloom.add(request.fingerprint)
                if is_forgettable(found):
                    self._host_id(request.host)
                    continue
            known = Known(request, self._next_seq)
            rows.append(self._row_of(known, parent, found))
            if not found.refusal:
                live.append(known)
        self._db.executemany(INSERT, rows)
        return live

    def _row_of(self, known: Known, parent: Known | None, found: Found) -> tuple[object, ...]:
        """Return a new row, and have the index know it."""
        self._next_seq = known.seq + 1
        self._index.add(known.request.fingerprint, known.seq)
        host = self._host_id(known.request.host)
        return row_of(known, host, found, *self._origin(parent))

    def _origin(self, parent: Known | None) -> tuple[int | None, str | None]:
        """Return what to keep of the page a URL was found on: its row, and its URL where that row will not stay."""
        if parent is None:
            return None, None
        return parent.seq, None if self._bloom is None else parent.request.url

    def _return(self, found: Found, parent: Known | None) -> list[Known]:
        """Queue a URL once more that its own redirects led back to, as `_reopen` does, where its row is gone."""
        request = found.request
        if found.refusal or request.url not in request.redirected_from:
            return []
        known = Known(request, self._next_seq, attempt=1, visit=2)
        self._db.execute(INSERT, self._row_of(known, parent, found))
        self._move((int(State.REDIRECTED), "redirect"), (_QUEUED, ""))
        return [self._read(known.seq, request.host)]

    def _improve(self, row: _Row, found: Found, parent: Known | None) -> list[Known]:
        request = found.request
        if row.state == State.REDIRECTED and row.visit == 1 and request.url in request.redirected_from:
            return [self._reopen(row, request)]
        better = request.depth < row.depth or request.priority < row.priority
        if not better:
            return []
        reopened = row.state == State.REFUSED and row.reason == "depth" and not found.refusal
        state, reason = (_QUEUED, "") if reopened else (row.state, row.reason)
        self._db.execute(
            "UPDATE urls SET depth = min(depth, ?), priority = min(priority, ?), parent = ?, parent_url = ?, state = ?,"
            " reason = ? WHERE seq = ?",
            (request.depth, request.priority, *self._origin(parent), state, reason, row.seq),
        )
        if reopened:
            self._move((row.state, row.reason), (state, reason))
        return [self._read(row.seq, request.host)] if reopened else []

    def _reopen(self, row: _Row, request: Request) -> Known:
        """Queue a URL once more that its own chain of redirects led back to, now with the cookies set."""
        self._db.execute(
            "UPDATE urls SET state = 0, reason = '', request = ?, attempt = attempt + 1, tries = 0, visit = visit + 1 WHERE seq = ?",
            (packed_extras(request), row.seq),
        )
        self._move((row.state, row.reason), (_QUEUED, ""))
        return self._read(row.seq, request.host)

    def _read(self, seq: int, host: str) -> Known:
        return known_from(host, *self._db.execute(f"{_READ} WHERE u.seq = ?", (seq,)).fetchone())

    # -- settling --------------------------------------------------------------------------------------

    def settle(
        self, visits: Sequence[Visit], at: float, room: Room
    ) -> tuple[list[Visit], frozenset[int], list[Known]]:
        """Apply outcomes by compare-and-set on (live, attempt); returns winners, losers and what is queued again."""
        rows = self._rows([visit.known.seq for visit in visits])
        winners, lost, live = list[Visit](), set[int](), list[Known]()
        final = []
        for visit in sorted(visits, key=lambda visit: visit.known.request.fingerprint):
            fp, seq = visit.known.request.fingerprint, visit.known.seq
            row = rows.get(seq)
            if isinstance(visit.outcome, Deferred):
                continue
            as_leased = (fp, _QUEUED, visit.known.attempt)
            if row is None or (row.fp, row.state, row.attempt) != as_leased or not room.takes(visit):
                lost.add(fp)
                continue
            # A second visit of the same URL in one batch is as stale as one in the next.
            rows[seq] = row._replace(attempt=row.attempt + 1)
            winners.append(visit)
            match visit.outcome:
                case Settled(state, reason, detail, status):
                    final.append((int(state), reason, detail[:MAX_DETAIL] or None, status, at, row.seq))
                    self._move((_QUEUED, ""), (int(state), reason))
                case Crashed(poison=True):
                    final.append((int(State.FAILED), "poison", None, 0, at, row.seq))
                    self._move((_QUEUED, ""), (int(State.FAILED), "poison"))
                case outcome:
                    live.append(self._requeue(row, visit.known, outcome))
        self._db.executemany(
            "UPDATE urls SET state = ?, reason = ?, detail = ?, status = ?, settled_at = ?, attempt = attempt + 1 WHERE seq = ?",
            final,
        )
        return winners, frozenset(lost), live

    def repeat(self, visits: Sequence[Visit], repeated: Mapping[int, str]) -> None:
        """Settle pages again that were just settled: as duplicates of what `repeated` says of their rows."""
        final = []
        for visit in visits:
            if visit.known.seq in repeated:
                assert isinstance(visit.outcome, Settled)
                final.append((repeated[visit.known.seq][:MAX_DETAIL], visit.known.seq))
                self._move(
                    (int(visit.outcome.state), visit.outcome.reason), (int(State.DUPLICATE), "duplicate")
                )
        self._db.executemany(
            "UPDATE urls SET state = 5, reason = 'duplicate', detail = ? WHERE seq = ?", final
        )

    def forget(self, visits: Sequence[Visit]) -> None:
        """Delete the rows of what these visits finished, where the filter remembers it."""
        if self._bloom is not None:
            for fingerprint, seq in forget(self._db, [visit.known.seq for visit in visits]):
                self._index.remove(fingerprint, seq)

    def _requeue(self, row: _Row, known: Known, outcome: Retry | Hop | Crashed) -> Known:
        changed = partial(msgspec.structs.replace, known, attempt=row.attempt + 1)
        match outcome:
            case Retry(reason, not_before, detail):
                again = changed(tries=known.tries + 1, not_before=not_before)
                note = f"will be tried again after {reason}" + (f": {detail}" if detail else "")
            case Hop(request):
                again = changed(tries=0, not_before=0.0, request=request)
                note = f"goes on at {request.metadata.get('robots_at') or request.target}"
                move = (self._host_id(request.host), packed_extras(request), row.seq)
                self._db.execute("UPDATE urls SET host = ?, request = ? WHERE seq = ?", move)
            case Crashed(alone):
                again = changed(crashes=max(known.crashes, 1) + alone)
                note = "its worker died"
        self._db.execute(
            "UPDATE urls SET attempt = ?, tries = ?, crashes = ?, not_before = ?, detail = ? WHERE seq = ?",
            (again.attempt, again.tries, again.crashes, again.not_before, note[:MAX_DETAIL], row.seq),
        )
        return again

    def hold(self, reason: str, host: str) -> int:
        """Move queued URLs to held."""
        where, parameters = ("AND host = ?", [self._host_id(host)]) if host else ("", [])
        change = "UPDATE urls SET state = 1, reason = ?, attempt = attempt + 1 WHERE seq = ?"
        held = 0
        # Piece by piece: one statement over millions of rows would keep a list of them all in memory.
        while seqs := self._db.execute(
            f"SELECT seq FROM urls WHERE state = 0 {where} LIMIT {_ROWS_AT_ONCE}",  # noqa: S608 - constants
            parameters,
        ).fetchall():
            self._db.executemany(change, [(reason, seq) for (seq,) in seqs])
            held += len(seqs)
        self._move((_QUEUED, ""), (int(State.HELD), reason), held)
        return held

    def deepen(self, max_depth: int) -> int:
        """Let a page that was found nearer after it was fetched bring its links nearer too, as far as that leads."""
        if (
            self._db.execute("SELECT 1 FROM counts WHERE state = 6 AND reason = 'depth' AND n > 0").fetchone()
            is None
        ):
            return 0
        while self._db.execute(_NEARER).rowcount:
            pass
        refused = "state = 6 AND reason = 'depth'"
        return self.revive(f"{refused} AND depth <= ?", [max_depth])

    def revive(self, condition: str, parameters: Sequence[object]) -> int:
        """Queue URLs again that match a condition (of our own making) and are not live."""
        select = f"""
            SELECT seq, state, reason FROM urls
            WHERE state NOT IN (0, 2, 3) AND ({condition}) AND seq > ? ORDER BY seq LIMIT {_ROWS_AT_ONCE}
        """  # noqa: S608
        change = (
            "UPDATE urls SET state = 0, reason = '', not_before = 0, crashes = 0, tries = 0, attempt = attempt + 1"
            " WHERE seq = ?"
        )
        revived, last = 0, 0
        while rows := self._db.execute(select, [*parameters, last]).fetchall():
            last = rows[-1][0]
            self._db.executemany(change, [(seq,) for seq, _, _ in rows])
            for _, state, reason in rows:
                self._move((state, reason), (_QUEUED, ""))
            revived += len(rows)
        return revived

    # -- reading ---------------------------------------------------------------------------------------

    def take(self, host: str, limit: int, now: float) -> list[Known]:
        """Return the next live requests of a host: due ones by priority, then those that wait."""
        row = self._db.execute("SELECT id FROM hosts WHERE host = ?", (host,)).fetchone()
        if row is None:
            return []
        rows = self._db.execute(_TAKE.format(due="<="), (row[0], now, limit)).fetchall()
        if len(rows) < limit:
            rows += self._db.execute(_TAKE.format(due=">"), (row[0], now, limit - len(rows))).fetchall()
        return [known_from(host, *fields) for fields in rows]

    def live_hosts(self, after: int, limit: int) -> tuple[list[str], int]:
        """Return hosts with live URLs by skipping through the index of live URLs: it cannot miss one."""
        rows = self._db.execute(_LIVE_HOSTS, {"after": after, "limit": limit}).fetchall()
        return [host for _, host in rows], rows[-1][0] if len(rows) == limit else 0


def _rank(found: Found) -> tuple[bool, int, int]:
    """Order findings of one URL: queued before refused, then nearer to the seeds, then by priority."""
    return bool(found.refusal), found.request.depth, found.request.priority
