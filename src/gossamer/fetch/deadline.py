"""Deadlines for many fetches, and a look at how fast they are, with one timer."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol

from gossamer.fetch.rate import MinimumRate


class Expiring(Protocol):
    """Something that has to end by `deadline`, by the event loop's clock."""

    deadline: float

    def expire(self) -> None:
        """End now; do nothing if already ended."""
        ...

    def check(self, rate: MinimumRate) -> None:
        """End if less than the rate came since the last check, which was at least its window ago."""
        ...


class Deadlines:
    """Calls `expire` on everything that is still here at its deadline, and before that `check` once per window.

    Deadlines must be added in the order they fall due, which is what one constant timeout makes of them. A timer
    for each would cost more than parsing the headers of a reply. A fetch shorter than a window is never checked,
    so the rate costs nothing but the walk over those under way, once per window.
    """

    def __init__(self, rate: MinimumRate) -> None:
        self._rate = rate
        self._next_check = inf
        self._due: dict[Expiring, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def add(self, item: Expiring) -> None:
        """Watch `item`."""
        self._due[item] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._next_check = loop.time() + self._rate.check_seconds
            self._timer = loop.call_at(min(item.deadline, self._next_check), self._sweep)

    def remove(self, item: Expiring) -> None:
        """Stop watching `item`, expired or not."""
        self._due.pop(item, None)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        if now >= self._next_check:
            self._next_check = now + self._rate.check_seconds
            for item in self._due:
                item.check(self._rate)
        while self._due:
            item = next(iter(self._due))
            if item.deadline > now:
                self._timer = loop.call_at(min(item.deadline, self._next_check), self._sweep)
                return
            del self._due[item]
            item.expire()
