"""Content codings removed, within a bound: gzip, deflate, br and zstd, alone or one inside another.

A body that would grow past its limit is given up after one chunk beyond it, whatever its compressed size
promised: a bomb costs no more memory than an honest page of the largest size allowed. One that grows out of all
proportion to what was read of it is given up earlier still: it costs a few milliseconds.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Sequence

import brotli  # type: ignore[import-untyped]
import zstandard

#: More codings than this on one body are an attack, not a server's habit.
MAX_CODINGS = 3

_INPUT_CHUNK = 65_536
_OUTPUT_CHUNK = 262_144
#: For decoders that do not tell how much of a chunk they have read.
_SMALL_INPUT_CHUNK = 8_192
#: Smaller bodies cost little, whatever they were made from.
_UNSUSPICIOUS_BYTES = 1 << 20
#: RFC 9659: a decoder of the `zstd` coding needs to support windows of 8 MB and no more.
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
#: Each member costs set-up time out of all proportion to its 20 bytes; block gzip of a 10 MB page has 160.
_MAX_GZIP_MEMBERS = 10_000
#: Blocks may be empty; an honest page of 10 MB has a hundred, or some thousands from a server that flushes a lot.
_MAX_ZSTD_BLOCKS = 200_000
_ZSTD_FRAME_HEADER_BYTES = 18
_GZIP_MAGIC = b"\x1f\x8b"


class BadEncoding(Exception):
    """The body is not what its Content-Encoding says, or we do not know that coding. The text is one line."""


class BodyTooLarge(Exception):
    """The decoded body exceeds its limit. The text says which one."""


class _Truncated(Exception):
    """The input ended inside the stream."""


def parse_codings(values: Sequence[str]) -> tuple[str, ...]:
    """Return the codings of all Content-Encoding headers in the order they were applied, without `identity`.

    Raises BadEncoding if one is unknown or there are more than MAX_CODINGS.
    """
    named = [name.strip().lower() for value in values for name in value.split(",")]
    codings = tuple(name for name in named if name and name != "identity")
    if len(codings) > MAX_CODINGS:
        raise BadEncoding(f"{len(codings)} content codings on one body; {MAX_CODINGS} are accepted")
    for name in codings:
        if name not in _DECODERS:
            raise BadEncoding(f"unknown content coding {name[:40]!r}")
    return codings


def decode_body(
    body: bytes, codings: Sequence[str], limit: int, *, max_ratio: int = 0, partial: bool = False
) -> bytes:
    """Undo `codings`, as returned by `parse_codings`. An empty body is empty under any coding.

    Raises BadEncoding for a corrupt or cut-off stream, and BodyTooLarge when any stage exceeds `limit` or grows to
    more than `max_ratio` times what was read (0 for any). With `partial`, a cut-off stream yields what it holds,
    and at most `limit` bytes are returned.
    """
    for name in reversed(codings):
        if not body:
            break
        body = _undo(body, name, limit, max_ratio, partial)
    return body


def _undo(body: bytes, name: str, limit: int, max_ratio: int, partial: bool) -> bytes:
    pieces: list[bytes] = []
    room = limit
    source = _Source(body)
    try:
        for piece in _DECODERS[name](source):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                break
            grown = limit - room
            if max_ratio and grown > _UNSUSPICIOUS_BYTES and grown > max_ratio * source.consumed:
                raise BodyTooLarge(f"more than {max_ratio} times as large after decompression")
    except _Truncated:
        if not partial:
            raise BadEncoding(f"the {name} stream is cut off") from None
    except (zlib.error, brotli.error, zstandard.ZstdError) as error:
        raise BadEncoding(f"the {name} stream is corrupt: {error}") from error
    decoded = b"".join(pieces)
    if room >= 0:
        return decoded
    if partial:
        return decoded[:limit]
    raise BodyTooLarge(f"more than {limit} bytes after decompression")


class _Source:
    """Compressed bytes, and how many of them a decoder has read."""

    __slots__ = ("body", "consumed")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.consumed = 0


def _inflate(source: _Source, wbits: int) -> Iterator[bytes]:
    """Yield one zlib, gzip or raw deflate stream, and the further members of a gzip file.

    Whatever follows a complete stream is ignored, as browsers do. Input goes in by chunks so that what zlib
    keeps of it, and copies, stays small however many members there are.
    """
    body, position, members = source.body, 0, 1
    stream = zlib.decompressobj(wbits)
    chunk = memoryview(body)[:_INPUT_CHUNK]
    while chunk:
        position += len(chunk)
        tail: bytes | memoryview = chunk
        while tail and not stream.eof:
            piece = stream.decompress(tail, _OUTPUT_CHUNK)
            tail = stream.unconsumed_tail
            source.consumed = position - len(tail)
            yield piece
        if stream.eof:
            position -= len(stream.unused_data)
            if wbits <= zlib.MAX_WBITS or body[position : position + 2] != _GZIP_MAGIC:
                return
            members += 1
            if members > _MAX_GZIP_MEMBERS:
                raise BadEncoding(f"more than {_MAX_GZIP_MEMBERS} gzip members")
            stream = zlib.decompressobj(wbits)
        chunk = memoryview(body)[position : position + _INPUT_CHUNK]
    yield stream.decompress(b"", _OUTPUT_CHUNK)
    if not stream.eof:
        raise _Truncated


def _gunzip(source: _Source) -> Iterator[bytes]:
    return _inflate(source, 16 + zlib.MAX_WBITS)


def _deflate(source: _Source) -> Iterator[bytes]:
    """Undo `deflate`: zlib by the standard, raw from servers that misread it."""
    body = source.body
    zlib_header = len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflate(source, zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)


def _unbrotli(source: _Source) -> Iterator[bytes]:
    stream = brotli.Decompressor()
    for start in range(0, len(source.body), _SMALL_INPUT_CHUNK):
        chunk = source.body[start : start + _SMALL_INPUT_CHUNK]
        source.consumed = start + len(chunk)
        piece = stream.process(chunk, output_buffer_limit=_OUTPUT_CHUNK)
        while piece or not stream.can_accept_more_data():
            yield piece
            if stream.is_finished():
                return
            piece = stream.process(b"", output_buffer_limit=_OUTPUT_CHUNK)
        if stream.is_finished():
            return
    raise _Truncated


def _unzstd(source: _Source) -> Iterator[bytes]:
    body = source.body
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    compressed = io.BytesIO(body)
    with decompressor.stream_reader(
        compressed, read_size=_SMALL_INPUT_CHUNK, read_across_frames=True
    ) as reader:
        while piece := reader.read(_OUTPUT_CHUNK):
            source.consumed = compressed.tell()
            yield piece
    try:
        complete = _zstd_complete(body)
    except (
        zstandard.ZstdError
    ):  # the reader has accepted every byte there is: what is missing are the next ones
        complete = False
    if not complete:
        raise _Truncated


def _zstd_complete(body: bytes) -> bool:
    """Walk the frames of RFC 8878 and tell whether the last one is whole.

    The library's reader takes the end of its input for the end of the stream and cannot say.
    """
    position = 0
    blocks = 0
    while position < len(body):
        if int.from_bytes(body[position : position + 4], "little") & 0xFFFF_FFF0 == 0x184D_2A50:  # skippable
            position += 8 + int.from_bytes(body[position + 4 : position + 8], "little")
            continue
        frame = body[position : position + _ZSTD_FRAME_HEADER_BYTES]
        position += zstandard.frame_header_size(frame)
        last = False
        while not last and position + 3 <= len(body) and blocks < _MAX_ZSTD_BLOCKS:
            header = int.from_bytes(body[position : position + 3], "little")
            last = bool(header & 1)
            position += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)  # a run-length block holds one byte
            blocks += 1
        if not last:
            return False
        position += 4 * zstandard.get_frame_parameters(frame).has_checksum
    return position == len(body)


_DECODERS: dict[str, Callable[[_Source], Iterator[bytes]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _deflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
