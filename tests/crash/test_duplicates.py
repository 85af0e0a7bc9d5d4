"""SIGKILL around the commit that decides about duplicates: one record of each content, whoever dies when."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import (
    KILLED,
    SMALL_COMMITS,
    Crawl,
    GeneratedSite,
    check_ledger,
    check_readable,
    crawl_of,
    read_records,
)

PAGES = 60
CONTENTS = 12
BOUNDARIES = [*(f"commit:{part}" for part in ("before", "written", "done")), "settle:before", "sink:written"]


class CopiedSite(GeneratedSite):
    """Sixty pages with twelve contents; `nearly` the same, the copies differ in one word of thousands."""

    def __init__(self, web: SyntheticWeb, *, nearly: bool) -> None:
        self._nearly = nearly
        super().__init__(web, PAGES)

    def _body(self, number: int) -> bytes:
        kind = number % CONTENTS
        chance = random.Random(kind)
        words = " ".join(f"w{chance.randrange(1000)}" for _ in range(6000))
        own = f"copy {number}" if self._nearly else ""
        # A copy has the links of all copies, so that every page is reachable whichever came first.
        targets = [
            target for copy in range(kind, PAGES, CONTENTS) for target in range(copy * 3 + 3, copy * 3 + 6)
        ]
        links = "".join(f'<a href="{self.urls[target % PAGES]}">on</a>' for target in targets)
        return f"<title>Kind {kind}</title><p>{own} {words}</p>{links}".encode()


def check_one_record_of_each_content(crawl: Crawl) -> None:
    """Assert that each output has each content once, and that every other page names the one it repeats."""
    for output in crawl.outputs:
        titles = Counter(record["title"] for record in read_records(output))
        assert titles == Counter(f"Kind {kind}" for kind in range(CONTENTS)), output.name
    check_ledger(crawl)
    with closing(sqlite3.connect(crawl.job / "ledger.sqlite")) as db:
        rows = db.execute("SELECT url, reason, detail FROM urls").fetchall()
    kept = {url for url, reason, _ in rows if reason == "ok"}
    assert kept == {record["url"] for record in read_records(crawl.outputs[0])}
    assert len(rows) == PAGES
    for url, reason, detail in rows:
        if url not in kept:
            assert reason == "duplicate"
            original = detail.rpartition(" ")[2]
            assert original in kept
            assert (_number(url) - _number(original)) % CONTENTS == 0


def _number(url: str) -> int:
    return int(url.rpartition("/")[2])


@pytest.mark.parametrize("mode", ["exact", "near"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_killed_at_a_boundary_a_job_still_writes_one_record_of_each_content(
    web: SyntheticWeb, tmp_path: Path, boundary: str, mode: str
) -> None:
    site = CopiedSite(web, nearly=mode == "near")
    crawl = crawl_of(site, tmp_path, "--skip-duplicates", mode, *SMALL_COMMITS)
    for count in (1, 3):
        assert crawl.run(f"{boundary}@{count}").returncode == KILLED
        check_readable(crawl)
        check_ledger(crawl)
    crawl.finish()
    check_one_record_of_each_content(crawl)


def test_worker_processes_together_write_one_record_of_each_content(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    flags = ("--skip-duplicates", "near", "--workers", "2", *SMALL_COMMITS)
    crawl = crawl_of(CopiedSite(web, nearly=True), tmp_path, *flags)
    assert crawl.run("commit:done@2").returncode == KILLED
    crawl.finish()
    check_one_record_of_each_content(crawl)
