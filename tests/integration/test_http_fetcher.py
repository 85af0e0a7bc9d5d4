"""The HTTP fetcher against servers that behave, and servers that do not."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest
import uvloop
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.config.settings import FetchSettings
from gossamer.fetch.http import HttpFetcher, check_headers
from gossamer.fetch.resolver import Resolver
from gossamer.model.response import FetchFailure, FetchProblem, Response

Run = Callable[[Coroutine[Any, Any, None]], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda scenario: runner.run(asyncio.wait_for(scenario, 60))


class Site:
    """A server that answers each request with the next canned reply, and remembers what it was sent.

    After the last reply it closes the connection. A reply may be a function, which gets the writer.
    """

    def __init__(self, *replies: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.replies = list(replies)
        self.requests: list[bytes] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while self.replies:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                reply = self.replies.pop(0)
                if callable(reply):
                    await reply(writer)
                else:
                    writer.write(reply)
                    await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def up(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
        server = await asyncio.start_server(self.serve, host, 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks)


@contextlib.asynccontextmanager
async def fetching(**changes: Any) -> AsyncIterator[HttpFetcher]:
    resolver = Resolver(changes.get("allow_private", True))
    fetcher = HttpFetcher(FetchSettings(**{"allow_private": True, **changes}), resolver, time.time)
    try:
        yield fetcher
    finally:
        await fetcher.close()
        resolver.close()


async def fetch_once(*replies: Any, **changes: Any) -> Response | FetchFailure:
    async with Site(*replies).up() as site, fetching(**changes) as fetcher:
        outcome = await fetcher.fetch(site.url)
        assert len(fetcher._deadlines) == 0
        return outcome


def expect(run: Run, problem: FetchProblem, detail: str, *replies: Any, **changes: Any) -> None:
    async def scenario() -> None:
        outcome = await fetch_once(*replies, **changes)
        assert isinstance(outcome, FetchFailure), outcome
        assert outcome.problem is problem, outcome
        assert detail in outcome.detail
        assert outcome.started_at > 0

    run(scenario())


def expect_body(run: Run, body: bytes, *replies: Any, **changes: Any) -> None:
    async def scenario() -> None:
        outcome = await fetch_once(*replies, **changes)
        assert isinstance(outcome, Response), outcome
        assert outcome.body == body

    run(scenario())


def page(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


# What a request looks like, and what comes back.


def test_a_request_carries_what_was_asked_and_nothing_else(run: Run) -> None:
    async def scenario() -> None:
        async with Site(OK).up() as site, fetching() as fetcher:
            headers = (("User-Agent", "test/1"), ("Cookie", "a=ü"))
            await fetcher.fetch(f"http://user:pw@127.0.0.1:{site.port}/a/b?c=d%20e#part", headers=headers)
            assert site.requests == [
                f"GET /a/b?c=d%20e HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nUser-Agent: test/1\r\nCookie: a=ü\r\n"
                f"Accept-Encoding: gzip, deflate, br, zstd\r\n\r\n".encode()
            ]

    run(scenario())


def test_a_response_has_lower_case_names_repeated_headers_and_readable_values(run: Run) -> None:
    async def scenario() -> None:
        head = b"HTTP/1.1 301 Moved\r\nX-ODD: a \t\r\nLocation: /caf\xc3\xa9\r\nX-Old: caf\xe9\r\nSet-Cookie: a\r\n"
        answer = head + b"set-cookie: b\r\nEmpty:\r\nContent-Length: 2\r\n\r\nhi"
        outcome = await fetch_once(answer)
        assert isinstance(outcome, Response)
        assert outcome.status == 301
        assert outcome.header("location") == "/café"
        assert outcome.header("x-old") == "café"
        assert outcome.header("x-odd") == "a"
        assert outcome.header_all("set-cookie") == ["a", "b"]
        assert ("empty", "") in outcome.headers
        assert (outcome.body, outcome.wire_bytes) == (b"hi", 2)
        assert outcome.elapsed > 0

    run(scenario())


@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
def test_a_body_is_sent_with_its_length(run: Run, method: str) -> None:
    async def scenario() -> None:
        async with Site(page(b"ok", "Connection: close")).up() as site, fetching() as fetcher:
            outcome = await fetcher.fetch(site.url, method=method, body=b"name=value")
            assert isinstance(outcome, Response)
            assert site.requests[0].endswith(b"\r\nContent-Length: 10\r\n\r\n")

    run(scenario())


def test_header_values_hold_nothing_that_could_break_a_line_or_a_string(run: Run) -> None:
    async def scenario() -> None:
        outcome = await fetch_once(page(b"ok", "Set-Cookie: a=b\0c", "X: one\r\n two"))
        assert isinstance(outcome, Response)
        assert (outcome.header("set-cookie"), outcome.header("x")) == ("a=b c", "one two")

    run(scenario())


@pytest.mark.parametrize(
    "header",
    [
        ("X", "a\r\nY: b"),
        ("X", "a\nb"),
        ("X", "a\0"),
        ("X: y", "a"),
        ("", "a"),
        ("X\r\n", "a"),
        ("Host", "evil"),
    ],
)
def test_a_header_that_would_inject_another_is_the_callers_error(run: Run, header: tuple[str, str]) -> None:
    async def scenario() -> None:
        with pytest.raises(ValueError, match="header"):
            check_headers([header])
        async with Site(OK).up() as site, fetching() as fetcher:
            with pytest.raises(ValueError, match="header"):
                await fetcher.fetch(site.url, headers=[header])
            assert site.connections == 0

    run(scenario())


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "ftp://h/",
        "http://h/a b",
        "http://h/\r\nX: y",
        "http://h:x/",
        "http://h:70000/",
        "//h/",
        "http://é/",
        "http:///a",
    ],
)
def test_a_url_that_is_not_canonical_is_the_callers_error(run: Run, url: str) -> None:
    async def scenario() -> None:
        async with fetching() as fetcher:
            with pytest.raises(ValueError, match="canonical"):
                await fetcher.fetch(url)

    run(scenario())


def test_the_start_is_reported_before_the_first_byte_and_with_the_outcome(run: Run) -> None:
    async def scenario() -> None:
        async with Site(OK).up() as site, fetching() as fetcher:
            starts: list[float] = []

            def started(now: float) -> None:
                assert site.requests == []
                starts.append(now)

            outcome = await fetcher.fetch(site.url, started=started)
            assert [outcome.started_at] == starts

    run(scenario())


# Framing.


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: v\r\n\r\n",
            b"hello!",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 200\nContent-Length: 2\n\nok", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", b""),
        (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nUpgrade: h2,h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n",
            b"yes",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok and more", b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nplain", b"plain"),
        (b"HTTP/1.1 200 OK\r\nX: a\x01b\r\nY: c\r\n folded\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    ],
)
def test_every_framing_in_use_gives_the_body(run: Run, reply: bytes, body: bytes) -> None:
    expect_body(run, body, reply)


def test_a_reply_that_comes_byte_by_byte_is_whole(run: Run) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    expect_body(run, b"hello", drip)


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (b"<html>no head at all", "not valid HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "not valid HTTP"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "not valid HTTP"),
        (b"HTTP/1.1 000 No\r\n\r\n", "unexpected status 000"),
        (b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "unexpected status 101"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + OK, "unexpected status 100"),
        (b"HTTP/1.1 150 What\r\nContent-Length: 3\r\n\r\nabc" + OK, "body after status 150"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello", "chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello", "chunk size"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
            "Chunk size overflow",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "transfer coding 'gzip, chunked'",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", "Content-Length"),
    ],
)
def test_what_is_not_http_is_a_protocol_failure(run: Run, reply: bytes, detail: str) -> None:
    expect(run, FetchProblem.PROTOCOL, detail, reply)


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-", "inside the headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "after 5 of 10 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "after 5 bytes"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "inside the headers"),
    ],
)
def test_a_connection_closed_too_early_is_a_disconnection(run: Run, reply: bytes, detail: str) -> None:
    expect(run, FetchProblem.DISCONNECTED, detail, reply)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_server_sends_the_outcome_is_a_value(data: st.DataObject) -> None:
    known = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n5\r\nhello"
    reply = bytearray(known * 2)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(reply) - 1))
        reply[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=4))
    bugs: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: bugs.append(context))
        outcome = runner.run(fetch_once(bytes(reply), timeout_seconds=5.0))
    assert isinstance(outcome, Response | FetchFailure)
    assert bugs == []


# Bounds.


def test_an_announced_length_over_the_cap_is_refused_without_reading(run: Run) -> None:
    expect(
        run,
        FetchProblem.TOO_LARGE,
        "announced 1000001",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000001\r\n\r\n",
        max_body_bytes=1_000_000,
    )


@pytest.mark.parametrize(
    "framing", [b"Connection: close\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n"]
)
def test_an_endless_body_is_given_up_at_the_cap(run: Run, framing: bytes) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + framing)
        while True:
            writer.write(bytes(10_000))
            await writer.drain()

    expect(run, FetchProblem.TOO_LARGE, "more than 100000 bytes", endless, max_body_bytes=100_000)


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
)
def test_an_endless_head_trailer_or_chunk_extension_is_given_up(run: Run, start: bytes) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(start or b"HTTP/1.1 200 ")
        while True:
            writer.write(b"a" * 1000)
            await writer.drain()

    expect(run, FetchProblem.TOO_MANY_HEADERS, "bytes of headers", endless)


def test_headers_are_bounded_in_number_and_size(run: Run) -> None:
    async def scenario() -> None:
        for headers, fits in (
            (["X: y"] * 199, True),
            (["X: y"] * 200, False),
            (["X: " + "y" * 60_000], True),
            (["X: " + "y" * 70_000], False),
        ):
            outcome = await fetch_once(page(b"ok", *headers))
            assert isinstance(outcome, Response) is fits, outcome
            assert fits or (
                isinstance(outcome, FetchFailure) and outcome.problem is FetchProblem.TOO_MANY_HEADERS
            )

    run(scenario())


@pytest.mark.parametrize(
    ("coding", "encode"), [("gzip", gzip.compress), ("br", brotli.compress), ("zstd", zstandard.compress)]
)
def test_a_bomb_is_too_large_and_an_honest_page_is_decoded(
    run: Run, coding: str, encode: Callable[[bytes], bytes]
) -> None:
    async def scenario() -> None:
        small = encode(b"page " * 100)
        outcome = await fetch_once(page(small, f"Content-Encoding: {coding}"))
        assert isinstance(outcome, Response)
        assert (outcome.body, outcome.wire_bytes) == (b"page " * 100, len(small))
        bomb = encode(bytes(20_000_000))
        outcome = await fetch_once(page(bomb, f"Content-Encoding: {coding}"), max_body_bytes=1_000_000)
        assert isinstance(outcome, FetchFailure)
        assert (outcome.problem, outcome.status) == (FetchProblem.TOO_LARGE, 200)

    run(scenario())


@pytest.mark.parametrize(
    "reply",
    [
        page(b"text", "Content-Encoding: gzip"),
        page(gzip.compress(b"text", mtime=0)[:-5], "Content-Encoding: gzip"),
        page(b"text", "Content-Encoding: snappy"),
        page(b"text", "Content-Encoding: gzip, gzip", "Content-Encoding: gzip, gzip"),
    ],
)
def test_a_body_that_does_not_match_its_coding_is_refused(run: Run, reply: bytes) -> None:
    expect(run, FetchProblem.BAD_ENCODING, "", reply)


def test_with_truncate_a_body_over_the_cap_is_cut_there(run: Run) -> None:
    async def scenario() -> None:
        text = b"0123456789" * 1000
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2710\r\n" + text
        for reply in (page(text), chunked, page(gzip.compress(text), "Content-Encoding: gzip")):
            async with Site(reply).up() as site, fetching() as fetcher:
                outcome = await fetcher.fetch(site.url, max_body_bytes=500, truncate=True)
                assert isinstance(outcome, Response), outcome
                assert outcome.body == text[:500]

    run(scenario())


def test_with_truncate_a_compressed_body_cut_on_the_wire_yields_what_was_whole(run: Run) -> None:
    async def scenario() -> None:
        text = random.Random(1).randbytes(100_000)
        async with (
            Site(page(gzip.compress(text), "Content-Encoding: gzip")).up() as site,
            fetching() as fetcher,
        ):
            outcome = await fetcher.fetch(site.url, max_body_bytes=50_000, truncate=True)
            assert isinstance(outcome, Response), outcome
            assert len(outcome.body) > 40_000
            assert text.startswith(outcome.body)
            assert (outcome.wire_bytes, len(fetcher._pool)) == (50_000, 0)

    run(scenario())


# Time.


def test_a_server_that_drips_hits_the_total_deadline(run: Run) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    expect(run, FetchProblem.TIMEOUT, "still receiving after 0.8 s", drip, timeout_seconds=0.8)


def test_a_server_that_says_nothing_hits_the_total_deadline(run: Run) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        del writer
        await asyncio.sleep(1)

    expect(run, FetchProblem.TIMEOUT, "no answer after 0.1 s", silent, timeout_seconds=0.1)


def test_many_deadlines_expire_each_in_its_turn(run: Run) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with Site(*[silent] * 10).up() as site, fetching(timeout_seconds=0.1) as fetcher:
            for _ in range(2):
                outcomes = await asyncio.gather(*(fetcher.fetch(site.url) for _ in range(5)))
                assert {getattr(outcome, "problem", None) for outcome in outcomes} == {FetchProblem.TIMEOUT}

    run(scenario())


def test_a_cancelled_fetch_closes_its_connection(run: Run) -> None:
    async def scenario() -> None:
        gone = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while await reader.read(1000):
                    pass
            writer.transport.abort()
            gone.set()

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        async with server, fetching() as fetcher:
            begun = asyncio.Event()
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            task = asyncio.create_task(fetcher.fetch(url, started=lambda _: begun.set()))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(gone.wait(), 10)
            assert (len(fetcher._pool), len(fetcher._deadlines)) == (0, 0)

    run(scenario())


# Connections.


def test_a_connection_is_used_again(run: Run) -> None:
    async def scenario() -> None:
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        async with Site(OK, chunked, OK, OK).up() as site, fetching() as fetcher:
            for _ in range(4):
                assert isinstance(await fetcher.fetch(site.url), Response)
            assert (site.connections, len(site.requests)) == (1, 4)

    run(scenario())


def test_head_has_no_body_and_leaves_the_connection_usable(run: Run) -> None:
    async def scenario() -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n"
        async with Site(head, OK).up() as site, fetching() as fetcher:
            outcome = await fetcher.fetch(site.url, method="HEAD")
            assert isinstance(outcome, Response)
            assert (outcome.body, outcome.header("content-length")) == (b"", "20000000")
            assert isinstance(await fetcher.fetch(site.url), Response)
            assert site.connections == 1

    run(scenario())


@pytest.mark.parametrize(
    "reply",
    [
        OK + OK,
        OK + b"HTTP/1.1 200 OK\r\nEvil: ",
        OK + b"x",
        page(b"ok", "Connection: close"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_a_connection_is_not_used_again_after_anything_doubtful(run: Run, reply: bytes) -> None:
    async def scenario() -> None:
        async with Site(reply, OK).up() as site, fetching() as fetcher:
            for _ in range(2):
                outcome = await fetcher.fetch(site.url)
                assert isinstance(outcome, Response)
                assert outcome.body == b"ok"
            assert site.connections == 2

    run(scenario())


def test_bytes_on_an_idle_connection_close_it(run: Run) -> None:
    async def scenario() -> None:
        async def late(writer: asyncio.StreamWriter) -> None:
            writer.write(OK)
            await writer.drain()
            while not len(fetcher._pool):
                await asyncio.sleep(0.001)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            await writer.drain()

        async with Site(late, OK).up() as site, fetching(keep_alive_seconds=1000.0) as fetcher:
            await fetcher.fetch(site.url)
            async with asyncio.timeout(10):
                while len(fetcher._pool):
                    await asyncio.sleep(0.001)
            outcome = await fetcher.fetch(site.url)
            assert isinstance(outcome, Response)
            assert (outcome.body, site.connections) == (b"ok", 2)

    run(scenario())


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize(("method", "repeated"), [("GET", True), ("POST", False)])
def test_a_request_swallowed_by_a_reused_connection_is_repeated_if_that_is_safe(
    run: Run, method: str, repeated: bool
) -> None:
    async def scenario() -> None:
        async with Site(OK, hang_up, OK).up() as site, fetching() as fetcher:
            await fetcher.fetch(site.url)
            starts: list[float] = []
            outcome = await fetcher.fetch(site.url, method=method, started=starts.append)
            assert isinstance(outcome, Response) is repeated
            assert len(starts) == (2 if repeated else 1)
            assert outcome.started_at == starts[-1]

    run(scenario())


def test_a_request_is_repeated_only_once(run: Run) -> None:
    async def scenario() -> None:
        async with Site(OK, hang_up, hang_up, OK).up() as site, fetching() as fetcher:
            await fetcher.fetch(site.url)
            outcome = await fetcher.fetch(site.url)
            assert isinstance(outcome, FetchFailure)
            assert outcome.problem is FetchProblem.DISCONNECTED
            assert len(site.requests) == 3

    run(scenario())


def test_idle_connections_are_bounded_in_number_and_time(run: Run) -> None:
    async def scenario() -> None:
        async with (
            Site(*[OK] * 20).up() as site,
            fetching(max_idle_connections=3, keep_alive_seconds=1.0) as fetcher,
        ):
            await asyncio.gather(*(fetcher.fetch(site.url) for _ in range(6)))
            assert len(fetcher._pool) == 3
            while len(fetcher._pool):
                await asyncio.sleep(0.01)
            assert fetcher._pool._stacks == {}

    run(scenario())


def test_a_closed_port_is_a_connect_failure_and_counts_as_no_start(run: Run) -> None:
    async def scenario() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            async with fetching() as fetcher:
                outcome = await fetcher.fetch(f"http://127.0.0.1:{closed.getsockname()[1]}/")
        assert isinstance(outcome, FetchFailure)
        assert (outcome.problem, outcome.started_at) == (FetchProblem.CONNECT, 0.0)
        assert outcome.detail.endswith("Connection refused")

    run(scenario())


def test_a_private_address_is_refused_before_any_connection(run: Run) -> None:
    async def scenario() -> None:
        async with Site(OK).up() as site, fetching(allow_private=False) as fetcher:
            for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
                outcome = await fetcher.fetch(f"http://{host}:{site.port}/")
                assert isinstance(outcome, FetchFailure)
                assert (outcome.problem, outcome.started_at) == (FetchProblem.PRIVATE_ADDRESS, 0.0)
            assert site.connections == 0

    run(scenario())


def test_the_next_address_is_tried_when_the_first_refuses(run: Run) -> None:
    async def scenario() -> None:
        async def lookup(name: str) -> list[str]:
            return ["127.0.0.2", "127.0.0.1"]

        async with Site(OK).up() as site:
            fetcher = HttpFetcher(FetchSettings(), Resolver(allow_private=True, lookup=lookup), time.time)
            outcome = await fetcher.fetch(f"http://two.example:{site.port}/")
            assert isinstance(outcome, Response)
            assert f"Host: two.example:{site.port}\r\n".encode() in site.requests[0]
            await fetcher.close()

    run(scenario())


def test_ipv6_works_by_literal_and_by_name(run: Run) -> None:
    async def scenario() -> None:
        try:
            server = Site(OK, OK)
            async with server.up("::1") as site, fetching() as fetcher:
                for host in ("[::1]", "localhost"):
                    assert isinstance(await fetcher.fetch(f"http://{host}:{site.port}/"), Response)
        except OSError:
            pytest.skip("no IPv6 here")

    run(scenario())


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run(
        [*new, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True
    )
    return folder


def server_tls(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_a_trusted_certificate_is_accepted_and_the_connection_reused(
    run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    async def scenario() -> None:
        async with (
            Site(page(b"x" * 200_000), OK, OK).up(tls=server_tls(certificate)) as site,
            fetching() as fetcher,
        ):
            for host in ("localhost", "localhost", "127.0.0.1"):
                assert isinstance(await fetcher.fetch(f"https://{host}:{site.port}/"), Response)
            assert site.connections == 2

    run(scenario())


def test_an_untrusted_certificate_is_a_tls_failure_and_counts_as_no_start(
    run: Run, certificate: Path
) -> None:
    async def scenario() -> None:
        async with Site(OK).up(tls=server_tls(certificate)) as site, fetching() as fetcher:
            outcome = await fetcher.fetch(f"https://localhost:{site.port}/")
            assert isinstance(outcome, FetchFailure)
            assert (outcome.problem, outcome.started_at) == (FetchProblem.TLS, 0.0)
            assert "certificate not accepted: self" in outcome.detail
            assert site.requests == []

    run(scenario())


def test_a_certificate_for_another_name_is_a_tls_failure(
    run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    async def scenario() -> None:
        async with Site(OK).up(tls=server_tls(certificate)) as site, fetching() as fetcher:
            outcome = await fetcher.fetch(f"https://other.localhost:{site.port}/")
            assert isinstance(outcome, FetchFailure)
            assert outcome.problem is FetchProblem.TLS
            assert "mismatch" in outcome.detail

    run(scenario())


@pytest.mark.parametrize("host", ["a..localhost", "a" * 64 + ".localhost", ".localhost"])
def test_a_host_name_that_tls_cannot_carry_is_a_tls_failure(run: Run, host: str) -> None:
    async def scenario() -> None:
        async with Site(OK).up() as site, fetching() as fetcher:
            outcome = await fetcher.fetch(f"https://{host}:{site.port}/")
            assert isinstance(outcome, FetchFailure)
            assert outcome.problem is FetchProblem.TLS

    run(scenario())


def test_a_server_that_does_not_speak_tls_is_a_tls_failure(run: Run) -> None:
    async def scenario() -> None:
        async def speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
        async with server, fetching() as fetcher:
            outcome = await fetcher.fetch(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            assert isinstance(outcome, FetchFailure)
            assert outcome.problem is FetchProblem.TLS

    run(scenario())


def test_a_server_that_never_finishes_the_handshake_is_a_timeout(run: Run) -> None:
    async def scenario() -> None:
        async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1000):
                pass
            writer.close()

        server = await asyncio.start_server(stall, "127.0.0.1", 0)
        async with server, fetching(connect_timeout_seconds=0.1) as fetcher:
            outcome = await fetcher.fetch(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            assert isinstance(outcome, FetchFailure)
            assert (outcome.problem, outcome.started_at) == (FetchProblem.TIMEOUT, 0.0)

    run(scenario())
