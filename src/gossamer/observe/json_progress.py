"""Progress for programs: one JSON object a line."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

import msgspec

from gossamer.model.event import HostSpeed, Snapshot
from gossamer.observe.json_line import json_line
from gossamer.observe.pace import Pace, PaceMeter
from gossamer.observe.plain import LEVELS, SLACK_SECONDS, Level, SilentProgress

_EVERY_SECONDS = 1.0


class ProgressLine(msgspec.Struct, frozen=True):
    """The fields of a `progress` or `end` object. More may be added; these keep their meaning."""

    #: `progress`, about each second; `end`, once, last.
    event: str
    job: str
    #: Seconds since this run began.
    elapsed_seconds: float
    #: Seeds are still being read.
    seeding: bool
    #: URLs of the job by state; `done` has a final state that is neither refused nor failed.
    done: int
    queued: int
    failed: int
    refused: int
    held: int
    #: Page records of the job, the limit (null for none), and those of this run.
    pages: int
    max_pages: int | None
    run_pages: int
    #: Requests, further attempts and bytes received in this run.
    fetches: int
    retries: int
    wire_bytes: int
    #: Smoothed over 5 s.
    pages_per_second: float
    bytes_per_second: float
    in_flight: int
    #: Hosts on the schedule.
    hosts: int
    #: Why nothing more is fetched right now; empty while it is.
    waiting: str
    #: Seconds until the next host is due; null where nothing waits for a moment in time.
    next_due_seconds: float | None
    #: Seconds until the run is through; null while that cannot be known.
    eta_seconds: float | None
    #: How much of the work is done, 0 to 1; null while that cannot be known.
    share: float | None
    #: Set while the run comes to its end.
    ending: str
    #: The slowest hosts: `host`, `fetches`, `mean_seconds`.
    slowest: tuple[HostSpeed, ...]


class JsonProgress(SilentProgress):
    """Writes `ProgressLine` objects, and `{"event":"note","job":…,"level":…,"text":…}` for messages.

    All ASCII. A run that ended before its first snapshot has an `end` with nothing but `event` and `job`.
    """

    interval_seconds: float = _EVERY_SECONDS

    def __init__(self, stream: TextIO, *, least: Level, job: str, max_pages: int | None) -> None:
        super().__init__(stream, least=least)
        self._job = job
        self._max_pages = max_pages
        self._meter = PaceMeter(max_pages)
        self._next = 0.0
        self._last: tuple[Snapshot, Pace] | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the last object."""
        if self._last is None:
            self._lines.write(json_line({"event": "end", "job": self._job}))
        else:
            self._write("end", *self._last)

    def update(self, snapshot: Snapshot) -> None:
        """Take the snapshot into account; write an object if it is time for one."""
        pace = self._meter.take(snapshot)
        self._last = snapshot, pace
        if snapshot.elapsed + SLACK_SECONDS >= self._next:
            self._next = snapshot.elapsed + _EVERY_SECONDS
            self._write("progress", snapshot, pace)

    def note(self, text: str, level: Level = "info") -> None:
        """Write the message as an object, if it matters enough."""
        if LEVELS[level] >= self._least:
            self._lines.write(json_line({"event": "note", "job": self._job, "level": level, "text": text}))

    def _write(self, event: str, snapshot: Snapshot, pace: Pace) -> None:
        line = ProgressLine(
            event=event,
            job=self._job,
            elapsed_seconds=round(pace.elapsed, 3),
            seeding=snapshot.seeding,
            done=pace.done,
            queued=pace.queued,
            failed=pace.failed,
            refused=pace.refused,
            held=pace.held,
            pages=pace.pages,
            max_pages=self._max_pages,
            run_pages=snapshot.run_pages,
            fetches=snapshot.fetches,
            retries=snapshot.retries,
            wire_bytes=snapshot.wire_bytes,
            pages_per_second=round(pace.pages_per_second, 2),
            bytes_per_second=round(pace.bytes_per_second),
            in_flight=snapshot.in_flight,
            hosts=snapshot.hosts,
            waiting=snapshot.waiting,
            next_due_seconds=_rounded(snapshot.next_due),
            eta_seconds=_rounded(pace.eta),
            share=_rounded(pace.share),
            ending=snapshot.ending,
            slowest=snapshot.slowest,
        )
        self._lines.write(json_line(msgspec.to_builtins(line)))


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)
