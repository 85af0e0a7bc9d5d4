"""Whether a worker process is well, and the tiny HTTP server that says so to a container platform and to Prometheus.

It answers GET and HEAD of `/healthz`, `/readyz` and `/metrics`, one request a connection, and shares the event loop of
the worker: while the loop hangs nothing answers, which is an answer too. Nothing of a request is ever sent back.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, cast

from gossamer.contracts import Clock
from gossamer.errors import UsageError
from gossamer.observe.metrics import CONTENT_TYPE, Metrics, ProcessFigures

_END = b"\r\n\r\n"
_PLAIN = "text/plain; charset=utf-8"
_MAX_PORT = 65_535


class Probes(Protocol):
    """What a worker says of itself. Answers at once; a reason is a line or several, for people."""

    def alive(self) -> str:
        """Return why the process should be started anew; empty while it is well."""
        ...

    def ready(self) -> str:
        """Return why it takes no work just now; empty while it does."""
        ...


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """What one client can cost."""

    max_head_bytes: int = 8192
    #: From the first byte to the last of the answer.
    connection_seconds: float = 5.0
    #: One more closes the oldest: honest requests are over in milliseconds, so the slow cannot lock them out.
    max_connections: int = 32


class Vitals:
    """The probes of a worker: the last turn of its loop, the last answer of each backend, and whether it drains.

    A backend that fails stays good for `max_silence_seconds` after its last answer: a blip changes nothing.
    """

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        backends: Sequence[str],
        *,
        max_tick_seconds: float = 60.0,
        max_silence_seconds: float = 30.0,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._max_tick_seconds = max_tick_seconds
        self._max_silence_seconds = max_silence_seconds
        self._ticked_at = clock()
        #: When each backend last answered; 0.0 for not yet.
        self._answered_at = dict.fromkeys(backends, 0.0)
        self._draining = False

    def tick(self) -> None:
        """Note that the worker's loop has turned."""
        self._ticked_at = self._clock()

    def answered(self, backend: str) -> None:
        """Note that a backend has answered."""
        self._answered_at[backend] = self._clock()
        self._metrics.backend_answered(backend)

    def failed(self, backend: str) -> None:
        """Note that a call to a backend has failed."""
        self._metrics.backend_failed(backend)

    def drain(self) -> None:
        """Note that the worker comes to its end and takes no more work."""
        self._draining = True

    def alive(self) -> str:
        """Return since when the loop stands still, if that is too long."""
        age = self._clock() - self._ticked_at
        return f"the loop has not turned for {age:.0f} s" if age > self._max_tick_seconds else ""

    def ready(self) -> str:
        """Return the backends that are silent, and whether it drains: a line each."""
        now = self._clock()
        reasons = ["draining"] if self._draining else []
        for backend, answered_at in self._answered_at.items():
            if not answered_at:
                reasons.append(f"{backend} has not answered yet")
            elif now - answered_at > self._max_silence_seconds:
                reasons.append(f"{backend} has not answered for {now - answered_at:.0f} s")
        return "\n".join(reasons)


class HealthServer:
    """Serves the endpoints within `async with`. Once started it raises nothing, whatever clients do.

    `port` 0 takes any free port; `port` tells which. A port that cannot be had is a `UsageError`.
    """

    def __init__(
        self,
        port: int,
        host: str,
        metrics: Metrics,
        probes: Probes,
        limits: HealthLimits | None = None,
        process: Callable[[], ProcessFigures] | None = None,
    ) -> None:
        self.port = port
        self.limits = limits or HealthLimits()
        self._host = host
        self._metrics = metrics
        self._probes = probes
        self._process = process or process_figures
        self._server: asyncio.Server | None = None
        #: Open connections, the oldest first.
        self._open: dict[_Connection, None] = {}
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    def __repr__(self) -> str:
        state = "serving" if self._server is not None else "closed"
        return f"<HealthServer {state} port={self.port} connections={len(self._open)}>"

    async def __aenter__(self) -> Self:
        """Listen."""
        loop = asyncio.get_running_loop()
        if not 0 <= self.port <= _MAX_PORT:
            # uvloop would take the number modulo 65536.
            raise UsageError(f"A port for health checks is a number from 0 to {_MAX_PORT}, not {self.port}.")
        try:
            self._server = await loop.create_server(
                lambda: _Connection(self), self._host, self.port, backlog=self.limits.max_connections
            )
        except (OSError, UnicodeError) as error:
            errno = getattr(error, "errno", None) or 0
            reason = os.strerror(errno) if errno > 0 else str(error)
            raise UsageError(
                f"Cannot listen on {self._host} port {self.port} for health checks: {reason}. Choose another address or port."
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the port and every connection."""
        assert self._server is not None
        server, self._server = self._server, None
        server.close()
        for connection in list(self._open):
            connection.abort()
        # An aborted transport says so in one of the next turns of the loop.
        await self._all_closed.wait()
        await server.wait_closed()

    # -- connections -------------------------------------------------------------------------------------

    def opened(self, connection: _Connection) -> None:
        """Make room for a connection, at the cost of the oldest."""
        if self._server is None:
            connection.abort()
            return
        while len(self._open) >= self.limits.max_connections:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[connection] = None
        self._all_closed.clear()

    def closed(self, connection: _Connection) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)
        if not self._open:
            self._all_closed.set()

    def answer(self, head: bytes) -> bytes:
        """Return the whole answer to a request head, which may be any bytes."""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return reply(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
        method, target, _ = words
        if method not in {b"GET", b"HEAD"}:
            return reply(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
        try:
            whole = self._page(target.split(b"?", 1)[0])
        except Exception as error:  # noqa: BLE001 - a probe that fails must not end the worker it asks about
            whole = reply(HTTPStatus.INTERNAL_SERVER_ERROR, f"the check failed: {type(error).__name__}")
        return whole if method == b"GET" else whole[: whole.index(_END) + len(_END)]

    def _page(self, path: bytes) -> bytes:
        match path:
            case b"/healthz":
                return _verdict(self._probes.alive())
            case b"/readyz":
                return _verdict(self._probes.ready())
            case b"/metrics":
                return reply(HTTPStatus.OK, self._metrics.text(self._process()), CONTENT_TYPE)
            case _:
                return reply(HTTPStatus.NOT_FOUND, "there are /healthz, /readyz and /metrics")


class _Connection(asyncio.Protocol):
    """One request and its answer. A protocol and no task: the worker's own tasks stay the only ones."""

    def __init__(self, server: HealthServer) -> None:
        self._server = server
        self._head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        # It also ends an answer that nobody reads.
        self._timer = loop.call_later(self._server.limits.connection_seconds, self.abort)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        self._head += data
        end = self._head.find(_END)
        limit = self._server.limits.max_head_bytes
        if end > limit or (end < 0 and len(self._head) > limit):
            self._finish(
                reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has {limit} bytes at most")
            )
        elif end >= 0:
            self._finish(self._server.answer(bytes(self._head[:end])))

    def connection_lost(self, _error: Exception | None) -> None:
        self._timer.cancel()
        self._server.closed(self)

    def abort(self) -> None:
        self._transport.abort()

    def _finish(self, answer: bytes) -> None:
        self._head.clear()
        self._transport.write(answer)
        self._transport.close()


def process_figures() -> ProcessFigures:
    """Read what this process uses; its memory is known on Linux alone."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        pages = 0
    return ProcessFigures(time.process_time(), pages * os.sysconf("SC_PAGE_SIZE"))


def reply(status: HTTPStatus, text: str, content_type: str = _PLAIN) -> bytes:
    """Return a response of one text, after which the connection ends."""
    # A name that is no Unicode, as of a job in a folder of such a name, must not cost the other figures.
    body = text.encode("utf-8", "replace")
    body += b"" if body.endswith(b"\n") else b"\n"
    allow = "Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"{allow}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _verdict(why_not: str) -> bytes:
    return reply(HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK, why_not or "ok")
