from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.extract.charset import LABELS, decode, sniff

_ENCODINGS = sorted(set(LABELS.values()))


def _meta(label: str) -> bytes:
    return f'<!doctype html><html><head><meta charset="{label}"></head>é'.encode("latin-1")


def test_all_labels_of_the_standard_are_known() -> None:
    assert len(LABELS) == 228
    assert len(_ENCODINGS) == 40
    assert LABELS["latin1"] == LABELS["us-ascii"] == "windows-1252"
    assert LABELS["gb2312"] == "GBK"


def test_a_byte_order_mark_wins_over_every_label() -> None:
    assert sniff(b"\xef\xbb\xbf" + _meta("gbk"), "text/html; charset=koi8-r") == "UTF-8"
    assert sniff(b"\xff\xfe<\0", "text/html; charset=utf-8") == "UTF-16LE"
    assert sniff(b"\xfe\xff\0<", "text/html") == "UTF-16BE"


def test_the_header_wins_over_the_document() -> None:
    assert sniff(_meta("gbk"), "text/html; charset=KOI8-R") == "KOI8-R"
    assert sniff(_meta("gbk"), 'text/html; a="b"; Charset = "euc-jp"') == "EUC-JP"
    assert sniff(b"<\0", "text/html;charset=utf-16") == "UTF-16LE"


@pytest.mark.parametrize(
    "label", ["base64", "rot13", "zlib", "idna", "punycode", "utf-7", "unicode_escape", "mbcs", "", "\0"]
)
def test_a_label_outside_the_standard_is_ignored(label: str) -> None:
    assert sniff(_meta("gbk"), f"text/html; charset={label}") == "GBK"
    assert sniff(_meta(label), "text/html") == "windows-1252"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"<meta charset=shift_jis>", "Shift_JIS"),
        (b"<META/CHARSET='Shift_JIS'/>", "Shift_JIS"),
        (b"<meta http-equiv='Content-Type' content='text/html; charset=big5'>", "Big5"),
        (b"<meta content='text/html; charset=\"big5\"' http-equiv=content-type>", "Big5"),
        (b"<meta content='text/html; charset=big5'>", "windows-1252"),
        (b"<meta charset=utf-16be>", "UTF-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta charset=nonsense><meta charset=big5>", "Big5"),
        (b"<!-- <meta charset=big5> --><meta charset=gbk>", "GBK"),
        (b"<!--><meta charset=gbk>", "GBK"),
        (b"<!-- <meta charset=big5>", "windows-1252"),
        (b"<div title='<meta charset=big5>'><meta charset=gbk>", "GBK"),
        (b"</div title='<meta charset=big5>'><meta charset=gbk>", "GBK"),
        (b"<? <meta charset=big5><meta charset=gbk>", "GBK"),
        (b"<metal charset=big5><meta charset=gbk>", "GBK"),
        (b"<meta charset=big5 charset=gbk>", "Big5"),
        (b"<meta charset='big5", "windows-1252"),
        (b"<?xml version='1.0' encoding='koi8-r'?><p>", "KOI8-R"),
        (b"<?xml version='1.0' encoding='koi8-r'?><meta charset=gbk>", "GBK"),
        (b" " * 1010 + b"<meta charset=gbk>", "windows-1252"),
        (b"<" * 500 + b"<meta charset=gbk>", "GBK"),
    ],
)
def test_declarations_are_read_as_the_standard_prescans_them(head: bytes, expected: str) -> None:
    assert sniff(head + b" " * 1100 + b"\xff", "text/html") == expected


def test_without_a_declaration_valid_utf_8_is_utf_8_and_the_rest_windows_1252() -> None:
    assert sniff(b"plain", "") == "UTF-8"
    assert sniff("naïve".encode(), "text/html") == "UTF-8"
    assert sniff("naïve".encode("latin-1"), "text/html") == "windows-1252"
    assert sniff("caf\xe9".encode("latin-1"), "text/html") == "windows-1252"
    assert sniff("naïve café".encode()[:-1], "text/html") == "UTF-8"


@pytest.mark.parametrize(
    ("body", "encoding", "text"),
    [
        (b"\x80\x81\xe9", "windows-1252", "€\x81é"),
        (b"\x98", "windows-1251", "\x98"),
        (b"\x83\x65", "Shift_JIS", "テ"),
        ("中文".encode("gb18030"), "GBK", "中文"),
        ("中文".encode("big5"), "Big5", "中文"),
        ("한글".encode("cp949"), "EUC-KR", "한글"),
        ("テスト".encode("iso2022_jp"), "ISO-2022-JP", "テスト"),
        ("テスト".encode("euc_jp"), "EUC-JP", "テスト"),
        (b"\xef\xbb\xbfa", "UTF-8", "a"),
        (b"\xff\xfea\0", "UTF-16LE", "a"),
        (b"\xa2", "x-mac-cyrillic", "Ґ"),
        (b"a\x80", "x-user-defined", "a\uf780"),
        (b"\x1b$)C<script>", "replacement", "\ufffd"),
        (b"a\xff", "UTF-8", "a\ufffd"),
        (b"\xe9", "no such thing", "é"),
    ],
)
def test_bytes_are_decoded_as_the_standard_says(body: bytes, encoding: str, text: str) -> None:
    assert decode(body, encoding) == text


@given(st.binary(), st.sampled_from(_ENCODINGS))
def test_decoding_never_fails_and_yields_no_lone_surrogates(body: bytes, encoding: str) -> None:
    decode(body, encoding).encode()


@given(st.binary(), st.text())
def test_sniffing_always_names_an_encoding(body: bytes, content_type: str) -> None:
    assert sniff(body, content_type) in _ENCODINGS


@given(
    st.lists(
        st.sampled_from(
            [
                b"<meta ",
                b"charset",
                b"=",
                b"'",
                b'"',
                b"gbk",
                b">",
                b"<!--",
                b"-->",
                b"<a ",
                b"</",
                b"<?xml encoding",
            ]
        )
    )
)
def test_prescanning_fragments_of_markup_always_ends(parts: list[bytes]) -> None:
    assert sniff(b"".join(parts), "") in _ENCODINGS
