"""Which page first had a content, in a SQLite ledger. Runs inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gossamer.model.outcome import Content, Settled, Visit
from gossamer.policy.near_duplicates import MAX_DISTANCE, blocks

_SIGNED = 1 << 63
_UNSIGNED = 1 << 64
_ALL = _UNSIGNED - 1
#: Contents looked at for one block of a simhash. A million contents share one some 15 at a time, those of one template
#: may be many more; what is behind so many is not found.
_MAX_SHARING = 5000
_SHARING = "SELECT simhash, hash FROM near_contents WHERE block = ? LIMIT ?"


class ContentTable:
    """Reads and writes `contents` and `near_contents`.

    A content belongs to the page that was first committed with it, and to no other for as long as the ledger lives.
    Nothing is kept in memory, so a rollback takes every claim back.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def claim(self, visits: Sequence[Visit]) -> dict[int, str]:
        """Give contents that nobody has to these pages, in their order; the others, by row, with what they repeat."""
        repeats = {}
        for visit in visits:
            content = visit.content
            if content is None or not visit.record or not isinstance(visit.outcome, Settled):
                continue
            url = visit.known.request.url
            repeated = self._repeated(content, url)
            if repeated:
                repeats[visit.known.seq] = repeated
            else:
                self._take(content, url)
        return repeats

    def _repeated(self, content: Content, url: str) -> str:
        """Name the page that has the content; empty where there is none but the one that asks."""
        owner = self._owner(content.exact)
        if owner:
            return f"same as {owner}" if owner != url else ""
        owner = self._nearest_owner(content.near) if content.near is not None else ""
        return f"nearly the same as {owner}" if owner not in {"", url} else ""

    def _owner(self, exact: int) -> str:
        row = self._db.execute("SELECT url FROM contents WHERE hash = ?", (exact,)).fetchone()
        return str(row[0]) if row is not None else ""

    def _nearest_owner(self, simhash: int) -> str:
        near: list[tuple[int, int]] = []
        for block in _places(simhash):
            rows = self._db.execute(_SHARING, (block, _MAX_SHARING)).fetchall()
            # A negative number masked is its 64 bits.
            near += [
                (bits, exact)
                for stored, exact in rows
                if (bits := ((stored ^ simhash) & _ALL).bit_count()) <= MAX_DISTANCE
            ]
        return self._owner(min(near)[1]) if near else ""

    def _take(self, content: Content, url: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO contents(hash, url) VALUES (?, ?)", (content.exact, url))
        if content.near is not None:
            stored = _signed(content.near)
            self._db.executemany(
                "INSERT OR IGNORE INTO near_contents(block, simhash, hash) VALUES (?, ?, ?)",
                [(block, stored, content.exact) for block in _places(content.near)],
            )


def _places(simhash: int) -> list[int]:
    """Return the four keys a simhash is filed under: which block it is, and its 16 bits."""
    return [number << 16 | block for number, block in enumerate(blocks(simhash))]


def _signed(simhash: int) -> int:
    """Return 64 bits as SQLite stores them."""
    return simhash - _UNSIGNED if simhash >= _SIGNED else simhash
