"""Which roots span the scope of a shared job, where there are more than a worker keeps in memory."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gossamer.frontier.postgres_pool import driver, explained, place_of

if TYPE_CHECKING:
    import psycopg

_ASK = "SELECT EXISTS (SELECT 1 FROM gossamer.roots WHERE job = %s AND root = %s)"
_MAX_REMEMBERED = 100_000
_CONNECT_SECONDS = 10


class PostgresRoots:
    """Asks the database for roots, and waits for the answer; connects at the first question, which few jobs ever ask."""

    def __init__(self, dsn: str, job: int) -> None:
        self._dsn = dsn
        self._job = job
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.is_root = lru_cache(_MAX_REMEMBERED)(self._is_root)

    def _is_root(self, root: str) -> bool:
        """Say whether the root spans the scope."""
        psycopg = driver()
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._dsn, autocommit=True, connect_timeout=_CONNECT_SECONDS
                )
            row = self._connection.execute(_ASK, (self._job, root)).fetchone()
        except psycopg.Error as error:
            raise explained(psycopg, error, place_of(self._dsn)) from error
        return bool(row and row[0])
