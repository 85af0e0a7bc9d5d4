"""What reaches the terminal: lines and tables, with everything from the web made harmless first."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer.errors import OutputFailed
from gossamer.observe.line import width_of
from gossamer.observe.wording import spelled_out

if TYPE_CHECKING:
    from rich.table import Table as RichTable

TAB = "\t"


def escape(text: str) -> str:
    r"""Return text with control, format and other invisible characters spelled out, as in `\x1b`."""
    return spelled_out(text)


def escape_json(line: str) -> str:
    """Return a line of JSON with invisible characters spelled as JSON does: the same value, safe to show."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else _json_escape(c) for c in line)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout as they come, each as one line whatever is in it; tabs separate fields.

    A reader that went away, as `head` does, ends it quietly.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for line in lines:
            sys.stdout.write(f"{spelled_out(line, keep=TAB)}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would raise once more when Python exits.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def say(line: str) -> None:
    """Write a message to stderr, as one line whatever is in it."""
    say_rendered(spelled_out(line))


def say_over(text: str) -> None:
    """Replace what stands on the last line of the terminal; with nothing, clear it."""
    say_rendered(f"\r\x1b[K{spelled_out(text)}", end="")


def say_rendered(text: str, *, end: str = "\n") -> None:
    """Write to stderr what is laid out already, with colours and line ends of our own and nothing of others.

    Where nobody can hear it, on a full disk or in a pipe without a reader, it is lost: the work, or its exit code, is not.
    """
    with suppress(OSError):
        print(text, end=end, file=sys.stderr, flush=True)


def write_page(text: str, *, is_json: bool) -> None:
    """Write data from the web to stdout: byte for byte to a file or a pipe, spelled out on a terminal.

    On a terminal lines end at line feeds only, and JSON stays the same JSON. Raises `OutputFailed`.
    """
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    if sys.stdout.isatty():
        lines = text.removesuffix("\n").split("\n")
        write_lines(
            escape_json(line) if is_json else escape(line.removesuffix("\r").expandtabs()) for line in lines
        )
        return
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + (b"" if text.endswith("\n") else b"\n"))
    sys.stdout.buffer.flush()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings. Columns named in `right` hold numbers and are aligned to the right."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()

    def show(self) -> None:
        """Write the table to stdout: folded to the width of a terminal, else as plain aligned text."""
        if sys.stdout.isatty():
            from rich.console import Console  # noqa: PLC0415 - slow to load, and for terminals alone

            Console(file=sys.stdout, highlight=False).print(self._rich())
        else:
            write_lines(self.lines())

    def lines(self) -> Iterable[str]:
        """Yield the table as aligned text, two spaces between columns."""
        cells = [self.columns, *[[escape(cell) for cell in row] for row in self.rows]]
        widths = [max(width_of(row[i]) for row in cells) for i in range(len(self.columns))]
        for row in cells:
            yield "  ".join(self._padded(i, row[i], widths[i]) for i in range(len(widths))).rstrip()

    def _padded(self, column: int, cell: str, width: int) -> str:
        space = " " * (width - width_of(cell))
        return space + cell if self.columns[column] in self.right else cell + space

    def _rich(self) -> RichTable:
        from rich.table import Table as RichTable  # noqa: PLC0415 - slow to load, and for terminals alone
        from rich.text import Text  # noqa: PLC0415

        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for column in self.columns:
            table.add_column(column, justify="right" if column in self.right else "left", overflow="fold")
        for row in self.rows:
            # Text, not str: rich would read "[b]" in a URL as markup.
            table.add_row(*[Text(escape(cell)) for cell in row])
        return table
