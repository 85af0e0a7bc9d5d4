"""What do more worker processes bring, and how much of a page's work stays with the parent?"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from bench import corpus, measure, report
from bench.compare import read
from bench.contestants import gossamer_argv
from bench.server import serve


def crawl(url: str, workers: int) -> tuple[int, measure.Cost]:
    """Crawl the corpus with this many workers; returns the number of records and the cost."""
    state, out = corpus.OUT / "state", corpus.OUT / f"workers-{workers}.jsonl"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    out.unlink(missing_ok=True)
    cost = measure.run(gossamer_argv(url, out, state, workers), Path(f"{out}.log"))
    return read(out).urls, cost


def row(workers: int, pages: int, cost: measure.Cost) -> list[str]:
    children = max(0.0, cost.cpu - cost.parent_cpu) if workers > 1 else 0.0
    parent = cost.cpu - children
    figures = [cost.cpu / pages * 1000, parent / pages * 1000, children / pages * 1000]
    return [
        str(workers),
        f"{pages / cost.wall:,.0f}",
        *(f"{figure:.3f}" for figure in figures),
        f"{cost.peak_mb:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--pages", type=int, help="at most this many pages in the corpus")
    parser.add_argument(
        "--generated", action="store_true", help="generated pages, even where packages are installed"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    given = parser.parse_args()
    rows = []
    with serve(corpus.build(given.pages, generated=given.generated).root) as url:
        for workers in map(int, given.workers.split(",")):
            rows.append(row(workers, *crawl(url, workers)))
            print(*rows[-1], flush=True)
    head = ["workers", "pages/s", "CPU ms per page", "of it the parent", "of it the children", "peak MB"]
    text = report.table(head, rows)
    print(text)
    if given.write_docs:
        about = f"One host, no delay, nginx on the same machine, no core reserved. {report.machine()}."
        report.write_section("workers", f"## Several worker processes\n\n{text}\n\n{about}")


if __name__ == "__main__":
    main()
