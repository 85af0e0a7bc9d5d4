"""What shares one delay: a host, the registrable domain it belongs to, or the address its name leads to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gossamer.fetch.resolver import ResolveFailed, Resolver
from gossamer.policy.public_suffix import registrable_domain

_LOOKUP_SECONDS = 5.0


class ByHost:
    """Implements `Grouping`: every host is a group of its own."""

    async def groups(self, hosts: Sequence[str]) -> dict[str, str]:
        """Name nobody."""
        del hosts
        return {}


class ByDomain:
    """Implements `Grouping`: hosts below one registrable domain are one group."""

    async def groups(self, hosts: Sequence[str]) -> dict[str, str]:
        """Name the domain of each host."""
        return {host: registrable_domain(host) for host in hosts}


class ByAddress:
    """Implements `Grouping`: hosts whose names lead to one address are one group.

    The first address counts. A name that does not resolve in time is a group of its own: nothing is sent to it.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def groups(self, hosts: Sequence[str]) -> dict[str, str]:
        """Name the address of each host."""
        addresses = await asyncio.gather(*(self._address(host) for host in hosts))
        return dict(zip(hosts, addresses, strict=True))

    async def _address(self, host: str) -> str:
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                return (await self._resolver.resolve(host))[0]
        except (ResolveFailed, TimeoutError):
            return host
