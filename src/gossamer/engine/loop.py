"""The loop of a crawl: lease what is due, hand it out, take reports back, commit, and know when to stop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum

import msgspec

from gossamer.config.settings import Settings
from gossamer.contracts import Clock, EventLog
from gossamer.engine.committer import Committer, Done, log_entry
from gossamer.engine.crew import Crew
from gossamer.engine.frontier import Frontier
from gossamer.engine.leaving import abandon, give_back, let_finish
from gossamer.engine.outputs import Outputs
from gossamer.engine.page_limit import PageLimit
from gossamer.engine.problems import log_problems
from gossamer.engine.report import Report
from gossamer.engine.seeds import Seeds
from gossamer.engine.tally import Tally
from gossamer.model.outcome import Committed, Crashed, Deferred, Found, Visit
from gossamer.model.request import Lease
from gossamer.model.schedule import Added, Lost, Outlook

#: A schedule that runs dry while there are hosts for it is looked after so many times as often.
_EARLY_SWEEPS = 20


class Ending(StrEnum):
    """Why a run came to its end."""

    DONE = "done"
    PAGE_LIMIT = "page limit"
    TIME_LIMIT = "time limit"
    SIZE_LIMIT = "size limit"
    INTERRUPTED = "interrupted"


class Standing(msgspec.Struct, frozen=True):
    """What the job had achieved before this run."""

    pages: int = 0
    wire_bytes: int = 0
    seeding: str = ""


class Loop:
    """Runs a crawl to its end. It is the desk its crew reports to."""

    def __init__(
        self,
        settings: Settings,
        frontier: Frontier,
        crew: Crew,
        seeds: Seeds,
        outputs: Outputs,
        standing: Standing,
        clock: Clock,
        log: EventLog,
        run_id: str,
        *,
        poll_seconds: float | None = None,
        recount: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self._settings = settings
        self._pages = PageLimit(settings.limits.max_pages, standing.pages, recount)
        #: Longest rest: others may bring work that nobody here hears of.
        self._poll_seconds = poll_seconds or settings.frontier.sweep_seconds
        self._frontier = frontier
        self._crew = crew
        self._seeds = seeds
        self._outputs = outputs
        self._standing = standing
        self._clock = clock
        self._log = log
        self.tally = Tally()
        self.committer = Committer(settings.engine, frontier.commit, outputs.cursors, self._committed, run_id)
        self.ending: Ending | None = None
        self.outlook = Outlook(0, 0, 0, None)
        self._wake = asyncio.Event()
        self._reports: deque[tuple[Lease, Report]] = deque()
        self._starts: deque[tuple[Lease, float]] = deque()
        self._crashes: deque[tuple[Lease, bool]] = deque()
        #: Leases that are not in the ledger yet, by token.
        self._open: dict[int, Lease] = {}
        self._seeding = True
        self._appetite = asyncio.Event()
        #: There is room for requests, and none is due.
        self._is_dry = False
        #: Bytes of all runs, in the ledger or not yet.
        self._received = standing.wire_bytes
        self._grace_seconds = settings.engine.grace_seconds

    @property
    def in_flight(self) -> int:
        """URLs leased and not yet finished."""
        return max(len(self._open) - self.committer.uncommitted, 0)

    @property
    def is_whole(self) -> bool:
        """Whether everything that was leased is in the ledger: no start of this run is unrecorded."""
        return not self._open

    @property
    def oldest_lease_seconds(self) -> float:
        """How long the lease has been out that was given first; 0 without one."""
        first = next(iter(self._open.values()), None)
        lease_seconds = self._settings.frontier.lease_seconds
        return max(lease_seconds - (first.expires_at - self._clock()), 0.0) if first is not None else 0.0

    def heard_of(self, pages: int, wire_bytes: int) -> None:
        """Take in what the ledger has by now of all who work on the job: limits are for them together."""
        self._pages.hear(pages)
        self._received = max(self._received, wire_bytes)

    @property
    def seeding(self) -> bool:
        """Whether seeds are still being added."""
        return self._seeding

    # -- life ------------------------------------------------------------------------------------------

    async def run(self) -> Ending:
        """Crawl until the job is done, a limit is reached, or `stop` is called."""
        timer = None
        if self._settings.limits.time is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._settings.limits.time, self.stop, Ending.TIME_LIMIT)
        try:
            async with asyncio.TaskGroup() as group:
                outputs = group.create_task(self._outputs.run(), name="outputs")
                committer = group.create_task(self.committer.run(), name="committer")
                crew = group.create_task(self._crew.run(self), name="crew")
                seeding = group.create_task(self._seed(), name="seeds")
                refill = group.create_task(self._refill(), name="refill")
                dispatch = asyncio.create_task(self._dispatch(), name="dispatch")
                await let_finish(dispatch, lambda: self.stop(Ending.INTERRUPTED))
                for task in (seeding, refill):
                    task.cancel()
                await self._drain()
                crew.cancel()
                self.committer.close()
                await committer
                await asyncio.wait([crew])
                await give_back(self._frontier, list(self._open.values()), self._clock)
                self._outputs.close()
                await outputs
        except (Exception, asyncio.CancelledError):
            await abandon(
                self._frontier, self._open.values(), self._reports, self.committer.unfinished(), self._clock
            )
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return await self._conclude()

    def stop(self, ending: Ending, *, grace_seconds: float | None = None) -> None:
        """End the run: what is under way is finished and committed, nothing new begins.

        What is not finished within the grace period is given up; `grace_seconds` can change it, also later.
        """
        self.ending = self.ending or ending
        if grace_seconds is not None:
            self._grace_seconds = grace_seconds
        self._wake.set()

    async def _seed(self) -> None:
        if self._standing.seeding != "closed":
            await self._seeds.add_all(self._add_seeds, self._standing.seeding)
            await self._frontier.close_seeding()
        self._seeding = False
        self._wake.set()

    async def _add_seeds(self, found: list[Found], roots: set[str], progress: str) -> Added:
        for root in roots:
            self._crew.join(root)
        added = await self._frontier.add(found, roots, progress)
        self._appetite.set()
        self._wake.set()
        return added

    async def _conclude(self) -> Ending:
        ending = self.ending or Ending.DONE
        if ending is Ending.PAGE_LIMIT:
            await self._frontier.hold("page_limit")
        await self._frontier.save_cursors(self._outputs.cursors())
        return ending

    # -- dispatch --------------------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        while self.ending is None:
            await self._take_reports()
            if self._pages.is_near(self._settings.engine.concurrency):
                await self._look_ahead()
                await self._pages.recount()
            leases = []
            room = self._room()
            if room > 0:
                leases = await self._frontier.lease(room)
                for lease in leases:
                    self._open[lease.token] = lease
                    self._crew.submit(lease)
                self._appetite.set()
            if not leases:
                await self._rest()

    def _room(self) -> int:
        """How many leases may be taken: workers, uncommitted visits and the page limit set the bound."""
        if self.ending is not None:
            return 0
        room = min(
            self._crew.free(), self._settings.engine.max_uncommitted_pages - self.committer.uncommitted
        )
        if self._pages.is_reached() and not self._open:
            self.stop(Ending.PAGE_LIMIT)
        share = self._pages.share(room, len(self._open))
        if room > 0 and not share:
            # How many more pages are wanted is known only when these are in the ledger.
            self.committer.hurry()
        return share

    async def _look_ahead(self) -> Outlook:
        self.outlook = outlook = await self._frontier.outlook()
        self._pages.look(outlook, len(self._open))
        return outlook

    async def _rest(self) -> None:
        """Wait until something happens or a host is due."""
        outlook = await self._look_ahead()
        # Nothing queued, or nothing of it will ever be due: hosts that have used up their pages.
        idle = not outlook.queued or (outlook.next_due is None and not self.in_flight)
        if idle:
            # Only a commit can bring new work.
            self.committer.hurry()
        if idle and not (outlook.in_flight or self._seeding or self._reports):
            await self._check_done()
            self.outlook = await self._frontier.outlook()
            if self.outlook != outlook:
                # The sweep brought work, as at the start of a resumed job, or held what cannot be served.
                return
        pause = self._poll_seconds
        # Without room a host that is due must wait for a report, which wakes us.
        was_dry, self._is_dry = self._is_dry, self._room() > 0
        if self._is_dry and not was_dry:
            self._appetite.set()
        if outlook.next_due is not None and self._is_dry:
            pause = min(pause, max(outlook.next_due - self._clock(), 0.0))
        if self.ending is None and not self._reports:
            await _wait(self._wake, pause)

    async def _check_done(self) -> None:
        depth = self._settings.limits.depth
        drained = await self._frontier.is_drained()
        if drained and depth is not None:
            drained = not await self._frontier.deepen(depth)
        if drained:
            self.stop(Ending.DONE)
        else:
            await self._frontier.sweep()

    async def _refill(self) -> None:
        """Keep windows filled, and look through the ledger for hosts that are not scheduled.

        Now and then for those that the schedule has lost. While it runs dry, sooner: where there are more hosts than it
        has room for, others come in as soon as some are done.
        """
        longest = self._settings.frontier.sweep_seconds
        swept_at = self._clock()
        early = longest / _EARLY_SWEEPS
        while True:
            while await self._frontier.refill():
                self._wake.set()
            pause = early if self._is_dry else longest
            if self._clock() - swept_at >= pause:
                swept_at = self._clock()
                found = await self._frontier.sweep()
                early = longest / _EARLY_SWEEPS if found else min(2 * early, longest)
                self._revoke(await self._frontier.expired())
                self._wake.set()
            await _wait(self._appetite, pause)

    def _revoke(self, expired: Sequence[Lost]) -> None:
        self._crew.revoke([lost.lease for lost in expired])
        # A URL that was suspected before is visited with no other beside it. One that never began did no harm.
        self._crashes.extend((lost.lease, lost.begun and lost.lease.known.crashes > 0) for lost in expired)

    # -- reports ---------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Note that the crew has room."""
        self._wake.set()

    def begin_by(self, lease: Lease) -> float:
        """Return for how long the schedule stands by a lease."""
        return self._frontier.begin_by(lease)

    def started(self, lease: Lease, at: float) -> None:
        """Note a start. Before the fetch is over only a suspect needs it, and a group with a delay and several slots."""
        if lease.known.crashes or (lease.delay and self._settings.politeness.per_host > 1):
            self._starts.append((lease, at))
            self._wake.set()

    def reported(self, lease: Lease, report: Report) -> None:
        """Note a finished visit."""
        self._reports.append((lease, report))
        self._wake.set()

    def crashed(self, leases: Sequence[Lease], *, alone: bool) -> None:
        """Note leases whose worker died."""
        self.tally.crashes += 1
        self._crashes.extend((lease, alone) for lease in leases)
        self._wake.set()

    async def _take_reports(self) -> None:
        while self._starts:
            await self._frontier.started(*self._starts.popleft())
        while self._reports:
            lease, report = self._reports.popleft()
            self._weigh(report.visit)
            put_back = isinstance(report.visit.outcome, Deferred)
            await self._frontier.release(lease, report.pause, put_back=put_back)
            if put_back:
                self._open.pop(lease.token, None)
            if not put_back or report.visit.fetches:
                self.committer.put((lease, report.visit))
        while self._crashes:
            lease, alone = self._crashes.popleft()
            poison = alone and lease.known.crashes + 1 > self._settings.frontier.max_crashes
            self.committer.put((lease, Visit(lease.known, Crashed(alone, poison))))

    def _weigh(self, visit: Visit) -> None:
        """Count what was received, before its commit: a batch of large pages would go far beyond the limit."""
        self._received += sum(fetch.wire_bytes for fetch in visit.fetches)
        limit = self._settings.limits.max_total_bytes
        if limit is not None and self._received >= limit:
            self.stop(Ending.SIZE_LIMIT)

    def _committed(self, done: Sequence[Done], committed: Committed) -> None:
        visits = [visit for _, visit in done]
        for lease, visit in done:
            if visit.settles:
                self._open.pop(lease.token, None)
        self.tally.take(visits, committed)
        self._pages.count(committed.records, committed.total)
        self._crew.learn(done, committed.lost)
        for visit in visits:
            if visit.root and visit.known.request.fingerprint not in committed.lost:
                self._crew.join(visit.root)
        log_problems(self._log, visits)
        if committed.records:
            self._outputs.feed(log_entry(committed))
        if committed.live:
            self._appetite.set()
        self._wake.set()

    async def _drain(self) -> None:
        """Let what is under way come to its end, within the grace period."""
        began = self._clock()
        self._crew.hand_back()
        while self._open and self._clock() < began + self._grace_seconds:
            await self._take_reports()
            self.committer.hurry()
            if self._open:
                await _wait(self._wake, 0.1)
        await self._take_reports()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set or time has passed, and clear it. Cheaper than `wait_for`: no task, no exception."""
    handle = asyncio.get_running_loop().call_later(seconds, event.set)
    await event.wait()
    handle.cancel()
    event.clear()
