"""Markup that is cheap to send and ruinous to parse, and what can still be read of it.

The tree builder of the HTML standard is quadratic where elements are never closed, in time (a million nested
`<div>`), and in memory too where formatting elements are (140 KB of `<b id=1><p><b id=2><p>…` build fifty million
nodes). So is its treatment of an element with very many attributes. Browsers live with that in a process that
the user can close.

`is_bomb` recognises such documents at a cost of a few microseconds a page. It looks at samples first, and it takes
an end tag for what it says: who pads such markup with end tags of elements that were never opened gets past it, and
`max_body_bytes` is the bound that remains. `flattened` keeps of such a document what extraction
asks for, in a form that parses in linear time.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

#: Shorter documents take less than a second whatever they hold.
_HARMLESS_BYTES = 8_192
#: So many bytes are looked at of so many.
_SAMPLE_BYTES = 256
_SAMPLED_BYTES = 8_192
_STRIDE = 16_384
#: Separators between attributes in a stride that lies within one tag.
_MAX_SEPARATORS = 1024
_MAX_OPEN_ELEMENTS = 2_000
_MAX_OPEN_FORMATTING = 100
_MAX_TAG_BYTES = 65_536

_TAG_NAME = re.compile(rb"<(/?)([a-z][a-z0-9]*)")
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
#: Elements without content, and those whose next of kin closes them.
_SELF_CLOSING = frozenset(
    b"a area base br col dd dt embed hr img input li link meta optgroup option p param path script source style tbody td "
    b"tfoot th thead title tr track wbr".split()
)

_FLATTEN = re.compile(
    rb"<!--.*?(?:-->|\Z)"
    rb"|<(script|style|textarea|template|xmp|noembed|noframes|plaintext)(?=[\s/>]).*?(?:</\1(?=[\s/>])|\Z)"
    rb"|<(/?)([a-z][^\s/>]*+)((?>[^>\"']++|\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))*+)(?:>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_KEPT = {
    b"a": b"</a>",
    b"area": b"",
    b"base": b"",
    b"html": b"",
    b"iframe": b"</iframe>",
    b"link": b"",
    b"meta": b"",
}


def is_bomb(body: bytes) -> bool:
    """Tell whether parsing the document would take time or memory out of proportion to its size."""
    if len(body) <= _HARMLESS_BYTES:
        return False
    return _has_endless_tag(body) or (_seems_unclosed(body) and _is_unclosed(body))


def flattened(body: bytes) -> bytes:
    """Return the document's links, metas, title and headings as markup without nesting. Linear."""
    return _FLATTEN.sub(_flat, body)


def _seems_unclosed(body: bytes) -> bool:
    tags = ends = deepest = 0
    for start in range(_SAMPLED_BYTES // 2, len(body), _SAMPLED_BYTES):
        tags += body.count(b"<", start, start + _SAMPLE_BYTES)
        ends += body.count(b"</", start, start + _SAMPLE_BYTES)
        # Of tags that all belong together, every other is an end tag. What has no content counts as open here.
        deepest = max(deepest, tags - 2 * ends)
    return ends * 4 < tags or deepest * _SAMPLED_BYTES > _MAX_OPEN_ELEMENTS * _SAMPLE_BYTES


def _is_unclosed(body: bytes) -> bool:
    opened: Counter[bytes] = Counter()
    formatting = elements = 0
    for end, name in _TAG_NAME.findall(body.lower()):
        if name in _SELF_CLOSING:
            continue
        if not end:
            step = 1
        elif opened[name]:
            step = -1
        else:
            continue
        opened[name] += step
        elements += step
        if name in _FORMATTING:
            formatting += step
        if elements > _MAX_OPEN_ELEMENTS or formatting > _MAX_OPEN_FORMATTING:
            return True
    return False


def _has_endless_tag(body: bytes) -> bool:
    for start, end in pairwise(range(0, len(body), _STRIDE)):
        if body.find(b">", start, end) < 0 and _within_tag(body, start):
            separators = sum(
                body.count(separator, start, end) for separator in (b" ", b"\n", b"\t", b"/", b"\f", b"\r")
            )
            if separators > _MAX_SEPARATORS:
                return True
    return False


def _within_tag(body: bytes, position: int) -> bool:
    start = body.rfind(b"<", 0, position)
    return start >= 0 and body[start + 1 : start + 2].isalpha() and body.find(b">", start, position) < 0


def _flat(match: re.Match[bytes]) -> bytes:
    name = match[3]
    if name is None or len(match[0]) > _MAX_TAG_BYTES:
        return b""
    name = name.lower()
    if name in (b"h1", b"h2", b"h3", b"title"):
        # An end tag closes whichever heading is open, so that none can hold another.
        heading = b"</h1>" if name != b"title" else b""
        return b"</%b>" % name if match[2] else heading + b"<%b>" % name
    if match[2]:
        return b""
    if name == b"frame":
        return b"<iframe%b></iframe>" % match[4]
    return match[0] + _KEPT[name] if name in _KEPT else b""
