"""Several workers under one process: who hears of a signal, how often, and that nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

SECONDS = 30.0

SUPERVISOR = """
import sys
from gossamer.cli.supervision import Supervisor

sys.exit(Supervisor(sys.argv[2:], int(sys.argv[1]), None).run())
"""
#: Leaves a second after the first signal, and says by its exit code how many there were.
COUNTING = """
import pathlib, signal, sys, time

signals = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _frame: signals.append(number))
pathlib.Path(sys.argv[1]).touch()
while not signals:
    time.sleep(0.01)
time.sleep(1)
sys.exit(len(signals))
"""


def supervise(count: int, *command: str) -> subprocess.Popen[str]:
    """Start a supervisor of so many of this command, as a shell would: in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(count), *command],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(paths: Sequence[Path]) -> None:
    deadline = time.monotonic() + SECONDS
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, "the workers were never started"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("sent", "to_all"),
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, True)],
)
def test_a_worker_hears_of_a_signal_once(tmp_path: Path, sent: signal.Signals, to_all: bool) -> None:
    started = tmp_path / "started"
    with supervise(1, sys.executable, "-c", COUNTING, str(started)) as supervisor:
        wait_for([started])
        (os.killpg if to_all else os.kill)(supervisor.pid, sent)
        assert supervisor.wait(SECONDS) == 1


def test_told_to_stop_while_workers_are_being_started_a_supervisor_leaves_none_behind(tmp_path: Path) -> None:
    # Each tells the supervisor to stop as soon as it is there: most of the others are not.
    worker = f"echo $$ >> {tmp_path}/pids; kill -TERM $PPID; exec sleep {SECONDS:.0f}"
    with supervise(50, "sh", "-c", worker) as supervisor:
        _, said = supervisor.communicate(timeout=SECONDS)
        assert (supervisor.returncode, said) == (0, "")
    for pid in (tmp_path / "pids").read_text("ascii").split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_under_nohup_workers_outlive_their_terminal(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN){SUPERVISOR}"
    command = [sys.executable, "-c", program, "1", sys.executable, "-c", COUNTING, str(started)]
    with subprocess.Popen(command, start_new_session=True) as supervisor:
        wait_for([started])
        os.killpg(supervisor.pid, signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            supervisor.wait(1)
        supervisor.terminate()
        assert supervisor.wait(SECONDS) == 1


def test_a_supervisor_that_is_killed_leaves_no_worker_behind(tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"
    worker = f"trap 'touch {ended}; exit' TERM; touch {started}; while true; do sleep 0.05; done"
    with supervise(1, "sh", "-c", worker) as supervisor:
        wait_for([started])
        supervisor.kill()
        wait_for([ended])
