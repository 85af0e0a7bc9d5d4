"""SIGKILL at every boundary of the ledger, the schedule and the outputs, then the same command again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gossamer
from gossamer.cli.main import main as gossamer_command
from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import (
    KILLED,
    SMALL_COMMITS,
    GeneratedSite,
    check_complete,
    check_ledger,
    check_readable,
    check_refetches,
    crawl_of,
    essence,
    read_records,
)

PAGES = 60
#: Each boundary with a later pass to be killed at; the first one comes before that, in the same job.
LATER = {
    "add": 3,
    "cursor": 3,
    "commit": 4,
    "settle": 4,
    "sink": 5,
}
PARTS = {
    **dict.fromkeys(("add", "cursor", "commit"), ("before", "written", "done")),
    "settle": ("before", "after"),
    "sink": ("before", "torn", "written", "synced"),
}
BOUNDARIES = [(f"{name}:{part}", LATER[name]) for name, parts in PARTS.items() for part in parts]


@pytest.fixture(scope="module")
def uninterrupted(
    shared_web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, object]]:
    """What a crawl writes that nobody disturbs."""
    site = GeneratedSite(shared_web, PAGES)
    crawl = crawl_of(site, tmp_path_factory.mktemp("uninterrupted"))
    crawl.finish()
    check_complete(crawl)
    return essence(read_records(crawl.outputs[0]))


@pytest.mark.parametrize(("boundary", "later"), BOUNDARIES)
def test_killed_at_a_boundary_a_job_goes_on_as_if_nothing_had_happened(
    web: SyntheticWeb, tmp_path: Path, uninterrupted: list[dict[str, object]], boundary: str, later: int
) -> None:
    web.reset()
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path, *SMALL_COMMITS)
    for count in (1, later):
        assert crawl.run(f"{boundary}@{count}").returncode == KILLED
        check_readable(crawl)
        check_ledger(crawl)
    crawl.finish()
    check_complete(crawl)
    check_refetches(crawl, kills=2)
    for output in crawl.outputs:
        assert essence(read_records(output)) == uninterrupted


LIMITS = {"hold": (("-n", "20"), ("-n", "40")), "deepen": (("-d", "1"), ("-d", "2"))}


@pytest.mark.parametrize("part", ["before", "written", "done"])
@pytest.mark.parametrize("name", LIMITS)
def test_killed_at_the_end_of_a_limited_run_a_job_goes_on_when_the_limit_is_raised(
    web: SyntheticWeb, tmp_path: Path, name: str, part: str
) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path)
    for limit in LIMITS[name]:
        assert crawl.with_flags(*limit).run(f"{name}:{part}@1").returncode == KILLED
        check_readable(crawl)
        check_ledger(crawl)
    crawl.finish()
    check_complete(crawl)
    assert set(crawl.site.page_hits().values()) == {1}


@pytest.mark.parametrize("part", ["before", "written", "done"])
def test_killed_while_urls_are_revived_a_job_goes_on(web: SyntheticWeb, tmp_path: Path, part: str) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path)
    crawl.with_flags("-n", "20").finish()
    assert crawl.run(f"revive:{part}@1").returncode == KILLED
    check_readable(crawl)
    check_ledger(crawl)
    crawl.finish()
    check_complete(crawl)
    assert set(crawl.site.page_hits().values()) == {1}


#: More URLs than the ledger keeps in memory before it merges their fingerprints into its index.
BULK = 55_000


def test_killed_while_fingerprints_are_merged_a_ledger_still_knows_each_url_once(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    site = GeneratedSite(web, PAGES)
    crawl = crawl_of(site, tmp_path, "--seed-batch-urls", "5000", "--exclude", "*/bulk/*")
    bulk = [web.url("bulk", f"/bulk/{number}") for number in range(BULK)]
    # Some come again at the end, when they have long been merged.
    seeds = [*site.seeds, *bulk, *bulk[:2000], *bulk[-2000:]]
    (tmp_path / "seeds.txt").write_text("\n".join(seeds), "utf-8")
    for part in ("before", "written", "done"):
        assert crawl.run(f"merge:{part}@1").returncode == KILLED, part
        check_ledger(crawl)
    crawl.finish()
    check_complete(crawl, refused=BULK)
    check_refetches(crawl, kills=3)


def test_a_crawl_that_nobody_disturbs_asks_for_each_page_once(web: SyntheticWeb, tmp_path: Path) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path)
    crawl.finish()
    check_complete(crawl)
    check_refetches(crawl, kills=0)


def test_a_job_stopped_before_its_ledger_was_made_says_so_and_begins_with_the_next_run(
    web: SyntheticWeb, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path)
    crawl.job.mkdir(parents=True)
    (crawl.job / "ledger.sqlite").touch()
    assert gossamer_command(["status", "job", "--jobs-dir", str(crawl.job.parent)]) == 5
    assert "stopped before it began" in capsys.readouterr().err
    crawl.finish()
    check_complete(crawl)


def test_every_boundary_of_the_product_is_among_those_tested() -> None:
    source = Path(gossamer.__file__).parent
    text = "".join(path.read_text("utf-8") for path in source.rglob("*.py"))
    fixed = set(re.findall(r'_failpoint\("([a-z]+:[a-z]+)"\)', text))
    transactions = set(re.findall(r'_transaction\("([a-z]+)"\)', text))
    # "fold" is killed in test_bloom_kills.py, and the ledger of shared jobs in tests/cluster.
    killed = {*LATER, *LIMITS, "merge", "fold", "revive"}
    of_transactions = {f"{name}:{step}" for name in killed for step in ("before", "written", "done")}
    assert fixed - of_transactions <= {boundary for boundary, _ in BOUNDARIES}
    assert transactions <= killed
