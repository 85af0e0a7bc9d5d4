"""The text a reader would see on a page; article extraction is another matter."""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser

from gossamer.extract.bombs import flattened, is_bomb
from gossamer.extract.charset import decode, sniff

_UNSEEN = ["script", "style", "noscript", "template", "svg", "head"]
_BLOCKS = (
    "address,article,aside,blockquote,br,dd,div,dl,dt,figcaption,footer,form,h1,h2,h3,h4,h5,h6,header,hr,li,main,nav,ol,p,"
    "pre,section,table,td,th,tr,ul"
)
_SPACES = re.compile(r"[ \t\f\v\xa0]+")
_GAPS = re.compile(r"\s*\n\s*\n\s*")


def seen_words(tree: LexborHTMLParser) -> str:
    """Return all words a reader would see, without regard to lines. Takes what is unseen out of the tree."""
    tree.strip_tags(_UNSEEN)
    return tree.root.text(separator=" ") if tree.root is not None else ""


def visible_text(body: bytes, content_type: str) -> str:
    """Return the text of an HTML page, a paragraph to a line; other text as it is."""
    text = decode(body, sniff(body, content_type))
    if "html" not in content_type.lower():
        return text
    markup = text.encode("utf-8", "replace")
    tree = LexborHTMLParser(flattened(markup) if is_bomb(markup) else markup)
    tree.strip_tags(_UNSEEN)
    for node in tree.css(_BLOCKS):
        node.insert_before("\n")
        node.insert_after("\n")
    lines = (tree.root.text() if tree.root is not None else "").splitlines()
    return _GAPS.sub("\n\n", "\n".join(_SPACES.sub(" ", line).strip() for line in lines)).strip()
