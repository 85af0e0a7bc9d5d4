"""With `--dedup bloom` a crawl yields the same records, keeps no row of a finished URL, and still answers for itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gossamer.testing.crawl_rig import Crawled, CrawlRig, html, paths_of, read_jsonl, serve
from gossamer.testing.synthetic_reply import Reply
from gossamer.testing.synthetic_web import SyntheticWeb

#: What of a record depends on the moment of its fetch, or on which of several links was found first.
INCIDENTAL = frozenset({"fetched_at", "elapsed_ms", "depth", "parent", "attempt"})
BLOOM = ("--dedup", "bloom")

Both = tuple[CrawlRig, SyntheticWeb, Crawled, Crawled]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Crawl all finite hosts exactly, then with a filter."""
    with SyntheticWeb.in_thread(slow_seconds=0.2) as whole:
        rig = CrawlRig(tmp_path_factory.mktemp("both"))
        seeds = (*whole.finite_seeds, "--per-host", "4")
        exact = rig.crawl(*seeds, job="exact", output="exact.jsonl")
        whole.reset()
        bloom = rig.crawl(*seeds, *BLOOM, job="bloom", output="bloom.jsonl")
        yield rig, whole, exact, bloom


def essence(crawled: Crawled) -> list[dict[str, Any]]:
    kept = [{key: value for key, value in r.items() if key not in INCIDENTAL} for r in crawled.records]
    return sorted(kept, key=lambda record: str(record["url"]))


def report_of(rig: CrawlRig, job: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(rig.run("report", job, "--json", "--jobs-dir", str(rig.jobs)).out)
    return report


def ask(rig: CrawlRig, query: str, job: str = "job") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(rig.jobs / job / "ledger.sqlite")) as db:
        return db.execute(query).fetchall()


def test_the_records_are_those_of_an_exact_crawl(both: Both) -> None:
    _, _, exact, bloom = both
    assert (bloom.code, len(bloom.records)) == (0, len(exact.records))
    assert essence(bloom) == essence(exact)


def test_only_what_may_come_back_keeps_its_row(both: Both) -> None:
    _, whole, exact, bloom = both
    kept = {url for url, row in exact.rows.items() if row.state.label in {"queued", "held", "failed"}}
    reopened = {whole.url("lab", "/members"), whole.url("lab", "/round/a"), whole.url("lab", "/round/b")}
    assert set(bloom.rows) == kept | reopened


def test_counts_totals_and_hosts_in_the_report_are_those_of_an_exact_crawl(both: Both) -> None:
    rig, _, _, _ = both
    exact, bloom = report_of(rig, "exact"), report_of(rig, "bloom")
    for key in ("complete", "urls", "pages", "requests", "host_count", "robots"):
        assert bloom[key] == exact[key], key
    numbers = [
        (
            {(line["state"], line["reason"], line["urls"]) for line in report["outcomes"]},
            {(host["host"], host["pages"], host["failed"], host["forbidden"]) for host in report["hosts"]},
        )
        for report in (exact, bloom)
    ]
    assert numbers[0] == numbers[1]
    assert sum(host["forbidden"] for host in bloom["hosts"]) > 0


def test_an_audit_finds_every_request_with_its_url(both: Both) -> None:
    rig, whole, _, _ = both
    audit = rig.run("audit", "bloom", "--jobs-dir", str(rig.jobs))
    assert audit.code == 0, audit.out + audit.err
    fetched = ask(rig, "SELECT count(*), sum(url IS NULL) FROM fetches WHERE kind = 'page'", "bloom")
    assert fetched == [(len([hit for hit in whole.hits if hit.path != "/robots.txt"]), 0)]


def test_explain_tells_a_finished_url_from_one_that_was_never_seen(both: Both) -> None:
    rig, whole, _, _ = both

    def explain(url: str) -> tuple[int, str]:
        ended = rig.run("explain", "bloom", url, "--jobs-dir", str(rig.jobs))
        return ended.code, ended.out + ended.err

    code, said = explain(whole.url("docs", "/"))
    assert code == 0
    assert "settled" in said
    assert "status 200" in said
    code, said = explain(whole.url("docs", "/private/plan.html"))
    assert code == 0
    assert "probably seen" in said
    assert "0.0100%" in said
    code, said = explain(whole.url("docs", "/never-linked.html"))
    assert code == 2
    assert "does not know" in said


def test_urls_lists_what_waits_and_says_what_is_missing(both: Both) -> None:
    rig, _, exact, _ = both
    failed = {url for url, row in exact.rows.items() if row.state.label == "failed"}
    listed = rig.run("urls", "bloom", "--state", "failed", "--jobs-dir", str(rig.jobs))
    assert {line.split("\t")[4] for line in listed.out.splitlines()} == failed
    assert "not listed" not in listed.err
    assert "--dedup bloom" in rig.run("urls", "bloom", "--jobs-dir", str(rig.jobs)).err


def test_a_queued_url_keeps_the_page_it_was_found_on(web: SyntheticWeb, rig: CrawlRig) -> None:
    seed = serve(web, "parents", {"/": ["/a", "/b"], "/a": [], "/b": []})
    rig.crawl(seed, *BLOOM, "-n", "1", "-c", "1")
    child = web.url("parents", "/b")
    said = rig.run("explain", "job", child, "--jobs-dir", str(rig.jobs)).out
    assert f"found as a link on {seed}" in said
    crawled = rig.crawl(seed, *BLOOM)
    assert {record["url"]: record["parent"] for record in crawled.records}[child] == seed


def test_retry_queues_what_failed_and_never_a_finished_page(web: SyntheticWeb, rig: CrawlRig) -> None:
    seed = serve(web, "again", {"/": ["/broken"]})
    broken = web.url("again", "/broken")
    web.add("again", "/broken", Reply(status=503))
    rig.crawl(seed, *BLOOM, "--retries", "0")
    place = ("--jobs-dir", str(rig.jobs))
    assert "Nothing to queue again" in rig.run("retry", "job", "--url", seed, *place).out
    web.add("again", "/broken", html())
    assert "1 URL is queued again" in rig.run("retry", "job", *place).out
    crawled = rig.crawl(seed, *BLOOM, "--retries", "0")
    assert [r["status"] for r in crawled.records if r["url"] == broken] == [503, 200]
    assert paths_of(web, "again") == ["/", "/broken", "/broken"]
    assert list(rig.rows()) == []


def test_the_way_of_remembering_is_fixed_when_a_job_is_made(web: SyntheticWeb, rig: CrawlRig) -> None:
    seed = serve(web, "fixed", {"/": []})
    rig.crawl(seed)
    refused = rig.crawl(seed, *BLOOM)
    assert refused.code == 2
    assert "dedup was exact, now bloom" in refused.err


@pytest.mark.parametrize("rate", ["0", "0.5", "1e-12"])
def test_an_error_rate_that_no_filter_can_keep_is_refused(
    web: SyntheticWeb, rig: CrawlRig, rate: str
) -> None:
    refused = rig.crawl(web.url("rate"), *BLOOM, "--bloom-error-rate", rate)
    assert refused.code == 2
    assert "bloom_error_rate must be between" in refused.err


def test_the_ledger_holds_what_waits_and_not_what_was_seen(web: SyntheticWeb, rig: CrawlRig) -> None:
    pages = {f"/{number}": [f"/{number + 1}", "/0"] for number in range(60)} | {"/60": []}
    crawled = rig.crawl(serve(web, "long", pages), *BLOOM, "--commit-pages", "5", "--per-host", "4")
    assert len(crawled.records) == 61
    assert ask(rig, "SELECT count(*) FROM urls") == [(0,)]
    assert ask(rig, "SELECT sum(length(fingerprints)) / 8 FROM bloom_added") == [(61,)]


def test_two_workers_share_the_filter_of_their_parent(web: SyntheticWeb, rig: CrawlRig) -> None:
    pages = {f"/{number}": [f"/{(number * 7 + step) % 50}" for step in range(5)] for number in range(50)}
    seed = serve(web, "shared", pages)
    arguments = rig.arguments("crawl", seed, *BLOOM, "--workers", "2", "--per-host", "8")
    ended = rig.spawn(*arguments)
    assert ended.code == 0, ended.err
    urls = [record["url"] for record in read_jsonl(Path(rig.folder / "pages.jsonl"))]
    assert len(urls) == len(set(urls)) == len(paths_of(web, "shared"))
