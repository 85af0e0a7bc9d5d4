"""The links of XML pages: sitemaps and feeds, read as a stream and without a tree.

XML can ask its reader to do things: to fetch other files, or to write a word out a billion times. All of that begins
with a DTD or with XInclude, and no sitemap or feed needs either, so a page that has one is not read at all.
Processing instructions such as `xml-stylesheet` are passed over.

The parser is expat, with two precautions:

* It is always given UTF-8, whatever the page declares, so that no encoding can hide what is looked for here.
* It does not resolve namespaces: it would write out a namespace's full name, which may be megabytes long, for every
  element within it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from xml.parsers import expat

from gossamer.extract.charset import LABELS, UTF_8, decode, sniff
from gossamer.extract.links import LinkResolver, base_url
from gossamer.model.page import Facts
from gossamer.model.url import UrlPolicy
from gossamer.policy import robots_meta

_MAX_TITLE_CHARS = 1000
_MAX_LANGUAGE_CHARS = 100
#: Text collected of one element. A longer title is cut; a longer link is none.
_MAX_TEXT_CHARS = 16_384
#: Expat reads a tag again from its start with every slice, until its end has come (before version 2.6).
_SLICE_BYTES = 262_144
_MAX_TAG_BYTES = 1_048_576
#: Links of XML pages hardly ever repeat.
_MAX_REMEMBERED_LINKS = 1000

_DECLARATION = re.compile(rb"<\?xml[\t\n\r ][^>]{0,500}>")
_DECLARED_ENCODING = re.compile(rb"\sencoding\s*=\s*[\"']([^\"']+)")
# All that may stand before a DTD: more than is well-formed, and expat ends at what is not.
_PROLOG = re.compile(rb"(?:[\t\n\r ]++|<\?.*?\?>|<!--.*?-->)*+", re.DOTALL)
_XINCLUDE = "http://www.w3.org/2001/XInclude"


class _Role(Enum):
    NONE = auto()
    #: Its text is a title.
    TITLE = auto()
    #: Its text is a link.
    LINK = auto()
    #: Its `href` is a link.
    HREF = auto()


@dataclass(frozen=True, slots=True)
class _Element:
    """An element that matters, for itself or for what may stand in it."""

    children: Mapping[str, _Element] = field(default_factory=dict)
    role: _Role = _Role.NONE


_OTHER = _Element()
_TITLE, _LINK, _HREF = (_Element(role=role) for role in (_Role.TITLE, _Role.LINK, _Role.HREF))
_ITEM = _Element({"link": _LINK})
_ROOTS = _Element(
    {
        "urlset": _Element({"url": _Element({"loc": _LINK})}),
        "sitemapindex": _Element({"sitemap": _Element({"loc": _LINK})}),
        "rss": _Element({"channel": _Element({"title": _TITLE, "item": _ITEM})}),
        "RDF": _Element({"channel": _Element({"title": _TITLE}), "item": _ITEM}),
        "feed": _Element({"title": _TITLE, "entry": _Element({"link": _HREF})}),
    }
)


class _Refused(Exception):
    """The page asks for what is never done; its message says what."""


class _Enough(Exception):
    """A bound is reached; its message says which. What was found so far stands."""


class XmlExtractor:
    """Extracts title and links of sitemaps, RSS and Atom feeds. Other XML has no facts.

    A page with a DTD, XInclude or an unknown encoding yields nothing but a note. Malformed XML is read up to the fault.
    Time and memory are in proportion to the bytes, whatever they say.
    """

    def __init__(
        self,
        policy: UrlPolicy,
        *,
        user_agent: str = "gossamer",
        max_links: int = 10_000,
        max_depth: int = 100,
        max_elements: int = 1_000_000,
    ) -> None:
        self._links = LinkResolver(policy, max_remembered=_MAX_REMEMBERED_LINKS)
        self._token = robots_meta.product_token(user_agent) or "gossamer"
        self._max_links = max_links
        self._max_depth = max_depth
        self._max_elements = max_elements

    def extract(
        self,
        body: bytes,
        content_type: str,
        url: str,
        x_robots_tag: Sequence[str] = (),
        content_language: str = "",
        *,
        with_text: bool = False,  # noqa: ARG002 - what a reader sees of XML is up to the reader's program
    ) -> Facts:
        """Extract; never raises, whatever the bytes. `url` is the canonical URL of the response."""
        asked = robots_meta.from_headers(x_robots_tag, self._token) if x_robots_tag else robots_meta.NONE
        facts = Facts(noindex=asked.noindex, nofollow=asked.nofollow)
        facts.language = _clean(content_language, _MAX_LANGUAGE_CHARS)
        reader = _Reader(self._max_depth, self._max_elements)
        try:
            facts.charset, markup = _utf_8(body, content_type)
            reader.read(markup)
        except _Refused as refusal:
            facts.note = f"{refusal}: {url}"
            return facts
        except _Enough as bound:
            facts.note = f"{bound}: {url}"
        facts.title = reader.title
        facts.links = self._links.resolve(reader.references, base_url(url, reader.base), self._max_links)
        if len(facts.links) == self._max_links < len(reader.references):
            facts.note = (
                f"XML with more links than --max-links-per-page {self._max_links}, the others are left: {url}"
            )
        return facts


class _Reader:
    """Reads one document, and keeps what it has found when it stops."""

    def __init__(self, max_depth: int, max_elements: int) -> None:
        self.title = ""
        #: The `xml:base` of the document.
        self.base = ""
        self.references: dict[str, bool] = {}
        self._max_depth = max_depth
        self._elements_left = max_elements
        self._max_elements = max_elements
        #: The open elements below the document itself, as far as they matter.
        self._open = [_ROOTS]
        #: With its colon: what the elements of the root's own vocabulary begin with.
        self._prefix = ""
        #: How many elements were open where the one whose text is being collected began; 0 for none.
        self._collecting = 0
        self._pieces: list[str] = []
        self._room = 0
        self._parser = expat.ParserCreate("utf-8")

    def read(self, markup: bytes) -> None:
        """Read to the end or to the first fault. Raises `_Refused` or `_Enough`."""
        prolog = _PROLOG.match(markup)
        # Before expat sees it: that goes on to the end of what it was given after a handler has raised.
        if prolog and markup.startswith(b"<!DOCTYPE", prolog.end()):
            raise _Refused("XML with a DTD is not read")
        parser = self._parser
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        try:
            for begin in range(0, len(markup), _SLICE_BYTES):
                end = begin + _SLICE_BYTES
                parser.Parse(markup[begin:end])
                if end - parser.CurrentByteIndex > _MAX_TAG_BYTES:
                    raise _Enough(f"XML is not read beyond a tag of {_MAX_TAG_BYTES} bytes")
        except expat.ExpatError:
            pass  # Where the markup ends to be XML, reading ends.
        finally:
            # The parser and its handlers hold each other.
            parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        stack = self._open
        if attributes and _XINCLUDE in attributes.values():
            _refuse_xinclude(attributes)
        if len(stack) == 1:
            name = self._begin(name, attributes)
        elif self._prefix:
            name = name.removeprefix(self._prefix)
        self._elements_left -= 1
        if self._elements_left < 0:
            raise _Enough(f"XML is not read beyond --max-xml-elements {self._max_elements}")
        if len(stack) > self._max_depth:
            raise _Enough(f"XML is not read beyond --max-xml-depth {self._max_depth}")
        element = stack[-1].children.get(name, _OTHER)
        stack.append(element)
        role = element.role
        if role is _Role.NONE or self._collecting:
            return
        if role is _Role.HREF:
            if attributes.get("rel", "alternate") == "alternate":
                self._refer(attributes.get("href", ""))
            return
        self._collecting = len(stack)
        self._pieces = []
        self._room = _MAX_TEXT_CHARS
        self._parser.CharacterDataHandler = self._collect

    def _begin(self, name: str, attributes: dict[str, str]) -> str:
        """Take in the root element and return its name without the prefix."""
        self.base = attributes.get("xml:base", "")
        local = name.rpartition(":")[2]
        # In RSS 1.0 only the root is RDF's; the rest is not.
        self._prefix = "" if local == "RDF" else name[: -len(local)]
        return local

    def _end(self, _name: str) -> None:
        stack = self._open
        if self._collecting == len(stack):
            self._collecting = 0
            self._parser.CharacterDataHandler = None
            text = "".join(self._pieces)
            if stack[-1].role is _Role.TITLE:
                self.title = self.title or _clean(text, _MAX_TITLE_CHARS)
            elif self._room >= 0:
                self._refer(text)
        stack.pop()

    def _collect(self, text: str) -> None:
        if self._room >= 0:
            self._pieces.append(text[: self._room])
            self._room -= len(text)

    def _refer(self, reference: str) -> None:
        reference = reference.strip()
        if 0 < len(reference) <= _MAX_TEXT_CHARS:
            self.references[reference] = True


def _refuse_xinclude(attributes: dict[str, str]) -> None:
    """Refuse a page that declares the namespace, without which there is no element of it."""
    for name, value in attributes.items():
        if value == _XINCLUDE and (name == "xmlns" or name.startswith("xmlns:")):
            raise _Refused("XML with XInclude is not read")


def _utf_8(body: bytes, content_type: str) -> tuple[str, bytes]:
    """Return the encoding of a document and its markup in UTF-8. Raises `_Refused`.

    The order is that of RFC 7303: byte order mark, HTTP header, declaration. Unlike in HTML nothing is guessed.
    """
    declaration = _DECLARATION.match(body)
    head = declaration[0] if declaration else body[:6]
    declared = _DECLARED_ENCODING.search(head)
    if declared and declared[1].decode("latin-1").strip().lower() not in LABELS:
        raise _Refused("XML in an unknown encoding is not read")
    charset = sniff(head, content_type)
    if charset == "replacement":
        raise _Refused("XML in an unknown encoding is not read")
    markup = body.removeprefix(b"\xef\xbb\xbf") if charset == UTF_8 else decode(body, charset).encode()
    # White space before the declaration is a common fault, and no more than that.
    return charset, markup.lstrip(b"\t\n\r ")


def _clean(text: str, limit: int) -> str:
    """Collapse white space and cut; lone surrogates, as headers may have them, become question marks."""
    return " ".join(text.encode("utf-8", "replace").decode().split())[:limit].rstrip()
