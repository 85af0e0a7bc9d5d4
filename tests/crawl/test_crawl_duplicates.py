"""Pages that say the same as others: hashes in records, and one record of each content."""

from __future__ import annotations

import random
import re

import pytest

from gossamer.config.job_file import JobSpec
from gossamer.config.settings import RecordSettings, Settings
from gossamer.testing.crawl_rig import CrawlRig, hits_of, html
from gossamer.testing.synthetic_reply import Reply
from gossamer.testing.synthetic_web import SyntheticWeb


def prose(number: int, words: int = 300) -> str:
    chance = random.Random(number)
    return " ".join(f"w{chance.randrange(5000)}" for _ in range(words))


def serve_copies(web: SyntheticWeb, host: str) -> str:
    """Serve a page with copies of others: two equal ones with a link of their own, and one but for a word."""
    twin = html("/behind", body=f"<p>{prose(1)}</p>")
    web.add(host, "/", html("/a", "/b", "/c", "/d", "/empty1", "/empty2", "/gone1", "/gone2"))
    web.add(host, "/a", twin)
    web.add(host, "/b", twin)
    web.add(host, "/c", html("/near", body=f"<p>{prose(1)} once</p>"))
    web.add(host, "/d", html(body=f"<p>{prose(2)}</p>"))
    web.add(host, "/behind", html(body=f"<p>{prose(3)}</p>"))
    web.add(host, "/near", html(body=f"<p>{prose(4)}</p>"))
    for path in ("/empty1", "/empty2"):
        web.add(host, path, Reply(body=b""))
    for path in ("/gone1", "/gone2"):
        web.add(host, path, Reply(status=404, body=b"gone"))
    return web.url(host)


def test_without_being_asked_every_page_has_its_record_and_no_simhash(
    rig: CrawlRig, web: SyntheticWeb
) -> None:
    crawled = rig.crawl(serve_copies(web, "copies"))
    assert len(crawled.records) == 11
    assert not [record for record in crawled.records if "simhash" in record]


def test_with_near_duplicates_records_of_pages_that_say_nearly_the_same_have_near_hashes(
    rig: CrawlRig, web: SyntheticWeb
) -> None:
    crawled = rig.crawl(serve_copies(web, "hashes"), "--near-duplicates")
    assert len(crawled.records) == 11
    hashes = {path: crawled.record(web.url("hashes", path))["simhash"] for path in ("/a", "/b", "/c", "/d")}
    assert all(len(text) == 16 for text in hashes.values())
    assert hashes["/a"] == hashes["/b"]
    bits = {path: (int(text, 16) ^ int(hashes["/a"], 16)).bit_count() for path, text in hashes.items()}
    assert bits["/c"] <= 3
    assert bits["/d"] > 10
    assert "simhash" not in crawled.record(web.url("hashes", "/empty1"))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_with_skip_duplicates_one_of_equal_pages_has_a_record_and_the_other_names_it(
    rig: CrawlRig, web: SyntheticWeb, workers: str
) -> None:
    host = f"exact{workers}"
    flags = ("--skip-duplicates", "exact", "--near-duplicates", "--workers", workers)
    crawled = rig.crawl(serve_copies(web, host), *flags)
    a, b, c = (web.url(host, path) for path in ("/a", "/b", "/c"))
    kept, skipped = (a, b) if a in crawled.urls else (b, a)
    assert crawled.state(kept) == "fetched ok"
    assert crawled.state(skipped) == "duplicate duplicate"
    assert crawled.rows[skipped].detail == f"same as {kept}"
    assert sorted(crawled.urls) == sorted(set(crawled.rows) - {skipped})
    assert c in crawled.urls
    told = rig.run("status", "job", "--jobs-dir", str(rig.jobs)).out
    assert re.search(r"^pages +10,", told, re.MULTILINE)


def test_with_skip_near_duplicates_a_page_that_says_nearly_the_same_has_no_record_and_its_links_are_followed(
    rig: CrawlRig, web: SyntheticWeb
) -> None:
    crawled = rig.crawl(serve_copies(web, "near"), "--skip-duplicates", "near", "-c", "1")
    alike = {web.url("near", path) for path in ("/a", "/b", "/c")}
    (kept,) = alike & set(crawled.urls)
    assert {crawled.state(url) for url in alike - {kept}} == {"duplicate duplicate"}
    assert {crawled.rows[url].detail.rpartition(" ")[2] for url in alike - {kept}} == {kept}
    assert {web.url("near", path) for path in ("/behind", "/near", "/gone1", "/gone2")} <= set(crawled.urls)
    told = rig.run("explain", "job", min(alike - {kept}), "--jobs-dir", str(rig.jobs))
    assert kept in told.out


def test_a_content_has_one_record_across_runs_of_a_job(rig: CrawlRig, web: SyntheticWeb) -> None:
    pages = [f"/{number}" for number in range(12)]
    web.add("runs", "/", html(*pages))
    for number, path in enumerate(pages):
        web.add("runs", path, html(body=f"<p>{prose(number % 3)}</p>"))
    flags = ("--skip-duplicates", "exact", "--commit-pages", "1", "-c", "1")
    for limit in ("2", "3"):
        assert len(rig.crawl(web.url("runs"), *flags, "-n", limit).records) == int(limit)
    crawled = rig.crawl(web.url("runs"), *flags)
    assert len(crawled.records) == 4
    assert len(hits_of(web, "runs")) == 13
    assert [row.reason for row in crawled.rows.values()].count("duplicate") == 9


def test_a_duplicate_is_no_page_for_the_limits(rig: CrawlRig, web: SyntheticWeb) -> None:
    pages = [f"/{number}" for number in range(20)]
    web.add("limits", "/", html(*pages))
    for number, path in enumerate(pages):
        web.add("limits", path, html(body=f"<p>{prose(number // 10)}</p>"))
    for job, limit in (("all", "--max-pages"), ("host", "--max-pages-per-host")):
        flags = ("--skip-duplicates", "exact", "-c", "1", "--commit-pages", "1", limit, "3")
        crawled = rig.crawl(web.url("limits"), *flags, job=job, output=f"{job}.jsonl")
        assert len(crawled.records) == 3
        assert [row.reason for row in crawled.rows.values()].count("duplicate") >= 9


def test_how_duplicates_are_treated_belongs_to_a_job(rig: CrawlRig, web: SyntheticWeb) -> None:
    url = serve_copies(web, "fixed")
    rig.crawl(url, "--skip-duplicates", "exact", "-n", "1")
    refused = rig.crawl(url)
    assert refused.code == 2
    assert "skip_duplicates was exact, now none" in refused.err
    assert rig.run(*rig.arguments("crawl", url, "--skip-duplicates", "all", job="new")).code == 2


def test_a_page_that_noindex_leaves_out_does_not_take_the_place_of_another(
    rig: CrawlRig, web: SyntheticWeb
) -> None:
    silent = html(body=prose(1))
    web.add("silent", "/", html("/hidden", "/open"))
    web.add("silent", "/open", silent)
    web.add("silent", "/hidden", Reply(body=silent.body, headers=(("X-Robots-Tag", "noindex"),)))
    flags = ("--skip-duplicates", "exact", "--skip-noindex", "-c", "1", "--commit-pages", "1")
    crawled = rig.crawl(web.url("silent"), *flags)
    assert crawled.urls == [web.url("silent"), web.url("silent", "/open")]


def test_a_job_made_before_there_was_the_setting_keeps_its_name_and_goes_on(
    rig: CrawlRig, web: SyntheticWeb
) -> None:
    url = serve_copies(web, "older")
    rig.crawl(url, "-n", "1")
    stored = rig.jobs / "job" / "job.toml"
    kept = [line for line in stored.read_text("utf-8").splitlines() if "skip_duplicates" not in line]
    stored.write_text("\n".join(kept), "utf-8")
    assert rig.crawl(url, "--skip-duplicates", "near").code == 2
    assert len(rig.crawl(url).records) == 11
    assert "skip_duplicates" not in JobSpec("crawl", (url,)).identity()
    skipping = Settings(record=RecordSettings(skip_duplicates="near"))
    assert JobSpec("crawl", (url,), settings=skipping).identity()["skip_duplicates"] == "near"
