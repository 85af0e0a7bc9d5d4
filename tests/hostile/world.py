"""A whole Internet of our own: a network namespace in which every address answers (see `inside.py`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gossamer.frontier.sqlite_reader import SqliteReader

#: An address that is public everywhere else, and ours in here.
PUBLIC = "93.184.216.34"
PUBLIC_V6 = "2606:2800:220:1::1"
CLOSED = "Connection: close\r\n"
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_NEEDS = "these tests need Linux with network namespaces, as root or with user namespaces allowed, and unshare, ip and mount"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command said and did: connections by the address they went to, requests, and questions for names."""

    code: int
    out: str
    err: str
    connections: Counter[str]
    hits: list[str]
    asked: list[str]


class World:
    """Runs `gossamer` in the namespace. The name server and the pages are set anew for each command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self,
        folder: Path,
        *arguments: str,
        zone: Mapping[str, Sequence[Sequence[str]]] | None = None,
        pages: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a command to its end."""
        command = [sys.executable, "-m", "gossamer", *arguments]
        stage = {"run": command, "cwd": str(folder), "zone": zone or {}, "pages": pages or {}}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(stage) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        assert told["code"] in {0, 2, 4}, told["err"]
        told["connections"] = Counter(told["connections"])
        return Ran(**told)


@contextmanager
def open_world() -> Iterator[World]:
    """Make the namespace; fail the test, with what is missing, where that is not possible."""
    missing = [name for name in ("unshare", "ip", "mount") if shutil.which(name, path=_PATH) is None]
    if missing:
        pytest.fail(f"{_NEEDS}; missing: {', '.join(missing)}", pytrace=False)
    # Root of the machine, or of a user namespace of one's own.
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    inside = Path(__file__).with_name("inside.py")
    command = [
        "unshare",
        *as_root,
        "--net",
        "--mount",
        "--propagation",
        "private",
        sys.executable,
        str(inside),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": _PATH},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if not process.stdout.readline():
            pytest.fail(f"{_NEEDS}: {process.stderr.read().strip()[-500:]}", pytrace=False)
        yield World(process)
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
        process.stderr.close()


def page(*hrefs: str, head: str = "") -> str:
    """Answer with a page that links to these addresses."""
    body = f"<html><head>{head}</head><body>" + "".join(f'<a href="{href}">x</a>' for href in hrefs)
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{CLOSED}Content-Length: {len(body.encode())}\r\n\r\n{body}"


def redirect(target: str) -> str:
    """Answer with a redirect."""
    return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\n{CLOSED}Content-Length: 0\r\n\r\n"


def states(folder: Path, job: str = "job") -> dict[str, str]:
    """Return what became of every URL of a job, as in `refused private_address`."""
    with SqliteReader(folder / "jobs" / job / "ledger.sqlite") as reader:
        return {row.url: f"{row.state.label} {row.reason}" for row in reader.urls(limit=10_000)}
