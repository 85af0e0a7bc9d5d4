"""Who does the visits: a number of tasks in this process. `processes.py` has the same for several processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from gossamer.engine.committer import Done
from gossamer.engine.discover import Discoverer
from gossamer.engine.report import NO_PAUSE, Report
from gossamer.engine.worker import Worker
from gossamer.errors import LeaseLost
from gossamer.model.outcome import Deferred, Visit
from gossamer.model.request import Lease


class Desk(Protocol):
    """Where a crew reports to. Calls never wait: they note what happened and wake whoever acts on it."""

    def ready(self) -> None:
        """Note that the crew can take more leases than before."""
        ...

    def begin_by(self, lease: Lease) -> float:
        """Return the moment before which the first byte of a request must go out: ask just before it does."""
        ...

    def started(self, lease: Lease, at: float) -> None:
        """Note that the first byte of a request is about to go out."""
        ...

    def reported(self, lease: Lease, report: Report) -> None:
        """Take a finished visit."""
        ...

    def crashed(self, leases: Sequence[Lease], *, alone: bool) -> None:
        """Take back the leases of a worker process that died."""
        ...


class Crew(Protocol):
    """Visits leases, a bounded number at a time.

    * Every submitted lease is answered once, by `reported` or `crashed`, unless the crew is cancelled.
    * `learn` is told of committed visits only, in the order of the commits.
    """

    def free(self) -> int:
        """How many more leases may be submitted now."""
        ...

    def submit(self, lease: Lease) -> None:
        """Take a lease. A suspect one (`known.crashes`) is visited with no other beside it."""
        ...

    def learn(self, done: Iterable[Done], lost: frozenset[int]) -> None:
        """Hear of visits that are now in the ledger; those whose fingerprint is in `lost` changed nothing."""
        ...

    def revoke(self, leases: Iterable[Lease]) -> None:
        """Hear of leases that expired in the crew's hands."""
        ...

    def hand_back(self) -> None:
        """Report what has not begun as untouched: the run comes to its end."""
        ...

    def join(self, root: str) -> None:
        """Hear of a root that joined the scope."""
        ...

    async def run(self, desk: Desk) -> None:
        """Work until cancelled."""
        ...


class LocalCrew:
    """Implements `Crew` with tasks of this process. `prepare` is called before a lease is visited; `LeaseLost` hands it back.

    * It cannot leave a suspect alone: where one may kill the process, there is a `GuardedCrew`.
    * No request begins after its lease ran out, however long this process was held up.
    """

    def __init__(
        self,
        worker: Worker,
        discoverer: Discoverer,
        size: int,
        prepare: Callable[[Lease], Awaitable[None]] | None = None,
    ) -> None:
        self._prepare = prepare
        self._worker = worker
        self._discoverer = discoverer
        self._size = size
        self._busy = 0
        self._queue: asyncio.Queue[Lease] = asyncio.Queue()

    def free(self) -> int:
        """How many more leases may be submitted now."""
        return self._size - self._busy

    def submit(self, lease: Lease) -> None:
        """Take a lease."""
        self._busy += 1
        self._queue.put_nowait(lease)

    def learn(self, done: Iterable[Done], lost: frozenset[int]) -> None:
        """Hear of visits that are now in the ledger."""
        for _, visit in done:
            if visit.found and visit.known.request.fingerprint not in lost:
                self._discoverer.learn(visit.found)

    def revoke(self, leases: Iterable[Lease]) -> None:
        """Do nothing: a task that is late reports in the end, and its report changes nothing."""

    def hand_back(self) -> None:
        """Do nothing: a task begins at once."""

    def join(self, root: str) -> None:
        """Hear of a root that joined the scope."""
        self._discoverer.join(root)

    async def run(self, desk: Desk) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._size):
                    group.create_task(self._work(desk), name=f"worker-{number}")
        finally:
            await self._worker.close()

    async def _work(self, desk: Desk) -> None:
        while True:
            lease = await self._queue.get()
            report = await self._visit(lease, desk)
            self._busy -= 1
            desk.reported(lease, report)

    async def _visit(self, lease: Lease, desk: Desk) -> Report:
        def started(at: float) -> None:
            if at >= desk.begin_by(lease):
                raise LeaseLost(f"the lease of {lease.request.url} ran out before it was begun")
            desk.started(lease, at)

        try:
            if self._prepare is not None:
                await self._prepare(lease)
            return await self._worker.visit(lease, started)
        except LeaseLost:
            return untouched(lease)


def untouched(lease: Lease) -> Report:
    """Return the report of a visit that never began."""
    return Report(Visit(lease.known, Deferred()), NO_PAUSE)
