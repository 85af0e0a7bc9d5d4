"""Replies made to exhaust or to confuse: each ends in an outcome, within its bounds."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard

from gossamer.model.response import FetchFailure, FetchProblem, Response

from .misbehaving import Misbehaving, fetching, outcome_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CAP = 1_000_000


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.compress),
    "twice": ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
    "mixed": ("br, zstd", lambda data: zstandard.compress(brotli.compress(data))),
}


def reply(body: bytes, *lines: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def failed(outcome: Response | FetchFailure, problem: FetchProblem) -> FetchFailure:
    assert isinstance(outcome, FetchFailure), outcome
    assert outcome.problem is problem, outcome
    return outcome


# Bombs.


@pytest.mark.parametrize("status", ["200 OK", "302 Found", "404 Not Found", "503 Busy"])
@pytest.mark.parametrize("name", ENCODERS)
def test_a_bomb_is_given_up_whatever_its_status_and_coding(name: str, status: str) -> None:
    coding, encode = ENCODERS[name]
    bomb = reply(encode(bytes(20 * CAP)), f"Content-Encoding: {coding}", "Location: /next", status=status)
    bounds = {"max_body_bytes": CAP, "max_decompression_ratio": 0}  # the size alone must do
    failed(outcome_of(bomb, **bounds), FetchProblem.TOO_LARGE)
    honest = outcome_of(reply(encode(b"x" * CAP), f"Content-Encoding: {coding}", status=status), **bounds)
    assert isinstance(honest, Response)
    assert honest.body == b"x" * CAP


@pytest.mark.parametrize("name", ENCODERS)
def test_a_robots_txt_that_is_a_bomb_is_cut(name: str) -> None:
    coding, encode = ENCODERS[name]

    async def scenario() -> None:
        bomb = reply(encode(b"Allow: /\n" * 1_000_000), f"Content-Encoding: {coding}")
        async with Misbehaving(bomb).up() as site, fetching(max_decompression_ratio=0) as fetcher:
            outcome = await fetcher.fetch(f"{site.url}robots.txt", max_body_bytes=500_001, truncate=True)
            # A bomb inside a bomb may already be cut inside; what is left is whole lines or nothing.
            assert isinstance(outcome, Response), outcome
            assert len(outcome.body) <= 500_001
            assert b"Allow: /\n".startswith(outcome.body[:9])

    asyncio.run(asyncio.wait_for(scenario(), 30))


_BOMB_PROGRAM = """
import asyncio, sys, zlib
sys.path.insert(0, {tests!r})
from hostile.memory import Peak
from hostile.misbehaving import Misbehaving, fetching

async def main():
    stream = zlib.compressobj(9, wbits=31)
    block = bytes(100_000_000)
    bomb = b"".join(stream.compress(block) for _ in range({blocks})) + stream.flush()
    del block
    head = b"HTTP/1.1 200 OK\\r\\nContent-Encoding: gzip\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(bomb)
    async with Misbehaving(OK, head + bomb).up() as site, fetching(max_body_bytes=10_500_000, max_decompression_ratio=0) as fetcher:
        await fetcher.fetch(site.url)
        peak = Peak()
        outcome = await fetcher.fetch(site.url)
        growth = peak.growth()
    print(outcome.problem, len(bomb), growth)

OK = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
asyncio.run(main())
"""


def bomb_growth(blocks: int) -> tuple[int, int]:
    """Fetch a gzip bomb of `blocks` times 100 MB in a process of its own; returns its size and the growth in KiB."""
    program = _BOMB_PROGRAM.format(tests=str(Path(__file__).parents[1]), blocks=blocks)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    problem, size, growth = done.stdout.split()
    assert problem == "too_large"
    return int(size), int(growth)


def test_a_gzip_bomb_costs_no_more_memory_than_an_honest_page() -> None:
    _, growth = bomb_growth(10)
    assert growth < 60_000


@pytest.mark.soak
def test_ten_gigabytes_in_ten_megabytes_cost_no_more_memory_than_an_honest_page() -> None:
    size, growth = bomb_growth(100)
    assert 9_000_000 < size < 10_500_000
    assert growth < 100_000


# Floods.


@pytest.mark.parametrize(
    ("start", "again", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", FetchProblem.TOO_MANY_HEADERS),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000, FetchProblem.TOO_MANY_HEADERS),
        (b"HTTP/1.1 200 OK\r\n", b"y" * 1000, FetchProblem.TOO_MANY_HEADERS),
        (b"HTTP/1.1 200 OK\r\nX: y", b"\r\n folded", FetchProblem.TOO_MANY_HEADERS),
        (b"", b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", FetchProblem.PROTOCOL),
        (b"HTTP/1.1 103 Early\r\n", b"X: y\r\n", FetchProblem.TOO_MANY_HEADERS),
        (CHUNKED + b"0\r\n", b"X: y\r\n", FetchProblem.TOO_MANY_HEADERS),
        (CHUNKED + b"1", b";a=b", FetchProblem.TOO_MANY_HEADERS),
        # These bring a byte of the body now and then.
        (CHUNKED, b"1;" + b"x" * 60_000 + b"\r\na\r\n", FetchProblem.TOO_LARGE),
        (CHUNKED, b"1;" + b"x" * 600 + b"\r\na\r\n", FetchProblem.TOO_LARGE),
        (CHUNKED, b"0000000000000001\r\na\r\n", FetchProblem.TOO_LARGE),
        (CHUNKED, b"2\r\nab\r\n", FetchProblem.TOO_LARGE),
        (b"\r\n", b"\r\n", FetchProblem.TOO_MANY_HEADERS),
    ],
)
def test_a_flood_is_given_up_after_little_more_than_the_bounds(
    start: bytes, again: bytes, problem: FetchProblem
) -> None:
    async def scenario() -> None:
        site = Misbehaving(lambda _, writer: site.flood(writer, start, again, 100))
        async with site.up(), fetching(max_body_bytes=CAP) as fetcher:
            failed(await fetcher.fetch(site.url), problem)
            # Both ends hold some megabytes back in the kernel.
            assert site.sent < 5 * CAP + 10_000_000

    asyncio.run(asyncio.wait_for(scenario(), 30))


_CHUNKS_PROGRAM = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from hostile.memory import Peak
from hostile.misbehaving import Misbehaving, fetching

async def main():
    async def chunks(_, writer):
        writer.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        for _ in range(400):
            writer.write(b"2\\r\\nab\\r\\n" * 5_000)
            await writer.drain()
        writer.write(b"0\\r\\n\\r\\n")

    ok = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
    async with Misbehaving(ok, chunks).up() as site, fetching() as fetcher:
        await fetcher.fetch(site.url)
        peak = Peak()
        outcome = await fetcher.fetch(site.url)
        growth = peak.growth()
    assert outcome.body == b"ab" * 2_000_000
    print(growth)

asyncio.run(main())
"""


def test_a_body_of_tiny_chunks_takes_little_more_memory_than_its_size() -> None:
    program = _CHUNKS_PROGRAM.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40_000  # KiB for 4 MB; kept apart, its two million pieces take 110 MB


# What is not HTTP, or says two things at once.


@pytest.mark.parametrize(
    "sent",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80\0\x04\0\x01\0\0\0\x05\0\xff\xff\xff",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 -200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 mail.example ESMTP\r\n",
        b"GET / HTTP/1.1\r\nHost: you\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\nContent-Length: 5\r\n\r\nhello",
        CHUNKED + b"ffffffffffffffff\r\nhello",
        CHUNKED + b"7fffffffffffffff1\r\nhello",
        CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nhelloworld\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_http_or_contradicts_itself_is_a_failure(sent: bytes) -> None:
    outcome = outcome_of(sent, timeout_seconds=5.0)
    assert isinstance(outcome, FetchFailure), outcome
    assert outcome.problem in {FetchProblem.PROTOCOL, FetchProblem.DISCONNECTED, FetchProblem.TOO_LARGE}
    assert "\n" not in outcome.detail
    assert len(outcome.detail) < 400


@pytest.mark.parametrize("version", ["0.9", "1.0", "2.0", "3.0"])
def test_a_reply_of_another_version_is_read_to_its_end_and_its_connection_not_kept(version: str) -> None:
    async def scenario() -> None:
        odd = f"HTTP/{version} 200 OK\r\nContent-Length: 2\r\n\r\nok".encode()
        async with Misbehaving(odd, odd).up() as site, fetching() as fetcher:
            for _ in range(2):
                outcome = await fetcher.fetch(site.url)
                assert isinstance(outcome, Response) or outcome.problem is FetchProblem.PROTOCOL, outcome
            assert site.connections == 2

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize(
    "location",
    [
        b"http://a/\r\nSet-Cookie: evil=1",
        b"/a\rSet-Cookie: evil=1",
        b"/a\nX: y",
        b"/a\0b",
        b"javascript:alert(1)",
    ],
)
def test_nothing_in_a_location_gets_into_another_line(location: bytes) -> None:
    sent = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
    outcome = outcome_of(sent)
    if isinstance(outcome, Response):
        assert not any(char in value for _, value in outcome.headers for char in "\r\n\0")


# Keep-alive.

EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"


@pytest.mark.parametrize(
    "first",
    [
        OK + EVIL,
        OK + b"\r\n" + EVIL,
        OK + b"\0" * 10,
        CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + EVIL,
        CHUNKED + b"2\r\nok\r\n0\r\nX: y\r\n\r\n" + EVIL,
        b"HTTP/1.1 204 No\r\nContent-Length: 61\r\n\r\n" + EVIL,
        b"HTTP/1.1 304 Same\r\n\r\n" + EVIL,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        + EVIL,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + EVIL,
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_what_came_after_a_reply_is_not_taken_for_the_next_one(first: bytes, late: bool) -> None:
    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = len(first) - len(EVIL) if late else len(first)
        writer.write(first[:end])
        await writer.drain()
        await asyncio.sleep(0.05 if late else 0)  # the second reply comes on an idle connection
        writer.write(first[end:])

    async def scenario() -> None:
        async with Misbehaving(send, OK).up() as site, fetching() as fetcher:
            await fetcher.fetch(site.url)
            # What is still under way when a request goes out passes for its reply: HTTP/1.1 cannot tell them apart.
            async with asyncio.timeout(10.0):  # less than an idle connection is kept
                while late and len(fetcher._pool):
                    await asyncio.sleep(0.01)
            second = await fetcher.fetch(site.url)
            assert isinstance(second, Response), second
            assert second.body == b"ok"
            assert site.connections == 2

    asyncio.run(asyncio.wait_for(scenario(), 30))


# Connections that die.

WHOLE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n5\r\nhello\r\n0\r\nT: v\r\n\r\n"


@pytest.mark.parametrize("at", range(0, len(WHOLE), 3))
def test_a_reset_at_any_byte_is_a_disconnection(at: int) -> None:
    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE[:at])
        await writer.drain()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    failed(outcome_of(send), FetchProblem.DISCONNECTED)


def test_a_reset_in_a_body_without_length_is_not_taken_for_its_end() -> None:
    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf a page")
        await writer.drain()
        await asyncio.sleep(0.05)  # a reset drops what was not read yet
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    failed(outcome_of(send), FetchProblem.DISCONNECTED)
