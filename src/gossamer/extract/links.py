"""Where a page's links lead: which elements count, and their references as canonical URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from gossamer.errors import InvalidUrl
from gossamer.model.page import Link
from gossamer.model.url import UrlPolicy, host_of, join

#: What a reference that leads to no page is remembered as.
_NOWHERE = Link("", 0, "", follow=False)
#: Longer references are not worth remembering: few pages repeat them, and memory is bounded by count.
_MAX_REMEMBERED_CHARS = 512
#: References looked at for each link that is wanted, so that a page of invalid ones is not read to its end.
_TRIES_PER_LINK = 10
#: A longer base is passed over: what is relative to it is too long for a URL anyway.
_MAX_BASE_CHARS = 8192

# What decides where a reference may be remembered. Tabs and line breaks vanish wherever they stand (`ht\ntp:`),
# and `http:page` is relative to an http page; both are rare, and resolved every time.
_ABSOLUTE = re.compile(r"/|https?://|(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_RELATIVE_TO_FOLDER = re.compile(r"(?!https?:)[^\x00-\x20?#]", re.IGNORECASE)
_VANISHING = re.compile(r"[\t\n\r]")

_REFRESH = re.compile(
    r"[\t\n\f\r ]*(?:[0-9]+[0-9.]*|\.[0-9.]*)(?:[\t\n\f\r ]+[;,]?|[;,])[\t\n\f\r ]*(?:url[\t\n\f\r ]*=[\t\n\f\r ]*)?",
    re.IGNORECASE | re.ASCII,
)
_LINK_TYPES = frozenset({"next", "prev", "canonical"})
_PAGE_TYPES = frozenset({"", "text/html", "application/xhtml+xml"})
_NOT_PAGES = re.compile(r"(?:rss|atom|rdf|feed|json|xml|css)\b")


class LinkResolver:
    """Turns the references of pages into links, and remembers what it has resolved.

    Pages of a site repeat each other's references, so most are answered by a dictionary lookup and share one
    `Link`. What is remembered is bounded: when `max_remembered` is reached all of it is forgotten.
    """

    def __init__(self, policy: UrlPolicy, *, max_remembered: int) -> None:
        self._policy = policy
        self._max_remembered = max_remembered
        self._remembered = 0
        #: Absolute references by origin, and relative ones by folder: what they are resolved against.
        self._by_origin: dict[str, dict[str, Link]] = {}
        self._by_folder: dict[str, dict[str, Link]] = {}

    def resolve(self, references: Mapping[str, bool], base: str, limit: int) -> list[Link]:
        """Return the http and https links among `references`, unique by fingerprint, in their order.

        The values say whether a reference may be followed; a URL that is both followed and not is followed.
        `base` is the document's base URL as an href.
        """
        if self._remembered > self._max_remembered:
            self._forget()
        absolute, relative = self._memories(base)
        known_absolute, known_relative = absolute.get, relative.get
        links: dict[int, Link] = {}
        for reference, follow in islice(references.items(), limit * _TRIES_PER_LINK):
            link = known_relative(reference) or known_absolute(reference) or self._learn(reference, base)
            if link is _NOWHERE:
                continue
            key = link.fingerprint
            if key not in links:
                links[key] = link if follow else Link(link.url, key, link.host, follow=False)
            elif follow and not links[key].follow:
                links[key] = link
        return list(islice(links.values(), limit))

    def _memories(self, base: str) -> tuple[dict[str, Link], dict[str, Link]]:
        folder = _folder(base)
        relative = self._by_folder.get(folder)
        if relative is None:
            relative = self._by_folder[folder] = {}
            self._remembered += 1
        origin = base[: base.find("/", 8)]
        absolute = self._by_origin.get(origin)
        if absolute is None:
            absolute = self._by_origin[origin] = {}
            self._remembered += 1
        return absolute, relative

    def _learn(self, reference: str, base: str) -> Link:
        url = self._policy.canonical_or_empty(reference, base)
        link = Link(url, self._policy.fingerprint(url), host_of(url)) if url else _NOWHERE
        if 0 < len(reference) <= _MAX_REMEMBERED_CHARS and not _VANISHING.search(reference):
            absolute, relative = self._memories(base)
            if _ABSOLUTE.match(reference):
                absolute[reference] = link
                self._remembered += 1
            elif _RELATIVE_TO_FOLDER.match(reference):
                relative[reference] = link
                self._remembered += 1
        return link

    def _forget(self) -> None:
        self._by_origin.clear()
        self._by_folder.clear()
        self._remembered = 0


def is_nofollow(rel: str) -> bool:
    """Tell whether a `rel` attribute asks robots not to follow the link."""
    return "nofollow" in rel.lower().split()


def leads_to_page(attributes: Mapping[str, str | None]) -> bool:
    """Tell whether a `link` element leads to another page: the next, the previous, the canonical or an alternate."""
    types = (attributes.get("rel") or "").lower().split()
    if not _LINK_TYPES.isdisjoint(types):
        return True
    if "alternate" not in types or "stylesheet" in types:
        return False
    kind = (attributes.get("type") or "").partition(";")[0].strip().lower()
    return kind in _PAGE_TYPES or ("hreflang" in attributes and not _NOT_PAGES.search(kind))


def refresh_target(content: str) -> str:
    """Return the reference in the content of a refresh meta element, read as browsers do; empty if it has none."""
    match = _REFRESH.match(content)
    if not match:
        return ""
    target = content[match.end() :]
    if target[:1] in ("'", '"'):
        target = target[1:].partition(target[0])[0]
    return target


def base_url(url: str, reference: str) -> str:
    """Return the document's base URL, as an href, given the reference that it names as its base, if any."""
    # Every reference is joined to the base, so a page of a long one and many others would take minutes.
    if not 0 < len(reference) <= _MAX_BASE_CHARS:
        return url
    try:
        base = join(url, reference)
    except InvalidUrl:
        return url
    return url if base.startswith(("data:", "javascript:")) else base


def _folder(base: str) -> str:
    path = base[: base.index("?")] if "?" in base else base
    return path[: path.rfind("/")]
