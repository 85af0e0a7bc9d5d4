"""Which addresses a crawler may connect to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import UsageError
from gossamer.policy.address import category, is_listed, is_public, parse_networks

REFUSED = [
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "this-network"),
    ("10.1.2.3", "private"),
    ("100.64.0.1", "shared"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("169.254.1.1", "link-local"),
    ("169.254.169.254", "metadata"),
    ("168.63.129.16", "metadata"),
    ("100.100.100.200", "metadata"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.8", "reserved"),
    ("192.0.0.192", "metadata"),
    ("192.0.2.1", "documentation"),
    ("192.88.99.1", "reserved"),
    ("192.168.1.1", "private"),
    ("198.18.0.1", "benchmarking"),
    ("198.19.255.255", "benchmarking"),
    ("198.51.100.7", "documentation"),
    ("203.0.113.7", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::127.0.0.1", "loopback"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:10.0.0.1", "private"),
    ("::ffff:0:192.168.0.1", "private"),
    ("::ffff:a9fe:a9fe", "metadata"),
    ("64:ff9b::7f00:1", "loopback"),
    ("64:ff9b::a9fe:a9fe", "metadata"),
    ("64:ff9b:1::808:808", "private"),
    ("100::1", "discard"),
    ("100:0:0:1::1", "reserved"),
    ("2002:7f00:1::", "loopback"),
    ("2002:a00:1::1", "private"),
    ("2001:0:7f00:1::f7f7:f7f7", "loopback"),  # Teredo, its server
    ("2001:0:808:808::80ff:fffe", "loopback"),  # Teredo, its client
    ("2606:4700::5efe:10.0.0.1", "private"),  # ISATAP
    ("2606:4700::200:5efe:10.0.0.1", "private"),
    ("2001:2::1", "benchmarking"),
    ("2001:10::1", "reserved"),
    ("2001:1ff::1", "reserved"),
    ("2001:db8::1", "documentation"),
    ("3fff::1", "documentation"),
    ("fc00::1", "private"),
    ("fd00:ec2::254", "metadata"),
    ("fd12:3456::1", "private"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("fec0::1", "site-local"),
    ("ff02::1", "multicast"),
    ("5f00::1", "reserved"),
    ("4000::1", "reserved"),
    ("1::1", "reserved"),
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.1",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "2001:200::1",
    "2001:20::1",
    "2001:4:112::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "2001:0:808:808::f7f7:f7f7",
]


@pytest.mark.parametrize(("ip", "kind"), REFUSED)
def test_a_special_address_is_refused_and_its_kind_named(ip: str, kind: str) -> None:
    assert category(ip) == kind
    assert not is_public(ip)


@pytest.mark.parametrize("ip", PUBLIC)
def test_a_public_address_is_allowed(ip: str) -> None:
    assert category(ip) == ""
    assert is_public(ipaddress.ip_address(ip))


@given(st.integers(0, 2**32 - 1))
def test_wrapping_an_ipv4_address_in_ipv6_does_not_change_the_verdict(bits: int) -> None:
    inner = ipaddress.IPv4Address(bits)
    forms = [0xFFFF << 32 | bits, 0xFFFF << 48 | bits, 0x64FF9B << 96 | bits, 0x2002 << 112 | bits << 80 | 1]
    forms += [bits] if bits > 1 else []
    assert {is_public(ipaddress.IPv6Address(form)) for form in forms} == {is_public(inner)}


@given(st.ip_addresses())
def test_nothing_that_python_calls_private_is_public(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(ip) and isinstance(ip, ipaddress.IPv4Address):
        assert ip.is_global
        assert not ip.is_multicast


def test_text_that_is_no_address_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not appear"):
        is_public("localhost")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"], ["11.0.0.0", "9.255.255.255"]),
        ("192.168.1.5", ["192.168.1.5", "::ffff:c0a8:105"], ["192.168.1.4", "192.168.1.6"]),
        ("fd00::/8", ["fd00::1", "fdff::"], ["fc00::1", "fe80::1", "10.0.0.1"]),
        ("fd00::7", ["fd00::7"], ["fd00::6", "fd00::8"]),
        ("::ffff:10.0.0.0/104", ["10.1.2.3", "::ffff:10.1.2.3"], ["11.0.0.0", "::ffff:11.0.0.0"]),
        ("::/0", ["::1", "fd00::1"], ["127.0.0.1", "::ffff:127.0.0.1"]),
        ("0.0.0.0/0", ["127.0.0.1", "::ffff:127.0.0.1"], ["::1", "64:ff9b::7f00:1", "::127.0.0.1"]),
        ("10.0.0.0/8", [], ["64:ff9b::a00:1", "2002:a00:1::", "::10.0.0.1"]),
        ("64:ff9b::/96", ["64:ff9b::a00:1"], ["10.0.0.1"]),
    ],
)
def test_a_network_holds_its_addresses_and_no_others(
    text: str, inside: list[str], outside: list[str]
) -> None:
    networks = parse_networks([text])
    assert [ip for ip in inside if not is_listed(ip, networks)] == []
    assert [ip for ip in outside if is_listed(ip, networks)] == []


def test_no_network_holds_nothing() -> None:
    assert not is_listed("127.0.0.1", parse_networks([]))


@pytest.mark.parametrize(
    "text",
    [
        *("", "private", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "10.0.0.0/-1", "10.0.0.0/8/8", "[fd00::]/8"),
        *(
            "10.0.0.0/255.0.0.0",
            "10.0.0.0/0.0.0.255",
            "fe80::1%lo",
            "fd00::/129",
            "010.0.0.1",
            "10.0.0.0/\uff18",
        ),
        *("http://10.0.0.1/", "10.0.0.1:80", "localhost", "10.0.0.0 /8", "9" * 5000),
    ],
)
def test_what_is_no_network_is_a_mistake_told_in_one_line(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"--allow-network .* is not a network; write 10\.0\.0\.0/8"
    ) as caught:
        parse_networks(["10.0.0.0/8", text])
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_an_address_inside_a_network_is_not_taken_for_the_network() -> None:
    with pytest.raises(UsageError, match=r"write 10\.1\.2\.3 or 10\.0\.0\.0/8"):
        parse_networks(["10.1.2.3/8"])
