"""When this machine stood still: what is measured by a clock just then says nothing about the crawler."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

#: Between the moment before the first byte goes out and its arrival lie two schedulers: of either may be this late.
ARRIVAL_SECONDS = 0.08
#: For so long after it stood still, a machine still does what it had put off.
_RECOVERY_SECONDS = 0.5


class StallWatch:
    """Notes when this process, which the servers of tests live in, was not run for a while."""

    def __init__(self) -> None:
        self._stalls: list[tuple[float, float]] = []
        threading.Thread(target=self._run, name="stall watch", daemon=True).start()

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(0.005)
            now = time.monotonic()
            if now - last > ARRIVAL_SECONDS / 2:
                self._stalls.append((last, now))
            last = now

    def disturbed(self, moment: float) -> bool:
        """Say whether what is noted as of this moment may have happened long before."""
        return any(began <= moment <= ended + _RECOVERY_SECONDS for began, ended in list(self._stalls))

    def longest(self, since: float) -> float:
        """Return the seconds of the longest stall since a moment."""
        return max(self._since(since), default=0.0)

    def total(self, since: float) -> float:
        """Return the seconds of all stalls since a moment."""
        return sum(self._since(since))

    def _since(self, since: float) -> list[float]:
        return [ended - began for began, ended in list(self._stalls) if ended >= since]


@cache
def stall_watch() -> StallWatch:
    """Return the watch of this process; it begins with the first call."""
    return StallWatch()


def quiet_gaps(moments: Iterable[float]) -> list[float]:
    """Return the seconds between each moment and the next, but for those of which nothing can be said.

    A request that was met too late, as the machine stood still, seems to be too near to the next one.
    """
    watch = stall_watch()
    return [later - earlier for earlier, later in pairwise(sorted(moments)) if not watch.disturbed(earlier)]
