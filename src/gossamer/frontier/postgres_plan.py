"""What a batch changes about URLs, decided in memory from the rows it locked: the rules of `UrlTable`, without its I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gossamer.frontier.room import Room
from gossamer.frontier.sqlite_rows import MAX_DETAIL
from gossamer.model.outcome import SWITCHED_OFF, Crashed, Deferred, Found, Hop, Retry, Settled, State, Visit
from gossamer.model.request import Known, Request

_QUEUED = int(State.QUEUED)
_HELD = int(State.HELD)
_REFUSED = int(State.REFUSED)
_REDIRECTED = int(State.REDIRECTED)


class Row(NamedTuple):
    """What deciding about a URL needs. It is locked for as long as the decision takes to be written."""

    fp: int
    state: int
    reason: str
    depth: int
    priority: int
    attempt: int
    visit: int


class Finding(msgspec.Struct, frozen=True, gc=False):
    """A URL and the page it was found on; None for a seed."""

    found: Found
    parent: int | None


class Settling(NamedTuple):
    """A URL that leaves the queue."""

    fp: int
    state: int
    reason: str
    detail: str | None
    status: int


class Improvement(NamedTuple):
    """A URL that was found again, nearer or with a better priority."""

    fp: int
    depth: int
    priority: int
    parent: int | None
    state: int
    reason: str


class Requeuing(NamedTuple):
    """A URL that stays in the queue at another attempt, with what people are told of it."""

    known: Known
    note: str


@dataclass(slots=True)
class Plan:
    """The changes of one transaction, in the order they must be written: settled, requeued, improved, reopened, new."""

    #: Rows that are locked, as they will be when all is written.
    rows: dict[int, Row] = field(default_factory=dict)
    #: Fingerprints that have a row which is not locked: nothing about it would change.
    known: set[int] = field(default_factory=set)
    settled: list[Settling] = field(default_factory=list)
    requeued: list[Requeuing] = field(default_factory=list)
    improved: list[Improvement] = field(default_factory=list)
    reopened: list[Request] = field(default_factory=list)
    new: list[Finding] = field(default_factory=list)
    #: Improved or reopened, so that they wait now.
    waiting: list[int] = field(default_factory=list)
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)

    def learn(self, rows: Iterable[Sequence[object]]) -> None:
        """Take in what the lookup returned: a row that was locked is whole, another is its fingerprint."""
        for row in rows:
            if row[1] is None:
                self.known.add(row[0])  # type: ignore[arg-type]
            else:
                self.rows[row[0]] = Row(*row)  # type: ignore[index, arg-type]

    def settle(self, visits: Sequence[Visit], room: Room) -> tuple[list[Visit], frozenset[int]]:
        """Apply outcomes by compare-and-set on (live, attempt); returns winners, in the order of records, and losers."""
        winners: list[Visit] = []
        lost: set[int] = set()
        for visit in sorted(visits, key=lambda visit: visit.known.request.fingerprint):
            fp = visit.known.request.fingerprint
            row = self.rows.get(fp)
            if isinstance(visit.outcome, Deferred):
                continue
            if row is None or not _may_settle(row, visit) or not room.takes(visit):
                lost.add(fp)
                continue
            winners.append(visit)
            self._apply(row._replace(attempt=row.attempt + 1), visit)
        return winners, frozenset(lost)

    def _apply(self, row: Row, visit: Visit) -> None:
        match visit.outcome:
            case Settled(state, reason, detail, status):
                change = Settling(row.fp, int(state), reason, detail[:MAX_DETAIL] or None, status)
            case Crashed(poison=True):
                change = Settling(row.fp, int(State.FAILED), "poison", None, 0)
            case outcome:
                assert isinstance(outcome, Retry | Hop | Crashed)
                self.requeued.append(_requeuing(row.attempt, visit.known, outcome))
                self.rows[row.fp] = row
                return
        self.settled.append(change)
        self.rows[row.fp] = row._replace(state=change.state, reason=change.reason)
        self._move((row.state, row.reason), (change.state, change.reason))

    def queued_again(self) -> list[Known]:
        """Return what is to be tried again and not held meanwhile."""
        return [
            item.known for item in self.requeued if self.rows[item.known.request.fingerprint].state == _QUEUED
        ]

    def repeat(self, visit: Visit, detail: str) -> Settling:
        """Return how a page is settled again, that is the duplicate of another."""
        assert isinstance(visit.outcome, Settled)
        self._move((int(visit.outcome.state), visit.outcome.reason), (int(State.DUPLICATE), "duplicate"))
        fp = visit.known.request.fingerprint
        return Settling(fp, int(State.DUPLICATE), "duplicate", detail[:MAX_DETAIL], visit.outcome.status)

    def accept(self, found: Iterable[Finding]) -> None:
        """Sort findings into those that are new and those that improve or reopen what is known."""
        known, rows, new = self.known, self.rows, self.new
        for fp, item in best_of(found).items():
            if fp in rows:
                self._improve(rows[fp], item)
            elif fp not in known:
                new.append(item)

    def added(self, items: Iterable[Finding]) -> None:
        """Count what was inserted."""
        for item in items:
            refusal = item.found.refusal
            self.counts[(_REFUSED if refusal else _QUEUED, refusal)] += 1

    def _improve(self, row: Row, item: Finding) -> None:
        request = item.found.request
        if row.state == _REDIRECTED and row.visit == 1 and request.url in request.redirected_from:
            self.reopened.append(request)
            self.waiting.append(row.fp)
            self._move((row.state, row.reason), (_QUEUED, ""))
            return
        if not (request.depth < row.depth or request.priority < row.priority):
            return
        reopened = row.state == _REFUSED and row.reason == "depth" and not item.found.refusal
        state, reason = (_QUEUED, "") if reopened else (row.state, row.reason)
        depth, priority = min(row.depth, request.depth), min(row.priority, request.priority)
        self.improved.append(Improvement(row.fp, depth, priority, item.parent, state, reason))
        if reopened:
            self.waiting.append(row.fp)
            self._move((row.state, row.reason), (state, reason))

    def _move(self, before: tuple[int, str], after: tuple[int, str]) -> None:
        self.counts[before] -= 1
        self.counts[after] += 1


def _may_settle(row: Row, visit: Visit) -> bool:
    """Say whether a visit counts: its URL is live at its attempt, or was until its host was switched off."""
    if row.attempt != visit.known.attempt:
        return False
    if row.state == _HELD and row.reason == SWITCHED_OFF:
        # A hop would take it to another host, where nobody would look for what was switched off.
        return not isinstance(visit.outcome, Hop)
    return row.state == _QUEUED


def best_of(found: Iterable[Finding]) -> dict[int, Finding]:
    """Return the best finding of each URL, in the order they were first found."""
    best: dict[int, Finding] = {}
    for item in found:
        fp = item.found.request.fingerprint
        rival = best.get(fp)
        if rival is None or _rank(item.found) < _rank(rival.found):
            best[fp] = item
    return best


def _requeuing(attempt: int, known: Known, outcome: Retry | Hop | Crashed) -> Requeuing:
    replace = msgspec.structs.replace
    match outcome:
        case Retry(reason, not_before, detail):
            again = replace(known, attempt=attempt, tries=known.tries + 1, not_before=not_before)
            note = f"will be tried again after {reason}" + (f": {detail}" if detail else "")
        case Hop(request):
            again = replace(known, attempt=attempt, tries=0, not_before=0.0, request=request)
            note = f"goes on at {request.metadata.get('robots_at') or request.target}"
        case Crashed(alone):
            again = replace(known, attempt=attempt, crashes=max(known.crashes, 1) + alone)
            note = "its worker died"
    return Requeuing(again, note[:MAX_DETAIL])


def _rank(found: Found) -> tuple[bool, int, int]:
    """Order findings of one URL: queued before refused, then nearer to the seeds, then by priority."""
    return bool(found.refusal), found.request.depth, found.request.priority
