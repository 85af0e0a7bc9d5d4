"""Links of a job that has more roots than a worker keeps in memory: whether they belong to it is decided before their commit.

There it costs one question for a whole batch, and a ledger that does not answer holds up nothing but the commit, which
would have to wait for it anyway. What was fetched meanwhile stays with its worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import msgspec

from gossamer.engine.discover import Discoverer
from gossamer.model.outcome import Visit
from gossamer.policy.scope import UNSURE, Scope


class Doubts:
    """Decides about findings that are refused as `UNSURE`. `look_up` makes their roots known to the scope."""

    def __init__(
        self, scope: Scope, discoverer: Discoverer, look_up: Callable[[Collection[str]], Awaitable[None]]
    ) -> None:
        self._scope = scope
        self._discoverer = discoverer
        self._look_up = look_up

    async def settle(self, visits: tuple[Visit, ...]) -> tuple[Visit, ...]:
        """Return the visits without doubts: what does not belong to the job is not in them, as if it had been known."""
        if not self._scope.is_partial:
            return visits
        roots = {
            root
            for visit in visits
            for item in visit.found
            if item.refusal == UNSURE
            for root in self._scope.roots_over(item.request.url, item.request.host)
        }
        if not roots:
            return visits
        await self._look_up(roots)
        return tuple(self._settled(visit) for visit in visits)

    def _settled(self, visit: Visit) -> Visit:
        decided = [
            self._discoverer.decide(item.request) if item.refusal == UNSURE else item for item in visit.found
        ]
        return msgspec.structs.replace(visit, found=tuple(item for item in decided if item is not None))
