"""How much memory something takes at its peak, beyond what was in use before."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class Peak:
    """Starts from what is resident now: what was used and freed before does not hide anything."""

    def __init__(self) -> None:
        _RESET.write_text("5", "ascii")
        self._before = _kibibytes("VmRSS")

    def growth(self) -> int:
        """Return by how many KiB the peak since then exceeds what was resident then."""
        return _kibibytes("VmHWM") - self._before


def _kibibytes(name: str) -> int:
    (line,) = [line for line in _STATUS.read_text("ascii").splitlines() if line.startswith(name)]
    return int(line.split()[1])
