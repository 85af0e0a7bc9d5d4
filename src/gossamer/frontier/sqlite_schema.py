"""The schema of a job's SQLite ledger, its versions, and how a file is opened."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import LedgerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

#: One script per version; a ledger of version n runs scripts n+1 and on. Never edit a released one.
MIGRATIONS = (
    """
    CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    CREATE TABLE hosts(
        id INTEGER PRIMARY KEY,
        host TEXT NOT NULL UNIQUE,
        grp TEXT NOT NULL,
        pages INTEGER NOT NULL DEFAULT 0
    );

    -- seq is the order of discovery: the table only grows at its end, so ten million URLs stay fast to add.
    -- parent is the seq of the page a URL was found on.
    CREATE TABLE urls(
        seq INTEGER PRIMARY KEY,
        fp INTEGER NOT NULL,
        host INTEGER NOT NULL,
        url TEXT NOT NULL,
        state INTEGER NOT NULL,
        reason TEXT NOT NULL DEFAULT '',
        detail TEXT,
        priority INTEGER NOT NULL,
        depth INTEGER NOT NULL,
        parent INTEGER,
        source TEXT NOT NULL,
        attempt INTEGER NOT NULL DEFAULT 0,
        tries INTEGER NOT NULL DEFAULT 0,
        crashes INTEGER NOT NULL DEFAULT 0,
        not_before REAL NOT NULL DEFAULT 0,
        status INTEGER,
        settled_at REAL,
        request BLOB,
        etag TEXT,
        last_modified TEXT,
        visit INTEGER NOT NULL DEFAULT 1,
        next_visit REAL
    );
    -- By fingerprint, all but the newest rows: see sqlite_fingerprints.py.
    CREATE TABLE fingerprints(fp INTEGER PRIMARY KEY, seq INTEGER NOT NULL);
    CREATE INDEX urls_live ON urls(host, priority) WHERE state = 0;

    CREATE TABLE counts(
        state INTEGER NOT NULL, reason TEXT NOT NULL, n INTEGER NOT NULL,
        PRIMARY KEY(state, reason)
    ) WITHOUT ROWID;
    CREATE TABLE totals(name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE roots(root TEXT PRIMARY KEY) WITHOUT ROWID;

    CREATE TABLE groups(
        grp TEXT PRIMARY KEY, last_start REAL NOT NULL, delay REAL NOT NULL,
        until REAL NOT NULL, failures INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE fetches(
        id INTEGER PRIMARY KEY,
        fp INTEGER,
        url TEXT,
        grp TEXT NOT NULL,
        kind TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        started_at REAL NOT NULL,
        delay REAL NOT NULL,
        elapsed REAL NOT NULL,
        status INTEGER NOT NULL,
        wire_bytes INTEGER NOT NULL,
        problem TEXT NOT NULL,
        robots INTEGER NOT NULL
    );
    CREATE TABLE robots(
        origin TEXT NOT NULL, fetched_at REAL NOT NULL, status INTEGER NOT NULL,
        version INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY(origin, fetched_at)
    );

    -- The record log: one row a commit, its records as one zstd frame of JSON lines. `lost` is what the
    -- commit answered, so that the same batch sent again gets the same answer.
    CREATE TABLE log(
        position INTEGER PRIMARY KEY,
        batch TEXT NOT NULL UNIQUE,
        committed_at REAL NOT NULL,
        records INTEGER NOT NULL,
        data BLOB,
        lost BLOB NOT NULL
    );
    CREATE TABLE cursors(
        output TEXT PRIMARY KEY, position INTEGER NOT NULL, "offset" INTEGER NOT NULL, records INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    -- Cookies, as the jar writes them, in the order they were set.
    CREATE TABLE cookies(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, data BLOB NOT NULL);

    ALTER TABLE groups ADD COLUMN slowness REAL NOT NULL DEFAULT 0;

    -- Since when a robots.txt could not be fetched.
    CREATE TABLE robots_failures(origin TEXT PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID;

    -- The page that first had a content, by its exact hash; and that hash by each of the four 16-bit blocks of its
    -- simhash: those that differ in three bits at most have a block in common.
    CREATE TABLE contents(hash INTEGER PRIMARY KEY, url TEXT NOT NULL);
    CREATE TABLE near_contents(
        block INTEGER NOT NULL, simhash INTEGER NOT NULL, hash INTEGER NOT NULL, PRIMARY KEY(block, simhash)
    ) WITHOUT ROWID;
    -- As `lost`, for the same batch sent again.
    ALTER TABLE log ADD COLUMN duplicates BLOB;

    -- A job with --dedup bloom deletes the rows of finished URLs. What they are still needed for is kept here: the page
    -- a URL was found on, and how many URLs of a host robots.txt forbade.
    ALTER TABLE urls ADD COLUMN parent_url TEXT;
    ALTER TABLE hosts ADD COLUMN forbidden INTEGER NOT NULL DEFAULT 0;
    -- Fingerprints of deleted rows, in blobs, that are still in `fingerprints`.
    CREATE TABLE forgotten(id INTEGER PRIMARY KEY, fingerprints BLOB NOT NULL);
    -- The filter that knows them: see sqlite_bloom.py.
    CREATE TABLE bloom_slices(
        number INTEGER PRIMARY KEY, capacity INTEGER NOT NULL, blocks INTEGER NOT NULL, keys INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE bloom_pages(id INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE bloom_added(id INTEGER PRIMARY KEY, slice INTEGER NOT NULL, fingerprints BLOB NOT NULL);
    """,
)

VERSION = len(MIGRATIONS)


def connect(path: Path, *, cache_bytes: int = 32 << 20) -> sqlite3.Connection:
    """Open a ledger for writing, making or upgrading it as needed."""
    with explained(path):
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        with _closed_on_failure(db):
            db.execute("PRAGMA journal_mode=WAL")
            # FULL: a commit is on the disk before it counts. One fsync per batch is cheap, and power may fail.
            db.execute("PRAGMA synchronous=FULL")
            db.execute(f"PRAGMA cache_size=-{cache_bytes // 1024}")
            db.execute("PRAGMA temp_store=MEMORY")
            _migrate(db, path)
        return db


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open a ledger for questions, also while a crawl writes it, and where its folder cannot be written."""
    wal = path.with_name(path.name + "-wal")
    # Without a WAL nobody writes it; then SQLite need not make one, which a read-only folder would not let it.
    mode = "mode=ro" if wal.exists() or os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
    uri = f"{path.resolve().as_uri()}?{mode}"
    with explained(path):
        db = sqlite3.connect(uri, uri=True, isolation_level=None)
        with _closed_on_failure(db):
            if 0 < _version(db) < VERSION and _upgrade(path):
                db.close()
                db = sqlite3.connect(uri, uri=True, isolation_level=None)
            db.execute("PRAGMA query_only=ON")
            version = _version(db)
            if version == 0:
                raise LedgerFailed(
                    f"{path} is empty: its job was stopped before it began; run its command again"
                )
            if version != VERSION:
                raise LedgerFailed(
                    f"{path} has ledger version {version}, this Gossamer reads {VERSION}: resume its job to upgrade it"
                )
        return db


def _upgrade(path: Path) -> bool:
    """Bring the ledger of an older Gossamer up to date before it is read; False where it cannot be written."""
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return False
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        _migrate(db, path)
    return True


@contextmanager
def _closed_on_failure(db: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        db.close()
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one line that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text or "disk I/O" in text:
            raise LedgerFailed(
                f"the ledger {path} could not be written ({text}): make room, then run the same command to resume"
            ) from error
        if "readonly" in text or "unable to open" in text:
            raise LedgerFailed(
                f"the ledger {path} cannot be opened for writing ({text}): check its folder"
            ) from error
        if "locked" in text:
            raise LedgerFailed(f"the ledger {path} is locked by another program") from error
        if "malformed" in text or "not a database" in text or "no such table" in text:
            raise LedgerFailed(
                f"the ledger {path} is damaged ({text}): restore it from a copy, or start over with --fresh"
            ) from error
        raise LedgerFailed(f"the ledger {path} failed: {text}") from error


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    version = _version(db)
    if version > VERSION:
        raise LedgerFailed(
            f"{path} was made by a newer Gossamer (ledger version {version}, known: {VERSION})"
        )
    while version < VERSION:
        db.execute("BEGIN IMMEDIATE")
        # Somebody else may have come first.
        version = _version(db)
        for statement in _statements(MIGRATIONS[version]) if version < VERSION else ():
            db.execute(statement)
        version = min(version + 1, VERSION)
        db.execute(f"PRAGMA user_version={version}")
        db.execute("COMMIT")


def _statements(script: str) -> Iterator[str]:
    """Cut a script into its statements: `executescript` would commit the transaction it runs in."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
