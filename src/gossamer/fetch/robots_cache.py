"""The robots.txt of each origin: fetched once, remembered for a day, obeyed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf

import xxhash

from gossamer.config.settings import PolitenessSettings
from gossamer.contracts import Clock, Ruling, Unknown, Unreachable
from gossamer.model.outcome import RobotsFile
from gossamer.model.response import FetchFailure, Response
from gossamer.policy import robots
from gossamer.policy.politeness import OVERLOADED, backoff, group_delay, retry_after

_UNKNOWN = Unknown()
_MAX_ORIGINS = 20_000
_MIN_TTL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Rules:
    rules: robots.RobotsRules
    version: int
    crawl_delay: float | None
    expires_at: float


class OriginRobots:
    """Implements `RobotsCache`. `load` asks whoever keeps robots.txt files across restarts.

    RFC 9309: 2xx gives rules; 4xx means there are none and all is allowed; 5xx and network failures mean
    that nothing may be fetched until it answers. So does 429: who is too busy for this is too busy for pages. Redirects are followed by the caller, up to five.
    """

    def __init__(
        self,
        settings: PolitenessSettings,
        user_agent: str,
        clock: Clock,
        load: Callable[[str], Awaitable[RobotsFile | None]],
        random: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._user_agent = user_agent
        self._clock = clock
        self._load = load
        self._random = random
        # After robots.txt the page waits for its own turn: one that was stale by then would be fetched for ever.
        self._ttl = max(settings.robots_ttl_seconds, 2 * group_delay(inf, settings), _MIN_TTL_SECONDS)
        self._known: OrderedDict[str, _Rules] = OrderedDict()
        self._failing: dict[str, tuple[int, Unreachable]] = {}

    def rule(self, origin: str, url: str) -> Ruling | Unknown | Unreachable:
        """Say whether `url` of `origin` may be fetched."""
        known = self._known.get(origin)
        if known is None or known.expires_at <= self._clock():
            failing = self._failing.get(origin)
            if failing is not None and (failing[1].exhausted or failing[1].until > self._clock()):
                return failing[1]
            return _UNKNOWN
        decision = known.rules.decide(self._user_agent, url)
        rule = "" if decision.allowed else _explained(decision)
        return Ruling(decision.allowed, rule, known.crawl_delay, known.version)

    async def recall(self, origin: str) -> bool:
        """Load what is kept for this origin; False if there is nothing fresh."""
        file = await self._load(origin)
        if file is None or file.fetched_at + self._ttl <= self._clock():
            return False
        self._remember(file)
        return True

    def learn(self, origin: str, answer: Response | FetchFailure, now: float) -> RobotsFile | None:
        """Take in the answer to a robots.txt request; returns what should be kept, or None where it is unreachable."""
        if isinstance(answer, FetchFailure) or answer.status >= 500 or answer.status in OVERLOADED:
            detail = answer.detail if isinstance(answer, FetchFailure) else f"status {answer.status}"
            self._fail(origin, detail, now, retry_after(answer, now))
            return None
        body = answer.body if 200 <= answer.status < 300 else b""
        version = xxhash.xxh3_64_intdigest(body) >> 1
        file = RobotsFile(origin, now, answer.status, body, version)
        self._remember(file)
        return file

    def _fail(self, origin: str, detail: str, now: float, asked: float) -> None:
        probes = self._failing.get(origin, (0, None))[0] + 1
        until = now + max(backoff(probes, self._settings, self._random()), asked)
        if len(self._failing) > _MAX_ORIGINS:
            # Forgetting an origin only means that it is probed again.
            self._failing.clear()
        self._failing[origin] = (probes, Unreachable(until, detail, probes >= self._settings.robots_probes))

    def _remember(self, file: RobotsFile) -> None:
        rules = robots.parse(file.body, max_bytes=self._settings.max_robots_bytes)
        self._failing.pop(file.origin, None)
        self._known[file.origin] = _Rules(
            rules,
            file.version,
            rules.crawl_delay(self._user_agent),
            file.fetched_at + self._ttl,
        )
        if len(self._known) > _MAX_ORIGINS:
            self._known.popitem(last=False)


def _explained(decision: robots.Decision) -> str:
    group = ", ".join(decision.user_agents)
    return f"Disallow: {decision.rule} (line {decision.line} of robots.txt, in the group for {group})"
