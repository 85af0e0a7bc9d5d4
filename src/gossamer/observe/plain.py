"""Progress as lines of text, for logs and pipes; and the quiet one, which shows none.

Nothing here ever raises because of the stream: a reader that went away or a full disk behind `2>` ends what
is shown, never the run.
"""

from __future__ import annotations

from types import TracebackType
from typing import Literal, Self, TextIO

from gossamer.model.event import Snapshot
from gossamer.observe.pace import Pace, PaceMeter
from gossamer.observe.wording import bytes_text, counted, duration_text, harmless, number_text, rate_text

#: How much a note matters: `detail` is for `-v`, `error` is shown even with `-q`.
Level = Literal["detail", "info", "warning", "error"]

LEVELS: dict[Level, int] = {"detail": 0, "info": 1, "warning": 2, "error": 3}

#: How much earlier than its time a line may come, so that a watcher's jitter does not skip every other one.
SLACK_SECONDS = 0.1


class LineStream:
    """A text stream that takes whole lines, and falls silent for good at its first failure."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def write(self, line: str) -> None:
        """Write a line and flush it."""
        if self._stream is None:
            return
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # Gone, full, closed, or of an encoding that cannot say it.
            self._stream = None


class SilentProgress:
    """Shows no progress; notes from `least` upwards are lines of text. The others build on it."""

    interval_seconds: float = 10.0

    def __init__(self, stream: TextIO, *, least: Level) -> None:
        self._lines = LineStream(stream)
        self._least = LEVELS[least]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to do."""

    def update(self, snapshot: Snapshot) -> None:
        """Show nothing."""

    def note(self, text: str, level: Level = "info") -> None:
        """Show a message once, if it matters enough."""
        if LEVELS[level] >= self._least:
            self._lines.write(note_text(text, level))


class PlainProgress(SilentProgress):
    """A line at the start, one each `every_seconds`, and one at the end."""

    interval_seconds: float = 1.0

    def __init__(
        self, stream: TextIO, *, least: Level, job: str, max_pages: int | None, every_seconds: float = 10.0
    ) -> None:
        super().__init__(stream, least=least)
        self._job = harmless(job)
        self._max_pages = max_pages
        self._meter = PaceMeter(max_pages)
        self._every = every_seconds
        self._next = every_seconds
        self._last: tuple[Snapshot, Pace] | None = None

    def __enter__(self) -> Self:
        limit = "" if self._max_pages is None else f", at most {counted(self._max_pages, 'page')}"
        self._lines.write(f"{self._job}: started{limit}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write where the run stands at its end."""
        after = f" after {standing_text(*self._last)}" if self._last else ""
        self._lines.write(f"{self._job}: ended{after}")

    def update(self, snapshot: Snapshot) -> None:
        """Take the snapshot into account; write a line if it is time for one."""
        pace = self._meter.take(snapshot)
        self._last = snapshot, pace
        if snapshot.elapsed + SLACK_SECONDS >= self._next:
            self._next = snapshot.elapsed + self._every
            parts = [standing_text(snapshot, pace), waiting_text(snapshot), eta_text(pace)]
            self._lines.write(f"{self._job}: {'; '.join(filter(None, parts))}")


def note_text(text: str, level: Level) -> str:
    """Return a note as one harmless line; what is more than information says so."""
    mark = f"{level}: " if LEVELS[level] > LEVELS["info"] else ""
    return mark + harmless(text)


def standing_text(snapshot: Snapshot, pace: Pace) -> str:
    """Return where a run stands, in one line."""
    return (
        f"{duration_text(pace.elapsed)}: {number_text(pace.done)} done, {number_text(pace.queued)} queued,"
        f" {number_text(pace.failed)} failed, {rate_text(pace.pages_per_second)} pages/s,"
        f" {bytes_text(pace.bytes_per_second)}/s, {snapshot.in_flight} in flight"
    )


def waiting_text(snapshot: Snapshot) -> str:
    """Return why nothing more is fetched right now, and until when; empty while it is."""
    if snapshot.ending:
        return harmless(snapshot.ending, 200)
    if snapshot.in_flight and not snapshot.waiting:
        return ""
    words = [harmless(snapshot.waiting, 200)] if snapshot.waiting else []
    if snapshot.next_due is not None:
        soon = f"{snapshot.next_due:.1f} s" if snapshot.next_due < 10 else duration_text(snapshot.next_due)
        words.append(f"next host due in {soon}")
    return ", ".join(words)


def eta_text(pace: Pace) -> str:
    """Return how long it will take, or why that is not known; empty once the run comes to its end."""
    if pace.eta is not None:
        return f"ETA {duration_text(pace.eta)}"
    return f"ETA {pace.eta_unknown}" if pace.eta_unknown else ""
