"""Servers that answer too slowly are cut long before a generous timeout; those that think first are not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from gossamer.config.settings import FetchSettings
from gossamer.fetch.http import HttpFetcher
from gossamer.fetch.resolver import Resolver
from gossamer.model.response import FetchFailure, FetchProblem, Response

Run = Callable[[Coroutine[Any, Any, None]], None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WINDOW = 0.1
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda scenario: runner.run(asyncio.wait_for(scenario, 30))


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    tasks: list[asyncio.Task[Any]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def fetch_from(serve: Serve, **changes: Any) -> Response | FetchFailure:
    # Everything is allowed a minute, except to be slow.
    rate = {"min_bytes_per_second": 1000, "min_rate_seconds": WINDOW, "timeout_seconds": 60.0}
    settings = FetchSettings(allow_private=True, **{**rate, **changes})
    fetcher = HttpFetcher(settings, Resolver(allow_private=True), time.time)
    async with serving(serve) as url:
        try:
            return await fetcher.fetch(url)
        finally:
            assert len(fetcher._deadlines) == 0
            await fetcher.close()


def sending(*pieces: bytes, gap: float, first_gap: float = 0.0) -> Serve:
    """Send pieces with a gap between them, then nothing more until the client goes away."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(first_gap)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(gap)
        await reader.read(1)

    return serve


@pytest.mark.parametrize(
    ("serve", "status"),
    [
        pytest.param(sending(HEAD + b"x", gap=0), 200, id="stalls in the body"),
        pytest.param(sending(HEAD, *[b"x"] * 3000, gap=0.02), 200, id="drips the body"),
        pytest.param(sending(*[bytes([byte]) for byte in HEAD], gap=0.02), 0, id="drips the head"),
    ],
)
def test_a_server_that_drips_is_cut(run: Run, serve: Serve, status: int) -> None:
    async def scenario() -> None:
        outcome = await fetch_from(serve)
        assert isinstance(outcome, FetchFailure), outcome
        assert outcome.problem is FetchProblem.TIMEOUT
        assert outcome.detail == "too slow: less than 1000 bytes/s for 0.1 s"
        assert outcome.status == status
        assert outcome.started_at > 0

    run(scenario())


def test_a_server_may_think_as_long_as_the_timeout_allows(run: Run) -> None:
    async def scenario() -> None:
        outcome = await fetch_from(sending(HEAD + b"x" * 3000, gap=0, first_gap=5 * WINDOW))
        assert isinstance(outcome, Response), outcome

    run(scenario())


def test_a_slow_server_above_the_rate_is_heard_to_the_end(run: Run) -> None:
    async def scenario() -> None:
        pieces = [HEAD, *[b"x" * 500] * 6]
        # It takes longer than a window, and a window has room for several pieces, should some be late.
        slowly = {"min_bytes_per_second": 300, "min_rate_seconds": 1.0}
        outcome = await fetch_from(sending(*pieces, gap=0.25), **slowly)
        assert isinstance(outcome, Response), outcome
        assert len(outcome.body) == 3000

    run(scenario())


@pytest.mark.parametrize("off", [{"min_bytes_per_second": 0}, {"min_rate_seconds": 0.0}])
def test_without_a_rate_the_timeout_decides(run: Run, off: dict[str, Any]) -> None:
    async def scenario() -> None:
        outcome = await fetch_from(sending(HEAD + b"x", gap=0), timeout_seconds=0.5, **off)
        assert isinstance(outcome, FetchFailure)
        assert outcome.detail == "still receiving after 0.5 s"

    run(scenario())


def test_a_cut_does_not_hold_up_or_spare_the_others(run: Run) -> None:
    async def scenario() -> None:
        settings = FetchSettings(allow_private=True, min_bytes_per_second=1000, min_rate_seconds=WINDOW)
        fetcher = HttpFetcher(settings, Resolver(allow_private=True), time.time)
        stalls = sending(HEAD + b"x", gap=0)
        answers = sending(HEAD + b"x" * 3000, gap=0)
        async with serving(stalls) as slow, serving(answers) as fast:
            outcomes = await asyncio.gather(*(fetcher.fetch(url) for url in [slow, fast] * 5))
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [FetchFailure, Response] * 5
        assert len(fetcher._deadlines) == 0
        await fetcher.close()

    run(scenario())
