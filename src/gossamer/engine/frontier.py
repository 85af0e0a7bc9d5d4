"""The frontier: the ledger that remembers and the scheduler that times, kept in step.

The order is always the same: the ledger commits first, then the scheduler hears of it. Whatever is lost between
the two, the ledger still has, and `sweep` finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from gossamer.config.settings import PolitenessSettings
from gossamer.contracts import Clock, Failpoint, Grouping, Ledger, Scheduler, no_failpoint
from gossamer.model.outcome import SWITCHED_OFF, Batch, Committed, Cursor, Found, Pause, Visit
from gossamer.model.request import Known, Lease
from gossamer.model.schedule import Added, HostInfo, Lost, Outlook, Refill
from gossamer.waiting import finished

_REFILLS_AT_ONCE = 32
_HOSTS_PER_PART = 1000
_PARTS_PER_SWEEP = 100


class Frontier:
    """What the engine sees of a job's URLs."""

    def __init__(
        self,
        ledger: Ledger,
        scheduler: Scheduler,
        politeness: PolitenessSettings,
        clock: Clock,
        grouping: Grouping,
        *,
        max_pages: int | None = None,
        max_pages_per_host: int | None = None,
        failpoint: Failpoint = no_failpoint,
        decide: Callable[[tuple[Visit, ...]], Awaitable[tuple[Visit, ...]]] | None = None,
    ) -> None:
        self._ledger = ledger
        self._scheduler = scheduler
        self._politeness = politeness
        self._clock = clock
        self._grouping = grouping
        self._max_records = max_pages
        self._max_pages = max_pages_per_host
        self._failpoint = failpoint
        #: Settles doubts about what visits have found, before their commit.
        self._decide = decide
        self._swept = 0

    async def add(self, found: Sequence[Found], roots: Iterable[str], progress: str = "") -> Added:
        """Accept URLs and schedule those that are new."""
        added = await self._ledger.add(found, roots=roots, progress=progress)
        await self._schedule(added.live)
        return added

    async def _schedule(self, live: Sequence[Known]) -> None:
        if live:
            # Offered before anything is awaited: later, some of it may be finished already. Hosts that are not
            # scheduled yet are filled from the ledger.
            await self._scheduler.offer(live)
            await self._activate(list({known.request.host: None for known in live}))

    async def _activate(self, hosts: Sequence[str]) -> int:
        """Bring hosts into the schedule for which it has room; returns how many.

        A host that may not be fetched in this run is held.
        """
        missing = await self._scheduler.missing(hosts)
        if not missing:
            return 0
        infos = await self._ledger.host_info(missing, await self._grouping.groups(missing))
        fit = []
        for info in infos:
            reason = self._obstacle(info)
            if reason:
                await self._ledger.hold(reason, info.host)
            else:
                fit.append(info)
        await self._scheduler.activate(fit)
        return len(fit)

    def _obstacle(self, info: HostInfo) -> str:
        if not info.active:
            return SWITCHED_OFF
        if self._max_pages is not None and info.pages >= self._max_pages:
            return "host_limit"
        if info.state.until > self._clock() + self._politeness.max_wait_seconds:
            return "wait_too_long"
        return ""

    async def lease(self, limit: int) -> list[Lease]:
        """Lease up to `limit` requests that are due."""
        return await self._scheduler.lease(limit)

    def begin_by(self, lease: Lease) -> float:
        """Return the moment before which the request of a lease must begin."""
        return self._scheduler.begin_by(lease)

    async def started(self, lease: Lease, at: float) -> None:
        """Note that the first byte is about to go out."""
        await self._scheduler.started(lease, at)

    async def release(self, lease: Lease, pause: Pause, *, put_back: bool = False) -> None:
        """Free the host's slot."""
        await self._scheduler.release(lease, pause, put_back=put_back)

    async def commit(
        self, batch_id: str, done: Sequence[tuple[Lease, Visit]], cursors: Sequence[Cursor]
    ) -> Committed:
        """Commit visits, then settle their leases and schedule what became live. `Deferred` ones are already back."""
        visits = tuple(visit for _, visit in done)
        if self._decide is not None:
            visits = await self._decide(visits)
        groups = await self._scheduler.group_states({lease.group for lease, visit in done if visit.fetches})
        batch = Batch(batch_id, visits, tuple(groups), tuple(cursors), self._clock(), self._max_records)
        # In a task of its own: where the run ends meanwhile, what is in the ledger is settled all the same.
        leases = [lease for lease, visit in done if visit.settles]
        committed = await finished(
            asyncio.create_task(self._commit(batch, leases), name=f"commit {batch_id}")
        )
        await self._schedule(committed.live)
        return committed

    async def _commit(self, batch: Batch, leases: Sequence[Lease]) -> Committed:
        committed = await self._ledger.commit(batch)
        self._failpoint("settle:before")
        recorded = frozenset(visit.known.request.fingerprint for visit in batch.visits if visit.record)
        await self._scheduler.settle(leases, recorded - committed.lost - committed.duplicates)
        self._failpoint("settle:after")
        return committed

    async def forget(self, leases: Sequence[Lease]) -> None:
        """Let the schedule forget requests that are over and not committed: the ledger still has them, and refills bring them."""
        await self._scheduler.settle(leases)

    async def refill(self) -> int:
        """Fill windows that ran low; returns how many were filled."""
        refills = await self._scheduler.hungry(_REFILLS_AT_ONCE)
        await asyncio.gather(*map(self._fill, refills))
        return len(refills)

    async def _fill(self, refill: Refill) -> None:
        known = await self._ledger.take(refill.host, refill.limit, self._clock())
        await self._scheduler.push(refill, known)

    async def sweep(self) -> int:
        """Schedule hosts the ledger has work for, and hold those that cannot be served; returns how many came in."""
        horizon = self._clock() + self._politeness.max_wait_seconds
        for stall in await self._scheduler.stalled(horizon):
            await self._ledger.hold(stall.reason, stall.host)
        activated = 0
        for _ in range(_PARTS_PER_SWEEP):
            hosts, self._swept = await self._ledger.hosts(self._swept, _HOSTS_PER_PART)
            found = await self._activate(hosts)
            activated += found
            # A part that was scheduled already: the others can wait. After a wipe none is, and all are wanted at once.
            if not found or not self._swept:
                break
        await self.refill()
        return activated

    async def close_seeding(self) -> None:
        """Note that every seed has been added."""
        await self._ledger.close_seeding()

    async def save_cursors(self, cursors: Sequence[Cursor]) -> None:
        """Store how far outputs have come."""
        await self._ledger.save_cursors(cursors)

    async def deepen(self, max_depth: int) -> int:
        """Queue what was refused for its depth and turned out to be nearer; returns how many."""
        return await self._ledger.deepen(max_depth)

    async def is_drained(self) -> bool:
        """Say whether the job is done: the ledger decides, an empty schedule says nothing."""
        return await self._ledger.is_drained()

    async def hold(self, reason: str) -> int:
        """Hold everything that is still queued."""
        return await self._ledger.hold(reason)

    async def expired(self) -> list[Lost]:
        """Take back leases whose holders were silent for too long."""
        return await self._scheduler.expired()

    async def outlook(self) -> Outlook:
        """Describe what waits and until when."""
        return await self._scheduler.outlook()
