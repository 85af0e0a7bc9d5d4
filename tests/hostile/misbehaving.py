"""A raw server that sends whatever it is told to, and a fetcher to send it to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from gossamer.config.settings import FetchSettings
from gossamer.fetch.http import HttpFetcher
from gossamer.fetch.resolver import Resolver
from gossamer.model.response import FetchFailure, Response

Send = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_SECONDS = 30.0


class Misbehaving:
    """Answers the n-th request, over all connections, with the n-th reply; then closes the connection."""

    def __init__(self, *replies: bytes | Send) -> None:
        self.replies = list(replies)
        self.connections = 0
        self.requests = 0
        self.sent = 0
        self.port = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/"

    async def flood(self, writer: asyncio.StreamWriter, start: bytes, again: bytes, megabytes: int) -> None:
        """Send a start, and then the same again and again, as long as anyone listens."""
        writer.write(start)
        block = again * max(1, 65_536 // len(again))
        while self.sent < megabytes * 1_000_000:
            writer.write(block)
            self.sent += len(block)
            await writer.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while self.replies:
                await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                reply = self.replies.pop(0)
                if callable(reply):
                    await reply(reader, writer)
                else:
                    writer.write(reply)
                await writer.drain()
        writer.close()

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[Misbehaving]:
        """Listen on loopback."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def fetching(**changes: Any) -> AsyncIterator[HttpFetcher]:
    """Make a fetcher that may connect to loopback."""
    settings = FetchSettings(allow_private=True, **changes)
    fetcher = HttpFetcher(settings, Resolver(allow_private=True), time.time)
    try:
        yield fetcher
    finally:
        await fetcher.close()


def outcome_of(*replies: bytes | Send, **changes: Any) -> Response | FetchFailure:
    """Fetch once from a server that sends this. An exception nobody caught fails the test, and so does a hang."""
    bugs: list[dict[str, Any]] = []

    async def scenario() -> Response | FetchFailure:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
        async with Misbehaving(*replies).up() as site, fetching(**changes) as fetcher:
            return await fetcher.fetch(site.url)

    outcome = asyncio.run(asyncio.wait_for(scenario(), _SECONDS))
    assert bugs == []
    return outcome
