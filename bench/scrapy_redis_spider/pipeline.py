"""Pages into PostgreSQL, many in one transaction: an item pipeline as Scrapy's documentation writes them."""

from __future__ import annotations

from typing import Any, Self

import psycopg
from scrapy.crawler import Crawler

#: Items in one transaction, as many as Gossamer has in a commit.
BATCH_ITEMS = 100
TABLE = """
    CREATE TABLE public.items(
        url text, status integer, title text, links text[], at timestamptz NOT NULL DEFAULT clock_timestamp(),
        pid integer NOT NULL DEFAULT pg_backend_pid()
    )
"""
INSERT = "INSERT INTO public.items(url, status, title, links) VALUES (%s, %s, %s, %s)"


class PostgresPipeline:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[tuple[Any, ...]]
        self._waiting: list[tuple[str, int, str, list[str]]] = []

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings["POSTGRES_DSN"])

    def open_spider(self) -> None:
        self._connection = psycopg.connect(self._dsn)

    def close_spider(self) -> None:
        self._flush()
        self._connection.close()

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        self._waiting.append((item["url"], item["status"], item["title"], item["links"]))
        if len(self._waiting) >= BATCH_ITEMS:
            self._flush()
        return item

    def _flush(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(INSERT, self._waiting)
        self._connection.commit()
        self._waiting.clear()
