"""Do hostile hosts hold up the good ones? Crawls good hosts alone and beside hostile ones, in interleaved pairs.

Each crawl is interrupted once it has the last page of the good hosts. Exits with 1 where the median is above the bound.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import corpus, report
from bench.hostile_site import KINDS
from bench.report import Spread
from bench.server import CRAWLER_CORE, SERVER_CORE, pinned

BOUND = 1.1
RUN_SECONDS = 180.0
STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Seeds:
    """Where the crawls begin."""

    good: list[str]
    hostile: list[str]


@dataclass(frozen=True, slots=True)
class Pair:
    """Seconds from the crawl's first request to the last byte of the last good page: alone, and beside hostile hosts."""

    alone: float
    beside: float
    #: Requests that the hostile hosts had been sent by then.
    hostile_fetches: int

    @property
    def ratio(self) -> float:
        return self.beside / self.alone


@contextmanager
def site(given: argparse.Namespace) -> Iterator[Seeds]:
    """Serve all hosts from a process of their own."""
    options = ["--good", str(given.hosts), "--pages", str(given.pages), "--each", str(given.each)]
    options += ["--kinds", given.kinds]
    argv = [*pinned(SERVER_CORE), sys.executable, "-m", "bench.hostile_site", *options]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Seeds(**json.loads(process.stdout.readline()))
        finally:
            process.terminate()


def crawl_argv(seeds: list[str], out: Path, state: Path, given: argparse.Namespace) -> list[str]:
    """A crawl with the default settings, all but the delay and, if asked for, the concurrency."""
    program = str(Path(sys.executable).with_name("gossamer"))
    where = ["-o", str(out), "--job", "hostile", "--jobs-dir", str(state)]
    pace = ["--delay", str(given.delay), "-c", str(given.concurrency)]
    return [program, "crawl", *seeds, *where, *pace, "--allow-private", "-q"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What the fetch log of a crawl says so far."""

    #: Pages of good hosts.
    good: int = 0
    #: From the first request of all to the last byte of the last good page.
    seconds: float = 0.0
    #: Requests to hostile hosts.
    hostile: int = 0


def look(ledger: Path) -> Progress:
    """Read the fetch log of a crawl that may be under way."""
    figures = "sum(ours), max(CASE WHEN ours THEN started_at + elapsed END) - min(started_at), sum(grp NOT GLOB '127.0.1.*')"
    log = "SELECT *, grp GLOB '127.0.1.*' AND kind = 'page' AND status = 200 AS ours FROM fetches"
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        good, seconds, hostile = db.execute(f"SELECT {figures} FROM ({log})").fetchone()
        return Progress(good or 0, seconds or 0.0, hostile or 0)
    return Progress()


def crawl(seeds: list[str], given: argparse.Namespace) -> Progress:
    """Crawl until every good page is committed."""
    state, out = corpus.OUT / "hostile-state", corpus.OUT / "hostile-state" / "pages.jsonl"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    seen, wanted = Progress(), given.hosts * given.pages
    begun = time.time()
    process = subprocess.Popen([*pinned(CRAWLER_CORE), *crawl_argv(seeds, out, state, given)])
    try:
        while seen.good < wanted and time.time() < begun + RUN_SECONDS and process.poll() is None:
            time.sleep(0.25)
            seen = look(state / "hostile" / "ledger.sqlite")
        interrupt(process)
    finally:
        process.kill()
        process.wait()
    seen = look(state / "hostile" / "ledger.sqlite")
    if seen.good != wanted:
        raise SystemExit(f"{seen.good} of {wanted} good pages were fetched in {time.time() - begun:.0f} s")
    return seen


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a crawl: once to drain it, once more so that it does not wait for hosts that never answer."""
    for _ in range(2):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
    process.wait(STOP_SECONDS)


def play(seeds: Seeds, given: argparse.Namespace) -> list[Pair]:
    """Crawl alone and beside the hostile hosts, in turn, so that a busy moment of the machine hits both alike."""
    pairs = []
    for number in range(given.pairs):
        alone = crawl(seeds.good, given)
        # The hostile ones first: they get their slots before the others.
        beside = crawl([*seeds.hostile, *seeds.good], given)
        pair = Pair(alone.seconds, beside.seconds, beside.hostile)
        print(
            f"pair {number + 1}: {pair.alone:.2f} s, {pair.beside:.2f} s, ratio {pair.ratio:.3f}", flush=True
        )
        pairs.append(pair)
    return pairs


def about(given: argparse.Namespace) -> str:
    return f"""
Time from the first request to the last byte of the last page of {given.hosts} good hosts with {given.pages} pages
each, {given.delay:g} s apart: alone, and beside {given.each} of each kind of hostile host ({given.kinds.replace(",", ", ")}), which are
seeded first. *Drip* sends a byte every half second, *bomb* packs 100 MB into 100 KB, *loop* redirects in circles and
without end, *calendar* has a page for every day there will be, *silent* never answers, *robots* drips its robots.txt;
each has {given.pages} such pages or more. Settings are the defaults, but for the delay, {given.concurrency} requests at a time
and loopback allowed; a crawl is interrupted once the good hosts are done. Median of {given.pairs} interleaved pairs (lowest to
highest); the bound is {BOUND}. {report.machine()}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=8, help="good hosts")
    parser.add_argument("--pages", type=int, default=60, help="pages of each host")
    parser.add_argument("--each", type=int, default=1, help="hostile hosts of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of hostile hosts, as a,b")
    parser.add_argument("--delay", type=float, default=0.1)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    given = parser.parse_args()
    with site(given) as seeds:
        pairs = play(seeds, given)
    shutil.rmtree(corpus.OUT / "hostile-state")
    ratio = Spread.of([pair.ratio for pair in pairs])
    row = [
        Spread.of([pair.alone for pair in pairs]).show(2),
        Spread.of([pair.beside for pair in pairs]).show(2),
        ratio.show(3),
        Spread.of([pair.hostile_fetches for pair in pairs]).show(0),
    ]
    text = report.table(["alone, s", "beside hostile hosts, s", "ratio", "hostile requests"], [row])
    print(text)
    if given.write_docs:
        report.write_section("hostile", f"## Beside hostile hosts\n\n{text}\n{about(given)}")
    raise SystemExit(0 if ratio.median <= BOUND else 1)


if __name__ == "__main__":
    main()
