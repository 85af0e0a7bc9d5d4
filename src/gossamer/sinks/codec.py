"""How a batch of JSON lines becomes bytes in a file: which fields, and which compression.

Every batch becomes a complete gzip member or zstd frame, so a file that was cut between two batches is a
valid file, and one that was cut elsewhere can be read up to there.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import zstandard

from gossamer.contracts import LogEntry
from gossamer.errors import OutputFailed, UsageError

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Codec:
    """One compression: `pack` makes a self-contained piece of a file, and every file begins with `magic`."""

    name: str
    magic: bytes
    pack: Callable[[bytes], bytes]


def _plain(lines: bytes) -> bytes:
    return lines


def _gzip(lines: bytes) -> bytes:
    return gzip.compress(lines, _GZIP_LEVEL, mtime=0)


def _zstd(lines: bytes) -> bytes:
    # A compressor of its own for each frame: they are not safe to share between the threads of two outputs.
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True, write_content_size=True)
    return compressor.compress(lines)


PLAIN = Codec("plain", b"{", _plain)
GZIP = Codec("gzip", b"\x1f\x8b", _gzip)
ZSTD = Codec("zstd", b"\x28\xb5\x2f\xfd", _zstd)

#: The suffix of an output's name decides its format.
CODECS: dict[str, Codec] = {
    ".jsonl": PLAIN,
    ".ndjson": PLAIN,
    ".jsonl.gz": GZIP,
    ".ndjson.gz": GZIP,
    ".jsonl.zst": ZSTD,
    ".ndjson.zst": ZSTD,
}


def codec_for(name: str) -> Codec:
    """Return the codec for a file name. An unknown suffix is a `UsageError` that lists the known ones."""
    for suffix, codec in CODECS.items():
        if name.lower().endswith(suffix):
            return codec
    known = ", ".join(CODECS)
    raise UsageError(
        f"unknown kind of output {name!r}: its name must end in one of {known}, or be - for stdout"
    )


class Projection:
    """Keeps only the given fields of each record, in the given order. Without fields it keeps the lines as they are.

    Values are copied byte for byte and never built: a hostile page can make them large, but not slow. A field
    that a record lacks is left out of its line.
    """

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = tuple(dict.fromkeys(fields))
        # Attribute names are made up, because a field of a record may have any name.
        names = {f"f{number}": field for number, field in enumerate(self.fields)}
        kind = msgspec.Raw | msgspec.UnsetType
        row = msgspec.defstruct("Row", [(name, kind, msgspec.UNSET) for name in names], rename=names)
        self._decoder = msgspec.json.Decoder(row)
        self._encoder = msgspec.json.Encoder()

    def apply(self, entry: LogEntry) -> bytes:
        """Return the lines of a batch with the chosen fields only."""
        if not self.fields or not entry.lines:
            return entry.lines
        try:
            return self._encoder.encode_lines(self._decoder.decode_lines(entry.lines))
        except msgspec.DecodeError as error:
            raise OutputFailed(
                f"the record log is damaged at position {entry.position} ({error}): start over with --fresh"
            ) from error
