"""Questions to PostgreSQL that come up together, asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gossamer.waiting import finished

if TYPE_CHECKING:
    from gossamer.frontier.postgres_pool import Query, Result

#: Statements in one transaction.
MAX_STATEMENTS = 128


class PostgresReads:
    """Asks in one transaction and one round trip what any number of tasks want to know.

    * What is asked at the same moment goes together, and with it what came up while others were being answered.
    * Statements are run in the order they were asked for, those of one call one after the other.
    * They must change nothing. An error is everybody's who asked.
    """

    def __init__(self, ask: Callable[..., Awaitable[list[Result]]]) -> None:
        self._ask = ask
        self._turn = asyncio.Lock()
        self._queries: list[Query] = []
        #: The transaction that has not begun: it still takes statements.
        self._next: asyncio.Task[list[Result]] | None = None

    async def read(self, *queries: Query) -> list[Result]:
        """Return the results of statements. A cancelled caller waits for them."""
        if self._next is None or len(self._queries) + len(queries) > MAX_STATEMENTS:
            self._queries = []
            self._next = asyncio.create_task(self._run(self._queries), name="postgres reads")
        task, begin = self._next, len(self._queries)
        self._queries.extend(queries)
        return (await finished(task))[begin : begin + len(queries)]

    async def _run(self, queries: list[Query]) -> list[Result]:
        # This begins after all tasks that were ready when it was made: they have asked by now.
        async with self._turn:
            if queries is self._queries:
                self._next = None
            return await self._ask(*queries)
