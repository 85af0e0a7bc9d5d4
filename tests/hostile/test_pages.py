"""Pages made to exhaust whoever parses them: read all the same, in bounded time and memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gossamer.extract.bombs import is_bomb
from gossamer.extract.html import HtmlExtractor
from gossamer.model.page import Facts
from gossamer.model.url import UrlPolicy

KEPT = b"<title>T</title><h1>H</h1><a href=first></a>"


def many(form: bytes, count: int) -> bytes:
    """Repeat a form with a number in each place of it."""
    places = form.count(b"%d")
    return b"".join(form % ((number,) * places) for number in range(count))


def tags_of_many_attributes(tag: bytes, separator: bytes, tags: int, attributes: int) -> bytes:
    return b"".join(
        b"<"
        + tag
        + separator
        + separator.join(b"a%d" % (t * attributes + a) for a in range(attributes))
        + b">"
        for t in range(tags)
    )


# Each takes the parser minutes, or gigabytes, as it is.
BOMBS: dict[str, Callable[[], bytes]] = {
    "a million paragraphs": lambda: b"<p>" * 1_000_000,
    "a million links": lambda: many(b"<a href=%d>", 700_000),
    "headings": lambda: b"<h1>" * 1_000_000,
    "names of attributes": lambda: many(b"<p a%d b%d c%d>", 200_000),
    "names in long tags": lambda: tags_of_many_attributes(b"p", b" ", 5000, 100),
    "names between slashes": lambda: tags_of_many_attributes(b"p", b"/", 5000, 100),
    "names in links": lambda: tags_of_many_attributes(b"a href=x", b" ", 5000, 100),
    "names of the root": lambda: many(b"<html a%d>", 300_000),
    "names of the root in long tags": lambda: tags_of_many_attributes(b"html", b" ", 500, 1000),
    "names of elements": lambda: many(b"<x%d></x%d>", 300_000),
    "nesting padded with other ends": lambda: b"<div></i></i>" * 300_000,
    "ends of nothing": lambda: b"<x>" * 2500 + b"</y>" * 1_000_000,
    "formatting padded with other ends": lambda: many(b"<b id=%d></x></x><p></x></x>", 3000),
    "formatting with ends in comments": lambda: many(b"<b id=%d><!--</b>--><p></x>", 3000),
    "formatting with ends in quotes": lambda: many(b"<b id=%d><p title='x</b>'></x>", 3000),
    "formatting with ends in scripts": lambda: many(b"<b id=%d><p></x><script></b></script>", 3000),
    "little formatting, hidden": lambda: (
        b"<p></p>" * 3000 + b"<p>" + many(b"<B id=%d>", 300) + b"<p>x</x>" * 10_000
    ),
}

_PROGRAM = """
import sys, time
sys.path.insert(0, {tests!r})
from hostile.memory import Peak
from hostile.test_pages import BOMBS, KEPT, facts_of

page = KEPT + BOMBS[{name!r}]()
facts_of(KEPT)
peak = Peak()
began = time.process_time()
facts = facts_of(page)
assert (facts.title, facts.headings[0], facts.links[0].url) == ("T", "H", "http://h/first"), facts.title
print(time.process_time() - began, peak.growth())
"""


def facts_of(page: bytes, kind: str = "text/html") -> Facts:
    return HtmlExtractor(UrlPolicy()).extract(page, kind, "http://h/")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_read_within_seconds_and_megabytes(name: str) -> None:
    program = _PROGRAM.format(tests=str(Path(__file__).parents[1]), name=name)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr[-500:]
    seconds, kibibytes = done.stdout.split()
    assert float(seconds) < 10.0
    assert int(kibibytes) < 150_000


def test_links_are_bounded_in_number() -> None:
    assert len(facts_of(many(b"<a href=%d></a>", 100_000)).links) == 10_000


def test_one_attribute_of_ten_megabytes_does_no_harm() -> None:
    for name in (b"title", b"href", b"x" * 1000):
        facts = facts_of(KEPT + b"<a " + name + b"='" + b"x" * 10_000_000 + b"'>")
        assert [link.url for link in facts.links[:1]] == ["http://h/first"]


HONEST = {
    "table": many(b"<tr><td id=c%d class='a b'><a href=/p/%d><b class=x>text</b></a></td></tr>", 3000),
    "manual": many(
        b"<p>See <code class='xref py'>name%d</code> and <em class=e>that</em>.</p><!-- </p> -->", 3000
    ),
    "prose": many(
        b"<p>word%d and some more of them, as in any long text, with a bit of everything.</p>\n", 5000
    ),
    "nesting": b"<div><section><ul><li><a href=x>y</a></ul></section></div>" * 2000,
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_pages_are_no_bombs(name: str) -> None:
    assert not is_bomb(HONEST[name])


@pytest.mark.parametrize(
    "label",
    [
        "utf-7",
        "x-user-defined",
        "utf-16",
        "utf-32",
        "zlib",
        "idna",
        "x" * 10_000,
        "\u00e4",
        "utf-8\0",
        "'\"",
        "hz-gb-2312",
    ],
)
def test_no_charset_harms(label: str) -> None:
    page = KEPT + b"+ADw-script+AD4- \x1b$B \xff\xfe \x80\x81" * 1000
    for kind, body in (
        (f"text/html; charset={label}", page),
        ("text/html", f"<meta charset='{label}'>".encode("utf-8", "replace") + page),
    ):
        facts = facts_of(body, kind)
        assert len(facts.title) <= 1000
        assert all(link.url.startswith("http://h/") for link in facts.links)


def test_nul_bytes_make_a_page_binary_early_and_are_dropped_late() -> None:
    assert facts_of(b"<title>\0</title>").binary
    facts = facts_of(KEPT + b" " * 2000 + b"<h2>a\0b</h2><a href='x\0y'>")
    assert not facts.binary
    assert "\0" not in "".join(facts.headings)
