"""Does a page cost more when the ledger knows a million URLs? Crawls a site that grows 20 times faster than it is read."""

from __future__ import annotations

import argparse
import http.client
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench import corpus, growing_site, measure, plot, report
from bench.contestants import gossamer_argv
from bench.server import CRAWLER_CORE, HOST, SERVER_CORE, free_port, pinned, running

WINDOWS = ((5_000, 20_000), (80_000, 120_000), (250_000, 350_000), (900_000, 1_000_000))


@dataclass(frozen=True, slots=True)
class Point:
    """The crawl at one moment: URLs in the ledger and what the crawler had used by then."""

    known: float
    cpu: float
    rss_mb: float


@contextmanager
def site(pages: int, host: str = HOST) -> Iterator[int]:
    """Serve the growing site and yield its port."""
    port = free_port()
    argv = [*pinned(SERVER_CORE), sys.executable, "-m", "bench.growing_site", host, str(port), str(pages)]
    with running(argv, port):
        yield port


def crawl(port: int, urls: int, out: Path, state: Path) -> list[Point]:
    """Crawl until `urls` URLs are known, and return what was seen on the way."""
    pages = urls // growing_site.FAN_OUT
    argv = [*gossamer_argv(f"http://{HOST}:{port}{growing_site.START}", out, state), "-n", str(pages)]
    statistics = http.client.HTTPConnection(HOST, port)
    begun = time.monotonic()
    points = []
    with measure.started([*pinned(CRAWLER_CORE), *argv]) as process:
        for seen in measure.follow(process.pid, begun, 0.1):
            statistics.request("GET", "/served")
            served = int(statistics.getresponse().read())
            points.append(Point(min(urls, 1 + served * growing_site.FAN_OUT), seen.cpu, seen.rss_mb))
    return points


def cpu_at(points: list[Point], known: float) -> float:
    """CPU seconds used when the ledger held `known` URLs, between the two samples around it."""
    for before, after in pairwise(points):
        if before.known <= known <= after.known and before.known < after.known:
            share = (known - before.known) / (after.known - before.known)
            return before.cpu + share * (after.cpu - before.cpu)
    return points[-1].cpu


def rss_at(points: list[Point], known: float) -> float:
    return next((point.rss_mb for point in points if point.known >= known), points[-1].rss_mb)


def windows(urls: int) -> list[tuple[int, int]]:
    """The stretches of the crawl to compare, the last one ending where the crawl ends."""
    inside = [window for window in WINDOWS if window[1] < urls]
    return [*inside, (urls * 9 // 10, urls * 99 // 100)]


def cpu_ms(points: list[Point], low: int, high: int) -> float:
    pages = (high - low) / growing_site.FAN_OUT
    return 1000 * (cpu_at(points, high) - cpu_at(points, low)) / pages


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=1_000_000, help="URLs in the ledger at the end")
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    given = parser.parse_args()
    state, out = corpus.OUT / "growth-state", corpus.OUT / "growth.jsonl"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    # Far more pages than are fetched: whatever the order, every page fetched brings its 20 new ones.
    with site(given.urls * 10_000) as port:
        points = crawl(port, given.urls, out, state)
    size = folder_bytes(state)
    shutil.rmtree(state)
    out.unlink()

    chosen = windows(given.urls)
    costs = [cpu_ms(points, low, high) for low, high in chosen]
    rows = [
        [f"{low:,} to {high:,}", f"{cost:.3f}", f"{cost / costs[0]:.2f}", f"{rss_at(points, high):.0f}"]
        for (low, high), cost in zip(chosen, costs, strict=True)
    ]
    text = report.table(["URLs in the ledger", "CPU ms per page", "ratio to the first", "resident MB"], rows)
    last = f"{given.urls // growing_site.FAN_OUT:,} pages fetched; the job folder held {size / 1e6:.0f} MB at the end."
    print(f"{text}\n{last}")
    if given.write_docs:
        middles = [(low + high) // 2 for low, high in chosen]
        plot.growth(
            middles, costs, [(int(point.known), point.rss_mb) for point in points], report.DOCS / "growth.svg"
        )
        report.write_section("growth", f"## As the ledger grows\n\n{text}\n\n{last}\n\n![Growth](growth.svg)")


if __name__ == "__main__":
    main()
