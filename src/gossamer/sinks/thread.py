"""The one thread of an output: what blocks on a disk runs here, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def _finish() -> None:
    """Let the work end by itself."""


class OutputThread:
    """Runs blocking work one piece at a time, so that the event loop never waits for a disk."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="output")

    async def run(self, work: Callable[[], T], *, interrupt: Callable[[], None] = _finish) -> T:
        """Run `work`. A cancelled caller first calls `interrupt`, then waits: no write goes on behind its back."""
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            interrupt()
            await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # looked at: the run ends for another reason, and asyncio must not print this one
            raise

    def close(self) -> None:
        """End the thread. There must be no work left."""
        self._executor.shutdown(wait=False)
