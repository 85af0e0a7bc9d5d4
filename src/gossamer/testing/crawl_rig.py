"""The command line driven from a test, in this process or in one of its own, and what came of it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.frontier.answers import UrlRow
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb

#: Loopback, no delay, and retries that follow at once.
FAST = ("--allow-private", "--delay", "0", "--backoff-seconds", "0.02", "--progress", "none")
_MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended: its exit code, and what it said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Crawled(Ended):
    """A crawl that has ended: its records in the order written, and every URL of its ledger."""

    records: tuple[dict[str, Any], ...]
    rows: Mapping[str, UrlRow]

    @property
    def urls(self) -> list[str]:
        """The URLs of the records, in the order written."""
        return [record["url"] for record in self.records]

    def record(self, url: str) -> dict[str, Any]:
        """Return the one record of a URL."""
        (found,) = [record for record in self.records if record["url"] == url]
        return found

    def state(self, url: str) -> str:
        """Return what became of a URL, as in `failed timeout`."""
        row = self.rows[url]
        return f"{row.state.label} {row.reason}"


class CrawlRig:
    """Runs the command line on jobs below one folder, with settings fit for loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = folder / "jobs"

    def run(self, *arguments: str) -> Ended:
        """Run a command in this process."""
        from gossamer.cli.main import main  # noqa: PLC0415 - the rig must not load the whole program for `spawn`

        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*arguments])
        return Ended(code, out.getvalue(), err.getvalue())

    def spawn(
        self,
        *arguments: str,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        seconds: float = 120.0,
    ) -> Ended:
        """Run a command in a process of its own."""
        command = [sys.executable, "-m", "gossamer", *arguments]
        done = subprocess.run(  # noqa: S603 - our own interpreter and program
            command,
            input=stdin,
            capture_output=True,
            env=environment,
            cwd=self.folder,
            timeout=seconds,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode("utf-8", "backslashreplace"))

    def arguments(self, mode: str, *given: str, job: str = "job", output: str = "pages.jsonl") -> list[str]:
        """Return a command line with the fast settings; what is given comes last and wins."""
        place = ["--jobs-dir", str(self.jobs), "--job", job]
        outputs = ["-o", str(self.folder / output)] if output else []
        return [mode, *FAST, *place, *outputs, *given]

    def crawl(self, *given: str, job: str = "job", output: str = "pages.jsonl") -> Crawled:
        """Crawl in this process."""
        return self.inspect(self.run(*self.arguments("crawl", *given, job=job, output=output)), job, output)

    def scrape(self, *given: str, job: str = "job", output: str = "pages.jsonl") -> Crawled:
        """Scrape in this process."""
        return self.inspect(self.run(*self.arguments("scrape", *given, job=job, output=output)), job, output)

    def inspect(self, ended: Ended, job: str = "job", output: str = "pages.jsonl") -> Crawled:
        """Read what a crawl left behind."""
        return Crawled(
            ended.code, ended.out, ended.err, tuple(read_jsonl(self.folder / output)), self.rows(job)
        )

    def rows(self, job: str = "job") -> dict[str, UrlRow]:
        """Return every URL of a job's ledger."""
        path = self.jobs / job / "ledger.sqlite"
        if not path.exists():
            return {}
        with SqliteReader(path) as reader:
            return {row.url: row for row in reader.urls(limit=_MAX_ROWS)}


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file; none where there is no file."""
    if path.is_file():
        for line in path.read_bytes().splitlines():
            yield json.loads(line)


def html(*hrefs: str, head: str = "", body: str = "") -> Reply:
    """Answer with a page that links to these addresses."""
    links = "".join(f'<a href="{href}">{href}</a>\n' for href in hrefs)
    return Reply(body=f"<!doctype html><html><head><title>t</title>{head}</head><body>{body}{links}".encode())


def serve(web: SyntheticWeb, host: str, pages: Mapping[str, Sequence[str]]) -> str:
    """Serve a host whose pages link to each other as given; returns the URL of its first page."""
    for path, hrefs in pages.items():
        web.add(host, path, html(*hrefs))
    return web.url(host, next(iter(pages)))


def hits_of(web: SyntheticWeb, host: str) -> list[Hit]:
    """Return the page requests a host received, without those for robots.txt."""
    return [hit for hit in web.hits if hit.host == host and hit.path != "/robots.txt"]


def paths_of(web: SyntheticWeb, host: str) -> list[str]:
    """Return the paths a host was asked for, in order, without robots.txt."""
    return [hit.path for hit in hits_of(web, host)]
