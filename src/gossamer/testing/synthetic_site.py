"""How the built-in web is put together: a register of pages, one page design, and prose that never changes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from html import escape
from typing import Protocol

from gossamer.testing.synthetic_reply import Answer, Expectation, Reply, State

STYLE = """body{font:16px/1.6 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#23272f}
a{color:#2457c5}header{border-bottom:3px solid ACCENT;margin-bottom:1.5rem}nav a{margin-right:1rem}
h1{line-height:1.2}.crumbs,footer{color:#6b7280;font-size:.85rem}.price{color:ACCENT;font-weight:700}
.card{border:1px solid #e5e7eb;border-radius:.5rem;padding:.7rem 1rem;margin:.6rem 0}"""
ACCENTS = {"docs": "#2a9d8f", "shop": "#e76f51", "blog": "#6d597a", "lab": "#c1121f"}
NAMES = {
    "docs": "The Weaver's Handbook",
    "shop": "Thread &amp; Loom",
    "blog": "Field Notes",
    "lab": "The Oddity Lab",
}
SENTENCES = (
    "Begin with {0}, and the rest of the web follows from it.",
    "Most people who work with {0} learn it twice: once from a book and once from a broken thread.",
    "There is no hurry; a thread that is pulled slowly does not snap.",
    "The old workshops kept a ledger of {0}, one line for every piece that left the loom.",
    "Measure first. A guess about {0} is seldom wrong by a little.",
    "In the evening light {0} looks darker than it is, so judge it before noon.",
    "An orb web of the garden spider holds about twenty metres of silk and weighs less than a milligram.",
    "Whoever has seen {0} done well recognises it at once, and can rarely say why.",
    "Keep the tension even on both sides, and write down what you changed.",
    "If {0} goes wrong, go back to the last knot that you trust.",
    "The cheapest tool is a second pair of eyes.",
    "Damp weather changes {0} more than any setting does.",
    "Nothing about {0} is difficult; there is only a lot of it.",
    "A good pattern for {0} can be told in one sentence and drawn in one line.",
)


class Address(Protocol):
    """Tells the URL of a path on a virtual host."""

    def __call__(self, host: str, path: str = "/") -> str:
        """Return the canonical URL."""
        ...


class Site:
    """Collects the answers of all hosts, and what a crawl should make of them."""

    def __init__(self, url: Address) -> None:
        self.url = url
        self.answers: dict[tuple[str, str], Answer] = {}
        self.expected: dict[str, Expectation] = {}

    def serve(self, host: str, path: str, answer: Answer) -> None:
        """Answer on `path` without an expectation: it depends on the crawl whether anybody asks."""
        self.answers[host, path] = answer

    def put(self, host: str, path: str, reply: Reply, *, via: str = "a", state: State | None = None) -> None:
        """Answer on `path`, and expect the state that follows from the status unless told otherwise."""
        self.serve(host, path, reply)
        self.expect(host, path, reply.status, state or _state_of(reply.status), via=via)

    def expect(self, host: str, path: str, status: int, state: State, *, via: str = "a") -> None:
        """Say what becomes of a URL."""
        self.expected[self.url(host, path)] = Expectation(status, state, via)


def _state_of(status: int) -> State:
    """Return the state a status leads to: a 4xx is an answer like any other, only what was worth a retry can fail."""
    if 300 <= status < 400:
        return "redirected"
    return "failed" if status >= 500 or status == 429 else "fetched"


def page(host: str, title: str, body: str, *, head: str = "", lang: str = "en") -> Reply:
    """Answer with an HTML page in the host's colours. `body` and `head` are HTML, `title` is text."""
    return Reply(body=document(host, title, body, head=head, lang=lang).encode())


def document(host: str, title: str, body: str, *, head: str = "", lang: str = "en") -> str:
    """Write the HTML of a page. It does not declare its charset: the header does."""
    name = NAMES.get(host, host)
    style = STYLE.replace("ACCENT", ACCENTS.get(host, "#444"))
    return (
        f'<!doctype html>\n<html lang="{lang}">\n<head>\n<title>{escape(title)} · {name}</title>\n'
        f'<meta name="description" content="{escape(title)}, on {name}">\n<style>{style}</style>\n{head}</head>\n'
        f'<body>\n<header><p><strong>{name}</strong></p><nav><a href="/">Home</a></nav></header>\n'
        f"<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n"
        f"<footer>{name}. All of it is made up.</footer>\n</body>\n</html>\n"
    )


def prose(subject: str, paragraphs: int = 3) -> str:
    """Write paragraphs about a subject, the same ones every time."""
    written = []
    for number in range(paragraphs):
        picks = [pick(f"{subject}/{number}/{place}", SENTENCES) for place in range(4)]
        # dict.fromkeys: a sentence is not said twice in a paragraph
        written.append(f"<p>{' '.join(dict.fromkeys(picks)).format(escape(subject.lower()))}</p>")
    return "\n".join(written)


def pick(key: str, choices: tuple[str, ...]) -> str:
    """Choose one of several by a key: arbitrary, yet the same in every run."""
    return choices[number_for(key, len(choices))]


def number_for(key: str, below: int) -> int:
    """Return an arbitrary number from 0 up to `below` that depends on nothing but the key."""
    return zlib.crc32(key.encode()) % below


def link_list(links: Iterable[tuple[str, str]]) -> str:
    """Write a list of links from pairs of address and text. Addresses are HTML already."""
    return (
        "<ul>\n"
        + "\n".join(f'<li><a href="{href}">{escape(text)}</a></li>' for href, text in links)
        + "\n</ul>"
    )


def slug(title: str) -> str:
    """Turn a title into a path segment."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def sequel(items: list[str], place: int, href: Callable[[str], str]) -> tuple[str, str]:
    """Return the head and body links that lead from one of several items to the one before and after."""
    near = [("prev", place - 1), ("next", place + 1)]
    pairs = [(rel, href(items[index])) for rel, index in near if 0 <= index < len(items)]
    head = "".join(f'<link rel="{rel}" href="{target}">\n' for rel, target in pairs)
    return head, "<p>" + " · ".join(
        f'<a rel="{rel}" href="{target}">{rel}</a>' for rel, target in pairs
    ) + "</p>"
