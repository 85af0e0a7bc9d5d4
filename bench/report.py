"""Figures into words: medians and spreads, Markdown tables, and the parts of `docs/bench.md` between markers."""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "bench.md"


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int) -> str:
        middle, low, high = (f"{value:,.{digits}f}" for value in (self.median, self.low, self.high))
        return middle if low == high else f"{middle} ({low} to {high})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table, its columns aligned so that it also reads well on a terminal."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (head, *rows)
    ]
    lines.insert(1, "-|-".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in lines)


def machine() -> str:
    """Say what the figures were measured on, as far as it matters to read them."""
    return f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores"


FIRST = """# Benchmarks

What a page costs, measured against peers that do the same work. Every figure is written here by the program in
`bench/` that measures it. To measure yourself, on Linux with nginx and the dependency group `bench` installed:

```sh
python -m bench.run --quick         # one round over a small site; without --quick the table below
python -m bench.growth              # a ledger of a million URLs
python -m bench.seeds               # a list of ten million URLs
python -m bench.workers             # 1, 2, 4 and 8 worker processes
python -m bench.shared              # two workers on Redis and PostgreSQL, beside scrapy-redis
python -m bench.hostile             # good hosts beside hostile ones
```

`--write-docs` puts the result into this page.
"""


def write_section(name: str, text: str, path: Path = PAGE) -> None:
    """Replace the section `name` of a page; that of the benchmarks is made where it is missing."""
    page = path.read_text(encoding="utf-8") if path.exists() else FIRST
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    page = pattern.sub(lambda _: section, page) if pattern.search(page) else f"{page.rstrip()}\n\n{section}\n"
    path.parent.mkdir(exist_ok=True)
    path.write_text(page, encoding="utf-8")
