"""How the text of a batch becomes bytes in a file: which compression, and which form the records have.

Every batch becomes a complete gzip member or zstd frame, so a file that was cut between two batches is a
valid file, and one that was cut elsewhere can be read up to there.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec
import zstandard

from gossamer.errors import OutputFailed
from gossamer.model.schedule import LogEntry

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
#: What of a file is looked at to tell whose it is. A block of zstd, the least that can be unpacked, is smaller.
PEEK_BYTES = 262_144
#: Of that, the text that is looked at: more than the longest row of headings.
_PEEK_TEXT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Codec:
    """One compression: `pack` makes a self-contained piece of a file, `peek` reads the first text of a file.

    `peek` is given the first `PEEK_BYTES` of a file, and returns nothing for what it did not pack.
    """

    name: str
    pack: Callable[[bytes], bytes]
    peek: Callable[[bytes], bytes]


def _plain(text: bytes) -> bytes:
    return text


def _peek_plain(start: bytes) -> bytes:
    return start[:_PEEK_TEXT_BYTES]


def _gzip(text: bytes) -> bytes:
    return gzip.compress(text, _GZIP_LEVEL, mtime=0)


def _peek_gzip(start: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(start, _PEEK_TEXT_BYTES)
    except zlib.error:
        return b""


def _zstd(text: bytes) -> bytes:
    # A compressor of its own for each frame: they are not safe to share between the threads of two outputs.
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True, write_content_size=True)
    return compressor.compress(text)


def _peek_zstd(start: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(start)).read(_PEEK_TEXT_BYTES)
    except zstandard.ZstdError:
        return b""


PLAIN = Codec("plain", _plain, _peek_plain)
GZIP = Codec("gzip", _gzip, _peek_gzip)
ZSTD = Codec("zstd", _zstd, _peek_zstd)

#: The last suffix of an output's name decides its compression.
CODECS: dict[str, Codec] = {"": PLAIN, ".gz": GZIP, ".zst": ZSTD}


def codec_for(name: str) -> Codec:
    """Return the codec a file name asks for."""
    return next((CODECS[suffix] for suffix in (".gz", ".zst") if name.lower().endswith(suffix)), PLAIN)


class Whose(Enum):
    """What the first text of a file says about who wrote it."""

    OURS = "this form, with these columns"
    OTHER_COLUMNS = "this form, with other columns"
    FOREIGN = "something else"


class Form(Protocol):
    """How records become text. Every batch is whole lines and ends with a line end, so batches can be joined."""

    @property
    def head(self) -> bytes:
        """What a file holds before its first record."""
        ...

    def encode(self, entry: LogEntry) -> bytes:
        """Return the records of a batch as text. Raises `OutputFailed` for a log that is damaged."""
        ...

    def whose(self, start: bytes) -> Whose:
        """Judge a file that is not empty by its first text."""
        ...


class RawRows:
    """Reads the given fields of each record, each as its JSON text.

    Values are never built: a hostile page can make them large, but not slow. A field that a record lacks is
    `UNSET`.
    """

    def __init__(self, fields: tuple[str, ...]) -> None:
        # Attribute names are made up, because a field of a record may have any name.
        names = {f"f{number}": field for number, field in enumerate(fields)}
        kind = msgspec.Raw | msgspec.UnsetType
        row = msgspec.defstruct("Row", [(name, kind, msgspec.UNSET) for name in names], rename=names)
        self._decoder = msgspec.json.Decoder(row)

    def read(self, entry: LogEntry) -> list[msgspec.Struct]:
        """Return a row for each record of a batch."""
        try:
            return self._decoder.decode_lines(entry.lines)
        except msgspec.DecodeError as error:
            raise damaged(entry, error) from error


def damaged(entry: LogEntry, error: Exception) -> OutputFailed:
    """Return what to raise for a batch of the log that cannot be read."""
    return OutputFailed(
        f"the record log is damaged at position {entry.position} ({error}): start over with --fresh"
    )
