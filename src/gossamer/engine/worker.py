"""A URL's path through the crawler. START READING HERE.

A lease comes in; a visit, which is everything the ledger needs to know, goes out:

1. **Robots.** No rules known for the origin: the lease is spent on fetching its robots.txt, and the URL goes
   back to its window (`robots_visit.py`). Forbidden: the URL is refused. Unreachable: nothing may be fetched; it waits or is held.
2. **Fetch.** One hop. Its start is reported before the first byte goes out: the host's clock runs from there.
3. **Judge.** A failure or a transient status is retried or settled (`policy.retry`). A redirect settles the URL and
   queues its target (`crawl`), or moves the input on to it (`scrape`).
4. **Extract.** Facts, links, and the record, already encoded.
5. **Discover.** Links in scope that the ledger may not know yet.

What goes wrong with a page is an outcome. What goes wrong with the crawler is raised and ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

import msgspec

from gossamer.config.settings import Settings
from gossamer.contracts import Clock, CookieJar, Extractor, Fetcher, RobotsCache, Ruling, Unknown, Unreachable
from gossamer.engine.discover import Discoverer
from gossamer.engine.report import Report, fetches_of, settled
from gossamer.engine.robots_visit import REDIRECTS, RobotsVisitor
from gossamer.engine.sameness import Sameness
from gossamer.errors import InvalidUrl
from gossamer.model.outcome import Deferred, Fetch, Hop, Outcome, Pause, Settled, State, StoredCookie, Visit
from gossamer.model.page import Facts, link_to
from gossamer.model.record import PageRecord, encode_record, instant
from gossamer.model.request import Lease, Request
from gossamer.model.response import FetchFailure, Response
from gossamer.model.url import UrlPolicy, origin_of, without_user
from gossamer.policy import politeness, retry
from gossamer.policy.blocks import block_page
from gossamer.policy.identity import Identity, with_cookies

_HTML = ("text/html", "application/xhtml+xml")
_XML = ("text/xml", "application/xml")


class Worker:
    """Visits leased URLs. Holds no state of the crawl beyond caches that can be lost."""

    def __init__(
        self,
        settings: Settings,
        fetcher: Fetcher,
        robots: RobotsCache,
        extractor: Extractor,
        xml_extractor: Extractor,
        discoverer: Discoverer,
        cookies: CookieJar | None,
        identity: Identity,
        urls: UrlPolicy,
        clock: Clock,
        random: Callable[[], float],
        *,
        follow: bool,
    ) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._rules = RobotsVisitor(settings, fetcher, robots, identity, clock)
        self._extractor = extractor
        self._xml_extractor = xml_extractor
        self._discoverer = discoverer
        self._cookies = cookies
        self._identity = identity
        self._urls = urls
        self._clock = clock
        self._random = random
        self._follow = follow
        self._sameness = Sameness(settings, discoverer.traps if follow else None)

    async def close(self) -> None:
        """Close every connection."""
        await self._fetcher.close()

    async def visit(self, lease: Lease, started: Callable[[float], None]) -> Report:
        """Do what the lease is for. `started` is called right before a first byte goes out."""
        ruling = await self._rules.ruling(lease.request)
        match ruling:
            case Unknown():
                return await self._rules.visit(lease, started)
            case Unreachable():
                return self._rules.wait(lease, ruling)
            case Ruling(allowed=False, rule=rule):
                return settled(lease, Settled(State.REFUSED, "robots", rule))
            case Ruling():
                return await self._visit_page(lease, ruling, started)

    # -- fetch --------------------------------------------------------------------------------

    async def _visit_page(self, lease: Lease, ruling: Ruling, started: Callable[[float], None]) -> Report:
        request = lease.request
        url = request.target
        origin = origin_of(url)
        floor = politeness.group_delay(ruling.crawl_delay, self._settings.politeness)
        if politeness.too_early(lease, floor):
            # Another origin of the group has set its pace, or the last run has: wait as long as this one asks for.
            return Report(Visit(lease.known, Deferred()), Pause(delay=floor, origin=origin, floor=floor))
        answer = await self._fetcher.fetch(
            url,
            method=request.method,
            headers=self._request_headers(request, url),
            body=request.body,
            started=started,
        )
        now = self._clock()
        fetches = fetches_of(url, lease, answer, ruling.version, "page")
        blocked = block_page(answer) if isinstance(answer, Response) else ""
        pause = politeness.pause_after(
            answer, lease, origin, floor, self._settings.politeness, now, self._random(), blocked
        )
        if blocked:
            outcome = Settled(State.HELD, "blocked", blocked, answer.status)
            return Report(Visit(lease.known, outcome, fetches=fetches), pause)
        if pause.failed and politeness.is_parked(lease.failures, self._settings.politeness):
            # It was a probe of the host: what came of it is not the URL's fault.
            return Report(Visit(lease.known, Deferred(), fetches=fetches), pause)
        visit = self._judge(lease, answer, fetches, now)
        cookies = self._received_cookies(answer, now)
        return Report(msgspec.structs.replace(visit, cookies=cookies) if cookies else visit, pause)

    def _request_headers(self, request: Request, url: str) -> Sequence[tuple[str, str]]:
        headers = self._identity.for_page(request)
        if self._cookies is not None:
            cookie = self._cookies.header_for(url, self._clock())
            if cookie:
                headers = with_cookies(headers, cookie)
        return headers

    def _received_cookies(self, answer: Response | FetchFailure, now: float) -> tuple[StoredCookie, ...]:
        if self._cookies is None or isinstance(answer, FetchFailure):
            return ()
        received = answer.header_all("set-cookie")
        return self._cookies.store(answer.url, received, now) if received else ()

    # -- judge --------------------------------------------------------------------------------

    def _judge(
        self, lease: Lease, answer: Response | FetchFailure, fetches: tuple[Fetch, ...], now: float
    ) -> Visit:
        known = lease.known
        if isinstance(answer, FetchFailure):
            outcome: Outcome = retry.decide(
                answer, known.tries + 1, self._settings.politeness, now, self._random()
            )
            return Visit(known, outcome, fetches=fetches)
        if answer.status in REDIRECTS and answer.header("location"):
            return self._redirect(lease, answer, fetches)
        outcome = Settled(
            State.FETCHED, "ok" if answer.status < 400 else f"http_{answer.status}", "", answer.status
        )
        if answer.status in retry.TRANSIENT_STATUSES:
            outcome = retry.decide(answer, known.tries + 1, self._settings.politeness, now, self._random())
            if not (isinstance(outcome, Settled) and outcome.state is State.FAILED):
                return Visit(known, outcome, fetches=fetches)
        asked = self._sameness.question(lease.request.url, answer.status)
        facts = self._extract(answer, with_text=asked.wants_text)
        digest = sha256(answer.body)
        likeness = self._sameness.simhash(asked, answer, facts)
        record = self._record(lease, answer, facts, digest.hexdigest(), self._sameness.in_record(likeness))
        content = self._sameness.content(answer, digest.digest(), likeness)
        found = (
            self._discoverer.links(lease.request, facts.links) if self._follow and not facts.nofollow else ()
        )
        notes = (facts.note,) if facts.note else ()
        return Visit(known, outcome, record, found, fetches, content=content, notes=notes)

    def _redirect(self, lease: Lease, answer: Response, fetches: tuple[Fetch, ...]) -> Visit:
        request = lease.request
        chain = (*request.redirected_from, request.target)
        location = answer.header("location")
        try:
            target = link_to(location, answer.url, self._urls)
        except InvalidUrl:
            return Visit(
                lease.known,
                Settled(State.FAILED, "bad_redirect", without_user(location), answer.status),
                fetches=fetches,
            )
        # Back to a URL of its own chain: once more, with the cookies that were set on the way. Twice is a loop.
        if chain.count(target.url) > 1:
            return Visit(
                lease.known,
                Settled(State.FAILED, "redirect_loop", target.url, answer.status),
                fetches=fetches,
            )
        if len(chain) > self._settings.fetch.max_redirects:
            return Visit(
                lease.known,
                Settled(State.FAILED, "too_many_redirects", target.url, answer.status),
                fetches=fetches,
            )
        if not self._follow:
            return Visit(lease.known, Hop(self._discoverer.hop(request, target)), fetches=fetches)
        found, root = self._discoverer.redirect(request, target)
        found = self._identity.passed_on(request, found)
        outcome = Settled(State.REDIRECTED, "redirect", target.url, answer.status)
        return Visit(lease.known, outcome, found=(found,), fetches=fetches, root=root)

    # -- extract --------------------------------------------------------------------------------

    def _extract(self, answer: Response, *, with_text: bool) -> Facts:
        content_type = answer.header("content-type")
        if not answer.body:
            return Facts()
        if _is_html(content_type, answer.body):
            extractor = self._extractor
        elif _is_xml(content_type, answer.body):
            extractor = self._xml_extractor
        else:
            return Facts()
        return extractor.extract(
            answer.body,
            content_type,
            answer.url,
            answer.header_all("x-robots-tag"),
            answer.header("content-language"),
            with_text=with_text,
        )

    def _record(
        self,
        lease: Lease,
        answer: Response,
        facts: Facts,
        content_hash: str,
        likeness: str | msgspec.UnsetType,
    ) -> bytes:
        if facts.noindex and self._settings.record.skip_noindex:
            return b""
        request = lease.request
        record = PageRecord(
            url=request.url,
            final_url=answer.url,
            status=answer.status,
            content_type=answer.header("content-type"),
            fetched_at=instant(answer.started_at),
            depth=request.depth,
            parent=request.parent,
            title=facts.title,
            description=facts.description,
            language=facts.language,
            headings=facts.headings,
            links=[link.url for link in facts.links],
            noindex=facts.noindex,
            content_hash=content_hash,
            bytes=len(answer.body),
            elapsed_ms=round(answer.elapsed * 1000),
            attempt=lease.known.tries + 1,
            simhash=likeness,
        )
        if request.redirected_from:
            record.redirected_from = request.redirected_from
        return encode_record(record)


def _is_html(content_type: str, body: bytes) -> bool:
    """Go by the label; a body without one is HTML if it begins as markup does, and not as XML other than XHTML."""
    if content_type:
        return content_type.lower().lstrip().startswith(_HTML)
    start = _start(body)
    return start.startswith(b"<") and (not start.startswith(b"<?xml") or b"<html" in start)


def _is_xml(content_type: str, body: bytes) -> bool:
    """Go by the label; a body without one, and no HTML, is XML if it says so."""
    if content_type:
        kind = content_type.partition(";")[0].strip().lower()
        return kind in _XML or kind.endswith("+xml")
    return _start(body).startswith(b"<?xml")


def _start(body: bytes) -> bytes:
    return body[:512].lstrip(b"\xef\xbb\xbf \t\r\n\f")
