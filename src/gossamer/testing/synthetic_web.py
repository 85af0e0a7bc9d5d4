"""A whole small web on loopback: several virtual hosts, one port, and every oddity a crawler must survive.

`python -m gossamer.testing.synthetic_web` serves it from a process of its own and prints its address.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from gossamer.testing.synthetic_blog import build_blog
from gossamer.testing.synthetic_docs import build_docs
from gossamer.testing.synthetic_http import MAX_HEAD_BYTES, Received, serve_connection
from gossamer.testing.synthetic_lab import build_lab
from gossamer.testing.synthetic_reply import Answer, Expectation, Hit, Reply, text_reply
from gossamer.testing.synthetic_shop import build_shop
from gossamer.testing.synthetic_site import Site

__all__ = ["Expectation", "Hit", "Reply", "SyntheticWeb"]

ADDRESS = "127.0.0.1"
#: Virtual hosts a crawl of the whole web starts from. Everything finite is within four links of these.
SEED_HOSTS = ("docs", "shop", "blog", "lab", "broken", "dead")


class SyntheticWeb:
    """Serves `NAME.localhost:port` for every built-in and added host; a bare address is the host `docs`.

    * The same requests in the same order get the same answers; only the port differs between runs.
    * Pages that fail at first count visits per instance; `reset` makes them fail again.
    * `dead` is a host whose port refuses connections as long as the server lives.
    * `add` may be called at any time and from any thread.
    * An added function that raises ends the server, and the error is raised where the server was started.
    """

    def __init__(
        self, *, port: int = 0, slow_seconds: float = 2.0, on_hit: Callable[[Hit], None] | None = None
    ) -> None:
        self.port = port
        #: Every request in the order of arrival.
        self.hits: list[Hit] = []
        #: What a crawl from `seeds` should make of each URL, by canonical URL. Trap pages are not listed.
        self.expected: Mapping[str, Expectation] = {}
        self._slow_seconds = slow_seconds
        self._on_hit = on_hit
        self._visits: Counter[tuple[str, str]] = Counter()
        self._added: dict[tuple[str, str], Answer] = {}
        self._built: Mapping[tuple[str, str], Answer] = {}
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        # Bound but never listening: connections are refused, and nobody else can be given the port.
        self._dead = socket.socket()
        self._dead.bind((ADDRESS, 0))
        try:
            self._server = await asyncio.start_server(
                self._accept, ADDRESS, self.port, limit=MAX_HEAD_BYTES, backlog=1024, start_serving=False
            )
        except OSError:
            self._dead.close()
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        self._build()
        self._group = await asyncio.TaskGroup().__aenter__()
        await self._server.start_serving()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        self._dead.close()
        await self._group.__aexit__(kind, error, trace)
        await self._server.wait_closed()

    def __repr__(self) -> str:
        return f"<SyntheticWeb port={self.port} hits={len(self.hits)} open={len(self._connections)}>"

    @classmethod
    @contextmanager
    def in_thread(cls, *, port: int = 0, slow_seconds: float = 2.0) -> Iterator[Self]:
        """Serve from a thread with its own event loop, for tests that are not asynchronous themselves."""
        web = cls(port=port, slow_seconds=slow_seconds)
        started: Future[Callable[[], object]] = Future()

        async def serve() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            async with web:
                started.set_result(lambda: loop.call_soon_threadsafe(stop.set))
                await stop.wait()

        def run() -> None:
            try:
                asyncio.run(serve())
            except Exception as error:
                if started.done():
                    raise
                started.set_exception(error)  # raised in the thread that waits for the start

        thread = threading.Thread(target=run, name="synthetic-web", daemon=True)
        thread.start()
        stop_serving = started.result()
        try:
            yield web
        finally:
            stop_serving()
            thread.join()

    @property
    def seeds(self) -> list[str]:
        """Where the demo starts. The last one is the trap: it has no end, so bound the crawl by depth."""
        return [*self.finite_seeds, self.url("trap")]

    @property
    def finite_seeds(self) -> list[str]:
        """Where a crawl starts that must come to an end by itself."""
        return [self.url(host) for host in SEED_HOSTS]

    def url(self, host: str, path: str = "/") -> str:
        """Return the canonical URL of a path on a virtual host."""
        port = self._dead.getsockname()[1] if host == "dead" else self.port
        return f"http://{host}.localhost:{port}{path}"

    def add(self, host: str, path: str, answer: Answer) -> None:
        """Serve `answer` on `path`, in place of what was there.

        A path without a query also answers for any query that has no page of its own, and a path that
        ends in `/*` answers for all that is below it.
        """
        self._added[host, path] = answer

    def reset(self) -> None:
        """Forget all hits and visits; added pages stay."""
        self.hits.clear()
        self._visits.clear()

    def _build(self) -> None:
        site = Site(self.url)
        build_docs(site)
        build_shop(site)
        build_blog(site)
        build_lab(site, slow_seconds=self._slow_seconds)
        self._built, self.expected = site.answers, site.expected

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._server.is_serving():
            writer.transport.abort()  # accepted by the system just before we closed
            return
        peer: tuple[str, int] = writer.get_extra_info("peername") or ("", 0)
        task = self._group.create_task(self._converse(reader, writer, peer[1]), name=f"client-{peer[1]}")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        try:
            await serve_connection(reader, writer, lambda received: self._respond(received, port))
        except asyncio.CancelledError:
            # Closing would first wait for a client that may never read what it was sent.
            writer.transport.abort()
            raise

    async def _respond(self, received: Received, client_port: int) -> Reply:
        host, path = _split_target(received)
        self._visits[host, path] += 1
        hit = Hit(
            at=time.monotonic(),
            wall=time.time(),
            host=host,
            path=path,
            method=received.method,
            headers=received.headers,
            port=client_port,
            visit=self._visits[host, path],
            body=received.body,
        )
        self.hits.append(hit)
        if self._on_hit:
            self._on_hit(hit)
        answer = self._find(host, path)
        if isinstance(answer, Reply):
            return answer
        reply = answer(hit)
        return reply if isinstance(reply, Reply) else await reply

    def _find(self, host: str, path: str) -> Answer:
        for answers in (self._added, self._built):
            for candidate in _candidates(path):
                if answer := answers.get((host, candidate)):
                    return answer
        return text_reply(f"nothing at {path[:200]} on {host[:200]}\n", status=404)


def _split_target(received: Received) -> tuple[str, str]:
    """Tell the virtual host and the path of a request, whose target may also be a whole URL."""
    authority, path = received.headers.get("host", ""), received.target
    if "://" in path.partition("?")[0]:
        authority, slash, rest = path.partition("://")[2].partition("/")
        path = slash + rest or "/"
    name = authority.lower().rpartition("@")[2].partition(":")[0].rstrip(".").removesuffix(".localhost")
    return ("docs" if name in {"", ADDRESS, "localhost"} else name), path


def _candidates(path: str) -> Iterator[str]:
    bare = path.partition("?")[0]
    yield path
    yield bare
    while bare:
        bare = bare.rpartition("/")[0]
        yield f"{bare}/*"


async def _serve_until_signalled(
    port: int, slow_seconds: float, on_hit: Callable[[Hit], None] | None
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with SyntheticWeb(port=port, slow_seconds=slow_seconds, on_hit=on_hit) as web:
        sys.stdout.write(f"http://{ADDRESS}:{web.port}/\n" + "".join(f"{url}\n" for url in web.seeds))
        sys.stdout.flush()
        await stop.wait()


def _as_json_line(hit: Hit) -> str:
    return json.dumps(dataclasses.asdict(hit) | {"body": hit.body.decode("latin-1")}) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM. Prints the base URL, then the seeds, each on a line of its own."""
    parser = argparse.ArgumentParser(prog="synthetic_web", description="Serve a small web on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--slow-seconds", type=float, default=2.0, help="how long the slow page takes")
    parser.add_argument("--hits", type=Path, help="append every request to this file as a JSON line")
    options = parser.parse_args(arguments)
    if options.hits is None:
        asyncio.run(_serve_until_signalled(options.port, options.slow_seconds, None))
        return
    with options.hits.open("a", encoding="utf-8", buffering=1) as file:
        asyncio.run(
            _serve_until_signalled(
                options.port, options.slow_seconds, lambda hit: print(_as_json_line(hit), end="", file=file)
            )
        )


if __name__ == "__main__":
    main()
