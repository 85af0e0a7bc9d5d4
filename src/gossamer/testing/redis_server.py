"""A real Redis on loopback for tests: a server or a cluster of three, on free ports, in a folder of its own."""

from __future__ import annotations

import itertools
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gossamer.testing.processes import free_port, leashed

__all__ = ["RedisServer", "free_port", "is_redis_installed", "redis_cluster", "redis_server"]

_START_SECONDS = 60.0
_SLOTS = 16384
_NODES = 3


def is_redis_installed() -> bool:
    """Say whether a server can be started here."""
    return shutil.which("redis-server") is not None


class RedisServer:
    """One server process. It keeps nothing on disk, and ends with the test."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        #: Where a node of a cluster listens for the others.
        self.bus_port = 0
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            "redis-server",
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self._folder),
        ]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self._options]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            leashed(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"redis-server on port {self.port} ended at once"
            assert time.monotonic() < deadline, f"redis-server on port {self.port} does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return self.ask("PING").startswith("+PONG")
        except OSError:
            return False

    def ask(self, *words: str) -> str:
        """Send one command by hand and return the answer as it came."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as line:
            parts = [f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)]
            line.sendall("".join(parts).encode())
            return line.recv(1 << 20).decode(errors="replace")

    def info(self, section: str, field: str) -> str:
        """Return one value of INFO."""
        lines = self.ask("INFO", section).splitlines()
        return next(line.partition(":")[2] for line in lines if line.startswith(f"{field}:"))

    def pause(self) -> None:
        """Let it hang: it accepts connections and says nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """Run a server for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="gossamer-redis-") as folder:
        server = RedisServer(Path(folder), *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def redis_cluster() -> Iterator[list[RedisServer]]:
    """Run a cluster of three nodes without replicas."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(_node()) for _ in range(_NODES)]
        bounds = [_SLOTS * number // _NODES for number in range(_NODES + 1)]
        for node, (first, last) in zip(nodes, itertools.pairwise(bounds), strict=True):
            node.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(last - 1))
            for other in nodes:
                node.ask("CLUSTER", "MEET", "127.0.0.1", str(other.port), str(other.bus_port))
        deadline = time.monotonic() + _START_SECONDS
        while not all(_is_whole(node) for node in nodes):
            assert time.monotonic() < deadline, "the cluster does not come together"
            time.sleep(0.05)
        yield nodes


@contextmanager
def _node() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="gossamer-redis-") as folder:
        # A node talks to the others on a second port, by default ten thousand higher, which may be out of range.
        bus = free_port()
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--cluster-port", str(bus))
        server = RedisServer(Path(folder), *options)
        server.bus_port = bus
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _is_whole(node: RedisServer) -> bool:
    about = node.ask("CLUSTER", "INFO")
    return "cluster_state:ok" in about and f"cluster_known_nodes:{_NODES}" in about
