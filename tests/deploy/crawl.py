"""A shared crawl of the built-in site by real workers, whose figures can be asked for while it lasts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gossamer.testing.postgres_server import PostgresServer, migrated_database, programs
from gossamer.testing.processes import leashed
from gossamer.testing.redis_server import is_redis_installed, redis_server
from gossamer.testing.synthetic_web import SyntheticWeb

#: The values of each label, by metric: as they were served, so `_bucket` and the like are metrics of their own.
Figures = dict[str, dict[str, set[str]]]
_LONGEST_SECONDS = 120.0


def can_crawl() -> bool:
    """Say whether the servers of a shared crawl can be started here."""
    return programs() is not None and is_redis_installed()


class Worker:
    """A worker process that serves its figures on a free port."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                leashed([sys.executable, "-m", "gossamer", "worker", "--health-port", "0"]),
                env=environment,
                stdout=said,
                stderr=said,
            )
        self._log = log
        self.port = int(wait_until(self._port, "a worker serves its health"))

    def _port(self) -> int:
        lines = self._log.read_text("utf-8").splitlines()
        assert self.process.poll() is None, lines
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return next((int(event["port"]) for event in events if event["event"] == "health"), 0)

    def end(self) -> None:
        """End it without waiting for what is under way."""
        self.process.kill()
        self.process.wait()

    def text(self, path: str = "/metrics") -> str:
        """Return what it serves."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def add_figures(self, figures: Figures) -> None:
        """Add what it serves now to what was served before."""
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                labels = figures.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    labels.setdefault(label, set()).add(value)


@contextmanager
def crawl(folder: Path, *, workers: int = 1) -> Iterator[list[Worker]]:
    """Let workers crawl the built-in site, slowly enough to be watched for a minute."""
    with ExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.remove)
        postgres.start()
        web = stack.enter_context(SyntheticWeb.in_thread())
        environment = {
            **os.environ,
            "GOSSAMER_POSTGRES": postgres.dsn(migrated_database(postgres)),
            "GOSSAMER_REDIS": stack.enter_context(redis_server()).url,
        }
        flags = ["--job", "weaver", "--allow-private", "--delay", "0.3", "--quiet"]
        command = [sys.executable, "-m", "gossamer", "submit", *web.finite_seeds, *flags]
        subprocess.run(command, env=environment, check=True, timeout=60)
        hired = []
        for number in range(workers):
            hired.append(Worker(environment, folder / f"worker-{number}.log"))
            stack.callback(hired[-1].end)
        yield hired


def wait_until(is_so: Callable[[], Any], what: str, seconds: float = _LONGEST_SECONDS) -> Any:
    """Look again and again until something is so; returns what was found."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"after {seconds} s it is still not so that {what}"
        time.sleep(0.1)
    return found
