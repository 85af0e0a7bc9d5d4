"""How many pages a job may still have, when others may be fetching them too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gossamer.model.schedule import Outlook


class PageLimit:
    """Knows how many records the job has and may have, and divides what is left among all who work on it.

    That there are never more is for the ledger to see to; this is so that few pages are fetched in vain. `recount` asks the
    ledger for the records of everybody; without it there is nobody else.
    """

    def __init__(
        self, limit: int | None, recorded: int, recount: Callable[[], Awaitable[int]] | None = None
    ) -> None:
        self._limit = limit
        #: Records in the ledger, of all runs and workers, as far as we have heard. They never become fewer.
        self._recorded = recorded
        self._recount = recount
        self._outlook = Outlook(0, 0, 0, None)
        #: Leases that others had when we last looked.
        self._elsewhere = 0

    def hear(self, recorded: int) -> None:
        """Take in how many records the ledger has."""
        self._recorded = max(self._recorded, recorded)

    def count(self, records: int, total: int | None) -> None:
        """Take in a commit of ours: its records, and how many there are in all where the ledger says so."""
        self.hear(self._recorded + records if total is None else total)

    def look(self, outlook: Outlook, held: int) -> None:
        """Take in the schedule, and how many of its leases are ours."""
        self._outlook = outlook
        self._elsewhere = max(outlook.in_flight - held, 0)

    async def recount(self) -> None:
        """Ask how many records there are. After `look`: what is committed in between is counted twice, not left out."""
        if self._recount is not None:
            self.hear(await self._recount())

    def is_near(self, concurrency: int) -> bool:
        """Say whether all who work on the job, of `concurrency` each, could soon have as many under way as are left."""
        if self._limit is None or self._recount is None:
            return False
        return self._limit - self._recorded <= 2 * concurrency * self._outlook.workers + self._elsewhere

    def is_reached(self) -> bool:
        """Say whether the job has all its pages."""
        return self._limit is not None and self._recorded >= self._limit

    def share(self, room: int, held: int) -> int:
        """Return how many leases to take where there is room for so many and so many are held already.

        0 where what is under way must come to its end first: only then it is known how many more are wanted.
        """
        if self._limit is None:
            return room
        left = self._limit - self._recorded
        unclaimed = left - held - self._elsewhere
        if unclaimed <= 0:
            # What others have may come to nothing, or never come: one is tried while we wait.
            return min(room, int(left > 0 and not held))
        return min(room, -(-unclaimed // self._outlook.workers))
