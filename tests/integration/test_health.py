"""The health endpoints over real sockets: what they say, and that no client can hurt the worker behind them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import mmap
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from gossamer.errors import UsageError
from gossamer.model.outcome import Committed
from gossamer.observe.health import HealthLimits, HealthServer, Probes, Vitals, process_figures
from gossamer.observe.metrics import CONTENT_TYPE, METRICS, Metrics
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import known, visit

Run = Callable[[Coroutine[Any, Any, None]], None]
HOST = "127.0.0.1"
SHORT = HealthLimits(connection_seconds=0.3)
PATIENT = HealthLimits(connection_seconds=60.0)
MARK = b"zq7-marker"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a scenario on either loop; afterwards nothing may have gone wrong unseen, and no task be left."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    unseen: list[dict[str, Any]] = []

    async def watched(scenario: Coroutine[Any, Any, None]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        await asyncio.wait_for(scenario, 30)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda scenario: runner.run(watched(scenario))
    assert unseen == []


class Saying:
    """Probes with fixed answers."""

    def __init__(self, alive: str = "", ready: str = "") -> None:
        self._answers = (alive, ready)

    def alive(self) -> str:
        return self._answers[0]

    def ready(self) -> str:
        return self._answers[1]


class Failing:
    """Probes that fail themselves."""

    def alive(self) -> str:
        raise RuntimeError("a secret")

    def ready(self) -> str:
        raise RuntimeError("a secret")


@contextlib.asynccontextmanager
async def serving(
    probes: Probes | None = None, limits: HealthLimits | None = None, metrics: Metrics | None = None
) -> AsyncIterator[HealthServer]:
    async with HealthServer(0, HOST, metrics or Metrics(), probes or Saying(), limits) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(server: HealthServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def sent(server: HealthServer, data: bytes) -> bytes:
    """Send bytes and return all that comes back until the connection ends, however it does."""
    async with connected(server) as (reader, writer):
        with contextlib.suppress(OSError):
            writer.write(data)
            await writer.drain()
        return await rest_of(reader)


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    received = bytearray()
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            received += piece
    return bytes(received)


async def get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Ask as a client of the standard library would; returns status, content type and text."""

    def ask() -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=20)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def idle(server: HealthServer) -> None:
    """Wait until no connection is left: the loop learns of an end a few turns after the client."""
    async with asyncio.timeout(20):
        while "connections=0" not in repr(server):
            await asyncio.sleep(0.01)


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


# -- what they say ---------------------------------------------------------------------------------------


def test_a_worker_that_is_well_says_so(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            for path in ("/healthz", "/readyz", "/readyz?verbose=1"):
                assert await get(server, path) == (200, "text/plain; charset=utf-8", "ok\n")

    run(scenario())


def test_a_worker_that_is_not_says_why(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Saying("stuck", "no redis\ndraining")) as server:
            assert await get(server, "/healthz") == (503, "text/plain; charset=utf-8", "stuck\n")
            assert await get(server, "/readyz") == (503, "text/plain; charset=utf-8", "no redis\ndraining\n")

    run(scenario())


def test_the_metrics_are_served_as_prometheus_reads_them(run: Run) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        metrics.take([visit(known("a/1"))], Committed(1, frozenset(), []), 0.01)
        async with serving(metrics=metrics) as server:
            status, content_type, text = await get(server, "/metrics")
        assert (status, content_type) == (200, CONTENT_TYPE)
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert len(families) == len(METRICS)
        assert families["gossamer_records"].samples[0].value == 1
        assert families["process_resident_memory_bytes"].samples[0].value > 1_000_000

    run(scenario())


def test_the_name_of_a_job_that_is_no_unicode_does_not_cost_the_other_figures(run: Run) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        metrics.queue_depth("jobs/\udcff", 1)
        async with serving(metrics=metrics) as server:
            status, _, text = await get(server, "/metrics")
        assert status == 200
        assert 'gossamer_queue_depth{job="jobs/?"} 1\n' in text

    run(scenario())


def test_the_figures_of_this_process_are_those_the_system_knows() -> None:
    before = process_figures()
    # Memory of its own: what comes from the heap may have been resident all along.
    ballast = mmap.mmap(-1, 30_000_000)
    ballast.write(os.urandom(len(ballast)))
    after = process_figures()
    assert after.resident_bytes - before.resident_bytes > len(ballast) * 0.8
    ballast.close()
    assert after.cpu_seconds > before.cpu_seconds > 0


def test_head_is_answered_like_get_without_the_body(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            whole = await sent(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await sent(server, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert whole == head + b"ok\n"
        assert b"Content-Length: 3\r\n" in head
        assert b"Connection: close\r\n" in head

    run(scenario())


@pytest.mark.parametrize("path", ["/", "/healthz/", "/metrics/x", "/HEALTHZ", "/../healthz", "//healthz"])
def test_there_is_nothing_elsewhere(run: Run, path: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            assert (await get(server, path))[0] == 404

    run(scenario())


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
def test_nothing_but_get_and_head_is_allowed(run: Run, method: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            reply = await sent(server, f"{method} /healthz HTTP/1.1\r\n\r\n".encode())
        assert status_of(reply) == 405
        assert b"\r\nAllow: GET, HEAD\r\n" in reply

    run(scenario())


def test_a_probe_that_fails_is_an_error_without_its_words_and_the_others_go_on(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Failing()) as server:
            assert await get(server, "/healthz") == (
                500,
                "text/plain; charset=utf-8",
                "the check failed: RuntimeError\n",
            )
            assert (await get(server, "/metrics"))[0] == 200

    run(scenario())


# -- what a worker knows of itself -----------------------------------------------------------------------


def test_a_loop_that_stands_still_is_not_alive_until_it_turns_again(run: Run) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        vitals = Vitals(Metrics(), clock, (), max_tick_seconds=10.0)
        async with serving(vitals) as server:
            clock.advance(10.0)
            assert (await get(server, "/healthz"))[0] == 200
            clock.advance(2.0)
            assert (await get(server, "/healthz"))[::2] == (503, "the loop has not turned for 12 s\n")
            vitals.tick()
            assert (await get(server, "/healthz"))[0] == 200

    run(scenario())


def test_a_worker_is_ready_once_every_backend_has_answered_and_until_one_is_silent() -> None:
    clock, metrics = FakeClock(), Metrics()
    vitals = Vitals(metrics, clock, ("postgres", "redis"), max_silence_seconds=30.0)
    assert vitals.ready() == "postgres has not answered yet\nredis has not answered yet"
    vitals.answered("postgres")
    vitals.answered("redis")
    assert vitals.ready() == ""
    clock.advance(20.0)
    vitals.answered("postgres")
    vitals.failed("redis")
    assert vitals.ready() == "", "its last answer is not that old"
    clock.advance(11.0)
    assert vitals.ready() == "redis has not answered for 31 s"
    assert vitals.alive() == "", "a silent backend is no ground to start the process anew"
    text = metrics.text(process_figures())
    assert 'gossamer_backend_up{backend="redis"} 0\n' in text
    assert 'gossamer_backend_up{backend="postgres"} 1\n' in text
    assert 'gossamer_backend_errors_total{backend="redis"} 1\n' in text


def test_a_worker_that_drains_is_alive_but_not_ready() -> None:
    vitals = Vitals(Metrics(), FakeClock(), ())
    assert vitals.ready() == ""
    vitals.drain()
    assert (vitals.alive(), vitals.ready()) == ("", "draining")


# -- what clients do -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1 " + MARK + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40) + b"\r\n\r\n",
        bytes(range(256)) + b"\r\n\r\n",
        b"GET /" + MARK + b"\x00\xff<script> HTTP/1.1\r\nHost: " + MARK + b"\r\n\r\n",
        MARK + b" /healthz HTTP/1.1\r\nX-" + MARK + b": 1\r\n\r\n",
    ],
)
def test_garbage_is_refused_and_never_sent_back(run: Run, request_bytes: bytes) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server:
            reply = await sent(server, request_bytes)
            assert status_of(reply) in {400, 404, 405}
            assert MARK not in reply
            assert (await get(server, "/healthz"))[0] == 200

    run(scenario())


def test_a_head_may_have_as_many_bytes_as_the_limit_and_no_more(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server:
            line = b"GET /healthz HTTP/1.1\r\nX: "
            room = PATIENT.max_head_bytes - len(line)
            assert status_of(await sent(server, line + b"x" * room + b"\r\n\r\n")) == 200
            assert status_of(await sent(server, line + b"x" * (room + 1) + b"\r\n\r\n")) == 431

    run(scenario())


def test_a_head_without_end_is_cut_off_long_before_the_time_is_up(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server:
            async with connected(server) as (reader, writer):
                with contextlib.suppress(OSError):
                    for _ in range(1000):
                        writer.write(b"x" * 65_536)
                        await writer.drain()
                await rest_of(reader)
            assert (await get(server, "/healthz"))[0] == 200

    run(scenario())


def test_a_request_may_come_byte_by_byte(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server, connected(server) as (reader, writer):
            for byte in b"GET /healthz HTTP/1.1\r\n\r\n":
                writer.write(bytes([byte]))
                await writer.drain()
            assert status_of(await rest_of(reader)) == 200

    run(scenario())


def test_a_client_that_has_nothing_more_to_say_still_gets_its_answer(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server, connected(server) as (reader, writer):
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            writer.write_eof()
            assert status_of(await rest_of(reader)) == 200

    run(scenario())


def test_requests_behind_the_first_are_not_answered(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server:
            reply = await sent(server, b"GET /healthz HTTP/1.1\r\n\r\n" * 50)
        assert reply.count(b"HTTP/1.1 200 OK") == 1

    run(scenario())


def test_a_client_that_trickles_is_cut_off_when_its_time_is_up(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=SHORT) as server, connected(server) as (reader, writer):
            began = asyncio.get_running_loop().time()
            ended = asyncio.create_task(rest_of(reader))
            while not ended.done():
                with contextlib.suppress(OSError):
                    writer.write(b"x")
                await asyncio.wait({ended}, timeout=0.02)
            took = asyncio.get_running_loop().time() - began
        assert ended.result() == b""
        assert SHORT.connection_seconds * 0.9 <= took < 20.0

    run(scenario())


def test_a_client_that_never_reads_its_answer_is_cut_off_when_its_time_is_up(run: Run) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        for number in range(1000):
            metrics.queue_depth(f"{number}" + "x" * 20_000, number)
        async with serving(limits=SHORT, metrics=metrics) as server:
            with socket.create_connection((HOST, server.port)) as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                while "connections=0" in repr(server):
                    await asyncio.sleep(0)
                await idle(server)

    run(scenario())


def test_those_who_say_nothing_cannot_lock_out_those_who_ask(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server, contextlib.AsyncExitStack() as stack:
            silent = [
                await stack.enter_async_context(connected(server)) for _ in range(PATIENT.max_connections)
            ]
            for _ in range(3):
                assert (await get(server, "/healthz"))[0] == 200
            assert await rest_of(silent[0][0]) == b"", "the oldest made room"
            silent[-1][1].write(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert status_of(await rest_of(silent[-1][0])) == 200, "the newest was left alone"

    run(scenario())


def test_of_two_hundred_at_once_each_is_answered_wholly_or_closed_and_never_too_many_are_open(
    run: Run,
) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server:
            opened = server.opened
            most = 0

            def watched(connection: Any) -> None:
                nonlocal most
                opened(connection)
                most = max(most, len(server._open))

            server.opened = watched  # type: ignore[method-assign]
            replies = await asyncio.gather(
                *(attempt(server, b"GET /healthz HTTP/1.1\r\n\r\n") for _ in range(200))
            )
            assert 0 < most <= PATIENT.max_connections
            answered = [reply for reply in replies if reply]
            assert answered
            assert all(status_of(reply) == 200 and reply.endswith(b"\r\n\r\nok\n") for reply in answered)
            assert (await get(server, "/healthz"))[0] == 200
            await idle(server)

    async def attempt(server: HealthServer, data: bytes) -> bytes:
        try:
            return await sent(server, data)
        except OSError:
            return b""

    run(scenario())


def test_a_client_that_vanishes_leaves_nothing_behind(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server:
            for data in (b"", b"GET /hea", b"GET /metrics HTTP/1.1\r\n\r\n"):
                client = socket.create_connection((HOST, server.port))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                client.sendall(data)
                client.close()
            assert (await get(server, "/healthz"))[0] == 200
            await idle(server)

    run(scenario())


# -- beginning and end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [-1, 65_536, 70_000])
def test_a_port_that_does_not_exist_is_told_in_one_line(run: Run, port: int) -> None:
    async def scenario() -> None:
        with pytest.raises(UsageError, match=rf"^A port .+ from 0 to 65535, not {port}\.$"):
            async with HealthServer(port, HOST, Metrics(), Saying()):
                pass

    run(scenario())


def test_a_port_that_cannot_be_had_is_told_in_one_line(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            for port, host in ((server.port, HOST), (0, "192.0.2.1"), (0, "no..name")):
                with pytest.raises(
                    UsageError, match=rf"^Cannot listen on {host} port {port} .+ another"
                ) as raised:
                    async with HealthServer(port, host, Metrics(), Saying()):
                        pass
                assert "\n" not in str(raised.value)

    run(scenario())


def test_the_end_closes_every_connection_and_frees_the_port(run: Run) -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with serving(limits=PATIENT) as server:
                clients = [await stack.enter_async_context(connected(server)) for _ in range(10)]
                assert (await get(server, "/healthz"))[0] == 200
                assert "serving" in repr(server)
                assert "connections=10" in repr(server)
            assert repr(server) == f"<HealthServer closed port={server.port} connections=0>"
            for reader, _ in clients:
                assert await rest_of(reader) == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, server.port)
        async with HealthServer(server.port, HOST, Metrics(), Saying()) as again:
            assert (await get(again, "/healthz"))[0] == 200

    run(scenario())


# A socket that asyncio has accepted, but has no transport for yet when the port is closed, it drops: the collector closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_comes_with_the_end_is_closed_too(run: Run, turns: int) -> None:
    async def scenario() -> None:
        async with serving(limits=PATIENT) as server:
            client = socket.create_connection((HOST, server.port))
            for _ in range(turns):
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        with client:
            client.settimeout(0)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), 5) == b""

    run(scenario())
