"""What a worker hands back for a lease."""

from __future__ import annotations

import msgspec

from gossamer.model.outcome import Fetch, Pause, Settled, Visit
from gossamer.model.request import Lease
from gossamer.model.response import FetchFailure, Response

NO_PAUSE = Pause()


class Report(msgspec.Struct, frozen=True):
    """The visit for the ledger, and the pause for the schedule."""

    visit: Visit
    pause: Pause


def settled(lease: Lease, outcome: Settled) -> Report:
    """Settle without a fetch: the host's clock is not touched."""
    return Report(Visit(lease.known, outcome), NO_PAUSE)


def fetches_of(
    url: str, lease: Lease, answer: Response | FetchFailure, robots: int, kind: str
) -> tuple[Fetch, ...]:
    """Return the row of the fetch log; none where nothing was sent."""
    if not answer.started_at:
        return ()
    problem = str(answer.problem) if isinstance(answer, FetchFailure) else ""
    row = Fetch(
        url,
        lease.group or lease.request.host,
        answer.started_at,
        lease.delay,
        answer.elapsed,
        answer.status,
        answer.wire_bytes,
        problem,
        robots,
        kind,
    )
    return (row,)
