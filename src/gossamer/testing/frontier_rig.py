"""A ledger and a scheduler driven by hand, one call at a time, so that a test decides what comes between."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from gossamer.contracts import Failpoint, Ledger, Scheduler, no_failpoint
from gossamer.frontier.memory_scheduler import MemoryScheduler
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import Committed, Found, Pause, Visit
from gossamer.model.request import Known, Lease
from gossamer.testing.frontier_cases import FETCHED, batch, found, visit
from gossamer.testing.scheduler_contract import Plan

#: Makes an empty schedule: a new process has one, or a server that was wiped.
MakeScheduler = Callable[[Plan], Awaitable[Scheduler]]


class Rig:
    """The two halves of a frontier, and the sequences a crawl is made of."""

    def __init__(self, ledger: Ledger, scheduler: Scheduler, plan: Plan, make: MakeScheduler) -> None:
        self.ledger = ledger
        self.scheduler = scheduler
        self.plan = plan
        self._make = make
        self.clock = plan.clock
        self._batches = itertools.count(1)

    async def lose_the_schedule(self, plan: Plan) -> None:
        """Go on with an empty schedule."""
        self.scheduler = await self._make(plan)

    async def add(self, *names: str) -> list[Known]:
        """Add URLs to the ledger; the schedule does not hear of it."""
        return (await self.ledger.add([found(name) for name in names])).live

    async def sweep(self) -> None:
        """Activate what the ledger has work for, and fill the windows."""
        after = 0
        while True:
            hosts, after = await self.ledger.hosts(after, 2)
            missing = await self.scheduler.missing(hosts)
            await self.scheduler.activate(await self.ledger.host_info(missing))
            if not after:
                break
        await self.refill()

    async def refill(self) -> None:
        """Fill every window that asks for it."""
        while refills := await self.scheduler.hungry(99):
            for refill in refills:
                known = await self.ledger.take(refill.host, refill.limit, self.clock())
                await self.scheduler.push(refill, known)

    async def commit(self, *visits: Visit) -> Committed:
        """Commit visits under a new batch id; the schedule does not hear of it."""
        groups = await self.scheduler.group_states({item.known.request.host for item in visits})
        sent = batch(f"rig-{next(self._batches)}", *visits, groups=tuple(groups), at=self.clock())
        return await self.ledger.commit(sent)

    async def fetch(self, lease: Lease, *links: Found) -> Committed:
        """Fetch, release, commit, settle and offer: all that becomes of a lease when nothing goes wrong."""
        await self.scheduler.release(lease, Pause(self.clock()))
        committed = await self.commit(visit(lease.known, FETCHED, *links))
        await self.scheduler.settle([lease], frozenset([lease.request.fingerprint]))
        await self.scheduler.offer(committed.live)
        return committed

    async def drain(self, *, sweep: bool = True, rounds: int = 200) -> list[Lease]:
        """Fetch until nothing is left; without `sweep` only what the schedule knows by itself."""
        leases: list[Lease] = []
        for _ in range(rounds):
            if sweep:
                await self.sweep()
            await self.refill()
            got = await self.scheduler.lease(99)
            for lease in got:
                await self.fetch(lease)
            leases += got
            outlook = await self.scheduler.outlook()
            if not got and outlook.next_due is None:
                break
            self.clock.advance(max((outlook.next_due or 0.0) - self.clock(), 0.0))
        return leases

    async def records(self) -> list[tuple[str, int]]:
        """Return URL and attempt of every record in the log."""
        lines = [line for entry in await self.ledger.log(0, 9999) for line in entry.lines.splitlines()]
        return [(item["url"], item["attempt"]) for item in map(msgspec.json.decode, lines)]


async def make_in_memory(plan: Plan) -> Scheduler:
    """Make a scheduler in memory, as those that need a server are made."""
    return memory_scheduler(plan)


def memory_scheduler(plan: Plan) -> MemoryScheduler:
    """Make a scheduler in memory to plan."""
    return MemoryScheduler(
        plan.frontier,
        plan.politeness,
        plan.clock,
        lambda: plan.chance,
        max_pages_per_host=plan.max_pages_per_host,
        resumed_at=plan.resumed_at,
    )


@asynccontextmanager
async def rig(
    place: Path,
    plan: Plan | None = None,
    failpoint: Failpoint = no_failpoint,
    make: MakeScheduler = make_in_memory,
) -> AsyncIterator[Rig]:
    """Open a rig of SQLite and a scheduler, and close it in the end."""
    plan = plan or Plan()
    ledger = SqliteLedger(place / "ledger.sqlite", plan.clock, failpoint)
    try:
        yield Rig(ledger, await make(plan), plan, make)
    finally:
        await ledger.close()


def interleavings(first: int, second: int) -> list[tuple[int, ...]]:
    """Every order in which two sequences of steps can mix, as the sequence (0 or 1) that makes each step."""
    steps = range(first + second)
    return [
        tuple(0 if step in places else 1 for step in steps) for places in itertools.combinations(steps, first)
    ]
