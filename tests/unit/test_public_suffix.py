from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy.public_suffix import is_public_suffix, registrable_domain


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.com", "example.com"),
        ("example.com", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("WWW.Example.COM", "example.com"),
        ("www.example.com.", "example.com"),
        ("alice.github.io", "alice.github.io"),
        ("x.alice.github.io", "alice.github.io"),
        ("a.b.c.kobe.jp", "b.c.kobe.jp"),
        ("www.city.kobe.jp", "city.kobe.jp"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("a.b.unlisted-top-level", "b.unlisted-top-level"),
    ],
)
def test_a_host_belongs_to_the_domain_somebody_registered(host: str, domain: str) -> None:
    assert registrable_domain(host) == domain


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "::1", "localhost", "com", "co.uk", "github.io", "a..b", ""]
)
def test_a_host_without_a_registered_domain_is_its_own(host: str) -> None:
    assert registrable_domain(host) == host


@pytest.mark.parametrize("host", ["com", "co.uk", "github.io", "localhost"])
def test_names_below_a_public_suffix_belong_to_others(host: str) -> None:
    assert is_public_suffix(host)


@pytest.mark.parametrize("host", ["example.com", "alice.github.io", "10.0.0.1", "[::1]", ""])
def test_registered_domains_and_addresses_are_no_public_suffixes(host: str) -> None:
    assert not is_public_suffix(host)


@given(st.text(alphabet="ab.0[]:-é", max_size=30))
def test_a_registrable_domain_is_a_tail_of_its_host_and_its_own_registrable_domain(host: str) -> None:
    domain = registrable_domain(host)
    assert host.lower().rstrip(".").endswith(domain)
    assert registrable_domain(domain) == domain
