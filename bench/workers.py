"""What do more worker processes bring, and how much of a page's work stays with the parent?"""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import corpus, measure, report
from bench.compare import read
from bench.contestants import gossamer_argv
from bench.server import serve


def server_cpu() -> float:
    """CPU seconds nginx has used so far: it takes its share of the same cores."""
    servers = [process for process in psutil.Process().children(recursive=True) if process.name() == "nginx"]
    return float(sum(times.user + times.system for times in (server.cpu_times() for server in servers)))


@dataclass(frozen=True, slots=True)
class Run:
    """A crawl with a number of workers."""

    workers: int
    pages: int
    cost: measure.Cost
    server_cpu: float

    @property
    def rate(self) -> float:
        return self.pages / self.cost.wall

    @property
    def children_cpu(self) -> float:
        return max(0.0, self.cost.cpu - self.cost.parent_cpu) if self.workers > 1 else 0.0

    def possible(self, one: Run) -> float:
        """Pages/s that the cores nginx leaves over would give at the CPU one worker needs for a page."""
        seconds = one.cost.cpu / one.pages + self.server_cpu / self.pages
        return (os.cpu_count() or 1) / seconds

    def row(self, one: Run) -> list[str]:
        cpu = [self.cost.cpu, self.cost.cpu - self.children_cpu, self.children_cpu, self.server_cpu]
        return [
            str(self.workers),
            f"{self.rate:,.0f}",
            *(f"{seconds / self.pages * 1000:.3f}" for seconds in cpu),
            f"{self.rate / self.possible(one):.0%}",
            f"{self.cost.peak_mb:.0f}",
        ]


def crawl(url: str, workers: int) -> Run:
    """Crawl the corpus with this many workers."""
    state, out = corpus.OUT / "state", corpus.OUT / f"workers-{workers}.jsonl"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    out.unlink(missing_ok=True)
    before = server_cpu()
    cost = measure.run(gossamer_argv(url, out, state, workers), Path(f"{out}.log"))
    return Run(workers, read(out).urls, cost, server_cpu() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--pages", type=int, help="at most this many pages in the corpus")
    parser.add_argument(
        "--generated", action="store_true", help="generated pages, even where packages are installed"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    given = parser.parse_args()
    runs: list[Run] = []
    with serve(corpus.build(given.pages, generated=given.generated).root) as url:
        for workers in map(int, given.workers.split(",")):
            runs.append(crawl(url, workers))
            print(workers, f"{runs[-1].rate:,.0f} pages/s", flush=True)
    head = [
        "workers",
        "pages/s",
        "CPU ms per page",
        "of it the parent",
        "of it the children",
        "nginx beside it",
        "of what is possible",
        "peak MB",
    ]
    rows = [run.row(runs[0]) for run in runs]
    text = report.table(head, rows)
    print(text)
    if given.write_docs:
        about = (
            "One host, no delay, nginx on the same machine, no core reserved. *Of what is possible*: pages/s against"
            " what all cores, less what nginx takes, would give at one worker's CPU per page. The parent's CPU per"
            f" page is the ceiling: it feeds as many children as its inverse allows. {report.machine()}."
        )
        report.write_section("workers", f"## Several worker processes\n\n{text}\n\n{about}")


if __name__ == "__main__":
    main()
