"""Fetching through real little proxies: http, https and SOCKS 5."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import subprocess
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gossamer.config.settings import FetchSettings
from gossamer.errors import UsageError
from gossamer.fetch.http import HttpFetcher, check_headers
from gossamer.fetch.resolver import Resolver
from gossamer.model.response import FetchFailure, FetchProblem, Response

Run = Callable[[Coroutine[Any, Any, None]], None]
KINDS = ["http", "https", "socks5"]
SECRET = "s3:cret"
TOKEN = b64encode(f"me:{SECRET}".encode())


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda scenario: runner.run(asyncio.wait_for(scenario, 60))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=DNS:site.example,DNS:proxy.example,IP:127.0.0.1"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run(
        [*new, "-subj", "/CN=test", "-addext", names, "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


def server_tls(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


class Server:
    """Something that listens, and is gone afterwards."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self._tasks: list[asyncio.Task[Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        try:
            await self.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def up(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


class Site(Server):
    """The target. Answers every request with a status, and remembers what it was sent."""

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            status = self.statuses.pop(0) if self.statuses else 200
            writer.write(f"HTTP/1.1 {status} Text\r\nContent-Length: 2\r\n\r\nok".encode())
            await writer.drain()


class Proxy(Server):
    """A proxy that does what it is asked, notes it in `asked`, or gives the `answer` it was told to."""

    def __init__(self, kind: str, *, credentials: str = "", answer: bytes | None = None) -> None:
        super().__init__()
        self.kind = kind
        self.credentials = credentials
        self.answer = answer
        #: "host:port" of each tunnel, and the heads of forwarded requests.
        self.asked: list[str] = []
        self.forwarded: list[bytes] = []
        #: Where names lead that the proxy itself resolves.
        self.names = {"site.example": "127.0.0.1"}

    @property
    def url(self) -> str:
        name = f"me:{SECRET.replace(':', '%3A')}@" if self.credentials else ""
        return f"{self.kind}://{name}127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.answer is not None:
            await reader.read(1)
            writer.write(self.answer)
            await writer.drain()
            await reader.read()
        elif self.kind == "socks5":
            await self._socks(reader, writer)
        else:
            await self._http(reader, writer)

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if self.credentials and b"\r\nProxy-Authorization: Basic " + TOKEN + b"\r\n" not in head:
                writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
                continue
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                await self._pipe(reader, writer, host, int(port), b"HTTP/1.1 200 Go on\r\nVia: me\r\n\r\n")
                return
            self.forwarded.append(head)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        wanted = 2 if self.credentials else 0
        accepts = wanted in await reader.readexactly(count)
        writer.write(bytes([5, wanted if accepts else 255]))
        if self.credentials and accepts:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            right = f"{user.decode()}:{password.decode()}" == self.credentials
            writer.write(bytes([1, 0 if right else 1]))
        _, _, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = ".".join(map(str, await reader.readexactly(4)))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        await self._pipe(reader, writer, host, port, b"\x05\0\0\x03\x04here\0\0")

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, yes: bytes
    ) -> None:
        self.asked.append(f"{host}:{port}")
        far_reader, far_writer = await asyncio.open_connection(self.names.get(host, host), port)
        writer.write(yes)
        copies = [
            asyncio.create_task(_copy(reader, far_writer)),
            asyncio.create_task(_copy(far_reader, writer)),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)


class Closing(Proxy):
    """A proxy that hangs up on everyone."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        sink.write(data)
        await sink.drain()


@contextlib.asynccontextmanager
async def fetching(
    *proxies: str, trust: Path | None = None, public: Sequence[str] = (), **changes: Any
) -> AsyncIterator[HttpFetcher]:
    """A fetcher for which site.example and its like are on this machine; `public` ones it may not resolve at all."""

    async def lookup(name: str) -> Sequence[str]:
        if name in public or not name.endswith(".example"):
            raise OSError(f"{name} was looked up")
        return ["127.0.0.1"]

    settings = FetchSettings(**{"allow_private": True, "proxy": proxies, **changes})
    tls = ssl.create_default_context(cafile=trust / "cert.pem") if trust else None
    resolver = Resolver(settings.allow_private, lookup=lookup)
    fetcher = HttpFetcher(settings, resolver, time.time, proxy_tls=tls)
    try:
        yield fetcher
    finally:
        assert len(fetcher._deadlines) == 0
        await fetcher.close()


def proxy_tls(kind: str, certificate: Path) -> ssl.SSLContext | None:
    return server_tls(certificate) if kind == "https" else None


async def fetched(fetcher: HttpFetcher, url: str) -> Response:
    outcome = await fetcher.fetch(url)
    assert isinstance(outcome, Response), outcome
    return outcome


async def failed(fetcher: HttpFetcher, url: str) -> FetchFailure:
    outcome = await fetcher.fetch(url)
    assert isinstance(outcome, FetchFailure), outcome
    return outcome


# The way through.


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("credentials", ["", f"me:{SECRET}"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_comes_through_a_proxy_that_is_asked_for_the_checked_address(
    run: Run,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    credentials: str,
    scheme: str,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    async def scenario() -> None:
        site, proxy = Site(), Proxy(kind, credentials=credentials)
        site_tls = server_tls(certificate) if scheme == "https" else None
        async with (
            site.up(site_tls),
            proxy.up(proxy_tls(kind, certificate)),
            fetching(proxy.url, trust=certificate) as fetcher,
        ):
            for path in ("a", "b"):
                page = await fetched(fetcher, f"{scheme}://site.example:{site.port}/{path}")
                assert (page.status, page.body) == (200, b"ok")
            assert proxy.asked == [f"127.0.0.1:{site.port}"]
            head = site.requests[0]
            assert head.startswith(f"GET /a HTTP/1.1\r\nHost: site.example:{site.port}\r\n".encode())
            assert not any(
                word in b"".join(site.requests).lower() for word in (b"proxy", TOKEN.lower(), b"me:")
            )

    run(scenario())


def test_the_targets_certificate_is_verified_by_its_name_behind_a_proxy(
    run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    async def scenario() -> None:
        site, proxy = Site(), Proxy("http")
        async with site.up(server_tls(certificate)), proxy.up(), fetching(proxy.url) as fetcher:
            failure = await failed(fetcher, f"https://other.example:{site.port}/")
            assert failure.problem is FetchProblem.TLS
            assert "certificate not accepted" in failure.detail
            assert (site.requests, failure.started_at) == ([], 0.0)

    run(scenario())


def test_a_target_that_does_not_speak_tls_is_a_tls_failure(run: Run) -> None:
    async def scenario() -> None:
        site, proxy = Site(), Proxy("http")
        async with site.up(), proxy.up(), fetching(proxy.url, connect_timeout_seconds=0.5) as fetcher:
            # It takes the client's hello for the beginning of a request and waits for the rest.
            failure = await failed(fetcher, f"https://site.example:{site.port}/")
            assert failure.problem is FetchProblem.TIMEOUT
            assert "no TLS handshake within 0.5 s" in failure.detail

    run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_private_targets_are_refused_before_the_proxy_is_asked(
    run: Run, certificate: Path, kind: str
) -> None:
    async def scenario() -> None:
        proxy = Proxy(kind)
        async with proxy.up(proxy_tls(kind, certificate)):
            for resolves in (False, True):
                async with fetching(
                    proxy.url, trust=certificate, allow_private=False, proxy_resolves=resolves
                ) as fetcher:
                    hosts = ["127.0.0.1", "[::1]", "localhost", "169.254.169.254", "x.localhost"]
                    for host in hosts if resolves else [*hosts, "site.example"]:
                        for scheme in ("http", "https"):
                            failure = await failed(fetcher, f"{scheme}://{host}:{proxy.port}/")
                            assert failure.problem is FetchProblem.PRIVATE_ADDRESS
            assert proxy.connections == 0

    run(scenario())


# Names left to the proxy.


@pytest.mark.parametrize("kind", KINDS)
def test_with_proxy_resolves_the_name_is_passed_on(
    run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    async def scenario() -> None:
        site, proxy = Site(), Proxy(kind, credentials=f"me:{SECRET}")
        async with (
            site.up(server_tls(certificate)),
            proxy.up(proxy_tls(kind, certificate)),
            fetching(
                proxy.url,
                trust=certificate,
                public=["site.example"],
                allow_private=False,
                proxy_resolves=True,
            ) as fetcher,
        ):
            await fetched(fetcher, f"https://site.example:{site.port}/")
            assert proxy.asked == [f"site.example:{site.port}"]

    run(scenario())


def test_with_proxy_resolves_an_http_proxy_gets_whole_urls_over_one_connection(run: Run) -> None:
    async def scenario() -> None:
        proxy = Proxy("http", credentials=f"me:{SECRET}")
        async with proxy.up(), fetching(proxy.url, proxy_resolves=True) as fetcher:
            await fetched(fetcher, "http://site.example/a?b=c")
            await fetcher.fetch("http://u:pw@other.example:81/", method="POST", body=b"x=y")
            assert proxy.connections == 1
            assert proxy.forwarded[0].startswith(
                b"GET http://site.example/a?b=c HTTP/1.1\r\nProxy-Authorization: Basic "
                + TOKEN
                + b"\r\nHost: site.example\r\n"
            )
            assert proxy.forwarded[1].startswith(b"POST http://other.example:81/ HTTP/1.1\r\n")

    run(scenario())


# Rotation and failover.


def test_hosts_are_spread_over_the_proxies_and_stay_with_theirs(run: Run) -> None:
    async def scenario() -> None:
        site, first, second = Site(), Proxy("http"), Proxy("socks5")
        async with site.up(), first.up(), second.up(), fetching(first.url, second.url) as fetcher:
            for _ in range(2):
                for name in ("a", "b", "c", "d"):
                    await fetched(fetcher, f"http://{name}.example:{site.port}/")
            assert (len(first.asked), len(second.asked)) == (2, 2)

    run(scenario())


@pytest.mark.parametrize("status", [403, 429])
def test_a_host_that_is_told_off_goes_on_through_the_next_proxy(run: Run, status: int) -> None:
    async def scenario() -> None:
        site, first, second = Site(200, status), Proxy("http"), Proxy("http")
        async with site.up(), first.up(), second.up(), fetching(first.url, second.url) as fetcher:
            statuses = [
                (await fetched(fetcher, f"http://site.example:{site.port}/")).status for _ in range(4)
            ]
            assert statuses == [200, status, 200, 200]
            assert (len(first.asked), len(second.asked)) == (1, 1)
            assert site.connections == 2

    run(scenario())


BROKEN = [
    pytest.param("http", b"", "", id="hangs up"),
    pytest.param("http", b"HTTP/1.1 407 Who are you\r\n\r\n", "answered 407 Who are you", id="407"),
    pytest.param("http", b"SSH-2.0-nonsense\r\n\r\n", "does not answer like an HTTP proxy", id="no proxy"),
    pytest.param(
        "http", b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK", "sent data nobody asked for", id="says more"
    ),
    pytest.param("http", b"x" * 100_000, "gave no proper answer", id="babbles"),
    pytest.param("socks5", b"\x04\x00", "does not answer like a SOCKS 5 proxy", id="not SOCKS"),
    pytest.param("socks5", b"\x05\xff", "wants a user name and a password", id="SOCKS wants credentials"),
    pytest.param(
        "socks5", b"HTTP/1.1 400 Bad\r\n\r\n", "does not answer like a SOCKS 5", id="HTTP for SOCKS"
    ),
]


@pytest.mark.parametrize(("kind", "answer", "complaint"), BROKEN)
def test_a_proxy_that_does_not_work_is_a_connect_failure_that_names_it(
    run: Run, kind: str, answer: bytes, complaint: str
) -> None:
    async def scenario() -> None:
        proxy = Proxy(kind, answer=answer) if answer else Closing(kind)
        async with proxy.up(), fetching(proxy.url) as fetcher:
            failure = await failed(fetcher, "http://site.example/")
            assert failure.problem is FetchProblem.CONNECT
            assert failure.detail.startswith(f"proxy {kind}://127.0.0.1:{proxy.port}: ")
            assert complaint in failure.detail
            assert failure.started_at == 0.0

    run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_credentials_are_a_failure_that_does_not_show_them(
    run: Run, certificate: Path, kind: str
) -> None:
    async def scenario() -> None:
        proxy = Proxy(kind, credentials=f"me:{SECRET}")
        async with proxy.up(proxy_tls(kind, certificate)):
            url = proxy.url.replace("s3", "wr0ng")
            for resolves in (False, True):
                async with fetching(url, trust=certificate, proxy_resolves=resolves) as fetcher:
                    failure = await failed(fetcher, "http://site.example/")
                    assert failure.problem is FetchProblem.CONNECT
                    assert f"proxy {kind}://127.0.0.1:{proxy.port}: " in failure.detail
                    assert "wr0ng" not in failure.detail

    run(scenario())


def test_an_https_proxy_with_an_untrusted_certificate_is_not_used(run: Run, certificate: Path) -> None:
    async def scenario() -> None:
        proxy = Proxy("https")
        async with proxy.up(server_tls(certificate)), fetching(proxy.url) as fetcher:
            failure = await failed(fetcher, "http://site.example/")
            assert failure.problem is FetchProblem.CONNECT
            assert "certificate not accepted" in failure.detail
            assert proxy.asked == []

    run(scenario())


def test_a_dead_proxy_is_replaced_within_the_request_and_then_left_alone(run: Run) -> None:
    async def scenario() -> None:
        site, dead, alive = Site(), Proxy("http", answer=b"nonsense\r\n\r\n"), Proxy("http")
        async with site.up(), dead.up(), alive.up(), fetching(dead.url, alive.url) as fetcher:
            for name in ("a", "b", "c"):
                await fetched(fetcher, f"http://{name}.example:{site.port}/")
            assert (dead.connections, len(alive.asked)) == (1, 3)

    run(scenario())


def test_many_dead_proxies_end_a_request_after_three(run: Run) -> None:
    async def scenario() -> None:
        dead = [Proxy("http", answer=b"nonsense\r\n\r\n") for _ in range(5)]
        async with contextlib.AsyncExitStack() as stack:
            for proxy in dead:
                await stack.enter_async_context(proxy.up())
            fetcher = await stack.enter_async_context(fetching(*(proxy.url for proxy in dead)))
            assert (await failed(fetcher, "http://site.example/")).problem is FetchProblem.CONNECT
            assert [proxy.connections for proxy in dead] == [1, 1, 1, 0, 0]

    run(scenario())


@pytest.mark.parametrize(
    ("kind", "answer", "complaint"),
    [
        ("http", b"HTTP/1.1 502 Bad\x1b[31m Gateway\r\n\r\n", "answered 502 Bad[31m Gateway"),
        ("socks5", b"\x05\0\x05\x05\0\x01\0\0\0\0\0\0", "answered: connection refused"),
    ],
)
def test_a_target_the_proxy_cannot_reach_is_tried_by_the_next_one_in_the_next_attempt(
    run: Run, kind: str, answer: bytes, complaint: str
) -> None:
    async def scenario() -> None:
        site, refusing, willing = Site(), Proxy(kind, answer=answer), Proxy("http")
        async with site.up(), refusing.up(), willing.up(), fetching(refusing.url, willing.url) as fetcher:
            url = f"http://site.example:{site.port}/"
            failure = await failed(fetcher, url)
            assert failure.problem is FetchProblem.CONNECT
            place = f"127.0.0.1 port {site.port}"
            assert failure.detail.startswith(f"proxy {kind}://127.0.0.1:{refusing.port}, asked for {place}: ")
            assert failure.detail.endswith(complaint)
            await fetched(fetcher, url)

    run(scenario())


def test_a_proxy_that_never_answers_is_a_timeout(run: Run) -> None:
    async def scenario() -> None:
        proxy = Proxy("http", answer=b"")
        async with proxy.up(), fetching(proxy.url, connect_timeout_seconds=0.2) as fetcher:
            failure = await failed(fetcher, "http://site.example/")
            assert failure.problem is FetchProblem.TIMEOUT
            assert "no connection within 0.2 s" in failure.detail
        async with proxy.up(), fetching(proxy.url, timeout_seconds=0.2) as fetcher:
            failure = await failed(fetcher, "http://site.example/")
            assert failure.detail == "no connection after 0.2 s"

    run(scenario())


def test_cancelling_a_fetch_closes_the_connection_to_the_proxy(run: Run) -> None:
    async def scenario() -> None:
        arrived, gone = asyncio.Event(), asyncio.Event()

        class Waiting(Proxy):
            async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                arrived.set()
                with contextlib.suppress(OSError):
                    await reader.read()
                gone.set()

        proxy = Waiting("http")
        async with proxy.up(), fetching(proxy.url) as fetcher:
            task = asyncio.create_task(fetcher.fetch("http://site.example/"))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await gone.wait()

    run(scenario())


def test_gateways_that_differ_only_in_credentials_do_not_share_connections(run: Run) -> None:
    async def scenario() -> None:
        site, proxy = Site(403), Proxy("http")
        async with site.up(), proxy.up():
            urls = [f"http://session{n}:x@127.0.0.1:{proxy.port}" for n in (1, 2)]
            async with fetching(*urls) as fetcher:
                for _ in range(3):
                    await fetched(fetcher, f"http://site.example:{site.port}/")
                assert len(proxy.asked) == 2

    run(scenario())


def test_what_is_no_proxy_is_refused_when_the_fetcher_is_made(run: Run) -> None:
    async def scenario() -> None:
        settings = FetchSettings(proxy=("ftp://me:secret@h",))
        with pytest.raises(UsageError, match="none of http://") as caught:
            HttpFetcher(settings, Resolver(allow_private=True), time.time)
        assert "secret" not in str(caught.value)

    run(scenario())


@pytest.mark.parametrize("name", ["Proxy-Authorization", "proxy-connection"])
def test_headers_for_a_proxy_cannot_be_sent_to_targets(name: str) -> None:
    with pytest.raises(ValueError, match="set by the fetcher"):
        check_headers([(name, "x")])
