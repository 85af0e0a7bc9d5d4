from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import GossamerError
from gossamer.policy.cookies import MAX_AGE_SECONDS, CookieJar

NOW = 1_700_000_000.0
HOME = "https://www.example.org/shop/cart?id=1"


def jar_with(*headers: str, url: str = HOME, jar: CookieJar | None = None) -> CookieJar:
    jar = CookieJar() if jar is None else jar
    jar.store(url, headers, NOW)
    return jar


def test_a_cookie_comes_back_to_the_host_that_set_it() -> None:
    jar = jar_with("a=1; Path=/")
    assert jar.header_for("https://www.example.org/", NOW) == "a=1"
    assert not jar.header_for("https://example.org/", NOW)
    assert not jar.header_for("https://sub.www.example.org/", NOW)


def test_a_jar_without_cookies_sends_none() -> None:
    assert not CookieJar().header_for(HOME, NOW)


def test_a_domain_cookie_reaches_hosts_below_it_but_not_names_that_merely_end_alike() -> None:
    jar = jar_with("a=1; Domain=.Example.org; Path=/")
    assert jar.header_for("http://deep.sub.example.org/", NOW) == "a=1"
    assert jar.header_for("http://example.org/", NOW) == "a=1"
    assert not jar.header_for("http://badexample.org/", NOW)


@pytest.mark.parametrize(
    "domain", ["org", ".org", "other.org", "sub.www.example.org", "www.example.org.", "ample.org"]
)
def test_a_host_cannot_set_cookies_for_domains_not_its_own(domain: str) -> None:
    assert jar_with(f"a=1; Domain={domain}").count == 0


def test_a_tenant_cannot_set_cookies_for_its_neighbours() -> None:
    assert jar_with("a=1; Domain=github.io", url="https://alice.github.io/").count == 0


def test_a_public_suffix_may_set_cookies_for_itself_alone() -> None:
    jar = jar_with("a=1; Domain=github.io; Path=/", url="https://github.io/")
    assert jar.header_for("https://github.io/", NOW) == "a=1"
    assert not jar.header_for("https://alice.github.io/", NOW)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_addresses_and_single_labels_keep_cookies_to_themselves(host: str) -> None:
    jar = jar_with("a=1", f"b=2; Domain={host}", "c=3; Domain=0.0.1", url=f"http://{host}:8080/")
    assert jar.header_for(f"http://{host}:9090/", NOW) == "a=1; b=2"


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/shop", True),
        ("/shop/", True),
        ("/shop/x", True),
        ("/shopping", False),
        ("/", False),
        ("/Shop", False),
    ],
)
def test_a_path_covers_itself_and_what_is_below(path: str, sent: bool) -> None:
    jar = jar_with("a=1")
    assert bool(jar.header_for(f"https://www.example.org{path}", NOW)) is sent


def test_longer_paths_go_first_then_older_cookies_and_a_replaced_one_keeps_its_age() -> None:
    jar = jar_with("a=1; Path=/", "b=2; Path=/", "c=3; Path=/shop", "a=9; Path=/")
    assert jar.header_for(HOME, NOW) == "c=3; a=9; b=2"


def test_a_secure_cookie_needs_tls_both_ways() -> None:
    jar = jar_with("a=1; Secure; Path=/")
    assert jar.header_for("https://www.example.org/", NOW) == "a=1"
    assert not jar.header_for("http://www.example.org/", NOW)
    assert jar_with("a=1; Secure", url="http://www.example.org/").count == 0


def test_a_plain_response_cannot_overlay_a_secure_cookie() -> None:
    jar = jar_with("id=good; Secure; Path=/; Domain=example.org")
    jar_with(
        "id=evil; Path=/",
        "id=worse; Path=/login",
        "other=fine; Path=/",
        url="http://www.example.org/",
        jar=jar,
    )
    assert jar.header_for("https://www.example.org/login", NOW) == "id=good; other=fine"


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("__Host-a=1; Secure; Path=/", True),
        ("__Host-a=1; Path=/", False),
        ("__Host-a=1; Secure", False),
        ("__Host-a=1; Secure; Path=/; Domain=www.example.org", False),
        ("__HOST-a=1; Path=/", False),
        ("__Secure-a=1; Secure", True),
        ("__Secure-a=1", False),
    ],
)
def test_a_prefix_is_a_promise(header: str, kept: bool) -> None:
    assert bool(jar_with(header).count) is kept


def test_max_age_counts_from_now_and_outranks_expires() -> None:
    jar = jar_with("a=1; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:01 GMT")
    assert jar.header_for(HOME, NOW + 9) == "a=1"
    assert not jar.header_for(HOME, NOW + 10)


@pytest.mark.parametrize("attribute", ["Max-Age=0", "Max-Age=-5", "Expires=Thu, 01 Jan 1970 00:00:00 GMT"])
def test_an_expired_cookie_deletes_its_namesake(attribute: str) -> None:
    jar = jar_with("a=1", "b=2", f"a=; {attribute}")
    assert jar.header_for(HOME, NOW) == "b=2"
    assert jar.count == 1


@pytest.mark.parametrize("attribute", ["Max-Age=1x", "Max-Age=", "Expires=never", "Max-Age=" + "9" * 2000])
def test_a_lifetime_that_makes_no_sense_is_ignored(attribute: str) -> None:
    assert jar_with(f"a=1; {attribute}").header_for(HOME, NOW + 10 * MAX_AGE_SECONDS) == "a=1"


def test_no_lifetime_exceeds_400_days() -> None:
    jar = jar_with("a=1; Max-Age=" + "9" * 900, "b=2; Expires=Fri, 31 Dec 9999 23:59:59 GMT")
    assert jar.header_for(HOME, NOW + MAX_AGE_SECONDS - 1) == "a=1; b=2"
    assert not jar.header_for(HOME, NOW + MAX_AGE_SECONDS)


def test_cookies_of_4096_bytes_are_kept_and_larger_ones_ignored() -> None:
    assert jar_with("a=" + "x" * 4095).count == 1
    assert jar_with("a=" + "x" * 4096).count == 0


def test_what_could_break_a_header_never_gets_into_one() -> None:
    jar = jar_with("a=1\r\nX-Evil: 1", "b=2\0", "c=\x1b3", "d=4\x7f")
    assert jar.header_for(HOME, NOW) == "a=1; b=2"


def test_a_full_domain_drops_the_cookie_set_longest_ago() -> None:
    jar = CookieJar(max_cookies_per_domain=3)
    jar_with("a=1", "b=2", "c=3", "a=4", "d=5", jar=jar)
    assert jar.header_for(HOME, NOW) == "a=4; c=3; d=5"
    assert jar.count == 3


def test_a_full_domain_drops_expired_cookies_first() -> None:
    jar = CookieJar(max_cookies_per_domain=2)
    jar_with("a=1", "b=2; Max-Age=1", jar=jar)
    jar.store(HOME, ["c=3"], NOW + 5)
    assert jar.header_for(HOME, NOW + 5) == "a=1; c=3"


def test_a_full_jar_takes_from_the_domain_that_was_quiet_longest() -> None:
    jar = CookieJar(max_cookies=3)
    for number in (1, 2, 3, 1, 4):
        jar.store(f"https://host{number}.example/", [f"n={number}"], NOW)
    assert [bool(jar.header_for(f"https://host{number}.example/", NOW)) for number in (1, 2, 3, 4)] == [
        True,
        False,
        True,
        True,
    ]
    assert jar.count == 3


def test_what_was_dumped_loads_into_an_equal_jar() -> None:
    jar = jar_with(
        "a=1; Path=/", "b=2; Max-Age=60; HttpOnly; Secure", "c=3; Domain=example.org", "a=4; Path=/"
    )
    again = CookieJar()
    again.load(jar.dump(), NOW)
    assert again.dump() == jar.dump()
    assert again.header_for(HOME, NOW) == jar.header_for(HOME, NOW) == "b=2; c=3; a=4"
    again.store(HOME, ["d=5"], NOW)
    assert again.header_for(HOME, NOW) == "b=2; c=3; d=5; a=4"


def test_loading_drops_what_expired_meanwhile() -> None:
    again = CookieJar()
    again.load(jar_with("a=1; Max-Age=60", "b=2").dump(), NOW + 61)
    assert again.header_for(HOME, NOW + 61) == "b=2"


def test_a_damaged_dump_is_refused_with_a_remedy() -> None:
    for data in (b"", b"\x92\xa1a\x01", b"nonsense"):
        with pytest.raises(GossamerError, match="--no-cookies"):
            CookieJar().load([data], NOW)


# -- what the ledger hears -------------------------------------------------------------------------------


def heard(ledger: dict[str, bytes], jar: CookieJar, *headers: str, url: str = HOME, now: float = NOW) -> None:
    """Write down what a response changed, as a ledger does."""
    for cookie in jar.store(url, headers, now):
        ledger.pop(cookie.key, None)
        if cookie.data:
            ledger[cookie.key] = cookie.data


def test_a_jar_loaded_from_what_the_ledger_heard_sends_the_same() -> None:
    jar, ledger = CookieJar(by_port=True), dict[str, bytes]()
    heard(
        ledger,
        jar,
        "a=1; Path=/",
        "b=2; Secure; Path=/",
        "c=3; Domain=example.org; Path=/",
        "d=4; Max-Age=60",
    )
    heard(ledger, jar, "a=changed; Path=/", "c=gone; Domain=example.org; Path=/; Max-Age=0")
    heard(ledger, jar, "p=5; Path=/", url="http://www.example.org:8080/")
    again = CookieJar(by_port=True)
    again.load(ledger.values(), NOW + 61)
    for url, sent in {
        HOME: "a=changed; b=2",
        "http://www.example.org/": "a=changed",
        "http://www.example.org:8080/": "p=5",
        "http://sub.www.example.org/": "",
    }.items():
        assert again.header_for(url, NOW + 61) == jar.header_for(url, NOW + 61) == sent, url


def test_the_ledger_hears_of_every_cookie_that_is_pushed_out() -> None:
    jar, ledger = CookieJar(max_cookies=5, max_cookies_per_domain=3), dict[str, bytes]()
    for number in range(20):
        heard(ledger, jar, f"n{number}=1; Path=/", url=f"https://h{number % 4}.example.org/")
        heard(ledger, jar, f"m{number}=1; Path=/", url="https://busy.example.org/")
        assert sorted(ledger.values()) == sorted(jar.dump())
    assert len(ledger) == jar.count == 5


def test_a_jar_loaded_with_what_another_has_removed_sends_it_no_more_whatever_its_clock_shows() -> None:
    jar, other = jar_with("a=1; Path=/", "b=2; Path=/"), jar_with("a=1; Path=/", "b=2; Path=/")
    (removed,) = jar.store(HOME, ["a=; Path=/; Max-Age=0"], NOW)
    assert removed.removed
    other.load([removed.data], NOW - 60)
    assert other.header_for(HOME, NOW) == jar.header_for(HOME, NOW) == "b=2"


def test_a_response_that_changes_nothing_tells_nothing() -> None:
    assert CookieJar().store(HOME, ["a=1; Domain=other.org", "nonsense"], NOW) == ()


# -- ports -----------------------------------------------------------------------------------------------


def test_by_port_a_cookie_goes_back_to_the_port_it_came_from_alone() -> None:
    jar = CookieJar(by_port=True)
    jar.store("http://127.0.0.1:8080/", ["a=1", "b=2; Domain=127.0.0.1"], NOW)
    assert jar.header_for("http://127.0.0.1:8080/", NOW) == "a=1; b=2"
    for url in ("http://127.0.0.1:9090/", "http://127.0.0.1/", "https://127.0.0.1:9090/"):
        assert not jar.header_for(url, NOW), url


def test_by_port_a_cookie_of_a_domain_and_of_both_default_ports_is_shared() -> None:
    jar = CookieJar(by_port=True)
    jar.store("http://www.example.org/", ["a=1; Path=/", "b=2; Path=/; Domain=example.org"], NOW)
    assert jar.header_for("https://www.example.org/", NOW) == "a=1; b=2"
    assert jar.header_for("https://www.example.org:8443/", NOW) == "b=2"


@pytest.mark.parametrize("url", ["", "ftp://example.org/", "https://", "nonsense", "http:///x"])
def test_what_is_no_web_address_has_no_cookies(url: str) -> None:
    jar = jar_with("a=1", url=url)
    assert jar.count == 0
    assert not jar_with("a=1").header_for(url, NOW)


URLS = st.one_of(st.text(max_size=40), st.text(max_size=40).map("https://a.example.org/".__add__))
HEADERS = st.lists(
    st.text(alphabet=st.one_of(st.sampled_from("ab=;/. -_"), st.characters()), max_size=60), max_size=12
)


@given(
    URLS, HEADERS, st.lists(st.sampled_from(["a=b; domain=example.org", "a=b; path=/x", "b=c; max-age=1"]))
)
def test_any_input_keeps_the_jar_within_its_bounds_and_the_header_in_one_line(
    url: str, headers: list[str], more: list[str]
) -> None:
    jar = CookieJar(max_cookies=5, max_cookies_per_domain=3)
    jar.store("https://a.example.org/x/y", headers + more, NOW)
    jar.store(url, headers, NOW)
    header = jar.header_for(url, NOW)
    assert not set(header) & set("\r\n\0")
    assert jar.count == len(jar.dump()) <= 5
