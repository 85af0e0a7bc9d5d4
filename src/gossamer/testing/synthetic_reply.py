"""The values of the synthetic web: what was asked, what is answered, what a crawl should make of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

State: TypeAlias = Literal["fetched", "redirected", "refused", "failed", "held", "depends"]
HTML_TYPE = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Hit:
    """One request as it arrived, complete with its body."""

    #: Arrival on the monotonic clock, for distances; `wall` is the same moment since the epoch.
    at: float
    wall: float
    #: The virtual host without `.localhost`; `docs` for a bare address.
    host: str
    #: With the query, exactly as sent.
    path: str
    method: str
    #: Lower-case names; repeated headers are joined by a comma.
    headers: dict[str, str]
    #: The client's port: hits with the same port came over one connection.
    port: int
    #: How often this host and path had been asked for, this time included, since the start or `reset`.
    visit: int
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, well-formed or not.

    `Content-Length` or `Transfer-Encoding` and `Connection` are added; every other header is given here,
    `Content-Type` too. With `raw` those bytes are all that is sent, and the connection is closed after them.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", HTML_TYPE),)
    body: bytes = b""
    #: Waited before the first byte of the answer.
    delay_seconds: float = 0.0
    #: The body (or `raw`) goes out in pieces of this size, `drip_seconds` apart; 0 means all at once.
    drip_bytes: int = 0
    drip_seconds: float = 0.0
    #: Each piece is sent as a chunk, and no length is announced.
    chunked: bool = False
    #: The connection ends with this answer.
    close: bool = False
    raw: bytes = b""

    def with_headers(self, *extra: tuple[str, str]) -> Reply:
        """Return the same answer with further headers."""
        return replace(self, headers=self.headers + extra)

    def with_status(self, status: int) -> Reply:
        """Return the same answer with another status."""
        return replace(self, status=status)


Answer: TypeAlias = Reply | Callable[[Hit], Reply | Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Expectation:
    """How a URL ends in a crawl with default settings (robots obeyed, cookies kept, flaky pages retried).

    `status` is the last one the server gives, 0 where no page is ever served. `state` is `depends` where
    it follows from a policy rather than from the web, as for the second of two equal pages.
    """

    status: int
    state: State
    #: The element that leads to the page: `a`, `area`, `frame`, `iframe`, `link`, `refresh`, `redirect`, `seed`.
    via: str = "a"


def text_reply(
    body: str | bytes, content_type: str = "text/plain; charset=utf-8", status: int = 200
) -> Reply:
    """Answer with a body of some other type than HTML."""
    data = body.encode() if isinstance(body, str) else body
    return Reply(status, (("Content-Type", content_type),), data)


def redirect(location: str, status: int = 301) -> Reply:
    """Answer with a redirect and a line for people."""
    return text_reply(f"See {location}\n", status=status).with_headers(("Location", location))
