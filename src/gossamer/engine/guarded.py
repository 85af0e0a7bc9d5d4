"""A crew in one process, beside a process of its own for the URLs that may kill it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gossamer.engine.committer import Done
from gossamer.engine.crew import Crew, Desk
from gossamer.engine.processes import ProcessCrew
from gossamer.model.request import Lease


class GuardedCrew:
    """Implements `Crew`: suspects go to the cell of `guard`, all others to `crew`, which goes on meanwhile."""

    def __init__(self, crew: Crew, guard: ProcessCrew) -> None:
        self._crew = crew
        self._guard = guard

    def free(self) -> int:
        """How many more leases may be submitted now: any of them may be a suspect."""
        return min(self._crew.free(), self._guard.room_for_suspects)

    def submit(self, lease: Lease) -> None:
        """Take a lease."""
        (self._guard if lease.known.crashes else self._crew).submit(lease)

    def learn(self, done: Iterable[Done], lost: frozenset[int]) -> None:
        """Hear of visits that are now in the ledger."""
        done = list(done)
        self._crew.learn(done, lost)
        self._guard.learn(done, lost)

    def revoke(self, leases: Iterable[Lease]) -> None:
        """Hear of leases that expired."""
        leases = list(leases)
        self._crew.revoke(leases)
        self._guard.revoke(leases)

    def hand_back(self) -> None:
        """Report what has not begun as untouched."""
        self._crew.hand_back()
        self._guard.hand_back()

    def join(self, root: str) -> None:
        """Hear of a root that joined the scope."""
        self._crew.join(root)
        self._guard.join(root)

    async def run(self, desk: Desk) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._crew.run(desk), name="crew beside the cell")
            group.create_task(self._guard.run(desk), name="guard")
