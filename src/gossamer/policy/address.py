"""Which IP addresses a crawler may connect to: a table of its own, because Python's `is_global` lets some through.

An IPv6 address that carries an IPv4 address (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP) is
judged by what it carries as well as by itself: a translator on the way would deliver the packet there.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from gossamer.errors import UsageError

Network = IPv4Network | IPv6Network

#: Instance metadata of cloud providers: some inside private ranges, some in the middle of public ones.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Google, Azure, DigitalOcean, Oracle, OpenStack
        "169.254.170.2",  # AWS container credentials
        "169.254.170.23",  # AWS pod identity
        "168.63.129.16",  # Azure WireServer, a public address that only answers inside
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle classic
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS pod identity
        "fd20:ce::254",  # Google
    )
)

# The IANA special-purpose registries (RFC 6890), first match wins.
_SPECIAL_V4 = tuple(
    (IPv4Network(text), name)
    for text, name in (
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "this-network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)

_SPECIAL_V6 = tuple(
    (IPv6Network(text), name)
    for text, name in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "private"),
        ("100::/64", "discard"),
        ("100:0:0:1::/64", "reserved"),
        # Inside 2001::/23 only what IANA lists as globally reachable is public; Teredo is judged by what it carries.
        ("2001::/32", ""),
        ("2001:1::1/128", ""),
        ("2001:1::2/128", ""),
        ("2001:1::3/128", ""),
        ("2001:3::/32", ""),
        ("2001:4:112::/48", ""),
        ("2001:20::/28", ""),
        ("2001:30::/28", ""),
        ("2001:2::/48", "benchmarking"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        ("5f00::/16", "reserved"),
    )
)

# These only wrap an IPv4 address, in their last 32 bits; beyond it they say nothing of their own.
_WRAPPERS = (
    IPv6Network("::ffff:0:0/96"),  # mapped
    IPv6Network("::/96"),  # compatible
    IPv6Network("::ffff:0:0:0/96"),  # translated (SIIT)
    IPv6Network("64:ff9b::/96"),  # NAT64
)
_MAPPED = _WRAPPERS[0]
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_ISATAP_MARKS = (0x00005EFE, 0x02005EFE)
_LOW = 0xFFFF_FFFF


def is_public(ip: str | IPv4Address | IPv6Address) -> bool:
    """Tell whether a crawler may connect to `ip` without being told to. Raises ValueError if it is no address."""
    return not category(ip)


def category(ip: str | IPv4Address | IPv6Address) -> str:
    """Name the kind of special address `ip` is: "loopback", "private", "metadata", …; "" if it is public."""
    address = ip_address(ip)
    if address in _METADATA:
        return "metadata"
    if isinstance(address, IPv4Address):
        return _first(address, _SPECIAL_V4)
    return _category_v6(address)


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Read networks such as `10.0.0.0/8`, `192.168.1.5` or `fd00::/8`; a bare address is a network of one.

    Raises `UsageError`. The IPv4-mapped spelling of an IPv4 network is that network.
    """
    return tuple(dict.fromkeys(_parse_network(text) for text in texts))


def is_listed(ip: str | IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    """Tell whether `ip` lies in one of `networks`. Raises ValueError if it is no address.

    An IPv4-mapped address is the IPv4 address it stands for, since that is where the packets go; so no IPv6 network
    holds one, not even `::/0`. What else carries an IPv4 address is listed by its own network alone.
    """
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address in _MAPPED:
        address = IPv4Address(int(address) & _LOW)
    return any(address in network for network in networks)


def _parse_network(text: str) -> Network:
    address, slash, length = text.partition("/")
    # `ipaddress` also reads net masks, host masks and zones, which hardly anyone means to write here.
    if "%" in address or (slash and not (length.isascii() and length.isdigit())):
        raise _no_network(text)
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise _no_network(text) from None
    if network.network_address != ip_address(address):
        raise UsageError(f"--allow-network {text} begins inside a network; write {address} or {network}")
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = IPv4Address(int(network.network_address) & _LOW)
        return IPv4Network((mapped, network.prefixlen - _MAPPED.prefixlen))
    return network


def _no_network(text: str) -> UsageError:
    return UsageError(
        f"--allow-network {text[:100]!r} is not a network; write 10.0.0.0/8, 192.168.1.5 or fd00::/8"
    )


def _category_v6(address: IPv6Address) -> str:
    if address.is_unspecified or address.is_loopback:
        return _first(address, _SPECIAL_V6)
    for wrapper in _WRAPPERS:
        if address in wrapper:
            return category(IPv4Address(int(address) & _LOW))
    for inner in _embedded(int(address), address):
        found = category(inner)
        if found:
            return found
    return _first(address, _SPECIAL_V6) or ("" if address in _GLOBAL_UNICAST else "reserved")


def _embedded(bits: int, address: IPv6Address) -> list[IPv4Address]:
    """List the IPv4 addresses inside a tunnel address."""
    if address in _SIX_TO_FOUR:
        return [IPv4Address(bits >> 80 & _LOW)]
    if address in _TEREDO:  # the server, and the client behind its NAT with its bits inverted
        return [IPv4Address(bits >> 64 & _LOW), IPv4Address(~bits & _LOW)]
    if bits >> 32 & _LOW in _ISATAP_MARKS:
        return [IPv4Address(bits & _LOW)]
    return []


def _first(
    address: IPv4Address | IPv6Address, table: tuple[tuple[IPv4Network | IPv6Network, str], ...]
) -> str:
    for network, name in table:
        if address in network:
            return name
    return ""
