"""Several worker processes under one: those that die are replaced, and a signal reaches them all."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from gossamer.cli.terminal import say
from gossamer.engine.leash import signal_when_orphaned

_POLL_SECONDS = 0.2
#: A worker that died sooner than this after its start is not replaced at once.
_QUICK_SECONDS = 5.0
#: What is passed on, and as what: a worker knows nothing of terminals that are closed.
_SIGNALS = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}


class Supervisor:
    """Keeps `count` workers running until they end by themselves or are told to.

    A signal reaches each of them once, also where it was sent to a whole terminal, and also one that is being started.
    """

    def __init__(self, command: Sequence[str], count: int, health_port: int | None) -> None:
        self._command = list(command)
        self._health_port = health_port
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._started_at: dict[int, float] = {}
        #: Workers to be started, and when.
        self._due = dict.fromkeys(range(count), 0.0)
        #: Signals to be passed on.
        self._received: deque[int] = deque()
        self._stopping = False
        self._worst = 0

    def run(self) -> int:
        """Supervise; returns the worst exit code of the workers that ended by themselves."""
        for number in _SIGNALS:
            # Under nohup the end of a terminal means nothing.
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _frame: self._received.append(number))
        while self._children or self._due:
            self._pass_on()
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
        own = [*self._command]
        if self._health_port:
            # The last one given counts.
            own += ["--health-port", str(self._health_port + worker)]
        self._started_at[worker] = time.monotonic()
        # In a group of its own: a Ctrl-C would reach it twice, and the second time means at once.
        self._children[worker] = subprocess.Popen(own, process_group=0, preexec_fn=_leave_with_us)  # noqa: S603, PLW1509 - ourselves, without threads

    def _ended(self, worker: int, code: int) -> None:
        del self._children[worker]
        if code >= 0 or self._stopping:
            self._worst = max(self._worst, code)
            return
        say(f"gossamer: worker {worker} died (signal {-code}) and is replaced")
        self._due[worker] = self._started_at[worker] + _QUICK_SECONDS

    def _pass_on(self) -> None:
        """Tell the workers what was received. Not where it is received: that may be while one is being started."""
        while self._received:
            number = _SIGNALS[signal.Signals(self._received.popleft())]
            self._stopping = True
            self._due.clear()
            for child in self._children.values():
                with suppress(ProcessLookupError):
                    child.send_signal(number)


def _leave_with_us() -> None:
    """Let a worker drain and end where its supervisor was killed: the next one starts its own."""
    signal_when_orphaned(signal.SIGTERM)


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
