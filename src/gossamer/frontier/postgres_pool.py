"""Connections to PostgreSQL: the one place that touches its driver, names its errors, and outlasts its restarts."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gossamer.config.postgres import PostgresLimits
from gossamer.errors import BackendLost, GossamerError, LedgerFailed, UsageError
from gossamer.frontier.postgres_arrays import KINDS, Packed
from gossamer.frontier.postgres_reads import PostgresReads
from gossamer.waiting import finished

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

#: Where all tables are, in whatever database.
SCHEMA = "gossamer"
#: Transactions that lost against others are tried again this often.
_MAX_CONFLICTS = 20
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 5.0

# Every statement of ours is made for its index, whatever the tables hold: planned once, and never by reading a whole
# table because it is still small.
_SESSION = {
    "search_path": SCHEMA,
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "jit": "off",
}
# Not by `idle_in_transaction_session_timeout`: the driver ends each pipeline with a Flush, at which the server takes the
# session for a busy one. Only what has written has a transaction id: readers are left alone.
_END_SILENT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = 'gossamer'
        AND state = 'idle in transaction' AND backend_xid IS NOT NULL
        AND state_change < clock_timestamp() - make_interval(secs => %s::double precision)
"""


class Query(NamedTuple):
    """A statement and its parameters."""

    sql: str
    parameters: tuple[object, ...] = ()


class Result(NamedTuple):
    """The rows a statement returned, and how many it returned or changed."""

    rows: list[tuple[Any, ...]]
    changed: int


class ConflictLost(GossamerError):
    """The transaction stood in the way of another and was rolled back; it may be tried again at once."""


class DeadlockLost(ConflictLost):
    """Two transactions waited for each other, which the order of locks should never let happen."""


class TakesNoWrites(BackendLost):
    """The server is only a copy, as after a failover: another connection may lead to the one that is written to."""


class LimitPassed(GossamerError):
    """The transaction would have brought more records than the job may have, and was rolled back."""


class TextRefused(LedgerFailed):
    """A record is no text that PostgreSQL could hold."""


def driver() -> ModuleType:
    """Return psycopg. Raises `UsageError` with the remedy where it is not installed."""
    try:
        import psycopg  # noqa: PLC0415 - only jobs on PostgreSQL need it
    except ImportError as error:
        raise UsageError("PostgreSQL needs an extra: pip install 'gossamer[postgres]'") from error
    if not (own := logging.getLogger("psycopg")).handlers:
        # It warns on stderr of what it raises as well. Who wants that gives the root a handler.
        own.addHandler(logging.NullHandler())
    return psycopg


class Session:
    """One transaction on one connection. Each `run` is one round trip, however many statements it has."""

    def __init__(self, connection: psycopg.AsyncConnection[tuple[Any, ...]], limits: PostgresLimits) -> None:
        self._connection = connection
        self._grace = limits.grace_seconds
        self._seconds = limits.statement_seconds + self._grace
        self._begun = False
        #: How often an answer was waited for.
        self.round_trips = 0

    async def run(self, *queries: Query) -> list[Result]:
        """Send statements together and return their results; the first begins the transaction."""
        begin = () if self._begun else (Query("BEGIN"),)
        self._begun = True
        return (await self._send([*begin, *queries]))[len(begin) :]

    async def commit(self, *queries: Query) -> list[Result]:
        """Run the last statements and commit, in one round trip."""
        results = await self.run(*queries, Query("COMMIT"))
        self._begun = False
        return results[:-1]

    def allow(self, seconds: float) -> Query:
        """Let the statements behind this one take longer, until the transaction ends."""
        self._seconds = seconds + self._grace
        return Query(f"SET LOCAL statement_timeout = {seconds * 1000:.0f}")

    async def roll_back(self) -> None:
        """Undo what was not committed."""
        if self._begun:
            self._begun = False
            await self._send([Query("ROLLBACK")])

    async def _send(self, queries: list[Query]) -> list[Result]:
        self.round_trips += 1
        connection = self._connection
        # Not by cancelling: the driver would then ask the server, which may be the one that is silent.
        alarm = asyncio.get_running_loop().call_later(self._seconds, sever, connection.fileno())
        try:
            async with connection.pipeline():
                cursors = [
                    await connection.execute(
                        query.sql, query.parameters or None, prepare=bool(query.parameters), binary=True
                    )
                    for query in queries
                ]
            return [
                Result(await cursor.fetchall() if cursor.description else [], cursor.rowcount)
                for cursor in cursors
            ]
        finally:
            alarm.cancel()


class PostgresPool:
    """A bounded number of connections to one database, made when needed and again when lost.

    * A transaction that the server loses is tried again, with growing pauses, for `patience_seconds`; then it raises
      `BackendLost`. Whether it was committed before is for its caller to find out: it may happen twice.
    * One that lost against another (a deadlock) is tried again at once.
    * No call waits for ever, also for a server that keeps its connections open and says nothing.
    """

    def __init__(
        self,
        dsn: str,
        limits: PostgresLimits | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._psycopg = driver()
        self._dsn = dsn
        self._limits = limits or PostgresLimits()
        self._chance = chance
        self._reads = PostgresReads(self.ask)
        self._slots = asyncio.Semaphore(self._limits.connections)
        self._idle: list[psycopg.AsyncConnection[tuple[Any, ...]]] = []
        #: Round trips of all transactions so far.
        self.round_trips = 0
        #: Transactions that lost against others and were tried again, and those among them that were deadlocks.
        self.conflicts = 0
        self.deadlocks = 0
        #: Told of every transaction that was answered, and of every attempt that the server was silent on.
        self.answered: Callable[[], None] = lambda: None
        self.failed: Callable[[BackendLost], None] = lambda _error: None

    def __repr__(self) -> str:
        return f"<PostgresPool {self.place}>"

    @property
    def place(self) -> str:
        """The server and database, without the password, for people."""
        return place_of(self._dsn)

    async def ask(self, *queries: Query) -> list[Result]:
        """Run statements in one transaction and one round trip. They may happen twice."""
        return await self.transact(lambda session: session.commit(*queries))

    async def read(self, *queries: Query) -> list[Result]:
        """Run statements that change nothing, together with others: see `PostgresReads`."""
        return await self._reads.read(*queries)

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run `work` in a transaction, which it must commit, as often as it takes. A cancelled caller waits for it."""
        return await finished(asyncio.create_task(self._persist(work), name="postgres transaction"))

    async def _persist(self, work: Callable[[Session], Awaitable[T]]) -> T:
        now = asyncio.get_running_loop().time
        deadline = now() + self._limits.patience_seconds
        pause, conflicts = _FIRST_PAUSE_SECONDS, 0
        while True:
            try:
                async with self._session() as session:
                    return await work(session)
            except ConflictLost as lost:
                self.conflicts += 1
                self.deadlocks += isinstance(lost, DeadlockLost)
                conflicts += 1
                if conflicts > _MAX_CONFLICTS:
                    raise
            except BackendLost as lost:
                # An error with a code was said by the server: it is there. Said again and again, that is no use.
                is_there = getattr(lost.__cause__, "sqlstate", None) and not isinstance(lost, TakesNoWrites)
                if not is_there or pause >= _MAX_PAUSE_SECONDS:
                    self.failed(lost)
                if now() + pause > deadline:
                    raise
                if isinstance(lost.__cause__, self._psycopg.errors.LockNotAvailable):
                    await self._end_silent()
                # A restarted server meets its clients one by one.
                await asyncio.sleep(pause * (0.5 + self._chance()))
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    async def _end_silent(self) -> None:
        """End transactions of workers that hold locks and have said nothing for long: frozen, or cut off from us."""
        with suppress(GossamerError):
            async with self._session() as session:
                await session.commit(Query(_END_SILENT, (self._limits.lock_seconds,)))

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        async with self._slots:
            with self._explained():
                connection = self._idle.pop() if self._idle else await self._connect()
            session = Session(connection, self._limits)
            try:
                with self._explained():
                    yield session
            except BaseException as error:
                await self._give_up(connection, session, keep=not isinstance(error, TakesNoWrites))
                raise
            finally:
                self.round_trips += session.round_trips
            self._idle.append(connection)
            self.answered()

    async def _give_up(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], session: Session, *, keep: bool
    ) -> None:
        """Roll back and keep the connection, or close it where that cannot be done."""
        with suppress(GossamerError):
            with self._explained():
                await session.roll_back()
            if keep:
                self._idle.append(connection)
                return
        # Where the server has gone, it has gone for the others too.
        lost, self._idle = [connection, *self._idle], []
        for each in lost:
            with suppress(self._psycopg.Error):
                await each.close()

    async def _connect(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        limits = self._limits
        connection = await self._psycopg.AsyncConnection.connect(
            self._dsn,
            autocommit=True,
            prepare_threshold=0,
            connect_timeout=max(1, round(limits.connect_seconds)),
            keepalives_idle=15,
            application_name="gossamer",
        )
        connection.prepared_max = None
        for kind in KINDS:
            connection.adapters.register_dumper(kind, _dumper_of(self._psycopg, kind))
        settings = _SESSION | {
            "statement_timeout": f"{limits.statement_seconds * 1000:.0f}",
            "lock_timeout": f"{limits.lock_seconds * 1000:.0f}",
        }
        asked = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        await connection.execute(f"SELECT {asked}")
        return connection  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close the connections nobody uses."""
        while self._idle:
            await self._idle.pop().close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the driver's errors into ours, each with what to do."""
        try:
            yield
        except self._psycopg.Error as error:
            raise explained(self._psycopg, error, self.place) from error


#: What we make of the server's errors, by their codes.
_MEANINGS: tuple[tuple[frozenset[str], type[GossamerError], str], ...] = (
    (frozenset({"42501"}), UsageError, "PostgreSQL at {place} forbids it ({text}): have it granted"),
    (
        frozenset({"40P01"}),
        DeadlockLost,
        "the ledger at {place} is in a deadlock ({text}): use fewer workers",
    ),
    (
        frozenset({"40001", "23505"}),
        ConflictLost,
        "the ledger at {place} is too busy ({text}): use fewer workers",
    ),
    (
        frozenset({"25006"}),
        TakesNoWrites,
        "PostgreSQL at {place} takes no writes ({text}): name the primary, or wait until this is one",
    ),
    (
        # A division by zero: see `postgres_room.check_limit`.
        frozenset({"22012"}),
        LimitPassed,
        "the job at {place} has all the records it may have",
    ),
    (
        frozenset({"22021", "22P02", "22P05"}),
        TextRefused,
        "the ledger at {place} cannot hold a record: {text}",
    ),
    (
        frozenset({"53100", "53200"}),
        LedgerFailed,
        "the ledger at {place} has no room ({text}): make some, then start workers again",
    ),
    (
        frozenset({"23502"}),
        LedgerFailed,
        "the job is no longer in the ledger at {place}: it was deleted",
    ),
    (
        frozenset({"42P01", "3F000"}),
        UsageError,
        "the database {place} is not prepared: run `gossamer db upgrade`",
    ),
)


#: A server that says so of a connection will say so again. Such errors have no code.
_REFUSALS = ("password", "does not exist", "pg_hba.conf")


def explained(psycopg: ModuleType, error: BaseException, place: str) -> GossamerError:
    """Return our error for one of the driver's."""
    code = getattr(error, "sqlstate", None) or ""
    text = " ".join(str(error).split())
    for codes, kind, message in _MEANINGS:
        if code in codes:
            return kind(message.format(place=place, text=text))
    if isinstance(error, psycopg.OperationalError) and any(word in text for word in _REFUSALS):
        return UsageError(f"PostgreSQL at {place} refuses us ({text}): check user, password and database")
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return BackendLost(
            f"PostgreSQL at {place} does not answer ({text}): check the server and the address"
        )
    return LedgerFailed(f"the ledger at {place} failed: {text}")


def place_of(dsn: str) -> str:
    """Return the server and database of an address, without its password."""
    psycopg = driver()
    try:
        parts = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error as error:
        raise UsageError(
            "that is no address of a PostgreSQL database: it looks like postgresql://user@host:5432/name"
        ) from error
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def _dumper_of(psycopg: ModuleType, kind: type[Any]) -> type[Any]:
    """Return how the driver sends an array that is packed already."""

    def dump(_self: object, packed: Packed) -> bytes:
        return packed.data

    body = {"oid": kind.oid, "format": psycopg.pq.Format.BINARY, "dump": dump}
    return type(f"{kind.__name__}Dumper", (psycopg.adapt.Dumper,), body)


def sever(descriptor: int) -> None:
    """End a connection from below: whoever waits for it sees it closed."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
