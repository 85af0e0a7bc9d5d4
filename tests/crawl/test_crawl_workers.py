"""Several worker processes give what one gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gossamer.testing.crawl_rig import Crawled, CrawlRig, html, paths_of
from gossamer.testing.synthetic_reply import redirect
from gossamer.testing.synthetic_web import SyntheticWeb

#: What two crawls of one site may differ in.
VARYING = ("fetched_at", "elapsed_ms", "parent", "redirected_from")


def comparable(crawled: Crawled) -> set[str]:
    def plain(record: dict[str, Any]) -> str:
        return str({name: value for name, value in record.items() if name not in VARYING})

    return {plain(record) for record in crawled.records}


def settled(crawled: Crawled) -> dict[str, str]:
    return {url: crawled.state(url) for url in crawled.rows}


@pytest.mark.parametrize("workers", ["2", "3"])
def test_several_workers_give_the_same_records_and_states_as_one(
    web: SyntheticWeb, rig: CrawlRig, workers: str
) -> None:
    seeds = [web.url(host) for host in ("shop", "blog")]
    one = rig.crawl(*seeds, "--per-host", "8", job="one", output="one.jsonl")
    web.reset()
    many = rig.crawl(*seeds, "--per-host", "8", "--workers", workers, job="many", output="many.jsonl")
    assert many.code == 0
    assert comparable(many) == comparable(one)
    assert settled(many) == settled(one)
    asked = Counter((hit.host, hit.path) for hit in web.hits)
    assert max(asked.values()) == 1


def test_the_page_limit_is_exact_with_several_workers(web: SyntheticWeb, rig: CrawlRig) -> None:
    seeds = [web.url(host) for host in ("shop", "blog")]
    web.reset()
    crawled = rig.crawl(*seeds, "--workers", "2", "-n", "13", "--per-host", "4")
    assert (crawled.code, len(crawled.records)) == (0, 13)
    assert sum(hit.path != "/robots.txt" for hit in web.hits) == 13


def test_a_widened_scope_reaches_the_other_worker(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("entry", "/", redirect(web.url("next")))
    web.add("next", "/", html("/a", web.url("entry", "/b")))
    web.add("next", "/a", html())
    web.add("entry", "/b", html())
    crawled = rig.crawl(web.url("entry"), "--workers", "2")
    assert set(crawled.urls) == {web.url("next"), web.url("next", "/a"), web.url("entry", "/b")}


def test_scrape_with_several_workers_keeps_each_input(web: SyntheticWeb, rig: CrawlRig) -> None:
    for number in range(6):
        web.add(f"in-{number}", "/", redirect(web.url("out")))
    web.add("out", "/", html())
    inputs = [web.url(f"in-{number}") for number in range(6)]
    crawled = rig.scrape(*inputs, "--workers", "2")
    assert {record["url"]: record["final_url"] for record in crawled.records} == dict.fromkeys(
        inputs, web.url("out")
    )
    assert paths_of(web, "out") == ["/"] * 6
