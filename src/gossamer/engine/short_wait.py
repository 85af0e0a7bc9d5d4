"""Questions that a leased URL has to the ledger: they wait no longer than its lease allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from gossamer.errors import LeaseLost

T = TypeVar("T")


class ShortWait(Generic[T]):
    """Waits for an answer for `seconds`, then raises `LeaseLost`: the URL goes back, before its lease runs out.

    A question to a server that is away cannot be taken back, so it goes on by itself. Whoever has the same one meanwhile
    waits for the same answer: there are never more than there are keys.
    """

    def __init__(self, seconds: float, ask: Callable[[str], Awaitable[T]]) -> None:
        self._seconds = seconds
        self._ask = ask
        self._asked: dict[str, asyncio.Task[T]] = {}

    async def __call__(self, key: str) -> T:
        """Return the answer."""
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.create_task(
                self._answer(key), name=f"ask the ledger for {key}"
            )
            asked.add_done_callback(_look_at)
        done, _ = await asyncio.wait([asked], timeout=self._seconds)
        if not done:
            raise LeaseLost(f"the ledger did not answer for {self._seconds:g} s about {key}")
        return asked.result()

    async def _answer(self, key: str) -> T:
        try:
            return await self._ask(key)
        finally:
            del self._asked[key]


def _look_at(asked: asyncio.Task[T]) -> None:
    """Let no error of a question that nobody waits for any more be reported as forgotten."""
    if not asked.cancelled():
        asked.exception()
