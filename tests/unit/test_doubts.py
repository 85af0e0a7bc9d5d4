"""With more roots than fit into memory the same links are found as if all of them did."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.settings import LimitSettings, ScopeName, ScopeSettings, Settings
from gossamer.engine.discover import Discoverer, SeenCache
from gossamer.engine.doubts import Doubts
from gossamer.model.outcome import Found, Settled, State, Visit
from gossamer.model.page import Link, link_to
from gossamer.model.request import Known, Request, Source
from gossamer.model.url import UrlPolicy
from gossamer.policy.scope import MAX_ROOTS, UNSURE, Scope

CROWD = [f"{number}.test" for number in range(MAX_ROOTS)]
#: Roots that are in the ledger alone.
ROOTS = {
    "host": {"a.example", "b.example"},
    "domain": {"a.example"},
    "prefix": {"a.example/x/", "b.example/"},
}
HOSTS = ("a.example", "www.a.example", "b.example", "c.example")
PATHS = ("/", "/x/", "/x/y/z", "/y/x/", "/x/file.pdf")
FETCHED = Settled(State.FETCHED, "ok")


def link(url: str) -> Link:
    return link_to(url, None, UrlPolicy())


def request(depth: int = 1) -> Request:
    made = link("https://0.test/")
    return Request(made.url, made.fingerprint, made.host, depth)


class Answers:
    """Has the roots, and counts the questions."""

    def __init__(self, name: ScopeName) -> None:
        self.roots = ROOTS[name]
        self.known: dict[str, bool] = {}
        self.questions: list[set[str]] = []

    async def look_up(self, roots: Collection[str]) -> None:
        asked = {root for root in roots if root not in self.known}
        self.questions.append(asked)
        self.known |= {root: root in self.roots for root in asked}

    def forget(self) -> None:
        self.known.clear()
        self.questions.clear()


@cache
def scopes(name: ScopeName) -> tuple[Answers, Scope, Scope]:
    """Return a scope that must ask, with whom, and one that knows all. Each has a crowd of roots: made once."""
    answers, settings = Answers(name), ScopeSettings(scope=name, exclude=("*.pdf",))
    asking = Scope(settings, CROWD, answers.known.get)
    return answers, asking, Scope(settings, CROWD, answers.roots.__contains__)


class Crawl:
    """One who must ask for roots, beside one who knows them all."""

    def __init__(self, name: ScopeName = "host", depth: int | None = None) -> None:
        self.answers, scope, knowing = scopes(name)
        self.answers.forget()
        settings = Settings(limits=LimitSettings(depth=depth))
        self.asking = Discoverer(settings, scope, SeenCache(100))
        self.doubts = Doubts(scope, self.asking, self.answers.look_up)
        self.knowing = Discoverer(settings, knowing, SeenCache(100))

    def settled(self, *found: tuple[Found, ...]) -> list[tuple[Found, ...]]:
        """Return what is committed of the findings of some pages."""
        visits = tuple(Visit(Known(request(), 1), FETCHED, found=items) for items in found)
        return [visit.found for visit in asyncio.run(self.doubts.settle(visits))]


@pytest.mark.parametrize("name", ["host", "domain", "prefix"])
@given(pages=st.lists(st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(PATHS))), max_size=4))
def test_the_same_links_are_committed_as_if_all_roots_were_known(
    name: ScopeName, pages: list[list[tuple[str, str]]]
) -> None:
    crawl = Crawl(name, depth=1)
    for depth, page in enumerate(pages):
        links = [link(f"https://{host}{path}") for host, path in page]
        (found,) = crawl.settled(crawl.asking.links(request(depth), links))
        assert found == crawl.knowing.links(request(depth), links)


@pytest.mark.parametrize("host", HOSTS)
def test_a_redirect_is_followed_or_refused_as_if_all_roots_were_known(host: str) -> None:
    crawl, target = Crawl(), link(f"https://{host}/new")
    doubtful, root = crawl.asking.redirect(request(), target)
    assert (doubtful.refusal, root) == (UNSURE, "")
    ((found,),) = crawl.settled((doubtful,))
    assert (found, "") == crawl.knowing.redirect(request(), target)
    assert found.request.source is Source.REDIRECT


def test_all_pages_of_a_batch_are_asked_for_together_and_no_root_twice() -> None:
    crawl = Crawl()
    first, second = [link("https://a.example/1"), link("https://c.example/")], [link("https://b.example/1")]
    crawl.settled(crawl.asking.links(request(), first), crawl.asking.links(request(), second))
    assert crawl.answers.questions == [{"a.example", "b.example", "c.example"}]
    again = crawl.asking.links(request(), [link("https://a.example/2"), link("https://c.example/2")])
    assert [(item.request.host, item.refusal) for item in again] == [("a.example", "")]
    assert crawl.settled(again) == [again]
    assert len(crawl.answers.questions) == 1


def test_what_was_in_doubt_is_not_taken_for_committed() -> None:
    crawl = Crawl()
    doubtful = crawl.asking.links(request(), [link("https://c.example/")])
    crawl.settled(doubtful)
    crawl.asking.learn(doubtful)
    crawl.answers.known["c.example"] = True
    crawl.asking.look_again()
    (found,) = crawl.asking.links(request(), [link("https://c.example/")])
    assert found.refusal == ""
