"""mini: the sixty lines most people would write. aiohttp, lexbor, urllib; nothing durable, no robots.txt."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TextIO
from urllib.parse import urldefrag, urljoin

import aiohttp
import uvloop
from selectolax.lexbor import LexborHTMLParser

RELS = ("next", "canonical", "alternate")
LINKS = ",".join(
    ["a[href]", "area[href]", "iframe[src]", "frame[src]", *(f'link[rel~="{rel}" i][href]' for rel in RELS)]
)


def extract(url: str, body: bytes) -> tuple[str, list[str]]:
    tree = LexborHTMLParser(body)
    title = tree.css_first("title")
    base = tree.css_first("base[href]")
    if base:
        url = urljoin(url, base.attributes["href"])
    links: dict[str, None] = {}
    for node in tree.css(LINKS):
        attributes = node.attributes
        try:
            link = urldefrag(
                urljoin(url, (attributes.get("href") or attributes.get("src") or "").strip())
            ).url
        except ValueError:
            continue
        if link.startswith(("http://", "https://")):
            links[link] = None
    return (title.text(strip=True) if title else ""), list(links)


async def crawl(start: str, out: TextIO, concurrent: int = 64) -> None:
    site = urljoin(start, "/")
    seen = {start}
    queue: asyncio.Queue[str] = asyncio.Queue()
    queue.put_nowait(start)

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            url = await queue.get()
            async with session.get(url, allow_redirects=False) as response:
                body = await response.read()
            title, links = extract(url, body) if response.content_type == "text/html" else ("", [])
            out.write(
                json.dumps({"url": url, "status": response.status, "title": title, "links": links}) + "\n"
            )
            for link in [*links, urljoin(url, response.headers.get("Location", url))]:
                if link.startswith(site) and link not in seen:
                    seen.add(link)
                    queue.put_nowait(link)
            queue.task_done()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrent)) as session:
        workers = [asyncio.create_task(work(session)) for _ in range(concurrent)]
        done = asyncio.create_task(queue.join())
        await asyncio.wait([done, *workers], return_when=asyncio.FIRST_COMPLETED)
        for task in (done, *workers):
            if not task.cancel():
                task.result()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("w", encoding="utf-8") as file:
        uvloop.run(crawl(sys.argv[1], file))
