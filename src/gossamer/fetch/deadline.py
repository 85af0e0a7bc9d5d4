"""Deadlines for many fetches with one timer."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Expiring(Protocol):
    """Something that has to end by `deadline`, by the event loop's clock."""

    deadline: float

    def expire(self) -> None:
        """End now; do nothing if already ended."""
        ...


class Deadlines:
    """Calls `expire` on everything that is still here at its deadline.

    Deadlines must be added in the order they fall due, which is what one constant timeout makes of them. A timer
    for each would cost more than parsing the headers of a reply.
    """

    def __init__(self) -> None:
        self._due: dict[Expiring, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def add(self, item: Expiring) -> None:
        """Watch `item`."""
        self._due[item] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(item.deadline, self._sweep)

    def remove(self, item: Expiring) -> None:
        """Stop watching `item`, expired or not."""
        self._due.pop(item, None)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        while self._due:
            item = next(iter(self._due))
            if item.deadline > now:
                self._timer = loop.call_at(item.deadline, self._sweep)
                return
            del self._due[item]
            item.expire()
