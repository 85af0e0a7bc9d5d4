"""robots.txt before anything else of an origin: it spends the lease of the page that needs it.

A redirect of robots.txt is not followed on the spot: the host it leads to has a clock of its own. The page makes a
*detour*: it goes on, under the name of the other host, as the request for that file, and comes home when the rules
are known. So every hop is leased, starts when its host is due, and is in the fetch log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gossamer.config.settings import Settings
from gossamer.contracts import Clock, Fetcher, RobotsCache, Ruling, Unknown, Unreachable
from gossamer.engine.report import NO_PAUSE, Report, fetches_of, settled
from gossamer.errors import InvalidUrl
from gossamer.model.outcome import ROBOTS_ASSUMED, Deferred, Hop, Pause, Settled, State, Visit
from gossamer.model.request import Lease, Request
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.model.url import canonicalise, host_of, origin_of
from gossamer.policy import politeness
from gossamer.policy.identity import Identity

REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: At least five are to be followed, across authorities (RFC 9309, 2.3.1.2).
_MAX_REDIRECTS = 5
_WHERE, _HOPS = "robots_at", "robots_hops"
_DETOUR_SECONDS = 300.0
#: So many are remembered before those that are over are forgotten.
_MAX_DETOURS = 1000
_POLL_SECONDS = 1.0
_NO_RULING = Ruling(allowed=True, rule="", crawl_delay=None, version=0)


class RobotsVisitor:
    """Knows the rules of every origin, or finds them out."""

    def __init__(
        self,
        settings: Settings,
        fetcher: Fetcher,
        robots: RobotsCache,
        identity: Identity,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._robots = robots
        self._identity = identity
        self._clock = clock
        #: Origins whose robots.txt is being fetched: whoever else needs it waits for that one.
        self._under_way: dict[str, asyncio.Future[None]] = {}
        #: Origins whose robots.txt is on a detour, and until when that is believed.
        self._detours: dict[str, float] = {}

    async def ruling(self, request: Request) -> Ruling | Unknown | Unreachable:
        """Say whether the request may be made. Asks the ledger where this process does not know."""
        if not self._settings.politeness.robots:
            return _NO_RULING
        if on_detour(request):
            return Unknown()
        origin = origin_of(request.target)
        ruling = self._robots.rule(origin, request.target)
        if isinstance(ruling, Unknown):
            await self._robots.recall(origin)
            # Whatever came of it: another lease may have fetched it while this one waited for the ledger.
            ruling = self._robots.rule(origin, request.target)
        if isinstance(ruling, Unknown) and self._detours.get(origin, 0.0) > self._clock():
            return Unreachable(
                self._clock() + _POLL_SECONDS, "it is being fetched elsewhere", exhausted=False
            )
        return ruling

    async def visit(self, lease: Lease, started: Callable[[float], None]) -> Report:
        """Spend the lease on robots.txt. It counts as a start, so the page waits for its own turn."""
        origin = origin_of(lease.request.target)
        under_way = self._under_way.get(origin)
        if under_way is not None:
            await asyncio.shield(under_way)
            return Report(Visit(lease.known, Deferred()), NO_PAUSE)
        done = self._under_way[origin] = asyncio.get_running_loop().create_future()
        try:
            return await self._fetch(origin, lease, started)
        finally:
            del self._under_way[origin]
            done.set_result(None)

    def wait(self, lease: Lease, unreachable: Unreachable) -> Report:
        """Put the page off until robots.txt is probed again, or hold it where that was done often enough."""
        if unreachable.exhausted:
            detail = f"robots.txt: {unreachable.detail}"
            return settled(lease, Settled(State.HELD, "robots_unreachable", detail))
        return Report(Visit(lease.known, Deferred()), Pause(until=unreachable.until))

    async def _fetch(self, origin: str, lease: Lease, started: Callable[[float], None]) -> Report:
        url = lease.request.metadata.get(_WHERE, f"{origin}/robots.txt")
        answer = await self._fetcher.fetch(
            url,
            headers=self._identity.for_robots(url),
            # One byte more than is read: the parser must see that a rule was cut off.
            max_body_bytes=self._settings.politeness.max_robots_bytes + 1,
            truncate=True,
            started=started,
        )
        if isinstance(answer, Response) and answer.status in REDIRECTS:
            target = _redirect_target(answer, lease.request)
            if target:
                return self._detour(origin, target, url, lease, answer)
            # More redirects than that, or nowhere to go: there is no robots.txt to be had.
            answer = msgspec.structs.replace(answer, status=404, body=b"")
        return self._learn(origin, url, lease, answer)

    def _detour(self, origin: str, target: str, url: str, lease: Lease, answer: Response) -> Report:
        now = self._clock()
        if len(self._detours) >= _MAX_DETOURS:
            # Others may have brought them home.
            self._detours = {name: until for name, until in self._detours.items() if until > now}
        self._detours[origin] = now + _DETOUR_SECONDS
        request = lease.request
        metadata = {**request.metadata, _WHERE: target, _HOPS: str(_hops(request) + 1)}
        hop = Hop(msgspec.structs.replace(request, host=host_of(target), metadata=metadata))
        fetches = fetches_of(url, lease, answer, 0, "robots")
        return Report(Visit(lease.known, hop, fetches=fetches), Pause(answer.started_at))

    def _learn(self, origin: str, url: str, lease: Lease, answer: Response | FetchFailure) -> Report:
        now = self._clock()
        lesson = self._robots.learn(origin, answer, now)
        self._detours.pop(origin, None)
        if isinstance(answer, FetchFailure) and answer.problem is FetchProblem.PRIVATE_ADDRESS:
            return settled(lease, Settled(State.REFUSED, "private_address", answer.detail))
        visit = Visit(
            lease.known,
            _home(lease.request),
            fetches=fetches_of(url, lease, answer, 0, "robots"),
            robots=(lesson.file,),
            notes=lesson.notes,
        )
        if isinstance(visit.outcome, Hop):
            # The clock here is another host's: the rules are not for it.
            return Report(visit, Pause(answer.started_at))
        ruling = self._robots.rule(origin, f"{origin}/")
        until = ruling.until if isinstance(ruling, Unreachable) and not ruling.exhausted else 0.0
        if lesson.file.status == ROBOTS_ASSUMED:
            until = now + politeness.retry_after(answer, now)
        crawl_delay = ruling.crawl_delay if isinstance(ruling, Ruling) else None
        floor = politeness.group_delay(crawl_delay, self._settings.politeness)
        delay = max(floor, lease.slowness)
        return Report(visit, Pause(answer.started_at, delay, until, origin=origin, floor=floor))


def _hops(request: Request) -> int:
    return int(request.metadata.get(_HOPS, "0"))


def _redirect_target(answer: Response, request: Request) -> str:
    """Return where robots.txt is to be looked for next; empty where that leads nowhere."""
    if _hops(request) >= _MAX_REDIRECTS:
        return ""
    try:
        return canonicalise(answer.header("location"), answer.url)
    except InvalidUrl:
        return ""


def on_detour(request: Request) -> bool:
    """Whether the request stands for a robots.txt that was redirected."""
    return _WHERE in request.metadata


def _home(request: Request) -> Deferred | Hop:
    """Return the page to its own host after a detour; otherwise it has never left its window."""
    if not on_detour(request):
        return Deferred()
    metadata = {key: value for key, value in request.metadata.items() if key not in {_WHERE, _HOPS}}
    return Hop(msgspec.structs.replace(request, host=host_of(request.target), metadata=metadata))
