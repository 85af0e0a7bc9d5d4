"""Short ways to write the values that frontier tests are made of. URLs are named `host/path`, without a scheme."""

from __future__ import annotations

import hashlib

import msgspec

from gossamer.model.outcome import (
    Batch,
    Fetch,
    Found,
    GroupState,
    Outcome,
    Settled,
    State,
    Visit,
)
from gossamer.model.request import Known, Request, Source
from gossamer.model.schedule import HostInfo

#: The instant tests begin at: that of a new `FakeClock`.
NOW = 1_000_000.0

FETCHED = Settled(State.FETCHED, "ok", status=200)
REDIRECTED = Settled(State.REDIRECTED, "redirect", status=302)


def url_of(name: str) -> str:
    """Return the URL a name stands for."""
    return f"http://{name}"


def fingerprint_of(name: str) -> int:
    """Return 64 signed bits that depend on the name alone."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def request_for(name: str, *, depth: int = 0, priority: int = 0, chain: tuple[str, ...] = ()) -> Request:
    """Ask for a URL; `chain` names those whose redirects led to it."""
    return Request(
        url_of(name),
        fingerprint_of(name),
        name.partition("/")[0],
        depth,
        priority,
        source=Source.REDIRECT if chain else Source.LINK,
        redirected_from=tuple(url_of(link) for link in chain),
    )


def found(
    name: str, *, depth: int = 0, priority: int = 0, refusal: str = "", chain: tuple[str, ...] = ()
) -> Found:
    """Discover a URL."""
    return Found(request_for(name, depth=depth, priority=priority, chain=chain), refusal)


def known(name: str, seq: int = 1, *, priority: int = 0, attempt: int = 0, not_before: float = 0.0) -> Known:
    """Name a request as the ledger would hand it to the schedule."""
    return Known(request_for(name, priority=priority), seq, attempt, not_before=not_before)


def names_of(items: list[Known]) -> list[str]:
    """Return the names of requests, in order."""
    return [item.request.url.removeprefix("http://") for item in items]


def record_of(item: Known) -> bytes:
    """Return the record a page yields."""
    return msgspec.json.encode({"url": item.request.url, "attempt": item.attempt})


def visit(item: Known, outcome: Outcome = FETCHED, *links: Found, at: float = NOW) -> Visit:
    """Visit a URL with one fetch; only a fetched page yields a record."""
    group = item.request.host
    fetch = Fetch(item.request.url, group, at, delay=1.0, elapsed=0.1, status=200, wire_bytes=1000)
    return Visit(item, outcome, record_of(item) if outcome == FETCHED else b"", links, (fetch,))


def batch(name: str, *visits: Visit, groups: tuple[GroupState, ...] = (), at: float = NOW) -> Batch:
    """Commit visits together."""
    return Batch(name, visits, groups, at=at)


def info(host: str, *, pages: int = 0, group: str = "", **state: float) -> HostInfo:
    """Describe a host to the schedule; its group is its own name unless told otherwise."""
    failures = int(state.pop("failures", 0))
    return HostInfo(host, pages, GroupState(group or host, **state, failures=failures))
