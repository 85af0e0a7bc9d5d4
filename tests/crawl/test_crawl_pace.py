"""Who shares a clock, and how the pace follows what hosts say and how they fare."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.testing.crawl_rig import CrawlRig, hits_of, html, paths_of
from gossamer.testing.stalls import quiet_gaps
from gossamer.testing.synthetic_reply import Hit, Reply, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

JITTER = 0.04
#: Trouble is over soon, whichever way it ends.
IMPATIENT = ("--sweep-seconds", "0.05", "--max-backoff-seconds", "0.1", "--max-adaptive-delay-seconds", "0.1")
CHALLENGE = Reply(
    status=403,
    headers=(("Content-Type", "text/html"), ("Server", "cloudflare"), ("CF-Mitigated", "challenge")),
    body=b"<title>Just a moment...</title>",
)


def arrivals(web: SyntheticWeb, *hosts: str) -> list[float]:
    return sorted(hit.at for hit in web.hits if hit.host in hosts)


def least_gap(moments: list[float]) -> float:
    """Return the least of the gaps; where nothing can be said of any, none is too short."""
    return min(quiet_gaps(moments), default=math.inf)


def delays(rig: CrawlRig, job: str = "job") -> list[float]:
    """Return the delay in force at each page request, in order."""
    with SqliteReader(rig.jobs / job / "ledger.sqlite") as reader:
        rows = reader._ask("SELECT delay FROM fetches WHERE kind = 'page' ORDER BY started_at")
    return [row[0] for row in rows]


def star(web: SyntheticWeb, host: str, leaves: int) -> str:
    paths = [f"/{number}" for number in range(leaves)]
    web.add(host, "/", html(*paths))
    for path in paths:
        web.add(host, path, html())
    return web.url(host)


# -- groups ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group_by", "hosts"), [("domain", ("x.pace", "y.pace")), ("ip", ("pace-one", "pace-two"))]
)
def test_hosts_of_one_domain_or_address_share_a_delay_when_asked_to(
    web: SyntheticWeb, rig: CrawlRig, group_by: str, hosts: tuple[str, str]
) -> None:
    urls = [star(web, host, 2) for host in hosts]
    crawled = rig.crawl(*urls, "--delay", "0.1", "--group-by", group_by)
    assert len(crawled.records) == 6
    assert least_gap(arrivals(web, *hosts)) >= 0.1 - JITTER
    assert rig.run("audit", "job", "--jobs-dir", str(rig.jobs)).code == 0


def test_by_default_each_host_has_a_clock_of_its_own(web: SyntheticWeb, rig: CrawlRig) -> None:
    hosts = ("x.own", "y.own")
    rig.crawl(*[star(web, host, 2) for host in hosts], "--delay", "0.2")
    assert min(later - earlier for earlier, later in pairwise(arrivals(web, *hosts))) < 0.1


def test_the_longest_crawl_delay_of_a_group_holds_for_all_of_it(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("x.slow", "/robots.txt", text_reply("User-agent: *\nCrawl-delay: 0.3\n"))
    urls = [star(web, "x.slow", 3), star(web, "y.slow", 3)]
    rig.crawl(*urls, "--delay", "0.05", "--group-by", "domain")
    slow = [hit.at for hit in web.hits if hit.host in ("x.slow", "y.slow")]
    known_at = next(hit.at for hit in web.hits if hit.host == "x.slow" and hit.path == "/robots.txt")
    assert least_gap([moment for moment in slow if moment >= known_at]) >= 0.3 - JITTER


# -- adapting --------------------------------------------------------------------------------------------


def test_a_slow_answer_is_followed_by_a_rest_in_proportion(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "plod", 2)
    web.add("plod", "/0", replace(html(), delay_seconds=0.3))
    rig.crawl(url, "--delay", "0.02")
    assert delays(rig)[-1] >= 0.6


def test_complaints_slow_a_host_down_and_good_answers_let_it_recover(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    def busy_once(hit: Hit) -> Reply:
        return html() if hit.visit > 1 else Reply(status=429, headers=(("Retry-After", "0"),))

    url = star(web, "busy", 30)
    web.add("busy", "/0", busy_once)
    rig.crawl(url, "--delay", "0.01")
    seen = delays(rig)
    assert max(seen) >= 0.5
    # A single answer may be slow, and have a rest of its own.
    assert min(seen[seen.index(max(seen)) :]) < max(seen) / 3
    assert rig.run("audit", "job", "--jobs-dir", str(rig.jobs)).code == 0


def test_without_adaption_the_delay_stays_what_it_was(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "fixed", 3)
    web.add("fixed", "/0", replace(html(), delay_seconds=0.2))
    rig.crawl(url, "--delay", "0.02", "--no-adaptive")
    assert set(delays(rig)) == {0.02}


# -- hosts that fail -------------------------------------------------------------------------------------


def test_a_host_that_keeps_failing_is_parked_probed_and_held_and_the_others_finish(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    healthy = star(web, "healthy", 5)
    web.add("dying", "/", html(*[f"/{number}" for number in range(40)]))
    for number in range(40):
        web.add("dying", f"/{number}", Reply(raw=b"HT"))
    crawled = rig.crawl(healthy, web.url("dying"), "--retries", "1", *IMPATIENT)
    assert crawled.code == 0
    assert len(crawled.records) == 7
    reasons = [row.reason for url, row in crawled.rows.items() if "dying" in url and row.reason != "ok"]
    assert set(reasons) <= {"host_failing", "disconnected"}
    assert reasons.count("host_failing") >= 36
    assert len(hits_of(web, "dying")) <= 1 + 8, "five failures, three probes, and no more"
    for number in range(40):
        web.add("dying", f"/{number}", html())
    resumed = rig.crawl(healthy, web.url("dying"), "--retries", "1")
    assert len(resumed.records) == 7 + reasons.count("host_failing")


def test_a_block_page_is_reported_and_not_fought(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("walled", "/", html(*[f"/{number}" for number in range(40)]))
    for number in range(40):
        web.add("walled", f"/{number}", CHALLENGE)
    crawled = rig.crawl(web.url("walled"), *IMPATIENT)
    assert crawled.urls == [web.url("walled")]
    states = {crawled.state(url) for url in crawled.rows if url != web.url("walled")}
    assert states == {"held blocked"}
    assert len(set(paths_of(web, "walled"))) == len(paths_of(web, "walled")), "no page is tried twice"
    assert len(paths_of(web, "walled")) <= 10
    assert "block page or CAPTCHA" in crawled.err


# -- several jobs ----------------------------------------------------------------------------------------


def test_two_jobs_at_once_keep_the_delay_of_a_host_together(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "shared", 5)
    command = [sys.executable, "-m", "gossamer"]
    jobs = [
        subprocess.Popen(
            [*command, *rig.arguments("crawl", url, "--delay", "0.2", job=name, output=f"{name}.jsonl")]
        )
        for name in ("one", "two")
    ]
    assert [job.wait(60) for job in jobs] == [0, 0]
    moments = arrivals(web, "shared")
    assert len(moments) == 2 * 7
    assert least_gap(moments) >= 0.2 - JITTER
    # A few of the gaps may be those of a busy machine.
    assert statistics.median(later - earlier for earlier, later in pairwise(moments)) < 0.36, (
        "they took turns"
    )


def test_a_pause_one_job_was_asked_for_holds_for_the_next(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("tired", "/", Reply(status=503, headers=(("Retry-After", "2"),)))
    rig.crawl(web.url("tired"), "--retries", "0", "--delay", "0.05", job="one", output="one.jsonl")
    rig.crawl(web.url("tired"), "--retries", "0", "--delay", "0.05", job="two", output="two.jsonl")
    asked = [hit.at for hit in hits_of(web, "tired")]
    assert asked[1] - asked[0] >= 2 - JITTER
