"""Where one owner's part of the domain name system begins, by the bundled Public Suffix List.

Private suffixes count: `alice.github.io` and `bob.github.io` belong to different owners.
"""

from __future__ import annotations

from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList


@lru_cache(maxsize=65_536)
def registrable_domain(host: str) -> str:
    """Return the domain somebody registered: `example.co.uk` of `www.example.co.uk`, in lower case.

    A host without one is its own: an IP address, a single label, a public suffix.
    """
    name = _plain(host)
    if is_ip_address(name):
        return name
    return str(_suffixes().privatesuffix(name) or name)


@lru_cache(maxsize=65_536)
def is_public_suffix(host: str) -> bool:
    """Whether unrelated owners may register names below `host`. True of single labels, never of IP addresses."""
    name = _plain(host)
    return not is_ip_address(name) and bool(_suffixes().is_public(name))


def is_ip_address(host: str) -> bool:
    """Whether a canonical host is an address: IPv6 has a colon, and only IPv4 ends in a number."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


@cache
def _suffixes() -> PublicSuffixList:
    # Reading the list takes tens of milliseconds, so only those who need it pay.
    return PublicSuffixList()
