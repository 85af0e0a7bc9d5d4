"""Good hosts and hostile ones, each an address of the loopback network, all on one port.

Run as `python -m bench.hostile_site --good 8 --pages 60 --each 1`. The first line it prints is a JSON object with the
seeds of both, `{"good": [URL, …], "hostile": [URL, …]}`. It ends when its standard input does, or after `--seconds`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import zlib

#: `drip` sends a byte now and then, `bomb` a page that unpacks to 100 MB, `loop` redirects for ever, `calendar` has a
#: page for every day there will be, `silent` takes a request and says nothing, `robots` is slow with its robots.txt.
KINDS = ("drip", "bomb", "loop", "calendar", "silent", "robots")
BOMB_BYTES = 100_000_000
DRIP_SECONDS = 0.5
WORDS = "Spiders spin threads that are finer than hair and stronger than steel of the same weight. "

Writer = asyncio.StreamWriter


def bomb(size: int = BOMB_BYTES) -> bytes:
    """A small gzip file of `size` spaces."""
    packer = zlib.compressobj(9, wbits=31)
    piece = b" " * 1_000_000
    return b"".join(packer.compress(piece) for _ in range(size // len(piece))) + packer.flush()


def page(title: str, links: list[str]) -> bytes:
    """A page of some 20 KB: a menu and paragraphs."""
    menu = "".join(f'<li><a href="{link}">{link.strip("/") or "Home"}</a></li>\n' for link in links)
    text = "".join(f"<h2>Part {part}</h2><p>{WORDS * 6}</p>\n" for part in range(30))
    return (
        f"<!doctype html><html lang=en><title>{title}</title><ul>\n{menu}</ul><h1>{title}</h1>{text}".encode()
    )


def reply(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/html; charset=utf-8", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def redirect(target: str) -> bytes:
    return reply(b"", "302 Found", f"Location: {target}")


class Host:
    """Answers for one address. `answer` writes a whole reply, or never returns."""

    #: Held here, since a task that waits for something that nobody else holds is cleared away.
    never = asyncio.Event()

    def __init__(self, kind: str, pages: int, packed: bytes) -> None:
        self.kind = kind
        self.pages = pages
        self.packed = packed

    async def answer(self, path: str, writer: Writer) -> None:
        if self.kind == "silent":
            await self.never.wait()
        if self.kind == ("robots" if path == "/robots.txt" else "drip") and path != "/":
            await drip(writer)
        writer.write(self.reply(path))
        await writer.drain()

    def reply(self, path: str) -> bytes:
        if path == "/robots.txt":
            return reply(b"", "404 Not Found")
        match self.kind:
            case "bomb" if path != "/":
                return reply(self.packed, "200 OK", "Content-Encoding: gzip")
            case "loop" if path != "/":
                return redirect(loop_target(path))
            case "calendar":
                return reply(calendar(path))
            case kind:
                links = ["/", *(f"/{kind}/{number}" for number in range(1, self.pages))]
                return reply(page(f"{kind} {path}", links))


async def drip(writer: Writer) -> None:
    """Promise a megabyte and send a byte now and then, until the client goes away."""
    writer.write(reply(b"", "200 OK").replace(b"Content-Length: 0", b"Content-Length: 1000000"))
    while not writer.transport.is_closing():
        writer.write(b"#")
        await writer.drain()
        await asyncio.sleep(DRIP_SECONDS)
    raise ConnectionResetError


def calendar(path: str) -> bytes:
    """A day that links the days around it, the month and the year after; any other path leads to the first."""
    parts = [int(part) for part in path.split("/") if part.isdecimal()]
    year, month, day = parts if len(parts) == 3 else (2024, 1, 1)
    days = [(year, month, day % 28 + 1), (year, month % 12 + 1, 1), (year + 1, 1, 1)]
    return page(f"{year}-{month}-{day}", [f"/calendar/{y}/{m}/{d}" for y, m, d in days])


def loop_target(path: str) -> str:
    """Even places go round between two URLs; odd ones lead to a new URL every time."""
    place, _, step = path.removeprefix("/loop/").partition("/")
    if int(place) % 2:
        return f"/loop/{place}/{int(step or 0) + 1}"
    return f"/loop/{place}" if step else f"/loop/{place}/back"


class Hosts:
    """All hosts, by address."""

    def __init__(self, good: int, pages: int, each: int, kinds: list[str]) -> None:
        packed = bomb() if each and "bomb" in kinds else b""
        self.good = {f"127.0.1.{number + 1}": Host("good", pages, packed) for number in range(good)}
        self.hostile = {
            f"127.0.{2 + row}.{number + 1}": Host(kind, pages, packed)
            for number, (row, kind) in itertools.product(range(each), enumerate(kinds))
        }

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        address = writer.get_extra_info("sockname")[0]
        host = self.good.get(address) or self.hostile[address]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await host.answer(head.split(b" ", 2)[1].decode(), writer)
        writer.transport.abort()

    async def listen(self) -> int:
        """Listen on every address, on the port that the first one was given."""
        port = 0
        for address in (*self.good, *self.hostile):
            server = await asyncio.start_server(self.serve, address, port, backlog=256)
            port = server.sockets[0].getsockname()[1]
        return port


async def run(given: argparse.Namespace) -> None:
    hosts = Hosts(given.good, given.pages, given.each, given.kinds.split(","))
    port = await hosts.listen()
    seeds = {
        "good": [f"http://{address}:{port}/" for address in hosts.good],
        "hostile": [f"http://{address}:{port}/" for address in hosts.hostile],
    }
    print(json.dumps(seeds), flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), given.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", type=int, default=8, help="good hosts")
    parser.add_argument("--pages", type=int, default=60, help="pages of each host; a calendar has no end")
    parser.add_argument("--each", type=int, default=1, help="hostile hosts of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of hostile hosts")
    parser.add_argument("--seconds", type=float, default=1800.0, help="longest life")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
