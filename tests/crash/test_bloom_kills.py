"""SIGKILL while a job remembers its URLs in a Bloom filter: what was committed is in the filter, and nothing else is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.frontier.sqlite_bloom import is_remembered
from gossamer.frontier.sqlite_schema import connect_readonly
from gossamer.model.url import dedup_key, fingerprint
from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import (
    KILLED,
    SMALL_COMMITS,
    Crawl,
    GeneratedSite,
    check_readable,
    check_refetches,
    crawl_of,
    read_records,
)

PAGES = 60
#: So small an error rate that no test will ever meet an error.
BLOOM = ("--dedup", "bloom", "--bloom-error-rate", "1e-8")
#: More URLs than are logged before they are folded into the pages of the filter.
BULK = 55_000


def check_filter(crawl: Crawl) -> None:
    """Assert that the filter holds as many URLs as were ever accepted, and that what keeps a row is counted right."""
    with closing(sqlite3.connect(crawl.job / "ledger.sqlite")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (folded,) = db.execute("SELECT coalesce(sum(keys), 0) FROM bloom_slices").fetchone()
        (logged,) = db.execute(
            "SELECT coalesce(sum(length(fingerprints)), 0) / 8 FROM bloom_added"
        ).fetchone()
        (accepted,) = db.execute("SELECT coalesce(sum(n), 0) FROM counts").fetchone()
        assert folded + logged == accepted
        kept = "state IN (0, 1, 7)"
        counted = db.execute(f"SELECT state, reason, n FROM counts WHERE n != 0 AND {kept}").fetchall()
        rows = db.execute(f"SELECT state, reason, count(*) FROM urls WHERE {kept} GROUP BY 1, 2").fetchall()
        assert sorted(counted) == sorted(rows)
        assert db.execute("SELECT count(*) FROM urls WHERE NOT state IN (0, 1, 7)").fetchone() == (0,)


def check_done(crawl: Crawl, refused: int = 0) -> None:
    """Assert that every output has each page once, and that the ledger accounts for all without a row of any."""
    check_filter(crawl)
    for output in crawl.outputs:
        assert sorted(record["url"] for record in read_records(output)) == sorted(crawl.site.urls)
    expected = [(2, "ok", PAGES)] + ([(6, "excluded", refused)] if refused else [])
    with closing(connect_readonly(crawl.job / "ledger.sqlite")) as db:
        assert db.execute("SELECT state, reason, n FROM counts WHERE n != 0").fetchall() == expected
        assert db.execute("SELECT count(*) FROM urls").fetchone() == (0,)
        assert all(is_remembered(db, fingerprint(dedup_key(url))) for url in crawl.site.urls)


@pytest.mark.parametrize(("name", "later"), [("add", 2), ("commit", 4)])
@pytest.mark.parametrize("part", ["before", "written", "done"])
def test_killed_at_a_boundary_a_job_with_a_filter_fetches_each_page_and_writes_it_once(
    web: SyntheticWeb, tmp_path: Path, name: str, later: int, part: str
) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path, *BLOOM, *SMALL_COMMITS)
    for count in (1, later):
        assert crawl.run(f"{name}:{part}@{count}").returncode == KILLED
        check_readable(crawl)
        check_filter(crawl)
    crawl.finish()
    check_done(crawl)
    check_refetches(crawl, kills=2)


def test_killed_while_the_filter_is_folded_a_ledger_still_knows_each_url_once(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    site = GeneratedSite(web, PAGES)
    flags = ("--seed-batch-urls", "5000", "--exclude", "*/bulk/*", "--bloom-urls", "20000")
    crawl = crawl_of(site, tmp_path, *BLOOM, *flags)
    bulk = [web.url("bulk", f"/bulk/{number}") for number in range(BULK)]
    # Some come again at the end, when they are long in the pages.
    seeds = [*site.seeds, *bulk, *bulk[:2000], *bulk[-2000:]]
    (tmp_path / "seeds.txt").write_text("\n".join(seeds), "utf-8")
    for part in ("before", "written", "done"):
        assert crawl.run(f"fold:{part}@1").returncode == KILLED, part
        check_filter(crawl)
    crawl.finish()
    check_done(crawl, refused=BULK)
    check_refetches(crawl, kills=3)
    with closing(sqlite3.connect(crawl.job / "ledger.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM bloom_slices").fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM bloom_pages").fetchone()[0] > 2
