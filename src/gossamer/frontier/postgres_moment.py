"""One moment of a PostgreSQL database, for questions: a read-only transaction on a connection of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from gossamer.errors import LedgerFailed
from gossamer.frontier.postgres_pool import SCHEMA, driver, explained, place_of, sever
from gossamer.frontier.postgres_schema import check_version

if TYPE_CHECKING:
    import psycopg

#: The server ended a transaction in which nothing was asked for too long.
_IDLE = "25P03"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of how long a question may take."""

    connect_seconds: float = 10.0
    #: A question that takes longer is given up by the server, and a little later by us, whatever the server does.
    question_seconds: float = 120.0
    #: What the server has to end a question by itself before we hang up.
    grace_seconds: float = 5.0
    #: The first row of an audit comes when the server has sorted the whole fetch log.
    audit_seconds: float = 3600.0
    #: Whoever stops reading a listing keeps the server from clearing away what has changed since; then it is ended.
    idle_seconds: float = 600.0


class PostgresMoment:
    """Answers from one moment of a database, the one of the first question. A context manager.

    * It changes nothing: the server refuses.
    * A server that is away, or silent for too long, raises `BackendLost`; tables that this program does not know,
      `UsageError` or `LedgerFailed`.
    """

    def __init__(self, dsn: str, limits: ReadLimits | None = None) -> None:
        self._psycopg = driver()
        self._listings = itertools.count(1)
        self.limits = limits or ReadLimits()
        #: The server and database, without the password, for people.
        self.place = place_of(dsn)
        check_version(dsn)
        with self._explained():
            self._connection = self._connect(dsn)

    def __repr__(self) -> str:
        return f"<PostgresMoment {self.place}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        with suppress(self._psycopg.Error):
            self._connection.close()

    def ask(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows: for questions whose answers are short."""
        with self._in_time(self.limits.question_seconds):
            return self._connection.execute(sql, parameters).fetchall()

    def stream(
        self, sql: str, parameters: Sequence[object] = (), *, rows: int = 1000, seconds: float = 0.0
    ) -> Iterator[tuple[Any, ...]]:
        """Return rows as they are read, so many at a time; other questions may be asked in between.

        Each reading may take as long as a question, or so many seconds.
        """
        longest = seconds or self.limits.question_seconds
        cursor = self._connection.cursor(f"listing_{next(self._listings)}")
        try:
            with self._in_time(longest):
                self._connection.execute(f"SET LOCAL statement_timeout = {longest * 1000:.0f}")
                cursor.execute(sql, parameters)
            while True:
                with self._in_time(longest):
                    page = cursor.fetchmany(rows)
                yield from page
                if len(page) < rows:
                    return
        finally:
            # It may be the connection that failed, or be gone with it.
            with suppress(self._psycopg.Error):
                cursor.close()

    def _connect(self, dsn: str) -> psycopg.Connection[tuple[Any, ...]]:
        limits, driven = self.limits, self._psycopg
        connection: psycopg.Connection[tuple[Any, ...]] = driven.connect(
            dsn,
            connect_timeout=max(1, round(limits.connect_seconds)),
            keepalives_idle=15,
            application_name="gossamer",
        )
        connection.isolation_level = driven.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        settings = {
            "search_path": SCHEMA,
            "statement_timeout": f"{limits.question_seconds * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{limits.idle_seconds * 1000:.0f}",
            "jit": "off",
        }
        asked = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        connection.execute(f"SELECT {asked}")
        return connection

    @contextmanager
    def _in_time(self, seconds: float) -> Iterator[None]:
        """Hang up on a server that keeps the connection open and says nothing."""
        alarm = threading.Timer(seconds + self.limits.grace_seconds, sever, (self._connection.fileno(),))
        alarm.daemon = True
        alarm.start()
        try:
            with self._explained():
                yield
        finally:
            alarm.cancel()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            if getattr(error, "sqlstate", None) == _IDLE:
                raise LedgerFailed(
                    f"nobody read on for {self.limits.idle_seconds:g} s, so {self.place} ended the answer: ask again"
                ) from error
            raise explained(self._psycopg, error, self.place) from error
