"""Limits end a run exactly where they say, with success, and a higher one goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gossamer.testing.crawl_rig import CrawlRig, hits_of, html, paths_of, serve
from gossamer.testing.synthetic_reply import text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

BODY_BYTES = 10_000


def star(web: SyntheticWeb, host: str, leaves: int) -> str:
    """Serve a page that links to many leaves."""
    paths = [f"/{number}" for number in range(leaves)]
    return serve(web, host, {"/": paths} | {path: [] for path in paths})


def chain(web: SyntheticWeb, host: str, length: int) -> str:
    """Serve pages of which each links to the next."""
    return serve(web, host, {f"/{number}": [f"/{number + 1}"] for number in range(length)})


# -- depth -----------------------------------------------------------------------------------------------


def test_depth_0_fetches_the_seeds_alone(web: SyntheticWeb, rig: CrawlRig) -> None:
    crawled = rig.crawl(chain(web, "flat", 3), "-d", "0")
    assert paths_of(web, "flat") == ["/0"]
    assert crawled.state(web.url("flat", "/1")) == "refused depth"


def test_depth_is_the_number_of_steps_from_a_seed(web: SyntheticWeb, rig: CrawlRig) -> None:
    crawled = rig.crawl(chain(web, "steps", 6), "-d", "2")
    assert [(record["url"], record["depth"]) for record in crawled.records] == [
        (web.url("steps", f"/{n}"), n) for n in range(3)
    ]
    assert crawled.code == 0


def test_a_higher_depth_revives_what_was_too_deep(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = chain(web, "raised", 6)
    rig.crawl(url, "-d", "1")
    crawled = rig.crawl(url, "-d", "3")
    assert crawled.urls == [web.url("raised", f"/{n}") for n in range(4)]
    assert paths_of(web, "raised") == ["/0", "/1", "/2", "/3"]
    assert crawled.state(web.url("raised", "/4")) == "refused depth"


def test_the_same_depth_again_fetches_nothing(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = chain(web, "again", 4)
    rig.crawl(url, "-d", "1")
    crawled = rig.crawl(url, "-d", "1")
    assert (crawled.code, len(crawled.records)) == (0, 2)
    assert "nothing left to fetch" in crawled.err
    assert paths_of(web, "again") == ["/0", "/1"]


def test_a_page_found_later_on_a_shorter_way_is_fetched_after_all(web: SyntheticWeb, rig: CrawlRig) -> None:
    """The first way to /goal is too long; the second, found after it was refused, is not."""
    url = serve(
        web,
        "shorter",
        {"/": ["/quick/", "/slow"], "/quick/": ["/far/"], "/far/": ["/goal"], "/slow": ["/goal"]},
    )
    web.add("shorter", "/slow", replace(html("/goal"), delay_seconds=0.3))
    web.add("shorter", "/goal", html())
    crawled = rig.crawl(url, "-d", "2", "--commit-seconds", "0.01", "--per-host", "2")
    assert crawled.record(web.url("shorter", "/goal"))["depth"] == 2
    assert Counter(paths_of(web, "shorter"))["/goal"] == 1


# -- pages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 25])
def test_max_pages_gives_exactly_that_many_records(web: SyntheticWeb, rig: CrawlRig, limit: int) -> None:
    host = f"exactly-{limit}"
    crawled = rig.crawl(star(web, host, 60), "-n", str(limit), "--per-host", "8")
    assert (crawled.code, len(crawled.records)) == (0, limit)
    assert len(hits_of(web, host)) == limit, "nothing is fetched for nothing"
    assert "page limit" in crawled.err


def test_what_the_page_limit_left_is_held_and_a_higher_limit_goes_on(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = star(web, "higher", 20)
    first = rig.crawl(url, "-n", "5")
    assert Counter(row.reason for row in first.rows.values()) == {"ok": 5, "page_limit": 16}
    second = rig.crawl(url, "-n", "12")
    assert (second.code, len(second.records)) == (0, 12)
    third = rig.crawl(url)
    assert (third.code, len(third.records)) == (0, 21)
    assert max(Counter(paths_of(web, "higher")).values()) == 1


def test_the_same_page_limit_again_fetches_nothing(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "same", 20)
    rig.crawl(url, "-n", "5")
    again = rig.crawl(url, "-n", "5")
    assert (again.code, len(again.records)) == (0, 5)
    assert len(hits_of(web, "same")) == 5


def test_a_page_limit_that_is_just_enough_is_no_reason_to_hold_anything(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    crawled = rig.crawl(star(web, "enough", 4), "-n", "5")
    assert {row.reason for row in crawled.rows.values()} == {"ok"}


def test_failures_and_redirects_do_not_count_as_pages(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "odd", 6)
    web.add("odd", "/0", text_reply("", status=301).with_headers(("Location", "/5")))
    web.add("odd", "/1", replace(html(), raw=b"not http at all\r\n\r\n"))
    crawled = rig.crawl(url, "-n", "4", "--retries", "0")
    assert len(crawled.records) == 4


def test_max_pages_per_host_is_exact_and_other_hosts_go_on(web: SyntheticWeb, rig: CrawlRig) -> None:
    seeds = [star(web, host, 15) for host in ("busy-a", "busy-b")]
    crawled = rig.crawl(*seeds, "--max-pages-per-host", "4", "--per-host", "3")
    assert crawled.code == 0
    for host in ("busy-a", "busy-b"):
        assert len(hits_of(web, host)) == 4
    assert len(crawled.records) == 8
    assert Counter(row.reason for row in crawled.rows.values()) == {"ok": 8, "host_limit": 24}


def test_a_higher_limit_per_host_goes_on(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "per-host", 15)
    rig.crawl(url, "--max-pages-per-host", "4")
    assert len(rig.crawl(url, "--max-pages-per-host", "9").records) == 9
    assert len(rig.crawl(url).records) == 16
    assert max(Counter(paths_of(web, "per-host")).values()) == 1


# -- time and size ---------------------------------------------------------------------------------------


def test_the_time_limit_ends_a_long_crawl_with_success_and_it_can_go_on(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = star(web, "timed", 400)
    first = rig.crawl(url, "--delay", "0.05", "--time", "2")
    assert first.code == 0
    assert "time limit" in first.err
    assert 1 <= len(first.records) < 60
    assert {row.state.label for row in first.rows.values()} == {"fetched", "queued"}
    second = rig.crawl(url, "-n", str(len(first.records) + 3))
    assert len(second.records) == len(first.records) + 3


def test_max_total_size_ends_the_crawl_soon_after_that_many_bytes(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = star(web, "heavy", 40)
    for number in range(40):
        web.add("heavy", f"/{number}", text_reply("x" * BODY_BYTES))
    crawled = rig.crawl(url, "--max-total-size", "50kB", "--commit-pages", "1")
    assert crawled.code == 0
    assert "size limit" in crawled.err
    assert 5 <= len(crawled.records) <= 10


def test_a_page_larger_than_max_size_fails_without_being_read_to_its_end(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "sized", {"/": ["/large", "/small"], "/small": []})
    web.add("sized", "/large", text_reply("x" * BODY_BYTES))
    crawled = rig.crawl(url, "--max-size", "5000")
    assert crawled.state(web.url("sized", "/large")) == "failed too_large"
    assert sorted(crawled.urls) == [url, web.url("sized", "/small")]
    assert paths_of(web, "sized").count("/large") == 1, "it will not be smaller next time"
