"""The tables of a ledger that hold every robots.txt ever read, and since when one cannot be had."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import zstandard

from gossamer.model.outcome import ROBOTS_ASSUMED, ROBOTS_UNREACHABLE, RobotsFile, StoredRobots

#: What is no answer of the origin.
_NO_ANSWER = frozenset({ROBOTS_UNREACHABLE, ROBOTS_ASSUMED})


class RobotsTable:
    """Writes within the transaction of its caller, and on its thread."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._decompressor = zstandard.ZstdDecompressor()

    def write(self, files: Sequence[RobotsFile]) -> None:
        """Store what was read or assumed, and note when a row of failures began or ended."""
        for file in files:
            if file.status in _NO_ANSWER:
                row = (file.origin, file.fetched_at)
                self._db.execute("INSERT OR IGNORE INTO robots_failures(origin, since) VALUES (?, ?)", row)
            else:
                self._db.execute("DELETE FROM robots_failures WHERE origin = ?", (file.origin,))
        self._db.executemany(
            "INSERT OR IGNORE INTO robots(origin, fetched_at, status, version, body) VALUES (?, ?, ?, ?, ?)",
            [
                (f.origin, f.fetched_at, f.status, f.version, self._compressor.compress(f.body))
                for f in files
                if f.status != ROBOTS_UNREACHABLE
            ],
        )

    def read(self, origin: str) -> StoredRobots:
        """Return the newest robots.txt of an origin, and since when it has not answered."""
        failure = self._db.execute("SELECT since FROM robots_failures WHERE origin = ?", (origin,)).fetchone()
        since = failure[0] if failure else 0.0
        row = self._db.execute(
            "SELECT fetched_at, status, body, version FROM robots WHERE origin = ? ORDER BY fetched_at DESC",
            (origin,),
        ).fetchone()
        if row is None:
            return StoredRobots(None, since)
        fetched_at, status, packed, version = row
        body = self._decompressor.decompress(packed)
        return StoredRobots(RobotsFile(origin, fetched_at, status, body, version), since)
