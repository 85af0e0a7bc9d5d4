"""How much memory and time does a long list of URLs take? Reads millions of URLs with `gossamer scrape -i`, fetches one."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench import corpus, growing_site, measure, report
from bench.growth import site
from bench.server import HOST


def address(number: int) -> str:
    """A host of the loopback network. Only HOST is served; the others refuse the connection."""
    return f"127.{1 + number // 65_536}.{number // 256 % 256}.{number % 256}"


def write_list(path: Path, urls: int, hosts: int, port: int) -> None:
    """Write `urls` different URLs, spread over `hosts` hosts; the first is a page that exists."""
    with path.open("w") as file:
        file.write(f"http://{HOST}:{port}{growing_site.START}\n")
        file.writelines(f"http://{address(n % hosts)}:{port}/item/{n}?page=1\n" for n in range(1, urls))


def position(pid: int, path: Path) -> int:
    """How far a process has read a file it has open; 0 where it has not opened it."""
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            if descriptor.readlink() == path:
                return int(Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text().split()[1])
    return 0


def scrape_argv(seeds: Path, out: Path, state: Path) -> list[str]:
    program = str(Path(sys.executable).with_name("gossamer"))
    where = ["-o", str(out), "--job", "seeds", "--jobs-dir", str(state)]
    return [program, "scrape", "-i", str(seeds), *where, "-n", "1", "--allow-private", "-q"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a scrape read its list: the share it had read at the end, when it stopped reading, and its memory."""

    share: float
    seconds: float
    peak_mb: float


def scrape(seeds: Path, out: Path, state: Path) -> Reading:
    """Scrape a list and watch how far its file has been read."""
    read, read_at, peak = 0, 0.0, 0.0
    begun = time.monotonic()
    with measure.started(scrape_argv(seeds, out, state)) as process:
        for seen in measure.follow(process.pid, begun, 0.1):
            peak = max(peak, seen.rss_mb)
            if (now := position(process.pid, seeds)) > read:
                read, read_at = now, seen.at
    return Reading(read / seeds.stat().st_size, max(read_at, 0.1), peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=10_000_000)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    given = parser.parse_args()
    state, seeds = corpus.OUT / "seeds-state", (corpus.OUT / "seeds.txt").resolve()
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    with site(1000) as port:
        write_list(seeds, given.urls, given.hosts, port)
        found = scrape(seeds, corpus.OUT / "seeds.jsonl", state)
    shutil.rmtree(state)
    seeds.unlink()
    rate = found.share * given.urls / found.seconds
    row = [
        f"{given.urls:,}",
        f"{given.hosts:,}",
        f"{found.share:.0%}",
        f"{rate:,.0f}",
        f"{found.peak_mb:.0f}",
    ]
    text = report.table(["URLs", "hosts", "of them read", "URLs/s", "peak MB"], [row])
    print(text)
    if given.write_docs:
        report.write_section("seeds", f"## A long list of seeds\n\n{text}")


if __name__ == "__main__":
    main()
