"""The ledger of one machine: a SQLite file with one writer, on a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from gossamer.contracts import Clock, Failpoint, no_failpoint
from gossamer.frontier.room import Room
from gossamer.frontier.sqlite_bloom import BloomPlan, open_bloom
from gossamer.frontier.sqlite_contents import ContentTable
from gossamer.frontier.sqlite_robots import RobotsTable
from gossamer.frontier.sqlite_rows import INSERT_FETCH, fetch_row, revival_condition
from gossamer.frontier.sqlite_schema import connect, explained
from gossamer.frontier.sqlite_urls import UrlTable
from gossamer.model.outcome import (
    Batch,
    Committed,
    Cursor,
    Found,
    GroupState,
    Revival,
    State,
    StoredRobots,
    Visit,
)
from gossamer.model.request import Known
from gossamer.model.schedule import Added, HostInfo, LogEntry
from gossamer.policy.cookies import MAX_COOKIES
from gossamer.waiting import finished

T = TypeVar("T")


class SqliteLedger:
    """Implements `Ledger` on one file. Every call runs on the ledger's own thread, in order.

    A ledger that is made with a plan for a Bloom filter forgets finished URLs but for that, and stays so whether or not
    the plan is given again.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        failpoint: Failpoint = no_failpoint,
        bloom: BloomPlan | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._failpoint = failpoint
        # Cookies are as good as passwords. Its WAL gets the same mode from SQLite.
        if not path.exists():
            with suppress(OSError):
                path.touch(mode=0o600)
        self._db = connect(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        with explained(path):
            self._bloom = open_bloom(self._db, bloom)
            self._urls = UrlTable(self._db, self._bloom)
        self._robots = RobotsTable(self._db)
        self._contents = ContentTable(self._db)
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._decompressor = zstandard.ZstdDecompressor()

    def __repr__(self) -> str:
        return f"<SqliteLedger {self._path}>"

    async def _call(self, work: Callable[[], T]) -> T:
        """Run `work` on the ledger's thread. A cancelled caller waits for it: a commit is never abandoned half-known."""

        def explained_work() -> T:
            with explained(self._path):
                return work()

        future = asyncio.get_running_loop().run_in_executor(self._thread, explained_work)
        return await finished(future)

    @contextmanager
    def _transaction(self, name: str) -> Iterator[None]:
        self._failpoint(f"{name}:before")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._failpoint(f"{name}:written")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._urls.forget_unsaved()
            raise
        self._urls.saved()
        self._failpoint(f"{name}:done")

    # -- adding ----------------------------------------------------------------------------------------

    async def add(self, found: Sequence[Found], *, roots: Iterable[str] = (), progress: str = "") -> Added:
        """Accept URLs, and in the same transaction the scope roots and the note how far seeding has come."""
        return await self._call(lambda: self._add(found, list(roots), progress))

    def _merge_if_wanted(self) -> None:
        if self._urls.wants_merge:
            with self._transaction("merge"):
                up_to = self._urls.merge()
            self._urls.merged(up_to)
        if self._bloom is not None and self._bloom.wants_fold:
            with self._transaction("fold"):
                self._bloom.fold()
            self._bloom.folded()

    def _add(self, found: Sequence[Found], roots: list[str], progress: str) -> Added:
        with self._transaction("add"):
            new, live = self._urls.insert([(item, None) for item in found])
            self._add_roots(roots)
            if progress:
                self._set_meta("seeding", progress)
            self._urls.save_counts()
        self._merge_if_wanted()
        return Added(new, live)

    def _add_roots(self, roots: Iterable[str]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO roots VALUES (?)", [(root,) for root in roots])

    async def close_seeding(self) -> None:
        """Note that every seed has been added."""
        await self.set_meta("seeding", "closed")

    async def hold(self, reason: str, host: str = "") -> int:
        """Move all queued URLs (of one host) to held."""

        def work() -> int:
            with self._transaction("hold"):
                held = self._urls.hold(reason, host)
                self._urls.save_counts()
            return held

        return await self._call(work)

    async def deepen(self, max_depth: int) -> int:
        """Recompute depths from the pages URLs were found on, where those came nearer; queue what is now near enough."""

        def work() -> int:
            with self._transaction("deepen"):
                reopened = self._urls.deepen(max_depth)
                self._urls.save_counts()
            return reopened

        return await self._call(work)

    async def revive(self, which: Revival) -> int:
        """Queue URLs again that are held, refused or failed and match."""

        def work() -> int:
            with self._transaction("revive"):
                revived = self._urls.revive(*revival_condition(which))
                self._urls.save_counts()
            return revived

        return await self._call(work)

    # -- committing ------------------------------------------------------------------------------------

    async def commit(self, batch: Batch) -> Committed:
        """Write outcomes, records, new URLs and the fetch log of a batch, or nothing of it."""
        return await self._call(lambda: self._commit(batch))

    def _commit(self, batch: Batch) -> Committed:
        with self._transaction("commit"):
            known = self._db.execute(
                "SELECT position, lost, duplicates FROM log WHERE batch = ?", (batch.id,)
            ).fetchone()
            if known is not None:
                lost, duplicates = (frozenset(msgspec.msgpack.decode(part or b"\x90")) for part in known[1:])
                return Committed(known[0], lost, [], repeated=True, duplicates=duplicates)
            committed = self._apply(batch)
        self._merge_if_wanted()
        return committed

    def _apply(self, batch: Batch) -> Committed:
        records = self._records()
        room = Room(None if batch.max_records is None else batch.max_records - records)
        winners, lost, live = self._urls.settle(batch.visits, batch.at, room)
        found = [(item, visit.known) for visit in winners for item in visit.found]
        added, waiting = self._urls.insert(found)
        self._write_fetches(batch.visits)
        self._robots.write([file for visit in batch.visits for file in visit.robots])
        self._write_cookies(batch.visits)
        self._write_groups(batch.groups)
        self._write_cursors(batch.cursors)
        self._add_roots(visit.root for visit in winners if visit.root)
        repeated = self._contents.claim(winners)
        self._urls.repeat(winners, repeated)
        pages = [visit for visit in winners if visit.record and visit.known.seq not in repeated]
        lines = b"\n".join([*(visit.record for visit in pages), b""]) if pages else b""
        duplicates = frozenset(v.known.request.fingerprint for v in winners if v.known.seq in repeated)
        committed = Committed(0, lost, live + waiting, added, len(pages), lines, duplicates=duplicates)
        self._urls.count_pages([visit.known.request for visit in pages])
        self._urls.forget(winners)
        self._urls.save_counts()
        position, total = self._write_log(batch, committed), records + len(pages)
        return msgspec.structs.replace(committed, position=position, total=total)

    def _write_log(self, batch: Batch, done: Committed) -> int:
        data = self._compressor.compress(done.lines) if done.lines else None
        self._total("records", done.records)
        lost, duplicates = (msgspec.msgpack.encode(list(part)) for part in (done.lost, done.duplicates))
        row = self._db.execute(
            "INSERT INTO log(batch, committed_at, records, data, lost, duplicates) VALUES (?, ?, ?, ?, ?, ?)",
            (batch.id, batch.at, done.records, data, lost, duplicates if done.duplicates else None),
        )
        assert row.lastrowid is not None
        return row.lastrowid

    def _write_fetches(self, visits: Sequence[Visit]) -> None:
        has_row = self._bloom is None
        rows = [fetch_row(visit.known, fetch, has_row=has_row) for visit in visits for fetch in visit.fetches]
        self._db.executemany(INSERT_FETCH, rows)
        self._total("fetches", len(rows))
        self._total("wire_bytes", sum(fetch.wire_bytes for visit in visits for fetch in visit.fetches))

    def _write_cookies(self, visits: Sequence[Visit]) -> None:
        cookies = [cookie for visit in visits for cookie in visit.cookies]
        if not cookies:
            return
        # Deleted first, so that one that is set again becomes the newest.
        for cookie in cookies:
            self._db.execute("DELETE FROM cookies WHERE key = ?", (cookie.key,))
            if cookie.data and not cookie.removed:
                self._db.execute("INSERT INTO cookies(key, data) VALUES (?, ?)", (cookie.key, cookie.data))
        # What jars push out they say; but several processes have several jars, and a crash silences one.
        self._db.execute(
            "DELETE FROM cookies WHERE id <= (SELECT id FROM cookies ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (MAX_COOKIES,),
        )

    def _write_groups(self, groups: Sequence[GroupState]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO groups(grp, last_start, delay, until, failures, slowness) VALUES (?, ?, ?, ?, ?, ?)",
            [(g.group, g.last_start, g.delay, g.until, g.failures, g.slowness) for g in groups],
        )

    def _records(self) -> int:
        row = self._db.execute("SELECT n FROM totals WHERE name = 'records'").fetchone()
        return int(row[0]) if row else 0

    def _total(self, name: str, more: int) -> None:
        if more:
            self._db.execute(
                "INSERT INTO totals VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET n = n + excluded.n",
                (name, more),
            )

    # -- answers ---------------------------------------------------------------------------------------

    async def take(self, host: str, limit: int, now: float) -> list[Known]:
        """Return the host's next live requests, due ones first, then by priority and age."""
        return await self._call(lambda: self._urls.take(host, limit, now))

    async def hosts(self, after: int, limit: int) -> tuple[list[str], int]:
        """Return hosts that have live URLs, and the key to pass as `after` next time; 0 begins anew."""
        return await self._call(lambda: self._urls.live_hosts(after, limit))

    async def host_info(self, hosts: Sequence[str], groups: Mapping[str, str] = {}) -> list[HostInfo]:
        """Return page counts and the persisted politeness state of hosts; notes the group of those named in `groups`."""

        def work() -> list[HostInfo]:
            changed = [(group, host, group) for host, group in groups.items()]
            self._db.executemany("UPDATE hosts SET grp = ? WHERE host = ? AND grp <> ?", changed)
            return [self._host_info(host, groups.get(host, host)) for host in hosts]

        return await self._call(work)

    def _host_info(self, host: str, group: str) -> HostInfo:
        pages = self._db.execute("SELECT pages FROM hosts WHERE host = ?", (host,)).fetchone()
        state = self._db.execute(
            "SELECT grp, last_start, delay, until, failures, slowness FROM groups WHERE grp = ?", (group,)
        ).fetchone()
        return HostInfo(host, pages[0] if pages else 0, GroupState(*state) if state else GroupState(group))

    async def is_drained(self) -> bool:
        """Say whether seeding is closed and no live URL is left: the job is done."""

        def work() -> bool:
            open_work = self._db.execute("SELECT 1 FROM urls WHERE state = 0 LIMIT 1").fetchone()
            return open_work is None and self._get_meta("seeding") == "closed"

        return await self._call(work)

    async def robots(self, origin: str) -> StoredRobots:
        """Return the newest robots.txt stored for an origin, and since when it has not answered."""
        return await self._call(lambda: self._robots.read(origin))

    async def cookies(self) -> list[bytes]:
        """Return the cookies that visits have brought, the one set longest ago first."""
        return await self._call(
            lambda: [row[0] for row in self._db.execute("SELECT data FROM cookies ORDER BY id")]
        )

    async def log(self, after: int, limit: int) -> list[LogEntry]:
        """Return batches of the record log behind a position."""

        def work() -> list[LogEntry]:
            rows = self._db.execute(
                "SELECT position, records, data FROM log WHERE position > ? AND records > 0 ORDER BY position LIMIT ?",
                (after, limit),
            ).fetchall()
            return [LogEntry(p, n, self._decompressor.decompress(data)) for p, n, data in rows]

        return await self._call(work)

    async def cursors(self) -> list[Cursor]:
        """Return the outputs and how far each has come."""

        def work() -> list[Cursor]:
            rows = self._db.execute('SELECT output, position, "offset", records FROM cursors').fetchall()
            return [Cursor(*row) for row in rows]

        return await self._call(work)

    async def save_cursors(self, cursors: Sequence[Cursor]) -> None:
        """Store how far outputs have come, after their bytes are safe on disk."""

        def work() -> None:
            with self._transaction("cursor"):
                self._write_cursors(cursors)

        await self._call(work)

    def _write_cursors(self, cursors: Sequence[Cursor]) -> None:
        self._db.executemany(
            'INSERT OR REPLACE INTO cursors(output, position, "offset", records) VALUES (?, ?, ?, ?)',
            [(c.output, c.position, c.offset, c.records) for c in cursors],
        )

    async def roots(self, limit: int) -> list[str]:
        """Return scope roots, those of the seeds and of their redirects, up to a number of them."""
        return await self._call(
            lambda: [row[0] for row in self._db.execute("SELECT root FROM roots LIMIT ?", (limit,))]
        )

    async def counts(self) -> Counter[tuple[State, str]]:
        """Return the number of URLs by state and reason."""

        def work() -> Counter[tuple[State, str]]:
            rows = self._db.execute("SELECT state, reason, n FROM counts WHERE n > 0")
            return Counter({(State(state), reason): n for state, reason, n in rows})

        return await self._call(work)

    async def totals(self) -> dict[str, int]:
        """Return the running totals: records, fetches, wire_bytes."""
        return await self._call(lambda: dict(self._db.execute("SELECT name, n FROM totals").fetchall()))

    async def get_meta(self, key: str) -> str:
        """Return a note about the job, or an empty string."""
        return await self._call(lambda: self._get_meta(key))

    async def set_meta(self, key: str, value: str) -> None:
        """Store a note about the job."""
        await self._call(lambda: self._set_meta(key, value))

    def _get_meta(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else ""

    def _set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    async def close(self) -> None:
        """Finish what is being written and let go of the file."""

        def work() -> None:
            # A closed job is one file: it can be copied or mailed as it is. Where that fails, for want of room,
            # what is in the WAL is safe there, and the error that ended the run must not be hidden.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()

        await self._call(work)
        self._thread.shutdown()
