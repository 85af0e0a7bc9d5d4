"""Which encoding a document is in, and its text, as browsers decide it (WHATWG Encoding and HTML).

The order is the standard's: byte order mark, label of the HTTP header, a declaration in the first 1024
bytes. Where none speaks, browsers guess from the user's locale. A crawler has none, so bytes that are valid
UTF-8 are read as UTF-8 (other encodings hardly ever are, by chance) and all others as windows-1252.

A label from the web never reaches Python's codec registry, which also holds `zlib`, `rot13`, `idna` and
whatever else was registered: it is looked up in the standard's table and mapped to a codec chosen here.
"""

from __future__ import annotations

import codecs
import re
from functools import cache, lru_cache

UTF_8 = "UTF-8"
WINDOWS_1252 = "windows-1252"
_UTF_16 = ("UTF-16BE", "UTF-16LE")
_PRESCAN_BYTES = 1024

# https://encoding.spec.whatwg.org/#names-and-labels: "name: labels", all of them.
_TABLE = """
UTF-8: unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8
IBM866: 866 cp866 csibm866 ibm866
ISO-8859-2: csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2
ISO-8859-3: csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3
ISO-8859-4: csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4
ISO-8859-5: csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988
ISO-8859-6: arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e iso-8859-6-i
ISO-8859-6: iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987
ISO-8859-7: csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7
ISO-8859-7: iso_8859-7:1987 sun_eu_greek
ISO-8859-8: csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8
ISO-8859-8: iso_8859-8:1988 visual
ISO-8859-8-I: csiso88598i iso-8859-8-i logical
ISO-8859-10: csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6
ISO-8859-13: iso-8859-13 iso8859-13 iso885913
ISO-8859-14: iso-8859-14 iso8859-14 iso885914
ISO-8859-15: csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9
ISO-8859-16: iso-8859-16
KOI8-R: cskoi8r koi koi8 koi8-r koi8_r
KOI8-U: koi8-ru koi8-u
macintosh: csmacintosh mac macintosh x-mac-roman
windows-874: dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874
windows-1250: cp1250 windows-1250 x-cp1250
windows-1251: cp1251 windows-1251 x-cp1251
windows-1252: ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591
windows-1252: iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252
windows-1253: cp1253 windows-1253 x-cp1253
windows-1254: cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5
windows-1254: windows-1254 x-cp1254
windows-1255: cp1255 windows-1255 x-cp1255
windows-1256: cp1256 windows-1256 x-cp1256
windows-1257: cp1257 windows-1257 x-cp1257
windows-1258: cp1258 windows-1258 x-cp1258
x-mac-cyrillic: x-mac-cyrillic x-mac-ukrainian
GBK: chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk
gb18030: gb18030
Big5: big5 big5-hkscs cn-big5 csbig5 x-x-big5
EUC-JP: cseucpkdfmtjapanese euc-jp x-euc-jp
ISO-2022-JP: csiso2022jp iso-2022-jp
Shift_JIS: csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis
EUC-KR: cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949
replacement: csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr replacement
UTF-16BE: unicodefffe utf-16be
UTF-16LE: csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le
x-user-defined: x-user-defined
"""

#: Every label of the standard, in lower case, with the name of its encoding.
LABELS = {
    label: name
    for name, labels in (line.split(": ") for line in _TABLE.strip().splitlines())
    for label in labels.split()
}

# Codecs that read more than one byte a character. GBK is decoded as gb18030 because the standard says so; the
# others are the closest superset Python has.
_MULTI_BYTE = {
    "UTF-8": "utf-8",
    "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le",
    "GBK": "gb18030",
    "gb18030": "gb18030",
    "Big5": "big5hkscs",
    "EUC-JP": "euc_jp",
    "ISO-2022-JP": "iso2022_jp_ext",
    "Shift_JIS": "cp932",
    "EUC-KR": "cp949",
}
_SINGLE_BYTE = {
    "IBM866": "cp866",
    "ISO-8859-8-I": "iso8859-8",
    "macintosh": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic",
    "windows-874": "cp874",
}
# Where the standard's tables know more than Python's.
_DIFFERENCES = {
    "KOI8-U": {0xAE: "\u045e", 0xBE: "\u040e"},
    "x-mac-cyrillic": {0xA2: "\u0490", 0xB6: "\u0491", 0xFF: "\u20ac"},
    "windows-1255": {0xCA: "\u05ba"},
}
_BOMS = ((codecs.BOM_UTF8, UTF_8), (codecs.BOM_UTF16_BE, "UTF-16BE"), (codecs.BOM_UTF16_LE, "UTF-16LE"))

_HTTP_CHARSET = re.compile(
    r';[^;]*?\bcharset\s*=\s*(?:"([^"]*)"|\'([^\']*)\'|([^\s;"]+))', re.IGNORECASE | re.ASCII
)
_WS = rb"[\t\n\f\r ]"
_MARKUP = re.compile(rb"<(?:(!--)|(meta)(?=[\t\n\f\r /])|(/?[a-z][^\t\n\f\r >]*)|[!/?])", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*+(?:(>)|([^\t\n\f\r />][^\t\n\f\r />=]*+)" + _WS + rb"*+(?:=" + _WS + rb"*+"
    rb"(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)|(?=>)))?)",
)
_CONTENT_CHARSET = re.compile(
    rb"charset" + _WS + rb"*+=" + _WS + rb"*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*+))",
    re.IGNORECASE,
)
_XML = re.compile(
    rb"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\"\x00-\x20>]*)\"|'([^'\x00-\x20>]*)')[^>]*>"
)


def sniff(body: bytes, content_type: str) -> str:
    """Return the standard's name for the encoding of a document, such as `UTF-8` or `windows-1252`."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    return _from_header(content_type) or _prescan(body[:_PRESCAN_BYTES]) or _guess(body)


def decode(body: bytes, encoding: str) -> str:
    """Read bytes in an encoding that `sniff` named. Never raises: what cannot be read becomes U+FFFD.

    A byte order mark of that encoding is dropped, and the text holds no lone surrogates.
    """
    for mark, name in _BOMS:
        if name == encoding and body.startswith(mark):
            body = body[len(mark) :]
    if encoding in _MULTI_BYTE:
        return body.decode(_MULTI_BYTE[encoding], "replace")
    if encoding == "replacement":
        # Encodings that hide ASCII from naive filters: the standard refuses to read them at all.
        return "\ufffd" if body else ""
    return codecs.charmap_decode(body, "replace", _charmap(encoding))[0]


@lru_cache(maxsize=1024)
def _from_header(content_type: str) -> str:
    match = _HTTP_CHARSET.search(content_type)
    return _named(match[1] or match[2] or match[3] or "") if match else ""


def _named(label: str) -> str:
    return LABELS.get(label.strip("\t\n\f\r ").lower(), "")


def _guess(body: bytes) -> str:
    if body.isascii():
        return UTF_8
    try:
        body.decode()
    except UnicodeDecodeError as error:
        # A character cut off by the end of a truncated body is no reason to doubt the rest.
        cut_off = error.reason == "unexpected end of data"
        return UTF_8 if cut_off and not body[: error.start].isascii() else WINDOWS_1252
    return UTF_8


@cache
def _charmap(encoding: str) -> str:
    if encoding not in LABELS.values():
        encoding = WINDOWS_1252
    codec = _SINGLE_BYTE.get(encoding) or encoding.replace("windows-", "cp")
    if encoding == "x-user-defined":
        return "".join(chr(byte if byte < 0x80 else 0xF700 + byte) for byte in range(256))
    table = [bytes([byte]).decode(codec, "replace") for byte in range(256)]
    for byte in range(0x80, 0xA0):
        # The standard leaves no hole among the C1 controls; Python's tables of the windows encodings do.
        if table[byte] == "\ufffd":
            table[byte] = chr(byte)
    for byte, character in _DIFFERENCES.get(encoding, {}).items():
        table[byte] = character
    return "".join(table)


def _prescan(head: bytes) -> str:
    """Find a declaration: the standard's "prescan a byte stream to determine its encoding"."""
    if head.startswith(b"<\0?\0x\0"):
        return "UTF-16LE"
    if head.startswith(b"\0<\0?\0x"):
        return "UTF-16BE"
    position = 0
    while match := _MARKUP.search(head, position):
        if match[1]:
            # The dashes that open a comment may be those that close it.
            position = head.find(b"-->", match.start() + 2) + 3
            ended = position >= 3
        elif match[2] or match[3]:
            attributes, position, ended = _attributes(head, match.end())
            if ended and match[2] and (declared := _declared(attributes)):
                return declared
        else:
            position = head.find(b">", match.end()) + 1
            ended = position >= 1
        if not ended:
            break
    return _from_xml_declaration(head)


def _attributes(head: bytes, position: int) -> tuple[dict[bytes, bytes], int, bool]:
    """Read a tag's attributes. Returns them, where the tag ends, and whether it ends before `head` does."""
    attributes: dict[bytes, bytes] = {}
    while match := _ATTRIBUTE.match(head, position):
        position = match.end()
        if match[1]:
            return attributes, position, True
        attributes.setdefault(match[2].lower(), match[3] or match[4] or match[5] or b"")
    return attributes, position, False


def _declared(attributes: dict[bytes, bytes]) -> str:
    if b"charset" in attributes:
        return _in_markup(attributes[b"charset"])
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return ""
    match = _CONTENT_CHARSET.search(attributes.get(b"content", b""))
    return _in_markup(match[1] or match[2] or match[3] or b"") if match else ""


def _from_xml_declaration(head: bytes) -> str:
    match = _XML.match(head)
    return _in_markup(match[1] or match[2] or b"") if match else ""


def _in_markup(label: bytes) -> str:
    """Resolve a label found by reading ASCII: whatever it says, the document cannot be in UTF-16."""
    name = _named(label.decode("latin-1"))
    if name in _UTF_16:
        return UTF_8
    return WINDOWS_1252 if name == "x-user-defined" else name
