"""Redirects: in `crawl` the target is a URL of its own, in `scrape` the input keeps its name."""

from __future__ import annotations

from collections import Counter

import pytest

from gossamer.testing.crawl_rig import CrawlRig, html, paths_of, serve
from gossamer.testing.synthetic_reply import Hit, Reply, redirect, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb


def wall(hit: Hit) -> Reply:
    """Let in whoever carries the cookie; send anybody else to the login page."""
    return html() if "pass=1" in hit.headers.get("cookie", "") else redirect("/login", 302)


def with_login(web: SyntheticWeb, host: str) -> str:
    web.add(host, "/members", wall)
    web.add(host, "/login", redirect("/members", 302).with_headers(("Set-Cookie", "pass=1; Path=/")))
    return web.url(host, "/members")


def chain(web: SyntheticWeb, host: str, length: int) -> list[str]:
    """Serve redirects that lead one to the next, and a page at their end."""
    for number in range(length):
        web.add(host, f"/{number}", redirect(f"/{number + 1}"))
    web.add(host, f"/{length}", html())
    return [web.url(host, f"/{number}") for number in range(length + 1)]


# -- crawl -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_target_of_a_redirect_is_fetched_and_says_where_it_came_from(
    web: SyntheticWeb, rig: CrawlRig, status: int
) -> None:
    host = f"moved-{status}"
    url = serve(web, host, {"/": ["/old"], "/new": []})
    web.add(host, "/old", redirect("/new", status))
    crawled = rig.crawl(url)
    old, new = web.url(host, "/old"), web.url(host, "/new")
    assert crawled.state(old) == "redirected redirect"
    record = crawled.record(new)
    assert (record["redirected_from"], record["depth"], record["final_url"]) == ([old], 1, new)
    assert old not in crawled.urls


def test_a_chain_is_told_from_its_first_url_on(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = chain(web, "chained", 4)
    crawled = rig.crawl(urls[0])
    assert crawled.record(urls[4])["redirected_from"] == urls[:4]
    assert [crawled.state(url) for url in urls[:4]] == ["redirected redirect"] * 4


def test_a_chain_longer_than_max_redirects_fails(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = chain(web, "endless", 8)
    crawled = rig.crawl(urls[0], "--max-redirects", "3")
    assert crawled.state(urls[3]) == "failed too_many_redirects"
    assert crawled.code == 4


def test_a_page_without_redirect_has_no_such_field(web: SyntheticWeb, rig: CrawlRig) -> None:
    assert "redirected_from" not in rig.crawl(serve(web, "direct", {"/": []})).records[0]


def test_the_target_of_a_seeds_redirect_joins_the_scope(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("apex", "/", redirect(web.url("www"), 301))
    serve(web, "www", {"/": ["/a", web.url("apex", "/b"), web.url("stranger")], "/a": []})
    web.add("apex", "/b", html())
    crawled = rig.crawl(web.url("apex"))
    assert set(crawled.urls) == {web.url("www"), web.url("www", "/a"), web.url("apex", "/b")}


def test_the_widened_scope_is_remembered_when_the_job_resumes(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("apex-2", "/", redirect(web.url("www-2"), 301))
    serve(web, "www-2", {"/": ["/a"], "/a": ["/b"], "/b": ["/c"]})
    rig.crawl(web.url("apex-2"), "-n", "1")
    crawled = rig.crawl(web.url("apex-2"))
    assert web.url("www-2", "/c") in crawled.urls


def test_the_target_of_a_links_redirect_must_be_in_scope(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "home", {"/": ["/away"]})
    web.add("home", "/away", redirect(web.url("outside")))
    crawled = rig.crawl(url)
    assert crawled.state(web.url("outside")) == "refused scope"
    assert not [hit for hit in web.hits if hit.host == "outside"]


def test_the_target_of_a_redirect_is_subject_to_robots(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "guarded", {"/": ["/open"]})
    web.add("guarded", "/robots.txt", text_reply("User-agent: *\nDisallow: /shut\n"))
    web.add("guarded", "/open", redirect("/shut"))
    crawled = rig.crawl(url)
    assert crawled.state(web.url("guarded", "/shut")) == "refused robots"
    assert "/shut" not in paths_of(web, "guarded")


def test_a_login_wall_is_passed_with_the_cookie_it_sets(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = with_login(web, "walled")
    crawled = rig.crawl(url)
    assert crawled.record(url)["status"] == 200
    assert paths_of(web, "walled") == ["/members", "/login", "/members"]


def test_without_cookies_a_login_wall_is_a_loop(web: SyntheticWeb, rig: CrawlRig) -> None:
    crawled = rig.crawl(with_login(web, "cookieless"), "--no-cookies")
    assert (crawled.code, crawled.urls) == (4, [])
    assert "redirect_loop" in {row.reason for row in crawled.rows.values()}
    assert len(paths_of(web, "cookieless")) <= 4


def test_a_page_that_redirects_to_itself_ends_as_a_loop(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("self", "/", redirect("/"))
    crawled = rig.crawl(web.url("self"))
    assert crawled.state(web.url("self")) == "failed redirect_loop"
    assert crawled.code == 4
    assert len(paths_of(web, "self")) == 2


@pytest.mark.parametrize(
    "location", ["mailto:nobody@example.com", "http://[", "javascript:alert(1)", "ftp://host/"]
)
def test_a_redirect_to_what_is_no_page_fails(web: SyntheticWeb, rig: CrawlRig, location: str) -> None:
    host = f"nowhere-{len(location)}"
    web.add(host, "/", redirect(location))
    assert rig.crawl(web.url(host)).state(web.url(host)) == "failed bad_redirect"


def test_a_redirect_without_location_is_an_answer_like_any_other(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("vague", "/", text_reply("somewhere\n", status=302))
    crawled = rig.crawl(web.url("vague"))
    assert crawled.record(web.url("vague"))["status"] == 302


def test_a_page_reached_by_link_and_by_redirect_is_fetched_once(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "both-ways", {"/": ["/old", "/new", "/older"], "/new": []})
    web.add("both-ways", "/old", redirect("/new"))
    web.add("both-ways", "/older", redirect("/new"))
    crawled = rig.crawl(url)
    assert Counter(paths_of(web, "both-ways"))["/new"] == 1
    assert Counter(crawled.urls)[web.url("both-ways", "/new")] == 1


def test_the_fragment_of_a_location_is_dropped(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("fragment", "/", redirect("/page#part"))
    web.add("fragment", "/page", html())
    assert rig.crawl(web.url("fragment")).urls == [web.url("fragment", "/page")]


def test_a_redirect_to_a_private_address_is_refused_with_the_flag_that_allows_it(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    """Without the flag not even the first hop goes out, so this asks on the second of two jobs."""
    web.add("ssrf", "/", redirect("http://169.254.169.254/latest/meta-data/"))
    crawled = rig.crawl(web.url("ssrf"), "--no-allow-private")
    assert crawled.state(web.url("ssrf")) == "refused private_address"
    assert not paths_of(web, "ssrf")


# -- scrape ----------------------------------------------------------------------------------------------


def test_scrape_keeps_the_input_as_url_and_says_what_answered(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = chain(web, "kept", 3)
    record = rig.scrape(urls[0]).record(urls[0])
    assert (record["url"], record["final_url"], record["redirected_from"]) == (urls[0], urls[3], urls[:3])


def test_two_inputs_that_redirect_to_one_page_have_two_records(web: SyntheticWeb, rig: CrawlRig) -> None:
    for path in ("/a", "/b"):
        web.add("merged", path, redirect("/page"))
    web.add("merged", "/page", html())
    inputs = [web.url("merged", path) for path in ("/a", "/b", "/page")]
    crawled = rig.scrape(*inputs)
    assert {record["url"]: record["final_url"] for record in crawled.records} == dict.fromkeys(
        inputs, web.url("merged", "/page")
    )


def test_scrape_follows_a_redirect_to_another_host(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("from", "/", redirect(web.url("to", "/page")))
    web.add("to", "/page", html())
    crawled = rig.scrape(web.url("from"))
    assert crawled.record(web.url("from"))["final_url"] == web.url("to", "/page")
    assert "/robots.txt" in {hit.path for hit in web.hits if hit.host == "to"}


def test_scrape_obeys_robots_at_the_target_of_a_redirect(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("from-2", "/", redirect(web.url("to-2", "/page")))
    web.add("to-2", "/robots.txt", text_reply("User-agent: *\nDisallow: /\n"))
    crawled = rig.scrape(web.url("from-2"))
    assert crawled.state(web.url("from-2")) == "refused robots"
    assert not paths_of(web, "to-2")


def test_scrape_passes_a_login_wall(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = with_login(web, "walled-2")
    assert rig.scrape(url).record(url)["status"] == 200


def test_scrape_ends_a_loop(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("round", "/a", redirect("/b"))
    web.add("round", "/b", redirect("/a"))
    crawled = rig.scrape(web.url("round", "/a"))
    assert crawled.state(web.url("round", "/a")) == "failed redirect_loop"
    assert (crawled.code, len(paths_of(web, "round"))) == (4, 4)
