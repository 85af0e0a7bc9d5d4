"""kill -9 at every boundary of an output, then a resume: nothing lost, nothing twice, no torn line."""

from __future__ import annotations

import csv
import gzip
import io
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import zstandard

#: A run in small: a ledger that commits, two outputs that follow it, cursors saved now and then. With a
#: failpoint it kills itself the n-th time that boundary is passed.
RUN = """
import asyncio, os, signal, sys, time
from pathlib import Path
from gossamer.model.schedule import LogEntry
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import Batch, Found, Settled, State, Visit
from gossamer.model.request import Request
from gossamer.sinks.consumer import OutputConsumer
from gossamer.sinks.spec import open_sink

folder, boundary, countdown = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
outputs = sys.argv[4:]
PAGES, PER_COMMIT = 60, 5

def die(name):
    global countdown
    if name == boundary:
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def request(n):
    return Request(url=f"https://a.example/{n}", fingerprint=n, host="a.example")

def visit(known):
    # Five pages of fifteen yield no record, which makes whole commits empty: the log has gaps.
    n = known.request.fingerprint
    record = b'{"url":"https://a.example/%d","pad":"%s"}' % (n, b'x,\\\\n\\\\"' * (n % 13)) if n % 15 > 4 else b""
    return Visit(known, Settled(State.FETCHED, "ok", status=200), record)

async def main():
    ledger = SqliteLedger(folder / "ledger.db", time.time, die)
    await ledger.add([Found(request(n)) for n in range(1, PAGES + 1)])
    known = {cursor.output: cursor for cursor in await ledger.cursors()}
    consumers = []
    for name in outputs:
        sink = open_sink(name, fields=("url", "pad") if ".csv" in name else (), failpoint=die)
        consumer = OutputConsumer(sink, ledger.log, known.get(sink.output), step_entries=2)
        await consumer.open(ledger.save_cursors)
        consumers.append(consumer)
    number = 0
    while work := await ledger.take("a.example", PER_COMMIT, time.time()):
        visits = tuple(visit(item) for item in work)
        cursors = tuple(consumer.cursor for consumer in consumers)
        done = await ledger.commit(Batch(f"{os.getpid()}-{number}", visits, cursors=cursors))
        lines = [item.record + b"\\n" for item in visits if item.record]
        number += 1
        if number % 4:  # every fourth entry is dropped on its way, as to a slow output
            for consumer in consumers:
                await consumer.feed(LogEntry(done.position, len(lines), b"".join(lines)))
    for consumer in consumers:
        await consumer.catch_up()
        await ledger.save_cursors([consumer.cursor])
        await consumer.close()
    await ledger.close()

asyncio.run(main())
"""

SINK_BOUNDARIES = ("sink:before", "sink:torn", "sink:written", "sink:synced")
LEDGER_BOUNDARIES = ("cursor:before", "cursor:written", "cursor:done", "commit:written", "commit:done")
NAMES = ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.csv", "e.csv.gz", "f.csv.zst")
EXPECTED = [f"https://a.example/{n}" for n in range(1, 61) if n % 15 > 4]


def run(folder: Path, outputs: list[Path], boundary: str = "", countdown: int = 0) -> int:
    command = [sys.executable, "-c", RUN, str(folder), boundary, str(countdown), *map(str, outputs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


def urls(path: Path) -> list[str]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()
    assert not data or data.endswith(b"\n")
    if ".csv" in path.name:
        return [row["url"] for row in csv.DictReader(io.StringIO(data.decode(), newline=""))]
    return [msgspec.json.decode(line)["url"] for line in data.splitlines()]


@pytest.mark.parametrize("boundary", SINK_BOUNDARIES + LEDGER_BOUNDARIES)
def test_killed_again_and_again_at_a_boundary_every_output_gets_each_record_once(
    tmp_path: Path, boundary: str
) -> None:
    outputs = [tmp_path / name for name in NAMES]
    # First at once, while no cursor is behind the first byte, then ever further on.
    killed = [run(tmp_path, outputs, boundary, countdown) for countdown in (1, 2, 3, 5)]
    assert killed[0] == -signal.SIGKILL
    assert run(tmp_path, outputs) == 0
    assert [urls(output) for output in outputs] == [EXPECTED] * len(outputs)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_an_output_added_late_or_deleted_is_filled_from_the_log_without_any_fetch(
    tmp_path: Path, form: str
) -> None:
    first, late = tmp_path / f"first.{form}", tmp_path / f"late.{form}.zst"
    run(tmp_path, [first], "sink:torn", 4)
    run(tmp_path, [first, late])
    assert urls(first) == urls(late) == EXPECTED
    first.unlink()
    run(tmp_path, [first])
    assert urls(first) == EXPECTED
