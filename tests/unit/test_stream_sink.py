"""Standard output, pipes and devices get every record at least once, and never hang the run."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gossamer.errors import OutputClosed, OutputFailed, UsageError
from gossamer.model.outcome import Cursor
from gossamer.model.schedule import LogEntry
from gossamer.sinks.spec import open_sink
from gossamer.sinks.stream import StdoutSink, StreamSink

ONE = LogEntry(1, 1, b'{"a":1}\n')
TWO = LogEntry(2, 1, b'{"a":2}\n')
#: More than any pipe holds.
HUGE = LogEntry(3, 1, b'{"a":"' + b"x" * 3_000_000 + b'"}\n')


WITHOUT_STDOUT = """
import asyncio, os, sys, tempfile
from gossamer.errors import OutputFailed
from gossamer.model.outcome import Cursor
from gossamer.sinks.stream import StdoutSink

async def main():
    sink = StdoutSink()
    try:
        await sink.open(Cursor("-"), is_new=True)
    except OutputFailed as error:
        print(error, file=sys.stderr)
    else:
        raise SystemExit("it was opened")

with tempfile.TemporaryFile() as file:
    assert file.fileno() == 1
    asyncio.run(main())
"""


def test_standard_output_gets_the_lines_and_goes_on_behind_its_cursor() -> None:
    reader, writer = os.pipe()

    async def scenario() -> Cursor:
        sink = StdoutSink(fd=writer, fields=("a",))
        await sink.open(Cursor("-", 1, 8, 1), is_new=False)
        await sink.write(ONE)
        cursor = await sink.write(TWO)
        await sink.close()
        return cursor

    assert asyncio.run(scenario()) == Cursor("-", 2, 16, 2)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == TWO.lines


def test_a_batch_larger_than_a_pipe_arrives_whole() -> None:
    reader, writer = os.pipe()
    received: list[bytes] = []

    def read() -> None:
        with os.fdopen(reader, "rb") as pipe:
            received.append(pipe.read())

    async def scenario() -> None:
        sink = StdoutSink(fd=writer)
        await sink.open(Cursor("-"), is_new=True)
        await sink.write(HUGE)
        await sink.close()

    thread = threading.Thread(target=read)
    thread.start()
    asyncio.run(scenario())
    os.close(writer)
    thread.join()
    assert received == [HUGE.lines]


def test_a_reader_that_went_away_is_told_apart_from_a_failure() -> None:
    reader, writer = os.pipe()

    async def scenario() -> None:
        sink = StdoutSink(fd=writer)
        await sink.open(Cursor("-"), is_new=True)
        await sink.write(ONE)
        os.close(reader)
        with pytest.raises(OutputClosed, match="closed by its reader"):
            await sink.write(TWO)
        assert sink.cursor.position == 1
        await sink.close()

    asyncio.run(scenario())
    os.close(writer)


def test_a_write_to_a_reader_that_does_not_read_can_be_cancelled() -> None:
    reader, writer = os.pipe()

    async def scenario() -> None:
        sink = StdoutSink(fd=writer)
        await sink.open(Cursor("-"), is_new=True)
        task = asyncio.create_task(sink.write(HUGE))
        # The first bytes have arrived, so the write is under way and will soon be stuck.
        assert await asyncio.to_thread(os.read, reader, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sink.cursor.position == 0
        with pytest.raises(OutputClosed):
            await sink.write(HUGE)
        await sink.close()

    asyncio.run(scenario())
    os.close(reader)
    os.close(writer)


def test_a_closed_standard_output_is_said() -> None:
    # Descriptor 1 then belongs to whatever file was opened first: a ledger, say.
    run = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" >&-', sys.executable, WITHOUT_STDOUT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "standard output is closed" in run.stderr


def test_a_fifo_without_a_reader_is_said_instead_of_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def scenario() -> None:
        sink = open_sink(str(fifo))
        assert isinstance(sink, StreamSink)
        with pytest.raises(OutputFailed, match="start its reader first"):
            await sink.open(Cursor(sink.output), is_new=True)
        await sink.close()

    asyncio.run(scenario())


def test_a_fifo_is_compressed_if_its_name_says_so(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.jsonl.gz"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    async def scenario() -> None:
        sink = open_sink(str(fifo))
        await sink.open(Cursor(sink.output), is_new=True)
        await sink.write(ONE)
        await sink.write(TWO)
        await sink.close()

    asyncio.run(scenario())
    with os.fdopen(reader, "rb") as pipe:
        assert gzip.decompress(pipe.read()) == ONE.lines + TWO.lines


def test_a_full_device_fails_the_output() -> None:
    async def scenario() -> None:
        sink = open_sink("/dev/full")
        await sink.open(Cursor(sink.output), is_new=True)
        with pytest.raises(OutputFailed, match="make room"):
            await sink.write(ONE)
        await sink.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_has_one_name_in_the_ledger(name: str) -> None:
    assert open_sink(name).output == "-"


@pytest.mark.parametrize("name", ["", "a\0.jsonl"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a name"):
        open_sink(name)
