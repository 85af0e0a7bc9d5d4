"""What a page says to robots about itself: `<meta name=robots>` and the X-Robots-Tag header.

Pure parsing. Rules for all robots and rules for ours add up, and the stricter wins, as the search engines
document it. `unavailable_after` and the snippet rules say nothing to a crawler and are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

#: Rules that take a value after a colon: what stands before theirs is no robot's name.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_TOKEN = re.compile(r"[A-Za-z_-]+")


class Directives(msgspec.Struct, frozen=True):
    """Whether a page may be kept, and whether its links may be followed."""

    noindex: bool = False
    nofollow: bool = False

    def __or__(self, other: Directives) -> Directives:
        return Directives(self.noindex or other.noindex, self.nofollow or other.nofollow)


#: Nothing is asked for.
NONE = Directives()


def product_token(user_agent: str) -> str:
    """Return the name robots rules know a user agent by, in lower case: `mybot` for `MyBot/1.2 (+https://…)`."""
    match = _TOKEN.match(user_agent)
    return match[0].lower() if match else ""


def from_meta(content: str) -> Directives:
    """Read the content of a robots meta element, such as `noindex, nofollow`."""
    return _read(re.split(r"[,\s]+", content.lower()))


def from_headers(values: Iterable[str], token: str) -> Directives:
    """Read X-Robots-Tag headers as the robot called `token` (see `product_token`) has to.

    `otherbot: noindex` speaks to that robot only, and so do the rules after it in the same header, up to the
    next robot's name.
    """
    asked = NONE
    for value in values:
        asked |= _read(_addressed_to(token, value.lower()))
    return asked


def _addressed_to(token: str, value: str) -> Iterable[str]:
    ours = True
    for part in value.split(","):
        name, colon, rule = part.partition(":")
        if colon and name.strip() not in _VALUED:
            ours = name.strip() in (token, "*", "robots")
            part = rule  # noqa: PLW2901  # what is left of the part once the name is off
        if ours:
            yield part.strip()


def _read(rules: Iterable[str]) -> Directives:
    given = frozenset(rules)
    both = "none" in given
    return Directives(both or "noindex" in given, both or "nofollow" in given)
