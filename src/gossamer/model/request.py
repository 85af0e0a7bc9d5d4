"""What to fetch: discovered, then known to the ledger, then leased to a worker.

These values hold text, numbers and each other, never a cycle: `gc=False` keeps the many of them out of the garbage
collector's way.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Source(StrEnum):
    """How a URL came to us."""

    SEED = "seed"
    LINK = "link"
    REDIRECT = "redirect"
    SITEMAP = "sitemap"


class Request(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A URL somebody wants fetched. Plain data: it crosses processes as MessagePack.

    `fingerprint` identifies the request (64 bits over method, dedup key and body); two requests with
    the same fingerprint are the same work. `target` is what goes on the wire: it differs from `url`
    only in `scrape`, where an input keeps its name while its redirects are followed.
    """

    url: str
    fingerprint: int
    host: str
    depth: int = 0
    #: Smaller is earlier among the URLs of one host.
    priority: int = 0
    parent: str = ""
    source: Source = Source.LINK
    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    route: str = ""
    fetcher: str = "http"
    metadata: dict[str, str] = {}
    #: The chain of URLs whose redirects led here, oldest first.
    redirected_from: tuple[str, ...] = ()
    #: What to fetch in place of `url`; empty means `url` itself.
    hop: str = ""

    @property
    def target(self) -> str:
        """The URL that goes on the wire."""
        return self.hop or self.url


class Known(msgspec.Struct, frozen=True, gc=False):
    """A request the ledger has accepted and that is still to be fetched."""

    request: Request
    #: Position in the ledger; equal priorities are served in this order.
    seq: int
    #: Changes whenever the row does. A commit must name the attempt it was leased at, or it changes nothing.
    attempt: int = 0
    #: How often in a row it failed and was queued again.
    tries: int = 0
    #: How often a worker died while holding it. From the first on it is leased alone.
    crashes: int = 0
    #: Not to be fetched before this instant (seconds since the epoch).
    not_before: float = 0.0
    etag: str = ""
    last_modified: str = ""
    visit: int = 1


class Lease(msgspec.Struct, frozen=True, gc=False):
    """Exclusive, temporary right to fetch `known.request`.

    `token` changes every time a request is leased, so a worker that lost its lease cannot release or
    settle the request on behalf of the one that now holds it.
    """

    known: Known
    token: int
    expires_at: float
    #: The delay of the host's politeness group when the lease was given, for the fetch log.
    delay: float = 0.0
    #: How often in a row the group has failed, for the back-off.
    failures: int = 0
    #: The politeness group whose clock the lease runs by.
    group: str = ""
    #: What of the delay is for trouble the group had.
    slowness: float = 0.0
    #: The epoch of the schedule that gave it, as its worker counts them.
    epoch: int = 0

    @property
    def request(self) -> Request:
        """The leased request."""
        return self.known.request
