"""Requests as rows of a SQLite ledger: columns for what every request has, one packed column for what few have."""

from __future__ import annotations

import msgspec

from gossamer.model.request import Known, Request, Source


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
