"""Several worker processes under one: those that die are replaced, and a signal reaches them all."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from gossamer.cli.terminal import say

_POLL_SECONDS = 0.2
#: A worker that died sooner than this after its start is not replaced at once.
_QUICK_SECONDS = 5.0


class Supervisor:
    """Keeps `count` workers running until they end by themselves or are told to."""

    def __init__(self, arguments: Sequence[str], count: int, health_port: int | None) -> None:
        self._arguments = list(arguments)
        self._health_port = health_port
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._started_at: dict[int, float] = {}
        #: Workers to be started, and when.
        self._due = dict.fromkeys(range(count), 0.0)
        self._stopping = False
        self._worst = 0

    def run(self) -> int:
        """Supervise; returns the worst exit code of the workers that ended by themselves."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pass_on)
        while self._children or self._due:
            for worker, due in list(self._due.items()):
                if time.monotonic() >= due:
                    self._start(worker)
            for worker, child in list(self._children.items()):
                if child.poll() is not None:
                    self._ended(worker, child.returncode)
            time.sleep(_POLL_SECONDS)
        return self._worst

    def _start(self, worker: int) -> None:
        del self._due[worker]
        own = [*self._arguments]
        if self._health_port:
            # The last one given counts.
            own += ["--health-port", str(self._health_port + worker)]
        self._started_at[worker] = time.monotonic()
        self._children[worker] = subprocess.Popen([sys.executable, "-m", "gossamer", *own])  # noqa: S603 - ourselves

    def _ended(self, worker: int, code: int) -> None:
        del self._children[worker]
        if code >= 0 or self._stopping:
            self._worst = max(self._worst, code)
            return
        say(f"gossamer: worker {worker} died (signal {-code}) and is replaced")
        self._due[worker] = self._started_at[worker] + _QUICK_SECONDS

    def _pass_on(self, number: int, _frame: object) -> None:
        self._stopping = True
        self._due.clear()
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.send_signal(number)


def without_flag(arguments: Sequence[str], flag: str) -> list[str]:
    """Return a command line without a flag and its value."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith(f"{flag}="):
            skip = False
        elif argument == flag:
            skip = True
        else:
            kept.append(argument)
    return kept
