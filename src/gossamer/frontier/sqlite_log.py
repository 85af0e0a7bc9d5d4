"""The record log of a SQLite ledger, read-only, also while a crawl is writing it."""

from __future__ import annotations

from pathlib import Path

import zstandard

from gossamer.errors import LedgerFailed
from gossamer.frontier.sqlite_schema import connect_readonly, explained
from gossamer.model.schedule import LogEntry

_LOG = "SELECT position, records, data FROM log WHERE position > ? AND records > 0 ORDER BY position LIMIT ?"


class SqliteLog:
    """Hands out the log of one ledger. What cannot be read raises `LedgerFailed`."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise LedgerFailed(
                f"there is no ledger at {path}: the job was never started, or the file was removed"
            )
        self._path = path
        self._db = connect_readonly(path)
        self._decompressor = zstandard.ZstdDecompressor()

    def __repr__(self) -> str:
        return f"<SqliteLog {self._path}>"

    async def log(self, after: int, limit: int) -> list[LogEntry]:
        """Return batches of the record log behind a position."""
        with explained(self._path):
            rows = self._db.execute(_LOG, (after, limit)).fetchall()
        try:
            return [LogEntry(p, n, self._decompressor.decompress(data)) for p, n, data in rows]
        except zstandard.ZstdError as error:
            raise LedgerFailed(
                f"{self._path} is damaged ({error}): a batch of its log cannot be read"
            ) from error

    async def close(self) -> None:
        """Let go of the file."""
        self._db.close()
