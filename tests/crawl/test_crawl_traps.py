"""Places without end, crawled without a depth limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.testing.crawl_rig import CrawlRig, paths_of
from gossamer.testing.synthetic_web import SyntheticWeb


@pytest.fixture
def web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread() as web:
        yield web


def test_a_crawl_of_a_trap_ends_by_itself_and_says_why(web: SyntheticWeb, tmp_path: Path) -> None:
    rig = CrawlRig(tmp_path)
    crawled = rig.crawl(web.url("trap"), "--max-calendar-depth", "20")
    assert crawled.code == 0
    refused = {row.detail.partition(":")[0] for row in crawled.rows.values() if row.reason == "trap"}
    assert {"calendar", "path_loop"} <= refused
    assert len(paths_of(web, "trap")) < 60


def test_without_traps_only_a_limit_ends_it(web: SyntheticWeb, tmp_path: Path) -> None:
    crawled = CrawlRig(tmp_path).crawl(web.url("trap"), "--no-traps", "-n", "80")
    assert len(crawled.records) == 80
    assert not [row for row in crawled.rows.values() if row.reason == "trap"]
