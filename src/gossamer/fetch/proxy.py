"""Requests through proxies: which one, by which way, and what is learnt about it.

By default the host's name is resolved and checked here and the proxy is asked to connect to the *address*, with
CONNECT for plain http as well: a proxy that looked the name up again could be led to a private address. TLS and the
Host header still use the name. With `proxy_resolves` names are passed on, and plain http goes to HTTP proxies as
ordinary requests for whole URLs (RFC 9112, section 3.2.2). Addresses in URLs, and localhost, are checked either way.

Credentials of a proxy are in what is sent to that proxy and nowhere else. A proxy's own address may be private:
it is the user who named it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossamer.config.settings import FetchSettings
from gossamer.fetch.connection import Connection, HeadLimits
from gossamer.fetch.origin import Origin
from gossamer.fetch.reason import os_reason, tls_reason
from gossamer.fetch.resolver import ResolveFailed, Resolver
from gossamer.fetch.tunnel import ProxyFailed, TunnelRefused, Wire, ask, basic_credentials
from gossamer.model.response import FetchProblem
from gossamer.policy.proxies import Proxy, Rotation, parse_proxy

#: A request that found so many proxies dead does not look for a living one any longer.
_MAX_PROXIES_PER_REQUEST = 3
#: Answers by which a site tells an address that it has seen enough of it.
_UNWELCOME = frozenset({403, 429})
_PROXY_AUTHENTICATION_REQUIRED = 407


class DialFailed(Exception):
    """There is no connection to the target. The text is one line and names the proxy, without credentials."""

    def __init__(self, problem: FetchProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one request: its proxy, and whether that one forwards requests or opens a tunnel."""

    origin: Origin
    proxy: Proxy
    #: Tells proxies apart that differ only in their credentials, as gateways to many addresses do.
    number: int
    forwards: bool

    @property
    def key(self) -> str:
        """What connections are pooled by. One to a forwarding proxy serves every origin."""
        return f"proxy {self.number}" if self.forwards else f"{self.origin.key} by proxy {self.number}"

    def dressed(self, request: bytes) -> bytes:
        """Return the request as it goes on the wire: changed only where the proxy is to forward it."""
        if not self.forwards:
            return request
        method, _, rest = request.partition(b" ")
        line, _, rest = rest.partition(b"\r\n")
        credentials = basic_credentials(self.proxy).encode()
        return b"%b http://%b%b\r\n%b%b" % (method, self.origin.authority.encode(), line, credentials, rest)


class Proxies:
    """Makes connections through the proxies of the settings.

    * A host stays with its proxy; `gossamer.policy.proxies` says when it takes another.
    * A proxy that does not work is replaced before anything was sent to the target, so the request does not fail.
    * Every step is bounded by `connect_timeout_seconds`, and what a proxy says by 16 KiB.
    """

    def __init__(
        self,
        settings: FetchSettings,
        limits: HeadLimits,
        on_lost: Callable[[Connection], None],
        *,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        proxies = tuple(dict.fromkeys(parse_proxy(text) for text in settings.proxy))
        self._rotation = Rotation(proxies)
        self._numbers = {proxy: number for number, proxy in enumerate(proxies, 1)}
        self._resolves = settings.proxy_resolves
        self._seconds = settings.connect_timeout_seconds
        self._limits = limits
        self._on_lost = on_lost
        self._tls_context = tls
        self._clock = clock
        self._resolver = Resolver(allow_private=True)

    def close(self) -> None:
        """Let go of the threads that resolve the proxies' names."""
        self._resolver.close()

    def route(self, origin: Origin) -> Route:
        """Choose the way for a request."""
        proxy = self._rotation.choose(origin.host, self._clock())
        forwards = self._resolves and not origin.tls and proxy.scheme != "socks5"
        return Route(origin, proxy, self._numbers[proxy], forwards)

    async def dial(
        self, route: Route, targets: Sequence[str], tls: ssl.SSLContext | None
    ) -> tuple[Route, Connection]:
        """Connect to the first target that can be reached, by this route or one that replaces it. Raises DialFailed.

        `targets` are the addresses of the origin, or its name for the proxy to resolve.
        """
        tried: list[Proxy] = []
        while True:
            try:
                return route, await self._connect(route, targets, tls)
            except ProxyFailed as error:
                self._rotation.failed(route.proxy, self._clock())
                failure = DialFailed(FetchProblem.CONNECT, f"proxy {route.proxy.label}: {error}")
            tried.append(route.proxy)
            route = self.route(route.origin)
            if route.proxy in tried or len(tried) == _MAX_PROXIES_PER_REQUEST:
                raise failure

    def judge(self, route: Route, status: int) -> str:
        """Learn from a reply. Returns what is wrong with the proxy, where the reply was about that; else nothing."""
        if route.forwards and status == _PROXY_AUTHENTICATION_REQUIRED:
            self._rotation.failed(route.proxy, self._clock())
            return f"proxy {route.proxy.label}: does not accept the user name and password"
        if route.forwards:
            self._rotation.succeeded(route.proxy)
        if status in _UNWELCOME:
            self._rotation.move_on(route.origin.host, route.proxy, self._clock())
        return ""

    async def _connect(self, route: Route, targets: Sequence[str], tls: ssl.SSLContext | None) -> Connection:
        if route.forwards:
            return self._hand_over(await self._reach(route.proxy))
        failure = TunnelRefused("has nothing to connect to")
        place = ""
        for target in targets:
            place = f"{target} port {route.origin.port}"
            try:
                return await self._tunnel(route, target, tls)
            except TunnelRefused as error:
                failure = error
            except ssl.SSLError as error:
                raise DialFailed(FetchProblem.TLS, f"{place}: {tls_reason(error)}") from error
        self._rotation.doubted(route.origin.host, route.proxy, self._clock())
        raise DialFailed(failure.problem, f"proxy {route.proxy.label}, asked for {place}: {failure}")

    async def _tunnel(self, route: Route, target: str, tls: ssl.SSLContext | None) -> Connection:
        wire = await self._reach(route.proxy)
        try:
            await self._ask(wire, route, target)
            if tls is None:
                return self._hand_over(wire)
            return await self._secure(wire, route, tls)
        except BaseException:
            wire.abort()
            raise

    async def _reach(self, proxy: Proxy) -> Wire:
        """Connect to the proxy itself. Raises ProxyFailed."""
        try:
            addresses = await self._resolver.resolve(proxy.host)
        except ResolveFailed as error:
            raise ProxyFailed(str(error)) from error
        reason = ""
        for address in addresses:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._open(proxy, address)
            except ssl.SSLError as error:
                reason = tls_reason(error)
            except TimeoutError:
                reason = f"did not answer within {self._seconds:g} s"
            except OSError as error:
                reason = os_reason(error)
        raise ProxyFailed(reason)

    async def _open(self, proxy: Proxy, address: str) -> Wire:
        tls = self._tls() if proxy.scheme == "https" else None
        name = proxy.host if tls else None
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(Wire, address, proxy.port, ssl=tls, server_hostname=name)
        return wire

    async def _ask(self, wire: Wire, route: Route, target: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await ask(wire, route.proxy, target, route.origin.port)
        except TimeoutError as error:
            detail = f"no connection within {self._seconds:g} s"
            raise TunnelRefused(detail, FetchProblem.TIMEOUT) from error
        self._rotation.succeeded(route.proxy)

    def _hand_over(self, wire: Wire) -> Connection:
        transport = wire.transport
        connection = Connection(self._limits, self._on_lost)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        return connection

    async def _secure(self, wire: Wire, route: Route, tls: ssl.SSLContext) -> Connection:
        """Speak TLS with the target inside the tunnel."""
        connection = Connection(self._limits, self._on_lost)
        transport = wire.transport
        connection.connection_made(transport)  # so that it can hang up on a target that speaks first
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds):
                secured = await loop.start_tls(
                    transport, connection, tls, server_hostname=route.origin.server_name
                )
        except ssl.SSLError:
            raise
        except TimeoutError as error:
            detail = f"no TLS handshake within {self._seconds:g} s"
            raise TunnelRefused(detail, FetchProblem.TIMEOUT) from error
        except OSError as error:
            raise TunnelRefused(f"TLS: {os_reason(error)}", FetchProblem.TLS) from error
        if secured is None or secured.is_closing():
            raise TunnelRefused("the target closed the connection after its handshake", FetchProblem.TLS)
        connection.connection_made(secured)
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = ssl.create_default_context()
        return self._tls_context
