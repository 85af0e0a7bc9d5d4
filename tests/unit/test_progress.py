"""What people see while a crawl runs: true figures, whole lines, and nothing a hostile host could do to a screen."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from collections.abc import Callable, Iterator

import pytest
from rich.cells import cell_len

from gossamer.model.event import HostSpeed, Snapshot
from gossamer.observe.json_progress import JsonProgress, ProgressLine
from gossamer.observe.live import LiveProgress
from gossamer.observe.plain import PlainProgress, SilentProgress
from gossamer.observe.progress import Progress, ProgressKind, make_progress

HOSTILE = "evil\x1b[2J\x9b31m[bold red]x[/]\n\u202e.example"


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and can be read as a screen."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """Return what is on the screen, by the few control codes a display needs; others are an error."""
        rows, row, column = [""], 0, 0
        for code, text in re.findall(r"(\x1b\[[?\d;]*[A-Za-z]|\r|\n)|([^\x1b\r\n]+)", self.getvalue()):
            if text:
                rows[row] = rows[row].ljust(column)[:column] + text + rows[row][column + len(text) :]
                column += len(text)
            elif code == "\n":
                row, column = row + 1, 0
                rows.extend([""] * (row + 1 - len(rows)))
            elif code == "\r":
                column = 0
            elif code == "\x1b[2K":
                rows[row] = ""
            elif code.endswith("A"):
                row = max(row - int(code[2:-1]), 0)
            else:
                assert code.endswith("m") or code in {"\x1b[?25l", "\x1b[?25h"}, code
        while rows and not rows[-1]:
            rows.pop()
        return rows


class Broken(Terminal):
    """A terminal whose other end is gone."""

    number = errno.EIO

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)


def snapshot(elapsed: float, *, queued: int = 100, pages: int = 0, **changes: object) -> Snapshot:
    values: dict[str, object] = {
        "elapsed": elapsed,
        "states": {"fetched": {"ok": pages}, "queued": {"": queued}, "failed": {"timeout": 3}},
        "pages": pages,
        "run_pages": pages,
        "fetches": pages,
        "wire_bytes": pages * 20_000,
        "retries": 0,
        "in_flight": 8,
        "hosts": 4,
        "next_due": None,
        "seeding": False,
    }
    return Snapshot(**{**values, **changes})  # type: ignore[arg-type]


def progress(
    kind: ProgressKind,
    stream: io.StringIO,
    *,
    max_pages: int | None = None,
    quiet: bool = False,
    verbose: int = 0,
) -> Progress:
    return make_progress(kind, job="docs", max_pages=max_pages, quiet=quiet, verbose=verbose, stream=stream)


def crawl(seconds: float, queued: Callable[[float], int], step: float = 0.25) -> Iterator[Snapshot]:
    for i in range(int(seconds / step) + 1):
        yield snapshot(i * step, queued=queued(i * step), pages=int(20 * i * step))


def fail_after(update: Callable[[Snapshot], None]) -> None:
    update(snapshot(1))
    raise RuntimeError


# -- which one -----------------------------------------------------------------------------------------


def test_auto_is_live_on_a_terminal_and_plain_elsewhere() -> None:
    assert isinstance(progress("auto", Terminal()), LiveProgress)
    assert isinstance(progress("auto", io.StringIO()), PlainProgress)


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("TERM", ""), ("TTY_INTERACTIVE", "0")])
def test_auto_is_plain_on_a_terminal_that_cannot_redraw(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert isinstance(progress("auto", Terminal()), PlainProgress)


def test_the_other_kinds_are_what_they_are_called_even_on_a_terminal() -> None:
    assert isinstance(progress("plain", Terminal()), PlainProgress)
    assert isinstance(progress("json", Terminal()), JsonProgress)
    assert type(progress("none", Terminal())) is SilentProgress


@pytest.mark.parametrize("kind", ["auto", "plain", "json", "none"])
def test_quiet_shows_errors_and_nothing_else(kind: ProgressKind) -> None:
    stream = Terminal()
    with progress(kind, stream, quiet=True) as shown:
        for moment in crawl(30, lambda t: 100):
            shown.update(moment)
        shown.note("information")
        shown.note("careful", "warning")
        shown.note("the disk is full", "error")
    assert stream.getvalue() == "error: the disk is full\n"


def test_none_shows_warnings_and_errors() -> None:
    stream = Terminal()
    with progress("none", stream) as shown:
        shown.update(snapshot(20))
        shown.note("information")
        shown.note("careful", "warning")
    assert stream.getvalue() == "warning: careful\n"


@pytest.mark.parametrize("kind", ["auto", "plain", "json"])
def test_details_are_shown_only_to_those_who_asked(kind: ProgressKind) -> None:
    for verbose in (0, 1):
        stream = Terminal()
        with progress(kind, stream, verbose=verbose) as shown:
            shown.note("a detail", "detail")
        assert ("a detail" in stream.getvalue()) == bool(verbose)


@pytest.mark.parametrize("number", [errno.EIO, errno.EPIPE, errno.ENOSPC])
@pytest.mark.parametrize("kind", ["auto", "plain", "json", "none"])
def test_a_stream_that_fails_never_ends_the_run(kind: ProgressKind, number: int) -> None:
    stream = Broken()
    stream.number = number
    with progress(kind, stream) as shown:
        for moment in crawl(12, lambda t: 100):
            shown.update(moment)
        shown.note("lost", "error")


def test_a_stream_that_was_closed_is_taken_for_no_terminal() -> None:
    stream = Terminal()
    stream.close()
    with progress("auto", stream) as shown:
        shown.update(snapshot(20))
        shown.note("lost", "error")


# -- live ----------------------------------------------------------------------------------------------


def test_the_live_display_shows_the_figures_of_the_last_snapshot() -> None:
    stream = Terminal()
    with progress("auto", stream) as shown:
        for moment in crawl(10, lambda t: 1000 + int(t)):
            shown.update(moment)
        text = "\n".join(stream.screen())
    assert re.search(r"done\s+200\b", text)
    assert re.search(r"queued\s+1,010\b", text)
    assert re.search(r"failed\s+3\b", text)
    assert re.search(r"in flight\s+8\b", text)
    assert re.search(r"pages/s\s+20\.0\b", text)
    assert re.search(r"MB/s\s+0\.40\b", text)
    assert "fetching from 4 hosts" in text
    assert "ETA unknown while the frontier grows" in text
    assert "10 s" in text


@pytest.mark.parametrize(
    ("columns", "lines"), [(200, 60), (80, 24), (61, 10), (40, 24), (20, 5), (8, 2), (1, 1)]
)
def test_the_live_display_fits_its_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    stream = Terminal()
    slow = tuple(HostSpeed("a." * n + "example.org", n, 1.5) for n in (120, 20, 1))
    with progress("auto", stream, max_pages=5000) as shown:
        for moment in crawl(2, lambda t: 10_000_000):
            shown.update(snapshot(moment.elapsed, pages=moment.pages, slowest=slow, waiting="because " * 40))
        screen = stream.screen()
    assert 0 < len(screen) <= min(12, max(lines - 1, 1))
    assert max(cell_len(row) for row in screen) <= max(columns - 1, 1)


def test_the_live_display_leaves_nothing_but_its_notes() -> None:
    stream = Terminal()
    stream.write("$ gossamer crawl\n")
    with progress("auto", stream) as shown:
        for moment in crawl(3, lambda t: 100):
            shown.update(moment)
            if moment.elapsed in {1.0, 2.0}:
                shown.note(f"note {moment.elapsed}")
    assert stream.screen() == ["$ gossamer crawl", "note 1.0", "note 2.0"]
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_the_live_display_leaves_nothing_when_the_run_fails() -> None:
    stream = Terminal()
    shown = progress("auto", stream)
    with pytest.raises(RuntimeError), shown:
        fail_after(shown.update)
    assert "in flight" in stream.getvalue()
    assert stream.screen() == []


def test_lines_that_a_narrower_window_has_wrapped_are_taken_back() -> None:
    stream = Terminal()
    with progress("auto", stream) as shown:
        assert isinstance(shown, LiveProgress)
        shown.update(snapshot(1))
        before = len(stream.getvalue())
        wrapped = sum((max(line.cell_len, 1) - 1) // 50 for line in shown._lines)
        height = len(shown._lines)
        shown._screen.width = 50
        shown.update(snapshot(2))
        assert stream.getvalue()[before:].count("\x1b[1A") == wrapped + height - 1
    assert wrapped > 0


@pytest.mark.parametrize("kind", ["auto", "plain", "json"])
def test_hostile_names_reach_the_terminal_as_text_only(kind: ProgressKind) -> None:
    stream = Terminal()
    with make_progress(kind, job=HOSTILE, max_pages=None, quiet=False, verbose=0, stream=stream) as shown:
        shown.update(snapshot(10, slowest=(HostSpeed(HOSTILE, 1, 2.0),), waiting=HOSTILE))
        shown.update(snapshot(20, slowest=(HostSpeed(HOSTILE, 1, 2.0),), ending=HOSTILE))
        shown.note(HOSTILE, "warning")
    written = stream.getvalue()
    assert "[bold red]" in written
    assert not any(mark in written for mark in ("\x1b[2J", "\x9b", "\u202e"))
    if kind != "auto":
        assert all(line.startswith(("evil", "warning", "{")) for line in written.splitlines())


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def colours() -> list[str]:
        stream = Terminal()
        with progress("auto", stream) as shown:
            shown.update(snapshot(1))
            shown.note("careful", "warning")
        codes = ";".join(re.findall(r"\x1b\[([\d;]*)m", stream.getvalue())).split(";")
        return [code for code in codes if code not in {"", "0", "1", "2", "22"}]

    assert colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours()


def test_the_live_display_draws_no_more_than_five_times_a_second() -> None:
    stream = Terminal()
    with progress("auto", stream) as shown:
        for moment in crawl(2, lambda t: 100, step=0.01):
            shown.update(moment)
        assert stream.getvalue().count("in flight") <= 11


def test_the_live_display_says_why_it_waits() -> None:
    stream = Terminal()
    with progress("auto", stream) as shown:
        shown.update(snapshot(1, in_flight=0, waiting="keeping the delay of its hosts", next_due=0.75))
        assert "keeping the delay of its hosts, next host due in 0.8 s" in "\n".join(stream.screen())
        shown.update(snapshot(2, ending="draining: page limit"))
        assert sum("draining: page limit" in row for row in stream.screen()) == 1


# -- plain ---------------------------------------------------------------------------------------------


def test_plain_writes_at_the_start_each_ten_seconds_and_at_the_end() -> None:
    stream = io.StringIO()
    with progress("plain", stream, max_pages=5000) as shown:
        for moment in crawl(34, lambda t: 100, step=0.97):
            shown.update(moment)
    first, *lines, last = stream.getvalue().splitlines()
    assert first == "docs: started, at most 5,000 pages"
    assert len(lines) == 3
    assert all(re.match(r"docs: [123]\d s: \d+ done, 100 queued, 3 failed, ", line) for line in lines)
    assert last.startswith("docs: ended after 34 s: 679 done, 100 queued, 3 failed, ")


def test_plain_without_a_snapshot_still_has_a_start_and_an_end() -> None:
    stream = io.StringIO()
    with progress("plain", stream):
        pass
    assert stream.getvalue() == "docs: started\ndocs: ended\n"


# -- json ----------------------------------------------------------------------------------------------


def test_json_writes_an_object_each_second_and_one_at_the_end() -> None:
    stream = io.StringIO()
    with progress("json", stream, max_pages=50) as shown:
        for moment in crawl(5, lambda t: 100, step=0.25):
            shown.update(moment)
        shown.note("one\nnote", "warning")
    objects = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [o["event"] for o in objects] == ["progress"] * 6 + ["note", "end"]
    assert [o["elapsed_seconds"] for o in objects[:6]] == [0, 1, 2, 3, 4, 5]
    assert objects[6] == {"event": "note", "job": "docs", "level": "warning", "text": "one\nnote"}
    assert objects[7].keys() == set(ProgressLine.__struct_fields__)
    assert objects[7]["pages_per_second"] == 20.0
    assert objects[7]["share"] == 1.0


def test_json_without_a_snapshot_still_has_an_end() -> None:
    stream = io.StringIO()
    with progress("json", stream):
        pass
    assert json.loads(stream.getvalue()) == {"event": "end", "job": "docs"}
