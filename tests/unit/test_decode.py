"""Content codings: exact for honest bodies, bounded for bombs, strict with broken ones."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fetch.decode import BadEncoding, BodyTooLarge, decode_body, parse_codings

PAGE = b"".join(b"<a href='/page/%d'>number %d</a>\n" % (n, n * n) for n in range(3000))
LIMIT = 1_000_000


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd_streamed(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return packer.compress(data) + packer.flush()


ENCODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("br", brotli.compress),
    ("zstd", zstandard.compress),
    ("zstd", zstd_streamed),
]
each_coding = pytest.mark.parametrize(("coding", "encode"), ENCODERS)


@each_coding
def test_every_coding_gives_back_what_was_encoded(coding: str, encode: Callable[[bytes], bytes]) -> None:
    for data in (PAGE, b"x", PAGE * 7):
        assert decode_body(encode(data), (coding,), LIMIT) == data


@each_coding
def test_a_body_of_exactly_the_limit_is_whole_and_one_byte_more_is_too_large(
    coding: str, encode: Callable[[bytes], bytes]
) -> None:
    body = encode(PAGE)
    assert decode_body(body, (coding,), len(PAGE)) == PAGE
    with pytest.raises(BodyTooLarge):
        decode_body(body, (coding,), len(PAGE) - 1)


@each_coding
def test_a_bomb_never_takes_much_more_memory_than_the_limit(
    coding: str, encode: Callable[[bytes], bytes]
) -> None:
    bomb = encode(bytes(50_000_000))
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decode_body(bomb, (coding,), LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * LIMIT


@each_coding
def test_a_cut_off_stream_is_refused(coding: str, encode: Callable[[bytes], bytes]) -> None:
    body = encode(PAGE)
    for end in (1, 10, len(body) // 2, len(body) - 1):
        with pytest.raises(BadEncoding):
            decode_body(body[:end], (coding,), LIMIT)


@each_coding
def test_a_partial_body_yields_what_its_beginning_holds(
    coding: str, encode: Callable[[bytes], bytes]
) -> None:
    body = encode(PAGE * 5)
    start = decode_body(body[: len(body) // 2], (coding,), LIMIT, partial=True)
    assert (PAGE * 5).startswith(start)
    assert decode_body(body, (coding,), 1000, partial=True) == PAGE[:1000]


@each_coding
def test_garbage_is_refused(coding: str, encode: Callable[[bytes], bytes]) -> None:
    del encode
    with pytest.raises(BadEncoding):
        decode_body(b"\xff<html>this is not compressed at all</html>", (coding,), LIMIT)


@each_coding
def test_an_empty_body_is_empty_under_any_coding(coding: str, encode: Callable[[bytes], bytes]) -> None:
    del encode
    assert decode_body(b"", (coding,), LIMIT) == b""


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes, coding: str) -> None:
    prefix = {"gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\3", "deflate": b"\x78\x9c", "zstd": b"\x28\xb5\x2f\xfd"}.get(
        coding, b""
    )
    for body in (data, prefix + data):
        try:
            assert len(decode_body(body, (coding,), 10_000)) <= 10_000
        except (BadEncoding, BodyTooLarge):
            continue


def test_codings_are_undone_in_reverse_order() -> None:
    body = brotli.compress(gzip.compress(PAGE))
    assert decode_body(body, parse_codings(["gzip, br"]), LIMIT) == PAGE
    assert decode_body(body, parse_codings(["GZIP", " br "]), LIMIT) == PAGE


def test_the_members_of_a_gzip_file_are_joined() -> None:
    assert decode_body(gzip.compress(b"one ") + gzip.compress(b"two"), ("gzip",), LIMIT) == b"one two"


def test_the_frames_of_a_zstd_stream_are_joined_and_skippable_ones_skipped() -> None:
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    body = zstandard.compress(b"one ") + skippable + zstd_streamed(b"two")
    assert decode_body(body, ("zstd",), LIMIT) == b"one two"


def test_garbage_after_a_complete_gzip_stream_is_ignored() -> None:
    for tail in (b"\0" * 512, b"garbage", b"\x1f"):
        assert decode_body(gzip.compress(PAGE) + tail, ("gzip",), LIMIT) == PAGE


def test_a_wrong_checksum_is_refused() -> None:
    body = gzip.compress(PAGE)
    with pytest.raises(BadEncoding, match="corrupt"):
        decode_body(body[:-8] + bytes(4) + body[-4:], ("gzip",), LIMIT)


def test_a_body_of_countless_gzip_members_is_refused() -> None:
    with pytest.raises(BadEncoding, match="members"):
        decode_body(gzip.compress(b"") * 20_000, ("gzip",), LIMIT)


def test_a_body_of_countless_empty_zstd_blocks_is_refused() -> None:
    body = b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * 300_000 + b"\1\0\0"
    with pytest.raises(BadEncoding):
        decode_body(body, ("zstd",), LIMIT)


def test_a_zstd_window_beyond_the_standard_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(BadEncoding):
        decode_body(packer.compress(PAGE) + packer.flush(), ("zstd",), LIMIT)


def test_a_bomb_inside_a_bomb_is_bounded_at_every_stage() -> None:
    with pytest.raises(BodyTooLarge):
        decode_body(gzip.compress(gzip.compress(bytes(20_000_000))), ("gzip", "gzip"), 10_000)


@pytest.mark.parametrize("value", ["compress", "gzip;q=1", "utf-8", "gzip, gzip, gzip, gzip"])
def test_unknown_or_too_many_codings_are_refused(value: str) -> None:
    with pytest.raises(BadEncoding):
        parse_codings([value])


def test_identity_and_empty_names_are_no_codings() -> None:
    assert parse_codings(["identity", "", " , Identity,GZip"]) == ("gzip",)
