"""Writes the record logs of finished or running jobs to new files, each complete or not there at all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import xxhash

from gossamer.contracts import Sink
from gossamer.errors import OutputFailed, UsageError
from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry
from gossamer.sinks.codec import RawRows
from gossamer.sinks.consumer import ReadLog, merged
from gossamer.sinks.failure import explained
from gossamer.sinks.file import FileSink
from gossamer.sinks.spec import open_sink

_STEP_ENTRIES = 64
_MAX_MERGED_BYTES = 4_000_000
_PART = ".part-"


class NewFile:
    """An output that appears under its name when it is complete, and never takes the place of another file.

    Until then it is `.part-NAME` beside it. One that a killed export has left is begun again.
    """

    def __init__(self, path: str, *, fields: tuple[str, ...], csv_escape: bool) -> None:
        self.output = path
        # Through links, so that they stay what they are.
        self._target = Path(os.path.realpath(path))
        self._part = self._target.with_name(f"{_PART}{self._target.name}")
        self._sink = open_sink(str(self._part), fields=fields, csv_escape=csv_escape)
        self._is_closed = False

    async def open(self) -> None:
        """Begin. Raises `UsageError` where the name is taken, `OutputFailed`."""
        if _has_bytes(self._target):
            raise self._taken()
        await self._sink.open(Cursor(self._sink.output), is_new=False)

    async def write(self, entry: LogEntry) -> None:
        """Append one batch."""
        await self._sink.write(entry)

    async def finish(self) -> None:
        """Let it appear, complete and safe on disk."""
        await self._close()
        with explained(self.output):
            try:
                # Unlike a renaming, this fails where somebody else has made the file meanwhile.
                os.link(self._part, self._target)
            except FileExistsError:
                if _has_bytes(self._target):
                    raise self._taken() from None
                self._part.replace(self._target)
            except PermissionError:
                # A file system without links.
                self._part.rename(self._target)
            self._part.unlink(missing_ok=True)

    async def give_up(self) -> None:
        """Leave nothing behind."""
        with suppress(OutputFailed):
            await self._close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    async def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._sink.close()

    def _taken(self) -> UsageError:
        return UsageError(f"{self.output} exists already: choose another name or delete it")


class Stream:
    """Standard output, a pipe or a device: gets what there is as it comes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.output = sink.output

    async def open(self) -> None:
        """Begin."""
        await self._sink.open(Cursor(self._sink.output), is_new=True)

    async def write(self, entry: LogEntry) -> None:
        """Hand one batch to the reader."""
        await self._sink.write(entry)

    async def finish(self) -> None:
        """Let the reader see the end."""
        await self._sink.close()

    async def give_up(self) -> None:
        """End early."""
        with suppress(OutputFailed):
            await self._sink.close()


Target = NewFile | Stream


def export_target(spec: str, *, fields: tuple[str, ...] = (), csv_escape: bool = True) -> Target:
    """Return where to export to, not yet opened. An unknown suffix is a `UsageError`."""
    sink = open_sink(spec, fields=fields, csv_escape=csv_escape)
    if isinstance(sink, FileSink):
        return NewFile(spec, fields=fields, csv_escape=csv_escape)
    return Stream(sink)


async def export(
    logs: Sequence[ReadLog], targets: Sequence[Target], told: Callable[[int], None] = lambda _records: None
) -> int:
    """Write all records of the logs, one log after the other, to every target; returns how many.

    Of one log, every record is written as it is. Of several, the first record of each URL. Whatever fails, no target
    is left half written. `told` hears how many there are by now.
    """
    begun: list[Target] = []
    written = 0
    try:
        for target in targets:
            await target.open()
            begun.append(target)
        async for entry in _numbered(logs):
            for target in targets:
                await target.write(entry)
            written += entry.records
            told(written)
        while begun:
            await begun[0].finish()
            begun.pop(0)
    except BaseException:
        for target in begun:
            await target.give_up()
        raise
    return written


async def _numbered(logs: Sequence[ReadLog]) -> AsyncIterator[LogEntry]:
    """Yield the entries of all logs as if they were one."""
    keep = _FirstOfEach() if len(logs) > 1 else None
    position = 0
    for read in logs:
        after = 0
        while entries := await read(after, _STEP_ENTRIES):
            after = entries[-1].position
            for piece in merged(entries, _MAX_MERGED_BYTES):
                kept = keep.filter(piece) if keep else piece
                if kept.records:
                    position += 1
                    yield msgspec.structs.replace(kept, position=position)


class _FirstOfEach:
    """Lets pass the first record of each URL. Remembers 16 bytes of each, which is about 90 bytes of memory."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._rows = RawRows(("url",))

    def filter(self, entry: LogEntry) -> LogEntry:
        """Return the entry without records of URLs that were seen before."""
        kept = []
        rows = self._rows.read(entry)
        for line, row in zip(entry.lines.removesuffix(b"\n").split(b"\n"), rows, strict=True):
            (url,) = msgspec.structs.astuple(row)
            digest = xxhash.xxh3_128_digest(line if url is msgspec.UNSET else bytes(url))
            if digest not in self._seen:
                self._seen.add(digest)
                kept.append(line)
        return LogEntry(entry.position, len(kept), b"\n".join([*kept, b""]))


def _has_bytes(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
