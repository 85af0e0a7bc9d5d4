"""How gently hosts are treated, by the clock of their servers."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from email.utils import formatdate
from itertools import pairwise

import pytest

from gossamer.testing.crawl_rig import CrawlRig, hits_of, html, paths_of, serve
from gossamer.testing.stalls import quiet_gaps
from gossamer.testing.synthetic_reply import Answer, Hit, Reply, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

#: A hit is noted when its request was read, which on a busy machine may be this much after it was sent.
JITTER = 0.04


def star(web: SyntheticWeb, host: str, leaves: int, leaf: Answer | None = None) -> str:
    """Serve a page that links to many leaves."""
    paths = [f"/{number}" for number in range(leaves)]
    url = serve(web, host, {"/": paths})
    for path in paths:
        web.add(host, path, leaf or html())
    return url


def gaps(web: SyntheticWeb, host: str) -> list[float]:
    """Return the seconds between requests to a host, robots.txt included: it is a request like any other."""
    return quiet_gaps(hit.at for hit in web.hits if hit.host == host)


def least(moments: list[float]) -> float:
    """Return the least of gaps; where nothing can be said of any, none is too short."""
    return min(moments, default=math.inf)


def started(rig: CrawlRig) -> list[float]:
    """Return the moments at which requests went out, by the fetch log: without the jitter of the way."""
    with closing(sqlite3.connect(rig.jobs / "job" / "ledger.sqlite")) as ledger:
        return sorted(row[0] for row in ledger.execute("SELECT started_at FROM fetches"))


def robots_hits(web: SyntheticWeb, host: str) -> int:
    return sum(hit.host == host and hit.path == "/robots.txt" for hit in web.hits)


class Crowd:
    """An answer that knows how many were served at once, and lets nobody go before there were as many as expected.

    Those that come too many have a moment to do so; if there are never enough, they go in the end.
    """

    def __init__(self, expected: int, seconds: float = 0.05) -> None:
        self._reply = html()
        self._expected = expected
        self._seconds = seconds
        self.now = 0
        self.most = 0

    def __call__(self, _hit: Hit) -> Awaitable[Reply]:
        return self._serve()

    async def _serve(self) -> Reply:
        self.now += 1
        self.most = max(self.most, self.now)
        patience = time.monotonic() + 20.0
        while self.most < self._expected and time.monotonic() < patience:
            await asyncio.sleep(0.01)
        await asyncio.sleep(self._seconds)
        self.now -= 1
        return self._reply


# -- delay and parallelism -------------------------------------------------------------------------------


@pytest.mark.parametrize("per_host", ["1", "4"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_requests_to_a_host_are_at_least_the_delay_apart(
    web: SyntheticWeb, rig: CrawlRig, per_host: str, workers: str
) -> None:
    host = f"gap-{per_host}-{workers}"
    url = star(web, host, 6, replace(html(), delay_seconds=0.12))
    crawled = rig.crawl(url, "--delay", "0.1", "--per-host", per_host, "--workers", workers)
    assert len(crawled.records) == 7
    assert least(gaps(web, host)) >= 0.1 - JITTER
    starts = started(rig)
    assert len(starts) == 8
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 0.1


def test_with_a_delay_and_several_slots_slow_pages_overlap(web: SyntheticWeb, rig: CrawlRig) -> None:
    crowd = Crowd(3, 0.3)
    rig.crawl(star(web, "overlap", 6, crowd), "--delay", "0.05", "--per-host", "3")
    assert crowd.most == 3


@pytest.mark.parametrize("per_host", [1, 3])
def test_no_more_requests_are_under_way_than_per_host_allows(
    web: SyntheticWeb, rig: CrawlRig, per_host: int
) -> None:
    crowd = Crowd(per_host)
    rig.crawl(star(web, f"crowd-{per_host}", 12, crowd), "--per-host", str(per_host))
    assert crowd.most == per_host


def test_concurrency_bounds_the_requests_over_all_hosts(web: SyntheticWeb, rig: CrawlRig) -> None:
    crowd = Crowd(3)
    for number in range(8):
        web.add(f"all-{number}", "/", crowd)
    rig.crawl(*(web.url(f"all-{number}") for number in range(8)), "-c", "3")
    assert crowd.most == 3


def test_the_delay_holds_across_a_resume(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "rest", 4)
    rig.crawl(url, "--delay", "0.4", "-n", "1")
    rig.crawl(url, "--delay", "0.4", "-n", "2")
    assert least(gaps(web, "rest")) >= 0.4 - JITTER


# -- robots.txt ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_robots_txt_is_fetched_once_per_origin(web: SyntheticWeb, rig: CrawlRig, workers: str) -> None:
    hosts = [f"once-{workers}-{number}" for number in range(4)]
    for host in hosts:
        star(web, host, 6)
    rig.crawl(*(web.url(host) for host in hosts), "--per-host", "4", "--workers", workers)
    assert {host: robots_hits(web, host) for host in hosts} == dict.fromkeys(hosts, 1)


def test_robots_txt_is_not_fetched_again_when_the_job_resumes_within_a_day(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    web.add("kept", "/robots.txt", text_reply("User-agent: *\nDisallow: /1\n"))
    url = star(web, "kept", 4)
    rig.crawl(url, "-n", "2")
    rig.crawl(url)
    assert robots_hits(web, "kept") == 1
    assert "/1" not in paths_of(web, "kept")


def test_a_robots_txt_that_may_not_be_kept_is_not_fetched_for_ever(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "forgetful", 4)
    crawled = rig.crawl(url, "--robots-ttl-seconds", "0", "--delay", "0.01")
    assert (len(crawled.records), robots_hits(web, "forgetful")) == (5, 1)


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_an_origin_without_robots_txt_allows_everything(
    web: SyntheticWeb, rig: CrawlRig, status: int
) -> None:
    host = f"absent-{status}"
    url = star(web, host, 2)
    web.add(host, "/robots.txt", text_reply("User-agent: *\nDisallow: /\n", status=status))
    assert len(rig.crawl(url).records) == 3


@pytest.mark.parametrize(
    "answer",
    [text_reply("", status=503), text_reply("", status=500), Reply(raw=b"\0\0\0\r\n\r\n"), Reply(raw=b"H")],
    ids=["503", "500", "garbage", "cut"],
)
def test_while_robots_txt_is_unreachable_nothing_is_fetched_and_other_hosts_finish(
    web: SyntheticWeb, rig: CrawlRig, answer: Reply, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    shut, fine = star(web, f"shut-{name}", 2), star(web, f"fine-{name}", 2)
    web.add(f"shut-{name}", "/robots.txt", answer)
    crawled = rig.crawl(shut, fine)
    assert (crawled.code, len(crawled.records)) == (0, 3)
    assert crawled.state(shut) == "held robots_unreachable"
    assert not paths_of(web, f"shut-{name}")
    assert robots_hits(web, f"shut-{name}") == 3


def test_a_resume_tries_an_unreachable_robots_txt_again(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "healed", 2)
    web.add("healed", "/robots.txt", text_reply("", status=503))
    assert rig.crawl(url).code == 4
    web.add("healed", "/robots.txt", text_reply("User-agent: *\nDisallow: /1\n"))
    crawled = rig.crawl(url)
    assert (crawled.code, paths_of(web, "healed")) == (0, ["/", "/0"])


def test_a_robots_txt_that_fails_at_first_is_obeyed_when_it_comes(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "late", 2)
    rules = text_reply("User-agent: *\nDisallow: /1\n")
    web.add("late", "/robots.txt", lambda hit: rules if hit.visit > 2 else text_reply("", status=503))
    assert rig.crawl(url).code == 0
    assert paths_of(web, "late") == ["/", "/0"]


def test_retry_after_on_robots_txt_is_waited_for(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "busy", 1)
    busy = text_reply("", status=429).with_headers(("Retry-After", "1"))
    web.add("busy", "/robots.txt", lambda hit: busy if hit.visit == 1 else text_reply(""))
    assert len(rig.crawl(url).records) == 2
    first, second = [hit.at for hit in web.hits if hit.host == "busy"][:2]
    assert second - first >= 1.0 - JITTER


def test_a_robots_txt_that_asks_for_a_long_wait_has_its_host_held(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "closed", 1)
    web.add("closed", "/robots.txt", text_reply("", status=503).with_headers(("Retry-After", "86400")))
    for _ in range(2):
        crawled = rig.crawl(url, "--sweep-seconds", "0.1")
        assert (crawled.code, crawled.state(url)) == (4, "held wait_too_long")
    assert robots_hits(web, "closed") == 1, "a resume waits as well"


def test_a_redirected_robots_txt_is_followed_even_to_another_host(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "moved", 2)
    there = text_reply("", status=301).with_headers(("Location", web.url("rules", "/my-robots.txt")))
    web.add("moved", "/robots.txt", there)
    web.add("rules", "/my-robots.txt", text_reply("User-agent: *\nDisallow: /1\n"))
    rig.crawl(url)
    assert paths_of(web, "moved") == ["/", "/0"]


def test_no_robots_asks_for_no_robots_txt_and_goes_everywhere(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "rude", 2)
    web.add("rude", "/robots.txt", text_reply("User-agent: *\nDisallow: /\n"))
    assert len(rig.crawl(url, "--no-robots").records) == 3
    assert robots_hits(web, "rude") == 0


def test_crawl_delay_is_honoured_where_it_is_longer_than_ours(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "slower", 3)
    web.add("slower", "/robots.txt", text_reply("User-agent: gossamer\nCrawl-delay: 0.2\n"))
    rig.crawl(url, "--delay", "0.01", "--per-host", "4")
    assert least(gaps(web, "slower")) >= 0.2 - JITTER


def test_a_crawl_delay_without_end_is_cut_to_the_bound(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "slowest", 1)
    web.add("slowest", "/robots.txt", text_reply("User-agent: *\nCrawl-delay: 9999\n"))
    crawled = rig.crawl(url, "--max-crawl-delay-seconds", "0.1")
    assert len(crawled.records) == 2
    assert least(gaps(web, "slowest")) >= 0.1 - JITTER


# -- when a host asks for rest ---------------------------------------------------------------------------


def once(status: int, *headers: Callable[[], tuple[str, str]]) -> Callable[[Hit], Reply]:
    """Answer the first visit with a status and headers made at that moment, and then with a page."""

    def answer(hit: Hit) -> Reply:
        if hit.visit > 1:
            return html()
        return text_reply("later\n", status=status).with_headers(*(header() for header in headers))

    return answer


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_in_seconds_pauses_the_whole_host(web: SyntheticWeb, rig: CrawlRig, status: int) -> None:
    host = f"pause-{status}"
    url = star(web, host, 3)
    web.add(host, "/0", once(status, lambda: ("Retry-After", "1")))
    crawled = rig.crawl(url)
    assert len(crawled.records) == 4
    hits = hits_of(web, host)
    asked = next(place for place, hit in enumerate(hits) if hit.path == "/0")
    assert hits[asked + 1].at - hits[asked].at >= 1.0 - JITTER
    assert crawled.record(web.url(host, "/0"))["attempt"] == 2


def test_retry_after_as_a_date_pauses_the_host(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "date", 2)
    until = int(time.time()) + 3
    web.add("date", "/0", once(503, lambda: ("Retry-After", formatdate(until, usegmt=True))))
    assert len(rig.crawl(url).records) == 3
    hits = hits_of(web, "date")
    asked = next(place for place, hit in enumerate(hits) if hit.path == "/0")
    assert hits[asked + 1].wall >= until - JITTER


def test_a_longer_wait_than_we_are_willing_to_has_the_host_held_and_the_others_finish(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    away, here = star(web, "away", 3), star(web, "here", 2)
    web.add("away", "/0", once(503, lambda: ("Retry-After", "86400")))
    crawled = rig.crawl(away, here, "--sweep-seconds", "0.2")
    assert crawled.code == 0
    assert {crawled.state(web.url("away", f"/{n}")) for n in range(3)} == {"held wait_too_long"}
    assert len(crawled.records) == 4
    assert paths_of(web, "away") == ["/", "/0"]


def test_one_host_that_rests_does_not_hold_up_another(web: SyntheticWeb, rig: CrawlRig) -> None:
    tired, awake = star(web, "tired", 1), star(web, "awake", 5)
    web.add("tired", "/0", once(503, lambda: ("Retry-After", "2")))
    rig.crawl(tired, awake)
    assert max(hit.at for hit in hits_of(web, "awake")) < max(hit.at for hit in hits_of(web, "tired"))
