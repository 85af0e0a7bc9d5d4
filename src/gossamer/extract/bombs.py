"""Markup that is cheap to send and ruinous to parse, and what can still be read of it.

The tree builder of the HTML standard is quadratic where elements are never closed, in time (a million nested
`<div>`), and in memory too where formatting elements are (140 KB of `<b id=1><p><b id=2><p>…` build fifty million
nodes). So is its treatment of an element with very many attributes, and the parser's of very many different names.
Browsers live with that in a process that the user can close.

`is_bomb` recognises such documents at a cost of a few microseconds a page. It looks at samples first, from where no
author can foresee; documents that are large or full of tags are looked at whole. What it lets through takes a
few seconds and some hundred megabytes at the very worst. `flattened` keeps of a bomb what extraction asks for, in a form
that parses in linear time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from random import randrange

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
#: Documents of fewer tags, by the samples, are harmless; those of more tags, or of more bytes, are looked at whole.
_FEW_TAGS = 1_500
_MANY_TAGS = 10_000
_LARGE_BYTES = 131_072
#: More tags than this are a bomb whatever they are: each costs memory, and time for every element that is open.
_MAX_TAGS = 150_000
#: Different names of attributes in one document. The parser keeps them in a table that does not grow.
_MAX_NAMES = 8_000
#: Tags of a bomb that are kept, the first ones.
_MAX_KEPT = 100_000

_TAG_NAME = re.compile(rb"<(/?)([a-z][a-z0-9]*)")
#: Formatting elements with attributes. Of those that are alike, the standard keeps three.
_DECORATED = re.compile(rb"<((?:[bius]|em|tt|big|code|font|nobr|small|strike|strong)[\s/][^>]*+)")
_ALIKE = 3
_FORMATTING_TAG = re.compile(rb"<(/?)([bius]|em|tt|big|code|font|nobr|small|strike|strong)(?=[\s/>])")
#: Elements without content, and those whose next of kin closes them.
_SELF_CLOSING = frozenset(
    b"a area base br col dd dt embed hr img input li link meta optgroup option p param path script source style tbody td "
    b"tfoot th thead title tr track wbr".split()
)

#: Where an end tag may not be one: comments, elements of plain text, and quoted values.
_PLAIN_TEXT = re.compile(
    rb"<(?:!--.*?(?:-->|\Z)"
    rb"|(script|style|textarea|title|xmp|iframe|noembed|noframes|noscript|plaintext)(?=[\s/>]).*?(?:</\1(?=[\s/>])|\Z)"
    rb"|[!?][^>]*+)",
    re.DOTALL,
)
_QUOTED_MARKUP = re.compile(rb"=\s*+[\"'][^\"'<]*+<")
_QUOTED = re.compile(rb"=\s*+(?:\"[^\"]*+|'[^']*+)")
_IN_TAG = re.compile(rb"<[a-z][^\s/>]*+([^<>]*+)", re.IGNORECASE)
_VALUE = re.compile(rb"=\s*+(?:\"[^\"]*+\"?|'[^']*+'?|[^\s>]*+)")
_NAME = re.compile(rb"[^\s/>\"'=]++")
_ATTRIBUTE = re.compile(
    rb"([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(\"[^\"]*+\"?|'[^']*+'?|[^\s>]*+))?+",
)
#: What extraction asks of the elements that are kept.
_KEPT_ATTRIBUTES = frozenset(
    b"charset content href hreflang http-equiv lang name property rel src type".split()
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
    tags, unclosed = _sampled(body)
    if tags > _MANY_TAGS and body.count(b"<") > _MAX_TAGS:
        return True
    if (tags > _MANY_TAGS or (tags > _FEW_TAGS and _has_much_formatting(body))) and _has_open_formatting(
        body
    ):
        return True
    if len(body) > _LARGE_BYTES and _has_many_names(body):
        return True
    return _has_endless_tag(body) or (unclosed and _is_unclosed(body))


def flattened(body: bytes) -> bytes:
    """Return the document's links, metas, title and headings as markup without nesting, up to a number. Linear."""
    pieces: list[bytes] = []
    position = kept = 0
    for match in _FLATTEN.finditer(body):
        if match.start() > position:
            pieces.append(body[position : match.start()])
        position = match.end()
        if piece := _flat(match):
            pieces.append(piece)
            kept += 1
            if kept == _MAX_KEPT:
                break
    else:
        pieces.append(body[position:])
    return b"".join(pieces)


def _sampled(body: bytes) -> tuple[float, bool]:
    """Estimate from samples how many tags there are, and whether too few of them are end tags."""
    tags = ends = deepest = windows = 0
    for start in range(randrange(_SAMPLED_BYTES), len(body), _SAMPLED_BYTES):  # noqa: S311 - no secret
        windows += 1
        tags += body.count(b"<", start, start + _SAMPLE_BYTES)
        ends += body.count(b"</", start, start + _SAMPLE_BYTES)
        # Of tags that all belong together, every other is an end tag. What has no content counts as open here.
        deepest = max(deepest, tags - 2 * ends)
    unclosed = ends * 4 < tags or deepest * _SAMPLED_BYTES > _MAX_OPEN_ELEMENTS * _SAMPLE_BYTES
    return tags * len(body) / ((windows or 1) * _SAMPLE_BYTES), unclosed


def _is_unclosed(body: bytes) -> bool:
    opened: Counter[bytes] = Counter()
    elements = 0
    for end, name in _TAG_NAME.findall(body.lower()):
        if name in _SELF_CLOSING or (end and not opened[name]):
            continue
        step = -1 if end else 1
        opened[name] += step
        elements += step
        if elements > _MAX_OPEN_ELEMENTS:
            return True
    return _has_open_formatting(body)


def _has_much_formatting(body: bytes) -> bool:
    """Estimate from samples whether there are many different formatting elements."""
    kinds: set[bytes] = set()
    for start in range(randrange(_SAMPLED_BYTES), len(body), _SAMPLED_BYTES):  # noqa: S311 - no secret
        kinds.update(_DECORATED.findall(body[start : start + _SAMPLE_BYTES].lower()))
    return len(kinds) * _SAMPLED_BYTES > _MAX_OPEN_FORMATTING * _ALIKE * _SAMPLE_BYTES


def _has_open_formatting(body: bytes) -> bool:
    """Follow how many formatting elements are open. End tags that the parser may not take for tags do not count."""
    body = body.lower()  # patterns that ignore case take four times as long
    if len(set(_DECORATED.findall(body))) * _ALIKE <= _MAX_OPEN_FORMATTING:
        return False
    body = _PLAIN_TEXT.sub(_without_ends, body)
    if _QUOTED_MARKUP.search(body):
        body = _QUOTED.sub(_without_ends, body)
    opened: Counter[bytes] = Counter()
    formatting = 0
    for end, name in _FORMATTING_TAG.findall(body):
        if end and not opened[name]:
            continue
        step = -1 if end else 1
        opened[name] += step
        formatting += step
        if formatting > _MAX_OPEN_FORMATTING:
            return True
    return False


def _without_ends(match: re.Match[bytes]) -> bytes:
    return match[0].replace(b"</", b"<!")


def _has_many_names(body: bytes) -> bool:
    """Estimate from samples whether the tags hold too many different names of attributes."""
    names: set[bytes] = set()
    starts = range(randrange(_SAMPLED_BYTES), len(body), _SAMPLED_BYTES)  # noqa: S311 - no secret
    for start, within_tag in _places(body, starts):
        sample = body[start : start + _SAMPLE_BYTES]
        if within_tag:
            sample = b"<a " + sample
        for attributes in _IN_TAG.findall(sample):
            names.update(_NAME.findall(_VALUE.sub(b" ", attributes)))
        if len(names) * _SAMPLED_BYTES > _MAX_NAMES * _SAMPLE_BYTES:
            return True
    return False


def _has_endless_tag(body: bytes) -> bool:
    for start, within_tag in _places(body, range(0, len(body) - _STRIDE, _STRIDE)):
        end = start + _STRIDE
        if within_tag and body.find(b">", start, end) < 0:
            separators = sum(
                body.count(separator, start, end) for separator in (b" ", b"\n", b"\t", b"/", b"\f", b"\r")
            )
            if separators > _MAX_SEPARATORS:
                return True
    return False


def _places(body: bytes, positions: Iterable[int]) -> Iterator[tuple[int, bool]]:
    """Yield ascending positions, and whether each lies within a tag. Every byte is looked at once."""
    opened, closed, seen = -1, -1, 0
    for position in positions:
        opened = max(opened, body.rfind(b"<", seen, position))
        closed = max(closed, body.rfind(b">", seen, position))
        seen = position
        yield position, opened > closed and body[opened + 1 : opened + 2].isalpha()


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
        name = b"iframe"
    if name not in _KEPT:
        return b""
    return b"<%b%b>%b" % (name, _attributes(match[4]), _KEPT[name])


def _attributes(text: bytes) -> bytes:
    """Keep the attributes that are asked for, the first of each name: the others may be there to be many."""
    kept: dict[bytes, bytes] = {}
    for name, value in _ATTRIBUTE.findall(text):
        lower = name.lower()
        if lower in _KEPT_ATTRIBUTES and lower not in kept:
            kept[lower] = b" %b=%b" % (lower, value or b'""')
    return b"".join(kept.values())
