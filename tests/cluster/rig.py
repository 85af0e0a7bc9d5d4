"""The servers of a shared crawl, the commands that work on it, and what must be true when it is done."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from gossamer.config.redis import RedisSettings
from gossamer.testing.postgres_rig import ask
from gossamer.testing.postgres_server import PostgresServer, migrated_database
from gossamer.testing.processes import leashed
from gossamer.testing.redis_rig import age
from gossamer.testing.redis_server import RedisServer

from .site import Site, check_apart

#: No command runs longer than this, unless a test says so.
LONGEST_SECONDS = 120.0
#: Workers whose server is back are at work again within this, if the machine does not stand still meanwhile.
RESUME_SECONDS = 15.0
DELAY = 0.2
#: Leases as short as a fetch allows, and small commits: much can go wrong in a short time.
LEASE_SECONDS = 3.0
FLAGS = (
    *("--allow-private", "--delay", str(DELAY), "--jitter", "0", "--timeout", "1.5", "-c", "16"),
    *("--commit-pages", "10", "--commit-seconds", "0.1", "--sweep-seconds", "0.5"),
    *("--lease-seconds", str(LEASE_SECONDS), "--lease-slack-seconds", "1", "--backoff-seconds", "0.1"),
)
#: For tests in which no lease has to run out: no page is given up, and none is fetched twice, however slow the machine is.
PATIENT = ("--timeout", "200")
#: The clocks of two processes, and the time between a look at one and the next line, differ by this at most.
_CLOCK_SECONDS = 0.003
_KEYS = "gossamer:{g:0}"
_EVIDENCE_CHARACTERS, _EVIDENCE_ROWS = 20_000, 40


class Servers:
    """A PostgreSQL and a Redis, empty for each test."""

    def __init__(self, postgres: PostgresServer, redis: RedisServer, folder: Path) -> None:
        self.postgres = postgres
        self.redis = redis
        self.folder = folder
        self.database = migrated_database(postgres)
        self.dsn = postgres.dsn(self.database)
        redis.ask("FLUSHALL")
        asyncio.run(age(RedisSettings(url=redis.url)))

    def ask(self, question: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Read the tables behind the workers' backs."""
        return ask(self.dsn, question, *parameters)

    def excerpt(self, table: str) -> str:
        """Return the first rows of a table as text, or why they cannot be had."""
        try:
            rows = self.ask(f"SELECT row_to_json(t)::text FROM {table} t LIMIT {_EVIDENCE_ROWS}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the test has already failed
            return repr(error)
        return "\n".join(row for (row,) in rows)

    def number(self, question: str, *parameters: object) -> int:
        """Return the one number that a question is answered with."""
        return int(self.ask(question, *parameters)[0][0] or 0)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a command."""
        return {**os.environ, "GOSSAMER_POSTGRES": self.dsn, "GOSSAMER_REDIS": self.redis.url, **more}

    def count_of(self, *words: str) -> int:
        """Ask Redis for a number."""
        return int(self.redis.ask(*words).lstrip(":").split()[0])

    def leases(self) -> int:
        """Return how many leases are out."""
        return self.count_of("HLEN", f"{_KEYS}:x")

    def queued(self, job: str) -> int:
        """Return how many URLs of a job are scheduled."""
        answer = self.redis.ask("HGET", f"{_KEYS}:c:{job}", "queued").split()
        return int(answer[1]) if len(answer) > 1 else 0

    def redis_connections(self) -> int:
        """Return how many connections Redis has accepted since its start."""
        return int(self.redis.info("stats", "total_connections_received"))

    def postgres_processes(self) -> list[int]:
        """Return the processes of PostgreSQL, one of them for each connection."""
        parent = self.postgres.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
        return [parent, *map(int, children)]

    @contextmanager
    def frozen_postgres(self) -> Iterator[None]:
        """Let PostgreSQL hang: connections stay open, new ones are accepted by the system, nothing is said."""
        stopped = self.postgres_processes()
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


class Worker:
    """A worker process and what it said."""

    def __init__(self, servers: Servers, number: int, arguments: Sequence[str], failpoint: str) -> None:
        self._said = servers.folder / f"worker-{number}.log"
        with self._said.open("wb") as log:
            # With several processes it must be asked to end: only then the others do.
            last = signal.SIGTERM if "--processes" in arguments else signal.SIGKILL
            self.process = subprocess.Popen(
                leashed([sys.executable, "-m", "gossamer", "worker", *arguments], last),
                env=servers.environment(GOSSAMER_FAILPOINT=failpoint),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def said(self) -> str:
        """Return what it wrote."""
        return self._said.read_text("utf-8", "replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return what it logged under a name."""
        lines = [line for line in self.said().splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for line in lines if (event := msgspec.json.decode(line))["event"] == name]

    def wait(self, seconds: float = LONGEST_SECONDS) -> int:
        """Wait for its end; returns how it ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"worker {self.pid} did not end in {seconds} s: {self.said()}") from None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """End it and all it has started; they are a session of their own."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def is_running(self) -> bool:
        """Say whether it runs."""
        return self.process.poll() is None

    def children(self) -> list[int]:
        """Return the processes it has started."""
        try:
            return [
                int(word)
                for word in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("ascii").split()
            ]
        except OSError:  # it died while we looked
            return []

    def memory(self) -> int:
        """Return the bytes it keeps in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0

    def metric(self, name: str) -> float:
        """Return a number of its metrics; it must have been started with `--health-port 0`."""
        found = re.search(rf"^{name} (\S+)$", self.health("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0

    def backend_errors(self, backend: str) -> int:
        """Return how many calls to a backend have failed."""
        return int(self.metric(f'gossamer_backend_errors_total{{backend="{backend}"}}'))

    def health(self, path: str) -> tuple[int, str]:
        """Ask it how it is; returns status and text. It must have been started with `--health-port 0`."""
        port = wait_until(lambda: self.events("health"), "it serves its health")[0]["port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


class Crew:
    """The workers of a test. They are killed with it."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.all: list[Worker] = []

    def start(self, *arguments: str, failpoint: str = "") -> Worker:
        """Start a worker that ends when all is done."""
        return self.hire("--exit-when-done", *arguments, failpoint=failpoint)

    def hire(self, *arguments: str, failpoint: str = "") -> Worker:
        """Start a worker."""
        worker = Worker(self._servers, len(self.all), arguments, failpoint)
        self.all.append(worker)
        return worker

    def running(self) -> list[Worker]:
        """Return those that run."""
        return [worker for worker in self.all if worker.is_running()]

    def finish(self, seconds: float = LONGEST_SECONDS) -> None:
        """Wait until all have ended well, except those that were killed."""
        deadline = time.monotonic() + seconds
        for worker in self.running():
            code = worker.wait(max(deadline - time.monotonic(), 0.1))
            assert code in {0, -signal.SIGKILL}, worker.said()

    def evidence(self) -> list[tuple[str, str]]:
        """Return what was said and what is known, with a title each."""
        said = [(f"worker {worker.pid}", worker.said()[-_EVIDENCE_CHARACTERS:]) for worker in self.all]
        return said + [
            (table, self._servers.excerpt(table)) for table in ("urls", "fetches", "log", "sources")
        ]

    def bury(self) -> None:
        """Kill whoever is left."""
        for worker in self.all:
            worker.kill_all()


def submit(
    servers: Servers,
    site: Site,
    *flags: str,
    job: str = "job",
    failpoint: str = "",
    seconds: float = LONGEST_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Submit a crawl of a site; the last flag of a kind counts."""
    seeds = servers.folder / f"{job}.txt"
    seeds.write_text("\n".join(site.seeds), "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "gossamer", "submit", "-i", str(seeds), "--job", job, *FLAGS, *flags],
        env=servers.environment(GOSSAMER_FAILPOINT=failpoint),
        capture_output=True,
        text=True,
        check=not failpoint,
        timeout=seconds,
    )


def gossamer(servers: Servers, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command on these servers."""
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *arguments],
        env=servers.environment(),
        cwd=servers.folder,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )


def wait_until(is_so: Callable[[], Any], what: str, seconds: float = LONGEST_SECONDS) -> Any:
    """Look again and again until something is so; returns what was found."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"after {seconds} s it is still not so that {what}"
        time.sleep(0.02)
    return found


def holder_of(port: int, server_port: int, pids: Sequence[int]) -> int:
    """Return which of the processes holds the connection between these two ports of loopback; 0 if none does any more."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    ends = f":{port:04X}", f":{server_port:04X}"
    inodes = [row[9] for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1])]
    for pid, inode in itertools.product(pids, inodes):
        with suppress(OSError):  # it died, or closed a file, while we looked
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if os.readlink(descriptor) == f"socket:[{inode}]":  # noqa: PTH115 - it is no path
                    return pid
    return 0


# -- what must be true -----------------------------------------------------------------------------------


def check_done(
    servers: Servers,
    site: Site,
    *,
    job: str = "job",
    delay: float = DELAY,
    failed: dict[str, str] | None = None,
) -> None:
    """Assert that each page of the site is in the ledger once, in a final state, with one record, and was asked for politely.

    `failed` are pages that ended without a record, with the reason of each.
    """
    expected = dict.fromkeys(site.urls, "ok") | (failed or {})
    number = servers.number("SELECT id FROM jobs WHERE name = %s", job)
    rows = servers.ask("SELECT url, reason FROM urls WHERE job = %s", number)
    assert len(rows) == len(expected)
    wrong = {url: reason for url, reason in rows if expected.get(url) != reason}
    assert not wrong, f"{len(wrong)} of {len(rows)}: {dict(list(wrong.items())[:5])}"
    pages = servers.ask("SELECT record->>'url' FROM pages WHERE job = %s ORDER BY 1", number)
    assert [url for (url,) in pages] == sorted(url for url, reason in expected.items() if reason == "ok")
    check_books(servers, number)
    fetches = servers.ask("SELECT grp, started_at FROM fetches")
    check_apart(fetches, delay - _CLOCK_SECONDS)
    site.check_polite(delay)
    assert servers.leases() == 0
    assert servers.count_of("SCARD", f"{_KEYS}:lost:{job}") == 0


def check_books(servers: Servers, job: int) -> None:
    """Assert that the ledger's running numbers equal a recount, at whatever moment the job stands."""
    counted = servers.ask(
        "SELECT state, reason, sum(n)::bigint FROM counts WHERE job = %s GROUP BY 1, 2 HAVING sum(n) <> 0 ORDER BY 1, 2",
        job,
    )
    assert counted == servers.ask(
        "SELECT state, reason, count(*) FROM urls WHERE job = %s GROUP BY 1, 2 ORDER BY 1, 2", job
    )
    totals = dict(servers.ask("SELECT name, sum(n)::bigint FROM totals WHERE job = %s GROUP BY 1", job))
    records = totals.get("records", 0)
    assert records == servers.number("SELECT count(*) FROM pages WHERE job = %s", job)
    assert records == servers.number("SELECT count(DISTINCT fp) FROM pages WHERE job = %s", job)
    assert records == servers.number("SELECT sum(records) FROM log WHERE job = %s", job)
    assert records == servers.number("SELECT sum(pages) FROM sources WHERE job = %s", job)
    assert totals.get("fetches", 0) == servers.number("SELECT count(*) FROM fetches WHERE job = %s", job)
