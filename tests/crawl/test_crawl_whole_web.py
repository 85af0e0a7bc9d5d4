"""The synthetic web from end to end: every URL ends as it should, and the servers saw nothing they should not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from gossamer.testing.crawl_rig import Crawled, CrawlRig
from gossamer.testing.synthetic_blog import CHARSETS
from gossamer.testing.synthetic_web import SyntheticWeb

#: What the web leaves to the crawler's policy, and ours.
POLICY = {
    ("shop", "/product/nettle-scarf"): "fetched",
    ("shop", "/gifts/nettle-scarf"): "fetched",
    ("lab", "/round/a"): "redirected",
    ("lab", "/round/b"): "failed",
    ("lab", "/members"): "fetched",
    ("lab", "/nothing"): "fetched",
    ("lab", "/empty"): "fetched",
    ("dead", "/"): "held",
    ("dead", "/page"): "held",
}
#: Paths that are asked for more than once, and how often: retries, and hops back into a chain of redirects.
REPEATED = {
    ("lab", "/failing"): 3,
    ("lab", "/flaky"): 3,
    ("lab", "/busy"): 2,
    ("lab", "/members"): 2,
    ("lab", "/round/a"): 2,
    ("lab", "/round/b"): 2,
}

Whole = tuple[SyntheticWeb, Crawled]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """Crawl all finite hosts once; every test reads the same crawl."""
    with SyntheticWeb.in_thread(slow_seconds=0.2) as web:
        rig = CrawlRig(tmp_path_factory.mktemp("whole"))
        yield web, rig.crawl(*web.finite_seeds, "--per-host", "4")


def test_the_crawl_ends_with_success_and_says_what_happened(whole: Whole) -> None:
    _, crawled = whole
    assert crawled.code == 0
    assert "done" in crawled.err
    assert "robots_unreachable" in crawled.err


def test_every_url_ends_in_the_state_that_is_expected_of_it(whole: Whole) -> None:
    web, crawled = whole
    policy = {web.url(host, path): state for (host, path), state in POLICY.items()}
    expected = {url: policy.get(url, item.state) for url, item in web.expected.items()}
    ended = {url: crawled.rows[url].state.label if url in crawled.rows else "absent" for url in expected}
    assert ended == expected


def test_every_url_has_the_last_status_its_server_gave(whole: Whole) -> None:
    web, crawled = whole
    expected = {url: item.status for url, item in web.expected.items()}
    assert {url: crawled.rows[url].status for url in expected} == expected


def test_the_ledger_knows_no_url_beyond_the_expected_ones_and_the_known_variants(whole: Whole) -> None:
    web, crawled = whole
    variants = {
        web.url("shop", "/product/nettle-scarf?utm_source=letter&utm_medium=mail"),
        web.url("elsewhere"),
    }
    assert set(crawled.rows) - set(web.expected) == variants
    assert crawled.state(web.url("elsewhere")) == "refused scope"


def test_every_final_response_has_one_record_and_nothing_else_has(whole: Whole) -> None:
    _, crawled = whole
    answered = {
        url
        for url, row in crawled.rows.items()
        if row.state.label == "fetched" or row.reason.startswith("http_")
    }
    assert Counter(crawled.urls) == Counter(answered)
    assert {record["url"]: record["status"] for record in crawled.records} == {
        url: crawled.rows[url].status for url in answered
    }


def test_every_page_is_asked_for_once_apart_from_retries_and_hops_back(whole: Whole) -> None:
    web, crawled = whole
    asked = Counter((hit.host, hit.path) for hit in web.hits if hit.path != "/robots.txt")
    repeated = {key: n for key, n in asked.items() if n > 1}
    assert repeated == REPEATED
    fetched = {url for url, row in crawled.rows.items() if row.status}
    assert {web.url(*key) for key in asked} == fetched


def test_nothing_that_robots_forbids_is_asked_for(whole: Whole) -> None:
    web, crawled = whole
    forbidden = {url for url, row in crawled.rows.items() if row.reason == "robots"}
    assert {web.url("docs", "/private/plan.html"), web.url("shop", "/cart")} <= forbidden
    assert not forbidden & {web.url(hit.host, hit.path) for hit in web.hits}


def test_links_marked_nofollow_and_pages_behind_nofollow_are_left_alone(whole: Whole) -> None:
    web, _ = whole
    assert not [hit.path for hit in web.hits if hit.path.startswith("/hidden/")]


def test_hosts_outside_the_scope_and_hosts_without_robots_txt_get_no_page_request(whole: Whole) -> None:
    web, _ = whole
    assert {hit.host for hit in web.hits if hit.path != "/robots.txt"} == {"docs", "shop", "blog", "lab"}


def test_robots_txt_is_asked_for_once_per_origin_unless_it_fails(whole: Whole) -> None:
    web, _ = whole
    asked = Counter(hit.host for hit in web.hits if hit.path == "/robots.txt")
    assert asked == {"docs": 1, "shop": 1, "blog": 1, "lab": 1, "broken": 3}


def test_pages_are_read_in_their_own_charset_unless_their_header_says_another(whole: Whole) -> None:
    web, crawled = whole
    titles = {path: crawled.record(web.url("blog", path))["title"] for path in CHARSETS}
    assert {path: title.partition(" | ")[0] for path, title in titles.items()} == {
        path: line.encode(codec).decode("utf-8", "replace") if "utf-8" in content_type else line
        for path, (content_type, codec, line) in CHARSETS.items()
    }


def test_a_binary_body_that_calls_itself_html_has_a_record_without_links(whole: Whole) -> None:
    web, crawled = whole
    record = crawled.record(web.url("lab", "/blob"))
    assert (record["status"], record["links"], record["title"], record["bytes"]) == (200, [], "", 4096)


def test_every_page_was_reached_by_the_element_that_leads_to_it(whole: Whole) -> None:
    web, crawled = whole
    for path, parent in (
        ("/map/0.html", "/map.html"),
        ("/frames/left.html", "/frames.html"),
        ("/embed/inner.html", "/embed.html"),
        ("/based/here/leaf.html", "/base.html"),
        ("/moved/new.html", "/moved.html"),
        ("/de/", "/"),
    ):
        assert crawled.record(web.url("docs", path))["parent"] == web.url("docs", parent)


def test_the_summary_counts_the_requests_that_the_servers_saw(whole: Whole) -> None:
    web, crawled = whole
    (traffic,) = [line for line in crawled.err.splitlines() if line.strip().startswith("traffic")]
    assert int(traffic.split()[1]) == len(web.hits)
