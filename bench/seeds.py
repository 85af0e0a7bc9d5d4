"""How much memory and time does a long list of URLs take? Reads millions of URLs with `gossamer scrape -i`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import corpus, growing_site, measure, report
from bench.growth import site


def address(number: int) -> str:
    """A host of the loopback network; the site listens on all of it."""
    return f"127.{1 + number // 65_536}.{number // 256 % 256}.{number % 256}"


def write_list(path: Path, urls: int, hosts: int, port: int) -> None:
    """Write `urls` different URLs, spread over `hosts` hosts; the first is a page that exists."""
    with path.open("w") as file:
        file.write(f"http://{address(0)}:{port}{growing_site.START}\n")
        file.writelines(f"http://{address(n % hosts)}:{port}/item/{n}?page=1\n" for n in range(1, urls))


def is_seeded(ledger: Path) -> bool:
    """Whether every seed is in the ledger."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        return bool(db.execute("SELECT 1 FROM meta WHERE key = 'seeding' AND value = 'closed'").fetchone())
    return False


def scrape_argv(seeds: Path, out: Path, state: Path) -> list[str]:
    """A scrape that adds every URL and, with this delay, fetches hardly more than one page a host."""
    program = str(Path(sys.executable).with_name("gossamer"))
    where = ["-o", str(out), "--job", "seeds", "--jobs-dir", str(state)]
    return [
        program,
        "scrape",
        "-i",
        str(seeds),
        *where,
        "--delay",
        "3600",
        "--no-robots",
        "--allow-private",
        "-q",
    ]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a scrape read its list: how long it took, its CPU time, and its memory."""

    seconds: float
    cpu: float
    peak_mb: float


def scrape(seeds: Path, out: Path, state: Path) -> Reading:
    """Scrape until the list is in the ledger, then interrupt."""
    peak = 0.0
    begun = time.monotonic()
    with measure.started(scrape_argv(seeds, out, state)) as process:
        for seen in measure.follow(process.pid, begun, 0.2):
            peak = max(peak, seen.rss_mb)
            if is_seeded(state / "seeds" / "ledger.sqlite"):
                process.send_signal(signal.SIGINT)
                return Reading(seen.at, seen.cpu, peak)
    raise SystemExit("the scrape ended before its list was read")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=10_000_000)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    given = parser.parse_args()
    state, seeds = corpus.OUT / "seeds-state", (corpus.OUT / "seeds.txt").resolve()
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    (corpus.OUT / "seeds.jsonl").unlink(missing_ok=True)
    with site(1000, "0.0.0.0") as port:
        write_list(seeds, given.urls, given.hosts, port)
        found = scrape(seeds, corpus.OUT / "seeds.jsonl", state)
    shutil.rmtree(state)
    seeds.unlink()
    row = [
        f"{given.urls:,}",
        f"{given.hosts:,}",
        f"{given.urls / found.seconds:,.0f}",
        f"{found.cpu / given.urls * 1e6:.0f}",
        f"{found.peak_mb:.0f}",
    ]
    text = report.table(["URLs", "hosts", "URLs/s", "CPU µs a URL", "peak MB"], [row])
    print(text)
    if given.write_docs:
        report.write_section("seeds", f"## A long list of seeds\n\n{text}")


if __name__ == "__main__":
    main()
