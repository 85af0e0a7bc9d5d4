"""Lines of text into something that cannot be cut back: standard output, a pipe, a device. At least once."""

from __future__ import annotations

import os
import select
import sys
import threading
from contextlib import suppress

from gossamer.errors import OutputClosed, OutputFailed
from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry
from gossamer.sinks.codec import PLAIN, Codec, Form
from gossamer.sinks.failure import explained
from gossamer.sinks.jsonl import JsonLines
from gossamer.sinks.thread import OutputThread

#: How long the thread waits for a reader before it looks whether somebody wants it to stop.
_POLL_MILLISECONDS = 100
_STDOUT = 1


class StreamSink:
    """Implements `Sink` for anything that is not a regular file.

    * It goes on behind the cursor. What was written after it, before a crash, is written again, and a crash
      or a cancelled write may leave a torn line: at least once.
    * A reader that went away is `OutputClosed`. A reader that is slow holds up nothing but this output, and a
      cancelled write ends without waiting for it; after that the sink is closed.
    * Whoever opens it is a new reader: columns are named before the first row of each run.
    """

    def __init__(self, path: str, form: Form, codec: Codec = PLAIN) -> None:
        self.output = os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow the user's links
        self._codec = codec
        self._form = form
        self._head = form.head
        self._thread = OutputThread()
        self._stopped = threading.Event()
        self._cursor = Cursor(self.output)
        self._fd = -1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.output} at {self._cursor.position}>"

    @property
    def cursor(self) -> Cursor:
        """How far the stream has come: all of it was handed to the system."""
        return self._cursor

    async def open(self, cursor: Cursor, *, is_new: bool) -> Cursor:
        """Open the stream and go on from the cursor."""
        return await self._thread.run(lambda: self._open(Cursor(self.output) if is_new else cursor))

    async def write(self, entry: LogEntry) -> Cursor:
        """Hand one batch to the reader and return the cursor behind it."""
        return await self._thread.run(lambda: self._write(entry), interrupt=self._stopped.set)

    async def close(self) -> None:
        """Close the stream, so that its reader sees the end."""
        await self._thread.run(self._close)
        self._thread.close()

    # -- on the output's thread ------------------------------------------------------------------------

    def _acquire(self) -> int:
        # Without O_NONBLOCK the opening of a FIFO waits for its reader, maybe for good.
        return os.open(self.output, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)

    def _open(self, cursor: Cursor) -> Cursor:
        assert self._fd < 0, "an output is opened once"
        with explained(self.output):
            self._fd = self._acquire()
        self._cursor = Cursor(self.output, cursor.position, cursor.offset, cursor.records)
        return self._cursor

    def _write(self, entry: LogEntry) -> Cursor:
        if entry.position <= self._cursor.position:
            return self._cursor
        data = self._codec.pack(self._head + self._form.encode(entry)) if entry.lines else b""
        with explained(self.output):
            try:
                self._send(data)
            except BaseException:
                # A torn line is the last thing a reader gets from us.
                self._stopped.set()
                raise
        self._head = b"" if data else self._head
        self._cursor = Cursor(
            self.output, entry.position, self._cursor.offset + len(data), self._cursor.records + entry.records
        )
        return self._cursor

    def _send(self, data: bytes) -> None:
        # Standard output is shared with other programs, so it must stay a blocking file. A pipe that polls as
        # ready takes PIPE_BUF bytes without blocking; so the thread never hangs where it cannot be stopped.
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        view = memoryview(data)
        while view:
            if self._stopped.is_set():
                raise OutputClosed(f"writing to {self.output} was stopped")
            if poll.poll(_POLL_MILLISECONDS):
                with suppress(BlockingIOError):
                    view = view[os.write(self._fd, view[: select.PIPE_BUF]) :]

    def _close(self) -> None:
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        with explained(self.output):
            os.close(fd)


class StdoutSink(StreamSink):
    """Standard output, `-o -`: JSON lines without compression. A resume goes on where the last run ended."""

    def __init__(self, *, fields: tuple[str, ...] = (), fd: int = _STDOUT) -> None:
        super().__init__("-", JsonLines(fields))
        self.output = "-"
        self._shared = fd

    def _acquire(self) -> int:
        # Started with `>&-`, descriptor 1 is the first file this process opened, perhaps its ledger.
        if self._shared == _STDOUT and sys.__stdout__ is None:
            raise OutputFailed("standard output is closed: name a file with -o")
        return os.dup(self._shared)
