"""What is read from a page: its links, its wishes, its text, and the record made of them."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from gossamer.testing.crawl_rig import CrawlRig, html, paths_of, serve
from gossamer.testing.synthetic_reply import Reply, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

#: The fields of a record in their order, and the JSON type of each.
FIELDS: dict[str, type[Any]] = {
    "url": str,
    "final_url": str,
    "status": int,
    "content_type": str,
    "fetched_at": str,
    "depth": int,
    "parent": str,
    "title": str,
    "description": str,
    "language": str,
    "headings": list,
    "links": list,
    "noindex": bool,
    "content_hash": str,
    "bytes": int,
    "elapsed_ms": int,
    "attempt": int,
}
PAGE = """<!doctype html><html lang="de"><head><title> Fäden
 und Garn </title><meta name="description" content="Alles &amp; mehr"></head>
<body><h1>Eins</h1><h2>Zwei <b>fett</b></h2><a href="/b">b</a><a href="/a#x">a</a><a href="/a">a</a>
<a href="http://other.example/?q=1">weg</a></body></html>"""


# -- the record ------------------------------------------------------------------------------------------


def test_a_record_has_just_the_promised_fields_in_their_order_and_types(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    web.add("record", "/", Reply(body=PAGE.encode()))
    record = rig.crawl(web.url("record"), "-d", "0").records[0]
    assert list(record) == list(FIELDS)
    assert {name: type(value) for name, value in record.items()} == FIELDS


def test_a_record_says_what_the_page_says(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("says", "/", Reply(body=PAGE.encode()))
    record = rig.crawl(web.url("says"), "-d", "0").records[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", record.pop("fetched_at"))
    assert record.pop("elapsed_ms") < 60_000
    assert record == {
        "url": web.url("says"),
        "final_url": web.url("says"),
        "status": 200,
        "content_type": "text/html; charset=utf-8",
        "depth": 0,
        "parent": "",
        "title": "Fäden und Garn",
        "description": "Alles & mehr",
        "language": "de",
        "headings": ["Eins", "Zwei fett"],
        "links": [web.url("says", "/b"), web.url("says", "/a"), "http://other.example/?q=1"],
        "noindex": False,
        "content_hash": hashlib.sha256(PAGE.encode()).hexdigest(),
        "bytes": len(PAGE.encode()),
        "attempt": 1,
    }


def test_fields_keeps_only_the_named_ones_in_the_order_named(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("fields", "/", Reply(body=PAGE.encode()))
    record = rig.crawl(web.url("fields"), "-d", "0", "--fields", "title,url").records[0]
    assert record == {"title": "Fäden und Garn", "url": web.url("fields")}


@pytest.mark.parametrize("status", [200, 204, 400, 401, 403, 404, 410, 451, 501])
def test_every_final_response_has_a_record_whatever_its_status(
    web: SyntheticWeb, rig: CrawlRig, status: int
) -> None:
    host = f"status-{status}"
    web.add(host, "/", html().with_status(status))
    crawled = rig.crawl(web.url(host))
    assert (crawled.code, crawled.records[0]["status"]) == (0, status)
    assert crawled.state(web.url(host)) == f"fetched {'ok' if status < 400 else f'http_{status}'}"
    assert len(paths_of(web, host)) == 1


def test_what_is_no_html_has_a_record_and_no_links(web: SyntheticWeb, rig: CrawlRig) -> None:
    body = b'%PDF-1.7 <a href="/no">'
    web.add("pdf", "/", text_reply(body, "application/pdf"))
    record = rig.crawl(web.url("pdf")).records[0]
    assert (record["links"], record["title"], record["bytes"]) == ([], "", len(body))
    assert paths_of(web, "pdf") == ["/"]


def test_links_of_an_error_page_are_followed(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("lost", "/", html("/map").with_status(404))
    web.add("lost", "/map", html())
    assert rig.crawl(web.url("lost")).urls == [web.url("lost"), web.url("lost", "/map")]


# -- one page under many addresses -----------------------------------------------------------------------


def test_addresses_that_mean_the_same_are_one_page(web: SyntheticWeb, rig: CrawlRig) -> None:
    same = ["/p?a=1&amp;b=2", "/p?b=2&amp;a=1", "/p?a=1&amp;b=2#part", "/x/../p?a=1&amp;b=2", "p?a=1&amp;b=2"]
    crawled = rig.crawl(serve(web, "same", {"/": same, "/p": []}))
    assert paths_of(web, "same") == ["/", "/p?a=1&b=2"]
    assert len(crawled.records) == 2


def test_query_order_matters_where_the_user_says_so(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "unsorted", {"/": ["/p?a=1&amp;b=2", "/p?b=2&amp;a=1"], "/p": []})
    rig.crawl(url, "--no-sort-query")
    assert paths_of(web, "unsorted") == ["/", "/p?a=1&b=2", "/p?b=2&a=1"]


def test_the_default_port_is_no_difference(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "port", {"/": ["http://port.example:80/x", "http://port.example/x"]})
    assert rig.crawl(url).records[0]["links"] == ["http://port.example/x"]


def test_strip_tracking_takes_tracking_parameters_off(web: SyntheticWeb, rig: CrawlRig) -> None:
    pages = {"/": ["/p?utm_source=x&amp;id=1", "/p?id=1&amp;fbclid=2", "/p?id=1"], "/p": []}
    rig.crawl(serve(web, "tracked", pages), "--strip-tracking")
    assert paths_of(web, "tracked") == ["/", "/p?id=1"]
    rig.crawl(serve(web, "untracked", pages), job="second", output="second.jsonl")
    assert len(paths_of(web, "untracked")) == 4


# -- ways to link, and wishes not to ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "head", "body"),
    [
        ("base", '<base href="/goal/">', '<a href="here">x</a>'),
        ("area", "", '<map><area href="/goal/here"></map>'),
        ("iframe", "", '<iframe src="/goal/here"></iframe>'),
        ("hreflang", '<link rel="alternate" hreflang="fr" href="/goal/here">', ""),
        ("next", '<link rel="next" href="/goal/here">', ""),
        ("refresh", '<meta http-equiv="refresh" content="3; URL=/goal/here">', ""),
    ],
)
def test_every_way_to_link_is_followed(
    web: SyntheticWeb, rig: CrawlRig, name: str, head: str, body: str
) -> None:
    host = f"way-{name}"
    web.add(host, "/", html(head=head, body=body))
    web.add(host, "/goal/here", html())
    rig.crawl(web.url(host))
    assert paths_of(web, host) == ["/", "/goal/here"]


@pytest.mark.parametrize("rel", ["nofollow", "noopener NoFollow"])
def test_a_link_marked_nofollow_is_listed_and_not_followed(
    web: SyntheticWeb, rig: CrawlRig, rel: str
) -> None:
    host = f"rel-{len(rel)}"
    web.add(host, "/", html(body=f'<a rel="{rel}" href="/shy">x</a>'))
    crawled = rig.crawl(web.url(host))
    assert crawled.records[0]["links"] == [web.url(host, "/shy")]
    assert paths_of(web, host) == ["/"]


def test_a_link_with_and_without_nofollow_is_followed(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("mixed", "/", html("/page", body='<a rel="nofollow" href="/page">x</a>'))
    web.add("mixed", "/page", html())
    rig.crawl(web.url("mixed"))
    assert paths_of(web, "mixed") == ["/", "/page"]


@pytest.mark.parametrize(
    ("name", "head", "header"),
    [
        ("meta", '<meta name="robots" content="nofollow">', ""),
        ("ours", '<meta name="gossamer" content="noindex, nofollow">', ""),
        ("none", '<meta name="ROBOTS" content="NONE">', ""),
        ("header", "", "nofollow"),
        ("named", "", "gossamer: nofollow"),
    ],
)
def test_a_page_that_asks_for_it_is_not_followed(
    web: SyntheticWeb, rig: CrawlRig, name: str, head: str, header: str
) -> None:
    host = f"nofollow-{name}"
    reply = html("/behind", head=head)
    web.add(host, "/", reply.with_headers(("X-Robots-Tag", header)) if header else reply)
    crawled = rig.crawl(web.url(host))
    assert paths_of(web, host) == ["/"]
    assert crawled.records[0]["links"] == [web.url(host, "/behind")]


def test_a_wish_to_another_robot_is_none_of_ours(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("others", "/", html("/page").with_headers(("X-Robots-Tag", "otherbot: noindex, nofollow")))
    web.add("others", "/page", html())
    crawled = rig.crawl(web.url("others"))
    assert [record["noindex"] for record in crawled.records] == [False, False]


def test_noindex_is_a_field_and_skip_noindex_drops_the_record_but_not_the_links(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    web.add("noindex", "/", html("/meta", "/header", "/plain"))
    web.add("noindex", "/meta", html("/behind", head='<meta name="robots" content="noindex">'))
    web.add("noindex", "/header", html().with_headers(("X-Robots-Tag", "noindex")))
    for path in ("/plain", "/behind"):
        web.add("noindex", path, html())
    kept = rig.crawl(web.url("noindex"))
    marked = {record["url"]: record["noindex"] for record in kept.records}
    assert {url for url, noindex in marked.items() if noindex} == {
        web.url("noindex", path) for path in ("/meta", "/header")
    }
    skipped = rig.crawl(web.url("noindex"), "--skip-noindex", job="second", output="second.jsonl")
    assert set(skipped.urls) == {web.url("noindex", path) for path in ("/", "/plain", "/behind")}
    assert skipped.state(web.url("noindex", "/meta")) == "fetched ok"


# -- charsets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "codec", "declared"),
    [
        ("text/html; charset=iso-8859-1", "cp1252", ""),
        ("text/html", "shift_jis", '<meta charset="shift_jis">'),
        ("text/html", "cp1251", '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">'),
        ("text/html", "utf-8-sig", ""),
        ("text/html", "utf-16", ""),
        ("text/html; charset=nonsense", "utf-8", '<meta charset="utf-8">'),
    ],
)
def test_text_and_links_are_read_in_the_charset_of_the_page(
    web: SyntheticWeb, rig: CrawlRig, content_type: str, codec: str, declared: str
) -> None:
    host = f"charset-{codec}"
    title = {"shift_jis": "蜘蛛の糸", "cp1251": "Паутина", "cp1252": "Größe: 5 €"}.get(codec, "Fäden 蜘蛛")
    page = f'<html><head>{declared}<title>{title}</title></head><body><a href="/next">x</a>'
    web.add(host, "/", text_reply(page.encode(codec), content_type))
    record = rig.crawl(web.url(host), "-d", "0").records[0]
    assert (record["title"], record["links"]) == (title, [web.url(host, "/next")])


# -- what a request carries ------------------------------------------------------------------------------


def test_a_request_names_the_crawler_and_whoever_runs_it(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "named", {"/": []})
    rig.crawl(url, "--contact", "ops@example.org", "-H", "X-Team: looms", "-H", "Accept-Language: de")
    for hit in (hit for hit in web.hits if hit.host == "named"):
        assert re.fullmatch(r"Gossamer/\d+\.\d+\.\d+ \(\+ops@example\.org\)", hit.headers["user-agent"])
        assert (hit.headers["x-team"], hit.headers["accept-language"]) == ("looms", "de")


def test_another_user_agent_obeys_the_rules_for_its_own_name(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "agents", {"/": ["/a", "/b"], "/a": [], "/b": []})
    rules = "User-agent: loombot\nDisallow: /a\n\nUser-agent: gossamer\nDisallow: /b\n"
    web.add("agents", "/robots.txt", text_reply(rules))
    rig.crawl(url, "--user-agent", "LoomBot/2.0")
    assert paths_of(web, "agents") == ["/", "/b"]


def test_cookies_go_back_to_their_host_and_to_no_other(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("baker", "/", html("/next", web.url("guest")).with_headers(("Set-Cookie", "a=1; Path=/")))
    for host in ("baker", "guest"):
        web.add(host, "/next", html())
    web.add("guest", "/", html())
    rig.crawl(web.url("baker"), "--scope", "any")
    sent = {hit.host + hit.path: hit.headers.get("cookie") for hit in web.hits if hit.path != "/robots.txt"}
    assert (sent["baker/"], sent["baker/next"], sent["guest/"]) == (None, "a=1", None)
