"""In which order one host is asked, as its server saw it."""

from __future__ import annotations

from gossamer.testing.crawl_rig import CrawlRig, paths_of, serve
from gossamer.testing.synthetic_web import SyntheticWeb


def test_pages_near_the_seed_come_before_pages_far_from_it(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(
        web,
        "levels",
        {"/": ["/a", "/b", "/c"], "/a": ["/a/x", "/a/y"], "/b": ["/b/x"], "/c": [], "/a/x": ["/a/x/deep"]},
    )
    rig.crawl(url, "--commit-seconds", "0.01")
    order = paths_of(web, "levels")
    assert order[:4] == ["/", "/a", "/b", "/c"]
    assert set(order[4:7]) == {"/a/x", "/a/y", "/b/x"}
    assert order[7] == "/a/x/deep"


def test_links_of_one_page_are_taken_in_page_order(web: SyntheticWeb, rig: CrawlRig) -> None:
    paths = [f"/{name}" for name in ("zebra", "apple", "mango", "kiwi")]
    rig.crawl(serve(web, "ordered", {"/": paths}))
    assert paths_of(web, "ordered") == ["/", *paths]


def test_listings_come_before_the_pages_they_list(web: SyntheticWeb, rig: CrawlRig) -> None:
    details = ["/item-with-a-long-name-1", "/product/12345"]
    listings = ["/list?page=2", "/category/wool"]
    rig.crawl(serve(web, "listed", {"/": [*details, "/about", *listings]}))
    assert paths_of(web, "listed") == ["/", *listings, "/about", *details]


def test_seeds_come_before_everything_found(web: SyntheticWeb, rig: CrawlRig) -> None:
    serve(web, "seeded", {"/a": ["/found/"], "/b": ["/found/"], "/c": []})
    rig.crawl(*(web.url("seeded", path) for path in ("/a", "/b", "/c")), "--commit-pages", "1")
    assert paths_of(web, "seeded") == ["/a", "/b", "/c", "/found/"]


def test_preferred_urls_come_first_among_those_found(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(
        serve(web, "preferred", {"/": ["/list/", "/plain", "/want/1", "/want/2"]}), "--prefer", "*/want/*"
    )
    assert paths_of(web, "preferred") == ["/", "/want/1", "/want/2", "/list/", "/plain"]


def test_hosts_take_turns_and_none_waits_for_another(web: SyntheticWeb, rig: CrawlRig) -> None:
    seeds = [serve(web, f"turn-{n}", {"/": [f"/{i}" for i in range(6)]}) for n in range(3)]
    rig.crawl(*seeds, "--delay", "0.05")
    last = [max(hit.at for hit in web.hits if hit.host == f"turn-{n}") for n in range(3)]
    first = [min(hit.at for hit in web.hits if hit.host == f"turn-{n}") for n in range(3)]
    assert max(first) < min(last)
