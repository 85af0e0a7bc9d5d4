"""Who takes part: a name and the command line that crawls from a URL into a JSONL file.

To add one, write a program that does the same work (see `docs/bench.md`) and list it in `contestants`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
GO_LIBRARIES = "/usr/share/gocode"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A crawler under test. `argv` gets the start URL, the output file and an empty folder for its state."""

    name: str
    argv: Callable[[str, Path, Path], list[str]]
    #: Share of pages that may differ from the reference's.
    tolerance: float = 0.0


#: Libraries that do not follow the WHATWG URL standard resolve a handful of odd hrefs (`//x`, a lone `%`) in other ways.
OLD_URLS = 0.002


def script(name: str, file: str, tolerance: float = 0.0) -> Contestant:
    """A contestant that is a Python script in this folder."""
    return Contestant(name, lambda url, out, _: [sys.executable, str(HERE / file), url, str(out)], tolerance)


def gossamer_argv(url: str, out: Path, state: Path, workers: int = 1) -> list[str]:
    """The command line of a whole-site crawl without delay, with the default record and every guard on."""
    program = Path(sys.executable).with_name("gossamer")
    options = ["--delay", "0", "--per-host", "64", "-c", "64", "--allow-private", "-q"]
    more = ["--workers", str(workers)] if workers > 1 else []
    return [
        str(program),
        "crawl",
        url,
        "-o",
        str(out),
        "--job",
        "bench",
        "--jobs-dir",
        str(state),
        *options,
        *more,
    ]


def gossamer(workers: int = 1) -> Contestant:
    name = "gossamer" if workers == 1 else f"gossamer-{workers}w"
    return Contestant(name, lambda url, out, state: gossamer_argv(url, out, state, workers))


def goloop(build: Path) -> Contestant | None:
    """Compile the Go loop into `build`; None, with a note, where Go or goquery is missing."""
    binary = build / "goloop"
    if shutil.which("go") is None:
        print("note: goloop is left out: no go on this machine", file=sys.stderr)
        return None
    build.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": GO_LIBRARIES}
    argv = ["go", "build", "-o", str(binary), "."]
    done = subprocess.run(
        argv, cwd=HERE / "goloop", env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(f"note: goloop is left out: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return Contestant("goloop", lambda url, out, _: [str(binary), url, str(out)], OLD_URLS)


def contestants(build: Path, only: list[str]) -> list[Contestant]:
    """Return the contestants named in `only`, in that order, or all; without those that cannot run here."""
    known: dict[str, Callable[[], Contestant | None]] = {
        "mini-fast": lambda: script("mini-fast", "mini_fast.py"),
        "mini": lambda: script("mini", "mini.py", OLD_URLS),
        "gossamer": gossamer,
        "gossamer-2w": lambda: gossamer(2),
        "scrapy": lambda: script("scrapy", "scrapy_spider.py", OLD_URLS),
        "goloop": lambda: goloop(build),
    }
    if unknown := set(only) - set(known):
        raise SystemExit(f"no such contestant: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    made = [known[name]() for name in only or known]
    return [each for each in made if each is not None]
