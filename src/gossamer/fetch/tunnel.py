"""A connection through a proxy: what is said to it before the target can be spoken to.

HTTP proxies are asked with CONNECT (RFC 9110, section 9.3.6), SOCKS proxies by RFC 1928, with user name and
password by RFC 1929. Whatever the proxy sends is bounded, and nothing it sends reaches the parser of replies.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import cast

from gossamer.model.response import FetchProblem
from gossamer.policy.proxies import Proxy

_MAX_ANSWER_BYTES = 16_384
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r\n")
#: Statuses by which a proxy speaks of itself: wrong credentials, too many requests.
_OWN_STATUSES = frozenset({401, 407, 429})

_SOCKS = 5
_NO_CREDENTIALS, _USER_AND_PASSWORD = 0, 2
_TO_IPV4, _TO_NAME, _TO_IPV6 = 1, 3, 4
_SOCKS_REPLIES = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


class ProxyFailed(Exception):
    """The proxy itself is at fault: unreachable, not a proxy, wrong credentials. The text is one line."""


class TunnelRefused(Exception):
    """The proxy speaks, but there is no connection to the target. The text is one line."""

    def __init__(self, detail: str, problem: FetchProblem = FetchProblem.CONNECT) -> None:
        super().__init__(detail)
        self.problem = problem


class Wire(asyncio.Protocol):
    """A connection to a proxy until it leads to the target."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """The live transport. Raises ProxyFailed once it is closed."""
        if self._transport is None or self._closed or self._transport.is_closing():
            raise ProxyFailed("closed the connection")
        return self._transport

    def write(self, data: bytes) -> None:
        """Send to the proxy."""
        self.transport.write(data)

    async def exactly(self, count: int) -> bytes:
        """Return the next `count` bytes. Raises ProxyFailed if they do not come."""
        while len(self._buffer) < count:
            await self._more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def head(self) -> bytes:
        """Return an HTTP head with its empty line. Raises ProxyFailed if it does not come or is too long."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            await self._more()
        return await self.exactly(end + 4)

    def expect_silence(self) -> None:
        """Raise ProxyFailed if the proxy said more than its answer: it could pass for the target's."""
        if self._buffer:
            raise ProxyFailed("sent data nobody asked for")

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the event loop's signature
        """Let go of whoever waits."""
        self._closed = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Collect what came, within the bound."""
        self._buffer += data
        if len(self._buffer) > _MAX_ANSWER_BYTES:
            self._closed = True
            self.abort()
        self._wake()

    async def _more(self) -> None:
        if self._closed:
            raise ProxyFailed("closed the connection" if not self._buffer else "gave no proper answer")
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def basic_credentials(proxy: Proxy) -> str:
    """Return the Proxy-Authorization line with its line end, or nothing for a proxy without credentials."""
    if not (proxy.username or proxy.password):
        return ""
    token = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    return f"Proxy-Authorization: Basic {token}\r\n"


async def ask(wire: Wire, proxy: Proxy, host: str, port: int) -> None:
    """Have the proxy connect to `host`, an address or a name. Raises ProxyFailed or TunnelRefused."""
    if proxy.scheme == "socks5":
        await _greet_socks(wire, proxy)
        await _ask_socks(wire, host, port)
    else:
        await _ask_http(wire, proxy, host, port)
    wire.expect_silence()


async def _ask_http(wire: Wire, proxy: Proxy, host: str, port: int) -> None:
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    wire.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{basic_credentials(proxy)}\r\n".encode())
    status = _STATUS_LINE.match(await wire.head())
    if status is None:
        raise ProxyFailed("does not answer like an HTTP proxy")
    code = int(status[1])
    if 200 <= code < 300:
        return
    text = f"answered {code} {_printable(status[2] or b'')}".rstrip()
    raise ProxyFailed(text) if code in _OWN_STATUSES else TunnelRefused(text)


async def _greet_socks(wire: Wire, proxy: Proxy) -> None:
    methods = [_NO_CREDENTIALS, _USER_AND_PASSWORD] if proxy.username else [_NO_CREDENTIALS]
    wire.write(bytes([_SOCKS, len(methods), *methods]))
    version, method = await wire.exactly(2)
    if version != _SOCKS:
        raise ProxyFailed("does not answer like a SOCKS 5 proxy")
    if method not in methods:
        raise ProxyFailed("wants other credentials" if proxy.username else "wants a user name and a password")
    if method == _USER_AND_PASSWORD:
        user, password = proxy.username.encode(), proxy.password.encode()
        wire.write(bytes([1, len(user)]) + user + bytes([len(password)]) + password)
        if (await wire.exactly(2))[1]:
            raise ProxyFailed("does not accept the user name and password")


async def _ask_socks(wire: Wire, host: str, port: int) -> None:
    wire.write(bytes([_SOCKS, 1, 0]) + _socks_address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await wire.exactly(4)
    if version != _SOCKS:
        raise ProxyFailed("does not answer like a SOCKS 5 proxy")
    if reply:
        raise TunnelRefused(f"answered: {_SOCKS_REPLIES.get(reply, f'error {reply}')}")
    # The address the proxy speaks from, which is of no use to us, and the port.
    length = {_TO_IPV4: 4, _TO_IPV6: 16}.get(kind)
    if length is None:
        length = (await wire.exactly(1))[0]
    await wire.exactly(length + 2)


def _socks_address(host: str) -> bytes:
    match _address(host):
        case IPv4Address() as address:
            return bytes([_TO_IPV4]) + address.packed
        case IPv6Address() as address:
            return bytes([_TO_IPV6]) + address.packed
        case None:
            name = host.encode()
            if len(name) > 255:
                raise TunnelRefused("cannot be given a name of more than 255 bytes")
            return bytes([_TO_NAME, len(name)]) + name


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _printable(text: bytes) -> str:
    return "".join(char for char in text[:80].decode("latin-1") if char.isprintable())
