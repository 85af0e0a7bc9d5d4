"""The HTTP fetcher: one URL, one hop, one outcome."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Sequence
from time import perf_counter

import msgspec

from gossamer.config.settings import FetchSettings
from gossamer.fetch.connection import Connection, HeadLimits
from gossamer.fetch.deadline import Deadlines
from gossamer.fetch.decode import BadEncoding, BodyTooLarge, decode_body, parse_codings
from gossamer.fetch.origin import Origin, read_origin
from gossamer.fetch.pool import IdlePool
from gossamer.fetch.proxy import DialFailed, Proxies, Route
from gossamer.fetch.rate import MinimumRate
from gossamer.fetch.reason import one_line, os_reason, tls_reason
from gossamer.fetch.reply import Broken, Reply
from gossamer.fetch.resolver import ResolveFailed, Resolver, is_literal
from gossamer.model.response import FetchFailure, FetchProblem, Response

_ACCEPT_ENCODING = "gzip, deflate, br, zstd"
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that decide framing, routing or decoding: the fetcher's own business.
_OWN_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_CACHED_ORIGINS = 4096
_CACHED_HEADER_LISTS = 256


def check_headers(headers: Sequence[tuple[str, str]]) -> None:
    """Raise ValueError if a request header is malformed or one that the fetcher sets itself."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is not a header name")
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"the header {name} is set by the fetcher and cannot be given")
        if not value.isprintable() and any(char in value for char in "\r\n\0"):
            raise ValueError(f"the value of the header {name} contains a line break or NUL")


class _Call(msgspec.Struct, eq=False):
    """One fetch under way."""

    url: str
    origin: Origin
    #: What its connection is pooled by: the origin, and the proxy on the way to it.
    key: str
    request: bytes
    cap: int
    truncate: bool
    head_only: bool
    started: Callable[[float], None] | None
    timeout: float
    deadline: float
    connection: Connection | None = None
    #: The way through a proxy; None where there is no proxy.
    route: Route | None = None
    #: Bytes of the reply when the rate was checked last; 0 before.
    checked_bytes: int = 0
    #: When the first byte went out last, by the epoch and by `perf_counter`; 0.0 before.
    started_at: float = 0.0
    started_mark: float = 0.0

    def expire(self) -> None:
        """End the exchange under way. A connection in the making has its own timer."""
        if self.connection is not None:
            self.connection.expire(self.timeout)

    def check(self, rate: MinimumRate) -> None:
        """End the exchange if its reply comes too slowly. Until the first byte only the deadline counts."""
        if self.connection is None:
            return
        received = self.connection.received
        if self.checked_bytes and received - self.checked_bytes < rate.window_bytes:
            self.connection.cut(rate.complaint)
        self.checked_bytes = received

    def failure(self, problem: FetchProblem, detail: str) -> FetchFailure:
        """Make a failure that happened before there was a reply."""
        elapsed = perf_counter() - self.started_mark if self.started_at else 0.0
        return FetchFailure(problem, one_line(detail), self.started_at, elapsed)


class HttpFetcher:
    """Fetches one URL, one hop, over pooled HTTP/1.1 connections; never follows redirects.

    * A page's failure is a FetchFailure, never an exception. ValueError is a bug of the caller: a URL that is not
      canonical http or https, a header that `check_headers` refuses.
    * Cancellation passes through and closes the connection in use.
    * `timeout_seconds` bounds everything from the call to the last byte, name resolution included.
    * Connections are made to addresses the resolver has checked, never to a name. Through a proxy too, unless
      `proxy_resolves`; see `gossamer.fetch.proxy`.
    * A reply that comes slower than `min_bytes_per_second` is cut.
    * A request that a reused connection swallowed without a byte in return is sent once more on a fresh one,
      if its method is idempotent.
    """

    def __init__(
        self,
        settings: FetchSettings,
        resolver: Resolver,
        clock: Callable[[], float],
        proxy_tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raise `UsageError` for a proxy that is none. `proxy_tls` replaces the system's trust in https proxies."""
        self._settings = settings
        self._resolver = resolver
        self._clock = clock
        self._limits = HeadLimits(settings.max_header_bytes, settings.max_header_count)
        self._pool = IdlePool(settings.keep_alive_seconds, settings.max_idle_connections)
        self._deadlines = Deadlines(MinimumRate(settings.min_bytes_per_second, settings.min_rate_seconds))
        self._origins: dict[str, Origin] = {}
        self._header_texts: dict[tuple[tuple[str, str], ...], str] = {}
        self._tls_context: ssl.SSLContext | None = None
        self._proxies = (
            Proxies(settings, self._limits, self._pool.discard, tls=proxy_tls) if settings.proxy else None
        )

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        max_body_bytes: int | None = None,
        truncate: bool = False,
        started: Callable[[float], None] | None = None,
    ) -> Response | FetchFailure:
        """Send one request and return its response with the content codings removed, or why there is none.

        `started` is called with the time immediately before the first byte goes out, after name resolution, TCP and
        TLS; a second time if the request is repeated. A body over `max_body_bytes` (default: the setting), on the
        wire or decoded, is a failure; with `truncate` its first bytes are returned instead.
        """
        origin, request = self._compose(url, method, headers, body)
        cap = self._settings.max_body_bytes if max_body_bytes is None else max_body_bytes
        timeout = self._settings.timeout_seconds
        deadline = asyncio.get_running_loop().time() + timeout
        call = _Call(
            url, origin, origin.key, request, cap, truncate, method == "HEAD", started, timeout, deadline
        )
        if self._proxies is not None:
            self._take(call, self._proxies.route(origin))
        self._deadlines.add(call)
        try:
            connection = self._pool.take(call.key)
            if connection is not None:
                outcome = await self._exchange(connection, call)
                if isinstance(outcome, Reply) or not (outcome.swallowed and method in _REPEATABLE):
                    return self._conclude(call, connection, outcome)
            fresh = await self._connect(call)
            if isinstance(fresh, FetchFailure):
                return fresh
            return self._conclude(call, fresh, await self._exchange(fresh, call))
        finally:
            self._deadlines.remove(call)

    async def close(self) -> None:
        """Close all idle connections. Those in use close when their fetch ends."""
        self._pool.close()
        self._resolver.close()
        if self._proxies is not None:
            self._proxies.close()
        await asyncio.sleep(0)  # transports say goodbye in the next turn of the loop

    def _compose(
        self, url: str, method: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> tuple[Origin, bytes]:
        """Split the URL and write the request."""
        slash = url.find("/", 8)
        if slash < 0 or " " in url or not url.isprintable():
            raise ValueError(f"not a canonical http or https URL: {url!r}")
        key = url[:slash]
        origin = self._origins.get(key) or self._new_origin(key)
        target = url[slash:]
        if "#" in target:
            target = target[: target.index("#")]
        own = tuple(headers)
        text = self._header_texts.get(own)
        if text is None:
            text = self._new_header_text(own)
        if method != "GET" or body:
            text = _for_method(method, text, body)
        return origin, f"{method} {target} HTTP/1.1\r\nHost: {origin.authority}\r\n{text}\r\n".encode() + body

    def _new_origin(self, key: str) -> Origin:
        origin = read_origin(key)
        if len(self._origins) >= _CACHED_ORIGINS:
            self._origins.clear()
        self._origins[key] = origin
        return origin

    def _new_header_text(self, headers: tuple[tuple[str, str], ...]) -> str:
        check_headers(headers)
        text = (
            "".join(f"{name}: {value}\r\n" for name, value in headers)
            + f"Accept-Encoding: {_ACCEPT_ENCODING}\r\n"
        )
        if len(self._header_texts) >= _CACHED_HEADER_LISTS:
            self._header_texts.clear()
        self._header_texts[headers] = text
        return text

    async def _exchange(self, connection: Connection, call: _Call) -> Reply | Broken:
        """Send the request and wait for its outcome."""
        waiter: asyncio.Future[Reply | Broken] = asyncio.get_running_loop().create_future()
        call.connection = connection
        try:
            call.started_at = now = self._clock()
            call.started_mark = perf_counter()
            if call.started is not None:
                call.started(now)
            request = call.request if call.route is None else call.route.dressed(call.request)
            connection.send(request, waiter, call.cap, truncate=call.truncate, head_only=call.head_only)
            return await waiter
        except BaseException:
            connection.abort()
            raise
        finally:
            call.connection = None

    def _conclude(
        self, call: _Call, connection: Connection, outcome: Reply | Broken
    ) -> Response | FetchFailure:
        """Keep the connection if it is good, and turn the outcome into the caller's terms."""
        if connection.reusable:
            self._pool.give(call.key, connection)
        elapsed = outcome.at - call.started_mark
        if isinstance(outcome, Broken):
            status, wire_bytes = outcome.status, outcome.wire_bytes
            return FetchFailure(outcome.problem, outcome.detail, call.started_at, elapsed, wire_bytes, status)
        body = outcome.body
        wire_bytes = len(body)
        if outcome.codings and body:
            decoded = _decode(outcome, call, self._settings.max_decompression_ratio)
            if not isinstance(decoded, bytes):
                problem, detail = decoded
                return FetchFailure(problem, detail, call.started_at, elapsed, wire_bytes, outcome.status)
            body = decoded
        if call.route is not None and self._proxies is not None:
            complaint = self._proxies.judge(call.route, outcome.status)
            if complaint:
                return call.failure(FetchProblem.CONNECT, complaint)
        return Response(call.url, outcome.status, outcome.headers, body, call.started_at, elapsed, wire_bytes)

    async def _connect(self, call: _Call) -> Connection | FetchFailure:
        """Make a connection to one of the addresses of the host that the resolver allows."""
        if call.origin.tls and not _can_be_certified(call.origin.host):
            return call.failure(FetchProblem.TLS, f"no certificate can be for {call.origin.host}")
        try:
            async with asyncio.timeout_at(call.deadline):
                if self._proxies is not None:
                    return await self._connect_by_proxy(self._proxies, call)
                return await self._connect_any(call, await self._resolver.resolve(call.origin.host))
        except TimeoutError:
            return call.failure(
                FetchProblem.TIMEOUT, f"no connection after {self._settings.timeout_seconds:g} s"
            )
        except (ResolveFailed, DialFailed) as error:
            return call.failure(error.problem, str(error))

    async def _connect_by_proxy(self, proxies: Proxies, call: _Call) -> Connection:
        assert call.route is not None
        host = call.origin.host
        if self._settings.proxy_resolves and not is_literal(host):
            addresses: tuple[str, ...] = (host,)
        else:
            addresses = await self._resolver.resolve(host)  # before a proxy hears of it
        tls = self._tls() if call.origin.tls else None
        route, connection = await proxies.dial(call.route, addresses, tls)
        self._take(call, route)
        return connection

    def _take(self, call: _Call, route: Route) -> None:
        call.route = route
        call.key = route.key

    async def _connect_any(self, call: _Call, addresses: Sequence[str]) -> Connection | FetchFailure:
        """Connect to the first address that answers."""
        failure = call.failure(FetchProblem.DNS, f"{call.origin.host} has no address")
        seconds = self._settings.connect_timeout_seconds
        for address in addresses:
            place = f"{address} port {call.origin.port}"
            try:
                async with asyncio.timeout(seconds):
                    return await self._connect_to(call.origin, address)
            except ssl.SSLError as error:
                return call.failure(FetchProblem.TLS, f"{place}: {tls_reason(error)}")
            except TimeoutError:
                failure = call.failure(FetchProblem.TIMEOUT, f"{place} did not answer within {seconds:g} s")
            except OSError as error:
                reset = isinstance(error, ConnectionResetError | ConnectionAbortedError)
                problem = FetchProblem.TLS if call.origin.tls and reset else FetchProblem.CONNECT
                failure = call.failure(problem, f"{place}: {os_reason(error)}")
        return failure

    async def _connect_to(self, origin: Origin, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(self._limits, self._pool.discard),
            address,
            origin.port,
            ssl=self._tls() if origin.tls else None,
            server_hostname=origin.server_name if origin.tls else None,
        )
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = ssl.create_default_context()
            self._tls_context.set_alpn_protocols(["http/1.1"])
        return self._tls_context


def _for_method(method: str, text: str, body: bytes) -> str:
    if not _TOKEN.fullmatch(method) or method == "CONNECT":
        raise ValueError(f"not a method to fetch with: {method!r}")
    return text if method == "HEAD" and not body else f"{text}Content-Length: {len(body)}\r\n"


def _decode(reply: Reply, call: _Call, max_ratio: int) -> bytes | tuple[FetchProblem, str]:
    """Remove the content codings, or say what is wrong with them."""
    codings = reply.codings
    try:
        return decode_body(
            reply.body, parse_codings(codings), call.cap, max_ratio=max_ratio, partial=call.truncate
        )
    except BadEncoding as error:
        return FetchProblem.BAD_ENCODING, one_line(str(error))
    except BodyTooLarge as error:
        return FetchProblem.TOO_LARGE, str(error)


def _can_be_certified(host: str) -> bool:
    """Tell whether `ssl` accepts the name; where it raises, asyncio leaves the socket open."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:  # an empty label, or one of more than 63 characters
        return False
