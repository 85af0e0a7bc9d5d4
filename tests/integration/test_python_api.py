from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_type

import msgspec
import pytest
import uvloop

import gossamer
from gossamer import Page
from gossamer.config.settings import every_setting
from gossamer.config.words import SettingWords
from gossamer.engine.outputs import Outputs
from gossamer.model.schedule import LogEntry
from gossamer.streaming import Feed, _open_crawls
from gossamer.testing.synthetic_web import Reply, SyntheticWeb

PAGES = 40
#: Longer than any test may take: a reply that comes only if nobody gives it up.
NEVER_SECONDS = 1000.0
DOCS = Path(__file__).parents[2] / "docs" / "python.md"


def html(title: str, *links: str) -> Reply:
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    text = f'<html lang="en"><title>{title}</title><h1>{title}</h1><body>{anchors}</body></html>'
    return Reply(body=text.encode())


@dataclass(frozen=True, slots=True)
class Sites:
    """The synthetic web with a plain site, one that hangs, and one that redirects."""

    web: SyntheticWeb

    @property
    def plain(self) -> str:
        return self.web.url("plain")

    @property
    def all_plain(self) -> list[str]:
        return sorted([self.plain, *(self.web.url("plain", f"/{n}") for n in range(1, PAGES))])

    @property
    def hanging(self) -> str:
        return self.web.url("hanging")

    def hits(self, host: str) -> int:
        return sum(hit.host == host for hit in self.web.hits)


@pytest.fixture(name="sites", scope="module")
def _sites() -> Iterator[Sites]:
    with SyntheticWeb.in_thread() as web:
        web.add("plain", "/", html("start", *(f"/{n}" for n in range(1, PAGES))))
        for number in range(1, PAGES):
            web.add("plain", f"/{number}", html(f"page {number}", "/"))
        web.add("hanging", "/", html("start", "/never"))
        web.add("hanging", "/never", Reply(delay_seconds=NEVER_SECONDS))
        uvloop.new_event_loop().close()  # libuv opens a pipe for signals once in a process
        yield Sites(web)


@pytest.fixture(autouse=True)
def _loopback_without_delay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOSSAMER_ALLOW_PRIVATE", "true")
    monkeypatch.setenv("GOSSAMER_DELAY", "0")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait for what another thread, such as the server's, does in its own time."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def open_files(server_port: int) -> int:
    """Count this process's files, without the server's halves of connections: it lives here too, and has its own pace."""
    count = 0
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the one that lists the folder is gone by now
            copy = os.dup(int(path.name))
            if not stat.S_ISSOCK(os.fstat(copy).st_mode):
                os.close(copy)
                count += 1
                continue
            with socket.socket(fileno=copy) as opened:
                name = opened.getsockname()
            count += not (isinstance(name, tuple) and name[1] == server_port)
    return count


def possessions(sites: Sites) -> tuple[list[str], int, list[str]]:
    """Return this process's threads, open files, and temporary folders."""
    gc.collect()
    threads = sorted(thread.name for thread in threading.enumerate())
    folders = [path.name for path in Path(tempfile.gettempdir()).iterdir()]
    return threads, open_files(sites.web.port), folders


@contextmanager
def nothing_left(sites: Sites) -> Iterator[None]:
    before = possessions(sites)
    yield
    assert possessions(sites) == before


# -- pages ---------------------------------------------------------------------------------------------


def test_every_page_is_yielded_once_and_nothing_is_left_behind(sites: Sites) -> None:
    with nothing_left(sites):
        pages = list(gossamer.crawl(sites.plain))
        assert sorted(page.url for page in pages) == sites.all_plain


def test_a_page_has_the_facts_of_its_record(sites: Sites) -> None:
    first, second = gossamer.crawl(sites.plain, max_pages=2)

    assert first.ok
    assert (first.url, first.final_url, first.status, first.depth) == (sites.plain, sites.plain, 200, 0)
    assert (first.title, first.headings, first.language, first.description) == ("start", ("start",), "en", "")
    assert first.links == tuple(sites.web.url("plain", f"/{n}") for n in range(1, PAGES))
    assert (first.parent, second.parent, second.depth) == ("", sites.plain, 1)
    assert first.fetched_at.tzinfo is not None
    assert abs((datetime.now(UTC) - first.fetched_at).total_seconds()) < 120
    assert first.content_type == "text/html; charset=utf-8"
    assert (len(first.content_hash), first.bytes > 100, first.elapsed_ms >= 0) == (64, True, True)
    assert (first.attempt, first.noindex, first.redirected_from) == (1, False, ())
    with pytest.raises(AttributeError):
        first.title = "other"  # type: ignore[misc]


def test_the_repr_of_a_page_is_short_and_harmless(sites: Sites) -> None:
    page = next(gossamer.scrape(sites.plain))
    assert repr(page) == f"<Page 200 {sites.plain} 'start'>"
    hostile = msgspec.structs.replace(page, title="\x1b[2J" + "x" * 1000, url="http://a/" + "y" * 1000)
    assert "\x1b" not in repr(hostile)
    assert len(repr(hostile)) < 200


def test_an_error_page_is_a_page_that_is_not_ok(sites: Sites) -> None:
    (page,) = gossamer.scrape(sites.web.url("plain", "/nowhere"))
    assert (page.status, page.ok) == (404, False)


def test_scrape_fetches_its_inputs_and_says_what_answered(sites: Sites, tmp_path: Path) -> None:
    moved = Reply(302, (("Location", "/1"),))
    sites.web.add("plain", "/moved", moved)
    listed = tmp_path / "urls.txt"
    listed.write_text(f"{sites.web.url('plain', '/2')}\n")

    pages = {page.url: page for page in gossamer.scrape(sites.web.url("plain", "/moved"), input=listed)}

    assert sorted(pages) == [sites.web.url("plain", "/2"), sites.web.url("plain", "/moved")]
    page = pages[sites.web.url("plain", "/moved")]
    assert page.final_url == sites.web.url("plain", "/1")
    assert page.redirected_from == (sites.web.url("plain", "/moved"),)


def test_worker_processes_may_be_used_from_a_thread_that_is_not_the_main_one(sites: Sites) -> None:
    with nothing_left(sites):
        assert len(list(gossamer.crawl(sites.plain, workers=2))) == PAGES


# -- streaming and leaving -----------------------------------------------------------------------------


def test_a_page_comes_while_the_next_is_still_under_way_and_leaving_gives_that_up(sites: Sites) -> None:
    with nothing_left(sites):
        for page in gossamer.crawl(sites.hanging, timeout=NEVER_SECONDS):
            assert page.title == "start"
            break
        stopped_at = sites.hits("hanging")
    assert sites.hits("hanging") == stopped_at


def test_an_error_in_the_loop_stops_the_crawl(sites: Sites) -> None:
    def work() -> None:
        for page in gossamer.crawl(sites.hanging, timeout=NEVER_SECONDS):
            _ = page.depth / 0

    with nothing_left(sites), pytest.raises(ZeroDivisionError):
        work()


def test_closing_the_iterator_stops_the_crawl(sites: Sites) -> None:
    with nothing_left(sites), closing(gossamer.crawl(sites.hanging, timeout=NEVER_SECONDS)) as pages:
        next(pages)


def test_an_iterator_that_is_never_used_starts_nothing(sites: Sites) -> None:
    before = sites.hits("plain")
    with nothing_left(sites):
        pages = gossamer.crawl(sites.plain)
        del pages
    assert sites.hits("plain") == before


def test_ctrl_c_stops_the_crawl_while_it_waits_for_a_page(sites: Sites) -> None:
    def interrupt(_hit: object) -> Reply:
        os.kill(os.getpid(), signal.SIGINT)
        return Reply(delay_seconds=NEVER_SECONDS)

    sites.web.add("interrupting", "/", interrupt)
    with nothing_left(sites), pytest.raises(KeyboardInterrupt):
        list(gossamer.crawl(sites.web.url("interrupting"), timeout=NEVER_SECONDS))


def test_the_garbage_collector_may_close_a_crawl_from_the_thread_of_the_crawl(sites: Sites) -> None:
    with nothing_left(sites):
        gc.disable()
        try:
            pages = gossamer.crawl(sites.hanging, timeout=NEVER_SECONDS)
            next(pages)
            circle: list[object] = [pages]
            circle.append(circle)
            (background,) = _open_crawls
            loop, _ = background._started.result()
            del pages, circle
            loop.call_soon_threadsafe(gc.collect)
            background._thread.join()
        finally:
            gc.enable()


def test_a_slow_consumer_gets_everything_in_the_end(sites: Sites) -> None:
    sites.web.reset()
    pages = gossamer.crawl(sites.plain, commit_pages=1)
    urls = [next(pages).url]
    assert eventually(lambda: sites.hits("plain") >= PAGES)  # the crawl goes on without us
    urls += [page.url for page in pages]
    assert sorted(urls) == sites.all_plain


def test_what_a_slow_consumer_has_not_taken_waits_in_the_log_and_not_in_memory() -> None:
    log = [LogEntry(position, 1, f"{position}\n".encode()) for position in range(5, 205, 2)]
    read = []

    async def read_log(after: int, limit: int) -> list[LogEntry]:
        found = [entry for entry in log if entry.position > after][:limit]
        read.extend(found)
        return found

    async def consume() -> list[bytes]:
        feed = Feed()
        feed.connect(read_log)
        outputs = Outputs([])
        outputs.attach(feed)
        run = asyncio.create_task(outputs.run())
        run.add_done_callback(lambda _: feed.end())
        taken = []
        for entry in log:
            outputs.feed(entry)
            if entry.position % 8 == 5:  # a quarter as fast as the crawl: most entries find a full queue
                taken.append(await feed.take())
        outputs.close()
        while lines := await feed.take():
            taken.append(lines)
        await run
        return taken

    assert asyncio.run(consume()) == [entry.lines for entry in log]
    assert len(read) > len(log) / 2


def test_a_listener_leaves_no_cursor() -> None:
    outputs = Outputs([])
    outputs.attach(Feed())
    assert outputs.cursors() == []
    assert outputs.written() == []


# -- where it runs -------------------------------------------------------------------------------------


def test_the_blocking_iterator_works_where_an_event_loop_runs_as_in_a_notebook(sites: Sites) -> None:
    async def cell() -> int:
        return len(list(gossamer.crawl(sites.plain)))

    with nothing_left(sites):
        assert asyncio.run(cell()) == PAGES


def test_several_crawls_run_at_once_in_one_process(sites: Sites) -> None:
    def work(_number: int) -> list[str]:
        return sorted(page.url for page in gossamer.crawl(sites.plain))

    with nothing_left(sites), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [sites.all_plain] * 8


def test_two_crawls_may_be_consumed_in_turns(sites: Sites) -> None:
    with nothing_left(sites):
        turns = zip(gossamer.crawl(sites.plain), gossamer.crawl(sites.plain), strict=True)
        assert len(list(turns)) == PAGES


#: asyncio's own remark on callbacks that take long says more about the machine than about the script.
PREAMBLE = (
    "import logging; logging.getLogger('asyncio').addFilter(lambda record: ' took ' not in record.msg)\n"
)


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", PREAMBLE + text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_script_that_ends_with_an_open_iterator_ends(sites: Sites, tmp_path: Path) -> None:
    script = """
import sys, gossamer
pages = gossamer.crawl(sys.argv[1], timeout=1000)
print(next(pages).title)
"""
    ended = run_script(script, sites.hanging)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "start\n", "")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_forked_process_drops_its_copy_of_a_crawl_without_disturbing_it(sites: Sites) -> None:
    script = """
import os, sys, gossamer
pages = gossamer.crawl(sys.argv[1])
titles = [next(pages).title]
child = os.fork()
if not child:
    del pages
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
titles += [page.title for page in pages]
print(len(titles))
"""
    ended = run_script(script, sites.plain)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{PAGES}\n", "")


def test_importing_the_package_loads_nothing_of_the_crawler() -> None:
    script = "import sys, gossamer; assert 'gossamer.assembly' not in sys.modules; print(dir(gossamer))"
    ended = run_script(script)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "'acrawl'" in ended.stdout


# -- jobs and outputs ----------------------------------------------------------------------------------


def test_a_named_job_is_resumed_and_its_output_holds_every_page_once(sites: Sites, tmp_path: Path) -> None:
    def start() -> Generator[Page, None, None]:
        return gossamer.crawl(
            sites.plain, job="plain", jobs_dir=tmp_path / "jobs", output="pages.jsonl", commit_pages=1
        )

    first = []
    for page in start():
        first.append(page.url)
        if len(first) == 3:
            break
    second = [page.url for page in start()]

    assert not set(first) & set(second)
    written = [json.loads(line)["url"] for line in Path("pages.jsonl").read_text().splitlines()]
    assert sorted(written) == sites.all_plain
    assert list(start()) == []
    assert (tmp_path / "jobs" / "plain" / "report.json").exists()


def test_leaving_a_job_while_a_page_is_under_way_ends_it_in_order(sites: Sites) -> None:
    with closing(gossamer.crawl(sites.hanging, job="left", timeout=NEVER_SECONDS)) as pages:
        next(pages)
    report = json.loads(
        Path("gossamer-jobs/left/report.json").read_text()
    )  # written by a run that was not cancelled
    assert report["pages"] == 1


def test_leaving_a_job_whose_pages_wait_for_us_ends_it_in_order(sites: Sites) -> None:
    sites.web.reset()
    with closing(gossamer.crawl(sites.plain, job="slow", commit_pages=1)) as pages:
        next(pages)
        assert eventually(lambda: sites.hits("plain") >= PAGES)
    assert Path("gossamer-jobs/slow/report.json").exists()


def test_a_raised_limit_yields_only_the_pages_of_the_new_run(sites: Sites) -> None:
    first = [page.url for page in gossamer.crawl(sites.plain, job="limited", max_pages=5)]
    second = [page.url for page in gossamer.crawl(sites.plain, job="limited", max_pages=12)]
    again = [page.url for page in gossamer.crawl(sites.plain, job="limited", max_pages=5, fresh=True)]
    assert (len(first), len(second), len(again)) == (5, 7, 5)
    assert not set(first) & set(second)
    assert Path("gossamer-jobs/limited/ledger.sqlite").exists()


def test_a_job_that_is_being_worked_on_is_busy(sites: Sites) -> None:
    with nothing_left(sites):
        with closing(gossamer.crawl(sites.hanging, job="one", timeout=NEVER_SECONDS)) as pages:
            next(pages)
            with pytest.raises(gossamer.JobBusy, match="being worked on"):
                next(gossamer.crawl(sites.hanging, job="one", timeout=NEVER_SECONDS))
        assert list(gossamer.crawl(sites.hanging, job="one", timeout=0.2, retries=0)) == []


def test_an_output_that_fails_is_raised_in_the_caller(sites: Sites) -> None:
    with nothing_left(sites), pytest.raises(gossamer.OutputFailed, match="/dev/full"):
        list(gossamer.crawl(sites.plain, output="/dev/full"))


def test_an_output_that_cannot_be_opened_leaves_the_others_closed(sites: Sites) -> None:
    Path("taken.jsonl").write_text("mine\n")
    with nothing_left(sites), pytest.raises(gossamer.UsageError, match="exists already"):
        list(gossamer.crawl(sites.plain, output=["new.jsonl", Path("taken.jsonl")]))
    assert Path("taken.jsonl").read_text() == "mine\n"


def test_a_crawl_that_fetches_nothing_is_empty_and_says_why(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    with nothing_left(sites):
        assert list(gossamer.crawl(sites.plain, allow_private=False)) == []
    assert "nothing could be fetched: 1 refused (private_address" in caplog.text


def test_lines_of_an_input_that_are_no_urls_are_told(
    sites: Sites, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed = tmp_path / "urls.txt"
    listed.write_text(f"nonsense\n{sites.plain}\n")
    assert len(list(gossamer.scrape(input=listed))) == 1
    assert "1 lines of the input are not URLs" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ([], {}, "no URL given"),
        (["example.org"], {}, "did you mean https://example.org"),
        ([["https://a.example/"]], {}, r"write crawl\(\*urls\)"),
        (["https://a.example/"], {"max_page": 3}, "no setting 'max_page'; did you mean 'max_pages'"),
        (["https://a.example/"], {"max_pages": "many"}, r"max_pages \(argument\): 'many'"),
        (["https://a.example/"], {"delay": -1}, r"delay \(argument\) must be at least 0"),
        (["https://a.example/"], {"scope": "galaxy"}, r"scope \(argument\)"),
        (["https://a.example/"], {"fields": ["url", "colour"]}, "no field 'colour'"),
        (["https://a.example/"], {"job": "../x"}, "not a usable name"),
        (["https://a.example/"], {"job": ""}, "not a usable name"),
        (["https://a.example/"], {"jobs_dir": "x"}, "give the job a name"),
        (["https://a.example/"], {"output": "pages.docx"}, "pages.docx"),
        ([], {"input": "missing.txt"}, "there is no input file"),
        ([], {"input": "-"}, "standard input"),
    ],
)
def test_a_wrong_argument_is_a_usage_error_at_the_call(
    arguments: list[Any], settings: dict[str, Any], message: str
) -> None:
    for function in (gossamer.crawl, gossamer.acrawl):
        with pytest.raises(gossamer.UsageError, match=message):
            function(*arguments, **settings)


def test_a_text_that_is_no_url_is_invalid_at_the_call() -> None:
    with pytest.raises(gossamer.InvalidUrl):
        gossamer.crawl("http://[bad/")


# -- async ---------------------------------------------------------------------------------------------


def run_on_both_loops(sites: Sites, work: Callable[[], Awaitable[None]]) -> None:
    async def checked() -> None:
        await work()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, others

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with nothing_left(sites), asyncio.Runner(loop_factory=factory) as runner:
            runner.run(checked())


def test_async_for_yields_every_page(sites: Sites) -> None:
    async def work() -> None:
        urls = [page.url async for page in gossamer.acrawl(sites.plain)]
        assert sorted(urls) == sites.all_plain
        assert [page.url async for page in gossamer.ascrape(sites.plain)] == [sites.plain]

    run_on_both_loops(sites, work)


def test_leaving_aclosing_has_stopped_the_crawl(sites: Sites) -> None:
    async def work() -> None:
        async with aclosing(gossamer.acrawl(sites.hanging, timeout=NEVER_SECONDS)) as pages:
            async for page in pages:
                assert page.title == "start"
                break

    run_on_both_loops(sites, work)


def test_breaking_out_of_async_for_leaves_nothing_when_the_program_ends(sites: Sites) -> None:
    async def work() -> None:
        async for _ in gossamer.acrawl(sites.hanging, timeout=NEVER_SECONDS):
            break

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with nothing_left(sites), asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work())


def test_cancelling_the_consumer_stops_the_crawl(sites: Sites) -> None:
    async def consume(begun: asyncio.Event) -> None:
        async for _ in gossamer.acrawl(sites.hanging, timeout=NEVER_SECONDS):
            begun.set()

    async def work() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(consume(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_on_both_loops(sites, work)


def test_cancelling_a_consumer_twice_stops_the_crawl_at_once(sites: Sites) -> None:
    async def consume(begun: asyncio.Event) -> None:
        async for _ in gossamer.acrawl(sites.hanging, timeout=NEVER_SECONDS):
            begun.set()

    async def work() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(consume(begun))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_on_both_loops(sites, work)


def test_an_error_of_an_async_crawl_is_raised_in_the_caller(sites: Sites) -> None:
    async def work() -> None:
        with pytest.raises(gossamer.OutputFailed):
            async for _ in gossamer.acrawl(sites.plain, output="/dev/full"):
                pass

    run_on_both_loops(sites, work)


# -- types and documentation ---------------------------------------------------------------------------


def test_the_keyword_arguments_are_exactly_the_settings() -> None:
    assert set(SettingWords.__annotations__) == {"hosts", *(setting.word for setting in every_setting())}, (
        "src/gossamer/config/words.py lists the settings for type checkers: bring it up to date"
    )


def test_the_api_is_typed(sites: Sites) -> None:
    pages = gossamer.crawl(sites.plain, depth=None, include=["*"], max_size="1MB", robots=False)
    assert_type(pages, Generator[Page, None, None])
    page = next(pages)
    assert_type(page.links, tuple[str, ...])
    assert_type(page.fetched_at, datetime)
    assert_type(page.ok, bool)
    assert_type(gossamer.acrawl(sites.plain), AsyncGenerator[Page, None])
    with pytest.raises(gossamer.UsageError):
        gossamer.crawl(sites.plain, max_page=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        gossamer.nonsense  # type: ignore[attr-defined]  # noqa: B018


def documented() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_guide_has_examples() -> None:
    assert len(documented()) >= 5


@pytest.mark.parametrize("number", range(len(documented())))
def test_every_example_of_the_guide_runs(sites: Sites, number: int) -> None:
    example = documented()[number].replace("https://example.org/", sites.plain)
    exec(compile(example, f"{DOCS.name} example {number}", "exec"), {"__name__": "__main__"})
