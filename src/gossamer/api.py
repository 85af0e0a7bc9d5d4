"""The Python API: a crawl as an iterator of pages.

    for page in gossamer.crawl("https://example.org/", max_pages=50):
        print(page.url, page.title)

`crawl` and `scrape` block, and work in a script, in a thread and in a notebook; `acrawl` and `ascrape` are for
`async for`, and run on the caller's event loop. All four promise the same:

* Pages come as they are committed. A slow consumer costs disk, not memory: the record log is the buffer.
* Leaving the loop (`break`, an error, `close`, Ctrl-C, cancellation) stops the crawl: requests under way have a second
  to finish, and nothing is left running or open.
* With `job` the crawl is a job as on the command line, and the same call resumes it. The iterator yields the pages that
  are committed in this run; what was committed and not yet yielded when the loop was left is in the job's
  record log, and in the files of `output`, which hold every page of the job exactly once.
* What goes wrong with a page is data: a crawl that fetched nothing is empty, and a warning in the log `gossamer` says
  why. A wrong argument raises `UsageError` or `InvalidUrl` at the call, a busy job `JobBusy`, a full disk
  `OutputFailed`: all are `GossamerError`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias, Unpack

import msgspec

from gossamer.asking import job_folder, job_spec
from gossamer.config.hosts import WORD as HOSTS
from gossamer.config.job_file import Mode
from gossamer.config.load import convert, load_settings
from gossamer.config.nearest import suggestion
from gossamer.config.settings import Settings, every_setting
from gossamer.config.words import SettingWords
from gossamer.errors import UsageError
from gossamer.streaming import BackgroundCrawl, Crawl, Plan

StrPath: TypeAlias = "str | os.PathLike[str]"
_JOBS_DIR = "gossamer-jobs"
_MAX_SHOWN = 80


class Page(msgspec.Struct, frozen=True):
    """One page as it was fetched."""

    #: Canonical, as it was found or given.
    url: str
    #: What answered: differs from `url` only in `scrape`, after a redirect.
    final_url: str
    status: int
    content_type: str
    #: When the request went out, in UTC.
    fetched_at: datetime
    #: Links followed from a seed.
    depth: int
    #: The page it was found on; empty for a seed.
    parent: str
    title: str
    description: str
    language: str
    headings: tuple[str, ...]
    #: Absolute, canonical, unique, in page order.
    links: tuple[str, ...]
    noindex: bool
    #: SHA-256 of the body, in hexadecimal.
    content_hash: str
    #: Length of the body, decompressed.
    bytes: int
    elapsed_ms: int
    attempt: int
    #: With `near_duplicates`, 64 bits of the text in hexadecimal; empty where there is no text.
    simhash: str = ""
    #: The URLs that redirected here, the first one first.
    redirected_from: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the server answered with a success, 200 to 299."""
        return 200 <= self.status <= 299

    def __repr__(self) -> str:
        title = f" {_short(self.title)!r}" if self.title else ""
        return f"<Page {self.status} {_short(self.url)}{title}>"


def crawl(
    *urls: str,
    job: str | None = None,
    jobs_dir: StrPath | None = None,
    output: StrPath | Sequence[StrPath] = (),
    fresh: bool = False,
    input: StrPath | None = None,  # noqa: A002 - the word of the command line
    **settings: Unpack[SettingWords],
) -> Generator[Page, None, None]:
    """Crawl from one or more URLs, follow their links, and yield the pages. Works where an event loop runs, too.

    `input` is a file with more URLs, one a line. `job` names a job that is kept in `jobs_dir` and can be resumed;
    `fresh` starts it over. `output` are files that get every page as well. `settings` are the flags of
    `gossamer crawl`: `max_pages=50`, `delay=0.5`, `depth=2`, `robots=False`.
    """
    return _pages(_plan("crawl", urls, job, jobs_dir, output, fresh, input, settings))


def scrape(
    *urls: str,
    job: str | None = None,
    jobs_dir: StrPath | None = None,
    output: StrPath | Sequence[StrPath] = (),
    fresh: bool = False,
    input: StrPath | None = None,  # noqa: A002 - the word of the command line
    **settings: Unpack[SettingWords],
) -> Generator[Page, None, None]:
    """Fetch just these URLs, follow nothing but redirects, and yield the pages. Arguments as for `crawl`."""
    return _pages(_plan("scrape", urls, job, jobs_dir, output, fresh, input, settings))


def acrawl(
    *urls: str,
    job: str | None = None,
    jobs_dir: StrPath | None = None,
    output: StrPath | Sequence[StrPath] = (),
    fresh: bool = False,
    input: StrPath | None = None,  # noqa: A002 - the word of the command line
    **settings: Unpack[SettingWords],
) -> AsyncGenerator[Page, None]:
    """Crawl like `crawl`, for `async for`, on the running event loop.

    Use `contextlib.aclosing` where the crawl must have stopped before the code behind the loop goes on.
    """
    return _apages(_plan("crawl", urls, job, jobs_dir, output, fresh, input, settings))


def ascrape(
    *urls: str,
    job: str | None = None,
    jobs_dir: StrPath | None = None,
    output: StrPath | Sequence[StrPath] = (),
    fresh: bool = False,
    input: StrPath | None = None,  # noqa: A002 - the word of the command line
    **settings: Unpack[SettingWords],
) -> AsyncGenerator[Page, None]:
    """Fetch just these URLs like `scrape`, for `async for`, on the running event loop."""
    return _apages(_plan("scrape", urls, job, jobs_dir, output, fresh, input, settings))


# -- from arguments to a plan --------------------------------------------------------------------------


def _plan(
    mode: Mode,
    urls: tuple[str, ...],
    job: str | None,
    jobs_dir: StrPath | None,
    output: StrPath | Sequence[StrPath],
    fresh: bool,
    input_path: StrPath | None,
    words: SettingWords,
) -> Plan:
    """Check everything that can be checked without touching a file or the network."""
    for url in urls:
        if not isinstance(url, str):
            raise UsageError(f"a URL is a string, not {_short(repr(url))}; for a list write {mode}(*urls)")
    if jobs_dir is not None and job is None:
        raise UsageError("jobs_dir is where named jobs are kept: give the job a name with job=")
    given = os.fspath(input_path) if input_path is not None else ""
    if given == "-":
        raise UsageError("standard input belongs to the program: pass its lines as URLs, or input= a file")
    outputs = [output] if isinstance(output, str | os.PathLike) else output
    spec = job_spec(mode, urls, given, [os.fspath(path) for path in outputs], _settings(words))
    place = Path(jobs_dir if jobs_dir is not None else os.environ.get("GOSSAMER_JOBS_DIR", _JOBS_DIR))
    if job is not None:
        job_folder(place, job)  # raises for a name that cannot be one
    return Plan(spec, place.absolute(), job or "", fresh)


def _settings(words: SettingWords) -> Settings:
    known = {setting.word: setting for setting in every_setting()}
    for word, value in words.items():
        if word == HOSTS:
            continue
        if word not in known:
            raise UsageError(f"there is no setting {word!r}{suggestion(word, known)}")
        convert(known[word], value, "argument")
    settings, _ = load_settings(words, os.environ, None)
    return settings


# -- from a plan to pages ------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(Page).decode


def _pages(plan: Plan) -> Generator[Page, None, None]:
    background = BackgroundCrawl(plan)
    try:
        while lines := background.batch():
            yield from _decoded(lines)
    finally:
        background.close()


async def _apages(plan: Plan) -> AsyncGenerator[Page, None]:
    work = Crawl(plan)
    try:
        while lines := await work.batch():
            for page in _decoded(lines):
                yield page
    finally:
        await work.stop()


def _decoded(lines: bytes) -> Iterator[Page]:
    return (_decode(line) for line in lines.split(b"\n") if line)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
