from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.extract.html import HtmlExtractor
from gossamer.model.page import Facts
from gossamer.model.url import UrlPolicy, host_of

_URL = "http://site.example/dir/page?q=1"


def extractor(**options: int) -> HtmlExtractor:
    return HtmlExtractor(UrlPolicy(), user_agent="Gossamer/0.1 (+https://example.org/)", **options)


def extract(markup: str | bytes, content_type: str = "text/html; charset=utf-8", **more: object) -> Facts:
    body = markup if isinstance(markup, bytes) else markup.encode()
    return extractor().extract(body, content_type, _URL, **more)  # type: ignore[arg-type]


def links(markup: str) -> list[str]:
    return [link.url.removeprefix("http://site.example") for link in extract(markup).links]


# -- text ------------------------------------------------------------------------------------------------


def test_the_title_is_the_first_of_the_head_with_its_white_space_collapsed() -> None:
    assert extract("<head><title> A\n\t<b>&amp;\u00a0B </title><title>C</title>").title == "A <b>& B"


def test_a_title_behind_an_element_that_ends_the_head_is_found() -> None:
    assert extract("<head><noscript><img></noscript><title>T</title></head>").title == "T"


def test_the_title_of_a_picture_is_not_the_title_of_the_page() -> None:
    assert extract("<body><svg><g><title>icon</title></g></svg>").title == ""


def test_long_texts_are_cut() -> None:
    facts = extract(f"<title>{'t' * 2000}</title>" + f"<h1>{'h' * 2000}</h1>" * 300)
    assert len(facts.title) == 1000
    assert {len(heading) for heading in facts.headings} == {500}
    assert len(facts.headings) == 200


def test_headings_of_the_first_three_levels_come_in_page_order() -> None:
    markup = "<h2>b <i>two</i></h2><h1>a</h1><h4>no</h4><div><h3>\n c </h3></div><h1> </h1>"
    assert extract(markup).headings == ["b two", "a", "c"]


def test_the_description_falls_back_to_open_graph() -> None:
    og = '<meta property="og:description" content="og">'
    assert extract(og + '<meta NAME=Description content=" the  one ">').description == "the one"
    assert extract(og).description == "og"


def test_the_language_is_the_documents_own_or_else_the_headers() -> None:
    assert extract('<html lang="de-AT">', content_language="en").language == "de-AT"
    assert extract("<html>", content_language="en").language == "en"
    assert extract("<html>", content_language="e\udcffn\0").language == "e?n"


def test_the_document_is_read_in_its_own_encoding() -> None:
    facts = extract(
        "<meta charset=windows-1251><title>Привет</title><a href=/п?п>".encode("cp1251"), "text/html"
    )
    assert (facts.charset, facts.title) == ("windows-1251", "Привет")
    assert facts.links[0].url == "http://site.example/%D0%BF?%D0%BF"


def test_a_byte_order_mark_does_not_end_the_head() -> None:
    assert extract(b"\xef\xbb\xbf<html lang=en><title>T</title>").title == "T"
    facts = extract("\ufeff<title>T</title>".encode("utf-16-le"))
    assert (facts.title, facts.charset) == ("T", "UTF-16LE")


@pytest.mark.parametrize("body", [b"\x89PNG\r\n\x1a\n\0\0", b"<a href=x>\x00", b"%PDF-1.7 \x01<a href=x>"])
def test_binary_data_labelled_as_html_is_not_parsed(body: bytes) -> None:
    facts = extract(body)
    assert facts.binary
    assert facts.links == []


def test_bytes_far_into_a_document_do_not_make_it_binary() -> None:
    assert not extract(b"<title>T</title>" + b" " * 1445 + b"\0").binary


# -- rules for robots ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markup", "noindex", "nofollow"),
    [
        ("<meta name=robots content='NOINDEX, follow'>", True, False),
        ("<meta name=robots content=none>", True, True),
        ("<meta name=Gossamer content=nofollow>", False, True),
        ("<meta name=googlebot content=noindex>", False, False),
        ("<meta name=robots content=noindex><meta name=robots content=nofollow>", True, True),
        ("<body><p><meta name=robots content=noindex>", True, False),
        ("<meta name=robots content='all, max-snippet:10'>", False, False),
        (
            "<!-- <meta name=robots content=noindex> --><template><meta name=robots content=noindex></template>",
            False,
            False,
        ),
    ],
)
def test_the_documents_rules_for_robots_are_read(markup: str, noindex: bool, nofollow: bool) -> None:
    facts = extract(markup)
    assert (facts.noindex, facts.nofollow) == (noindex, nofollow)


@pytest.mark.parametrize(
    ("headers", "noindex", "nofollow"),
    [
        (["noindex"], True, False),
        (["otherbot: noindex, nofollow"], False, False),
        (["otherbot: noindex, gossamer: nofollow"], False, True),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"], True, False),
        (["otherbot: none", "Gossamer: NoIndex"], True, False),
    ],
)
def test_the_headers_rules_for_robots_are_read(headers: list[str], noindex: bool, nofollow: bool) -> None:
    facts = extract("<p>", x_robots_tag=headers)
    assert (facts.noindex, facts.nofollow) == (noindex, nofollow)


# -- links -----------------------------------------------------------------------------------------------


def test_links_are_unique_and_in_page_order() -> None:
    assert links(
        "<a href=b#1></a><a href=/a></a><a href=./b></a><a href=b#2></a><a href='/?x=1&y=2'></a><a href='/?y=2&x=1'>"
    ) == [
        "/dir/b",
        "/a",
        "/?x=1&y=2",
    ]


def test_all_elements_that_lead_to_pages_are_read() -> None:
    markup = """<link rel=next href=1><link rel='PREV' href=2><link rel=canonical href=3><link rel=stylesheet href=no>
    <link rel=alternate hreflang=de href=4><link rel=alternate href=5><link rel=alternate type=text/html href=6>
    <link rel=alternate type=application/rss+xml href=no><link rel='alternate stylesheet' href=no><link rel=icon href=no>
    <link rel=alternate type=application/atom+xml hreflang=de href=no>
    <map><area href=7></map><iframe src=8></iframe><meta http-equiv=Refresh content="5; URL='9'"><svg><a xlink:href=10></a></svg>
    <img src=no><script src=no></script><form action=no></form>"""
    assert links(markup) == [f"/dir/{number}" for number in range(1, 11)]


def test_frames_are_read() -> None:
    assert links("<frameset><frame src=a><frame src=b></frameset>") == ["/dir/a", "/dir/b"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("5; url=x", ["/dir/x"]),
        ("0;URL = 'x y' z", ["/dir/x%20y"]),
        ("0 x", ["/dir/x"]),
        (".5,x", ["/dir/x"]),
        ('1.5;"x"', ["/dir/x"]),
        ("0; urlx", ["/dir/urlx"]),
        ("0;url='x", ["/dir/x"]),
        ("5", []),
        ("5;", []),
        ("x; url=y", []),
        ("5x; url=y", []),
        ("-1; url=y", []),
        ("0;url=javascript:alert(1)", []),
    ],
)
def test_a_refresh_is_read_as_browsers_read_it(content: str, expected: list[str]) -> None:
    assert links(f'<meta http-equiv=refresh content="{content.replace(chr(34), "&quot;")}">') == expected


def test_what_is_not_in_the_document_is_no_link() -> None:
    markup = "<!-- <a href=no> --><template><a href=no></a></template><script>'<a href=no>'</script><textarea><a href=no></textarea>"
    assert links(markup + "<noscript><a href=yes></a></noscript>") == ["/dir/yes"]


def test_only_valid_http_urls_are_links() -> None:
    markup = "<a href=mailto:a@b><a href=javascript:x><a href=ftp://h/><a href=http://[><a href='http://a b/'><a href=data:,x><a name=x>"
    assert links(markup) == []


def test_an_anchor_into_the_page_leads_to_the_page() -> None:
    assert links("<a href=#top></a><a href></a><a href='?x'></a>") == ["/dir/page?q=1", "/dir/page?x"]


def test_white_space_around_and_within_references_is_read_as_the_standard_says() -> None:
    assert links("<a href=' \n a\tb\n '></a><a href='c d'></a><a href='e #f'></a>") == [
        "/dir/ab",
        "/dir/c%20d",
        "/dir/e%20",
    ]


def test_the_first_base_counts_wherever_it_stands() -> None:
    assert links("<a href=x></a><base><base href=/other/><base href=/no/>") == ["/other/x"]
    assert links("<base href='javascript:1'><a href=x>") == ["/dir/x"]
    assert links("<base href='http://['><a href=x>") == ["/dir/x"]
    assert [link.host for link in extract("<base href=//elsewhere.example/a/b><a href=x>").links] == [
        "elsewhere.example"
    ]
    assert links("<base href=ftp://h/><a href=x></a><a href=http://site.example/y>") == ["/y"]


def test_a_nofollow_link_is_kept_but_not_followed_unless_another_follows_it() -> None:
    found = extract(
        "<a rel='noopener NOFOLLOW' href=a></a><a rel=nofollow href=b></a><a href=b#x></a><a href=c></a><a rel=nofollow href=c></a>"
        "<a rel=ugc href=d></a>"
    ).links
    assert [(link.url[-1], link.follow) for link in found] == [
        ("a", False),
        ("b", True),
        ("c", True),
        ("d", True),
    ]


def test_links_carry_fingerprint_and_host() -> None:
    policy = UrlPolicy()
    (link,) = extract("<a href='https://user:pw@Other.example:8443/x?b=1&a=2'>").links
    assert link.url == "https://other.example:8443/x?b=1&a=2"
    assert (link.fingerprint, link.host) == (policy.fingerprint(link.url), "other.example")


def test_links_are_bounded_in_number_and_length() -> None:
    body = b"".join(b"<a href=%d></a>" % number for number in range(50)) + b"<a href=x>"
    assert len(extractor(max_links=10).extract(body, "", _URL).links) == 10
    assert links(f"<a href=/{'x' * 5000}></a><a href=/ok#{'x' * 5000}>") == ["/ok"]


def test_what_was_learnt_on_one_page_holds_only_where_it_is_true() -> None:
    references = [
        "x",
        "/x",
        "?x",
        "",
        "#x",
        "../x",
        "http:x",
        "http:?x",
        "//o.example/x",
        "https://o.example/x",
        "ht\ntp:?x",
        "\\x",
        " x",
    ]
    body = "".join(f"<a href='{reference}'></a>" for reference in references).encode()
    shared = extractor()
    for url in (
        "http://a.example/d/p",
        "http://a.example/d/q?/r",
        "http://a.example/e/p",
        "https://a.example/d/p",
        "http://b.example/p",
    ):
        for _ in range(2):
            assert shared.extract(body, "", url).links == extractor().extract(body, "", url).links


def test_memory_of_links_is_bounded_and_forgetting_changes_nothing() -> None:
    small = extractor(max_remembered_links=3)
    for page in range(20):
        url = f"http://h{page}.example/"
        body = b"<a href=a></a><a href=/b></a><a href=c>"
        assert small.extract(body, "", url).links == extractor().extract(body, "", url).links
        assert small._links._remembered <= 3 + 5


# -- hostile documents -----------------------------------------------------------------------------------

_KEPT = b"<title>T</title><h1>H</h1><a href=x></a>"
_BOMBS = {
    "nested": b"<div>" * 1_000_000,
    "nested and closed": b"<div>" * 1_000_000 + b"</div>" * 1_000_000,
    "nested with padding": b"<div><i></i><i></i>" * 200_000,
    "formatting": b"".join(b"<b id=%d><p>" % number for number in range(20_000)),
    "formatting with padding": b"".join(b"<b id=%d><p><i></i><i></i>" % number for number in range(20_000)),
    "headings": b"<h1><div>x" * 200_000,
    "lists": b"<ul><li>" * 300_000,
    "attributes": b"<p " + b" ".join(b"a%d" % number for number in range(300_000)) + b">",
    "one attribute": b"<p title='" + b"x " * 1_000_000 + b"'>",
    "tags without end": b"<a " * 500_000,
    "quotes without end": b"<a '" * 500_000,
    "comments without end": b"<!--" * 500_000,
    "scripts without end": b"<script>" * 300_000,
    "selects": b"<select><selectedcontent></selectedcontent><option>" * 30_000,
}


@pytest.mark.parametrize("bomb", _BOMBS.values(), ids=_BOMBS.keys())
def test_markup_made_to_exhaust_the_parser_is_read_all_the_same(bomb: bytes) -> None:
    facts = extract(_KEPT + bomb)
    assert (facts.title, facts.headings[0], facts.links[0].url) == ("T", "H", "http://site.example/dir/x")


def test_a_deep_document_is_read_to_its_end() -> None:
    facts = extract(
        b"<div>" * 100_000 + b"<a href=x class='a>b'>y</a><h2>H</h2><!-- <a href=no> --><frame src=z>"
    )
    assert ([link.url[-1] for link in facts.links], facts.headings) == (["x", "z"], ["H"])


_SNIPPETS = st.lists(
    st.sampled_from(
        [
            b"<a href=",
            b"<base href=",
            b"<meta name=robots content=",
            b"<meta http-equiv=refresh content=",
            b"<title>",
            b"<h1>",
            b"<svg>",
            b"<template>",
            b"<frameset>",
            b"<frame src=",
            b"<html lang=",
            b">",
            b'"',
            b"'",
            b"\0",
            b"\xff",
            b"\xed\xa0\x80",
            b"&#xD800;",
            b"&#0;",
            b"http://h/",
            b"//",
            b"#",
            b"?",
            b"0;url=",
            b" ",
            b"<!--",
            b"-->",
            b"</",
            b"<link rel=next href=",
            b"<iframe src=",
            b"x",
        ]
    ),
    max_size=40,
).map(b"".join)


@settings(max_examples=300)
@given(
    st.one_of(st.binary(), _SNIPPETS),
    st.text(max_size=30),
    st.lists(st.text(max_size=20), max_size=2),
    st.text(max_size=10),
)
def test_whatever_the_bytes_the_facts_can_be_written(
    body: bytes, content_type: str, tags: list[str], language: str
) -> None:
    facts = extractor().extract(body, content_type, _URL, tags, language)
    written = msgspec.json.encode(facts)
    assert b"\\u0000" not in written
    for link in facts.links:
        assert link.host == host_of(link.url)


# -- the text a reader sees ------------------------------------------------------------------------------


def test_the_text_is_what_a_reader_sees_and_only_where_asked_for() -> None:
    markup = "<title>T</title><style>a{}</style><p>one<b>two</b></p><script>x()</script><template>no</template><td>three"
    assert extract(markup).text == ""
    facts = extract(markup, with_text=True)
    assert facts.text.split() == ["one", "two", "three"]
    assert facts.title == "T"
