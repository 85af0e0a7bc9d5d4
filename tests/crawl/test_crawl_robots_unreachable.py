"""A robots.txt that stays away: nothing is fetched, across runs, until the days that were agreed on are over."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from gossamer.testing.crawl_rig import CrawlRig, Ended, paths_of, read_jsonl, serve
from gossamer.testing.stalls import quiet_gaps
from gossamer.testing.synthetic_reply import Reply, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

DOWN = text_reply("", status=503)
DAY = 86_400
THIRTY_DAYS = ("--robots-unreachable-days", "30")


def pass_days(rig: CrawlRig, days: float) -> None:
    """Make a job that many days older: all it knows of robots.txt and of clocks moves into the past."""
    with closing(sqlite3.connect(rig.jobs / "job" / "ledger.sqlite")) as ledger, ledger:
        for table, column in (
            ("robots_failures", "since"),
            ("robots", "fetched_at"),
            ("fetches", "started_at"),
            ("groups", "last_start"),
            ("groups", "until"),
        ):
            ledger.execute(f"UPDATE {table} SET {column} = {column} - ?", (days * DAY,))


def notes(rig: CrawlRig) -> list[str]:
    """Return the notes in the log of a job, in order."""
    return [line["text"] for line in read_jsonl(rig.jobs / "job" / "log.jsonl") if line["event"] == "note"]


def audit(rig: CrawlRig) -> dict[str, Any]:
    ended = rig.run("audit", "job", "--json", "--jobs-dir", str(rig.jobs))
    result: dict[str, Any] = json.loads(ended.out)
    return {"code": ended.code, **result}


def robots(rig: CrawlRig, url: str) -> Ended:
    return rig.run("robots", url, "--job", "job", "--jobs-dir", str(rig.jobs))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_origin_without_answer_for_thirty_days_is_crawled_and_the_audit_knows_why(
    web: SyntheticWeb, rig: CrawlRig, workers: str
) -> None:
    host = f"away-{workers}"
    url = serve(web, host, {"/": ["/a", "/b"], "/a": [], "/b": []})
    web.add(host, "/robots.txt", DOWN)
    flags = (*THIRTY_DAYS, "--workers", workers)
    for days in (10, 19, 1.1):
        crawled = rig.crawl(url, *flags)
        assert (crawled.code, crawled.state(url)) == (4, "held robots_unreachable")
        assert not paths_of(web, host)
        assert robots(rig, url).code == 4
        pass_days(rig, days)
    crawled = rig.crawl(url, *flags)
    assert (crawled.code, sorted(paths_of(web, host))) == (0, ["/", "/a", "/b"])
    (note,) = notes(rig)
    origin = url.rstrip("/")
    assert (
        note
        == f"robots.txt of {origin}: unreachable for 30.1 days: its absence is assumed, so all is allowed"
    )
    result = audit(rig)
    assert (result["code"], result["violations"], result["assumed_pages"]) == (0, [], 3)
    shown = robots(rig, url)
    assert shown.code == 0
    assert "no longer waited for (--robots-unreachable-days)" in shown.out


def test_the_last_copy_is_obeyed_when_the_days_are_over(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "copy", {"/": ["/secret", "/page"], "/page": [], "/secret": []})
    web.add("copy", "/robots.txt", text_reply("User-agent: *\nDisallow: /secret\n"))
    rig.crawl(url, *THIRTY_DAYS, "-n", "1")
    web.add("copy", "/robots.txt", Reply(raw=b"H"))
    pass_days(rig, 2)
    assert rig.crawl(url, *THIRTY_DAYS).state(url + "page") == "held robots_unreachable"
    pass_days(rig, 30)
    crawled = rig.crawl(url, *THIRTY_DAYS)
    assert crawled.state(url + "secret") == "refused robots"
    assert paths_of(web, "copy") == ["/", "/page"]
    assert notes(rig)[-1].endswith("unreachable for 30.0 days: the last copy is used")
    result = audit(rig)
    assert (result["code"], result["assumed_pages"]) == (0, 1)


def test_an_answer_in_between_begins_the_days_anew(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "blink", {"/": ["/a"], "/a": []})
    web.add("blink", "/robots.txt", DOWN)
    rig.crawl(url, *THIRTY_DAYS)
    pass_days(rig, 20)
    web.add("blink", "/robots.txt", text_reply(""))
    rig.crawl(url, *THIRTY_DAYS, "-n", "1")
    web.add("blink", "/robots.txt", DOWN)
    pass_days(rig, 20)
    assert rig.crawl(url, *THIRTY_DAYS).state(url + "a") == "held robots_unreachable"
    assert paths_of(web, "blink") == ["/"]


def test_without_the_setting_no_number_of_days_opens_an_origin(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "closed", {"/": []})
    web.add("closed", "/robots.txt", DOWN)
    for _ in range(2):
        assert rig.crawl(url).state(url) == "held robots_unreachable"
        pass_days(rig, 1000)
    assert not paths_of(web, "closed")


def test_a_host_that_is_given_up_still_gets_the_rest_it_asks_for(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "tired", {"/": []})
    web.add("tired", "/robots.txt", DOWN)
    rig.crawl(url, *THIRTY_DAYS)
    pass_days(rig, 31)
    web.add("tired", "/robots.txt", DOWN.with_headers(("Retry-After", "1")))
    assert rig.crawl(url, *THIRTY_DAYS).code == 0
    asked, fetched = [hit.at for hit in web.hits if hit.host == "tired"][-2:]
    assert fetched - asked >= 0.9


def test_a_request_rate_is_kept_and_one_that_nobody_can_mean_is_ignored_with_a_note(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "rate", {"/": ["/a"], "/a": []})
    rules = "User-agent: *\nRequest-rate: 10/4\nCrawl-delay: 99999999\n"
    web.add("rate", "/robots.txt", text_reply(rules))
    assert rig.crawl(url).code == 0
    gaps = quiet_gaps(hit.at for hit in web.hits if hit.host == "rate")
    assert min(gaps, default=0.4) >= 0.36
    (note,) = notes(rig)
    assert note.endswith("Crawl-delay 99999999 ignored: it is longer than 86,400 s (line 3)")
    assert audit(rig)["code"] == 0
