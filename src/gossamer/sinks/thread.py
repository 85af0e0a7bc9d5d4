"""The one thread of an output: what blocks on a disk runs here, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gossamer.waiting import finished, let_it_be

T = TypeVar("T")


class OutputThread:
    """Runs blocking work one piece at a time, so that the event loop never waits for a disk."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="output")

    async def run(self, work: Callable[[], T], *, interrupt: Callable[[], None] = let_it_be) -> T:
        """Run `work`. A cancelled caller first calls `interrupt`, then waits: no write goes on behind its back."""
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        return await finished(future, interrupt=interrupt)

    def close(self) -> None:
        """End the thread. There must be no work left."""
        self._executor.shutdown(wait=False)
