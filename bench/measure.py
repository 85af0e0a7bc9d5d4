"""What a process and all its descendants cost: wall time, CPU seconds, memory."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Cost:
    """`cpu` is user + system of the whole tree, including descendants that ended before (each was waited for).

    `peak_mb` is the largest sum of resident sizes seen at one moment; memory shared between processes counts in each.
    """

    wall: float
    cpu: float
    peak_mb: float
    #: The part of `cpu` that the first process used itself, as last sampled.
    parent_cpu: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The tree at one moment: seconds since its start, CPU seconds so far, resident MB."""

    at: float
    cpu: float
    parent_cpu: float
    rss_mb: float


def sample(root: psutil.Process, started: float) -> Sample:
    """Look at the tree now. Raises psutil.NoSuchProcess once its root is gone."""
    own = root.cpu_times()
    cpu = own.user + own.system + own.children_user + own.children_system
    rss = root.memory_info().rss
    for child in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            cpu += times.user + times.system + times.children_user + times.children_system
            rss += child.memory_info().rss
    return Sample(time.monotonic() - started, cpu, own.user + own.system, rss / 1e6)


def follow(pid: int, started: float, every_seconds: float) -> Iterator[Sample]:
    """Sample a process tree until its root ends."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        while root.status() != psutil.STATUS_ZOMBIE:
            yield sample(root, started)
            time.sleep(every_seconds)


@contextmanager
def started(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the block follows it. Exits where it fails, but for an interrupt; it does not outlive the block."""
    process = subprocess.Popen(argv)
    try:
        yield process
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.wait() not in {0, 130}:
        raise SystemExit(f"{' '.join(argv)}\nended with {process.returncode}")


def run(argv: list[str], log: Path, *, prefix: list[str] | None = None) -> Cost:
    """Run a command to its end and return its cost; its output goes to `log`. Exits where the command fails."""
    started = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen([*(prefix or []), *argv], stdout=file, stderr=subprocess.STDOUT)
    samples: list[Sample] = []
    thread = threading.Thread(
        target=lambda: samples.extend(follow(process.pid, started, 0.1)), name="samples"
    )
    thread.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    thread.join()
    if process.returncode != 0:
        raise SystemExit(
            f"{' '.join(argv)}\nended with {process.returncode}:\n{log.read_text(errors='replace')[-2000:]}"
        )
    peak = max((seen.rss_mb for seen in samples), default=0.0)
    parent = max((seen.parent_cpu for seen in samples), default=0.0)
    # Not ru_maxrss: it begins with the size of the process that forked, which is ours.
    return Cost(wall, usage.ru_utime + usage.ru_stime, peak, parent)
