from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from xml.parsers import expat

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.extract.html import HtmlExtractor
from gossamer.extract.links import base_url
from gossamer.extract.xml import XmlExtractor
from gossamer.model.page import Facts
from gossamer.model.url import UrlPolicy, host_of

_URL = "http://site.example/dir/sitemap.xml"
_NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_ENTRY = b"<url><loc>http://site.example/found</loc></url>"


def extractor(policy: UrlPolicy | None = None, **options: int) -> XmlExtractor:
    return XmlExtractor(policy or UrlPolicy(), user_agent="Gossamer/0.1 (+https://example.org/)", **options)


def extract(body: str | bytes, content_type: str = "application/xml", **more: object) -> Facts:
    data = body.encode() if isinstance(body, str) else body
    return extractor().extract(data, content_type, _URL, **more)  # type: ignore[arg-type]


def urls(body: str | bytes, content_type: str = "application/xml") -> list[str]:
    return [link.url for link in extract(body, content_type).links]


def sitemap(*locations: str, declaration: str = '<?xml version="1.0" encoding="UTF-8"?>') -> str:
    entries = "".join(f"<url><loc>{location}</loc></url>\n" for location in locations)
    return f"{declaration}\n<urlset {_NS}>\n{entries}</urlset>"


# -- sitemaps --------------------------------------------------------------------------------------------


def test_the_pages_of_a_sitemap_are_its_links_in_order_and_each_once() -> None:
    body = sitemap("http://b.example/", "http://a.example/?b=2&amp;a=1", "http://a.example/?a=1&amp;b=2#part")
    assert urls(body) == ["http://b.example/", "http://a.example/?b=2&a=1"]


def test_the_sitemaps_of_an_index_are_its_links() -> None:
    body = f"<sitemapindex {_NS}><sitemap><loc>one.xml</loc><lastmod>2026-01-01</lastmod></sitemap></sitemapindex>"
    assert urls(body) == ["http://site.example/dir/one.xml"]


def test_a_location_may_be_padded_or_written_as_cdata_or_with_references() -> None:
    body = sitemap("\n  http://h/a\n", "<![CDATA[http://h/?b&c]]>", "http://h/&#x64;", "<!-- x -->http://h/e")
    assert urls(body) == ["http://h/a", "http://h/?b&c", "http://h/d", "http://h/e"]


def test_only_http_and_https_locations_are_links() -> None:
    body = sitemap("file:///etc/passwd", "javascript:x()", "ftp://h/", "https://h/", "http://[", "", "  ")
    assert urls(body) == ["https://h/"]


def test_locations_that_are_no_pages_of_the_sitemap_are_no_links() -> None:
    image = "<url><loc>http://h/</loc><image:image><image:loc>http://h/no.png</image:loc></image:image></url>"
    loose = (
        "<loc>http://h/no</loc><x><url><loc>http://h/no</loc></url></x><url><x:loc>http://h/no</x:loc></url>"
    )
    assert urls(f"<urlset>{loose}{image}</urlset>") == ["http://h/"]


def test_a_sitemap_may_have_a_prefix() -> None:
    body = "<s:urlset><s:url><x:loc>http://h/no</x:loc><s:loc>http://h/</s:loc></s:url></s:urlset>"
    assert urls(body) == ["http://h/"]


def test_a_link_obeys_the_url_policy() -> None:
    policy = UrlPolicy(strip_tracking=True, max_url_bytes=30)
    body = sitemap("http://h/?utm_source=x", "http://h/" + "long" * 10).encode()
    assert [link.url for link in extractor(policy).extract(body, "", _URL).links] == ["http://h/"]


# -- feeds -----------------------------------------------------------------------------------------------


def test_rss_has_the_title_of_its_channel_and_the_links_of_its_items() -> None:
    facts = extract(
        """<rss version="2.0"><channel><title> Threads
        &amp; yarn </title><link>http://h/no</link><atom:link href="http://h/no" rel="self"/>
        <item><title>no</title><link>http://h/1</link><media:link>http://h/no</media:link></item>
        <item><link>/2</link></item><image><link>http://h/no</link></image></channel></rss>"""
    )
    assert facts.title == "Threads & yarn"
    assert [link.url for link in facts.links] == ["http://h/1", "http://site.example/2"]


def test_rss_of_version_1_is_read_too() -> None:
    facts = extract(
        '<rdf:RDF xmlns="http://purl.org/rss/1.0/"><channel><title>T</title></channel>'
        "<item><link>http://h/</link></item></rdf:RDF>"
    )
    assert (facts.title, [link.url for link in facts.links]) == ("T", ["http://h/"])


def test_atom_has_the_title_of_the_feed_and_the_alternate_links_of_its_entries() -> None:
    facts = extract(
        """<feed xml:base="http://h/blog/"><title type="xhtml"><div>The <b>feed</b></div></title><link href="/no"/>
        <entry><title>no</title><link href="1"/><link rel="enclosure" href="no.mp3"/></entry>
        <entry><link rel="alternate" href="/2"/><link rel="self" href="no"/><link/></entry></feed>"""
    )
    assert facts.title == "The feed"
    assert [link.url for link in facts.links] == ["http://h/blog/1", "http://h/2"]


def test_other_xml_has_no_facts() -> None:
    assert extract('<svg><a href="http://h/"><title>x</title></a><loc>http://h/</loc></svg>').links == []
    assert extract("<url><loc>http://h/</loc></url>").links == []


def test_a_title_is_cut_and_a_link_that_is_too_long_is_none() -> None:
    assert extract(f"<rss><channel><title>{'x' * 20_000}</title></channel></rss>").title == "x" * 1000
    assert urls(sitemap(f"http://h/{'y/../' * 20_000}", "http://h/next")) == ["http://h/next"]


def test_what_the_headers_wish_is_kept() -> None:
    facts = extract(sitemap("http://h/"), x_robots_tag=["noindex"], content_language="de ")
    assert (facts.noindex, facts.nofollow, facts.language) == (True, False, "de")
    assert extract("<!DOCTYPE x><x/>", x_robots_tag=["gossamer: nofollow"]).nofollow


# -- encodings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16"),
        ("utf-16-be", "utf-16"),
        ("latin-1", "iso-8859-1"),
        ("koi8-r", "KOI8-R"),
        ("gb18030", "GBK"),
        ("shift_jis", "Shift_JIS"),
    ],
)
def test_a_declared_encoding_is_read(encoding: str, declared: str) -> None:
    letter = "é" if encoding == "latin-1" else "д"
    body = f"<?xml version='1.0' encoding='{declared}'?><rss><channel><title>{letter}</title></channel></rss>"
    assert extract(body.encode(encoding)).title == letter


def test_the_header_wins_over_the_declaration_and_a_meta_element_says_nothing() -> None:
    body = '<?xml version="1.0" encoding="utf-8"?><rss><channel><title>ж<!--<meta charset=koi8-r>--></title></channel></rss>'
    assert extract(body.encode("koi8-r"), "text/xml; charset=koi8-r").title == "ж"
    assert extract(body.encode()).title == "ж"


@pytest.mark.parametrize("encoding", ["utf-7", "UTF-7", "ebcdic-cp-us", "zlib", "iso-2022-kr", "utf-32"])
def test_an_encoding_that_browsers_do_not_know_is_refused(encoding: str) -> None:
    body = sitemap("http://h/", declaration=f"<?xml version='1.0' encoding='{encoding}'?>")
    facts = extract(body)
    assert (facts.links, facts.note) == ([], f"XML in an unknown encoding is not read: {_URL}")


def test_a_header_that_says_utf_7_does_not_turn_text_into_markup() -> None:
    hidden = "+ADw-url+AD4APA-loc+AD4-http://h/+ADw-/loc+AD4APA-/url+AD4-"
    assert urls(f"<urlset>{hidden}</urlset>", "text/xml; charset=utf-7") == []
    assert urls("+ADw-" + sitemap("http://h/"), "text/xml; charset=utf-7") == []


# -- what is refused -------------------------------------------------------------------------------------

_LAUGHS = "".join(
    f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "http://site.example/laugh"}">' for n in range(30)
)
_DTDS = {
    "plain": "<!DOCTYPE urlset>",
    "public": '<!DOCTYPE urlset PUBLIC "-//X//Y" "http://127.0.0.1:9/x.dtd">',
    "billion laughs": f"<!DOCTYPE urlset [{_LAUGHS}]>",
    "external entity": '<!DOCTYPE urlset [<!ENTITY l29 SYSTEM "file:///etc/passwd">]>',
    "parameter entity": '<!DOCTYPE urlset [<!ENTITY % p SYSTEM "http://127.0.0.1:9/"> %p;]>',
    "nested parameter entities": "<!DOCTYPE urlset [<!ENTITY % a '&#37;b;'><!ENTITY % b '<!ENTITY l29 \"http://h/\">'>%a;]>",
    "defaults": "<!DOCTYPE urlset [<!ATTLIST link href CDATA 'http://h/'>]>",
    "behind a comment": "<!-- <urlset> --><?xml-stylesheet href='x'?>\n<!--a--><!DOCTYPE urlset>",
    "unfinished": "<!DOCTYPE urlset [",
}


@pytest.mark.parametrize("dtd", _DTDS.values(), ids=_DTDS.keys())
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_page_with_a_dtd_is_not_read(dtd: str, encoding: str) -> None:
    declaration = "<?xml version='1.0'?>" + dtd
    body = sitemap("http://site.example/found", "&l29;", declaration=declaration).encode(encoding)

    def seconds() -> float:
        began = time.process_time()
        facts = extract(body)
        assert (facts.links, facts.title) == ([], "")
        assert facts.note == f"XML with a DTD is not read: {_URL}"
        return time.process_time() - began

    # The best of three: a collection of garbage may fall into one.
    assert min(seconds() for _ in range(3)) < 0.1


_PROLOG_PARTS = ["<!--", "-->", "-", "<?xml ", "<?x", "?>", "?", ">", "<", " ", "\n", "\ufeff", "x", "<x>"]
_PROLOG_PARTS += [
    "<!DOCTYPE x>",
    "<!DOCTYPE ",
    "<!doctype x>",
    "<![CDATA[",
    "]]>",
    "<!DOCTYPE x [<!ENTITY y 'z'>]>",
]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(_PROLOG_PARTS), max_size=12))
def test_no_dtd_that_the_parser_would_see_goes_unnoticed(prolog: list[str]) -> None:
    body = "".join([*prolog, "<urlset/>"]).encode()
    seen: list[str] = []
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = lambda name, *_more: seen.append(name)
    with suppress(expat.ExpatError):
        parser.Parse(body, True)  # noqa: FBT003 - its parameter has no name
    if seen:
        assert "DTD" in extract(body).note


def test_a_dtd_that_is_only_quoted_is_none() -> None:
    quoted = f"<!-- <!DOCTYPE x> --><urlset><x><![CDATA[<!DOCTYPE html>]]></x>{_ENTRY.decode()}</urlset>"
    assert urls(quoted) == ["http://site.example/found"]


@pytest.mark.parametrize(
    "element",
    [
        "<xi:include xmlns:xi='http://www.w3.org/2001/XInclude' href='file:///etc/passwd' parse='text'/>",
        "<include xmlns='http://www.w3.org/2001/XInclude' href='http://127.0.0.1:9/'/>",
        "<url><loc><q:include xmlns:q='&#104;ttp://www.w3.org/2001/XInclude' href='x'/></loc></url>",
    ],
)
def test_a_page_with_xinclude_is_not_read(element: str) -> None:
    facts = extract(f"<urlset>{_ENTRY.decode()}{element}</urlset>")
    assert (facts.links, facts.note) == ([], f"XML with XInclude is not read: {_URL}")


def test_xinclude_that_is_only_mentioned_is_none() -> None:
    body = "<feed><entry><link href='http://www.w3.org/2001/XInclude'/></entry></feed>"
    assert urls(body) == ["http://www.w3.org/2001/XInclude"]


def test_a_stylesheet_is_passed_over() -> None:
    body = f"<?xml version='1.0'?><?xml-stylesheet href='http://h/no.xsl'?><urlset>{_ENTRY.decode()}</urlset>"
    facts = extract(body)
    assert ([link.url for link in facts.links], facts.note) == (["http://site.example/found"], "")


# -- what is malformed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "<url><loc>http://h/cut-o",
        "</wrong>",
        "<url & ",
        "&nbsp;",
        "&undeclared;",
        "\0",
        "<!DOCTYPE x>",
        "\ud800",
    ],
)
def test_malformed_xml_is_read_up_to_the_fault(fault: str) -> None:
    body = b"<urlset>" + _ENTRY + fault.encode("utf-8", "surrogatepass") + b"<url><loc>http://h/</loc></url>"
    found = ["http://site.example/found"] if fault else ["http://site.example/found", "http://h/"]
    facts = extract(body)
    assert ([link.url for link in facts.links], facts.note) == (found, "")


def test_white_space_before_the_declaration_is_forgiven() -> None:
    assert urls("\r\n \t" + sitemap("http://h/")) == ["http://h/"]


# -- what is too much ------------------------------------------------------------------------------------


def test_no_more_links_are_taken_than_asked_for_and_the_note_says_so() -> None:
    body = sitemap(*(f"http://h/{number}" for number in range(11))).encode()
    facts = extractor(max_links=10).extract(body, "", _URL)
    assert len(facts.links) == 10
    assert "--max-links-per-page 10" in facts.note
    assert extractor(max_links=11).extract(body, "", _URL).note == ""


def test_elements_are_read_to_a_bound() -> None:
    body = b"<urlset>" + b"<x/>" * 97 + _ENTRY + _ENTRY.replace(b"found", b"too-far")
    facts = extractor(max_elements=100).extract(body, "", _URL)
    assert [link.url for link in facts.links] == ["http://site.example/found"]
    assert facts.note == f"XML is not read beyond --max-xml-elements 100: {_URL}"


def test_nesting_is_read_to_a_bound() -> None:
    deep = b"<urlset>" + _ENTRY + b"<x>" * 9 + b"</x>" * 9 + _ENTRY.replace(b"found", b"next")
    assert len(extractor(max_depth=10).extract(deep, "", _URL).links) == 2
    facts = extractor(max_depth=9).extract(deep, "", _URL)
    assert [link.url for link in facts.links] == ["http://site.example/found"]
    assert facts.note == f"XML is not read beyond --max-xml-depth 9: {_URL}"


_HEAVY = {
    "a million levels": b"<x>" * 1_000_000,
    "text of 50 MB": b"<x>" + b"y" * 50_000_000 + b"</x>",
    "a location of 50 MB": b"<url><loc>" + b"y" * 50_000_000 + b"</loc></url>",
    "a tag of 50 MB": b"<x " + b"y" * 50_000_000,
    "a comment of 50 MB": b"<!--" + b"y" * 50_000_000,
    "a million attributes": b"<x " + b" ".join(b"a%d=''" % number for number in range(1_000_000)) + b"/>",
    "a long namespace": b"<x xmlns='" + b"y" * 900_000 + b"'>" + b"<y/>" * 500_000,
    "a million elements": b"<url><loc>x</loc></url>" * 500_000,
}


@pytest.mark.parametrize("heavy", _HEAVY.values(), ids=_HEAVY.keys())
def test_xml_made_to_exhaust_the_parser_costs_little(heavy: bytes) -> None:
    began = time.process_time()
    facts = extract(b"<urlset>" + _ENTRY + heavy)
    assert facts.links[0].url == "http://site.example/found"
    assert time.process_time() - began < 5


def test_a_tag_is_read_to_a_bound() -> None:
    long, next_entry = b"<x y='%s'/>", _ENTRY.replace(b"found", b"next")
    assert len(extract(b"<urlset>" + _ENTRY + long % (b"z" * 700_000) + next_entry).links) == 2
    facts = extract(b"<urlset>" + _ENTRY + long % (b"z" * 2_000_000) + next_entry)
    assert [link.url for link in facts.links] == ["http://site.example/found"]
    assert facts.note == f"XML is not read beyond a tag of 1048576 bytes: {_URL}"


@pytest.mark.parametrize("element", [b"title", b"item><link"])
def test_text_without_end_is_not_kept(element: bytes) -> None:
    body = b"<rss><channel><" + element + b">" + b"y" * 50_000_000
    tracemalloc.start()
    try:
        extract(body)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_comments_without_end_before_the_root_cost_little() -> None:
    began = time.process_time()
    assert urls(b"<!---->" * 1_000_000 + b"<!--" * 1_000_000 + b"<urlset>" + _ENTRY) == []
    assert time.process_time() - began < 5


def test_a_base_too_long_for_any_url_is_passed_over() -> None:
    assert base_url(_URL, "/" + "x" * 8191) != _URL
    assert base_url(_URL, "/" + "x" * 8192) == _URL
    links = b"".join(b"<a href=%d></a>" % number for number in range(10_000))
    began = time.process_time()
    facts = HtmlExtractor(UrlPolicy()).extract(b"<base href='/" + b"x" * 500_000 + b"/'>" + links, "", _URL)
    assert len(facts.links) == 10_000
    assert time.process_time() - began < 2


# -- whatever the bytes ----------------------------------------------------------------------------------

_SPECIMENS = [
    sitemap("http://site.example/a", "http://site.example/b?c=&amp;d", "<![CDATA[x]]>").encode(),
    f"<sitemapindex {_NS}><sitemap><loc>http://h/1.xml</loc></sitemap></sitemapindex>".encode(),
    b"<rss><channel><title>T &lt;</title><item><link>http://h/</link></item></channel></rss>",
    "<feed xml:base='http://h/'><title>é</title><entry><link rel='alternate' href='x'/></entry></feed>".encode(
        "utf-16"
    ),
    b"<?xml version='1.0' encoding='shift_jis'?><!-- c --><urlset>" + _ENTRY + b"</urlset>",
    f"<?xml version='1.0'?><!DOCTYPE x [{_LAUGHS}]><x>&l29;</x>".encode(),
    b"<a xmlns:xi='http://www.w3.org/2001/XInclude'><xi:include href='x'/></a>",
]
_INSERTS = [b"<", b">", b"&", b"]]>", b"<!--", b"<?", b"<!DOCTYPE x [", b"\0", b"\xff\xfe", b"\xef\xbb\xbf"]
_INSERTS += [
    b"<![CDATA[",
    b"xmlns:",
    b"'",
    b'"',
    b"<loc>",
    b"\xed\xa0\x80",
    b"&#xD800;",
    b"&#0;",
    b"\xf4\x90",
]


def mutations(count: int, seed: int) -> Iterator[bytes]:
    dice = random.Random(seed)
    for _ in range(count):
        body = bytearray(dice.choice(_SPECIMENS))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(body) + 1)
            match dice.randrange(4):
                case 0:
                    body[at : at + dice.randint(1, 20)] = b""
                case 1:
                    body[at:at] = dice.choice(_INSERTS)
                case 2:
                    body[at : at + 1] = bytes([dice.randrange(256)])
                case _:
                    body[at:at] = body[at // 2 : at]
        yield bytes(body)


@pytest.mark.parametrize(("count", "seed"), [(2_000, 1), pytest.param(10_000, 2, marks=pytest.mark.soak)])
def test_whatever_the_bytes_the_facts_can_be_written(count: int, seed: int) -> None:
    shared = extractor()
    found = 0
    for body in mutations(count, seed):
        facts = shared.extract(body, "", _URL, ["noindex"], "\udcff")
        assert b"\\u0000" not in msgspec.json.encode(facts)
        for link in facts.links:
            assert link.host == host_of(link.url)
        found += bool(facts.links)
    assert found > count / 20
