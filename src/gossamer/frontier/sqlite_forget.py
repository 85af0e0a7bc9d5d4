"""Deletes the rows of finished URLs from a SQLite ledger whose Bloom filter remembers them. See ADR 11.

What can still come back keeps its row: held and failed URLs, those refused for their depth, and those that were opened
again because their redirects led back to them, which must happen once only.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

from gossamer.frontier.sqlite_fingerprints import CHUNK, chunks
from gossamer.model.outcome import Found, State

_FINISHED = (State.FETCHED, State.REDIRECTED, State.UNCHANGED, State.DUPLICATE, State.REFUSED)
#: A nearer page or a higher --depth lets these in after all.
_REVOCABLE = "depth"
_FORGET = f"""
    DELETE FROM urls
    WHERE seq IN ({",".join("?" * CHUNK)}) AND state IN ({",".join(str(int(state)) for state in _FINISHED)})
        AND reason <> '{_REVOCABLE}' AND visit = 1
    RETURNING fp, seq, host, state = {State.REFUSED:d} AND reason = 'robots', crashes
"""  # noqa: S608 - numbers, marks and a constant


def is_forgettable(found: Found) -> bool:
    """Say whether a URL is finished as soon as it is found."""
    return found.refusal not in {"", _REVOCABLE}


def forget(db: sqlite3.Connection, seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Delete those of the rows that are finished; returns their fingerprints and numbers.

    What a report and an audit still ask of them is added to `hosts` and `totals`.
    """
    gone: list[tuple[int, int]] = []
    forbidden: Counter[int] = Counter()
    crashes = 0
    for chunk in chunks(seqs):
        for fingerprint, seq, host, was_forbidden, died in db.execute(_FORGET, chunk).fetchall():
            gone.append((fingerprint, seq))
            forbidden[host] += was_forbidden
            crashes += died
    db.executemany(
        "UPDATE hosts SET forbidden = forbidden + ? WHERE id = ?",
        [(n, host) for host, n in forbidden.items() if n],
    )
    if crashes:
        db.execute(
            "INSERT INTO totals VALUES ('crashes', ?) ON CONFLICT(name) DO UPDATE SET n = n + excluded.n",
            (crashes,),
        )
    return gone
