"""`python -m gossamer` and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from gossamer.cli.main import main as run  # noqa: PLC0415 - keeps `import gossamer.__main__` free of the whole program

    sys.exit(run())


if __name__ == "__main__":
    main()
