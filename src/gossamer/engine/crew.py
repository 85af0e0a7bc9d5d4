"""Who does the visits: a number of tasks in this process. `processes.py` has the same for several processes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from gossamer.engine.committer import Done
from gossamer.engine.discover import Discoverer
from gossamer.engine.report import Report
from gossamer.engine.worker import Worker
from gossamer.model.request import Lease


class Desk(Protocol):
    """Where a crew reports to. Calls never wait: they note what happened and wake whoever acts on it."""

    def ready(self) -> None:
        """Note that the crew can take more leases than before."""
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

    def join(self, root: str) -> None:
        """Hear of a root that joined the scope."""
        ...

    async def run(self, desk: Desk) -> None:
        """Work until cancelled."""
        ...


class LocalCrew:
    """Implements `Crew` with tasks of this process."""

    def __init__(self, worker: Worker, discoverer: Discoverer, size: int) -> None:
        self._worker = worker
        self._discoverer = discoverer
        self._size = size
        self._busy = 0
        self._queue: asyncio.Queue[Lease] = asyncio.Queue()
        #: Not begun yet: a suspect that waits to be alone, and whatever came behind it.
        self._waiting: deque[Lease] = deque()
        self._is_solitary = False

    def free(self) -> int:
        """How many more leases may be submitted now."""
        return 0 if self._waiting or self._is_solitary else self._size - self._busy

    def submit(self, lease: Lease) -> None:
        """Take a lease; a suspect one waits until nothing else is under way."""
        self._waiting.append(lease)
        self._begin()

    def _begin(self) -> None:
        """Begin what waits, in order. A suspect begins when nothing else is under way, and nothing beside it."""
        while self._waiting and not self._is_solitary:
            if self._waiting[0].known.crashes:
                if self._busy:
                    return
                self._is_solitary = True
            self._busy += 1
            self._queue.put_nowait(self._waiting.popleft())

    def learn(self, done: Iterable[Done], lost: frozenset[int]) -> None:
        """Hear of visits that are now in the ledger."""
        for _, visit in done:
            if visit.found and visit.known.request.fingerprint not in lost:
                self._discoverer.learn(visit.found)

    def revoke(self, leases: Iterable[Lease]) -> None:
        """Do nothing: a task that is late reports in the end, and its report changes nothing."""

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
            report = await self._worker.visit(lease, partial(desk.started, lease))
            self._busy -= 1
            self._is_solitary = False
            desk.reported(lease, report)
            self._begin()
