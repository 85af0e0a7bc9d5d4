"""What extraction finds in a document."""

from __future__ import annotations

import msgspec

from gossamer.model.url import UrlPolicy, host_of


class Link(msgspec.Struct, frozen=True, gc=False):
    """A link as found on a page: absolute, canonical, http or https."""

    url: str
    fingerprint: int
    host: str
    #: False for rel=nofollow (the page's own nofollow is `Facts.nofollow`).
    follow: bool = True


def link_to(reference: str, base: str | None, policy: UrlPolicy) -> Link:
    """Return the link a reference stands for. Raises `InvalidUrl`."""
    canonical = policy.canonicalise(reference, base)
    return Link(canonical, policy.fingerprint(canonical), host_of(canonical))


class Facts(msgspec.Struct):
    """The facts of one document that the page record is made of."""

    title: str = ""
    description: str = ""
    language: str = ""
    headings: list[str] = []
    links: list[Link] = []
    noindex: bool = False
    nofollow: bool = False
    #: What a reader would see, where it was asked for.
    text: str = ""
    #: The charset the bytes were read with, by its WHATWG name.
    charset: str = ""
    #: True where the body was labelled HTML but is binary; then nothing was extracted.
    binary: bool = False
    #: A line for the job's log: why the document was not read, or not to its end.
    note: str = ""
