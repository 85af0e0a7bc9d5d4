"""The ledger of many machines: one job in a PostgreSQL database, as one of its workers sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
import zstandard

from gossamer.contracts import Clock, Failpoint, no_failpoint
from gossamer.frontier import postgres_books as books
from gossamer.frontier import postgres_records as records
from gossamer.frontier import postgres_sweeps as sweeps
from gossamer.frontier import postgres_urls as urls
from gossamer.frontier.postgres_arrays import Texts, storable
from gossamer.frontier.postgres_contents import claim
from gossamer.frontier.postgres_plan import Finding, Plan
from gossamer.frontier.postgres_pool import LimitPassed, PostgresPool, Query, Session, TextRefused
from gossamer.frontier.postgres_room import check_limit, count_under_lock
from gossamer.frontier.postgres_writer import UrlWriter
from gossamer.frontier.room import Room
from gossamer.model.outcome import (
    Batch,
    Committed,
    Crashed,
    Cursor,
    Found,
    GroupState,
    Hop,
    Retry,
    Revival,
    RobotsFile,
    State,
    StoredRobots,
    Visit,
)
from gossamer.model.request import Known
from gossamer.model.schedule import Added, HostInfo, LogEntry

T = TypeVar("T")

#: Commits of this worker between two foldings of the job's numbers.
_COMMITS_A_FOLD = 256

# A batch that is sent again while the first attempt is still under way is stopped by the key of the log, and then
# finds what the first one left.
_BATCH = "SELECT position, lost, duplicates FROM log WHERE job = %s::integer AND batch = %s"
_SET_META = """
    INSERT INTO meta(job, key, value) VALUES (%s::integer, %s, %s) ON CONFLICT (job, key) DO UPDATE SET value = excluded.value
"""
_GET_META = "SELECT value FROM meta WHERE job = %s::integer AND key = %s"
_SET_GROUPS = """
    UPDATE sources s SET grp = w.grp FROM unnest(%s::text[], %s::text[]) AS w(host, grp)
    WHERE s.job = %s::integer AND s.host = w.host AND s.grp <> w.grp
"""
_COUNTS = """
    SELECT state, reason, sum(n)::bigint FROM counts WHERE job = %s::integer GROUP BY state, reason HAVING sum(n) > 0
"""
_TOTALS = "SELECT name, sum(n)::bigint FROM totals WHERE job = %s::integer GROUP BY name"
_ROBOTS = """
    SELECT fetched_at, status, body, version FROM robots WHERE job = %s::integer AND origin = %s
    ORDER BY fetched_at DESC LIMIT 1
"""
_UNREACHABLE = "SELECT since FROM robots_failures WHERE job = %s::integer AND origin = %s"
_CURSORS = 'SELECT output, position, "offset", records FROM cursors WHERE job = %s::integer'
_ROOTS = "SELECT root FROM roots WHERE job = %s::integer LIMIT %s"

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(frozenset[int]).decode


class PostgresLedger:
    """Implements `Ledger`. Any number of workers may each have one of the same job and commit at the same time.

    * A call that the server loses is repeated for as long as the pool is patient; a commit that had happened is
      recognised by its batch, and an `add` changes nothing the second time.
    * `BackendLost` means that the server stayed away. What was answered before is safe.
    """

    def __init__(
        self,
        pool: PostgresPool,
        job: int,
        clock: Clock,
        failpoint: Failpoint = no_failpoint,
        *,
        worker: str = "",
    ) -> None:
        self._pool = pool
        self._job = job
        self._clock = clock
        self._failpoint = failpoint
        self._worker = worker
        self._writer = UrlWriter(pool, job)
        self._commits = 0

    def __repr__(self) -> str:
        return f"<PostgresLedger {self._pool.place} job {self._job}>"

    # -- adding ----------------------------------------------------------------------------------------

    async def add(self, found: Sequence[Found], *, roots: Iterable[str] = (), progress: str = "") -> Added:
        """Accept URLs, and in the same transaction the scope roots and the note how far seeding has come."""
        self._failpoint("add:before")
        spanning = list(roots)
        hosts = await self._writer.hosts({item.request.host for item in found})

        async def work(session: Session) -> Added:
            plan = Plan()
            looked = await session.run(*_numbers(len(found)), urls.look_up(self._job, (), found))
            plan.learn(looked[-1].rows)
            plan.accept(Finding(item, None) for item in found)
            new, waiting = await self._writer.write(session, plan, looked[0].rows, hosts, 0.0)
            lock = [books.lock_books(self._job)] if spanning else []
            note = [Query(_SET_META, (self._job, "seeding", progress))] if progress else []
            numbers = books.counts(self._job, plan.counts)
            await session.run(*lock, *books.roots(self._job, spanning), *note, *numbers)
            self._failpoint("add:written")
            await session.commit()
            return Added(len(plan.new), new + waiting)

        added = await self._pool.transact(work)
        self._failpoint("add:done")
        return added

    async def close_seeding(self) -> None:
        """Note that every seed has been added."""
        await self.set_meta("seeding", "closed")

    async def hold(self, reason: str, host: str = "") -> int:
        """Move all queued URLs (of one host) to held."""
        self._failpoint("hold:before")
        held = await sweeps.hold(self._pool, self._job, reason, host, lambda: self._failpoint("hold:written"))
        self._failpoint("hold:done")
        return held

    async def deepen(self, max_depth: int) -> int:
        """Recompute depths from the pages URLs were found on, where those came nearer; queue what is now near enough."""
        self._failpoint("deepen:before")
        written = lambda: self._failpoint("deepen:written")  # noqa: E731
        reopened = await sweeps.deepen(self._pool, self._job, max_depth, written)
        self._failpoint("deepen:done")
        return reopened

    async def revive(self, which: Revival) -> int:
        """Queue URLs again that are held, refused or failed and match."""
        self._failpoint("revive:before")
        revived = await sweeps.revive(self._pool, self._job, which, lambda: self._failpoint("revive:written"))
        self._failpoint("revive:done")
        return revived

    # -- committing ------------------------------------------------------------------------------------

    async def commit(self, batch: Batch) -> Committed:
        """Write outcomes, records, new URLs and the fetch log of a batch, or nothing of it."""
        self._failpoint("commit:before")
        wanted = {item.request.host for visit in batch.visits for item in visit.found}
        for visit in batch.visits:
            match visit.outcome:
                case Hop(request):
                    wanted.add(request.host)
                case Retry() | Crashed():
                    wanted.add(visit.known.request.host)
        hosts = await self._writer.hosts(wanted)
        try:
            committed = await self._commit_what_fits(batch, hosts)
        except TextRefused:
            committed = await self._commit_what_fits(records.storable(batch), hosts)
        self._failpoint("commit:done")
        self._commits += 1
        if self._commits % _COMMITS_A_FOLD == 0:
            await self._pool.ask(*books.fold(self._job))
        return committed

    async def _commit_what_fits(self, batch: Batch, hosts: Mapping[str, int]) -> Committed:
        """Commit as if all its records had room; where they have not, as many as have."""
        counts = False
        while True:
            try:
                return await self._pool.transact(partial(self._commit, batch, hosts, counts=counts))
            except LimitPassed:
                # Again and again only while others bring the job nearer to its limit.
                counts = True

    async def _commit(
        self, batch: Batch, hosts: Mapping[str, int], session: Session, *, counts: bool
    ) -> Committed:
        job, visits = self._job, batch.visits
        found = [item for visit in visits for item in visit.found]
        room = None
        if counts and batch.max_records is not None:
            room = batch.max_records - (await session.run(*count_under_lock(job)))[-1].rows[0][0]
        known, number, *rest = await session.run(
            Query(_BATCH, (job, batch.id)),
            books.number(),
            *_numbers(len(found)),
            urls.look_up(job, visits, found),
        )
        for position, lost, duplicates in known.rows:
            await session.roll_back()
            return Committed(position, _unpack(lost), [], repeated=True, duplicates=_unpack(duplicates))
        plan = Plan()
        plan.learn(rest[-1].rows)
        winners, lost = plan.settle(visits, Room(room))
        plan.accept(
            Finding(item, visit.known.request.fingerprint) for visit in winners for item in visit.found
        )
        fetches = books.fetches(job, self._worker, visits)
        new, waiting = await self._writer.write(session, plan, rest[0].rows, hosts, batch.at, *fetches)
        live = plan.queued_again() + new + waiting
        total = batch.max_records - room if batch.max_records is not None and room is not None else None
        done = Committed(0, lost, live, len(plan.new), total=total)
        return await self._record(session, batch, winners, plan, done, number.rows[0][0])

    async def _record(
        self,
        session: Session,
        batch: Batch,
        winners: Sequence[Visit],
        plan: Plan,
        done: Committed,
        number: int,
    ) -> Committed:
        """Write what is to be kept of the visits, then the entry of the log, and commit."""
        job, at = self._job, batch.at
        repeated, contents = await claim(session, job, winners)
        again = [
            (v, repeated[v.known.request.fingerprint])
            for v in winners
            if v.known.request.fingerprint in repeated
        ]
        settled = [plan.repeat(visit, detail) for visit, detail in again]
        pages = [v for v in winners if v.record and v.known.request.fingerprint not in repeated]
        await session.run(
            *([urls.settle(job, settled, at, 0)] if settled else ()),
            *contents,
            *self._books(batch, winners),
            *records.pages(job, number, pages),
            *books.notes(job, self._worker, batch.visits, at),
            *books.groups(batch.groups),
            *books.cursors(job, batch.cursors),
            *books.counts(job, plan.counts),
            *books.totals(job, batch.visits, len(pages)),
        )
        lines = await records.lines(session, number, pages)
        self._failpoint("commit:written")
        duplicates = frozenset(repeated)
        answer = _pack(list(done.lost)), _pack(list(duplicates))
        entry = books.log_entry(job, number, batch.id, self._worker, at, len(pages), *answer)
        check = [check_limit(job, batch.max_records)] if pages and batch.max_records is not None else []
        head, *more = await session.commit(entry, *books.sources(job, pages, batch.visits, at), *check)
        return msgspec.structs.replace(
            done,
            position=head.rows[0][0],
            records=len(pages),
            lines=lines,
            duplicates=duplicates,
            total=more[-1].rows[0][0] if check else done.total,
        )

    def _books(self, batch: Batch, winners: Sequence[Visit]) -> list[Query]:
        """Write what few visits bring, alone among the workers of the job."""
        queries = [
            *books.robots(self._job, [file for visit in batch.visits for file in visit.robots]),
            *books.cookies(self._job, [cookie for visit in batch.visits for cookie in visit.cookies]),
            *books.roots(self._job, [visit.root for visit in winners if visit.root]),
        ]
        return [books.lock_books(self._job), *queries] if queries else []

    # -- answers ---------------------------------------------------------------------------------------

    async def take(self, host: str, limit: int, now: float) -> list[Known]:
        """Return the host's next live requests, due ones first, then by priority and age."""
        (found,) = await self._pool.read(urls.take(self._job, host, limit, now))
        return [urls.known_of((host, *row)) for row in found.rows]

    async def hosts(self, after: int, limit: int) -> tuple[list[str], int]:
        """Return hosts that have live URLs, and the key to pass as `after` next time; 0 begins anew."""
        (found,) = await self._pool.read(urls.live_hosts(self._job, after, limit))
        return [host for _, host in found.rows], found.rows[-1][0] if len(found.rows) == limit else 0

    async def host_info(self, hosts: Sequence[str], groups: Mapping[str, str] = {}) -> list[HostInfo]:
        """Return page counts and the persisted politeness state of hosts; notes the group of those named in `groups`."""
        named = sorted(groups)
        columns = Texts(named), Texts([groups[host] for host in named])
        change = [Query(_SET_GROUPS, (*columns, self._job))] if named else []
        wanted = [groups.get(host, host) for host in hosts]
        found = (await self._pool.ask(*change, books.host_info(self._job, hosts, wanted)))[-1].rows
        return [
            HostInfo(
                host, pages or 0, GroupState(*state) if state[0] is not None else GroupState(group), active
            )
            for host, group, (pages, active, *state) in zip(hosts, wanted, found, strict=True)
        ]

    async def is_drained(self) -> bool:
        """Say whether seeding is closed and no live URL is left: the job is done."""
        # In this order: what is added before seeding is closed is seen by the second question.
        seeding, live = await self._pool.read(
            Query(_GET_META, (self._job, "seeding")), urls.has_live(self._job)
        )
        return seeding.rows == [("closed",)] and not live.rows

    async def robots(self, origin: str) -> StoredRobots:
        """Return the newest robots.txt stored for an origin, and since when it has not answered."""
        asked = (self._job, storable(origin))
        failure, file = await self._pool.read(Query(_UNREACHABLE, asked), Query(_ROBOTS, asked))
        since = failure.rows[0][0] if failure.rows else 0.0
        for fetched_at, status, packed, version in file.rows:
            body = zstandard.ZstdDecompressor().decompress(packed)
            return StoredRobots(RobotsFile(origin, fetched_at, status, body, version), since)
        return StoredRobots(None, since)

    async def cookies(self) -> list[bytes]:
        """Return the cookies that visits have brought, the one set longest ago first."""
        return [data for (data,) in (await self._pool.read(books.all_cookies(self._job)))[0].rows]

    async def cookies_after(self, number: int) -> list[tuple[int, bytes]]:
        """Return the cookies that were set or removed since the one of that number, each with its own.

        None appears before these. What was removed is there as an expired cookie, for as long as the removal is new.
        """
        # A cookie that is set again has a new number, and numbers are given under the lock of the job's books.
        return [
            (n, data) for n, data in (await self._pool.read(books.cookies_after(self._job, number)))[0].rows
        ]

    async def log(self, after: int, limit: int) -> list[LogEntry]:
        """Return batches of the record log behind a position. None will ever appear before one that was returned."""
        (found,) = await self._pool.ask(records.log(self._job, after, limit))
        return [records.entry_of(row) for row in found.rows]

    async def cursors(self) -> list[Cursor]:
        """Return the outputs and how far each has come."""
        return [Cursor(*row) for row in (await self._pool.ask(Query(_CURSORS, (self._job,))))[0].rows]

    async def save_cursors(self, cursors: Sequence[Cursor]) -> None:
        """Store how far outputs have come, after their bytes are safe on disk."""
        self._failpoint("cursor:before")

        async def work(session: Session) -> None:
            await session.run(*books.cursors(self._job, cursors))
            self._failpoint("cursor:written")
            await session.commit()

        await self._pool.transact(work)
        self._failpoint("cursor:done")

    async def roots(self, limit: int) -> list[str]:
        """Return scope roots, those of the seeds and of their redirects, up to a number of them."""
        return [root for (root,) in (await self._pool.read(Query(_ROOTS, (self._job, limit))))[0].rows]

    async def counts(self) -> Counter[tuple[State, str]]:
        """Return the number of URLs by state and reason."""
        rows = (await self._pool.read(Query(_COUNTS, (self._job,))))[0].rows
        return Counter({(State(state), reason): n for state, reason, n in rows})

    async def totals(self) -> dict[str, int]:
        """Return the running totals: records, fetches, wire_bytes."""
        return dict((await self._pool.read(Query(_TOTALS, (self._job,))))[0].rows)

    async def count_records(self) -> int:
        """Return the number of records, of whichever worker."""
        return (await self.totals()).get("records", 0)

    async def get_meta(self, key: str) -> str:
        """Return a note about the job, or an empty string."""
        rows = (await self._pool.read(Query(_GET_META, (self._job, key))))[0].rows
        return str(rows[0][0]) if rows else ""

    async def set_meta(self, key: str, value: str) -> None:
        """Store a note about the job."""
        await self._pool.ask(Query(_SET_META, (self._job, key, storable(value))))

    async def close(self) -> None:
        """Let go of the connections: every call has waited for its answer."""
        await self._pool.close()


def _numbers(count: int) -> list[Query]:
    """Take numbers for new URLs; one block even for none, so that answers stand at the same place."""
    return [urls.numbers(max(count, 1))]
