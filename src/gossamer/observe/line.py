"""A line with styles, for terminals that show them. rich, which is slow to load, is asked only then."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TextIO

#: A text, and the style it has.
Part = str | tuple[str, str]


class Line:
    """Parts of a line, each with a style of rich; text that others made must be harmless already."""

    def __init__(self, *parts: Part) -> None:
        self._parts = [part if isinstance(part, tuple) else (part, "") for part in parts]

    def append(self, text: str, style: str = "") -> None:
        """Go on with more text."""
        self._parts.append((text, style))

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self._parts)

    @property
    def width(self) -> int:
        """The columns of a terminal it takes."""
        return width_of(self.plain)

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The texts with their styles."""
        return tuple(self._parts)


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - most text needs no table of widths

    return cell_len(text)


def rendered(lines: Iterable[Line], stream: TextIO | None) -> str:
    """Return lines with their line ends: coloured if the stream is a terminal that shows colours, plain without one."""
    if stream is None or not _may_be_styled(stream):
        return "".join(f"{line.plain}\n" for line in lines)
    from rich.console import Console  # noqa: PLC0415 - for terminals alone
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for line in lines:
            # A path or a command that is folded cannot be copied.
            console.print(Text.assemble(*line.parts), soft_wrap=True)
    return captured.get()


def _may_be_styled(stream: TextIO) -> bool:
    """Whether rich might use styles there. It goes by these variables, too."""
    try:
        return stream.isatty() or bool(os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE"))
    except ValueError:
        return False
