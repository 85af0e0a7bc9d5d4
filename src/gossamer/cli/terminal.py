"""What reaches the terminal: lines and tables, with everything from the web made harmless first."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text


def escape(text: str) -> str:
    r"""Return text with control, format and other invisible characters spelled out, as in `\x1b`.

    So a URL or a server's message can neither move the cursor nor turn the reading direction.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escape_json(line: str) -> str:
    """Return a line of JSON with invisible characters spelled as JSON does: the same value, safe to show."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else _json_escape(c) for c in line)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout as they come. A reader that went away, as `head` does, ends it quietly."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would raise once more when Python exits.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings. Columns named in `right` hold numbers and are aligned to the right."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()

    def show(self) -> None:
        """Write the table to stdout: folded to the width of a terminal, else as plain aligned text."""
        if sys.stdout.isatty():
            Console(file=sys.stdout, highlight=False).print(self._rich())
        else:
            write_lines(self.lines())

    def lines(self) -> Iterable[str]:
        """Yield the table as aligned text, two spaces between columns."""
        cells = [self.columns, *[[escape(cell) for cell in row] for row in self.rows]]
        widths = [max(cell_len(row[i]) for row in cells) for i in range(len(self.columns))]
        for row in cells:
            yield "  ".join(self._padded(i, row[i], widths[i]) for i in range(len(widths))).rstrip()

    def _padded(self, column: int, cell: str, width: int) -> str:
        space = " " * (width - cell_len(cell))
        return space + cell if self.columns[column] in self.right else cell + space

    def _rich(self) -> RichTable:
        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for column in self.columns:
            table.add_column(column, justify="right" if column in self.right else "left", overflow="fold")
        for row in self.rows:
            # Text, not str: rich would read "[b]" in a URL as markup.
            table.add_row(*[Text(escape(cell)) for cell in row])
        return table
