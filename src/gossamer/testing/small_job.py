"""A small crawl in a ledger of any kind: one page of each fate, found from one seed."""

from __future__ import annotations

from gossamer.contracts import JobLedger
from gossamer.model.outcome import (
    Batch,
    Cursor,
    Fetch,
    Found,
    GroupState,
    Outcome,
    Retry,
    RobotsFile,
    Settled,
    State,
    Visit,
)
from gossamer.model.request import Known, Request, Source
from gossamer.model.url import canonicalise, dedup_key, fingerprint, host_of

HOME = "https://a.example/"
#: A detail that would like to reach the terminal.
EVIL = "\x1b[2J\u202egnp.exe\x9b31m"


def found(url: str, *, depth: int = 1, refusal: str = "", source: Source = Source.LINK) -> Found:
    """Return a URL as a page or a seed brings it."""
    canonical = canonicalise(url)
    request = Request(canonical, fingerprint(dedup_key(canonical)), host_of(canonical), depth, source=source)
    return Found(request, refusal)


def fetch(url: str, at: float, status: int = 200, problem: str = "", kind: str = "page") -> Fetch:
    """Return a request that went out."""
    return Fetch(url, host_of(url), at, 1.0, 0.25, status, 1000, problem, kind=kind)


def visit(
    known: Known, outcome: Outcome, at: float, *links: Found, problem: str = "", record: bytes = b""
) -> Visit:
    """Return a visit with its one request."""
    url, status = known.request.url, getattr(outcome, "status", 0)
    return Visit(known, outcome, record, tuple(links), (fetch(url, at, status, problem),))


async def write_small_job(ledger: JobLedger, now: float) -> None:
    """Commit it, as it was half a minute ago: nine URLs, two pages, two that still wait. Leaves the ledger open."""
    seed = await ledger.add([found(HOME, depth=0, source=Source.SEED)], roots=["a.example"], progress="1")
    links = [
        found("https://a.example/page?b=2&a=1"),
        found("https://a.example/broken"),
        found("https://a.example/old"),
        found("https://a.example/secret"),
        found("https://a.example/deep", depth=9, refusal="depth"),
        found("https://b.example/later"),
        found("https://a.example/busy"),
    ]
    home = visit(
        seed.live[0], Settled(State.FETCHED, "ok", status=200), now - 30, *links, record=b'{"url":"/"}'
    )
    robots = RobotsFile("https://a.example", now - 31, 200, b"User-agent: *\nDisallow: /secret\n", 1)
    first = await ledger.commit(
        Batch("run-1", (home, Visit(seed.live[0], home.outcome, robots=(robots,))), at=now - 20)
    )
    page, broken, old, secret, later, busy = first.live
    target = found("https://a.example/new", source=Source.REDIRECT)
    visits = (
        visit(page, Settled(State.FETCHED, "http_404", status=404), now - 19, record=b'{"url":"/page"}'),
        visit(broken, Settled(State.FAILED, "timeout", EVIL), now - 18, problem="timeout"),
        visit(old, Settled(State.REDIRECTED, "redirect", target.request.url, 301), now - 17, target),
        Visit(secret, Settled(State.REFUSED, "robots", "line 2: Disallow: /secret")),
        Visit(later, Settled(State.HELD, "robots_unreachable", "robots.txt: no answer")),
        visit(busy, Retry("http_503", now + 3600, "", 503), now - 16),
    )
    cursors = (Cursor("pages.jsonl", 1, 12, 1),)
    groups = (GroupState("a.example", now - 16, 1.0),)
    await ledger.commit(Batch("run-2", visits, groups, cursors, at=now - 10))
    await ledger.close_seeding()
