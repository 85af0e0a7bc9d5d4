"""A scheduler behind a server that may go away: whoever asks waits until it is back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from gossamer.contracts import Scheduler
from gossamer.errors import BackendLost
from gossamer.model.outcome import GroupState, Pause
from gossamer.model.request import Known, Lease
from gossamer.model.schedule import HostInfo, Lost, Outlook, Refill, Stall

T = TypeVar("T")


class PatientScheduler:
    """Implements `Scheduler` by asking another again and again while its server is lost.

    Every call may be made twice: what was done the first time is stale the second, and a lease whose answer was lost
    expires. The scheduler itself waits, longer each time, before it tries a lost server again. `lost` hears of each
    failure, and `back` of the end of them.
    """

    def __init__(
        self, scheduler: Scheduler, lost: Callable[[BackendLost], None], back: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._lost = lost
        self._back = back
        self._is_lost = False

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                answer = await ask()
            except BackendLost as error:
                self._is_lost = True
                self._lost(error)
                continue
            if self._is_lost:
                self._is_lost = False
                self._back()
            return answer

    async def missing(self, hosts: Sequence[str]) -> list[str]:
        """See `Scheduler`."""
        return await self._insist(lambda: self._scheduler.missing(hosts))

    async def activate(self, infos: Sequence[HostInfo]) -> None:
        """See `Scheduler`."""
        await self._insist(lambda: self._scheduler.activate(infos))

    async def offer(self, known: Sequence[Known]) -> int:
        """See `Scheduler`."""
        return await self._insist(lambda: self._scheduler.offer(known))

    async def hungry(self, limit: int) -> list[Refill]:
        """See `Scheduler`."""
        return await self._insist(lambda: self._scheduler.hungry(limit))

    async def push(self, refill: Refill, known: Sequence[Known]) -> int:
        """See `Scheduler`."""
        return await self._insist(lambda: self._scheduler.push(refill, known))

    async def lease(self, limit: int) -> list[Lease]:
        """See `Scheduler`."""
        return await self._insist(lambda: self._scheduler.lease(limit))

    def begin_by(self, lease: Lease) -> float:
        """See `Scheduler`."""
        return self._scheduler.begin_by(lease)

    async def started(self, lease: Lease, at: float) -> None:
        """See `Scheduler`."""
        await self._insist(lambda: self._scheduler.started(lease, at))

    async def release(self, lease: Lease, pause: Pause, *, put_back: bool = False) -> None:
        """See `Scheduler`."""
        await self._insist(lambda: self._scheduler.release(lease, pause, put_back=put_back))

    async def settle(self, leases: Sequence[Lease], recorded: frozenset[int] = frozenset()) -> None:
        """See `Scheduler`."""
        await self._insist(lambda: self._scheduler.settle(leases, recorded))

    async def expired(self) -> list[Lost]:
        """See `Scheduler`."""
        return await self._insist(self._scheduler.expired)

    async def stalled(self, horizon: float) -> list[Stall]:
        """See `Scheduler`."""
        return await self._insist(lambda: self._scheduler.stalled(horizon))

    async def group_states(self, groups: Iterable[str]) -> list[GroupState]:
        """See `Scheduler`."""
        wanted = list(groups)
        return await self._insist(lambda: self._scheduler.group_states(wanted))

    async def outlook(self) -> Outlook:
        """See `Scheduler`."""
        return await self._insist(self._scheduler.outlook)
