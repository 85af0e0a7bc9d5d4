"""What a run gives back at its end, so that others go on with it at once instead of waiting for its leases to run out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from gossamer.contracts import Clock
from gossamer.engine.committer import Done
from gossamer.engine.frontier import Frontier
from gossamer.engine.report import Report
from gossamer.errors import GossamerError
from gossamer.model.outcome import Pause
from gossamer.model.request import Lease

#: A run that failed has no more time than this for it, should the schedule not answer.
_LAST_SECONDS = 2.0


async def let_finish(work: asyncio.Task[None], stop: Callable[[], None]) -> None:
    """Wait for a task. A cancelled caller stops it and gives it a moment: what it has asked the schedule for is not lost."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([work], timeout=_LAST_SECONDS)
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # looked at: the run ends for another reason
        raise


async def give_back(frontier: Frontier, leases: Iterable[Lease], clock: Clock) -> None:
    """Let others have what nobody here works on any more: it is still live."""
    for lease in leases:
        # Whether it was started is not known here: as if it had been, just now.
        await frontier.release(lease, Pause(clock()), put_back=True)


async def abandon(
    frontier: Frontier,
    leases: Collection[Lease],
    reports: Sequence[tuple[Lease, Report]],
    uncommitted: Sequence[Done],
    clock: Clock,
) -> None:
    """Give back all that a run holds which an error has ended: as far as the schedule answers, and never with an error.

    What was fetched and is not in the ledger is still live there, and is fetched again.
    """
    ended = [lease for lease, visit in uncommitted if visit.settles]
    settled = {lease.token for lease in ended} | {lease.token for lease, _ in reports}
    with suppress(GossamerError, TimeoutError):
        async with asyncio.timeout(_LAST_SECONDS):
            for lease, report in reports:
                # What its host has asked for, such as a Retry-After, is heard all the same.
                await frontier.release(lease, report.pause, put_back=True)
            await give_back(frontier, [lease for lease in leases if lease.token not in settled], clock)
            await frontier.forget(ended)
