"""Sitemaps and feeds lead to pages, and XML that asks for more than reading is not read."""

from __future__ import annotations

import json
import socket

import pytest

from gossamer.testing.crawl_rig import CrawlRig, html, paths_of
from gossamer.testing.synthetic_reply import Reply, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

XML = "application/xml"


def sitemap(*urls: str, kind: str = XML, prolog: str = "") -> Reply:
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return text_reply(f'<?xml version="1.0"?>{prolog}<urlset>{entries}</urlset>', kind)


def notes_of(rig: CrawlRig) -> list[str]:
    lines = (rig.jobs / "job" / "log.jsonl").read_text("utf-8").splitlines()
    return [entry["text"] for entry in map(json.loads, lines) if entry["event"] == "note"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_index_of_sitemaps_leads_to_the_pages_of_all_of_them(
    web: SyntheticWeb, rig: CrawlRig, workers: str
) -> None:
    host = f"index-{workers}"
    parts = "".join(f"<sitemap><loc>{web.url(host, path)}</loc></sitemap>" for path in ("/1.xml", "/2.xml"))
    web.add(host, "/sitemap.xml", text_reply(f"<sitemapindex>{parts}</sitemapindex>", XML))
    web.add(host, "/1.xml", sitemap(web.url(host, "/a"), web.url(host, "/b")))
    web.add(host, "/2.xml", sitemap(web.url(host, "/b"), web.url(host, "/c"), kind="text/xml"))
    for path in ("/a", "/b", "/c"):
        web.add(host, path, html())
    crawled = rig.crawl(web.url(host, "/sitemap.xml"), "--workers", workers)
    assert sorted(paths_of(web, host)) == ["/1.xml", "/2.xml", "/a", "/b", "/c", "/sitemap.xml"]
    assert crawled.record(web.url(host, "/1.xml"))["links"] == [web.url(host, "/a"), web.url(host, "/b")]
    assert crawled.record(web.url(host, "/c"))["depth"] == 2
    assert crawled.record(web.url(host, "/c"))["parent"] == web.url(host, "/2.xml")


def test_the_links_of_a_sitemap_obey_scope_robots_globs_and_depth(web: SyntheticWeb, rig: CrawlRig) -> None:
    inside = [web.url("obey", path) for path in ("/ok", "/private", "/skipped")]
    web.add("obey", "/robots.txt", text_reply("User-agent: *\nDisallow: /private\n"))
    web.add("obey", "/sitemap.xml", sitemap(*inside, web.url("stranger", "/")))
    web.add("obey", "/ok", html("/deeper"))
    crawled = rig.crawl(web.url("obey", "/sitemap.xml"), "-d", "1", "--exclude", "*skipped*")
    assert paths_of(web, "obey") == ["/sitemap.xml", "/ok"]
    assert crawled.state(web.url("obey", "/private")) == "refused robots"
    assert crawled.state(web.url("obey", "/deeper")) == "refused depth"
    assert paths_of(web, "stranger") == []


def test_a_feed_has_a_title_and_leads_to_its_entries(web: SyntheticWeb, rig: CrawlRig) -> None:
    feed = "<feed><title>News</title><entry><link href='/story'/></entry></feed>"
    web.add("feed", "/", text_reply(feed, "application/atom+xml; charset=utf-8"))
    web.add("feed", "/story", html())
    crawled = rig.crawl(web.url("feed"))
    assert crawled.record(web.url("feed"))["title"] == "News"
    assert paths_of(web, "feed") == ["/", "/story"]


@pytest.mark.parametrize(
    ("name", "body", "followed"),
    [
        ("sitemap", b"<?xml version='1.0'?><urlset><url><loc>/next</loc></url></urlset>", True),
        (
            "xhtml",
            b"<?xml version='1.0'?><!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0'><html><a href='/next'>x</a></html>",
            True,
        ),
        ("dtd", b"<?xml version='1.0'?><!DOCTYPE urlset><urlset><url><loc>/next</loc></url></urlset>", False),
        ("text", b"xml <?xml version='1.0'?><urlset><url><loc>/next</loc></url></urlset>", False),
    ],
)
def test_a_body_without_a_type_is_xml_if_it_says_so(
    web: SyntheticWeb, rig: CrawlRig, name: str, body: bytes, *, followed: bool
) -> None:
    host = f"bare-{name}"
    web.add(host, "/", Reply(headers=(), body=body))
    web.add(host, "/next", html())
    rig.crawl(web.url(host))
    assert paths_of(web, host) == (["/", "/next"] if followed else ["/"])


def test_what_is_labelled_as_something_else_is_no_sitemap(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("label", "/", sitemap(web.url("label", "/no"), kind="text/plain"))
    rig.crawl(web.url("label"))
    assert paths_of(web, "label") == ["/"]


def test_a_sitemap_that_asks_not_to_be_indexed_is_followed_all_the_same(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    shy = sitemap(web.url("shy", "/page")).with_headers(("X-Robots-Tag", "noindex, follow"))
    web.add("shy", "/sitemap.xml", shy)
    web.add("shy", "/page", html())
    crawled = rig.crawl(web.url("shy", "/sitemap.xml"), "--skip-noindex")
    assert crawled.urls == [web.url("shy", "/page")]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_xml_that_asks_for_other_files_gets_none_and_the_log_says_so(
    web: SyntheticWeb, rig: CrawlRig, workers: str
) -> None:
    host = f"asking-{workers}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        port = listener.getsockname()[1]
        asked = f"http://127.0.0.1:{port}/x"
        prologs = {
            "/entity": f'<!DOCTYPE urlset [<!ENTITY x SYSTEM "{asked}">]>',
            "/parameter": f'<!DOCTYPE urlset [<!ENTITY % x SYSTEM "{asked}"> %x;]>',
            "/public": f'<!DOCTYPE urlset PUBLIC "x" "{asked}">',
            "/file": '<!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
            "/style": f'<?xml-stylesheet type="text/xsl" href="{asked}"?>',
        }
        for path, prolog in prologs.items():
            web.add(host, path, sitemap("&x;", prolog=prolog))
        include = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{asked}"/>'
        web.add(host, "/include", text_reply(f"<urlset>{include}</urlset>", XML))
        web.add(host, "/", html(*prologs, "/include"))
        crawled = rig.crawl(web.url(host), "--scope", "any", "--workers", workers)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert len(crawled.records) == 7
    for path in (*prologs, "/include"):
        assert crawled.state(web.url(host, path)) == "fetched ok"
        assert (crawled.record(web.url(host, path))["links"], "root:" in str(crawled.records)) == ([], False)
    refused = [path for path in prologs if path != "/style"]
    assert sorted(notes_of(rig)) == sorted(
        [f"XML with a DTD is not read: {web.url(host, path)}" for path in refused]
        + [f"XML with XInclude is not read: {web.url(host, '/include')}"]
    )
