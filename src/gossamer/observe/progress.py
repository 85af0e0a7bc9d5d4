"""What people see while a crawl runs. All of it goes to stderr; data never does."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Literal, Protocol, Self, TextIO

from gossamer.model.event import Snapshot
from gossamer.observe.json_progress import JsonProgress
from gossamer.observe.plain import Level, PlainProgress, SilentProgress

ProgressKind = Literal["auto", "plain", "json", "none"]


class Progress(Protocol):
    """Shows how a run is going, from `with` to the end of it.

    * `update` is cheap, may come at any rate, and shows at most what is due; the last one is the standing at
      the end. Time is the snapshots' own.
    * Nothing raises because the stream is gone or full: then nothing more is shown.
    * Text from the web cannot reach the terminal as anything but text.
    """

    #: How often it wants an update.
    interval_seconds: float

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, snapshot: Snapshot) -> None:
        """Show the run as it is now."""
        ...

    def note(self, text: str, level: Level = "info") -> None:
        """Show a message once, above what is live, if its level is shown at all."""
        ...


def make_progress(
    kind: ProgressKind,
    *,
    job: str,
    max_pages: int | None,
    quiet: bool,
    verbose: int,
    stream: TextIO | None = None,
) -> Progress:
    """Return the display a user asked for, on stderr unless a stream is given.

    `auto` is live on a terminal that can move its cursor and `plain` elsewhere. Notes of level `detail` need
    `verbose`; `none` shows warnings and errors; `quiet` shows errors alone, whatever the kind.
    """
    stream = sys.stderr if stream is None else stream
    least: Level = "error" if quiet else "warning" if kind == "none" else "detail" if verbose else "info"
    if kind == "json" and not quiet:
        return JsonProgress(stream, least=least, job=job, max_pages=max_pages)
    if quiet or kind == "none":
        return SilentProgress(stream, least=least)
    if kind == "auto" and _is_live(stream):
        # Not at the top: rich.live takes 50 ms to load, which runs without a terminal need not pay.
        from gossamer.observe.live import LiveProgress  # noqa: PLC0415

        return LiveProgress(stream, least=least, job=job, max_pages=max_pages)
    return PlainProgress(stream, least=least, job=job, max_pages=max_pages)


def _is_live(stream: TextIO) -> bool:
    """Whether a display that redraws itself works there. The variables are those rich goes by."""
    try:
        terminal = stream.isatty()
    except ValueError:
        return False
    dumb = os.environ.get("TERM", "").lower() in {"", "dumb", "unknown"}
    return (
        terminal
        and not dumb
        and "0" not in {os.environ.get("TTY_COMPATIBLE"), os.environ.get("TTY_INTERACTIVE")}
    )
