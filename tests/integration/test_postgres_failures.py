"""PostgreSQL goes away, restarts and falls silent: calls outlast it or fail in time, and no commit is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gossamer.config.postgres import PostgresLimits
from gossamer.errors import BackendLost, UsageError
from gossamer.frontier.postgres_pool import PostgresPool, Query, driver
from gossamer.testing.frontier_cases import FETCHED, NOW, batch, found, names_of, visit
from gossamer.testing.ledger_contract import PowerCut
from gossamer.testing.postgres_rig import ask, new_database, workers
from gossamer.testing.postgres_server import PostgresServer, programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Start a server that may be stopped, and that waits for its disk."""
    own = PostgresServer(durable=True)
    try:
        own.start()
        yield own
    finally:
        own.remove()


@pytest.fixture
def dsn(server: PostgresServer) -> Iterator[str]:
    with new_database(server) as address:
        yield address


class Trouble:
    """A failpoint that does something once, at one boundary."""

    def __init__(self) -> None:
        self.at = ""
        self.met = 0

    def __call__(self, name: str) -> None:
        if name == self.at:
            self.at = ""
            self.met += 1
            self.happen()

    def happen(self) -> None:
        raise NotImplementedError


class Restart(Trouble):
    """The server crashes and comes back."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self._server = server

    def happen(self) -> None:
        self._server.stop(immediate=True)
        self._server.start()


@pytest.mark.parametrize("boundary", ["commit:before", "commit:written"])
def test_a_commit_outlasts_a_crash_of_the_server_in_its_middle(
    server: PostgresServer, dsn: str, boundary: str
) -> None:
    async def main() -> None:
        restart = Restart(server)
        async with workers(dsn, failpoint=restart) as (ledger,):
            (page,) = (await ledger.add([found("a.test/1")])).live
            restart.at = boundary
            done = await ledger.commit(batch("1", visit(page, FETCHED, found("a.test/2"))))
            assert restart.met == 1
            assert (done.repeated, done.records, names_of(done.live)) == (False, 1, ["a.test/2"])
            assert [entry.position for entry in await ledger.log(0, 9)] == [done.position]
            assert ask(dsn, "SELECT count(*) FROM fetches") == [(1,)]

    asyncio.run(main())


def test_what_was_committed_survives_a_crash_of_the_server(server: PostgresServer, dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            (page,) = (await ledger.add([found("a.test/1")])).live
            await ledger.commit(batch("1", visit(page, FETCHED, found("a.test/2"))))
            server.stop(immediate=True)
            server.start()
            assert [entry.records for entry in await ledger.log(0, 9)] == [1]
            assert names_of(await ledger.take("a.test", 9, NOW)) == ["a.test/2"]

    asyncio.run(main())


class LossyRoad:
    """A way to the server that loses the answer to a COMMIT, once, when told to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.loses = False
        self.lost = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        road = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        async with road:
            yield int(road.sockets[0].getsockname()[1])

    async def _carry(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, onward = await asyncio.open_connection("127.0.0.1", self._port)
        silent = asyncio.Event()
        answers = asyncio.create_task(self._return(far, back, silent), name="answers")
        try:
            while data := await near.read(1 << 16):
                if self.loses and b"COMMIT" in data:
                    self.loses = False
                    silent.set()
                onward.write(data)
        except ConnectionError:
            pass
        finally:
            onward.close()
            await asyncio.wait([answers])
            back.close()

    async def _return(
        self, far: asyncio.StreamReader, back: asyncio.StreamWriter, silent: asyncio.Event
    ) -> None:
        while data := await far.read(1 << 16):
            if silent.is_set():
                # The server has answered: it is committed, and nobody hears of it.
                self.lost += 1
                back.transport.abort()
                return
            back.write(data)


def test_a_commit_whose_answer_was_lost_is_sent_again_and_recognised(
    server: PostgresServer, dsn: str
) -> None:
    async def main() -> None:
        road = LossyRoad(server.port)
        async with road.open() as port, workers(dsn.replace(f":{server.port}/", f":{port}/")) as (ledger,):
            (page,) = (await ledger.add([found("a.test/1")])).live
            road.loses = True
            done = await ledger.commit(batch("1", visit(page, FETCHED, found("a.test/2"))))
            assert road.lost == 1
            assert (done.repeated, done.position, done.lost) == (True, 1, frozenset())
            assert [entry.records for entry in await ledger.log(0, 9)] == [1]
            assert names_of(await ledger.take("a.test", 9, NOW)) == ["a.test/2"]
            assert ask(dsn, "SELECT count(*) FROM fetches") == [(1,)]

    asyncio.run(main())


def test_a_server_that_falls_silent_is_hung_up_on_and_another_connection_answers(dsn: str) -> None:
    async def main() -> None:
        limits = PostgresLimits(connections=1, statement_seconds=1.0, grace_seconds=0.5)
        async with workers(dsn, limits=limits) as (ledger,):
            await ledger.add([found("a.test/1")])
            ((silent,),) = (await ledger._pool.ask(Query("SELECT pg_backend_pid()")))[0].rows
            os.kill(silent, signal.SIGSTOP)
            try:
                began = time.monotonic()
                assert names_of(await ledger.take("a.test", 9, NOW)) == ["a.test/1"]
                assert 1.0 < time.monotonic() - began < 40
            finally:
                os.kill(silent, signal.SIGCONT)

    asyncio.run(main())


def test_a_statement_that_takes_too_long_is_ended_by_the_server(dsn: str) -> None:
    async def main() -> None:
        limits = PostgresLimits(statement_seconds=1.0, patience_seconds=0.0)
        pool = PostgresPool(dsn, limits)
        with pytest.raises(BackendLost, match="statement timeout"):
            await pool.ask(Query("SELECT pg_sleep(30)"))
        assert (await pool.ask(Query("SELECT 1")))[0].rows == [(1,)]
        await pool.close()

    asyncio.run(main())


def take_writes(dsn: str, *, allowed: bool) -> None:
    """Make a database one that is only a copy, or the one that is written to, for connections to come."""
    with driver().connect(dsn, autocommit=True, options="-c default_transaction_read_only=off") as connection:
        name = connection.info.dbname
        value = "off" if allowed else "on"
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            (name,),
        )


def test_a_copy_that_takes_no_writes_is_waited_for_until_another_connection_leads_to_the_primary(
    dsn: str,
) -> None:
    async def main() -> None:
        async with workers(dsn, limits=PostgresLimits(connections=1)) as (ledger,):
            await ledger.add([found("a.test/1")])
            told: list[str] = []
            ledger._pool.failed = lambda error: told.append(str(error))
            take_writes(dsn, allowed=False)
            adding = asyncio.create_task(ledger.add([found("a.test/2")]))
            while not any("read-only" in text for text in told):
                assert not adding.done()
                await asyncio.sleep(0.01)
            # What was connected before goes on as it was: only a new connection can write.
            with driver().connect(
                dsn, autocommit=True, options="-c default_transaction_read_only=off"
            ) as own:
                own.execute(f'ALTER DATABASE "{own.info.dbname}" SET default_transaction_read_only = off')
            assert (await asyncio.wait_for(adding, 30)).new == 1

    asyncio.run(main())


def test_what_a_server_says_again_and_again_is_told(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.frontier.postgres_pool._MAX_PAUSE_SECONDS", 0.1)

    async def main() -> None:
        pool = PostgresPool(dsn, PostgresLimits(statement_seconds=0.02, patience_seconds=3.0))
        told: list[str] = []
        pool.failed = lambda error: told.append(str(error))
        with pytest.raises(BackendLost, match="statement timeout"):
            await pool.ask(Query("SELECT pg_sleep(30)"))
        assert told, "once in a while it is nothing, but not for good"
        await pool.close()

    asyncio.run(main())


def test_a_server_that_stays_away_is_named_without_the_password_and_in_time() -> None:
    async def main() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            pauses = PostgresLimits(patience_seconds=0.5)
            pool = PostgresPool(f"postgresql://me:secret@127.0.0.1:{port}/crawl", pauses)
            with pytest.raises(BackendLost, match=f"127.0.0.1:{port}/crawl") as caught:
                await pool.ask(Query("SELECT 1"))
            assert "secret" not in str(caught.value)
            assert caught.value.exit_code == 6

    asyncio.run(main())


def test_a_server_that_refuses_us_is_not_asked_again_and_again(server: PostgresServer) -> None:
    async def main() -> None:
        pool = PostgresPool(server.dsn("nothing"), PostgresLimits(patience_seconds=60.0))
        began = time.monotonic()
        with pytest.raises(UsageError, match="check user, password and database"):
            await pool.ask(Query("SELECT 1"))
        assert time.monotonic() - began < 10

    asyncio.run(main())


def test_an_error_of_our_own_leaves_a_connection_that_can_be_used(dsn: str) -> None:
    class Fault(Trouble):
        def happen(self) -> None:
            raise PowerCut

    async def main() -> None:
        fault = Fault()
        async with workers(dsn, failpoint=fault, limits=PostgresLimits(connections=1)) as (ledger,):
            for _ in range(3):
                fault.at = "add:written"
                with pytest.raises(PowerCut):
                    await ledger.add([found("a.test/1")])
            assert (await ledger.add([found("a.test/1")])).new == 1

    asyncio.run(main())


def test_calls_wait_for_a_free_connection_and_all_are_answered(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, limits=PostgresLimits(connections=2)) as (ledger,):
            added = await asyncio.gather(*[ledger.add([found(f"a.test/{n}")]) for n in range(20)])
            assert sum(each.new for each in added) == 20
            busy = ask(dsn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gossamer'")
            assert busy == [(2,)]

    asyncio.run(main())


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"pip install 'gossamer\[postgres\]'"):
        PostgresPool("postgresql://127.0.0.1/x")


def test_an_address_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="postgresql://user@host:5432/name"):
        _ = PostgresPool("crawl me").place


def test_a_database_without_tables_says_what_to_run(server: PostgresServer) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="gossamer db upgrade"):
            async with workers(server.dsn()):
                pass

    asyncio.run(main())
