"""The politeness audit: replays a job's fetch log and checks every request against what was promised.

Two promises are checked, by the ledger's own evidence and nothing else:

* **Robots.** A page was fetched only if the robots.txt in force at that moment allows it. The log names the version it
  went by; that version must be the stored one, unaltered, of that origin, read before the page was asked for. Where it
  was given up as unreachable, its origin must not have answered for as long as the job waits.
* **Gaps.** Two starts in one politeness group, robots.txt included, are at least the delay in force apart; two starts
  on one origin also the Crawl-delay of its robots.txt. Where the ledger also has the starts of other jobs, those of
  this job are held to their distance from them; what other jobs did is theirs to answer for.

The job's settings are those of its last run. Where `--user-agent` or `--max-crawl-delay-seconds` changed between runs,
the earlier ones are judged by the newer settings.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from gossamer.config.settings import PolitenessSettings
from gossamer.model.outcome import ROBOTS_ASSUMED, RobotsFile
from gossamer.model.url import origin_of
from gossamer.policy.robots import RobotsRules
from gossamer.policy.robots_file import given_up, read_robots, robots_version

#: Clocks count in floating point, and worker processes have one each.
TOLERANCE_SECONDS = 0.001
MAX_VIOLATIONS = 100
_MAX_TIGHTEST = 10
_MAX_RULES = 16
_MAX_ERAS = 1024

Kind = Literal["gap", "crawl_delay", "forbidden", "no_robots", "unknown_robots", "before_robots", "old_robots", "altered_robots", "assumed_robots"]  # fmt: skip


class StartLine(Protocol):
    """A request whose first byte went out."""

    @property
    def group(self) -> str: ...  # noqa: D102 - a plain value
    @property
    def started_at(self) -> float: ...  # noqa: D102
    @property
    def delay(self) -> float: ...  # noqa: D102
    @property
    def url(self) -> str: ...  # noqa: D102
    @property
    def is_page(self) -> bool: ...  # noqa: D102
    @property
    def robots(self) -> int: ...  # noqa: D102
    @property
    def is_guest(self) -> bool: ...  # noqa: D102
    @property
    def is_own(self) -> bool: ...  # noqa: D102


class VersionLine(Protocol):
    """Which robots.txt was read when."""

    @property
    def fetched_at(self) -> float: ...  # noqa: D102 - a plain value
    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def status(self) -> int: ...  # noqa: D102


class EraLine(Protocol):
    """The robots.txt in force at a moment, the one before, and when the next one was read."""

    @property
    def current(self) -> VersionLine: ...  # noqa: D102 - a plain value
    @property
    def previous(self) -> VersionLine | None: ...  # noqa: D102
    @property
    def until(self) -> float: ...  # noqa: D102


class AuditSource(Protocol):
    """What an audit is made from: one moment of a ledger."""

    def starts(self) -> Iterator[StartLine]:
        """Stream every start by group, and within a group in the order of time. Others' may have no URL."""
        ...

    def robots_era(self, origin: str, moment: float) -> EraLine | None:
        """Return which robots.txt of an origin was in force at a moment; None before the first."""
        ...

    def has_robots(self, origin: str, version: int) -> bool:
        """Say whether a version of an origin's robots.txt is stored."""
        ...

    def last_answer(self, origin: str, moment: float) -> float:
        """Return when an origin last answered for its robots.txt before a moment; 0.0 if it never did."""
        ...

    def robots_file(self, origin: str, moment: float) -> RobotsFile | None:
        """Return the robots.txt of an origin in force at a moment."""
        ...

    def doubtful_runs(self) -> int:
        """Return how many runs may have ended with requests under way."""
        ...

    def crashes(self) -> int:
        """Return how many visits ended with their worker process."""
        ...


class AuditTerms(msgspec.Struct, frozen=True):
    """What a job promised: the part of its settings that an audit holds it to."""

    user_agent: str
    #: With --no-robots only the gaps are checked.
    politeness: PolitenessSettings
    #: How long a page that was allowed may take to start: a robots.txt read meanwhile does not count yet.
    grace_seconds: float
    #: Visits that can be under way or waiting for their commit at one time.
    visits_at_once: int


class Violation(msgspec.Struct, frozen=True):
    """A request that broke a promise."""

    kind: Kind
    #: When it went out: RFC 3339, UTC.
    time: str
    group: str
    url: str
    detail: str


class Tightest(msgspec.Struct, frozen=True):
    """A politeness group and the smallest gap between two of its starts, relative to the delay then in force."""

    group: str
    starts: int
    gap_seconds: float
    delay_seconds: float
    ratio: float


class Unrecorded(msgspec.Struct, frozen=True):
    """What a crash may have kept out of the fetch log: a start is recorded with its commit, not before it.

    A run that was killed, or told to stop at once, had at most so many visits under way or waiting for their commit; each
    is one request, or a robots.txt with up to five redirects. A worker process that died took its visits with it.
    A run killed before its first commit leaves no trace here. A resume waits out a whole delay for their sake.
    """

    #: Runs that are not known to have ended with nothing under way.
    runs: int
    #: Visits that ended with their worker process.
    crashes: int
    #: Visits of either kind that may be missing, at most.
    visits_at_most: int


class Audit(msgspec.Struct, frozen=True):
    """The result. `violations` holds the first of `violation_count`; times are RFC 3339, in UTC."""

    job: str
    polite: bool
    robots_checked: bool
    user_agent: str
    requests: int
    pages: int
    robots_files: int
    groups: int
    #: Requests of other jobs to the same hosts, which the gaps of this one were also held to.
    other_requests: int
    #: Age of the oldest robots.txt that a page was fetched by.
    oldest_robots_seconds: float
    #: Pages of origins whose robots.txt had been unreachable for longer than --robots-unreachable-days.
    assumed_pages: int
    tightest: tuple[Tightest, ...]
    violation_count: int
    violations: tuple[Violation, ...]
    unrecorded: Unrecorded
    version: int = 1


class _Paces:
    """The gaps of one group after the other. Holds the last start of a group and of each of its origins."""

    def __init__(self) -> None:
        self.groups = 0
        self._last: StartLine | None = None
        self._by_origin: dict[str, float] = {}
        self._starts = 0
        self._tightest = (math.inf, 0.0, 0.0)
        #: The worst groups, as a heap with the least bad at its root.
        self._worst: list[tuple[float, str, Tightest]] = []

    def gap(self, start: StartLine) -> tuple[float, float] | None:
        """Return the gap before a start and the delay it is held to; None for the first of its group, and others'."""
        last = self._last
        self._last = start
        if last is None or last.group != start.group:
            self._end_group(last)
            self.groups += 1
            self._starts = int(start.is_own)
            return None
        if not start.is_own:
            return None
        self._starts += 1
        gap = start.started_at - last.started_at
        # What delay holds for a guest its row does not say; that of the group is the neighbour's.
        delay = min(start.delay, last.delay) if start.is_guest else start.delay
        if delay > 0 and gap / delay < self._tightest[0]:
            self._tightest = (gap / delay, gap, delay)
        return gap, delay

    def origin_gap(self, origin: str, started_at: float) -> float:
        """Return the gap since the last start on an origin; infinite for its first."""
        gap = started_at - self._by_origin.get(origin, -math.inf)
        self._by_origin[origin] = started_at
        return gap

    def _end_group(self, last: StartLine | None) -> None:
        ratio, gap, delay = self._tightest
        if last is not None and ratio < math.inf:
            line = Tightest(last.group, self._starts, round(gap, 6), delay, round(ratio, 4))
            keep = heapq.heappush if len(self._worst) < _MAX_TIGHTEST else heapq.heappushpop
            keep(self._worst, (-ratio, last.group, line))
        self._tightest = (math.inf, 0.0, 0.0)
        self._by_origin.clear()

    def finish(self) -> tuple[Tightest, ...]:
        """End the last group; return the worst, the worst of them first."""
        self._end_group(self._last)
        return tuple(line for _, _, line in sorted(self._worst, key=lambda each: -each[0]))


class Auditor:
    """Checks one job. Memory does not depend on the length of its fetch log."""

    def __init__(self, source: AuditSource, terms: AuditTerms) -> None:
        self._source = source
        self._terms = terms
        self._paces = _Paces()
        self._eras: OrderedDict[str, EraLine] = OrderedDict()
        self._rules: OrderedDict[tuple[str, float], RobotsRules | None] = OrderedDict()
        self._violations: list[Violation] = []
        self._violation_count = 0
        self._oldest = 0.0
        self._assumed = 0

    def run(self, job: str = "") -> Audit:
        """Replay the whole log."""
        requests = pages = others = 0
        for start in self._source.starts():
            requests += start.is_own
            pages += start.is_own and start.is_page
            others += not start.is_own
            self._check(start)
        return Audit(
            job=job,
            polite=not self._violation_count,
            robots_checked=self._terms.politeness.robots,
            user_agent=self._terms.user_agent,
            requests=requests,
            pages=pages,
            robots_files=requests - pages,
            tightest=self._paces.finish(),
            groups=self._paces.groups,
            other_requests=others,
            oldest_robots_seconds=round(self._oldest, 3),
            assumed_pages=self._assumed,
            violation_count=self._violation_count,
            violations=tuple(self._violations),
            unrecorded=self._unrecorded(),
        )

    def _unrecorded(self) -> Unrecorded:
        runs, crashes = self._source.doubtful_runs(), self._source.crashes()
        return Unrecorded(runs, crashes, runs * self._terms.visits_at_once + crashes)

    def _check(self, start: StartLine) -> None:
        timing = self._paces.gap(start)
        gap_is_short = timing is not None and timing[0] < timing[1] - TOLERANCE_SECONDS
        if timing is not None and gap_is_short:
            gap, delay = timing
            self._found("gap", start, f"{gap:.4f} s after the request before it; the delay was {delay:.4g} s")
        if not (self._terms.politeness.robots and start.url):
            return
        origin = origin_of(start.url)
        gap = self._paces.origin_gap(origin, start.started_at)
        if start.is_page and start.is_own:
            self._check_page(start, origin, math.inf if gap_is_short else gap)

    def _check_page(self, start: StartLine, origin: str, gap: float) -> None:
        if not start.robots:
            self._found("no_robots", start, "it was fetched without asking robots.txt")
            return
        version = self._version_of(start, origin)
        if version is None:
            return
        self._oldest = max(self._oldest, start.started_at - version.fetched_at)
        if version.status == ROBOTS_ASSUMED:
            self._check_assumed(start, origin, version)
        rules = self._rules_of(origin, version)
        if rules is None:
            self._found("altered_robots", start, "the stored robots.txt is not the one it was allowed by")
            return
        agent = self._terms.user_agent
        if not rules.allowed(agent, start.url):
            decision = rules.decide(agent, start.url)
            self._found("forbidden", start, f"Disallow: {decision.rule} (line {decision.line} of robots.txt)")
        asked = min(rules.delay(agent) or 0.0, self._terms.politeness.max_crawl_delay_seconds)
        if gap < asked - TOLERANCE_SECONDS:
            self._found(
                "crawl_delay", start, f"{gap:.4f} s after the last; robots.txt asks for {asked:.4g} s"
            )

    # -- robots.txt ------------------------------------------------------------------------------------

    def _check_assumed(self, start: StartLine, origin: str, version: VersionLine) -> None:
        """Count a page whose robots.txt was given up, and hold against it an answer that came not long before."""
        self._assumed += 1
        days = self._terms.politeness.robots_unreachable_days
        answered = self._source.last_answer(origin, version.fetched_at)
        # Without a number of days the last run gave none up: how long an earlier one waited is not known.
        if days and answered and not given_up(answered, version.fetched_at, self._terms.politeness):
            self._found(
                "assumed_robots", start, f"its robots.txt had answered less than {days:g} days before"
            )

    def _version_of(self, start: StartLine, origin: str) -> VersionLine | None:
        """Return the stored robots.txt that a page went by, if that was in force; else note a violation."""
        era = self._era(origin, start.started_at + TOLERANCE_SECONDS)
        if era is not None and era.current.version == start.robots:
            return era.current
        if (
            era is not None
            and era.previous is not None
            and era.previous.version == start.robots
            and era.current.fetched_at > start.started_at - self._terms.grace_seconds
        ):
            return era.previous
        if not self._source.has_robots(origin, start.robots):
            self._found("unknown_robots", start, "the robots.txt it was allowed by is not in the ledger")
        elif era is None:
            self._found("before_robots", start, "it was fetched before the robots.txt of its origin")
        else:
            self._found("old_robots", start, "it was allowed by a robots.txt that was not in force then")
        return None

    def _era(self, origin: str, moment: float) -> EraLine | None:
        known = self._eras.get(origin)
        if known is not None and known.current.fetched_at <= moment < known.until:
            return known
        found = self._source.robots_era(origin, moment)
        if found is not None:
            self._eras[origin] = found
            if len(self._eras) > _MAX_ERAS:
                self._eras.popitem(last=False)
        return found

    def _rules_of(self, origin: str, version: VersionLine) -> RobotsRules | None:
        """Return the rules of a stored robots.txt, or None where its text is not what its version says."""
        key = (origin, version.fetched_at)
        if key not in self._rules:
            file = self._source.robots_file(origin, version.fetched_at)
            genuine = file is not None and robots_version(file.body) == version.version
            self._rules[key] = (
                read_robots(file.body, self._terms.politeness) if file is not None and genuine else None
            )
            if len(self._rules) > _MAX_RULES:
                self._rules.popitem(last=False)
        return self._rules[key]

    def _found(self, kind: Kind, start: StartLine, detail: str) -> None:
        self._violation_count += 1
        if len(self._violations) < MAX_VIOLATIONS:
            self._violations.append(
                Violation(kind, _moment(start.started_at), start.group, start.url, detail)
            )


def encode_audit(audit: Audit) -> bytes:
    """Return an audit as indented JSON, with a line end."""
    return msgspec.json.format(msgspec.json.encode(audit), indent=2) + b"\n"


def _moment(seconds: float) -> str:
    """Return an instant as RFC 3339 in UTC, to the millisecond; a moment no calendar has is shown as it is."""
    try:
        text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(seconds)
    return text.replace("+00:00", "Z")
