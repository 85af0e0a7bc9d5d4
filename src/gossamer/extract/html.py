"""The facts of an HTML document: one parse, one pass over the tree.

This is the crawler's hot path. A tree of a 34 KB page costs some 200 µs to build; what is done here beyond that
is arranged around what is cheap in lexbor: one query with few alternatives (each costs a comparison for every
element), the head walked by hand, and no Python object for an element that is not asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selectolax.lexbor import (
    LexborCSSSelector,
    LexborDocumentOptions,
    LexborHTMLParser,
    LexborNode,
    SelectolaxError,
)

from gossamer.extract.bombs import flattened, is_bomb
from gossamer.extract.charset import UTF_8, decode, sniff
from gossamer.extract.links import LinkResolver, base_url, is_nofollow, leads_to_page, refresh_target
from gossamer.extract.text import seen_words
from gossamer.model.page import Facts
from gossamer.model.url import UrlPolicy
from gossamer.policy import robots_meta

_MAX_TITLE_CHARS = 1000
_MAX_DESCRIPTION_CHARS = 5000
_MAX_LANGUAGE_CHARS = 100
_MAX_HEADING_CHARS = 500
_MAX_HEADINGS = 200
#: Text read for headings in all, so that headings within headings do not multiply it.
_MAX_HEADING_TEXT_CHARS = 1_000_000
_MAX_SVG_DEPTH = 64

# "Binary data bytes" of the MIME Sniffing standard, looked for as far as it looks.
_BINARY = bytes([*range(0x09), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20)])
_SNIFFED_BYTES = 1445
_BOMS = (b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf")

# Events would copy the chosen option of a `select` wherever the page asks for it.
_WITHOUT_EVENTS = LexborDocumentOptions.WO_EVENTS.value

_QUERY = "[href],meta,iframe,h1,h2,h3"


def _tag_id(name: str) -> int:
    return LexborHTMLParser("").create_node(name).tag_id


_A, _AREA, _LINK, _BASE = (_tag_id(name) for name in ("a", "area", "link", "base"))
_META, _IFRAME, _FRAME, _TITLE = (_tag_id(name) for name in ("meta", "iframe", "frame", "title"))
_HEADINGS = frozenset(_tag_id(name) for name in ("h1", "h2", "h3"))


class HtmlExtractor:
    """Extracts the facts of HTML documents. Not for use by two threads at once.

    `user_agent` decides which rules for robots are meant for us. Links already resolved are remembered, up to
    `max_remembered_links` of them.
    """

    def __init__(
        self,
        policy: UrlPolicy,
        *,
        user_agent: str = "gossamer",
        max_links: int = 10_000,
        max_remembered_links: int = 50_000,
    ) -> None:
        self._links = LinkResolver(policy, max_remembered=max_remembered_links)
        self._token = robots_meta.product_token(user_agent) or "gossamer"
        self._max_links = max_links
        # Making a selector costs more than a query; the parser would make one for every page.
        self._find = LexborCSSSelector().find  # type: ignore[no-untyped-call]  # its stub leaves out `-> None`

    def extract(
        self,
        body: bytes,
        content_type: str,
        url: str,
        x_robots_tag: Sequence[str] = (),
        content_language: str = "",
        *,
        with_text: bool = False,
    ) -> Facts:
        """Extract; never raises, whatever the bytes. `url` is the canonical URL of the response."""
        charset = sniff(body, content_type)
        if _is_binary(body, charset):
            return Facts(binary=True)
        asked = robots_meta.from_headers(x_robots_tag, self._token) if x_robots_tag else robots_meta.NONE
        facts = Facts(charset=charset, noindex=asked.noindex, nofollow=asked.nofollow)
        try:
            tree = LexborHTMLParser(_markup(body, charset), options=_WITHOUT_EVENTS)
        except SelectolaxError:
            # The parser accepts all markup; it only ever fails for want of memory. The page has no facts then.
            return facts
        self._read(tree, url, content_language, facts)
        if with_text:
            facts.text = seen_words(tree)
        return facts

    def _read(self, tree: LexborHTMLParser, url: str, content_language: str, facts: Facts) -> None:
        root = tree.root
        if root is None:
            return
        document = _Document(self._token)
        references = document.references
        headings = []
        anchor = _A
        for node in self._find(_QUERY if _has_body(tree) else _QUERY + ",frame", root):
            tag = node.tag_id
            if tag == anchor:
                # A hundred times a page, so written out: what `_Document.take` does for the others.
                attributes = node.attributes
                try:
                    reference = attributes["href"] or ""
                except KeyError:  # `[href]` also finds the `xlink:href` of a link in a picture
                    reference = attributes.get("xlink:href") or ""
                # The fragment goes now, so that a page's many anchors are one reference. Not where a space comes
                # before it: that is part of the URL, but at the end of a reference it would be stripped.
                if "#" in reference and " #" not in reference:
                    reference = reference.partition("#")[0]
                if "rel" in attributes and is_nofollow(attributes["rel"] or ""):
                    references.setdefault(reference, False)
                else:
                    references[reference] = True
            elif tag in _HEADINGS:
                headings.append(node)
            else:
                document.take(tag, node.attributes)
        document.settle(facts)
        facts.title = _title(tree, root, self._find)
        facts.language = _clean(
            root.attributes.get("lang") or _scalars(content_language), _MAX_LANGUAGE_CHARS
        )
        facts.headings = _texts(headings)
        facts.links = self._links.resolve(references, base_url(url, document.base), self._max_links)


class _Document:
    """What the elements of one document say, apart from its anchors and headings."""

    __slots__ = ("_asked", "_description", "_og_description", "_token", "base", "references")

    def __init__(self, token: str) -> None:
        self._token = token
        self._asked = robots_meta.NONE
        self._description = ""
        self._og_description = ""
        #: The href of the first `base` that has one.
        self.base = ""
        #: References in page order, and whether each may be followed.
        self.references: dict[str, bool] = {}

    def take(self, tag: int, attributes: dict[str, str | None]) -> None:
        if tag == _META:
            self._take_meta(attributes)
        elif tag == _LINK:
            if leads_to_page(attributes):
                self._refer(attributes.get("href"), follow=not is_nofollow(attributes.get("rel") or ""))
        elif tag == _BASE:
            self.base = self.base or attributes.get("href") or ""
        elif tag == _AREA:
            self._refer(attributes.get("href"), follow=not is_nofollow(attributes.get("rel") or ""))
        elif tag in (_IFRAME, _FRAME):
            self._refer(attributes.get("src"))

    def settle(self, facts: Facts) -> None:
        facts.description = _clean(self._description or self._og_description, _MAX_DESCRIPTION_CHARS)
        facts.noindex = facts.noindex or self._asked.noindex
        facts.nofollow = facts.nofollow or self._asked.nofollow

    def _take_meta(self, attributes: dict[str, str | None]) -> None:
        content = attributes.get("content")
        if not content:
            return
        name = (attributes.get("name") or attributes.get("property") or "").strip().lower()
        if name == "description":
            self._description = self._description or content
        elif name == "og:description":
            self._og_description = self._og_description or content
        elif name in ("robots", self._token):
            self._asked |= robots_meta.from_meta(content)
        elif (attributes.get("http-equiv") or "").strip().lower() == "refresh":
            self._refer(refresh_target(content))

    def _refer(self, reference: str | None, *, follow: bool = True) -> None:
        # A frame, link or refresh without an address leads nowhere; an anchor without one leads to its own page.
        if reference:
            self.references[reference] = follow or self.references.get(reference, False)


def _is_binary(body: bytes, charset: str) -> bool:
    start = body[:_SNIFFED_BYTES]
    if len(start.translate(None, _BINARY)) == len(start):
        return False
    return not start.startswith(_BOMS) and not charset.startswith("UTF-16")


def _markup(body: bytes, charset: str) -> bytes:
    if charset != UTF_8:
        body = decode(body, charset).encode()
    elif body.startswith(b"\xef\xbb\xbf"):
        # The parser would take the mark for text, and text ends the head.
        body = body[3:]
    return flattened(body) if is_bomb(body) else body


def _has_body(tree: LexborHTMLParser) -> bool:
    body = tree.body
    return body is not None and body.tag == "body"


def _title(
    tree: LexborHTMLParser, root: LexborNode, find: Callable[[str, LexborNode], list[LexborNode]]
) -> str:
    head = tree.head
    for node in head.iter() if head else ():
        if node.tag_id == _TITLE:
            return _clean(node.text(), _MAX_TITLE_CHARS)
    # A stray element in the head ends it, and the title behind it is in the body.
    for node in find("title", root)[:_MAX_SVG_DEPTH]:
        if not _within_svg(node):
            return _clean(node.text(), _MAX_TITLE_CHARS)
    return ""


def _within_svg(node: LexborNode) -> bool:
    parent = node.parent
    for _ in range(_MAX_SVG_DEPTH):
        if parent is None:
            return False
        if parent.tag == "svg":
            return True
        parent = parent.parent
    return False


def _texts(headings: list[LexborNode]) -> list[str]:
    texts = []
    budget = _MAX_HEADING_TEXT_CHARS
    for node in headings[: _MAX_HEADINGS * 2]:
        raw = node.text()
        budget -= len(raw)
        if text := _clean(raw, _MAX_HEADING_CHARS):
            texts.append(text)
        if budget < 0:
            break
    return texts[:_MAX_HEADINGS]


def _clean(text: str, limit: int) -> str:
    """Collapse white space and cut. Text from the parser holds no lone surrogates."""
    return " ".join(text.replace("\0", "").split())[:limit].rstrip()


def _scalars(text: str) -> str:
    """Return header text without the lone surrogates that bytes outside ASCII may have become."""
    return text.encode("utf-8", "replace").decode()
