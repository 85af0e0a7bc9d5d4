"""Records as rows of a CSV file, with text in it made harmless to spreadsheets.

RFC 4180 with bare line feeds: UTF-8, no byte order mark, a row of column names, quotes only where they are
needed. A list or an object is its JSON text in one cell.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gossamer.contracts import Failpoint, no_failpoint
from gossamer.model.record import FIELDS
from gossamer.model.schedule import LogEntry
from gossamer.sinks.codec import RawRows, Whose, codec_for, damaged
from gossamer.sinks.file import FileSink

#: Control characters have no meaning in a cell, end a text for programs written in C, and command terminals.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_REPLACEMENT = "\ufffd"
_NEEDS_QUOTES = re.compile('[,"\r\n;\t]')
#: What a spreadsheet may trim, and what it then takes for the beginning of a formula.
_TRIMMED = "\\s\u200b-\u200f\u2060\ufeff\"'"
_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
#: A cell also begins behind `;`, a tab and a line break: half of Europe's spreadsheets split a file there, whatever
#: its quotes say. Between there and the formula stands none of these, so that no text takes quadratic time.
_BEGINS = f"\\A(?=[{_TRIMMED}]*[{_FORMULA}\t\r\n])"
_RUNNABLE_AT_START = re.compile(_BEGINS)
_RUNNABLE = re.compile(f"{_BEGINS}|(?<=[;\t\r\n])(?=(?:(?![\t\r\n])[{_TRIMMED}])*[{_FORMULA}])")


def harmless_cell(text: str) -> str:
    """Return text with an apostrophe before everything in it that a spreadsheet would run.

    Reversible: taking away each apostrophe that stands before such a thing, at the beginning or behind `;`, a
    tab or a line break, gives the text back.
    """
    if ";" in text or not text.isprintable():
        return _RUNNABLE.sub("'", text)
    # Nearly every text: there is one place to look at.
    return f"'{text}" if _RUNNABLE_AT_START.match(text) else text


class CsvRows:
    """Makes a row of each record, with the given columns in the given order, or all fields of a page record.

    * Text that a spreadsheet would run is escaped, unless `escape` is off. Numbers are written as they are.
    * Missing and null values are empty cells.
    * Control characters, but for tabs and line breaks, become U+FFFD.
    """

    def __init__(self, fields: tuple[str, ...] = (), *, escape: bool = True) -> None:
        self._columns = tuple(dict.fromkeys(fields)) or FIELDS
        self._rows = RawRows(self._columns)
        self._escape = escape
        self.head = _line([_quoted(name) for name in self._columns]).encode()

    def encode(self, entry: LogEntry) -> bytes:
        """Return the rows of a batch."""
        rows = map(msgspec.structs.astuple, self._rows.read(entry))
        try:
            return "".join([_line([self._cell(value) for value in row]) for row in rows]).encode()
        except (ValueError, msgspec.DecodeError) as error:
            raise damaged(entry, error) from error

    def whose(self, start: bytes) -> Whose:
        """Tell a file by its first row. Names that no record has are not ours."""
        if start.startswith(self.head):
            return Whose.OURS
        names = start.partition(b"\n")[0].decode("utf-8", "replace").split(",")
        return Whose.OTHER_COLUMNS if set(names) <= set(FIELDS) else Whose.FOREIGN

    def _cell(self, value: msgspec.Raw | msgspec.UnsetType) -> str:
        if value is msgspec.UNSET:
            return ""
        raw = bytes(value)
        match raw[:1]:
            case b'"':
                text = _writable(msgspec.json.decode(raw, type=str))
                return _quoted(harmless_cell(text) if self._escape else text)
            case b"[" | b"{":
                # JSON has no control character below DEL.
                text = raw.decode() if raw.isascii() and b"\x7f" not in raw else _writable(raw.decode())
                # The same value to a reader of JSON, and nothing to split at.
                return _quoted(text.replace(";", "\\u003b") if self._escape else text)
            case b"n":
                return ""
            case _:
                return raw.decode()


def _line(cells: list[str]) -> str:
    # A row of one empty cell would be an empty line, which readers pass over.
    return (",".join(cells) or '""') + "\n"


def _writable(text: str) -> str:
    return text if text.isprintable() else _UNWRITABLE.sub(_REPLACEMENT, text)


def _quoted(text: str) -> str:
    if _NEEDS_QUOTES.search(text) or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


class CsvSink(FileSink):
    """A CSV file; `.gz` or `.zst` at the end of its name asks for compression.

    Its columns are named once, with the first row. A file with other columns than are now asked for is made anew
    from the log.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        fields: tuple[str, ...] = (),
        escape: bool = True,
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        super().__init__(path, CsvRows(fields, escape=escape), codec_for(str(path)), failpoint=failpoint)
