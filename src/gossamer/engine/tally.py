"""What happened in this run, counted as it is committed."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gossamer.model.outcome import Committed, Retry, Settled, State, Visit

_MAX_HOSTS = 1000


@dataclass(slots=True)
class HostTally:
    """Timings of one host in this run."""

    fetches: int = 0
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        """Mean seconds of a fetch."""
        return self.seconds / self.fetches if self.fetches else 0.0


@dataclass(slots=True)
class Tally:
    """Counters of a run. Only ever grows; readers take differences."""

    outcomes: Counter[tuple[State, str]] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    fetches: int = 0
    wire_bytes: int = 0
    added: int = 0
    commits: int = 0
    lost: int = 0
    crashes: int = 0
    #: Bounded: the hosts met last.
    hosts: OrderedDict[str, HostTally] = field(default_factory=OrderedDict)
    problems: Counter[str] = field(default_factory=Counter)

    def take(self, visits: Iterable[Visit], committed: Committed) -> None:
        """Count a committed batch."""
        self.commits += 1
        self.added += committed.added
        lost, duplicates = committed.lost, committed.duplicates
        for visit in visits:
            for fetch in visit.fetches:
                self.fetches += 1
                self.wire_bytes += fetch.wire_bytes
                self._time(fetch.group, fetch.elapsed)
            if visit.known.request.fingerprint in lost:
                self.lost += 1
                continue
            match visit.outcome:
                case Settled() if visit.known.request.fingerprint in duplicates:
                    self.outcomes[State.DUPLICATE, "duplicate"] += 1
                case Settled(state, reason):
                    self.outcomes[state, reason] += 1
                    self.pages += bool(visit.record)
                case Retry(reason):
                    self.retries[reason] += 1

    def _time(self, host: str, seconds: float) -> None:
        entry = self.hosts.get(host)
        if entry is None:
            if len(self.hosts) >= _MAX_HOSTS:
                self.hosts.popitem(last=False)
            entry = self.hosts[host] = HostTally()
        entry.fetches += 1
        entry.seconds += seconds
