"""Transient failures: tried again with growing waits, then failed with their reason."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from gossamer.testing.crawl_rig import CrawlRig, hits_of, html, paths_of, serve
from gossamer.testing.synthetic_reply import Reply, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_transient_status_is_tried_again_and_then_fails_with_a_record(
    web: SyntheticWeb, rig: CrawlRig, status: int
) -> None:
    host = f"status-{status}"
    web.add(host, "/", html().with_status(status))
    crawled = rig.crawl(web.url(host), "--retries", "2")
    assert crawled.state(web.url(host)) == f"failed http_{status}"
    assert len(paths_of(web, host)) == 3
    assert [(record["status"], record["attempt"]) for record in crawled.records] == [(status, 3)]


@pytest.mark.parametrize("retries", ["0", "1"])
def test_retries_is_the_number_of_further_attempts(web: SyntheticWeb, rig: CrawlRig, retries: str) -> None:
    host = f"retries-{retries}"
    web.add(host, "/", text_reply("", status=500))
    rig.crawl(web.url(host), "--retries", retries)
    assert len(paths_of(web, host)) == 1 + int(retries)


def test_a_page_that_recovers_has_one_record_and_its_attempt(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("flaky", "/", lambda hit: html() if hit.visit > 2 else text_reply("", status=500))
    crawled = rig.crawl(web.url("flaky"))
    assert [(record["status"], record["attempt"]) for record in crawled.records] == [(200, 3)]
    assert crawled.state(web.url("flaky")) == "fetched ok"


def test_the_waits_between_attempts_double(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("waits", "/", text_reply("", status=500))
    rig.crawl(web.url("waits"), "--retries", "3", "--backoff-seconds", "0.1")
    waits = [later.at - earlier.at for earlier, later in pairwise(hits_of(web, "waits"))]
    assert [wait >= least for wait, least in zip(waits, (0.09, 0.19, 0.39), strict=True)] == [True] * 3


def test_other_pages_of_the_host_go_on_while_one_waits_for_its_next_attempt(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "around", {"/": ["/bad", "/a", "/b"], "/a": [], "/b": []})
    web.add("around", "/bad", text_reply("", status=500))
    rig.crawl(url, "--retries", "1", "--backoff-seconds", "1.5")
    assert paths_of(web, "around") == ["/", "/bad", "/a", "/b", "/bad"]


@pytest.mark.parametrize(
    ("reason", "reply"),
    [
        ("disconnected", Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")),
        ("timeout", replace(html(), delay_seconds=60.0)),
    ],
)
def test_a_transient_failure_without_answer_is_tried_again_and_then_fails(
    web: SyntheticWeb, rig: CrawlRig, reason: str, reply: Reply
) -> None:
    web.add(reason, "/", reply)
    crawled = rig.crawl(web.url(reason), "--retries", "1", "--timeout", "1.5")
    assert crawled.state(web.url(reason)) == f"failed {reason}"
    assert (crawled.code, crawled.urls, len(paths_of(web, reason))) == (4, [], 2)


@pytest.mark.parametrize(
    ("reason", "reply"),
    [
        ("protocol_error", Reply(raw=b"this is not http\r\n\r\n")),
        ("headers_too_large", html().with_headers(("X-Long", "x" * 100_000))),
        ("bad_content_encoding", html().with_headers(("Content-Encoding", "gzip"))),
    ],
)
def test_an_answer_that_will_not_be_better_next_time_fails_at_once(
    web: SyntheticWeb, rig: CrawlRig, reason: str, reply: Reply
) -> None:
    host = reason.replace("_", "-")
    web.add(host, "/", reply)
    crawled = rig.crawl(web.url(host))
    assert crawled.state(web.url(host)) == f"failed {reason}"
    assert len(paths_of(web, host)) == 1


def test_a_refused_connection_is_tried_again_and_then_fails(web: SyntheticWeb, rig: CrawlRig) -> None:
    """Without robots.txt in the way: with it the host would be held."""
    crawled = rig.crawl(web.url("dead"), "--no-robots", "--retries", "1")
    assert crawled.state(web.url("dead")) == "failed connect_error"
    assert "connect_error" in crawled.err
    assert crawled.code == 4


def test_a_page_that_drips_for_ever_ends_at_the_total_deadline(web: SyntheticWeb, rig: CrawlRig) -> None:
    """Every byte arrives in time for an idle timeout; only a deadline for the whole page ends it."""
    url = serve(web, "drip", {"/": ["/slow", "/fine"], "/fine": []})
    web.add("drip", "/slow", replace(text_reply("x" * 1000), drip_bytes=1, drip_seconds=0.05))
    crawled = rig.crawl(url, "--timeout", "2", "--retries", "0")
    assert crawled.state(web.url("drip", "/slow")) == "failed timeout"
    assert len(crawled.records) == 2


def test_a_page_slower_than_a_lease_is_fetched_once_all_the_same(web: SyntheticWeb, rig: CrawlRig) -> None:
    """A lease that ran out before the answer would have the page fetched again, and again too late."""
    web.add("patient", "/", replace(html(), delay_seconds=0.6))
    crawled = rig.crawl(web.url("patient"), "--lease-seconds", "0.1", "--sweep-seconds", "0.05")
    assert (len(crawled.records), paths_of(web, "patient")) == (1, ["/"])


def test_a_slow_robots_txt_ends_at_the_deadline_too(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("drip-2", "/robots.txt", replace(text_reply("x" * 1000), drip_bytes=1, drip_seconds=0.05))
    crawled = rig.crawl(web.url("drip-2"), "--timeout", "0.2", "--robots-probes", "1")
    assert crawled.state(web.url("drip-2")) == "held robots_unreachable"


def test_what_failed_is_not_tried_again_by_a_resume(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("final", "/", text_reply("", status=500))
    rig.crawl(web.url("final"), "--retries", "0")
    assert rig.crawl(web.url("final"), "--retries", "0").code == 4, (
        "a finished job has the code it ended with"
    )
    assert len(paths_of(web, "final")) == 1
