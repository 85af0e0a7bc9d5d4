"""An output gets every entry of the log once and in order, whatever reaches it directly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import UsageError
from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry
from gossamer.sinks.consumer import OutputConsumer, merged
from gossamer.sinks.jsonl import JsonlSink


def entry(position: int, records: int = 1) -> LogEntry:
    lines = b"".join(b'{"position":%d,"n":%d}\n' % (position, n) for n in range(records))
    return LogEntry(position, records, lines)


class Log:
    """A record log in memory: like the ledger's it skips positions without records."""

    def __init__(self, positions: Sequence[int]) -> None:
        self.entries = [entry(position) for position in positions]
        self.reads: list[int] = []
        self.saved: list[Cursor] = []

    async def read(self, after: int, limit: int) -> list[LogEntry]:
        self.reads.append(after)
        return [item for item in self.entries if item.position > after][:limit]

    async def save(self, cursors: Sequence[Cursor]) -> None:
        self.saved += cursors

    @property
    def text(self) -> bytes:
        return b"".join(item.lines for item in self.entries)


def test_entries_in_order_are_written_without_reading_the_log(tmp_path: Path) -> None:
    log = Log([1, 2, 4, 5])

    async def scenario() -> None:
        consumer = OutputConsumer(JsonlSink(tmp_path / "out.jsonl"), log.read, None)
        await consumer.open(log.save)
        for item in [entry(1), entry(2), entry(3, records=0), entry(4), entry(5)]:
            await consumer.feed(item)
        assert consumer.cursor.position == 5
        assert consumer.cursor.records == 4
        await consumer.close()

    asyncio.run(scenario())
    assert log.reads == []
    assert (tmp_path / "out.jsonl").read_bytes() == log.text


def test_a_gap_is_filled_from_the_log_before_the_entry_behind_it(tmp_path: Path) -> None:
    log = Log([1, 2, 3, 7, 8])

    async def scenario() -> None:
        consumer = OutputConsumer(JsonlSink(tmp_path / "out.jsonl"), log.read, None, step_entries=2)
        await consumer.open(log.save)
        await consumer.feed(entry(7))
        assert consumer.cursor.position == 7
        assert (tmp_path / "out.jsonl").read_bytes() == log.text.removesuffix(entry(8).lines)
        await consumer.feed(entry(3))
        await consumer.catch_up()
        await consumer.close()

    asyncio.run(scenario())
    assert (tmp_path / "out.jsonl").read_bytes() == log.text


def test_a_late_output_is_filled_from_the_log_in_few_writes(tmp_path: Path) -> None:
    log = Log(range(1, 101))
    writes: list[str] = []

    async def scenario() -> None:
        sink = JsonlSink(tmp_path / "late.jsonl.gz", failpoint=writes.append)
        consumer = OutputConsumer(sink, log.read, None, step_entries=10)
        await consumer.open(log.save)
        await consumer.catch_up()
        assert consumer.cursor.records == 100
        await consumer.close()

    asyncio.run(scenario())
    assert writes.count("sink:synced") == 10


def test_the_cursor_is_saved_before_the_first_byte_so_that_a_crash_does_not_orphan_the_file(
    tmp_path: Path,
) -> None:
    log = Log([1])
    path = tmp_path / "out.jsonl"

    async def first_run() -> None:
        consumer = OutputConsumer(JsonlSink(path), log.read, None)
        await consumer.open(log.save)
        assert path.read_bytes() == b""
        await consumer.catch_up()
        await consumer.close()

    async def second_run() -> None:
        consumer = OutputConsumer(JsonlSink(path), log.read, log.saved[-1])
        await consumer.open(log.save)
        await consumer.catch_up()
        await consumer.close()

    asyncio.run(first_run())
    assert log.saved == [Cursor(str(path))]
    asyncio.run(second_run())
    assert path.read_bytes() == log.text


def test_a_refused_output_saves_no_cursor(tmp_path: Path) -> None:
    log = Log([1])
    (tmp_path / "out.jsonl").write_bytes(b"precious")

    async def scenario() -> None:
        consumer = OutputConsumer(JsonlSink(tmp_path / "out.jsonl"), log.read, None)
        with pytest.raises(UsageError):
            await consumer.open(log.save)
        await consumer.close()

    asyncio.run(scenario())
    assert log.saved == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dropped_repeated_and_late_entries_are_each_written_once_in_order(data: st.DataObject) -> None:
    positions = sorted(data.draw(st.sets(st.integers(1, 30), max_size=15)))
    fed = data.draw(st.lists(st.sampled_from(positions), max_size=20)) if positions else []
    both_at_once = data.draw(st.booleans())
    log = Log(positions)

    async def scenario(path: Path) -> None:
        consumer = OutputConsumer(JsonlSink(path), log.read, None, step_entries=3, max_merged_bytes=50)
        await consumer.open(log.save)
        if both_at_once:
            async with asyncio.TaskGroup() as group:
                for position in fed:
                    group.create_task(consumer.feed(entry(position)), name=f"feed {position}")
        else:
            for position in fed:
                await consumer.feed(entry(position))
                assert consumer.cursor.position >= position
        await consumer.catch_up()
        assert consumer.cursor.records == len(positions)
        await consumer.close()

    with TemporaryDirectory() as folder:
        path = Path(folder) / "out.jsonl"
        asyncio.run(scenario(path))
        assert path.read_bytes() == log.text


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 120))
def test_merging_keeps_every_line_and_stays_within_its_bound(sizes: list[int], bound: int) -> None:
    entries = [entry(position, records) for position, records in enumerate(sizes, 1)]
    pieces = list(merged(entries, bound))
    assert b"".join(piece.lines for piece in pieces) == b"".join(item.lines for item in entries)
    assert sum(piece.records for piece in pieces) == sum(sizes)
    assert [piece.position for piece in pieces] == sorted({piece.position for piece in pieces})
    assert [piece.position for piece in pieces][-1:] == [item.position for item in entries][-1:]
    assert all(len(piece.lines) <= bound or piece in entries for piece in pieces)
