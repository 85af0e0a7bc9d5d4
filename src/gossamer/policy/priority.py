"""In which order the URLs of one host are fetched: seeds, then what the user prefers, then shallow before deep."""

from __future__ import annotations

import re

from gossamer.model.request import Source
from gossamer.policy.scope import Globs

SEED = 0
PREFERRED = 1
_FIRST_LEVEL = 10
_STEPS_PER_LEVEL = 4
_MAX_LEVEL = 1_000_000

# Pages that list others lead to more pages, so they come before the pages they list.
_LISTING = re.compile(
    r"[?&](?:page|p|offset|start|sort|category|cat|tag)=|/(?:page|pages|category|categories|tags?|archives?|index|list|browse|topics?)(?:[/.?]|$)|/$"
)
_DETAIL = re.compile(
    r"\d{3,}[^/]*$|(?:[^/-]+-){3,}[^/]*$|\.(?:pdf|zip|gz|jpe?g|png|gif|svg|mp[34]|docx?|xlsx?)$",
    re.IGNORECASE,
)


def priority_of(url: str, depth: int, source: Source, prefer: Globs) -> int:
    """Return the priority of a URL; a smaller number is fetched earlier."""
    if source is Source.SEED:
        return SEED
    if prefer and prefer.match(url):
        return PREFERRED
    if _LISTING.search(url):
        kind = 0
    elif _DETAIL.search(url):
        kind = 2
    else:
        kind = 1
    return _FIRST_LEVEL + min(depth, _MAX_LEVEL) * _STEPS_PER_LEVEL + kind
