"""The robots.txt of each origin: fetched once, remembered for a day, obeyed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from gossamer.config.settings import PolitenessSettings
from gossamer.contracts import Clock, Lesson, Ruling, Unknown, Unreachable
from gossamer.model.outcome import ROBOTS_ASSUMED, ROBOTS_UNREACHABLE, RobotsFile, StoredRobots
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy import robots
from gossamer.policy.politeness import OVERLOADED, backoff, retry_after
from gossamer.policy.robots_file import (
    given_up,
    given_up_note,
    pace_notes,
    read_robots,
    robots_ttl,
    robots_version,
)

_UNKNOWN = Unknown()
_MAX_ORIGINS = 20_000
_MAX_OVERDUE = 256
_NOTHING = b""


@dataclass(frozen=True, slots=True)
class _Rules:
    rules: robots.RobotsRules
    version: int
    delay: float | None
    expires_at: float


class OriginRobots:
    """Implements `RobotsCache`. `load` asks whoever keeps robots.txt files across restarts.

    RFC 9309: 2xx gives rules; 4xx means there are none and all is allowed; 5xx and network failures mean
    that nothing may be fetched until it answers. So does 429: who is too busy for this is too busy for pages.
    Redirects are followed by the caller, up to five.
    """

    def __init__(
        self,
        settings: PolitenessSettings,
        user_agent: str,
        clock: Clock,
        load: Callable[[str], Awaitable[StoredRobots]],
        random: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._user_agent = user_agent
        self._clock = clock
        self._load = load
        self._random = random
        self._ttl = robots_ttl(settings)
        self._known: OrderedDict[str, _Rules] = OrderedDict()
        self._failing: dict[str, tuple[int, Unreachable]] = {}
        #: Origins to be given up if they do not answer this time, with what is then assumed. Emptied by `learn`.
        self._overdue: dict[str, StoredRobots] = {}

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
        return Ruling(decision.allowed, rule, known.delay, known.version)

    async def recall(self, origin: str) -> bool:
        """Load what is kept for this origin; False if there is nothing fresh."""
        stored = await self._load(origin)
        file, now = stored.file, self._clock()
        if file is not None and file.fetched_at + self._ttl > now:
            self._remember(file)
            return True
        if given_up(stored.unreachable_since, now, self._settings):
            if len(self._overdue) >= _MAX_OVERDUE:
                # Forgetting one only means that it is given up a probe later.
                self._overdue.clear()
            self._overdue[origin] = stored
        return False

    def learn(self, origin: str, answer: Response | FetchFailure, now: float) -> Lesson:
        """Take in the answer to a robots.txt request."""
        overdue = self._overdue.pop(origin, None)
        if isinstance(answer, FetchFailure) or answer.status >= 500 or answer.status in OVERLOADED:
            if overdue is not None and not _is_our_refusal(answer):
                return self._assume(origin, overdue, now)
            detail = answer.detail if isinstance(answer, FetchFailure) else f"status {answer.status}"
            self._fail(origin, detail, now, retry_after(answer, now))
            return Lesson(RobotsFile(origin, now, ROBOTS_UNREACHABLE, _NOTHING, 0))
        body = answer.body if 200 <= answer.status < 300 else _NOTHING
        file = RobotsFile(origin, now, answer.status, body, robots_version(body))
        rules = self._remember(file)
        return Lesson(
            self._paced(file, rules), pace_notes(origin, rules.pace(self._user_agent), self._settings)
        )

    def _assume(self, origin: str, overdue: StoredRobots, now: float) -> Lesson:
        body = overdue.file.body if overdue.file is not None else _NOTHING
        file = RobotsFile(origin, now, ROBOTS_ASSUMED, body, robots_version(body))
        rules = self._remember(file)
        note = given_up_note(origin, body, overdue.unreachable_since, now)
        return Lesson(self._paced(file, rules), (note,))

    def _paced(self, file: RobotsFile, rules: robots.RobotsRules) -> RobotsFile:
        return msgspec.structs.replace(file, crawl_delay=rules.delay(self._user_agent) or 0.0)

    def _fail(self, origin: str, detail: str, now: float, asked: float) -> None:
        probes = self._failing.get(origin, (0, None))[0] + 1
        until = now + max(backoff(probes, self._settings, self._random()), asked)
        if len(self._failing) > _MAX_ORIGINS:
            # Forgetting an origin only means that it is probed again.
            self._failing.clear()
        self._failing[origin] = (probes, Unreachable(until, detail, probes >= self._settings.robots_probes))

    def _remember(self, file: RobotsFile) -> robots.RobotsRules:
        rules = read_robots(file.body, self._settings)
        self._failing.pop(file.origin, None)
        self._known[file.origin] = _Rules(
            rules, file.version, rules.delay(self._user_agent), file.fetched_at + self._ttl
        )
        if len(self._known) > _MAX_ORIGINS:
            self._known.popitem(last=False)
        return rules


def _is_our_refusal(answer: Response | FetchFailure) -> bool:
    """Whether the origin was never asked: that says nothing about its robots.txt."""
    return isinstance(answer, FetchFailure) and answer.problem is FetchProblem.PRIVATE_ADDRESS


def _explained(decision: robots.Decision) -> str:
    group = ", ".join(decision.user_agents)
    return f"Disallow: {decision.rule} (line {decision.line} of robots.txt, in the group for {group})"
