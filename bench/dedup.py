"""How often is `--dedup bloom` wrong, and what does it cost? Measures the filter alone, and ledgers with and without."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gossamer.frontier.sqlite_bloom import BloomPlan
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import Batch, Fetch, Found, Settled, State, Visit
from gossamer.model.request import Known, Request
from gossamer.model.url import fingerprint
from gossamer.policy.bloom import BloomSlice, find, next_slice

#: As many as a commit of a hundred pages may bring.
BATCH = 2000
HOSTS = 1000
FETCHED = Settled(State.FETCHED, "ok", status=200)


def url(number: int) -> str:
    """Return one of as many distinct URLs as there are numbers."""
    return f"https://shop{number % HOSTS}.example/catalogue/section-{number // 97 % 50}/item-{number}?page={number % 7}"


def fingerprints(start: int, end: int) -> Iterator[list[int]]:
    """Yield the fingerprints of distinct URLs in batches."""
    for first in range(start, end, BATCH):
        yield [fingerprint(url(number)) for number in range(first, min(first + BATCH, end))]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a filter did with so many distinct URLs, and then with fresh ones that were not added."""

    slices: int
    bytes_per_url: float
    lost: int
    add_seconds: float
    wrong: int
    find_seconds: float


def measure_filter(urls: int, fresh: int, error_rate: float, first: int) -> Measured:
    """Accept distinct URLs as a ledger does, asking before adding; whatever is known already is a mistake."""
    slices: list[BloomSlice] = []
    lost, spent = 0, 0.0
    for batch in fingerprints(0, urls):
        begun = time.process_time()
        known = find(slices, batch)
        new = [fp for fp in batch if fp not in known]
        while new:
            if not slices or not slices[-1].room:
                slices.append(next_slice(slices, error_rate, first))
            room = slices[-1].room
            slices[-1].add(new[:room])
            new = new[room:]
        spent += time.process_time() - begun
        lost += len(known)
    wrong, asked = 0, 0.0
    for batch in fingerprints(urls, urls + fresh):
        begun = time.process_time()
        wrong += len(find(slices, batch))
        asked += time.process_time() - begun
    size = sum(len(part.bits) for part in slices)
    return Measured(len(slices), size / urls, lost, spent / urls, wrong, asked / fresh)


def show_filter(urls: int, fresh: int, error_rate: float, first: int) -> None:
    """Measure a filter and print what came of it."""
    m = measure_filter(urls, fresh, error_rate, first)
    print(f"filter for {error_rate:g}, first slice {first:,} URLs, {urls:,} URLs added:")
    print(f"  {m.slices} slices, {m.bytes_per_url:.2f} bytes ({m.bytes_per_url * 8:.1f} bits) a URL")
    print(f"  while adding  {m.lost:,} of {urls:,} new ones taken for known: {1 - m.lost / urls:.5%} right")
    print(
        f"  afterwards    {m.wrong:,} of {fresh:,} fresh ones taken for known: {1 - m.wrong / fresh:.5%} right"
    )
    print(
        f"  {m.add_seconds * 1e6:.2f} µs of CPU to ask for and add a URL, {m.find_seconds * 1e6:.2f} µs to ask for one"
    )


def visit(known: Known) -> Visit:
    """Return a page that was fetched, without a record: those cost the same in every ledger."""
    request = known.request
    return Visit(known, FETCHED, fetches=(Fetch(request.url, request.host, 1.0, 1.0, 0.1, 200, 1000),))


def found(number: int) -> Found:
    """Discover a URL."""
    address = url(number)
    return Found(Request(address, fingerprint(address), f"shop{number % HOSTS}.example", 1))


async def fill_ledger(path: Path, urls: int, plan: BloomPlan | None) -> tuple[float, int]:
    """Find and fetch so many URLs; returns the CPU seconds it took and the size of the closed ledger."""
    ledger = SqliteLedger(path, time.time, bloom=plan)
    begun = time.process_time()
    for first in range(0, urls, BATCH):
        added = await ledger.add([found(number) for number in range(first, min(first + BATCH, urls))])
        await ledger.commit(Batch(f"bench-{first}", tuple(map(visit, added.live)), at=1.0))
    seconds = time.process_time() - begun
    await ledger.close()
    return seconds, path.stat().st_size


def show_ledgers(urls: int, error_rate: float) -> None:
    """Fill a ledger of each kind and print what it cost."""
    for name, plan in (("exact", None), ("bloom", BloomPlan(error_rate, 1_000_000))):
        with tempfile.TemporaryDirectory() as folder:
            seconds, size = asyncio.run(fill_ledger(Path(folder) / "ledger.sqlite", urls, plan))
        print(
            f"{name} ledger, {urls:,} URLs found and fetched: {size / urls:.0f} bytes and {seconds / urls * 1e6:.1f} µs of CPU a URL"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=10_000_000)
    parser.add_argument("--fresh", type=int, default=1_000_000)
    parser.add_argument("--error-rate", type=float, default=0.0001)
    parser.add_argument("--ledger-urls", type=int, default=300_000)
    options = parser.parse_args()
    show_filter(options.urls, options.fresh, options.error_rate, 1_000_000)
    show_filter(options.urls, options.fresh, options.error_rate, options.urls)
    show_ledgers(options.ledger_urls, options.error_rate)


if __name__ == "__main__":
    main()
