"""Scrapy as its tutorial has it: CSS selectors, `response.follow_all`, a JSON lines feed, on asyncio and uvloop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urldefrag

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, Response

HREFS = ["a", "area", *(f"link[rel~={rel}]" for rel in ("next", "canonical", "alternate"))]
LINKS = ", ".join([*(f"{tag}::attr(href)" for tag in HREFS), "iframe::attr(src)", "frame::attr(src)"])


class Spider(scrapy.Spider):
    name = "bench"
    custom_settings = {  # noqa: RUF012 - this is how Scrapy documents it
        "CONCURRENT_REQUESTS": 64,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
        "TELNETCONSOLE_ENABLED": False,
        "DEPTH_LIMIT": 0,
        # Pages that do not exist are part of the crawl: they are recorded like the others.
        "HTTPERROR_ALLOW_ALL": True,
    }

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        links: list[str] = []
        title = ""
        if isinstance(response, HtmlResponse):
            title = response.css("title::text").get(default="").strip()
            joined = (urldefrag(response.urljoin(href.strip())).url for href in response.css(LINKS).getall())
            links = list(dict.fromkeys(link for link in joined if link.startswith(("http://", "https://"))))
        yield {"url": response.url, "status": response.status, "title": title, "links": links}
        yield from response.follow_all(links, callback=self.parse)


if __name__ == "__main__":
    start, out = sys.argv[1:]
    process = CrawlerProcess({"LOG_LEVEL": "ERROR", "FEEDS": {out: {"format": "jsonlines"}}})
    process.crawl(Spider, start_urls=[start], allowed_domains=[start.split("/")[2].split(":")[0]])
    process.start()
