"""Records as JSON lines."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gossamer.contracts import Failpoint, no_failpoint
from gossamer.model.schedule import LogEntry
from gossamer.sinks.codec import RawRows, Whose, codec_for
from gossamer.sinks.file import FileSink


class JsonLines:
    """Keeps only the given fields of each record, in the given order. Without fields it keeps the lines as they are.

    Values are copied byte for byte. A field that a record lacks is left out of its line, so a file whose lines
    have other fields can be continued.
    """

    head = b""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = tuple(dict.fromkeys(fields))
        self._rows = RawRows(self.fields)
        self._encoder = msgspec.json.Encoder()

    def encode(self, entry: LogEntry) -> bytes:
        """Return the lines of a batch with the chosen fields only."""
        if not self.fields or not entry.lines:
            return entry.lines
        return self._encoder.encode_lines(self._rows.read(entry))

    def whose(self, start: bytes) -> Whose:
        """Take every file of JSON objects for ours."""
        return Whose.OURS if start.startswith(b"{") else Whose.FOREIGN


class JsonlSink(FileSink):
    """A file of JSON lines; `.gz` or `.zst` at the end of its name asks for compression."""

    def __init__(
        self, path: Path | str, *, fields: tuple[str, ...] = (), failpoint: Failpoint = no_failpoint
    ) -> None:
        super().__init__(path, JsonLines(fields), codec_for(str(path)), failpoint=failpoint)
