"""What tests need of the system: processes that do not outlive them, and ports that nobody takes meanwhile."""

from __future__ import annotations

import random
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT, _USUAL_FIRST_PORT = 20_000, 32_768
#: Of its own: tests that repeat themselves seed the one of the module, and processes side by side would agree.
_chance = random.SystemRandom()


def leashed(command: Sequence[str], number: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the command so that it gets a signal when the thread that starts it ends, even where that is killed.

    Where the system has no program for that, it is the command as it was.
    """
    program = shutil.which("setpriv")
    if program is None:
        return [*command]
    return [program, "--pdeathsig", number.name.removeprefix("SIG"), "--", *command]


def free_port() -> int:
    """Return a port of loopback that nothing listens on, and that the system gives to nobody who asks for any port.

    So a server that is stopped for a while finds its port free when it starts again.
    """
    while True:
        port = _chance.randrange(_LOWEST_PORT, _first_given_port())
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _first_given_port() -> int:
    """Return where the ports begin that the system gives away by itself."""
    try:
        first = int(_RANGE.read_text("ascii").split()[0])
    except OSError:
        return _USUAL_FIRST_PORT
    return first if first > _LOWEST_PORT else _USUAL_FIRST_PORT
