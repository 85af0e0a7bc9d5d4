"""A crawl as a stream of record batches: on the running event loop, or on one in a thread of its own.

The record log is the buffer. A consumer that is slow leaves batches in the log, and they are read back when it
asks; in memory there is never more than a handful of batches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from gossamer.asking import job_folder
from gossamer.assembly import Job, open_job
from gossamer.config.job_file import JobSpec
from gossamer.engine.loop import Ending
from gossamer.engine.run import root_cause
from gossamer.frontier.job_folder import JobFolder
from gossamer.model.outcome import REASONS, Cursor, State
from gossamer.model.schedule import LogEntry

T = TypeVar("T")
_log = logging.getLogger("gossamer")

#: What is under way when the consumer leaves has this long to be finished.
_GRACE_SECONDS = 1.0
#: A crawl that was asked to stop is cancelled after this time: an output may wait for a reader that never comes.
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A crawl to be run. Without a name its ledger lives in a temporary folder, and goes with it."""

    spec: JobSpec
    jobs_dir: Path
    name: str = ""
    fresh: bool = False

    @contextmanager
    def folder(self) -> Iterator[JobFolder]:
        """Provide the job's folder."""
        if self.name:
            yield job_folder(self.jobs_dir, self.name)
            return
        path, owner = Path(tempfile.mkdtemp(prefix="gossamer-")), os.getpid()
        try:
            yield JobFolder(path / "job")
        finally:
            # A forked process has a copy of this frame, and must not tidy up while its parent works here. For the
            # same reason it is no TemporaryDirectory.
            if os.getpid() == owner:
                shutil.rmtree(path, ignore_errors=True)


class Feed:
    """Hands the batches that a run commits to one consumer, in order, each once. Implements `engine.outputs.Output`.

    It begins with the first batch of the run, which finds an empty queue and so is always fed; what a resumed
    job committed before stays in the log. Until the consumer takes a batch the next one waits, unless
    the consumer has left: then all that is to come is dropped.
    """

    def __init__(self) -> None:
        self._read_log: Callable[[int, int], Awaitable[list[LogEntry]]] | None = None
        self._position = 0
        self._lines = b""
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._left = False
        self._ended = False

    # -- the consumer's side ---------------------------------------------------------------------------

    async def take(self) -> bytes:
        """Wait for the next batch, as JSON lines; empty when there will be none."""
        await self._filled.wait()
        lines, self._lines = self._lines, b""
        if not self._ended:
            self._filled.clear()
        self._emptied.set()
        return lines

    def leave(self) -> None:
        """Want no more."""
        self._left = True
        self._emptied.set()

    # -- the run's side --------------------------------------------------------------------------------

    def connect(self, read_log: Callable[[int, int], Awaitable[list[LogEntry]]]) -> None:
        """Say where batches are found that could not be fed at once."""
        self._read_log = read_log

    def end(self) -> None:
        """Let the consumer know that there is nothing behind the batch that waits."""
        self._ended = True
        self._filled.set()

    @property
    def cursor(self) -> Cursor:
        """How far the consumer has come. It is not kept."""
        return Cursor("python", self._position)

    async def feed(self, entry: LogEntry) -> None:
        """Hand over an entry, and before it whatever the log holds between."""
        if self._position:
            await self._hand_over_log(before=entry.position)
        await self._hand_over(entry)

    async def catch_up(self) -> None:
        """Hand over everything this run has committed."""
        if self._position:
            await self._hand_over_log(before=None)

    async def close(self) -> None:
        """Do nothing: the consumer still has a batch to take, and `end` comes when the crawl has."""

    async def _hand_over_log(self, before: int | None) -> None:
        assert self._read_log is not None
        while not self._left and (before is None or self._position + 1 < before):
            entries = await self._read_log(self._position, 1)
            if not entries or (before is not None and entries[0].position >= before):
                return
            await self._hand_over(entries[0])

    async def _hand_over(self, entry: LogEntry) -> None:
        await self._emptied.wait()
        if self._left or entry.position <= self._position:
            return
        self._position = entry.position
        self._lines = entry.lines
        self._emptied.clear()
        self._filled.set()


class Crawl:
    """A crawl under way on the running event loop, and the batches it commits.

    * Everything it opens is opened and closed by one task: however that ends, nothing is left behind.
    * `stop` must be called in the end. It raises what ended the crawl, if that was an error.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._feed = Feed()
        self._halt: Callable[[], None] | None = None
        self._left = False
        # Not in a TaskGroup: a generator that yields inside of one would cancel whoever happens to resume it.
        self._work = asyncio.create_task(self._run(), name="gossamer crawl")
        self._work.add_done_callback(self._ended)

    async def batch(self) -> bytes:
        """Wait for the next batch of records, as JSON lines; empty at the end. May be cancelled at any time."""
        return await self._feed.take()

    async def stop(self) -> None:
        """End the crawl, soon and in order, and wait for it. Nothing is handed out any more."""
        self._left = True
        self._feed.leave()
        if self._halt is not None:
            self._halt()
        try:
            await asyncio.wait([self._work], timeout=_STOP_SECONDS)
        finally:
            gave_up = not self._work.done()
            if gave_up:
                self._work.cancel()
                await asyncio.wait([self._work])
        if not gave_up:
            self._work.result()

    def _ended(self, work: asyncio.Task[None]) -> None:
        if not work.cancelled():
            work.exception()  # retrieved: `stop` raises it, unless it is cancelled itself
        self._feed.end()

    async def _run(self) -> None:
        with self._plan.folder() as folder:
            async with open_job(self._plan.spec, folder, fresh=self._plan.fresh) as job:
                if job.resumed and await job.is_finished():
                    await job.fill_outputs()
                    return
                ending = await self._run_loop(job)
                _say_bad_lines(job)
                if ending is Ending.DONE:
                    await _say_nothing_fetched(job)
                if self._plan.name:
                    await asyncio.to_thread(job.write_report)

    async def _run_loop(self, job: Job) -> Ending:
        self._feed.connect(job.ledger.log)
        job.outputs.attach(self._feed)
        self._halt = lambda: job.loop.stop(Ending.INTERRUPTED, grace_seconds=_GRACE_SECONDS)
        if self._left:
            self._halt()
        try:
            return await job.loop.run()
        except BaseExceptionGroup as group:
            raise root_cause(group) from group


def _say_bad_lines(job: Job) -> None:
    bad = job.seeds.bad_lines
    if bad.count:
        _log.warning("%d lines of the input are not URLs and were passed over; %s", bad.count, bad.first)


async def _say_nothing_fetched(job: Job) -> None:
    """Give the reason for an empty iterator, which would be hard to guess."""
    counts = await job.ledger.counts()
    if counts and not any(state is State.FETCHED for state, _ in counts):
        (state, reason), n = counts.most_common(1)[0]
        _log.warning(
            "nothing could be fetched: %d %s (%s: %s)", n, state.label, reason, REASONS.get(reason, "")
        )


class BackgroundCrawl:
    """A crawl on an event loop in a thread of its own, for callers that are not asynchronous.

    * The caller may have a running event loop or none, be any thread, and run several at once.
    * `close` stops the crawl and ends the thread. A process that exits aborts what is still open.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._started: Future[tuple[asyncio.AbstractEventLoop, Crawl]] = Future()
        # A daemon, or a process could not exit before a crawl that waits for its consumer: see `_abort_all`.
        self._thread = threading.Thread(target=self._run, name="gossamer crawl", daemon=True)
        _register_exit()
        _open_crawls.add(self)
        self._thread.start()

    def batch(self) -> bytes:
        """Wait for the next batch of records, as JSON lines; empty at the end. Interruptible by Ctrl-C."""
        loop, crawl = self._started.result()
        return _wait_for(crawl.batch(), loop)

    def close(self) -> None:
        """Stop the crawl and wait until nothing of it is left. Raises what ended the crawl, if an error did."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return  # a forked process has a copy of this object, and none of its threads
        loop, crawl = self._started.result()
        if threading.current_thread() is self._thread:
            loop.stop()  # the garbage collector chose this thread to close us: it must not wait for itself
            return
        try:
            _wait_for(crawl.stop(), loop)
        finally:
            self.abort()

    def abort(self) -> None:
        """Cancel the crawl and end the thread. As safe as `close`, and less patient."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        loop, _ = self._started.result()
        with suppress(RuntimeError):  # the loop was closed between the question and the answer
            loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def _run(self) -> None:
        """Run a loop until it is stopped. The runner then cancels and awaits whatever is left on it."""

        async def start() -> Crawl:
            return Crawl(self._plan)

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                loop = runner.get_loop()
                self._started.set_result((loop, runner.run(start())))
                loop.run_forever()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(
                error
            )  # such as too many open files; raised where the crawl was started
        finally:
            _open_crawls.discard(self)


def _wait_for(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


#: Crawls whose threads run. Process-wide, because the end of the process is.
_open_crawls: set[BackgroundCrawl] = set()


@cache
def _register_exit() -> None:
    """Have `_abort_all` called when the main thread ends.

    `atexit` comes too late: by then executors refuse work, and the ledger could not be closed any more.
    """
    threading._register_atexit(_abort_all)  # type: ignore[attr-defined]  # noqa: SLF001 - see above


def _abort_all() -> None:
    """End the crawls that nobody closed, such as one in a global variable of a script."""
    for crawl in list(_open_crawls):
        crawl.abort()
