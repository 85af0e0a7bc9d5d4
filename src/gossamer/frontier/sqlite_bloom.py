"""The Bloom filter of a SQLite ledger: which URLs were ever accepted, in a few bytes each. See ADR 11.

The filter is in memory. A commit writes the new fingerprints alone, as one short blob in `bloom_added`; when many have
come together, the filter's pages are written, a few with each commit, and then the blobs they contain are dropped.
Only committed fingerprints have their bits set, so a page may be written at any moment and is never wrong: opening a
ledger reads the pages and adds the blobs that are left.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Collection, Sequence

import msgspec

from gossamer.config.settings import ScopeSettings
from gossamer.errors import UsageError
from gossamer.policy.bloom import BLOCK_BYTES, BloomSlice, block_of, find, masks_of, next_slice

_MIN_ERROR_RATE, _MAX_ERROR_RATE = 1e-8, 0.1
#: Three gigabytes at the default error rate.
_MAX_URLS = 1_000_000_000
PAGE_BYTES = 1 << 16
#: How many pages one transaction writes.
_PAGES_AT_ONCE = 64
_MIN_LOGGED = 50_000
_MAX_LOGGED = 1_000_000
#: A page's key: the number of its slice, shifted by this, and its own.
_SLICE_SHIFT = 32
_PAGE_NUMBER = (1 << _SLICE_SHIFT) - 1


class BloomPlan(msgspec.Struct, frozen=True):
    """How a filter is made: its error rate, and how many URLs its first slice is for."""

    error_rate: float
    urls: int


def plan_for(settings: ScopeSettings) -> BloomPlan | None:
    """Return how a job's URLs are remembered; None for exactly. Raises `UsageError` for what no filter can do."""
    rate, urls = settings.bloom_error_rate, settings.bloom_urls
    if not _MIN_ERROR_RATE <= rate <= _MAX_ERROR_RATE:
        raise UsageError(
            f"bloom_error_rate must be between {_MIN_ERROR_RATE} and {_MAX_ERROR_RATE}, not {rate}"
        )
    if urls > _MAX_URLS:
        raise UsageError(
            f"bloom_urls must be at most {_MAX_URLS}, not {urls}; the filter grows when it is full"
        )
    return BloomPlan(rate, urls) if settings.dedup == "bloom" else None


def packed(fingerprints: Sequence[int]) -> bytes:
    """Return fingerprints as the ledger stores a list of them: eight bytes each."""
    return struct.pack(f"<{len(fingerprints)}q", *fingerprints)


def unpacked(blob: bytes) -> tuple[int, ...]:
    """Return what was packed. Raises `sqlite3.DatabaseError` where that cannot be."""
    if len(blob) % 8:
        raise _damaged()
    return struct.unpack(f"<{len(blob) // 8}q", blob)


def stored_plan(db: sqlite3.Connection) -> BloomPlan | None:
    """Return how this ledger's filter was made; None where it has none. Raises `sqlite3.DatabaseError`."""
    row = db.execute("SELECT value FROM meta WHERE key = 'bloom'").fetchone()
    try:
        return msgspec.json.decode(row[0], type=BloomPlan) if row else None
    except msgspec.MsgspecError as error:
        raise _damaged() from error


def open_bloom(db: sqlite3.Connection, wanted: BloomPlan | None) -> SqliteBloom | None:
    """Open the ledger's filter; a ledger without one gets it where it is wanted. None where there is to be none."""
    plan = stored_plan(db)
    if plan is None and wanted is not None:
        db.execute("INSERT INTO meta VALUES ('bloom', ?)", (msgspec.json.encode(wanted).decode(),))
        plan = wanted
    return None if plan is None else SqliteBloom(db, plan)


def is_remembered(db: sqlite3.Connection, fingerprint: int) -> bool:
    """Say whether a stored filter knows a fingerprint, reading one block of each slice and the newest fingerprints."""
    (mask,) = masks_of([fingerprint])
    for number, blocks in db.execute("SELECT number, blocks FROM bloom_slices").fetchall():
        page, offset = divmod(block_of(fingerprint, blocks) * BLOCK_BYTES, PAGE_BYTES)
        row = db.execute(
            "SELECT substr(data, ?, ?) FROM bloom_pages WHERE id = ?",
            (offset + 1, BLOCK_BYTES, number << _SLICE_SHIFT | page),
        ).fetchone()
        if row is not None and int.from_bytes(row[0], "little") & mask == mask:
            return True
    return any(
        fingerprint in unpacked(blob) for (blob,) in db.execute("SELECT fingerprints FROM bloom_added")
    )


class SqliteBloom:
    """A filter that follows the ledger's transactions: see `save`, `saved` and `forget_unsaved`."""

    def __init__(self, db: sqlite3.Connection, plan: BloomPlan) -> None:
        self._db = db
        self._plan = plan
        self._slices: list[BloomSlice] = []
        self._unsaved: list[int] = []
        #: What the transaction adds to which slice.
        self._written: list[tuple[BloomSlice, list[int]]] = []
        #: How many fingerprints the pages lack.
        self._logged = 0
        #: The pages still to be written of a fold that has begun, up to which blob it goes, and how many of each slice.
        self._to_fold: list[int] = []
        self._fold_up_to = 0
        self._folding: dict[int, int] = {}
        self._load()

    def __repr__(self) -> str:
        return f"<SqliteBloom {self._slices}>"

    def _load(self) -> None:
        rows = self._db.execute("SELECT capacity, blocks, keys FROM bloom_slices ORDER BY number")
        for capacity, blocks, keys in rows:
            self._slices.append(BloomSlice(capacity, blocks))
            self._slices[-1].keys = keys
        for key, data in self._db.execute("SELECT id, data FROM bloom_pages"):
            part, start, end = self._place(key)
            if len(data) != end - start:
                raise _damaged()
            part.bits[start:end] = data
        for number, blob in self._db.execute("SELECT slice, fingerprints FROM bloom_added ORDER BY id"):
            added = unpacked(blob)
            self._slice(number).add(added)
            self._logged += len(added)

    def _place(self, key: int) -> tuple[BloomSlice, int, int]:
        """Return the slice of a page, and where in it the page begins and ends."""
        part = self._slice(key >> _SLICE_SHIFT)
        start = (key & _PAGE_NUMBER) * PAGE_BYTES
        return part, start, min(start + PAGE_BYTES, len(part.bits))

    def _slice(self, number: int) -> BloomSlice:
        if not 0 <= number < len(self._slices):
            raise _damaged()
        return self._slices[number]

    def find(self, fingerprints: Collection[int]) -> set[int]:
        """Return which fingerprints were ever accepted: never too few, rarely one too many."""
        return find(self._slices, fingerprints)

    # -- adding ----------------------------------------------------------------------------------------

    def add(self, fingerprint: int) -> None:
        """Note a URL that is being accepted. `find` knows it once the transaction is committed."""
        self._unsaved.append(fingerprint)

    def save(self) -> None:
        """Write what was added, as part of the transaction."""
        slices, left = list(self._slices), self._unsaved
        room = slices[-1].room if slices else 0
        while left:
            if not room:
                slices.append(self._begin_slice(slices))
                room = slices[-1].room
            chunk, left = left[:room], left[room:]
            room = 0
            self._db.execute(
                "INSERT INTO bloom_added(slice, fingerprints) VALUES (?, ?)", (len(slices) - 1, packed(chunk))
            )
            self._written.append((slices[-1], chunk))
        self._unsaved = []

    def _begin_slice(self, before: Sequence[BloomSlice]) -> BloomSlice:
        part = next_slice(before, self._plan.error_rate, self._plan.urls)
        row = (len(before), part.capacity, part.blocks)
        self._db.execute("INSERT INTO bloom_slices(number, capacity, blocks) VALUES (?, ?, ?)", row)
        return part

    def saved(self) -> None:
        """Set the bits of what was added: the transaction is committed."""
        for part, fingerprints in self._written:
            if part not in self._slices:
                self._slices.append(part)
            part.add(fingerprints)
            self._logged += len(fingerprints)
        self._written.clear()

    def forget_unsaved(self) -> None:
        """Drop what was added in a transaction that is rolled back."""
        self._unsaved.clear()
        self._written.clear()

    # -- folding ---------------------------------------------------------------------------------------

    @property
    def wants_fold(self) -> bool:
        """Whether pages should be written: a fold has begun, or an eighth of the last slice is not in its pages."""
        if self._to_fold:
            return True
        last = self._slices[-1].capacity if self._slices else 0
        return self._logged >= min(max(_MIN_LOGGED, last // 8), _MAX_LOGGED)

    def fold(self) -> None:
        """Write the next pages, and with the last drop the blobs they contain. Call in a transaction, then `folded`."""
        if not self._to_fold:
            self._begin_fold()
        pages = self._to_fold[:_PAGES_AT_ONCE]
        rows = []
        for key in pages:
            part, start, end = self._place(key)
            rows.append((key, part.bits[start:end]))
        self._db.executemany("INSERT OR REPLACE INTO bloom_pages VALUES (?, ?)", rows)
        if len(pages) == len(self._to_fold):
            self._drop_blobs()

    def _begin_fold(self) -> None:
        rows = self._db.execute(
            "SELECT slice, max(id), sum(length(fingerprints)) / 8 FROM bloom_added GROUP BY slice ORDER BY slice"
        ).fetchall()
        self._folding = {number: keys for number, _, keys in rows}
        self._fold_up_to = max(last for _, last, _ in rows)
        self._to_fold = [
            number << _SLICE_SHIFT | page
            for number in self._folding
            for page in range(-(-len(self._slices[number].bits) // PAGE_BYTES))
        ]

    def _drop_blobs(self) -> None:
        self._db.executemany(
            "UPDATE bloom_slices SET keys = keys + ? WHERE number = ?",
            [(keys, number) for number, keys in self._folding.items()],
        )
        self._db.execute("DELETE FROM bloom_added WHERE id <= ?", (self._fold_up_to,))

    def folded(self) -> None:
        """Go on to the next pages: these are committed."""
        del self._to_fold[:_PAGES_AT_ONCE]
        if not self._to_fold:
            self._logged -= sum(self._folding.values())
            self._folding = {}


def _damaged() -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError("its Bloom filter is malformed")
