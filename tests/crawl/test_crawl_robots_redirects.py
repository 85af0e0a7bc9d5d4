"""A robots.txt that is redirected: every hop waits for the clock of the host it goes to, and is in the fetch log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.testing.crawl_rig import CrawlRig, paths_of, serve
from gossamer.testing.stalls import quiet_gaps, stall_watch
from gossamer.testing.synthetic_reply import redirect, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

RULES = "User-agent: *\nDisallow: /secret\n"
DELAY, JITTER = 0.3, 0.04


@pytest.fixture
def web() -> Iterator[SyntheticWeb]:
    stall_watch()
    with SyntheticWeb.in_thread() as web:
        yield web


@pytest.fixture
def rig(tmp_path: Path) -> CrawlRig:
    return CrawlRig(tmp_path)


def apex_and_www(web: SyntheticWeb) -> list[str]:
    """The commonest case: the bare domain sends everything to www, its robots.txt too."""
    links = [
        web.url("apex", "/secret"),
        web.url("apex", "/page"),
        web.url("www", "/secret"),
        web.url("www", "/page"),
    ]
    web.add("www", "/robots.txt", text_reply(RULES))
    web.add("apex", "/robots.txt", redirect(web.url("www", "/robots.txt")))
    for host in ("apex", "www"):
        serve(web, host, {"/": links, "/page": (), "/secret": ()})
    return [web.url("apex"), web.url("www")]


def smallest_gap(web: SyntheticWeb, host: str) -> float:
    return min(quiet_gaps(hit.at for hit in web.hits if hit.host == host), default=DELAY)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_robots_txt_on_another_host_is_fetched_by_that_hosts_clock(
    web: SyntheticWeb, rig: CrawlRig, workers: str
) -> None:
    crawled = rig.crawl(*apex_and_www(web), "--delay", str(DELAY), "--workers", workers)
    assert {url.split("/", 3)[3] for url in crawled.urls} == {"", "page"}
    assert "/secret" not in paths_of(web, "apex") + paths_of(web, "www")
    assert min(smallest_gap(web, "apex"), smallest_gap(web, "www")) >= DELAY - JITTER
    assert rig.run("audit", "job", "--jobs-dir", str(rig.jobs)).code == 0


def test_hops_on_one_host_wait_for_its_delay(web: SyntheticWeb, rig: CrawlRig) -> None:
    for number in range(4):
        web.add("chain", f"/r{number}", redirect(f"/r{number + 1}"))
    web.add("chain", "/robots.txt", redirect("/r0"))
    web.add("chain", "/r4", text_reply(RULES))
    serve(web, "chain", {"/": ("/secret", "/page"), "/page": (), "/secret": ()})
    crawled = rig.crawl(web.url("chain"), "--delay", str(DELAY))
    assert len(crawled.records) == 2
    assert "/secret" not in paths_of(web, "chain")
    assert smallest_gap(web, "chain") >= DELAY - JITTER


def test_a_robots_txt_that_leads_in_a_circle_is_none(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("round", "/robots.txt", redirect("/robots.txt"))
    serve(web, "round", {"/": ()})
    assert len(rig.crawl(web.url("round")).records) == 1
    assert sum(hit.host == "round" and hit.path == "/robots.txt" for hit in web.hits) == 6


def test_a_run_that_ends_on_the_way_goes_on_with_it(web: SyntheticWeb, rig: CrawlRig) -> None:
    seeds = apex_and_www(web)[:1]
    rig.crawl(*seeds, "--delay", "1", "--time", "0.5")
    crawled = rig.crawl(*seeds, "--delay", "0.05")
    assert len(crawled.records) == 2
    assert "/secret" not in paths_of(web, "apex")
