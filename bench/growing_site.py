"""A site of a million small pages, made on the fly: each page links to 20 pages nothing else links to, and to 60 others.

Run as `python -m bench.growing_site HOST PORT PAGES`. `/served` tells how many pages were served so far, which is
how many URLs a crawler that fetches each page once can know: 1 + 20 for each.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import cast

import uvloop

FAN_OUT = 20
NAVIGATION = 60
START = "/s0/p0.html"
PATH = re.compile(rb"GET /s\d+/p(\d+)\.html ")
FILLER = "The ledger grows, and what a page costs should not. " * 12


def path_of(number: int) -> str:
    return f"/s{number // 1000}/p{number}.html"


MENU = "".join(
    f'<li><a href="{path_of(number)}">Part {number}</a></li>\n' for number in range(1, NAVIGATION + 1)
)


def page(number: int, pages: int) -> bytes:
    first = number * FAN_OUT + 1
    fresh = "".join(
        f'<p><a href="{path_of(child)}">Page {child}</a></p>\n'
        for child in range(first, min(first + FAN_OUT, pages))
    )
    text = f"<!doctype html><title>Page {number}</title><ul>\n{MENU}</ul>\n{fresh}<p>{FILLER}</p>"
    return text.encode()


class Site(asyncio.Protocol):
    """Answers one connection. Requests have no body; the count of pages served is shared by all connections."""

    served = 0

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        *requests, self.pending = (self.pending + data).split(b"\r\n\r\n")
        for request in requests:
            self.transport.write(self.answer(request))

    def answer(self, request: bytes) -> bytes:
        if found := PATH.match(request):
            Site.served += 1
            return response(b"200 OK", page(int(found[1]), self.pages))
        if request.startswith(b"GET /served "):
            return response(b"200 OK", str(Site.served).encode())
        return response(b"404 Not Found", b"")


def response(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


async def serve(host: str, port: int, pages: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Site(pages), host, port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
