from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossamer.errors import InvalidUrl
from gossamer.model.url import (
    UrlPolicy,
    canonical_or_empty,
    canonicalise,
    dedup_key,
    fingerprint,
    host_of,
    join,
    origin_of,
    parse,
)

_PIECES = st.lists(
    st.sampled_from(
        [
            "http://",
            "https://",
            "a",
            "B.example",
            ":80",
            ":443",
            ":8080",
            "/",
            "..",
            ".",
            "?",
            "&",
            "=",
            "#",
            "%",
            "%41",
            "@",
            "u:p@",
            "é",
            "\ud800",
            " ",
            "\t",
            "\\",
            "[::1]",
            "utm_source=x",
            "b=1",
            "a=2",
            "a=1",
            "+",
            ";",
            "ß.example",
            "\0",
            "xn--",
        ]
    ),
    max_size=12,
).map("".join)
_TEXTS = st.one_of(st.text(), _PIECES, _PIECES.map("http://h/".__add__), _PIECES.map("https://h".__add__))


def test_parts_of_a_url_have_no_delimiters() -> None:
    url = parse("HTTPS://User:Secret@EXAMPLE.com:8443/a/../b?x=1#top")
    assert (url.scheme, url.username, url.password, url.host, url.port) == (
        "https",
        "User",
        "Secret",
        "example.com",
        8443,
    )
    assert (url.origin, url.path, url.query, url.fragment) == ("https://example.com:8443", "/b", "x=1", "top")
    assert url.href == "https://User:Secret@example.com:8443/b?x=1#top"


def test_a_url_of_any_scheme_is_parsed() -> None:
    url = parse("mailto:someone@example.com")
    assert (url.scheme, url.path, url.host, url.port, url.origin) == (
        "mailto",
        "someone@example.com",
        "",
        None,
        "null",
    )


@pytest.mark.parametrize(
    "text", ["", "example.com", "http://", "http://[::1", "http://a b/", "http://h:99999/", "//h/x"]
)
def test_what_is_no_absolute_url_is_rejected(text: str) -> None:
    with pytest.raises(InvalidUrl, match="not a URL"):
        parse(text)


def test_references_are_joined_as_browsers_join_them() -> None:
    base = "http://h/a/b?q"
    assert join(base, "../c") == "http://h/c"
    assert join(base, "?x") == "http://h/a/b?x"
    assert join(base, "//other/x") == "http://other/x"
    assert join(base, " \t/x\n") == "http://h/x"
    with pytest.raises(InvalidUrl):
        join(base, "http://[")


def test_a_canonical_url_has_no_fragment_default_port_or_credentials() -> None:
    assert (
        canonicalise("HTTP://user:pw@Example.COM:80/%7Ea/./b/../c?b=2&a=1#x")
        == "http://example.com/%7Ea/c?b=2&a=1"
    )
    assert canonicalise("https://h:443") == "https://h/"
    assert canonicalise("http://h/@a:b@c?d@e") == "http://h/@a:b@c?d@e"
    assert canonicalise("x", "https://u@h/y/z") == "https://h/y/x"


@pytest.mark.parametrize(
    "text", ["ftp://h/", "mailto:a@b", "javascript:alert(1)", "data:text/html,x", "about:blank", "x"]
)
def test_only_http_urls_have_a_canonical_form(text: str) -> None:
    assert canonical_or_empty(text) == ""
    with pytest.raises(InvalidUrl):
        canonicalise(text)


def test_an_error_does_not_repeat_an_endless_url() -> None:
    with pytest.raises(InvalidUrl) as caught:
        canonicalise("x" * 1_000_000)
    assert len(str(caught.value)) < 500


def test_tracking_parameters_are_dropped_on_request() -> None:
    url = "http://h/?utm_source=a&id=1&FBCLID=x&utm%5Fterm=y&ref=2&_ga=3"
    assert canonicalise(url) == url
    assert canonicalise(url, strip_tracking=True) == "http://h/?id=1&ref=2"
    assert canonicalise("http://h/?gclid=1#x", strip_tracking=True) == "http://h/"
    assert canonicalise("http://h/?", strip_tracking=True) == "http://h/?"


def test_the_dedup_key_sorts_parameters_by_name_and_keeps_the_order_of_equal_names() -> None:
    assert dedup_key("http://h/?b=1&a=2&b=0&a=1") == "http://h/?a=2&a=1&b=1&b=0"
    assert dedup_key("http://h/?b=1&a=2", sort_query=False) == "http://h/?b=1&a=2"
    assert dedup_key("http://h/a&b?c") == "http://h/a&b?c"
    assert dedup_key("http://h/?a10=1&a=2") == "http://h/?a=2&a10=1"


def test_fingerprints_fit_a_signed_64_bit_column_and_never_change() -> None:
    assert fingerprint("http://example.com/") == -5081748069831205333
    values = [fingerprint(f"http://h/{number}") for number in range(200)]
    assert all(-(2**63) <= value < 2**63 for value in values)
    assert min(values) < 0 < max(values)


def test_method_and_body_are_part_of_a_fingerprint() -> None:
    key = "http://h/"
    values = {
        fingerprint(key),
        fingerprint(key, "POST"),
        fingerprint(key, "POST", b"x"),
        fingerprint(key, "GET", b"x"),
    }
    assert len(values) == 4
    assert fingerprint(key, "GET", b"") == fingerprint(key)


@pytest.mark.parametrize(
    ("url", "host", "origin"),
    [
        ("http://h/", "h", "http://h"),
        ("https://h/a:b/c", "h", "https://h"),
        ("https://a.example:8443/?x=/", "a.example", "https://a.example:8443"),
        ("http://[::1]/x", "[::1]", "http://[::1]"),
        ("http://[::1]:8080/x", "[::1]", "http://[::1]:8080"),
    ],
)
def test_host_and_origin_are_cut_out_of_a_canonical_url(url: str, host: str, origin: str) -> None:
    assert host_of(url) == host == parse(url).host
    assert origin_of(url) == origin == parse(url).origin


def test_a_policy_refuses_urls_that_are_too_long() -> None:
    policy = UrlPolicy(max_url_bytes=20)
    assert policy.canonicalise("http://h/" + "x" * 11) == "http://h/" + "x" * 11
    assert policy.canonical_or_empty("http://h/" + "x" * 12) == ""
    with pytest.raises(InvalidUrl):
        policy.canonicalise("http://h/" + "é" * 4)


def test_a_policy_decides_which_urls_are_the_same() -> None:
    one, other = "http://h/?a=1&b=2", "http://h/?b=2&a=1"
    assert UrlPolicy().fingerprint(one) == UrlPolicy().fingerprint(other)
    assert UrlPolicy(sort_query=False).fingerprint(one) != UrlPolicy(sort_query=False).fingerprint(other)
    assert UrlPolicy(strip_tracking=True).canonicalise("http://h/?utm_x=1") == "http://h/"


@given(_TEXTS, st.booleans())
@example(text="http://h/\ud800", strip_tracking=False)
def test_canonicalise_is_idempotent_and_its_result_can_be_cut(text: str, strip_tracking: bool) -> None:
    canonical = canonical_or_empty(text, strip_tracking=strip_tracking)
    if canonical:
        assert canonicalise(canonical, strip_tracking=strip_tracking) == canonical
        assert canonical.isascii()
        parsed = parse(canonical)
        assert (parsed.host, parsed.origin) == (host_of(canonical), origin_of(canonical))
        assert (parsed.username, parsed.password, parsed.fragment) == ("", "", "")


@given(_TEXTS)
def test_the_dedup_key_is_idempotent_and_is_canonical_itself(text: str) -> None:
    canonical = canonical_or_empty(text)
    key = dedup_key(canonical)
    assert dedup_key(key) == key
    assert canonical_or_empty(key) == key
