"""A CSV says what the records say, to every reader, and no spreadsheet runs any of it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import OutputFailed, UsageError
from gossamer.model.outcome import Cursor
from gossamer.model.record import FIELDS
from gossamer.model.schedule import LogEntry
from gossamer.sinks.csv import CsvRows, CsvSink, harmless_cell

PAGE: dict[str, Any] = {
    "url": "https://a.example/",
    "status": 200,
    "depth": 0,
    "title": 'Silk, "raw"',
    "headings": ["One", "Two, three"],
    "links": ["https://a.example/b;c"],
    "noindex": False,
    "parent": None,
}
#: What a spreadsheet runs, alone or behind what it trims.
RUNNABLE = (
    "=1+1",
    "+1",
    "-5",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    " =1",
    "\u00a0\u3000=1",
    "\ufeff=1",
    '"=1',
    "'=1",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff20x",
)
_TRIMMED, _FORMULA = "\\s\u200b-\u200f\u2060\ufeff\"'", "=+\\-@\uff1d\uff0b\uff0d\uff20"
#: As in docs/outputs.md.
UNESCAPE = (
    f"\\A'(?=[{_TRIMMED}]*[{_FORMULA}\t\r\n])|(?<=[;\t\r\n])'(?=(?:(?![\t\r\n])[{_TRIMMED}])*[{_FORMULA}])"
)


def entry(*rows: dict[str, Any], position: int = 1) -> LogEntry:
    return LogEntry(position, len(rows), b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def text_of(*rows: dict[str, Any], fields: tuple[str, ...] = (), escape: bool = True) -> str:
    form = CsvRows(fields, escape=escape)
    return (form.head + form.encode(entry(*rows))).decode()


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def cell(value: object, *, escape: bool = True) -> str:
    """Return what a reader finds in the cell of a value."""
    (_, (found,)) = read(text_of({"v": value}, fields=("v",), escape=escape))
    return found


async def write(sink: CsvSink, entries: list[LogEntry], cursor: Cursor | None = None) -> Cursor:
    try:
        last = await sink.open(cursor or Cursor(sink.output), is_new=cursor is None)
        for item in entries:
            last = await sink.write(item)
    finally:
        await sink.close()
    return last


# -- what is in it ---------------------------------------------------------------------------------------


def test_the_first_row_names_all_fields_of_a_record_and_the_next_ones_hold_them() -> None:
    header, row = read(text_of(PAGE))
    assert tuple(header) == FIELDS
    found = dict(zip(header, row, strict=True))
    assert found["url"] == PAGE["url"]
    assert (found["status"], found["depth"], found["noindex"]) == ("200", "0", "false")
    assert found["title"] == 'Silk, "raw"'
    assert (json.loads(found["headings"]), json.loads(found["links"])) == (PAGE["headings"], PAGE["links"])
    assert (found["parent"], found["description"], found["data"]) == ("", "", "")


def test_only_the_chosen_columns_are_written_in_the_chosen_order() -> None:
    assert text_of(PAGE, fields=("title", "status", "title")) == 'title,status\n"Silk, ""raw""",200\n'


def test_a_row_of_one_empty_cell_is_no_empty_line() -> None:
    assert text_of({"title": ""}, {}, {"title": "x"}, fields=("title",)) == 'title\n""\n""\nx\n'


texts = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.sampled_from(",;\"'\r\n\t\x00\x1b\x85\u2028=+-@\uff1d\ufeff \\"),
    max_size=30,
)


@given(st.lists(st.tuples(texts, texts, st.integers(), st.lists(texts, max_size=3)), max_size=4))
def test_any_text_comes_back_but_for_control_characters(
    rows: list[tuple[str, str, int, list[str]]],
) -> None:
    records = [dict(zip(("a", "b", "n", "l"), row, strict=True)) for row in rows]
    text = text_of(*records, fields=("a", "b", "n", "l"), escape=False)
    header, *found = read(text)
    assert header == ["a", "b", "n", "l"]
    for row, (a, b, n, listed) in zip(found, rows, strict=True):
        assert row[:3] == [without_controls(a), without_controls(b), str(n)]
        assert [without_controls(item) for item in json.loads(row[3])] == list(map(without_controls, listed))
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)


def without_controls(text: str) -> str:
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", "\ufffd", text)


def test_a_damaged_log_entry_is_an_error_with_its_position() -> None:
    with pytest.raises(OutputFailed, match="damaged at position 7"):
        CsvRows(("url",)).encode(LogEntry(7, 1, b'{"url":"\\q"}\n'))


# -- formulas --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", RUNNABLE)
def test_text_that_a_spreadsheet_would_run_begins_with_an_apostrophe(text: str) -> None:
    assert cell(text) == "'" + text
    assert cell(text, escape=False) == text


@pytest.mark.parametrize(
    "text", ["", "a=b", "https://a.example/?q=-1", "1-1", "' x", "a\nb\n\nc", "é", "a;b"]
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert cell(text) == text


def test_numbers_are_not_text() -> None:
    assert [cell(value) for value in (-5, -1.5, 0, True, None)] == ["-5", "-1.5", "0", "true", ""]


@pytest.mark.parametrize(
    "text", ["x;=1", "x; =1", 'x;"=1', "x\n=1", "x\r\n+1", "x\t@a", "\t=1", "x;'=1", "x;;\u00a0\uff1d1"]
)
def test_text_that_would_run_where_a_spreadsheet_splits_elsewhere_is_escaped_there(text: str) -> None:
    assert not any(
        re.match('[\\s\ufeff"]*[=+\\-@\uff1d\uff0b\uff0d\uff20]', part)
        for part in re.split("[;\t\r\n]", cell(text))
    ), cell(text)


def test_a_list_has_nothing_to_split_at_and_keeps_its_values() -> None:
    listed = ["x;=1", "=2", "\n=3"]
    found = cell(listed)
    assert not re.search("[;\t\r\n]", found)
    assert json.loads(found) == listed


@given(st.text(st.sampled_from("=+-@\uff1d;'\" \t\r\n\ufeffax"), max_size=12))
def test_what_was_escaped_can_be_had_back(text: str) -> None:
    assert re.sub(UNESCAPE, "", harmless_cell(text)) == text


def test_escaping_takes_no_quadratic_time() -> None:
    # 2 MB of what might be the beginning of a formula: quadratic would take hours.
    for filler in (" ", "\t", ";", "'", "\n'"):
        harmless_cell("x" + filler * (2_000_000 // len(filler)))


# -- the file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_resume_with_other_columns_makes_the_file_anew(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.csv{suffix}"
    first = asyncio.run(write(CsvSink(path, fields=("url", "title")), [entry(PAGE)]))
    again = asyncio.run(write(CsvSink(path, fields=("title",)), [], first))
    assert again == Cursor(str(path))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_resume_with_the_same_columns_goes_on(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.csv{suffix}"
    # A first piece larger than what is looked at, and hard to compress.
    long = {"url": "x", "title": "".join(map(str, range(200_000)))}
    first = asyncio.run(write(CsvSink(path, fields=("url", "title")), [entry(long)]))
    again = asyncio.run(write(CsvSink(path, fields=("url", "title")), [entry(PAGE, position=2)], first))
    assert again.offset > first.offset
    assert again.records == 2


def test_a_csv_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    last = asyncio.run(write(CsvSink(path, fields=("url",)), [entry(PAGE)]))
    theirs = b"url,price\n".ljust(last.offset - 1, b"1") + b"\n"
    path.write_bytes(theirs)
    with pytest.raises(UsageError, match="changed by another program"):
        asyncio.run(write(CsvSink(path, fields=("url",)), [], last))
    assert path.read_bytes() == theirs


# -- other readers ---------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 shell is not installed")
def test_sqlite_imports_nasty_text_as_it_was_written(tmp_path: Path) -> None:
    nasty = ['a,"b"', "two\nlines", "=1+1", "nul\x00esc\x1b", "\u202eright\u2028", "", "é 漢字", "tab\tbed"]
    rows = [{"url": f"https://a.example/{n}", "title": text, "status": 200} for n, text in enumerate(nasty)]
    path = tmp_path / "out.csv"
    asyncio.run(write(CsvSink(path, fields=("url", "title", "status")), [entry(*rows)]))
    done = subprocess.run(
        ["sqlite3", "-json", ":memory:", f".import --csv {path} pages", "SELECT title, status FROM pages"],
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == b""
    found = msgspec.json.decode(done.stdout)
    assert [row["status"] for row in found] == ["200"] * len(nasty)
    expected = [without_controls(text) for text in nasty]
    expected[2] = "'=1+1"
    assert [row["title"] for row in found] == expected
