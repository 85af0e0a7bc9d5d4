"""Requests as rows of a SQLite ledger: columns for what every request has, one packed column for what few have."""

from __future__ import annotations

import msgspec

from gossamer.model.outcome import Fetch, Found, Revival, State
from gossamer.model.request import Known, Request, Source

#: A detail longer than this is cut.
MAX_DETAIL = 500
#: Takes what `row_of` returns.
INSERT = """
    INSERT INTO urls(seq, fp, host, url, state, reason, detail, priority, depth, parent, parent_url, source, attempt,
                     request, visit)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
#: Takes what `fetch_row` returns.
INSERT_FETCH = """
    INSERT INTO fetches(fp, url, grp, kind, attempt, started_at, delay, elapsed, status, wire_bytes, problem, robots)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class _Extras(msgspec.Struct, frozen=True, omit_defaults=True):
    """What few requests have: everything of a Request that has no column. Most rows store none."""

    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    route: str = ""
    fetcher: str = "http"
    metadata: dict[str, str] = {}
    redirected_from: tuple[str, ...] = ()
    hop: str = ""


_NO_EXTRAS = _Extras()
_encode = msgspec.msgpack.Encoder().encode
_decode_extras = msgspec.msgpack.Decoder(_Extras).decode


def packed_extras(request: Request) -> bytes | None:
    """Return what of a request has no column; None for an ordinary one."""
    extras = _Extras(
        request.method,
        request.body,
        request.headers,
        request.route,
        request.fetcher,
        request.metadata,
        request.redirected_from,
        request.hop,
    )
    return None if extras == _NO_EXTRAS else _encode(extras)


def row_of(
    known: Known, host: int, found: Found, parent: int | None, parent_url: str | None
) -> tuple[object, ...]:
    """Return the row of a URL that is new: queued, or refused where its finding says so."""
    request = known.request
    return (
        known.seq,
        request.fingerprint,
        host,
        request.url,
        int(State.REFUSED if found.refusal else State.QUEUED),
        found.refusal,
        found.detail[:MAX_DETAIL] or None,
        request.priority,
        request.depth,
        parent,
        parent_url,
        request.source,
        known.attempt,
        packed_extras(request),
        known.visit,
    )


def fetch_row(known: Known, fetch: Fetch, *, has_row: bool) -> tuple[object, ...]:
    """Return the row of a request that went out. It names its URL unless the row of that URL, which stays, does."""
    page = fetch.kind == "page"
    return (
        known.request.fingerprint if page else None,
        None if page and has_row and fetch.url == known.request.url else fetch.url,
        fetch.group,
        fetch.kind,
        known.attempt,
        fetch.started_at,
        fetch.delay,
        fetch.elapsed,
        fetch.status,
        fetch.wire_bytes,
        fetch.problem,
        fetch.robots,
    )


def revival_condition(which: Revival) -> tuple[str, list[object]]:
    """Return the SQL condition on a URL's row for what to revive."""
    states = ",".join(str(int(state)) for state in which.states)
    asked: list[tuple[str, object]] = [("reason <> ?", reason) for reason in which.except_reasons]
    if which.reason:
        asked.append(("reason = ?", which.reason))
    if which.host:
        asked.append(("host = (SELECT id FROM hosts WHERE host = ?)", which.host))
    if which.fingerprint is not None:
        asked.append(("fp = ?", which.fingerprint))
    if which.max_depth is not None:
        asked.append(("depth <= ?", which.max_depth))
    if which.pages_below is not None:
        asked.append(("host IN (SELECT id FROM hosts WHERE pages < ?)", which.pages_below))
    clauses = [f"state IN ({states})", *(clause for clause, _ in asked)]
    return " AND ".join(clauses), [value for _, value in asked]


def known_from(
    host: str,
    seq: int,
    fp: int,
    url: str,
    priority: int,
    depth: int,
    parent: str | None,
    source: str,
    attempt: int,
    tries: int,
    crashes: int,
    not_before: float,
    packed: bytes | None,
    etag: str | None,
    last_modified: str | None,
    visit: int,
) -> Known:
    """Return the request that a row stands for."""
    extras = _decode_extras(packed) if packed else _NO_EXTRAS
    request = Request(
        url,
        fp,
        host,
        depth,
        priority,
        parent or "",
        Source(source),
        extras.method,
        extras.body,
        extras.headers,
        extras.route,
        extras.fetcher,
        extras.metadata,
        extras.redirected_from,
        extras.hop,
    )
    return Known(request, seq, attempt, tries, crashes, not_before, etag or "", last_modified or "", visit)
