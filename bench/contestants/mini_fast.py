"""mini-fast: mini with hrefs deduplicated before they are joined, and joined by ada. The yardstick."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import BinaryIO

import aiohttp
import msgspec
import uvloop
from ada_url import join_url
from selectolax.lexbor import LexborHTMLParser
from yarl import URL

RELS = ("next", "canonical", "alternate")
LINKS = [
    "a[href]",
    "area[href]",
    "iframe[src]",
    "frame[src]",
    *(f'link[rel~="{rel}" i][href]' for rel in RELS),
]
WANTED = ",".join(["title", "base[href]", *LINKS])
encode = msgspec.json.Encoder().encode


def extract(url: str, body: bytes) -> tuple[str, list[str]]:
    title = ""
    hrefs: dict[str, None] = {}
    base = None
    for node in LexborHTMLParser(body).css(WANTED):
        tag = node.tag
        if tag == "title":
            title = title or node.text(strip=True)
        elif tag == "base":
            base = base or join_url(url, node.attributes["href"] or "")
        else:
            attributes = node.attributes
            hrefs[(attributes.get("href") or attributes.get("src") or "").partition("#")[0]] = None
    links: dict[str, None] = {}
    for href in hrefs:
        try:
            link = join_url(base or url, href)
        except ValueError:
            continue
        if link.startswith(("http://", "https://")):
            links[link] = None
    return title, list(links)


async def crawl(start: str, out: BinaryIO, concurrent: int = 64) -> None:
    site = join_url(start, "/")
    seen = {start}
    queue: asyncio.Queue[str] = asyncio.Queue()
    queue.put_nowait(start)

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            url = await queue.get()
            async with session.get(URL(url, encoded=True), allow_redirects=False) as response:
                body = await response.read()
            title, links = extract(url, body) if response.content_type == "text/html" else ("", [])
            out.write(encode({"url": url, "status": response.status, "title": title, "links": links}) + b"\n")
            if "Location" in response.headers:
                links = [join_url(url, response.headers["Location"])]
            for link in links:
                if link not in seen and link.startswith(site):
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
    with Path(sys.argv[2]).open("wb") as file:
        uvloop.run(crawl(sys.argv[1], file))
