"""How fast a run goes, and when it will be through: figures drawn from one snapshot after another.

Pure arithmetic. Time is the `elapsed` of the snapshots, so whoever makes them owns the clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gossamer.model.event import Snapshot

#: Rates are taken over this many seconds …
_SMOOTH_SECONDS = 5.0
#: … or over this many where that holds fewer pages than `_ENOUGH_PAGES`: a polite crawl of one slow host.
_LONG_SECONDS = 30.0
_ENOUGH_PAGES = 5
#: Snapshots closer together than this add nothing; it also bounds the samples kept.
_SAMPLE_SECONDS = 0.2
#: The frontier counts as no longer growing when its peak lies this far back.
_CALM_SECONDS = 5.0
#: A queue that shrinks slower than this share of what is settled is level: links refill it.
_LEAST_DRAIN = 0.1

_DONE = ("fetched", "redirected", "unchanged", "duplicate")
_SETTLED = (*_DONE, "refused", "failed")


@dataclass(frozen=True, slots=True)
class Pace:
    """A run in figures. Counts are the job's; rates are this run's, smoothed."""

    elapsed: float = 0.0
    #: URLs with a final state that is neither refused nor failed.
    done: int = 0
    queued: int = 0
    failed: int = 0
    refused: int = 0
    held: int = 0
    pages: int = 0
    pages_per_second: float = 0.0
    bytes_per_second: float = 0.0
    #: Seconds until the run is through; None while that cannot be known.
    eta: float | None = None
    #: Why `eta` is None, in words; empty where it no longer matters, because the run comes to its end.
    eta_unknown: str = ""
    #: Between 0 and 1; None while there is nothing to measure it by.
    share: float | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    elapsed: float
    pages: int
    wire_bytes: int
    settled: int
    queued: int


class PaceMeter:
    """Turns snapshots into `Pace`. Keeps at most half a minute of samples."""

    def __init__(self, max_pages: int | None) -> None:
        self._max_pages = max_pages
        self._samples: deque[_Sample] = deque()

    def take(self, snapshot: Snapshot) -> Pace:
        """Return the pace at this snapshot, given those before it."""
        now = _Sample(
            snapshot.elapsed,
            snapshot.run_pages,
            snapshot.wire_bytes,
            sum(snapshot.count(state) for state in _SETTLED),
            snapshot.count("queued"),
        )
        since = self._smoothing(now)
        pages_per_second = _per_second(now.pages - since.pages, now, since)
        eta, unknown = self._eta(snapshot, now, pages_per_second)
        self._keep(now)
        return Pace(
            elapsed=snapshot.elapsed,
            done=sum(snapshot.count(state) for state in _DONE),
            queued=now.queued,
            failed=snapshot.count("failed"),
            refused=snapshot.count("refused"),
            held=snapshot.count("held"),
            pages=snapshot.pages,
            pages_per_second=pages_per_second,
            bytes_per_second=_per_second(now.wire_bytes - since.wire_bytes, now, since),
            eta=eta,
            eta_unknown=unknown,
            share=self._share(snapshot, now, eta),
        )

    def _keep(self, now: _Sample) -> None:
        if not self._samples or now.elapsed - self._samples[-1].elapsed >= _SAMPLE_SECONDS:
            self._samples.append(now)
        while now.elapsed - self._samples[0].elapsed > _LONG_SECONDS:
            self._samples.popleft()

    def _smoothing(self, now: _Sample) -> _Sample:
        """Return the sample that rates are counted from."""
        recent = (s for s in self._samples if now.elapsed - s.elapsed <= _SMOOTH_SECONDS)
        since = next(recent, now)
        if now.pages - since.pages < _ENOUGH_PAGES and self._samples:
            return self._samples[0]
        return since

    def _eta(self, snapshot: Snapshot, now: _Sample, rate: float) -> tuple[float | None, str]:
        if snapshot.ending:
            return None, ""
        missing = self._missing(snapshot)
        if missing is not None and rate > 0 and now.queued >= missing:
            # The limit comes before the end of the frontier, so it does not matter that it grows.
            return missing / rate, ""
        if snapshot.seeding:
            return None, "unknown while seeds are read"
        if not now.queued:
            return 0.0, ""
        drain = self._drain(now)
        if drain is None:
            return None, f"unknown while {'nothing moves' if self._stalled(now) else 'the frontier grows'}"
        return now.queued / drain, ""

    def _missing(self, snapshot: Snapshot) -> int | None:
        return None if self._max_pages is None else max(self._max_pages - snapshot.pages, 0)

    def _drain(self, now: _Sample) -> float | None:
        """Return by how many URLs a second the queue has shrunk since its peak; None while it does not."""
        if not self._samples:
            return None
        peak = max(self._samples, key=lambda sample: (sample.queued, sample.elapsed))
        calm = now.elapsed - peak.elapsed
        if calm < _CALM_SECONDS or now.queued >= peak.queued:
            return None
        drain = (peak.queued - now.queued) / calm
        return drain if drain >= _LEAST_DRAIN * (now.settled - peak.settled) / calm else None

    def _stalled(self, now: _Sample) -> bool:
        oldest = self._samples[0] if self._samples else now
        still = (now.settled, now.queued) == (oldest.settled, oldest.queued)
        return still and now.elapsed - oldest.elapsed >= _CALM_SECONDS

    def _share(self, snapshot: Snapshot, now: _Sample, eta: float | None) -> float | None:
        if self._max_pages:
            return min(snapshot.pages / self._max_pages, 1.0)
        if eta is None or not now.settled + now.queued:
            return None
        return now.settled / (now.settled + now.queued)


def _per_second(amount: int, now: _Sample, since: _Sample) -> float:
    seconds = now.elapsed - since.elapsed
    return max(amount, 0) / seconds if seconds > 0 else 0.0
