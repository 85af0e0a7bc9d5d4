"""The outputs of a run: each consumes the record log at its own pace and never holds up a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry

_MAX_WAITING_ENTRIES = 8


class Output(Protocol):
    """Writes log entries in order, each once, and reads what it missed from the log."""

    @property
    def cursor(self) -> Cursor:
        """How far it has come, all of it safe."""
        ...

    async def feed(self, entry: LogEntry) -> None:
        """Write an entry and whatever lies between it and the cursor."""
        ...

    async def catch_up(self) -> None:
        """Write everything the log holds."""
        ...

    async def close(self) -> None:
        """Finish."""
        ...


class Outputs:
    """Feeds every output from a short queue of its own; an entry that finds it full is read from the log later."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        #: Those whose cursors are kept.
        self._outputs = outputs
        self._all = list(outputs)
        self._queues: list[asyncio.Queue[LogEntry | None]] = [
            asyncio.Queue(_MAX_WAITING_ENTRIES) for _ in outputs
        ]
        self._saved: dict[str, Cursor] = {}
        self._closing = False
        self._released = False

    def attach(self, listener: Output) -> None:
        """Feed a listener too. It lives no longer than the run, so its cursor is neither kept nor reported."""
        self._all.append(listener)
        self._queues.append(asyncio.Queue(_MAX_WAITING_ENTRIES))

    def feed(self, entry: LogEntry) -> None:
        """Offer a committed batch to every output."""
        for queue in self._queues:
            if not queue.full():
                queue.put_nowait(entry)

    def cursors(self) -> list[Cursor]:
        """Return the cursors that changed since the last call: the next transaction stores them."""
        changed = [o.cursor for o in self._outputs if self._saved.get(o.cursor.output) != o.cursor]
        self._saved.update((cursor.output, cursor) for cursor in changed)
        return changed

    def written(self) -> list[tuple[str, int]]:
        """Return each output and the number of records it holds."""
        return [(output.cursor.output, output.cursor.records) for output in self._outputs]

    async def fill(self) -> None:
        """Write everything the log holds to every output, and finish."""
        for output in self._all:
            await output.catch_up()
        await self.release()

    async def release(self) -> None:
        """Finish every output, whether or not it was ever written to. Again is a no-op."""
        if not self._released:
            self._released = True
            async with AsyncExitStack() as stack:
                for output in self._all:
                    stack.push_async_callback(output.close)

    def close(self) -> None:
        """Let `run` end when every output holds the whole log."""
        self._closing = True
        for queue in self._queues:
            if not queue.full():
                queue.put_nowait(None)

    async def run(self) -> None:
        """Write until closed."""
        try:
            async with asyncio.TaskGroup() as group:
                for output, queue in zip(self._all, self._queues, strict=True):
                    group.create_task(self._consume(output, queue), name=f"output {output.cursor.output}")
        finally:
            await self.release()

    async def _consume(self, output: Output, queue: asyncio.Queue[LogEntry | None]) -> None:
        await output.catch_up()
        while True:
            entry = await queue.get()
            if entry is None or (self._closing and queue.empty()):
                break
            await output.feed(entry)
        await output.catch_up()
