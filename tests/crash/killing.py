"""A generated site, the command that crawls it, and what must be true of the job whatever happened to the command."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from gossamer.cli.main import main as gossamer
from gossamer.testing.processes import leashed
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb

#: No command runs longer than this: a crawl that hangs is killed, and its test fails.
LONGEST_SECONDS = 120.0
KILLED = -signal.SIGKILL

CONCURRENCY = 8
MAX_UNCOMMITTED = 20
#: Small commits, so that even a small site has many boundaries to be killed at. And hardly a sweep: whoever waits
#: for something that only the sweeper will find hangs, and is found out.
FLAGS = (
    *("--allow-private", "--delay", "0", "--per-host", "3", "--progress", "none"),
    *("-c", str(CONCURRENCY), "--commit-pages", "5", "--commit-seconds", "0.05"),
    *("--max-uncommitted-pages", str(MAX_UNCOMMITTED), "--seed-batch-urls", "1"),
    *("--sweep-seconds", "3600"),
)
#: For tests that count boundaries: eight pages in a commit at most, however long one takes.
SMALL_COMMITS = ("-c", "4", "--max-uncommitted-pages", "4", "--commit-pages", "2")
#: What of a record depends on the moment of its fetch, or on which of several links was found first.
_INCIDENTAL = ("fetched_at", "elapsed_ms", "depth", "parent")

Record = dict[str, Any]
Page = tuple[str, str]


def ignore(_hit: Hit) -> None:
    """Let a hit pass."""


class GeneratedSite:
    """`pages` pages on three hosts, ten links each, all of them reachable from one seed a host.

    `headings` of a hundred random characters make its records larger.
    """

    def __init__(
        self, web: SyntheticWeb, pages: int, *, delay_seconds: float = 0.0, headings: int = 0
    ) -> None:
        self.web = web
        self.delay_seconds = delay_seconds
        #: No page is answered while it is not set.
        self.open = threading.Event()
        self.open.set()
        self._headings = headings
        hosts = [f"site{pages}-{number}" for number in range(3)]
        self.pages: list[Page] = [(hosts[number % 3], f"/{number}") for number in range(pages)]
        self.urls = [web.url(*page) for page in self.pages]
        self.seeds = self.urls[:3]
        #: Called in the server's thread with every hit on the site, before it is answered.
        self.on_hit: Callable[[Hit], None] = ignore
        #: Client ports of the requests that are being answered, by page.
        self.under_way: dict[Page, int] = {}
        for number, page in enumerate(self.pages):
            body = self._body(number)
            web.add(*page, lambda hit, body=body: self._answer(hit, body))  # type: ignore[misc]

    def _body(self, number: int) -> bytes:
        chance = random.Random(number)
        # The tree makes every page reachable; its other links are what most links are: known already.
        targets = [
            number * 3 + 3,
            number * 3 + 4,
            number * 3 + 5,
            *chance.choices(range(len(self.urls)), k=7),
        ]
        links = "".join(f'<a href="{self.urls[target % len(self.urls)]}">{target}</a>' for target in targets)
        headings = "".join(f"<h2>{chance.randbytes(50).hex()}</h2>" for _ in range(self._headings))
        return f"<title>Page {number}</title>{headings}{links}".encode()

    async def _answer(self, hit: Hit, body: bytes) -> Reply:
        page = (hit.host, hit.path)
        self.under_way[page] = hit.port
        try:
            self.on_hit(hit)
            while not self.open.is_set():
                await asyncio.sleep(0.01)
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
        finally:
            self.under_way.pop(page, None)
        return Reply(body=body)

    def page_hits(self) -> Counter[Page]:
        """Return how often each page was asked for."""
        pages = set(self.pages)
        return Counter(page for hit in list(self.web.hits) if (page := (hit.host, hit.path)) in pages)

    def after_hits(self, count: int, act: Callable[[], None]) -> threading.Event:
        """Do something once, when that many more pages were asked for; the event says that it was done."""
        left = count
        done = threading.Event()

        def on_hit(_hit: Hit) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                act()
                done.set()

        self.on_hit = on_hit
        return done


@dataclass(frozen=True, slots=True)
class Crawl:
    """A command line and the job it works on. The same one again resumes the job."""

    folder: Path
    site: GeneratedSite
    outputs: tuple[Path, ...]
    flags: tuple[str, ...] = FLAGS

    @property
    def job(self) -> Path:
        """The job's folder."""
        return self.folder / "jobs" / "job"

    def with_flags(self, *flags: str) -> Crawl:
        """Return the same job with further flags; the last of a kind counts."""
        return replace(self, flags=(*self.flags, *flags))

    def command(self) -> list[str]:
        """Return the command line."""
        seeds = self.folder / "seeds.txt"
        if not seeds.exists():
            seeds.write_text("\n".join(self.site.seeds), "utf-8")
        outputs = [word for path in self.outputs for word in ("-o", str(path))]
        place = ["--jobs-dir", str(self.folder / "jobs"), "--job", "job"]
        return [
            *(sys.executable, "-m", "gossamer", "crawl", "-i", str(seeds)),
            *(*outputs, *place, *self.flags),
        ]

    def run(self, failpoint: str = "") -> subprocess.CompletedProcess[str]:
        """Run to the end, or to the pass of a failpoint (`commit:done@3`) that kills it."""
        environment = {**os.environ, "GOSSAMER_FAILPOINT": failpoint}
        return subprocess.run(
            self.command(),
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
            env=environment,
        )

    def finish(self) -> str:
        """Run until the job is done; returns what it said."""
        done = self.run()
        assert done.returncode == 0, done.stderr
        return done.stderr

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        """Start the command; when the block ends or `LONGEST_SECONDS` are over, it is killed if it still runs."""
        with subprocess.Popen(
            leashed(self.command()),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A process group of its own, as in a terminal: what is sent to it does not reach the tests.
            start_new_session=True,
        ) as process:
            watchdog = threading.Timer(LONGEST_SECONDS, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                watchdog.cancel()
                process.kill()


def crawl_of(site: GeneratedSite, folder: Path, *flags: str) -> Crawl:
    """Return a crawl of a whole site into a plain and a compressed output."""
    return Crawl(folder, site, (folder / "a.jsonl", folder / "b.jsonl.zst"), (*FLAGS, *flags))


# -- what must be true ---------------------------------------------------------------------------------


def read_records(path: Path) -> list[Record]:
    """Read an output. A torn line or frame is an error."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()
    assert not data or data.endswith(b"\n"), "torn line"
    if ".csv" in path.name:
        rows = csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)
        return [{**row, "status": int(row["status"])} for row in rows]
    return [msgspec.json.decode(line) for line in data.splitlines()]


def essence(records: list[Record]) -> list[Record]:
    """Return what must be the same in every run, in a fixed order."""
    kept = [{key: value for key, value in record.items() if key not in _INCIDENTAL} for record in records]
    return sorted(kept, key=lambda record: str(record["url"]))


def check_complete(crawl: Crawl, *, without: Collection[str] = (), refused: int = 0) -> None:
    """Assert that the job is done, every output has each page once, and the ledger's numbers add up.

    `without` are pages of the site that ended without a record, `refused` is the number of other URLs.
    """
    pages = sorted(set(crawl.site.urls) - set(without))
    for output in crawl.outputs:
        records = read_records(output)
        assert sorted(record["url"] for record in records) == pages, output.name
        assert {record["status"] for record in records} == {200}
        assert all(record["title"] == f"Page {record['url'].rpartition('/')[2]}" for record in records)
    check_ledger(crawl)
    with closing(_ledger(crawl)) as db:
        assert db.execute("SELECT count(*) FROM urls WHERE state = 0").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM urls").fetchone() == (len(crawl.site.urls) + refused,)
        assert db.execute("SELECT n FROM totals WHERE name = 'records'").fetchone() == (len(pages),)
        cursors = db.execute("SELECT output, records FROM cursors").fetchall()
    expected = {str(output): len(pages) for output in crawl.outputs}
    assert expected.items() <= dict(cursors).items()


def check_refetches(crawl: Crawl, kills: int) -> None:
    """Assert that a kill cost no more fetches than were in flight or uncommitted, by the bounds of the settings."""
    hits = crawl.site.page_hits()
    refetched = hits.total() - len(crawl.site.urls)
    assert 0 <= refetched <= kills * (CONCURRENCY + MAX_UNCOMMITTED), hits.most_common(5)
    assert max(hits.values()) <= kills + 1
    robots = Counter(hit.host for hit in crawl.site.web.hits if hit.path == "/robots.txt")
    assert max(robots.values()) <= kills + 1


def check_ledger(crawl: Crawl) -> None:
    """Assert that the ledger is sound and its running numbers equal a recount, at whatever moment the job stands."""
    with closing(_ledger(crawl)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        counted = db.execute("SELECT state, reason, n FROM counts WHERE n != 0").fetchall()
        recounted = db.execute("SELECT state, reason, count(*) FROM urls GROUP BY state, reason").fetchall()
        assert sorted(counted) == sorted(recounted)
        assert _number(db, "SELECT count(*) FROM urls") == _number(db, "SELECT count(DISTINCT fp) FROM urls")
        totals = dict(db.execute("SELECT name, n FROM totals").fetchall())
        assert totals.get("records", 0) == _number(db, "SELECT sum(records) FROM log")
        assert totals.get("records", 0) == _number(db, "SELECT sum(pages) FROM hosts")
        assert totals.get("fetches", 0) == _number(db, "SELECT count(*) FROM fetches")
        assert totals.get("wire_bytes", 0) == _number(db, "SELECT sum(wire_bytes) FROM fetches")


def check_readable(crawl: Crawl) -> None:
    """Assert that the commands that answer from a ledger answer from this one, as it was left behind."""
    for command in (["status"], ["report"], ["report", "--json"], ["urls"]):
        assert gossamer([*command, "job", "--jobs-dir", str(crawl.job.parent)]) == 0, command


def has_begun(crawl: Crawl) -> bool:
    """Say whether the ledger was made: the command may have been stopped before, or in the middle of it."""
    if not (crawl.job / "ledger.sqlite").exists():
        return False
    with closing(_ledger(crawl)) as db:
        return _number(db, "PRAGMA user_version") > 0


def _number(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0] or 0)


def _ledger(crawl: Crawl) -> sqlite3.Connection:
    return sqlite3.connect(crawl.job / "ledger.sqlite")


# -- processes -----------------------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    """Return the processes a process has started and not yet buried."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    """Say whether a process still runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def holder_of(port: int, server_port: int, pids: list[int]) -> int:
    """Return which of the processes holds the connection between these two ports, or 0 if none does any more."""
    inode = _socket_inode(port, server_port)
    for pid in pids:
        with suppress(OSError):  # it died, or closed a file, while we looked
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if os.readlink(descriptor) == f"socket:[{inode}]":  # noqa: PTH115 - it is no path
                    return pid
    return 0


def _socket_inode(port: int, server_port: int) -> str:
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        fields = line.split()
        # The port alone does not do: a process may have the same one, to another server.
        if fields[1].endswith(f":{port:04X}") and fields[2].endswith(f":{server_port:04X}"):
            return fields[9]
    return ""


def wait_for_end(handles: list[int]) -> bool:
    """Wait until the processes of these pidfds have ended, and close them; says whether they all have."""
    try:
        return all(select.select([handle], [], [], LONGEST_SECONDS)[0] for handle in handles)
    finally:
        for handle in handles:
            os.close(handle)
