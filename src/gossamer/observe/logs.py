"""The structured log of a job: one canonical line of JSON for each event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from gossamer.observe.json_line import json_line
from gossamer.observe.log_file import LogFile

#: Lines waiting for the disk at most; a disk that hangs costs lines, not memory.
_MAX_WAITING_BYTES = 4_000_000
#: How long `close` waits for a disk that hangs.
_CLOSE_SECONDS = 5.0


class JsonLog:
    """Writes `log.jsonl`. Safe to use from any thread, and never the reason a run ends.

    * A line is `{"time": …, "event": …, fields…}`: ASCII, bounded, its time RFC 3339 in UTC to the millisecond.
    * Lines reach the file within `flush_seconds`, by a thread of its own: `write` never waits for the disk.
    * A file of `max_bytes` becomes `log.1.jsonl`, in place of the one before.
    * A line that cannot be written is dropped and counted; when there is room again, a `log_dropped` event
      says how many are missing.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = 10_000_000,
        flush_seconds: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = LogFile(path, max_bytes)
        self._flush_seconds = flush_seconds
        self._clock = clock
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._dropped = 0
        self._unreported = 0
        self._lock = threading.Lock()
        #: Held while the file is written, so that lines keep their order.
        self._disk = threading.Lock()
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job log", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        self.close()

    @property
    def dropped(self) -> int:
        """Lines that could not be written so far."""
        return self._dropped

    def write(self, event: str, /, **fields: object) -> None:
        """Add an event. A field named `time` or `event` gets an underscore: those two are the log's own."""
        line = self._line(event, fields)
        with self._lock:
            if self._closing.is_set() or self._waiting_bytes + len(line) > _MAX_WAITING_BYTES:
                self._drop(1)
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
        self._filled.set()

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        with self._disk:
            self._drain()

    def close(self) -> None:
        """Write what waits and end. Gives up on a disk that hangs."""
        self._closing.set()
        self._filled.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._filled.wait()
            # Lines that come in the meantime share a write.
            self._closing.wait(self._flush_seconds)
            self._filled.clear()
            self.flush()
        with self._disk:
            self._drain()
            self._file.close()

    def _drain(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
            self._waiting_bytes = 0
            missing = self._unreported
        if missing and self._file.append([self._line("log_dropped", {"lines": missing})]):
            with self._lock:
                self._unreported -= missing
        lost = len(lines) - self._file.append(lines)
        if lost:
            with self._lock:
                self._drop(lost)

    def _drop(self, lines: int) -> None:
        self._dropped += lines
        self._unreported += lines

    def _line(self, event: str, fields: dict[str, object]) -> bytes:
        moment = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"time": moment.replace("+00:00", "Z"), "event": event}
        for key, value in fields.items():
            line[f"{key}_" if key in {"time", "event"} else key] = value
        return json_line(line).encode() + b"\n"
