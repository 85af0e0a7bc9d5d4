"""Which proxy a host gets, when it changes, and what a proxy's URL may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import UsageError
from gossamer.policy.proxies import Proxy, Rotation, parse_proxy

A, B, C = (Proxy("http", f"{name}.example", 3128) for name in "abc")


@pytest.mark.parametrize(
    ("text", "proxy"),
    [
        ("http://proxy.example:3128", Proxy("http", "proxy.example", 3128)),
        ("http://proxy.example/", Proxy("http", "proxy.example", 80)),
        ("https://proxy.example", Proxy("https", "proxy.example", 443)),
        ("socks5://10.0.0.1", Proxy("socks5", "10.0.0.1", 1080)),
        ("socks5://[::1]:9050", Proxy("socks5", "::1", 9050)),
        ("http://me:p%40ss%3Aw@h:1", Proxy("http", "h", 1, "me", "p@ss:w")),
    ],
)
def test_a_proxy_is_read_from_its_url(text: str, proxy: Proxy) -> None:
    assert parse_proxy(text) == proxy


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("proxy.example:3128", "none of http://"),
        ("ftp://proxy.example", "none of http://"),
        ("", "write it as"),
        ("http://h:99999", "write it as"),
        ("socks5h://h:1080", "--proxy-resolves"),
        ("http://h:1/path", "nothing else"),
        ("http://h:1?query", "nothing else"),
        ("socks5://", "nothing else"),
        ("http://a%3Ab:c@h:1", "colon"),
        (f"socks5://{'u' * 256}:p@h", "255 bytes"),
        ("socks5://user@h", "both"),
    ],
)
def test_what_is_no_proxy_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        parse_proxy(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://me:secret@h:99999",
        "me:secret@h",
        "http:me:secret@h:1/x",
        "ftp://me:se/secret@h",
        "socks5h://me:secret@h:1080",
        "http://me:a@secret@h:1/path",
    ],
)
def test_no_complaint_repeats_a_password(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_proxy(text)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_neither_label_nor_repr_shows_credentials() -> None:
    proxy = parse_proxy("https://me:secret@[::1]:8443")
    assert proxy.label == "https://[::1]:8443"
    assert "secret" not in repr(proxy) + repr(Rotation([proxy]))


def test_hosts_are_spread_in_turn_and_keep_their_proxy() -> None:
    rotation = Rotation([A, B, C])
    assert [rotation.choose(f"h{n}", 0) for n in range(4)] == [A, B, C, A]
    assert [rotation.choose(f"h{n}", 1) for n in (3, 1, 2, 0)] == [A, B, C, A]


def test_a_host_that_was_refused_goes_on_with_the_next_proxy_once() -> None:
    rotation = Rotation([A, B, C])
    assert rotation.choose("h", 0) == A
    rotation.move_on("h", A, 0)
    rotation.move_on("h", A, 0)  # the answer to a request sent before
    assert rotation.choose("h", 0) == B
    rotation.move_on("h", B, 0)
    rotation.move_on("h", C, 0)
    assert rotation.choose("h", 0) == A


def test_a_failed_proxy_rests_and_its_hosts_take_another() -> None:
    rotation = Rotation([A, B], rest_seconds=5)
    assert [rotation.choose("h", 0), rotation.choose("i", 0)] == [A, B]
    rotation.failed(A, 0)
    assert [rotation.choose(host, 1) for host in "hij"] == [B, B, B]
    assert rotation.choose("new", 5) == A
    assert rotation.choose("h", 5) == B


def test_rests_double_up_to_the_longest_and_a_success_forgets_them() -> None:
    rotation = Rotation([A, B], rest_seconds=5, max_rest_seconds=15)
    now = 0.0
    for rest in (5, 10, 15, 15):
        rotation.failed(A, now)
        rotation.failed(A, now + rest - 1)  # others under way: the same failure
        assert rotation.is_resting(A, now + rest - 0.5)
        assert not rotation.is_resting(A, now + rest)
        now += rest
    rotation.succeeded(A)
    rotation.failed(A, now)
    assert not rotation.is_resting(A, now + 5)


def test_a_proxy_that_reaches_nobody_rests_but_one_that_reaches_somebody_does_not() -> None:
    rotation = Rotation([A, B])
    for host in ("h", "i"):
        rotation.doubted(host, A, 0)
    rotation.succeeded(A)
    for host in ("h", "i"):
        rotation.doubted(host, A, 0)
    assert not rotation.is_resting(A, 0)
    rotation.doubted("j", A, 0)
    assert rotation.is_resting(A, 0)


def test_a_host_without_a_connection_moves_on() -> None:
    rotation = Rotation([A, B])
    assert rotation.choose("h", 0) == A
    rotation.doubted("h", A, 0)
    assert rotation.choose("h", 0) == B


def test_while_all_rest_the_one_that_wakes_first_is_chosen() -> None:
    rotation = Rotation([A, B, C], rest_seconds=5)
    for now, proxy in ((0, B), (1, C), (2, A)):
        rotation.failed(proxy, now)
    assert rotation.choose("h", 3) == B


def test_a_proxy_named_twice_counts_once() -> None:
    assert len(Rotation([A, A, B])) == 2


@given(
    st.lists(
        st.tuples(st.sampled_from(["choose", "fail", "doubt", "refuse", "succeed"]), st.integers(0, 6)),
        max_size=60,
    )
)
def test_a_healthy_proxy_is_chosen_whenever_there_is_one(events: list[tuple[str, int]]) -> None:
    rotation = Rotation([A, B, C], max_hosts=4)
    for now, (event, number) in enumerate(events):
        host, proxy = f"h{number}", (A, B, C)[number % 3]
        match event:
            case "fail":
                rotation.failed(proxy, now)
            case "doubt":
                rotation.doubted(host, proxy, now)
            case "refuse":
                rotation.move_on(host, proxy, now)
            case "succeed":
                rotation.succeeded(proxy)
        chosen = rotation.choose(host, now)
        resting = [rotation.is_resting(each, now) for each in (A, B, C)]
        assert all(resting) or not rotation.is_resting(chosen, now)
        assert rotation.choose(host, now) == chosen or all(resting)
        assert len(rotation._hosts) <= 4
