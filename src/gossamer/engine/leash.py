"""A process that does not outlive the one that started it, even where that is killed."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def signal_when_orphaned(number: signal.Signals) -> None:
    """Have this process sent a signal when its parent dies. Only Linux can do that; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
