"""What the system or the user's command forbids is said in one line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.errors import OutputFailed, UsageError
from gossamer.model.outcome import Cursor
from gossamer.sinks.jsonl import JsonlSink
from gossamer.sinks.spec import open_sink


async def open_and_close(path: Path) -> None:
    sink = JsonlSink(path)
    try:
        await sink.open(Cursor(sink.output), is_new=True)
    finally:
        await sink.close()


FILE_TOO_LARGE = """
import asyncio, resource, sys
from gossamer.model.schedule import LogEntry
from gossamer.errors import OutputFailed
from gossamer.model.outcome import Cursor
from gossamer.sinks.jsonl import JsonlSink

async def main():
    sink = JsonlSink(sys.argv[1])
    await sink.open(Cursor(sink.output), is_new=True)
    try:
        for position in range(1, 10):
            await sink.write(LogEntry(position, 1, b'{"a":"' + b"x" * 900 + b'"}\\n'))
    except OutputFailed as error:
        await sink.close()
        print(sink.cursor.position, sink.cursor.offset, error)
        raise SystemExit(error.exit_code)

resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
asyncio.run(main())
"""


def test_a_file_that_may_not_grow_any_further_is_cut_to_its_last_whole_batch(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run = subprocess.run(
        [sys.executable, "-c", FILE_TOO_LARGE, path], capture_output=True, text=True, check=False
    )
    assert run.returncode == 5, run.stderr
    assert run.stdout.startswith("3 2727 no room")
    assert path.stat().st_size == 2727


def test_a_folder_in_place_of_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(OutputFailed, match=r"^[^\n]*out.jsonl is a folder[^\n]*$"):
        asyncio.run(open_and_close(tmp_path / "out.jsonl"))


def test_a_file_in_place_of_a_folder_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputFailed, match="check the folders"):
        asyncio.run(open_and_close(tmp_path / "file" / "out.jsonl"))


@pytest.fixture
def forbidden_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o700)


def test_a_folder_that_may_not_be_written_is_said_in_one_line(forbidden_folder: Path) -> None:
    with pytest.raises(OutputFailed, match="check the permissions"):
        asyncio.run(open_and_close(forbidden_folder / "out.jsonl"))


@pytest.mark.parametrize(
    "name", ["out.tsv", "out.csv.bz2", "out.parquet", "out.json", "out", "out.gz", "jsonl"]
)
def test_an_unknown_suffix_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError, match=r"\.jsonl, \.ndjson, \.csv, \.jsonl\.gz, .*\.csv\.zst"):
        open_sink(name)


def test_a_name_is_made_absolute_so_that_a_resume_finds_it_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_sink("a/../out.jsonl").output == str(tmp_path / "out.jsonl")
