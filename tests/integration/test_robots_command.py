"""`gossamer robots`: what a robots.txt says about a URL, asked of the server or of a job's ledger."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from gossamer.testing.crawl_rig import CrawlRig, serve
from gossamer.testing.synthetic_reply import Reply, redirect, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

RULES = """User-agent: other
Disallow: /

User-agent: *
Disallow: /private/
Allow: /private/press
Crawl-delay: 5
Request-rate: 2/1m
Sitemap: https://example.org/sitemap.xml
"""


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread() as served:
        yield served


@pytest.fixture
def rig(tmp_path: Path) -> CrawlRig:
    return CrawlRig(tmp_path)


EMPTY = zstandard.compress(b"")


def change(rig: CrawlRig, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(rig.jobs / "job" / "ledger.sqlite")) as ledger, ledger:
        assert ledger.execute(sql, parameters).rowcount > 0


def ask(rig: CrawlRig, url: str, *flags: str) -> dict[str, Any]:
    ended = rig.run("robots", url, "--allow-private", "--json", *flags)
    assert (ended.code, ended.err) == (0, "")
    answer: dict[str, Any] = json.loads(ended.out)
    return answer


def test_a_forbidden_url_is_answered_with_the_line_that_forbids_it(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("rules", "/robots.txt", text_reply(RULES))
    url = web.url("rules", "/private/x")
    ended = rig.run("robots", url, "--allow-private")
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert lines[0] == f"forbidden   {url}"
    assert lines[2] == "rule        Disallow: /private/ (line 5, in the group for *)"
    assert lines[3] == "delay       30 s between requests (Crawl-delay: 5, Request-rate: 2 requests in 60 s)"
    assert lines[4] == "sitemap     https://example.org/sitemap.xml"
    assert lines[5] == f"robots.txt  {web.url('rules', '/robots.txt')}: status 200"
    assert lines[6].endswith("0 s ago; used for 1 d 0 h")


def test_only_robots_txt_is_fetched(web: SyntheticWeb, rig: CrawlRig) -> None:
    ask(rig, serve(web, "single", {"/": []}))
    assert [hit.path for hit in web.hits if hit.host == "single"] == ["/robots.txt"]


@pytest.mark.parametrize(
    ("path", "allowed", "rule", "line"),
    [
        ("/", True, "", 0),
        ("/private/press/kit", True, "Allow: /private/press", 6),
        ("/private/plan", False, "Disallow: /private/", 5),
    ],
)
def test_the_rule_that_decides_is_named(
    web: SyntheticWeb, rig: CrawlRig, path: str, allowed: bool, rule: str, line: int
) -> None:
    web.add("named", "/robots.txt", text_reply(RULES))
    answer = ask(rig, web.url("named", path))
    assert (answer["allowed"], answer["rule"], answer["line"]) == (allowed, rule, line)
    assert answer["group"] == (["*"] if line else [])


def test_another_user_agent_may_get_another_answer(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("agents", "/robots.txt", text_reply(RULES))
    answer = ask(rig, web.url("agents"), "--user-agent", "Other/2")
    assert (answer["allowed"], answer["group"], answer["user_agent"]) == (False, ["other"], "Other/2")
    assert (answer["crawl_delay"], answer["request_rate"], answer["delay"]) == (None, None, 1.0)
    assert web.hits[-1].headers["user-agent"] == "Other/2"


def test_a_long_crawl_delay_is_cut_to_the_bound(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("long", "/robots.txt", text_reply("User-agent: *\nCrawl-delay: 9999\n"))
    answer = ask(rig, web.url("long"), "--max-crawl-delay-seconds", "7")
    assert (answer["crawl_delay"], answer["delay"]) == (9999.0, 7.0)


def test_what_nobody_can_mean_is_shown_and_not_followed(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("odd", "/robots.txt", text_reply("User-agent: *\nCrawl-delay: 99999999\nRequest-rate: soon\n"))
    ended = rig.run("robots", web.url("odd"), "--allow-private")
    lines = ended.out.splitlines()
    assert lines[3:6] == [
        "delay       1 s between requests",
        "ignored     Crawl-delay: 99999999 (line 2): it is longer than 86,400 s",
        "ignored     Request-rate: soon (line 3): it is not a rate such as 1/10",
    ]
    answer = ask(rig, web.url("odd"), "--absurd-crawl-delay-seconds", "100000000")
    assert (answer["crawl_delay"], answer["delay"]) == (99999999.0, 60.0)
    assert [(each["directive"], each["line"]) for each in answer["ignored"]] == [("Request-rate", 3)]


def test_no_robots_txt_allows_everything(web: SyntheticWeb, rig: CrawlRig) -> None:
    ended = rig.run("robots", web.url("bare", "/x"), "--allow-private")
    assert ended.code == 0
    assert ended.out.startswith("allowed ")
    assert "none: there is no robots.txt, so all is allowed" in ended.out


def test_it_can_be_asked_with_robots_off_and_says_that_it_will_not_be_obeyed(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    web.add("off", "/robots.txt", text_reply(RULES))
    ended = rig.run("robots", web.url("off", "/private/x"), "--allow-private", "--no-robots")
    assert ended.out.startswith("forbidden ")
    assert "obeyed      no: --no-robots" in ended.out


def test_redirects_are_followed_and_shown(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("old", "/robots.txt", redirect(web.url("new", "/rules.txt")))
    web.add("new", "/rules.txt", text_reply(RULES))
    answer = ask(rig, web.url("old", "/private/"))
    assert (answer["allowed"], answer["redirected_to"]) == (False, web.url("new", "/rules.txt"))


def test_redirects_end_after_five(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("circle", "/robots.txt", redirect("/robots.txt"))
    answer = ask(rig, web.url("circle"), "--delay", "0")
    assert (answer["allowed"], answer["status"]) == (True, 404)
    assert sum(hit.host == "circle" for hit in web.hits) == 6


@pytest.mark.parametrize(
    "answer", [text_reply("", status=503), text_reply("", status=429), Reply(raw=b"H")], ids=str
)
def test_while_it_is_unreachable_nothing_may_be_fetched(
    web: SyntheticWeb, rig: CrawlRig, answer: Reply
) -> None:
    web.add("shut", "/robots.txt", answer)
    before = len(web.hits)
    ended = rig.run("robots", web.url("shut"), "--allow-private")
    assert (ended.code, ended.out) == (4, "")
    assert "nothing of this origin may be fetched (RFC 9309)" in ended.err
    assert len(web.hits) == before + 1


def test_a_private_address_is_not_asked(web: SyntheticWeb, rig: CrawlRig) -> None:
    before = len(web.hits)
    ended = rig.run("robots", web.url("docs"))
    assert (ended.code, len(web.hits)) == (4, before)
    assert "127.0.0.1" in ended.err


@pytest.mark.parametrize("word", ["example.org", "ftp://example.org/", "http://"])
def test_what_is_no_url_is_a_mistake_of_the_user(rig: CrawlRig, word: str) -> None:
    assert rig.run("robots", word).code == 2


def test_what_a_robots_txt_says_cannot_drive_the_terminal(web: SyntheticWeb, rig: CrawlRig) -> None:
    evil = "User-agent: *\x1b[2J\nDisallow: /\x1b]0;x\x07\nSitemap: \u202egnp\x9b31m\n"
    web.add("evil", "/robots.txt", text_reply(evil))
    for flags in ((), ("--json",)):
        ended = rig.run("robots", web.url("evil", "/%1b]0;x%07"), "--allow-private", *flags)
        assert ended.code == 0
        assert ended.out.replace("\n", "").isprintable()


# -- from a ledger ---------------------------------------------------------------------------------------


def ask_job(rig: CrawlRig, url: str, *flags: str) -> dict[str, Any]:
    return ask(rig, url, "--job", "job", "--jobs-dir", str(rig.jobs), *flags)


def test_a_job_answers_from_its_ledger_without_a_request(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "kept", {"/": []})
    web.add("kept", "/robots.txt", text_reply("User-agent: mine\nDisallow: /x\n"))
    rig.crawl(url, "--user-agent", "Mine", "--delay", "0.2")
    web.add("kept", "/robots.txt", text_reply(""))
    before = len(web.hits)
    answer = ask_job(rig, url + "x")
    assert (answer["allowed"], answer["user_agent"], answer["delay"]) == (False, "Mine", 0.2)
    assert (answer["age_seconds"] < 60, answer["ttl_seconds"]) == (True, 86_400.0)
    assert ask_job(rig, url + "x", "--user-agent", "Yours")["allowed"]
    assert len(web.hits) == before


def test_a_robots_txt_past_its_time_is_said_to_be_out_of_date(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "stale", {"/": []})
    rig.crawl(url)
    change(rig, "UPDATE robots SET fetched_at = fetched_at - 86401")
    ended = rig.run("robots", url, "--job", "job", "--jobs-dir", str(rig.jobs))
    assert "1 d 0 h ago; out of date after 1 d 0 h" in ended.out


def test_a_job_says_since_when_a_robots_txt_is_unreachable(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "lost", {"/": []})
    web.add("lost", "/robots.txt", text_reply("", status=503))
    asked = ("robots", url, "--job", "job", "--jobs-dir", str(rig.jobs))
    rig.crawl(url)
    change(rig, "UPDATE robots_failures SET since = 1800000000")
    never = rig.run(*asked)
    assert (never.code, never.out) == (4, "")
    assert "it is unreachable since 2027-01-15T08:00:00Z" in never.err
    change(rig, "INSERT INTO robots SELECT origin, since - 9, 404, 7, ? FROM robots_failures", EMPTY)
    assert "status 404; unreachable since 2027-01-15T08:00:00Z, so nothing may be" in rig.run(*asked).out
    change(rig, "UPDATE robots SET status = -1, fetched_at = fetched_at + 99")
    given_up = rig.run(*asked)
    assert given_up.out.startswith("allowed ")
    assert "none applies in what is assumed of robots.txt" in given_up.out
    assert "unreachable since 2027-01-15T08:00:00Z and no longer waited for" in given_up.out
    assert ask_job(rig, url)["unreachable_since"] == "2027-01-15T08:00:00Z"


def test_what_a_job_has_not_read_it_cannot_answer(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(serve(web, "known", {"/": []}))
    ended = rig.run("robots", "https://unknown.example/", "--job", "job", "--jobs-dir", str(rig.jobs))
    assert (ended.code, ended.out) == (4, "")
    assert "nothing of this origin may be fetched" in ended.err
