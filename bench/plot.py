"""The pictures in the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from bench.report import Spread

mpl.use("svg")
mpl.rcParams.update(
    {"svg.hashsalt": "gossamer", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
)
#: Without a date the file changes only when the figures do.
METADATA = {"Date": None}


def bars(figures: Mapping[str, Spread], path: Path) -> None:
    """Draw CPU seconds per 1000 pages, cheapest on top, with the spread as a whisker."""
    ordered = sorted(figures.items(), key=lambda item: item[1].median, reverse=True)
    canvas, axes = plt.subplots(figsize=(7, 0.45 * len(ordered) + 0.9))
    medians = [spread.median for _, spread in ordered]
    whiskers = [
        [spread.median - spread.low for _, spread in ordered],
        [spread.high - spread.median for _, spread in ordered],
    ]
    colours = ["#b5475b" if name.startswith("gossamer") else "#8a94a6" for name, _ in ordered]
    drawn = axes.barh([name for name, _ in ordered], medians, xerr=whiskers, color=colours)
    axes.bar_label(drawn, [f"{median:.2f}" for median in medians], padding=6)
    axes.set_xlabel("CPU seconds per 1000 pages")
    canvas.savefig(path, bbox_inches="tight", metadata=METADATA)
    plt.close(canvas)


def growth(
    urls: Sequence[int], cpu_ms: Sequence[float], rss: Sequence[tuple[int, float]], path: Path
) -> None:
    """Draw CPU per page and resident memory against the number of URLs in the ledger."""
    canvas, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8))
    left.semilogx(urls, cpu_ms, marker="o", color="#b5475b")
    left.set(xlabel="URLs in the ledger", ylabel="CPU ms per page", ylim=(0, None))
    right.plot([known for known, _ in rss], [size for _, size in rss], color="#b5475b")
    right.set(xlabel="URLs in the ledger", ylabel="resident MB", ylim=(0, None))
    canvas.tight_layout()
    canvas.savefig(path, bbox_inches="tight", metadata=METADATA)
    plt.close(canvas)
