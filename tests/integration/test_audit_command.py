"""`gossamer audit` on the ledgers of real crawls, as they are and after they were tampered with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from gossamer.testing.crawl_rig import CrawlRig, Ended, html, serve
from gossamer.testing.synthetic_reply import redirect, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

RULES = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0.06\n"


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread(slow_seconds=0.1) as served:
        yield served


@pytest.fixture
def rig(tmp_path: Path) -> CrawlRig:
    return CrawlRig(tmp_path)


def site(web: SyntheticWeb, host: str, robots: str = RULES) -> str:
    web.add(host, "/robots.txt", text_reply(robots))
    for path in ("/a", "/b", "/private/c"):
        web.add(host, path, html())
    return serve(web, host, {"/": ["/a", "/b", "/private/c"]})


def audit(rig: CrawlRig, *flags: str) -> Ended:
    return rig.run("audit", "job", "--jobs-dir", str(rig.jobs), *flags)


def audit_json(rig: CrawlRig) -> tuple[int, dict[str, Any]]:
    ended = audit(rig, "--json")
    return ended.code, json.loads(ended.out)


def change(rig: CrawlRig, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(rig.jobs / "job" / "ledger.sqlite")) as ledger, ledger:
        assert ledger.execute(sql, parameters).rowcount > 0


def test_a_crawl_of_the_whole_web_is_polite(web: SyntheticWeb, rig: CrawlRig) -> None:
    arguments = ["--delay", "0.05", "--per-host", "2", "--workers", "2", "-n", "60", "--retries", "0"]
    rig.crawl(*(web.url(host) for host in ("docs", "shop", "blog")), *arguments)
    code, result = audit_json(rig)
    assert result["violations"] == []
    assert (code, result["polite"], result["robots_checked"], result["groups"]) == (0, True, True, 3)
    assert result["requests"] == result["pages"] + result["robots_files"]
    assert result["pages"] >= 60
    assert all(line["ratio"] > 0.97 for line in result["tightest"])
    assert result["unrecorded"] == {"runs": 0, "crashes": 0, "visits_at_most": 0}


def test_a_polite_job_is_said_to_be_so_in_a_few_lines(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(site(web, "plain"), "--delay", "0.05")
    ended = audit(rig)
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert lines[0] == "job         job: polite"
    assert lines[1] == "checked     4 requests to 1 host: 3 pages, 1 for robots.txt"
    assert lines[2].startswith("robots      every page, as Gossamer/")
    assert lines[3] == "unrecorded  none"
    assert lines[6].split()[:2] == ["plain.localhost", "4"]


def test_a_scrape_is_judged_at_every_hop(web: SyntheticWeb, rig: CrawlRig) -> None:
    there = site(web, "there")
    web.add("here", "/", redirect(there + "a"))
    rig.scrape(web.url("here"), "--delay", "0.05")
    code, result = audit_json(rig)
    assert (code, result["pages"], result["groups"]) == (0, 2, 2)


def test_a_resumed_job_is_polite_across_its_runs(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = site(web, "twice")
    for pages in ("1", "2", "3"):
        rig.crawl(url, "--delay", "0.05", "-n", pages)
    assert audit(rig).code == 0


#: Turns the request for robots.txt into one for a page that it forbids, an hour later.
TRESPASS = """
    UPDATE fetches SET url = replace(url, '/robots.txt', '/private/c'), kind = 'page',
        robots = (SELECT version FROM robots), started_at = started_at + 3600
    WHERE kind = 'robots'
"""
#: Keeps the delay that the log names, and not the one that robots.txt asks for.
HURRY = """
    UPDATE fetches SET started_at = (SELECT max(started_at) + 0.05 FROM fetches WHERE id < 4), delay = 0.04
    WHERE id = 4
"""


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("gap", "UPDATE fetches SET started_at = (SELECT max(started_at) - 0.01 FROM fetches) WHERE id = 2"),
        ("crawl_delay", HURRY),
        ("no_robots", "UPDATE fetches SET robots = 0 WHERE id = 3"),
        ("unknown_robots", "UPDATE fetches SET robots = robots + 1 WHERE id = 3"),
        ("unknown_robots", "UPDATE robots SET version = version + 1"),
        ("unknown_robots", "DELETE FROM robots"),
        ("before_robots", "UPDATE robots SET fetched_at = fetched_at + 3600"),
        ("forbidden", TRESPASS),
    ],
)
def test_whatever_is_changed_in_the_ledger_is_noticed(
    web: SyntheticWeb, rig: CrawlRig, kind: str, sql: str
) -> None:
    rig.crawl(site(web, "changed"), "--delay", "0.05")
    assert audit(rig).code == 0
    change(rig, sql)
    code, result = audit_json(rig)
    assert (code, result["polite"]) == (3, False)
    assert kind in {violation["kind"] for violation in result["violations"]}


def test_a_robots_txt_that_was_rewritten_is_noticed(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(site(web, "forged"), "--delay", "0.05")
    change(rig, "UPDATE robots SET body = ?", zstandard.compress(b"User-agent: *\nAllow: /\n"))
    ended = audit(rig)
    assert ended.code == 3
    assert ended.out.startswith("job         job: NOT polite, 3 violations\n")
    assert "altered_robots  http://forged.localhost" in ended.out


def test_with_robots_off_it_says_so_and_checks_the_gaps(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(site(web, "rude"), "--delay", "0.05", "--no-robots")
    ended = audit(rig)
    assert ended.code == 0
    assert "robots      NOT checked: the job does not ask robots.txt (--no-robots)" in ended.out
    change(rig, "UPDATE fetches SET delay = 9")
    assert audit(rig).code == 3


def test_turning_robots_on_later_does_not_excuse_what_was_fetched_before(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = site(web, "reformed")
    rig.crawl(url, "--no-robots", "-n", "1")
    rig.crawl(url)
    code, result = audit_json(rig)
    assert (code, [violation["kind"] for violation in result["violations"]]) == (3, ["no_robots"])


def test_a_url_that_would_drive_the_terminal_is_shown_harmlessly(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(site(web, "evil"), "--delay", "0.05")
    change(rig, "UPDATE fetches SET url = 'http://evil.localhost/\x1b[2J', robots = 0 WHERE id = 3")
    for flags in ((), ("--json",)):
        ended = audit(rig, *flags)
        assert (ended.code, "\x1b" in ended.out) == (3, False)


@pytest.mark.parametrize("damage", ["DROP TABLE robots", "DROP TABLE fetches"])
def test_a_damaged_ledger_is_no_verdict(web: SyntheticWeb, rig: CrawlRig, damage: str) -> None:
    rig.crawl(site(web, "damaged"), "--delay", "0")
    with closing(sqlite3.connect(rig.jobs / "job" / "ledger.sqlite")) as ledger:
        ledger.execute(damage)
    ended = audit(rig)
    assert (ended.code, ended.out) == (5, "")
    assert "damaged" in ended.err


def test_a_file_that_is_no_ledger_is_no_verdict(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(site(web, "noise"), "--delay", "0")
    (rig.jobs / "job" / "ledger.sqlite").write_bytes(b"noise" * 1000)
    assert audit(rig).code == 5


def test_a_job_that_does_not_exist_is_a_mistake_of_the_user(rig: CrawlRig) -> None:
    assert audit(rig).code == 2
