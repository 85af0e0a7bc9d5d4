"""A record is one line of JSON that any database can hold."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.model.record import PageRecord, decode_record, encode_record, instant, storable_line

RECORD = PageRecord(
    url="http://a.test/",
    final_url="http://a.test/",
    status=200,
    content_type="text/html",
    fetched_at=instant(0.0),
    depth=0,
    parent="",
    title="",
    description="",
    language="",
    headings=[],
    links=[],
    noindex=False,
    content_hash="",
    bytes=0,
    elapsed_ms=0,
    attempt=1,
)


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\\u0")))
def test_a_record_has_its_text_with_a_mark_for_every_nul(text: str) -> None:
    line = encode_record(msgspec.structs.replace(RECORD, title=text, headings=[text]))
    assert decode_record(line).title == text.replace("\0", "\ufffd")
    assert decode_record(line).headings == [text.replace("\0", "\ufffd")]
    assert encode_record(decode_record(line)) == line


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (rb"\u0000", "\ufffd"),
        (rb"\\u0000", r"\u0000"),
        (rb"\\\u0000", "\\\ufffd"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\uD83D\uDE00", "\U0001f600"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud83d \ude00", "\ufffd \ufffd"),
        (rb"\\ud83d", r"\ud83d"),
        (rb"\ud7ff\ue000", "\ud7ff\ue000"),
        (b"\xff", "\ufffd"),
    ],
)
def test_what_no_database_can_hold_is_replaced_and_nothing_else(broken: bytes, text: str) -> None:
    assert json.loads(storable_line(b'"' + broken + b'"')) == text
