"""Just enough of an HTTP/1.1 server: keep-alive, pipelining, bounded requests, and answers as odd as asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from gossamer.testing.synthetic_reply import Reply, text_reply

MAX_HEAD_BYTES = 32_768
MAX_BODY_BYTES = 1_048_576
LINGER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Received:
    """A request that was read in full."""

    method: str
    target: str
    version: str
    headers: dict[str, str]
    body: bytes

    @property
    def keep_alive(self) -> bool:
        """Whether the client expects the connection to stay open."""
        tokens = self.headers.get("connection", "").lower()
        return "close" not in tokens if self.version == "HTTP/1.1" else "keep-alive" in tokens


async def serve_connection(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    respond: Callable[[Received], Awaitable[Reply]],
) -> None:
    """Answer the requests of one connection in their order until either side ends it."""
    try:
        going = True
        while going:
            received = await _read_request(reader)
            if isinstance(received, Reply):
                await _refuse(reader, writer, received)
                return
            reply = await respond(received)
            going = received.keep_alive and not reply.close and not reply.raw
            await _write_reply(writer, reply, received, keep_alive=going)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client left, which is its right
    finally:
        writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Received | Reply:
    """Read the next request, or say with which answer it is refused."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return text_reply("request head too large\n", status=431)
    request_line, *lines = head[:-4].decode("latin-1").split("\r\n")
    words = request_line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return text_reply("not an HTTP/1 request line\n", status=400)
    headers = _parse_headers(lines)
    if words[2] == "HTTP/1.1" and "host" not in headers:
        return text_reply("no Host header\n", status=400)
    length = _body_length(headers)
    if isinstance(length, Reply):
        return length
    return Received(words[0], words[1], words[2], headers, await reader.readexactly(length))


def _body_length(headers: dict[str, str]) -> int | Reply:
    if "transfer-encoding" in headers:
        return text_reply("send a Content-Length\n", status=411)
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        return text_reply("bad Content-Length\n", status=400)
    if len(length) > 9 or int(length) > MAX_BODY_BYTES:
        return text_reply("request body too large\n", status=413)
    return int(length)


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        key = name.strip().lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return headers


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Reply) -> None:
    """Send `reply`, then read on for a moment: closing on unread bytes would reset the answer away."""
    writer.write(_head(reply, chunked=False, keep_alive=False) + reply.body)
    await writer.drain()
    writer.write_eof()
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while await reader.read(MAX_HEAD_BYTES):
                pass
    except TimeoutError:
        pass


async def _write_reply(
    writer: asyncio.StreamWriter, reply: Reply, received: Received, *, keep_alive: bool
) -> None:
    if reply.delay_seconds:
        await asyncio.sleep(reply.delay_seconds)
    if reply.raw:
        await _drip(writer, reply, reply.raw, chunked=False)
        return
    chunked = reply.chunked and received.version == "HTTP/1.1"
    writer.write(_head(reply, chunked=chunked, keep_alive=keep_alive))
    if received.method != "HEAD" and _may_have_body(reply.status):
        await _drip(writer, reply, reply.body, chunked=chunked)
    await writer.drain()


async def _drip(writer: asyncio.StreamWriter, reply: Reply, data: bytes, *, chunked: bool) -> None:
    for number, piece in enumerate(_pieces(data, reply.drip_bytes)):
        if number and reply.drip_seconds:
            await asyncio.sleep(reply.drip_seconds)
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    if not data:
        return
    step = size or len(data)
    for start in range(0, len(data), step):
        yield data[start : start + step]


def _head(reply: Reply, *, chunked: bool, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    elif _may_have_body(reply.status):
        lines.append(f"Content-Length: {len(reply.body)}")
    if not keep_alive:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _may_have_body(status: int) -> bool:
    return status >= 200 and status not in {204, 304}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unassigned"
