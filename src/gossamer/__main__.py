"""`python -m gossamer` and the console script."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line and exit with its code."""
    _fill_closed_streams()
    try:
        from gossamer.cli.main import main as run  # noqa: PLC0415 - keeps `import gossamer.__main__` free of the whole program
    except KeyboardInterrupt:
        sys.exit(130)  # while it was being loaded: nothing has begun
    sys.exit(run())


def _fill_closed_streams() -> None:
    """Put /dev/null where a standard stream was closed (`<&-`).

    Else the next file opened would take its number, be written to as if it were the stream, and libuv would abort
    when it is closed. `sys.stdin` and `sys.stdout` stay None, so that whoever needs them can say so.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives


if __name__ == "__main__":
    main()
