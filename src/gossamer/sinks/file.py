"""Text lines in a regular file, plain or compressed, exactly once: what every file output shares."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from gossamer.contracts import Failpoint, no_failpoint
from gossamer.errors import OutputFailed, UsageError
from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry
from gossamer.sinks.codec import PEEK_BYTES, PLAIN, Codec, Form, Whose
from gossamer.sinks.failure import explained
from gossamer.sinks.thread import OutputThread

#: fdatasync also makes the length safe; where a system lacks it, fsync does.
_sync = getattr(os, "fdatasync", os.fsync)


class FileSink:
    """Implements `Sink` for one regular file, or a symbolic link to one.

    * The bytes before the cursor are on the disk. What lies behind it is cut off by the next `open`.
    * A failed write is cut off at once where the system lets us, and is final: after a failed fsync nobody
      knows what the disk holds, so this sink writes no more, and a new one begins from the cursor.
    * The file is locked while it is open, and a write stops when somebody else moved or changed it.
    """

    def __init__(
        self, path: Path | str, form: Form, codec: Codec, *, failpoint: Failpoint = no_failpoint
    ) -> None:
        #: Absolute, so that a resume from another folder means the same file.
        self.output = os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow the user's links
        self._form = form
        self._codec = codec
        self._failpoint = failpoint
        self._thread = OutputThread()
        self._cursor = Cursor(self.output)
        self._real = Path(self.output)
        self._fd = -1
        self._failed = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.output} {self._codec.name} at {self._cursor.position}>"

    @property
    def cursor(self) -> Cursor:
        """How far the file has come, all of it safe on disk."""
        return self._cursor

    async def open(self, cursor: Cursor, *, is_new: bool) -> Cursor:
        """Make the file agree with the cursor; refuse a file that this job did not write."""
        return await self._thread.run(lambda: self._open(cursor, is_new=is_new))

    async def write(self, entry: LogEntry) -> Cursor:
        """Append one batch as one piece and return the cursor behind it, once it is safe on disk."""
        return await self._thread.run(lambda: self._write(entry))

    async def close(self) -> None:
        """Let go of the file. One without records becomes a valid empty file of its kind."""
        await self._thread.run(self._close)
        self._thread.close()

    # -- on the output's thread ------------------------------------------------------------------------

    def _open(self, cursor: Cursor, *, is_new: bool) -> Cursor:
        assert self._fd < 0, "an output is opened once"
        self._real = Path(os.path.realpath(self.output))
        with explained(self.output):
            self._fd = self._create_or_open()
            try:
                self._lock()
                self._cursor = self._agree(cursor, is_new=is_new)
            except BaseException:
                self._release()
                raise
        return self._cursor

    def _create_or_open(self) -> int:
        folder = self._real.parent
        folder.mkdir(parents=True, exist_ok=True)
        # Non-blocking, in case a FIFO took the place of the file; for a regular file it means nothing.
        fd = os.open(self._real, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OutputFailed(
                f"{self.output} is not a regular file any more: delete it, or choose another name"
            )
        _sync_folder(folder)
        return fd

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.output} is being written by another run or output: choose another name"
            ) from None
        except OSError:
            # Some network file systems have no locks; the check before each write still guards the file.
            return

    def _agree(self, cursor: Cursor, *, is_new: bool) -> Cursor:
        size = os.fstat(self._fd).st_size
        if is_new and size:
            raise UsageError(
                f"{self.output} exists already and is not this job's: choose another name or delete it"
            )
        if is_new or size < cursor.offset or self._has_other_columns(cursor.offset):
            # Deleted, shortened by a power failure or by hand, or asked for in other columns: made anew from the log.
            start = Cursor(self.output)
        else:
            start = Cursor(self.output, cursor.position, cursor.offset, cursor.records)
        os.ftruncate(self._fd, start.offset)
        os.fsync(self._fd)
        return start

    def _has_other_columns(self, offset: int) -> bool:
        """Say whether rows behind the cursor would not fit those before it.

        Refuses to cut a file whose part before the cursor, safe on disk since long, is visibly not ours.
        """
        if not offset:
            return False
        whose = self._form.whose(self._codec.peek(os.pread(self._fd, min(offset, PEEK_BYTES), 0)))
        ends = self._codec is not PLAIN or os.pread(self._fd, 1, offset - 1) == b"\n"
        if whose is Whose.FOREIGN or not ends:
            raise UsageError(
                f"{self.output} was changed by another program: move it away, and it is written anew"
            )
        return whose is Whose.OTHER_COLUMNS

    def _write(self, entry: LogEntry) -> Cursor:
        if self._failed:
            raise OutputFailed(self._failed)
        if entry.position <= self._cursor.position:
            return self._cursor
        data = self._encode(entry)
        if data:
            self._append_or_cut_back(data)
        self._cursor = Cursor(
            self.output, entry.position, self._cursor.offset + len(data), self._cursor.records + entry.records
        )
        return self._cursor

    def _encode(self, entry: LogEntry) -> bytes:
        assert not entry.lines or entry.lines.endswith(b"\n"), "a batch is whole lines"
        if not entry.lines:
            return b""
        head = b"" if self._cursor.offset else self._form.head
        return self._codec.pack(head + self._form.encode(entry))

    def _append_or_cut_back(self, data: bytes) -> None:
        try:
            with explained(self.output):
                self._append(data)
        except OutputFailed as error:
            self._failed = str(error)
            with suppress(OSError):
                if self._is_ours():
                    os.ftruncate(self._fd, self._cursor.offset)
            raise

    def _append(self, data: bytes) -> None:
        self._failpoint("sink:before")
        offset = self._cursor.offset
        if not self._is_ours() or os.fstat(self._fd).st_size != offset:
            raise OutputFailed(
                f"{self.output} was moved or changed while it was being written:"
                " run the same command to resume, and it is made good from the log"
            )
        half = len(data) // 2 if self._failpoint is not no_failpoint else 0
        if half:
            _write_all(self._fd, data[:half], offset)
            self._failpoint("sink:torn")
        _write_all(self._fd, data[half:], offset + half)
        self._failpoint("sink:written")
        _sync(self._fd)
        self._failpoint("sink:synced")

    def _is_ours(self) -> bool:
        """Say whether the name still leads to the open file."""
        try:
            return os.path.samestat(self._real.stat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._fd < 0:
            return
        try:
            # gzip and zstd take a file of no bytes for a broken one, and columns have names even without rows.
            # The cursor stays at 0: a resume cuts this off.
            nothing = self._codec.pack(self._form.head)
            if nothing and not self._cursor.offset and not self._failed:
                self._append_or_cut_back(nothing)
        finally:
            self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        with explained(self.output):
            os.close(fd)


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power failure, where the folder may be read.

    Without it the name may get lost, and then the file is written anew from the log.
    """
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
