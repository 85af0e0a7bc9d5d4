"""One HTTP/1.1 connection: requests out one at a time, complete and bounded replies back.

The protocol object is its own parser callback, a reply is one future, and little else is made per request:
this is the hottest path of a crawl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import cast

import httptools

from gossamer.fetch.reply import Broken, Headers, Reply, read_headers
from gossamer.model.response import FetchProblem

_MAX_INTERIM_REPLIES = 10
#: Pieces of a body that are kept apart. A piece of two bytes takes fifty.
_MAX_PIECES = 1024
_NO_BODY = frozenset({204, 304})
_FRAMING = frozenset({"content-length", "transfer-encoding", "content-encoding"})


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Bounds on the head of a reply, interim replies and trailers included."""

    max_header_bytes: int
    max_header_count: int


class _Stop(Exception):
    """Raised in a parser callback once the outcome is known, to end parsing."""


class Connection(asyncio.Protocol):
    """A connected socket that carries one exchange at a time.

    * The future of `send` always gets a result: a Reply, or a Broken, after which the connection is closed.
    * `reusable` holds only while the last reply was complete, allowed reuse, and nothing came after it.
    * Memory is bounded by the caps on head and body plus one read of the socket.
    * `on_lost` is called when the connection is gone, once.
    """

    def __init__(self, limits: HeadLimits, on_lost: Callable[[Connection], None]) -> None:
        self._limits = limits
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Reply | Broken] | None = None
        self.reusable = False
        self._make_parser()
        self._reset(0, truncate=False, head_only=False)

    def send(
        self,
        request: bytes,
        waiter: asyncio.Future[Reply | Broken],
        cap: int,
        *,
        truncate: bool,
        head_only: bool,
    ) -> None:
        """Write one request; `waiter` gets its outcome. A body over `cap` is an outcome too, or cut if `truncate`.

        `head_only` is for HEAD, whose reply has no body whatever its headers say.
        """
        self._reset(cap, truncate=truncate, head_only=head_only)
        self._waiter = waiter
        self.reusable = False
        if self._transport is None:
            self._break(FetchProblem.DISCONNECTED, "the server closed the connection at once")
        else:
            self._transport.write(request)

    @property
    def received(self) -> int:
        """About how many bytes of the reply came so far; it grows with every read."""
        return self._wire + self._outside

    def cut(self, detail: str) -> None:
        """Give up the exchange under way because it is too slow. Without one, do nothing."""
        if self._waiter is not None:
            self._break(FetchProblem.TIMEOUT, detail)

    def expire(self, seconds: float) -> None:
        """Give up the exchange under way because its time is over. Without one, do nothing."""
        if self._waiter is not None:
            state = "still receiving" if self._status else "no answer"
            self._break(FetchProblem.TIMEOUT, f"{state} after {seconds:g} s")

    def abort(self) -> None:
        """Close at once, without waiting for anyone. An exchange under way gets no outcome."""
        self._waiter = None
        self._hang_up()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle the exchange under way: complete if the end of the connection was to mark the end of the body."""
        self._transport = None
        self.reusable = False
        if self._waiter is not None:
            if self._until_close and exc is None:
                self._keep = False
                self._finish()
            else:
                self._break(FetchProblem.DISCONNECTED, self._where_it_broke())
        self._on_lost(self)
        del self._parser  # it holds our bound methods: a cycle that would wait for the garbage collector

    def data_received(self, data: bytes) -> None:
        """Parse what came; settle the exchange when it is complete, wrong or too large."""
        if self._waiter is None:
            self.abort()  # bytes nobody asked for: whatever follows could be taken for the next reply
            return
        wire = self._wire
        self._read = size = len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._parsing_ended(error)
        if self._fault is not None:
            self._break(*self._fault)
        elif self._done:
            self._finish()
        elif self._wire == wire:
            # A read without a byte of body is head, trailer or chunk framing; none of them may go on for ever.
            self._outside += size
            if self._outside > self._limits.max_header_bytes:
                self._break(
                    FetchProblem.TOO_MANY_HEADERS,
                    f"more than {self._limits.max_header_bytes} bytes of headers",
                )
        else:
            self._bound_framing(size - self._wire + wire)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Stop at anything after the complete reply."""
        if self._done:
            self._keep = False
            raise _Stop

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header or trailer."""
        self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head against its bounds, read the framing from it, and refuse a body that is too large."""
        self._status = status = self._parser.get_status_code()
        if status < 200:
            self._skip_interim(status)
            return
        self._check_head()
        self._read_headers()
        if self._head_only or status in _NO_BODY:
            self._until_close = False
            self._done = self._head_only
            self._keep = self._parser.should_keep_alive()
        elif self._length > self._cap and not self._truncate:
            self._fail(FetchProblem.TOO_LARGE, f"announced {self._length} bytes; {self._cap} are accepted")

    def on_body(self, data: bytes) -> None:
        """Collect a piece of the body up to the cap."""
        self._wire += len(data)
        if self._wire > self._cap or self._done or self._status < 200:
            self._refuse_body(data)
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Note the end of the reply and whether the connection survives it."""
        if self._status >= 200:
            self._done = True
            self._keep = not self._tainted and self._parser.should_keep_alive()

    # The rest.

    def _make_parser(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # As tolerant as browsers in what cannot change where a reply ends; such a connection may still be reused,
        # except after Content-Length together with Transfer-Encoding (RFC 9112, section 6.3).
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    def _reset(self, cap: int, *, truncate: bool, head_only: bool) -> None:
        self._cap = cap
        self._truncate = truncate
        self._head_only = head_only
        self._raw: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._headers: Headers = ()
        self._codings: list[str] = []
        self._fault: tuple[FetchProblem, str] | None = None
        self._status = 0
        #: Bytes of the body so far; bytes of reads that brought none of it; bytes of the latest read.
        self._wire: int = 0
        self._outside: int = 0
        #: Bytes around the body in reads that brought some of it; pieces of the body that were made of many.
        self._framing: int = 0
        self._joined = 0
        self._read = 0
        self._interim = 0
        #: The announced length of the body, or -1.
        self._length: int = -1
        self._until_close = False
        #: The reply is complete; it was cut at the cap; it allows reuse; its framing was ambiguous.
        self._done = False
        self._cut = False
        self._keep = False
        self._tainted = False

    def _bound_framing(self, size: int) -> None:
        """Keep what surrounds the pieces of a body in bounds: chunks may be tiny, and their extensions large."""
        self._framing += size
        if self._framing > self._cap + self._limits.max_header_bytes:
            self._break(FetchProblem.TOO_LARGE, f"more than {self._cap} bytes around the chunks of the body")
        elif len(self._body) - self._joined > _MAX_PIECES:
            self._body[self._joined :] = [b"".join(self._body[self._joined :])]
            self._joined += 1

    def _skip_interim(self, status: int) -> None:
        self._raw.clear()
        self._interim += 1
        if status < 100 or status == 101 or self._interim > _MAX_INTERIM_REPLIES:
            self._fail(FetchProblem.PROTOCOL, f"unexpected status {status:03}")

    def _check_head(self) -> None:
        limits = self._limits
        if len(self._raw) > limits.max_header_count:
            self._fail(
                FetchProblem.TOO_MANY_HEADERS,
                f"{len(self._raw)} headers; {limits.max_header_count} are accepted",
            )
        # What came so far bounds the head from above: only if that is too much need it be measured.
        if self._outside + self._read > limits.max_header_bytes:
            size = sum(len(name) + len(value) + 4 for name, value in self._raw)
            if size > limits.max_header_bytes:
                self._fail(
                    FetchProblem.TOO_MANY_HEADERS,
                    f"{size} bytes of headers; {limits.max_header_bytes} are accepted",
                )

    def _read_headers(self) -> None:
        self._headers = headers = read_headers(self._raw)
        self._raw = []
        transfer = ""
        for name, value in headers:
            if name in _FRAMING:
                if name == "content-length":
                    self._length = int(value)
                elif name == "content-encoding":
                    self._codings.append(value)
                else:
                    transfer = f"{transfer},{value}" if transfer else value
        self._until_close = self._length < 0 and not transfer
        if transfer:
            self._read_transfer_encoding(transfer.lower())

    def _read_transfer_encoding(self, transfer: str) -> None:
        self._tainted = self._length >= 0
        self._length = -1
        self._until_close = transfer == "identity"
        if transfer not in {"chunked", "identity"}:
            self._fail(FetchProblem.PROTOCOL, f"unknown transfer coding {transfer[:40]!r}")

    def _refuse_body(self, data: bytes) -> None:
        if self._done:  # a body in reply to HEAD
            self._keep = False
        elif self._status < 200:
            self._fail(FetchProblem.PROTOCOL, f"a body after status {self._status}")
        elif self._truncate:
            self._body.append(data[: self._cap - self._wire])
            self._done = self._cut = True
            self._keep = False
        else:
            self._fail(FetchProblem.TOO_LARGE, f"more than {self._cap} bytes")
        raise _Stop

    def _fail(self, problem: FetchProblem, detail: str) -> None:
        self._fault = (problem, detail)
        raise _Stop

    def _parsing_ended(self, error: Exception) -> None:
        """Sort out why the parser stopped: it saw garbage, or we told it to."""
        self._keep = False
        if self._done or self._fault is not None:
            return
        if isinstance(error, httptools.HttpParserCallbackError):
            raise error  # a bug of ours, not the server's
        self._fault = (FetchProblem.PROTOCOL, f"not valid HTTP: {error}")

    def _finish(self) -> None:
        if self._head_only:
            self._make_parser()  # the old one may still wait for the body that HEAD does not have
        self.reusable = self._keep
        if not self._keep:
            self._hang_up()
        body = b"".join(self._body)
        self._deliver(Reply(self._status, self._headers, self._codings, body, self._cut, perf_counter()))

    def _break(self, problem: FetchProblem, detail: str) -> None:
        self._hang_up()
        self._deliver(Broken(problem, detail, self._status, self._wire, not self._read, perf_counter()))

    def _deliver(self, outcome: Reply | Broken) -> None:
        waiter = self._waiter
        self._waiter = None
        self._body = []
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)

    def _hang_up(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _where_it_broke(self) -> str:
        if not self._read:
            return "the server closed the connection without an answer"
        if not self._headers:
            return "the server closed the connection inside the headers"
        of = f" of {self._length}" if self._length >= 0 else ""
        return f"the server closed the connection after {self._wire}{of} bytes of the body"
