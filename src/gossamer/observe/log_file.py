"""A file of whole lines that never grows beyond a bound: the older half lives next to it, as `log.1.jsonl`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gossamer.observe.json_line import MAX_LINE


class LogFile:
    """Appends lines. It is the file's only writer, and opens it again after every failure.

    What a crash or a full disk cut off in the middle of a line is removed before the next line is written:
    each line of the file is complete.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max(max_bytes, MAX_LINE + 1)
        self._descriptor = -1
        self._size = 0

    def append(self, lines: Sequence[bytes]) -> int:
        """Write lines, rotating as needed, and return how many were written whole. Never raises `OSError`."""
        written = 0
        try:
            while written < len(lines):
                written += self._append_some(lines[written:])
        except OSError:
            self.close()
        return written

    def close(self) -> None:
        """Give the file back."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = -1

    def _append_some(self, lines: Sequence[bytes]) -> int:
        """Write as many lines as this file has room for: at least one."""
        if self._descriptor < 0:
            self._open()
        if self._size and self._size + len(lines[0]) > self._max_bytes:
            self._rotate()
        room = self._max_bytes - self._size
        count = 0
        while count < len(lines) and (room := room - len(lines[count])) >= 0:
            count += 1
        self._write(b"".join(lines[:count]))
        return count

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o666)
        size = os.fstat(self._descriptor).st_size
        start = max(size - MAX_LINE - 1, 0)
        tail = os.pread(self._descriptor, size - start, start)
        self._size = start + tail.rfind(b"\n") + 1
        if self._size < size:
            os.ftruncate(self._descriptor, self._size)

    def _rotate(self) -> None:
        self.close()
        self._path.replace(self._path.with_name(f"{self._path.stem}.1{self._path.suffix}"))
        self._open()
