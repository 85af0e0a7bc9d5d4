"""Keeps one output up with the record log, in order, each batch once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from gossamer.contracts import Sink
from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry

#: `Ledger.log`: the batches behind a position, at most so many.
ReadLog = Callable[[int, int], Awaitable[list[LogEntry]]]
#: `Ledger.save_cursors`.
SaveCursors = Callable[[Sequence[Cursor]], Awaitable[None]]


class OutputConsumer:
    """Writes the log to one sink.

    Invariant: the sink holds exactly the records of all log entries up to `cursor.position`. It follows from
    two rules. An entry directly behind the cursor (position + 1) may be written at once. For any other, the
    log is asked for what lies between, since positions without records are missing from it, and since an
    entry may have been dropped on its way here because this output was slow.

    Entries must be committed before they are fed. A dropped entry is made good by the next `feed`, and at
    the end by `catch_up`.
    """

    def __init__(
        self,
        sink: Sink,
        read_log: ReadLog,
        cursor: Cursor | None,
        *,
        step_entries: int = 8,
        max_merged_bytes: int = 4_000_000,
    ) -> None:
        self._sink = sink
        self._read_log = read_log
        self._known = cursor
        self._step_entries = step_entries
        self._max_merged_bytes = max_merged_bytes
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<OutputConsumer {self._sink!r}>"

    @property
    def cursor(self) -> Cursor:
        """How far the output has come, all of it safe: this is what to save. The sink's, so it is never stale."""
        return self._sink.cursor

    async def open(self, save: SaveCursors) -> None:
        """Open the sink and save the cursor it begins from.

        The save comes before the first byte: from then on the ledger knows the file as its own, and after a
        crash whatever lies behind the cursor can be told from a file of the user's, and cut.
        """
        cursor = self._known or Cursor(self._sink.output)
        await save([await self._sink.open(cursor, is_new=self._known is None)])

    async def feed(self, entry: LogEntry) -> None:
        """Write an entry, and before it whatever the log holds between. One that was written is passed over."""
        async with self._turn:
            if entry.position > self.cursor.position + 1:
                await self._write_from_log(before=entry.position)
            await self._sink.write(entry)

    async def catch_up(self) -> None:
        """Write everything the log holds. Several small batches may go out as one piece."""
        async with self._turn:
            await self._write_from_log(before=None)

    async def close(self) -> None:
        """Close the sink, after the write under way."""
        async with self._turn:
            await self._sink.close()

    async def _write_from_log(self, before: int | None) -> None:
        while entries := await self._read_log(self.cursor.position, self._step_entries):
            wanted = [entry for entry in entries if before is None or entry.position < before]
            for piece in merged(wanted, self._max_merged_bytes):
                await self._sink.write(piece)
            if len(wanted) < len(entries):
                return


def merged(entries: Iterable[LogEntry], max_bytes: int) -> Iterator[LogEntry]:
    """Join neighbours up to `max_bytes`, so that a late output costs one fsync for many batches.

    A single entry may be larger; it stays alone.
    """
    waiting: list[LogEntry] = []
    size = 0
    for entry in entries:
        if waiting and size + len(entry.lines) > max_bytes:
            yield _joined(waiting)
            waiting, size = [], 0
        waiting.append(entry)
        size += len(entry.lines)
    if waiting:
        yield _joined(waiting)


def _joined(entries: Sequence[LogEntry]) -> LogEntry:
    if len(entries) == 1:
        return entries[0]
    lines = b"".join(entry.lines for entry in entries)
    return LogEntry(entries[-1].position, sum(entry.records for entry in entries), lines)
