"""Which URLs a SQLite ledger holds, by fingerprint, at a cost that does not grow with their number.

Fingerprints are random: once their index is larger than a few thousand pages, nearly every new URL dirties a page
of its own, and a commit writes megabytes. So the newest URLs are indexed in memory only. Their rows in `urls`
are the log of that memory: when a ledger is opened they are read again. When enough have come together they are
merged into the index in order of fingerprint, many to a page.

A row that is deleted, which only jobs with a Bloom filter do, leaves its entry behind: it leads to no row, and goes
with the next merge. Rows are never numbered alike, so it cannot lead to another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from gossamer.frontier.sqlite_bloom import packed, unpacked

#: How many values one look-up asks for.
CHUNK = 100
_MARKS = ",".join("?" * CHUNK)
_FIND = f"SELECT fp, seq FROM fingerprints WHERE fp IN ({_MARKS})"  # noqa: S608 - only marks
_MIN_RECENT = 50_000
_MAX_RECENT = 250_000


class FingerprintIndex:
    """Maps fingerprints to the rows of `urls`. Its memory follows the transaction: see `saved` and `forget_unsaved`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._merged = self._read_merged()
        rows = db.execute("SELECT fp, seq FROM urls WHERE seq > ?", (self._merged,))
        self._recent: dict[int, int] = dict(rows.fetchall())
        self._unsaved: list[int] = []
        self._removed: list[int] = []
        self._forgotten = self._read_forgotten()

    def _read_forgotten(self) -> int:
        row = self._db.execute("SELECT coalesce(sum(length(fingerprints)), 0) / 8 FROM forgotten").fetchone()
        return int(row[0])

    def _read_merged(self) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'merged_seq'").fetchone()
        return int(row[0]) if row else 0

    def find(self, fingerprints: Sequence[int]) -> dict[int, int]:
        """Return the row of each fingerprint that is known; a deleted row may be among them."""
        recent = self._recent
        found = {fp: recent[fp] for fp in fingerprints if fp in recent}
        older = sorted(fp for fp in fingerprints if fp not in found) if self._merged else []
        for chunk in chunks(older):
            found.update(self._db.execute(_FIND, chunk).fetchall())
        return found

    def add(self, fingerprint: int, seq: int) -> None:
        """Note a row that is being inserted."""
        self._recent[fingerprint] = seq
        self._unsaved.append(fingerprint)

    def remove(self, fingerprint: int, seq: int) -> None:
        """Note a row that is being deleted. What is in memory only need not be written down."""
        if seq <= self._merged:
            self._removed.append(fingerprint)

    def save(self) -> None:
        """Write down which rows were deleted, as part of the transaction."""
        if self._removed:
            self._db.execute("INSERT INTO forgotten(fingerprints) VALUES (?)", (packed(self._removed),))

    def saved(self) -> None:
        """Keep what was added and removed: the transaction is committed."""
        self._unsaved.clear()
        self._forgotten += len(self._removed)
        self._removed.clear()

    def forget_unsaved(self) -> None:
        """Drop what was added in a transaction that is rolled back."""
        for fingerprint in self._unsaved:
            del self._recent[fingerprint]
        self._unsaved.clear()
        self._removed.clear()

    @property
    def is_full(self) -> bool:
        """Whether it is time to merge: the larger the index, the more must come together to share its pages."""
        enough = min(max(_MIN_RECENT, self._merged // 8), _MAX_RECENT)
        return len(self._recent) >= enough or self._forgotten >= enough

    def merge(self, up_to: int) -> None:
        """Move everything up to a row from memory to the index. Call in a transaction, then `merged`."""
        # First: a URL that came back after its row was deleted has a new row.
        self._drop_forgotten()
        self._db.execute(
            "INSERT OR IGNORE INTO fingerprints SELECT fp, seq FROM urls WHERE seq > ? AND seq <= ? ORDER BY fp",
            (self._merged, up_to),
        )
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('merged_seq', ?)", (str(up_to),))

    def _drop_forgotten(self) -> None:
        blobs = self._db.execute("SELECT fingerprints FROM forgotten").fetchall()
        gone = sorted(fingerprint for (blob,) in blobs for fingerprint in unpacked(blob))
        self._db.executemany(
            "DELETE FROM fingerprints WHERE fp = ?", [(fingerprint,) for fingerprint in gone]
        )
        self._db.execute("DELETE FROM forgotten")

    def merged(self, up_to: int) -> None:
        """Empty the memory: the merge is committed."""
        self._merged = up_to
        self._forgotten = 0
        self._recent.clear()


def chunks(items: Sequence[int]) -> Iterator[list[int]]:
    """Cut into pieces of one size, the last filled up by repeating itself, so that one statement fits all."""
    for start in range(0, len(items), CHUNK):
        chunk = list(items[start : start + CHUNK])
        yield chunk + [chunk[-1]] * (CHUNK - len(chunk))
