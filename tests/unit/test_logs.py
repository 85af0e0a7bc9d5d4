"""A job's log holds whole lines whatever is written to it, stays within its bound, and never ends a run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.observe.json_line import MAX_LINE, json_line
from gossamer.observe.logs import JsonLog
from gossamer.testing.clock import FakeClock

#: A disk that is full for a while: a write beyond the limit is cut short, then fails.
FULL_DISK = """
import resource, sys
from pathlib import Path
from gossamer.observe.logs import JsonLog

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
log = JsonLog(Path(sys.argv[1]), flush_seconds=3600)
for i in range(40):
    log.write("full", i=i)
    if i % 5 == 4:
        log.flush()
print(log.dropped)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.write("room_again")
log.close()
print(log.dropped)
"""


def read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [json.loads(line) for line in lines]


def test_an_event_is_one_canonical_line(tmp_path: Path) -> None:
    with JsonLog(tmp_path / "log.jsonl", clock=FakeClock(1_700_000_000.1234)) as log:
        log.write("run_started", job="docs", pages=3, rate=0.5, done=False, limit=None)
    assert (tmp_path / "log.jsonl").read_text() == (
        '{"time":"2023-11-14T22:13:20.123Z","event":"run_started",'
        '"job":"docs","pages":3,"rate":0.5,"done":false,"limit":null}\n'
    )


def test_hostile_text_cannot_forge_a_line(tmp_path: Path) -> None:
    evil = 'x"}\n{"time":"2020-01-01T00:00:00Z","event":"forged"}\r\u2028\x85\x1b[2J\ud800'
    with JsonLog(tmp_path / "log.jsonl") as log:
        log.write("page", url=evil, **{evil: evil})
    raw = (tmp_path / "log.jsonl").read_bytes()
    assert raw.count(b"\n") == 1
    assert raw.strip().isascii()
    assert b"\x1b" not in raw
    (line,) = read(tmp_path / "log.jsonl")
    assert line["event"] == "page"
    assert line["url"] == evil.replace("\ud800", "\ufffd")


def test_a_field_cannot_replace_the_time_of_an_event(tmp_path: Path) -> None:
    with JsonLog(tmp_path / "log.jsonl", clock=FakeClock(0.0)) as log:
        log.write("page", time="never", event="forged")
    (line,) = read(tmp_path / "log.jsonl")
    assert line == {"time": "1970-01-01T00:00:00.000Z", "event": "page", "time_": "never", "event_": "forged"}


def test_lines_reach_the_file_without_being_asked(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "log.jsonl", flush_seconds=0.01)
    log.write("page")
    waited = threading.Event()
    for _ in range(1000):
        if (tmp_path / "log.jsonl").exists() and read(tmp_path / "log.jsonl"):
            break
        waited.wait(0.01)
    assert read(tmp_path / "log.jsonl")[0]["event"] == "page"
    log.close()


def test_lines_wait_for_each_other_until_a_flush(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "log.jsonl", flush_seconds=3600)
    log.write("one")
    log.write("two")
    assert not (tmp_path / "log.jsonl").exists()
    log.flush()
    assert [line["event"] for line in read(tmp_path / "log.jsonl")] == ["one", "two"]
    log.write("three")
    log.close()
    assert [line["event"] for line in read(tmp_path / "log.jsonl")] == ["one", "two", "three"]


def test_a_later_run_continues_the_log(tmp_path: Path) -> None:
    for event in ("one", "two"):
        with JsonLog(tmp_path / "log.jsonl") as log:
            log.write(event)
    assert [line["event"] for line in read(tmp_path / "log.jsonl")] == ["one", "two"]


def test_a_line_that_a_crash_cut_off_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for torn in (b'{"event":"whole"}\n{"event":"to', b'{"event":"to'):
        path.write_bytes(torn)
        with JsonLog(path) as log:
            log.write("next")
        assert [line["event"] for line in read(path)][-1] == "next"


def test_the_log_rotates_and_stays_within_its_bound(tmp_path: Path) -> None:
    with JsonLog(tmp_path / "log.jsonl", max_bytes=100_000, flush_seconds=3600) as log:
        for i in range(1000):
            log.write("page", i=i, text="x" * 400)
            if i % 100 == 0:
                log.flush()
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl", "log.1.jsonl"}
    assert all(path.stat().st_size <= 100_000 for path in tmp_path.iterdir())
    numbers = [line["i"] for name in ("log.1.jsonl", "log.jsonl") for line in read(tmp_path / name)]
    assert numbers == list(range(numbers[0], 1000))
    assert log.dropped == 0


def test_a_full_disk_costs_whole_lines_and_the_log_says_how_many(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    early, late = (int(number) for number in done.stdout.split())
    assert early == late > 0
    lines = read(path)
    assert [line["i"] for line in lines if line["event"] == "full"] == list(range(40 - late))
    assert sum(line["lines"] for line in lines if line["event"] == "log_dropped") == late
    assert lines[-1]["event"] == "room_again"


@pytest.mark.parametrize("path", [Path("/dev/full"), Path("/nowhere/log.jsonl"), Path("/")])
def test_a_path_that_cannot_be_written_costs_lines_only(path: Path) -> None:
    with JsonLog(path) as log:
        for _ in range(10):
            log.write("lost")
        log.flush()
    assert log.dropped == 10


def test_lines_that_the_disk_is_too_slow_for_are_dropped_and_counted(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "log.jsonl", flush_seconds=3600)
    with log._disk:
        for _ in range(6000):
            log.write("page", text="x" * 1000)
    dropped = log.dropped
    assert 0 < dropped < 6000
    log.close()
    lines = read(tmp_path / "log.jsonl")
    assert lines[0]["lines"] == dropped
    assert len(lines) == 1 + 6000 - dropped


def test_a_closed_log_counts_what_it_no_longer_takes(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "log.jsonl")
    log.close()
    log.write("late")
    log.close()
    assert log.dropped == 1


def test_threads_share_a_log_without_mixing_lines(tmp_path: Path) -> None:
    def write_many(n: int) -> None:
        for i in range(500):
            log.write("page", n=n, i=i)

    with JsonLog(tmp_path / "log.jsonl", flush_seconds=0.001) as log:
        threads = [threading.Thread(target=write_many, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = read(tmp_path / "log.jsonl")
    for n in range(4):
        assert [line["i"] for line in lines if line["n"] == n] == list(range(500))


class Rude:
    def __str__(self) -> str:
        raise RuntimeError


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.frozensets(st.text()),
    max_leaves=10,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_any_fields_make_one_line_of_strict_json(fields: dict[str, object]) -> None:
    line = json_line(fields)
    assert line.isascii()
    assert line.isprintable()
    json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "value", ["ü" * 10**6, ["x" * 10**5] * 10**4, dict.fromkeys(range(1000), "x" * 10**4), b"\xff" * 10**6]
)
def test_a_huge_value_makes_a_bounded_line(value: object) -> None:
    line = json_line({"event": "page", "value": value})
    assert len(line) <= MAX_LINE
    assert json.loads(line)["event"] == "page"


def test_values_json_has_no_word_for_become_text() -> None:
    nested: list[object] = []
    nested.append(nested)
    line = json.loads(
        json_line({"path": Path("/a"), "rude": Rude(), "big": 2**64, "nan": float("nan"), "nested": nested})
    )
    assert line == {"path": "/a", "rude": "<Rude>", "big": hex(2**64), "nan": None, "nested": [["…"]]}


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2>&1 | true"])
def test_what_a_worker_says_never_ends_it(tmp_path: Path, stderr: str) -> None:
    program = """
import pathlib, sys
from gossamer.observe.worker_log import WorkerLog

for number in range(100_000 if sys.argv[1] else 3):
    WorkerLog().write("job_started", number=number)
pathlib.Path("went_on").touch()
"""
    many = "1" if "|" in stderr else ""
    command = f'"$0" -c "$1" "{many}" {stderr}'
    subprocess.run(["sh", "-c", command, sys.executable, program], cwd=tmp_path, check=False, timeout=60)
    assert (tmp_path / "went_on").exists()
