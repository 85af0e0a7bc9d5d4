"""A file of JSON lines or CSV agrees with its cursor, whatever happened to it."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.contracts import Failpoint, Sink, no_failpoint
from gossamer.errors import OutputFailed, UsageError
from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry
from gossamer.sinks.consumer import OutputConsumer
from gossamer.sinks.csv import CsvRows
from gossamer.sinks.jsonl import JsonLines, JsonlSink
from gossamer.sinks.spec import open_sink

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "csv.zst")
COLUMNS = ("url", "title", "noise")
kinds = pytest.mark.parametrize("kind", KINDS)


def entry(position: int, *rows: object) -> LogEntry:
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    return LogEntry(position, len(rows), lines)


def batches(count: int) -> list[LogEntry]:
    return [
        entry(p, *({"url": f"https://a.example/{p}/{n}", "title": "é"} for n in range(3)))
        for p in range(1, count + 1)
    ]


def sink_of(path: Path, fields: tuple[str, ...] = (), failpoint: Failpoint = no_failpoint) -> Sink:
    fields = fields or (COLUMNS if ".csv" in path.name else ())
    return open_sink(str(path), fields=fields, failpoint=failpoint)


def text_of(entries: list[LogEntry], kind: str = "jsonl") -> bytes:
    """Return what a file must hold. That the rows of a CSV say the same as the records is tested elsewhere."""
    form = CsvRows(COLUMNS) if kind.startswith("csv") else JsonLines(())
    return form.head + b"".join(form.encode(item) for item in entries if item.lines)


def decoded(path: Path) -> bytes:
    data = path.read_bytes()
    match path.suffix:
        case ".gz":
            return gzip.decompress(data)
        case ".zst":
            reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
            return reader.read()
        case _:
            return data


async def write(
    path: Path, entries: list[LogEntry], cursor: Cursor | None = None, fields: tuple[str, ...] = ()
) -> list[Cursor]:
    """Open, write and close; returns the cursor of the opening and the one behind each entry."""
    sink = sink_of(path, fields)
    try:
        cursors = [await sink.open(cursor or Cursor(sink.output), is_new=cursor is None)]
        cursors += [await sink.write(item) for item in entries]
    finally:
        await sink.close()
    return cursors


async def continue_from_log(path: Path, log: list[LogEntry], cursor: Cursor) -> Cursor:
    """Open with a cursor and bring the file up to the log, as a resumed run does."""

    async def read_log(after: int, limit: int) -> list[LogEntry]:
        return [item for item in log if item.position > after][:limit]

    async def save(_cursors: object) -> None:
        """Keep nothing."""

    consumer = OutputConsumer(sink_of(path), read_log, cursor)
    try:
        await consumer.open(save)
        start = consumer.cursor
        await consumer.catch_up()
    finally:
        await consumer.close()
    return start


@pytest.mark.parametrize("kind", [*KINDS, "ndjson", "ndjson.gz", "ndjson.zst"])
def test_what_is_written_can_be_read_after_every_batch(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "deep" / "er" / f"out.{kind}"
    log = batches(4)
    cursors = asyncio.run(write(path, log))
    assert decoded(path) == text_of(log, kind)
    assert [cursor.position for cursor in cursors] == [0, 1, 2, 3, 4]
    assert cursors[-1] == Cursor(str(path), 4, path.stat().st_size, 12)
    whole = path.read_bytes()
    for cursor in cursors[1:]:
        path.write_bytes(whole[: cursor.offset])
        assert decoded(path) == text_of(log[: cursor.position], kind)


@kinds
def test_a_file_cut_at_any_byte_is_continued_as_if_nothing_had_happened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"out.{kind}"
    log = batches(3)
    cursors = asyncio.run(write(path, log))
    whole = path.read_bytes()
    before = cursors[2]

    async def cut_everywhere() -> None:
        for length in range(before.offset, len(whole) + 1):
            path.write_bytes(whole[:length])
            start = await continue_from_log(path, log, before)
            assert start == before, length
            assert decoded(path) == text_of(log, kind), length
        for length in range(0, before.offset, 7):
            path.write_bytes(whole[:length])
            start = await continue_from_log(path, log, before)
            assert start == Cursor(str(path)), length
            assert decoded(path) == text_of(log, kind), length

    asyncio.run(cut_everywhere())


rows = st.dictionaries(
    st.sampled_from(COLUMNS) | st.text(max_size=5),
    st.none() | st.integers(0, 9) | st.text(max_size=40),
    max_size=3,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_whatever_lies_behind_the_cursor_after_a_crash_is_cut_off(
    tmp_path: Path, data: st.DataObject, kind: str
) -> None:
    path = tmp_path / f"out.{kind}"
    path.unlink(missing_ok=True)
    log = [
        entry(position, *batch)
        for position, batch in enumerate(data.draw(st.lists(st.lists(rows, max_size=3), max_size=5)), 1)
    ]
    cursors = asyncio.run(write(path, log))
    known = data.draw(st.sampled_from(cursors))
    torn = data.draw(st.integers(known.offset, path.stat().st_size) | st.just(known.offset))
    path.write_bytes(path.read_bytes()[:torn] + data.draw(st.binary(max_size=50)))
    assert asyncio.run(continue_from_log(path, log, known)) == known
    assert decoded(path) == text_of(log, kind)


@kinds
def test_a_deleted_file_is_written_anew_from_the_log(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"out.{kind}"
    log = batches(3)
    last = asyncio.run(write(path, log))[-1]
    path.unlink()
    assert asyncio.run(continue_from_log(path, log, last)).position == 0
    assert decoded(path) == text_of(log, kind)


def test_a_file_that_is_not_the_jobs_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"precious\n")
    for _ in range(2):
        with pytest.raises(UsageError, match="exists already and is not this job's"):
            asyncio.run(write(path, batches(1)))
    assert path.read_bytes() == b"precious\n"


def test_an_empty_file_may_become_an_output(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.touch()
    asyncio.run(write(path, batches(1)))
    assert path.read_bytes() == text_of(batches(1))


@kinds
def test_a_file_that_somebody_replaced_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"out.{kind}"
    last = asyncio.run(write(path, batches(2)))[-1]
    path.write_bytes(b"precious" * 100)
    with pytest.raises(UsageError, match="changed by another program"):
        asyncio.run(write(path, [], last))
    assert path.read_bytes() == b"precious" * 100


def test_a_file_moved_away_during_a_run_ends_the_run_and_is_made_good(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    log = batches(2)

    async def scenario() -> Cursor:
        sink = JsonlSink(path)
        await sink.open(Cursor(sink.output), is_new=True)
        cursor = await sink.write(log[0])
        path.rename(tmp_path / "moved.jsonl")
        with pytest.raises(OutputFailed, match="moved or changed"):
            await sink.write(log[1])
        await sink.close()
        return cursor

    cursor = asyncio.run(scenario())
    assert (tmp_path / "moved.jsonl").read_bytes() == log[0].lines
    asyncio.run(continue_from_log(path, log, cursor))
    assert path.read_bytes() == text_of(log)


def test_a_file_changed_during_a_run_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"

    async def scenario() -> None:
        sink = JsonlSink(path)
        await sink.open(Cursor(sink.output), is_new=True)
        await sink.write(batches(1)[0])
        path.write_bytes(b"")
        with pytest.raises(OutputFailed, match="moved or changed"):
            await sink.write(batches(2)[1])
        await sink.close()

    asyncio.run(scenario())


def test_two_outputs_cannot_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"

    async def scenario() -> None:
        first, second = JsonlSink(path), JsonlSink(tmp_path / "." / "out.jsonl")
        await first.open(Cursor(first.output), is_new=True)
        with pytest.raises(UsageError, match="being written by another run or output"):
            await second.open(Cursor(second.output), is_new=True)
        await second.close()
        await first.write(batches(1)[0])
        await first.close()

    asyncio.run(scenario())
    assert path.read_bytes() == text_of(batches(1))


def test_a_symbolic_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "far" / "target.jsonl")
    last = asyncio.run(write(link, batches(2)))[-1]
    asyncio.run(write(link, batches(3)[2:], last))
    assert link.is_symlink()
    assert (tmp_path / "far" / "target.jsonl").read_bytes() == text_of(batches(3))


@kinds
def test_an_output_without_records_is_a_valid_empty_file_and_can_be_continued(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"out.{kind}"
    cursor = asyncio.run(write(path, [entry(1)]))[-1]
    assert cursor == Cursor(str(path), 1, 0, 0)
    assert decoded(path) == text_of([], kind)
    assert (path.stat().st_size > 0) == (kind != "jsonl")
    second = entry(2, {"url": 1})
    asyncio.run(write(path, [second], cursor))
    assert decoded(path) == text_of([second], kind)


def test_only_the_chosen_fields_are_written_in_the_chosen_order(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    row = {"url": "https://a.example/", "odd name": {"deep": [1, "\u2028\n"]}, "title": None, "more": 1}
    log = [entry(1, row, {"url": "https://b.example/"})]
    asyncio.run(write(path, log, fields=("title", "odd name", "url", "title")))
    assert path.read_bytes().splitlines() == [
        b'{"title":null,"odd name":{"deep":[1,"\xe2\x80\xa8\\n"]},"url":"https://a.example/"}',
        b'{"url":"https://b.example/"}',
    ]


def test_a_damaged_log_entry_is_an_error_with_its_position(tmp_path: Path) -> None:
    with pytest.raises(OutputFailed, match="damaged at position 7"):
        asyncio.run(write(tmp_path / "out.jsonl", [LogEntry(7, 1, b"{nonsense\n")], fields=("url",)))


def test_a_position_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    one, two = batches(2)
    asyncio.run(write(path, [one, one, two, one, two]))
    assert path.read_bytes() == text_of([one, two])


def test_a_cancelled_write_is_finished_and_known(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    reached, go_on = threading.Event(), threading.Event()

    def failpoint(name: str) -> None:
        if name == "sink:torn":
            reached.set()
            go_on.wait(30)

    async def scenario() -> None:
        sink = JsonlSink(path, failpoint=failpoint)
        await sink.open(Cursor(sink.output), is_new=True)
        task = asyncio.create_task(sink.write(batches(1)[0]))
        await asyncio.to_thread(reached.wait, 30)
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sink.cursor.position == 1
        await sink.write(batches(1)[0])
        await sink.close()

    asyncio.run(scenario())
    assert path.read_bytes() == text_of(batches(1))


@contextmanager
def tiny_disk(size: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
        )
        if mounted.returncode:
            if os.environ.get("CI"):
                pytest.fail("CI must be able to mount a tmpfs")
            pytest.skip("mounting a tmpfs is not permitted")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@kinds
def test_a_full_disk_is_said_leaves_no_torn_line_and_is_resumed_when_there_is_room(kind: str) -> None:
    log = [entry(p, {"noise": os.urandom(6000).hex()}) for p in range(1, 9)]

    async def write_all(sink: Sink) -> None:
        for item in log:
            await sink.write(item)

    async def fill(path: Path) -> Cursor:
        sink = sink_of(path)
        await sink.open(Cursor(sink.output), is_new=True)
        with pytest.raises(OutputFailed, match="make room"):
            await write_all(sink)
        cursor = sink.cursor
        with pytest.raises(OutputFailed, match="make room"):
            await sink.write(entry(99, "it would fit, but the failure is final"))
        await sink.close()
        return cursor

    with tiny_disk("32k") as folder:
        path = folder / f"out.{kind}"
        cursor = asyncio.run(fill(path))
        assert 0 < cursor.position < len(log)
        assert path.stat().st_size == cursor.offset
        assert decoded(path) == text_of(log[: cursor.position], kind)
        subprocess.run(["mount", "-o", "remount,size=1m", folder], check=True)
        asyncio.run(continue_from_log(path, log, cursor))
        assert decoded(path) == text_of(log, kind)
