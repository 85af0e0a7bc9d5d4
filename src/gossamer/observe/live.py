"""Progress on a terminal: a few lines that redraw themselves, and vanish when the run ends.

The display is laid out here line by line and no line is padded: so a redraw costs less than a millisecond,
and it is known which lines a narrower window has wrapped.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from gossamer.model.event import HostSpeed, Snapshot
from gossamer.observe.pace import Pace, PaceMeter
from gossamer.observe.plain import LEVELS, Level, eta_text, note_text, waiting_text
from gossamer.observe.wording import counted, duration_text, harmless, number_text, rate_text

_MAX_LINES = 12
#: A wider terminal gains nothing, and shrinking it to 80 columns then wraps no line.
_MAX_WIDTH = 79
_DRAW_SECONDS = 0.2
_LABEL = 9
_CELL = _LABEL + 1 + 8
_GAP = 2
#: Of a host's figures: `     2.31 s       120 requests`.
_SPEED_WIDTH = 30
#: The lit part of a bar without a measure, and how many of its cells it moves in a second.
_PULSE = 12
_PULSE_SPEED = 16

_NOTE_STYLES: dict[Level, str] = {"detail": "dim", "info": "", "warning": "yellow", "error": "bold red"}


class _Screen(Console):
    """A console that outlives its terminal: rich's own would redirect stdout and exit."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class LiveProgress:
    """The live display, at most twelve lines high. Colours obey NO_COLOR; figures keep their places."""

    interval_seconds: float = 0.25

    def __init__(self, stream: TextIO, *, least: Level, job: str, max_pages: int | None) -> None:
        self._least = LEVELS[least]
        self._job = job
        self._max_pages = max_pages
        self._meter = PaceMeter(max_pages)
        self._screen = _Screen(
            file=stream,
            force_terminal=True,
            force_interactive=True,
            force_jupyter=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live = Live(
            console=self._screen,
            auto_refresh=False,
            transient=True,
            # Data may go to stdout; it must not pass through here.
            redirect_stdout=False,
            redirect_stderr=stream is sys.stderr,
            vertical_overflow="crop",
        )
        self._broken = False
        self._drawn = -_DRAW_SECONDS
        self._lines: list[Text] = []
        self._width = self._screen.width

    def __enter__(self) -> Self:
        try:
            self._live.start()
        except (OSError, ValueError):
            self._broken = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the display off the screen and give the cursor back."""
        with suppress(OSError, ValueError):
            self._unwrap()
            self._live.stop()

    def update(self, snapshot: Snapshot) -> None:
        """Redraw, at most five times a second."""
        pace = self._meter.take(snapshot)
        if self._broken or snapshot.elapsed - self._drawn < _DRAW_SECONDS:
            return
        self._drawn = snapshot.elapsed
        size = self._screen.size
        try:
            self._unwrap()
            lines = self._layout(snapshot, pace, min(size.width - 1, _MAX_WIDTH))
            roomy = size.height > 2 * _MAX_LINES - 4
            self._lines = ([Text()] * roomy + lines)[: max(min(size.height - 1, _MAX_LINES), 1)]
            self._live.update(Text("\n").join(self._lines), refresh=True)
        except (OSError, ValueError):
            # The terminal is gone. The run is not.
            self._broken = True

    def note(self, text: str, level: Level = "info") -> None:
        """Print a message above the display, if it matters enough."""
        if self._broken or LEVELS[level] < self._least:
            return
        try:
            self._unwrap()
            self._screen.print(Text(note_text(text, level), style=_NOTE_STYLES[level]), soft_wrap=True)
        except (OSError, ValueError):
            self._broken = True

    def _unwrap(self) -> None:
        """Take back the lines that a narrower window has wrapped: rich does not know of them."""
        width, self._width = self._width, self._screen.width
        if self._width >= width:
            return
        extra = sum((max(line.cell_len, 1) - 1) // self._width for line in self._lines)
        up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        self._screen.control(Control(*up * extra))

    # -- what it says ------------------------------------------------------------------------------

    def _layout(self, snapshot: Snapshot, pace: Pace, width: int) -> list[Text]:
        lines = [
            _both_ends(Text(harmless(self._job, 200), style="bold"), duration_text(pace.elapsed), width),
            self._bar(pace, width),
            *_figures(snapshot, pace, width),
            _labelled("now", _now(snapshot)),
            *_slowest(snapshot.slowest, width),
        ]
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
        return lines

    def _bar(self, pace: Pace, width: int) -> Text:
        pages = (
            f"{number_text(pace.pages)} of {number_text(self._max_pages)} pages" if self._max_pages else ""
        )
        share = "" if pace.share is None else f"{pace.share:.0%}"
        words = "  ".join(filter(None, (pages, share, eta_text(pace))))
        room = width - cell_len(words) - 2 * bool(words)
        if room < 8:
            return Text(words)
        full, empty = ("#", "-") if self._screen.options.ascii_only else ("━", "─")
        start, length = _lit(pace, room)
        bar = Text(empty * start, style="dim")
        bar.append(full * length, style="not dim green")
        bar.append(empty * (room - start - length))
        return Text.assemble(bar, "  " * bool(words), words)


def _lit(pace: Pace, room: int) -> tuple[int, int]:
    """Return where the lit part of a bar begins and how long it is: what is done, or a pulse to and fro."""
    if pace.share is not None:
        return 0, round(pace.share * room)
    length = min(_PULSE, room // 2)
    way = room - length
    step = int(pace.elapsed * _PULSE_SPEED) % (2 * way)
    return (step if step <= way else 2 * way - step), length


def _figures(snapshot: Snapshot, pace: Pace, width: int) -> list[Text]:
    cells = [
        ("done", number_text(pace.done), "green"),
        ("queued", number_text(pace.queued), ""),
        ("failed", number_text(pace.failed), "red" if pace.failed else ""),
        ("in flight", number_text(snapshot.in_flight), ""),
        ("pages/s", rate_text(pace.pages_per_second), "cyan"),
        ("MB/s", rate_text(pace.bytes_per_second / 1e6), "cyan"),
        ("refused", number_text(pace.refused), "yellow" if pace.refused else ""),
        ("held", number_text(pace.held), "yellow" if pace.held else ""),
    ]
    in_row = max((width + _GAP) // (_CELL + _GAP), 1)
    return [_row(cells[i : i + in_row]) for i in range(0, len(cells), in_row)]


def _row(cells: list[tuple[str, str, str]]) -> Text:
    row = Text()
    for i, (label, number, style) in enumerate(cells):
        row.append(" " * _GAP if i else "")
        row.append(label.ljust(_LABEL + 1), style="dim")
        row.append(number.rjust(_CELL - _LABEL - 1), style=f"bold {style}")
    return row


def _now(snapshot: Snapshot) -> str:
    if words := waiting_text(snapshot):
        return words
    doing = "reading seeds, fetching" if snapshot.seeding else "fetching"
    return f"{doing} from {counted(snapshot.hosts, 'host')}"


def _slowest(hosts: tuple[HostSpeed, ...], width: int) -> list[Text]:
    lines = []
    for i, speed in enumerate(hosts[:3]):
        figures = f"{speed.mean_seconds:9.2f} s {speed.fetches:9,} request{'' if speed.fetches == 1 else 's'}"
        room = min(width - _LABEL - 2 - _SPEED_WIDTH, 40)
        if room >= 8:
            name = _tail(harmless(speed.host, 300), room)
            lines.append(
                _labelled("" if i else "slowest", name + " " * (room + 1 - cell_len(name)) + figures)
            )
    return lines


def _tail(text: str, cells: int) -> str:
    """Return the end of a host name, which tells more than its beginning, within so many cells."""
    if cell_len(text) <= cells:
        return text
    text = text[-cells:]
    while cell_len(text) >= cells:
        text = text[1:]
    return "…" + text


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((label.ljust(_LABEL + 1), "dim"), text)


def _both_ends(left: Text, right: str, width: int) -> Text:
    room = width - cell_len(right) - 2
    left.truncate(max(room, 1), overflow="ellipsis")
    left.append(" " * (width - left.cell_len - cell_len(right)))
    left.append(right, style="not bold")
    return left
