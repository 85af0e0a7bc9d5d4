"""The page record: one JSON object for every final HTTP response."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

#: Version of the record's fields; readers of old logs can tell what to expect.
SCHEMA_VERSION = 1


class PageRecord(msgspec.Struct):
    """What an output file holds for a page, in the order of its fields."""

    url: str
    final_url: str
    status: int
    content_type: str
    fetched_at: datetime
    depth: int
    parent: str
    title: str
    description: str
    language: str
    headings: list[str]
    #: Absolute, canonical, unique, in page order.
    links: list[str]
    noindex: bool
    #: SHA-256 of the body after its content codings were removed.
    content_hash: str
    bytes: int
    elapsed_ms: int
    attempt: int
    #: 64 bits of the text as 16 hex digits, where asked for and where there is text.
    simhash: str | msgspec.UnsetType = msgspec.UNSET
    redirected_from: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    data: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


FIELDS = tuple(PageRecord.__struct_fields__)

#: Any escape of JSON, a pair of surrogates as one: so a backslash that is escaped itself is not mistaken for one.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
)
_NUL = b"\\u0000"
_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_REPLACEMENT = "\ufffd".encode()

_encode = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(PageRecord).decode


def encode_record(record: PageRecord) -> bytes:
    """Return a record as a line of JSON, without its line end. U+FFFD stands for NUL, which databases cannot hold.

    The same in every ledger, so that a page has the same line wherever it was crawled.
    """
    line = _encode(record)
    return storable_line(line) if _NUL in line else line


def storable_line(line: bytes) -> bytes:
    """Return JSON that any database can hold: U+FFFD for NUL, for half a pair of surrogates, for what is no UTF-8."""
    return _ESCAPE.sub(_storable, line.decode("utf-8", "replace").encode())


def _storable(escape: re.Match[bytes]) -> bytes:
    found = escape[0]
    return _REPLACEMENT if found == _NUL or _HALF.fullmatch(found) else found


def instant(seconds: float) -> datetime:
    """Return an instant as a UTC time, to the millisecond."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)
