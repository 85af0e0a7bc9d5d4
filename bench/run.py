"""Crawl one corpus with every contestant, in interleaved rounds, and say what a page costs each of them.

Exits with 1 where a contestant did not find the same pages and links as the first one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import compare, corpus, measure, plot, report
from bench.contestants import OLD_URLS, Contestant, contestants
from bench.report import Spread
from bench.server import CRAWLER_CORE, SERVER_CORE, pinned, serve

YARDSTICKS = ("mini-fast", "mini", "scrapy")


@dataclass(frozen=True, slots=True)
class Result:
    """A contestant's rounds over `urls` URLs."""

    name: str
    urls: int
    rounds: list[measure.Cost]

    def pages_per_second(self) -> Spread:
        return Spread.of([self.urls / cost.wall for cost in self.rounds])

    def cpu_per_1000(self) -> Spread:
        return Spread.of([cost.cpu / self.urls * 1000 for cost in self.rounds])

    def peak_mb(self) -> Spread:
        return Spread.of([cost.peak_mb for cost in self.rounds])

    def ratio(self, other: Result) -> Spread:
        """CPU against another contestant in the same round, which cancels what the machine did meanwhile."""
        return Spread.of([mine.cpu / its.cpu for mine, its in zip(self.rounds, other.rounds, strict=True)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="contestants to run, as a,b; the first is the reference")
    parser.add_argument("--pages", type=int, help="at most this many pages in the corpus")
    parser.add_argument(
        "--generated", action="store_true", help="generated pages, even where packages are installed"
    )
    parser.add_argument("--gzip", action="store_true", help="let the server compress")
    parser.add_argument("--unpinned", action="store_true", help="let contestants use every core")
    parser.add_argument("--quick", action="store_true", help="one round over at most 600 pages")
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.pages = 1, min(given.pages or 600, 600)
    return given


def play(field: Sequence[Contestant], url: str, rounds: int, prefix: list[str]) -> list[list[measure.Cost]]:
    """Run all contestants `rounds` times, one after the other, so that a busy moment hits all alike."""
    costs: list[list[measure.Cost]] = [[] for _ in field]
    for number in range(rounds):
        for contestant, mine in zip(field, costs, strict=True):
            state = corpus.OUT / "state"
            shutil.rmtree(state, ignore_errors=True)
            state.mkdir(parents=True)
            out = output(contestant)
            out.unlink(missing_ok=True)
            cost = measure.run(contestant.argv(url, out, state), out.with_suffix(".log"), prefix=prefix)
            print(
                f"round {number + 1} {contestant.name}: {cost.wall:.1f} s, {cost.cpu:.1f} CPU-s", flush=True
            )
            mine.append(cost)
    return costs


def output(contestant: Contestant) -> Path:
    return corpus.OUT / f"{contestant.name}.jsonl"


def agree(field: Sequence[Contestant], reference: compare.Crawl) -> bool:
    """Print how each contestant's pages differ from the reference's; False where one differs too much."""
    fine = True
    for contestant in field[1:]:
        found = compare.difference(reference, compare.read(output(contestant)))
        same = found.within(contestant.tolerance, len(reference.links))
        fine = fine and same
        print(f"{contestant.name} and {field[0].name} {'agree' if same else 'DISAGREE'}: {found}")
    return fine


def summary(results: Sequence[Result]) -> str:
    yardsticks = [result for name in YARDSTICKS for result in results if result.name == name]
    head = [
        "crawler",
        "pages/s",
        "CPU-s per 1000 pages",
        "peak MB",
        *(f"CPU ÷ {each.name}" for each in yardsticks),
    ]
    rows = [
        [
            each.name,
            each.pages_per_second().show(0),
            each.cpu_per_1000().show(3),
            each.peak_mb().show(0),
            *(each.ratio(yardstick).show(2) for yardstick in yardsticks),
        ]
        for each in sorted(results, key=lambda result: result.cpu_per_1000().median)
    ]
    return report.table(head, rows)


def note(pages: corpus.Corpus, reference: compare.Crawl, given: argparse.Namespace) -> str:
    links = sum(map(len, reference.links.values())) / max(1, len(reference.links))
    where = "unpinned" if given.unpinned else f"on core {CRAWLER_CORE}"
    return f"""
Site: {pages.source.replace("+", ", ")}; {pages.pages:,} HTML files of {pages.mean_bytes / 1000:.0f} KB.
A crawl fetches {reference.urls:,} URLs, of which {reference.urls - len(reference.links):,} do not exist; a page has {links:.0f}
different links, fragments dropped. nginx has one worker on core {SERVER_CORE}, gzip {"on" if given.gzip else "off"}; the
crawler runs {where}. Median of {given.rounds} interleaved rounds (lowest to highest). {report.machine()}.

Each contestant starts from one URL, fetches every URL of that host once, 64 at a time and without delay, and writes
url, status, title and links of each page as JSON lines. "Pages" are URLs fetched, CPU is user + system of all its
processes, memory the largest sum of their resident sizes. The run fails unless Gossamer finds
the same pages with status 200 as mini-fast, and the same links on each; links are compared in their WHATWG spelling and
without credentials, which Gossamer strips. mini, Scrapy and goloop resolve some odd hrefs in other ways and may differ
on {OLD_URLS:.1%} of the pages: that allowance was set after they were seen to differ on 4 to 8 of 7,388. mini, mini-fast and goloop are bare loops that keep nothing and ask no robots.txt; Gossamer runs
with its ledger, its record log, robots.txt and every guard on.
"""


def main() -> None:
    given = arguments()
    pages = corpus.build(given.pages, generated=given.generated)
    field = contestants(corpus.OUT / "build", [name for name in given.only.split(",") if name])
    with suppress(OSError):  # a machine with a single core
        os.sched_setaffinity(0, {SERVER_CORE})
    with serve(pages.root, gzip=given.gzip) as url:
        costs = play(field, url, given.rounds, [] if given.unpinned else pinned(CRAWLER_CORE))
    reference = compare.read(output(field[0]))
    results = [Result(each.name, reference.urls, mine) for each, mine in zip(field, costs, strict=True)]
    same = agree(field, reference)
    text = summary(results)
    print(text)
    (corpus.OUT / "bench.json").write_text(json.dumps([asdict(each) for each in results], indent=1))
    if given.write_docs and same:
        report.write_section(
            "peers",
            f"## Against peers\n\n{text}\n\n![CPU per page](bench.svg)\n{note(pages, reference, given)}",
        )
        plot.bars({each.name: each.cpu_per_1000() for each in results}, report.DOCS / "bench.svg")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
