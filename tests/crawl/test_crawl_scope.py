"""Which links are followed: scopes and globs, told from what the servers saw."""

from __future__ import annotations

import pytest

from gossamer.testing.crawl_rig import CrawlRig, html, paths_of, serve
from gossamer.testing.synthetic_web import SyntheticWeb


@pytest.fixture(scope="module")
def seed(web: SyntheticWeb) -> str:
    """Serve three hosts; two of them share a registrable domain, since `localhost` is a public suffix here."""
    inner = ["/area/page", "/area/deep/", "/area/deep/leaf", "/outside", "/areas"]
    web.add("www.scoped", "/area/", html(*inner, web.url("api.scoped"), web.url("other")))
    for path in inner:
        web.add("www.scoped", path, html())
    web.add("api.scoped", "/", html())
    web.add("other", "/", html())
    return web.url("www.scoped", "/area/")


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("page", {"www.scoped/area/"}),
        (
            "prefix",
            {
                "www.scoped/area/",
                "www.scoped/area/page",
                "www.scoped/area/deep/",
                "www.scoped/area/deep/leaf",
            },
        ),
        (
            "host",
            {
                "www.scoped/area/",
                "www.scoped/area/page",
                "www.scoped/area/deep/",
                "www.scoped/area/deep/leaf",
                "www.scoped/outside",
                "www.scoped/areas",
            },
        ),
        (
            "domain",
            {
                "www.scoped/area/",
                "www.scoped/area/page",
                "www.scoped/area/deep/",
                "www.scoped/area/deep/leaf",
                "www.scoped/outside",
                "www.scoped/areas",
                "api.scoped/",
            },
        ),
        (
            "any",
            {
                "www.scoped/area/",
                "www.scoped/area/page",
                "www.scoped/area/deep/",
                "www.scoped/area/deep/leaf",
                "www.scoped/outside",
                "www.scoped/areas",
                "api.scoped/",
                "other/",
            },
        ),
    ],
)
def test_a_scope_follows_just_its_own_links(
    web: SyntheticWeb, rig: CrawlRig, seed: str, scope: str, expected: set[str]
) -> None:
    web.reset()
    crawled = rig.crawl(seed, "--scope", scope)
    seen = {hit.host + hit.path for hit in web.hits if hit.path != "/robots.txt"}
    assert seen == expected
    assert len(crawled.records) == len(expected)
    assert len(crawled.records[0]["links"]) == 7, "the record lists every link, followed or not"


def test_scope_host_takes_every_port_and_scheme_of_the_host(web: SyntheticWeb, rig: CrawlRig) -> None:
    with SyntheticWeb.in_thread() as second:
        second.add("ported", "/", html())
        web.add("ported", "/", html(second.url("ported")))
        crawled = rig.crawl(web.url("ported"))
        assert crawled.urls == [web.url("ported"), second.url("ported")]


def test_several_seeds_span_the_scope_together(web: SyntheticWeb, rig: CrawlRig) -> None:
    first = serve(web, "left", {"/": [web.url("right", "/found"), web.url("far")]})
    second = serve(web, "right", {"/": [], "/found": []})
    crawled = rig.crawl(first, second)
    assert set(crawled.urls) == {first, second, web.url("right", "/found")}


def test_include_and_exclude_decide_among_the_links(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(
        web, "globbed", {"/keep/": ["/keep/a", "/keep/b.pdf", "/drop/c"], "/keep/a": [], "/keep/b.pdf": []}
    )
    crawled = rig.crawl(url, "--include", "/keep/*", "--exclude", "*.pdf")
    assert sorted(paths_of(web, "globbed")) == ["/keep/", "/keep/a"]
    assert set(crawled.rows) == {url, web.url("globbed", "/keep/a")}


def test_globs_may_be_given_several_times(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "globs", {"/": ["/a", "/b", "/c"], "/a": [], "/b": [], "/c": []})
    rig.crawl(url, "--exclude", "/a", "--exclude", "*/b")
    assert paths_of(web, "globs") == ["/", "/c"]


def test_a_link_in_a_script_or_a_comment_is_no_link(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("scripted", "/", html(body="<script>var a = '<a href=\"/no\">'</script><!-- <a href='/no'> -->"))
    rig.crawl(web.url("scripted"))
    assert paths_of(web, "scripted") == ["/"]
