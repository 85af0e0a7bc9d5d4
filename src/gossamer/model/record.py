"""The page record: one JSON object for every final HTTP response."""

from __future__ import annotations

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

encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(PageRecord).decode


def instant(seconds: float) -> datetime:
    """Return an instant as a UTC time, to the millisecond."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)
