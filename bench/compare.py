"""Did all contestants do the same work? Compares the pages they wrote and the links they found on each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from ada_url import URL


class Row(msgspec.Struct):
    """The part of a record that every contestant writes."""

    url: str
    status: int = 200
    links: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Crawl:
    """What one contestant found. `links` holds the pages that exist, each with its links in one spelling."""

    urls: int
    links: dict[str, frozenset[str]]


def read(path: Path) -> Crawl:
    """Read a contestant's JSONL file."""
    links: dict[str, frozenset[str]] = {}
    urls = 0
    with path.open("rb") as file:
        for line in file:
            row = msgspec.json.decode(line, type=Row)
            urls += 1
            if row.status == 200:
                links[spelled(row.url)] = frozenset(spelled(link) for link in row.links or [])
    return Crawl(urls, links)


def spelled(link: Any) -> str:
    """Return a URL in its WHATWG spelling without credentials, so that only different pages count as different."""
    text = link if isinstance(link, str) else link["url"]
    try:
        url = URL(text)
        url.username = url.password = ""
        return str(url.href)
    except ValueError:
        return str(text)


@dataclass(frozen=True, slots=True)
class Difference:
    """How a crawl differs from the reference."""

    missing: list[str]
    extra: list[str]
    links: dict[str, tuple[frozenset[str], frozenset[str]]]

    def within(self, tolerance: float, pages: int) -> bool:
        """Whether at most this share of the reference's pages is missing, extra or has other links."""
        return len(self.missing) + len(self.extra) + len(self.links) <= tolerance * pages

    def __str__(self) -> str:
        lines = [
            f"{len(self.missing)} pages missing, {len(self.extra)} extra, {len(self.links)} with other links"
        ]
        lines += [f"  missing {url}" for url in self.missing[:5]]
        lines += [f"  extra {url}" for url in self.extra[:5]]
        for url, (lost, added) in list(self.links.items())[:5]:
            lines.append(f"  {url}: lacks {sorted(lost)[:3]}, has besides {sorted(added)[:3]}")
        return "\n".join(lines)


def difference(reference: Crawl, other: Crawl) -> Difference:
    wanted, got = reference.links, other.links
    return Difference(
        missing=sorted(wanted.keys() - got.keys()),
        extra=sorted(got.keys() - wanted.keys()),
        links={
            url: (wanted[url] - got[url], got[url] - wanted[url])
            for url in wanted.keys() & got.keys()
            if wanted[url] != got[url]
        },
    )
