"""Places without end, crawled without a depth limit."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from gossamer.testing.crawl_rig import CrawlRig, html, paths_of
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb


@pytest.fixture
def web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread() as web:
        yield web


def test_a_crawl_of_a_trap_ends_by_itself_and_says_why(web: SyntheticWeb, tmp_path: Path) -> None:
    rig = CrawlRig(tmp_path)
    crawled = rig.crawl(web.url("trap"), "--max-calendar-depth", "20")
    assert crawled.code == 0
    refused = {row.detail.partition(":")[0] for row in crawled.rows.values() if row.reason == "trap"}
    assert {"calendar", "path_loop"} <= refused
    assert len(paths_of(web, "trap")) < 60


def test_without_traps_only_a_limit_ends_it(web: SyntheticWeb, tmp_path: Path) -> None:
    crawled = CrawlRig(tmp_path).crawl(web.url("trap"), "--no-traps", "-n", "80")
    assert len(crawled.records) == 80
    assert not [row for row in crawled.rows.values() if row.reason == "trap"]


# -- pages that are nearly the same ----------------------------------------------------------------------

#: Suspicion begins after 20 URLs and leaves 30. Without it, the page limit would be the end.
WARY = (
    "-n",
    "2000",
    "--suspect-from-urls",
    "20",
    "--min-suspect-urls",
    "30",
    "--compare-every-pages",
    "4",
    "--per-host",
    "4",
)
HONEST = [f"/papers/{number}" for number in range(300)]


def page(title: str, body: str, *hrefs: str) -> Reply:
    links = "".join(f'<a href="{href}">on</a>' for href in hrefs)
    return Reply(body=f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{body}</p>{links}".encode())


def named(number: int) -> str:
    """Return a name of letters for a number."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def honest_page(hit: Hit) -> Reply:
    number = int(hit.path.rpartition("/")[2])
    chance = random.Random(number)
    return page("Paper", " ".join(f"w{chance.randrange(5000)}" for _ in range(200)))


def menu_page(hit: Hit) -> Reply:
    """Answer with a page that is a large menu, and a name of its own."""
    menu = " ".join(f"menu{number}" for number in range(2000))
    return page(f"Cup {named(int(hit.path.rpartition('/')[2]))}", menu)


TEXT = " ".join(f"word{number}" for number in range(400))


def endless(link: Callable[[int], str]) -> Callable[[Hit], Reply]:
    """Answer every number with the same text but for the number, and links to the next ones."""

    def answer(hit: Hit) -> Reply:
        number = int(re.findall(r"\d+", hit.path)[-1])
        nearby = (link(number + step) for step in (1, 2, 3))
        return page(f"Item {number}", f"{TEXT} {number}", *nearby)

    return answer


TRAPS_BY_NAME: dict[str, tuple[str, Callable[[int], str]]] = {
    "folder": ("/items/*", "/items/{}".format),
    "queries": ("/items", "/items?page={}".format),
    "folders": ("/items/*", "/items/x{}/show".format),
}


@pytest.mark.parametrize("name", TRAPS_BY_NAME)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_generator_of_near_duplicates_ends_by_itself_and_honest_pages_beside_it_are_all_fetched(
    web: SyntheticWeb, tmp_path: Path, name: str, workers: str
) -> None:
    pattern, link = TRAPS_BY_NAME[name]
    web.add("mixed", "/", html(link(0), *HONEST))
    web.add("mixed", pattern, endless(link))
    web.add("mixed", "/papers/*", honest_page)
    flags = (*WARY, "--workers", workers, "--suspects-per-halving", "1")
    crawled = CrawlRig(tmp_path).crawl(web.url("mixed"), *flags)
    assert crawled.code == 0
    refused = [row for row in crawled.rows.values() if row.reason == "trap"]
    assert refused
    assert all("nearly the same" in row.detail for row in refused)
    assert all("/items" in row.url for row in refused)
    assert {web.url("mixed", path) for path in HONEST} <= set(crawled.urls)
    items = [path for path in paths_of(web, "mixed") if path.startswith("/items")]
    assert 30 <= len(items) <= 30 * int(workers) + 60


def test_an_endless_calendar_of_the_same_day_ends_before_its_depth(web: SyntheticWeb, tmp_path: Path) -> None:
    def day(hit: Hit) -> Reply:
        now = date.fromisoformat(hit.path.rpartition("=")[2]) if "=" in hit.path else date(2024, 1, 1)
        links = (f"/cal?date={now + timedelta(days=step)}" for step in (1, 7, 30))
        return page(f"{now:%B} {now.day}", f"{TEXT} {now}", *links)

    web.add("days", "/", html("/cal", *HONEST[:50]))
    web.add("days", "/cal", day)
    web.add("days", "/papers/*", honest_page)
    crawled = CrawlRig(tmp_path).crawl(web.url("days"), *WARY, "--suspects-per-halving", "1")
    assert crawled.code == 0
    asked = [path for path in paths_of(web, "days") if path.startswith("/cal")]
    assert 30 <= len(asked) < 120
    assert {web.url("days", path) for path in HONEST[:50]} <= set(crawled.urls)
    assert {row.detail.partition(":")[0] for row in crawled.rows.values() if row.reason == "trap"} == {
        "queries"
    }


def test_a_host_that_says_not_found_with_a_success_ends_by_itself(web: SyntheticWeb, tmp_path: Path) -> None:
    def nothing(hit: Hit) -> Reply:
        number = int(hit.path.rpartition("/")[2])
        chance = random.Random(number)
        words = " ".join(f"w{chance.randrange(10**9)}" for _ in range(40))
        links = [f"/void/{number * 2 + step}" for step in (1, 2)]
        return page(f"{number} - Page not found", words, *links)

    web.add("void", "/", html("/void/1", *HONEST[:50]))
    web.add("void", "/void/*", nothing)
    web.add("void", "/papers/*", honest_page)
    crawled = CrawlRig(tmp_path).crawl(web.url("void"), *WARY, "--suspects-per-halving", "1")
    assert crawled.code == 0
    assert len([path for path in paths_of(web, "void") if path.startswith("/void")]) < 120
    assert {row.reason for row in crawled.rows.values() if "/void/" not in row.url} == {"ok"}


@pytest.mark.parametrize("answer", [honest_page, menu_page])
def test_a_large_honest_folder_loses_nothing(
    web: SyntheticWeb, tmp_path: Path, answer: Callable[[Hit], Reply]
) -> None:
    def chained(hit: Hit) -> Reply:
        """Link to the next few pages only: the others are found while pages are compared."""
        number = int(hit.path.rpartition("/")[2])
        nearby = range(number + 1, min(number + 9, 2000))
        links = "".join(f'<a href="/papers/{other}">on</a>' for other in nearby)
        return Reply(body=answer(hit).body + links.encode())

    web.add("large", "/", html("/papers/0"))
    web.add("large", "/papers/*", chained)
    crawled = CrawlRig(tmp_path).crawl(web.url("large"), "--per-host", "8")
    assert {web.url("large", f"/papers/{number}") for number in range(2000)} <= set(crawled.urls)
    assert {row.reason for row in crawled.rows.values()} == {"ok"}
