from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.settings import LimitSettings, ScopeSettings, Settings
from gossamer.engine.discover import Discoverer, SeenCache
from gossamer.model.outcome import Found
from gossamer.model.page import Link, link_to
from gossamer.model.request import Request, Source
from gossamer.model.url import UrlPolicy
from gossamer.policy.priority import PREFERRED, SEED
from gossamer.policy.scope import Scope

POLICY = UrlPolicy()


def link(url: str) -> Link:
    return link_to(url, None, POLICY)


def request(url: str = "https://a.example/", depth: int = 0, **details: object) -> Request:
    made = link(url)
    base = Request(made.url, made.fingerprint, made.host, depth, source=Source.SEED)
    return msgspec.structs.replace(base, **details)


def discoverer(depth: int | None = None, seen: SeenCache | None = None, **scope: object) -> Discoverer:
    settings = Settings(scope=msgspec.convert(scope, ScopeSettings), limits=LimitSettings(depth=depth))
    return Discoverer(settings, Scope(settings.scope, ["a.example"]), seen or SeenCache(100))


def urls(found: tuple[Found, ...]) -> list[str]:
    return [item.request.url for item in found]


# -- links -----------------------------------------------------------------------------------------------


def test_a_link_in_scope_is_found_one_step_further_with_its_parent() -> None:
    (found,) = discoverer().links(request(depth=3), [link("https://a.example/x")])
    assert (found.refusal, found.request.depth, found.request.parent) == ("", 4, "https://a.example/")
    assert found.request.source is Source.LINK


def test_links_out_of_scope_excluded_or_marked_nofollow_are_not_heard_of() -> None:
    shy = msgspec.structs.replace(link("https://a.example/shy"), follow=False)
    links = [link("https://b.example/"), link("https://a.example/x.pdf"), shy, link("https://a.example/ok")]
    assert urls(discoverer(exclude=("*.pdf",)).links(request(), links)) == ["https://a.example/ok"]


def test_a_link_too_deep_is_found_and_refused_so_that_a_higher_limit_can_revive_it() -> None:
    finder = discoverer(depth=1)
    (near,) = finder.links(request(depth=0), [link("https://a.example/x")])
    (far,) = finder.links(request(depth=1), [link("https://a.example/y")])
    assert (near.refusal, far.refusal) == ("", "depth")


def test_a_preferred_link_goes_before_the_others() -> None:
    (found,) = discoverer(prefer=("/want/*",)).links(request(), [link("https://a.example/want/x")])
    assert found.request.priority == PREFERRED


def test_a_link_is_forgotten_only_once_its_page_is_committed() -> None:
    """A cache that knew it earlier would lose the link if the commit failed."""
    finder = discoverer()
    found = finder.links(request(), [link("https://a.example/x")])
    assert finder.links(request(), [link("https://a.example/x")]) == found
    finder.learn(found)
    assert finder.links(request(), [link("https://a.example/x")]) == ()


def test_a_known_link_is_found_again_where_it_is_nearer() -> None:
    finder = discoverer()
    finder.learn(finder.links(request(depth=5), [link("https://a.example/x")]))
    assert finder.links(request(depth=5), [link("https://a.example/x")]) == ()
    (nearer,) = finder.links(request(depth=2), [link("https://a.example/x")])
    assert nearer.request.depth == 3


def test_a_scope_that_grew_takes_in_what_was_outside() -> None:
    finder = discoverer()
    assert finder.links(request(), [link("https://b.example/")]) == ()
    finder.join("b.example")
    assert urls(finder.links(request(), [link("https://b.example/")])) == ["https://b.example/"]


# -- redirects -------------------------------------------------------------------------------------------


def test_the_target_of_a_seeds_redirect_belongs_to_the_job_and_brings_its_root() -> None:
    found, root = discoverer().redirect(request(), link("https://b.example/x"))
    assert (found.refusal, root) == ("", "b.example")
    assert (found.request.depth, found.request.source, found.request.priority) == (0, Source.REDIRECT, SEED)
    assert found.request.redirected_from == ("https://a.example/",)


def test_the_target_of_a_links_redirect_must_be_in_scope_and_brings_nothing() -> None:
    found, root = discoverer().redirect(request(depth=1), link("https://b.example/x"))
    assert (found.refusal, root) == ("scope", "")


def test_an_excluded_target_of_a_seeds_redirect_is_refused_and_widens_nothing() -> None:
    found, root = discoverer(exclude=("*/x",)).redirect(request(), link("https://b.example/x"))
    assert (found.refusal, root) == ("excluded", "")


def test_a_hop_keeps_the_input_and_remembers_the_way() -> None:
    finder = discoverer()
    first = finder.hop(request(), link("https://b.example/1"))
    second = finder.hop(first, link("https://c.example/2"))
    assert (second.url, second.fingerprint) == (request().url, request().fingerprint)
    assert (second.target, second.host) == ("https://c.example/2", "c.example")
    assert second.redirected_from == ("https://a.example/", "https://b.example/1")


# -- the cache -------------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 9)), max_size=300))
def test_the_cache_stays_within_its_bound_and_never_claims_a_smaller_depth_than_it_heard(
    capacity: int, heard: list[tuple[int, int]]
) -> None:
    seen = SeenCache(capacity)
    least: dict[int, int] = {}
    for number, depth in heard:
        seen.learn([Found(Request("https://a.example/", number, "a.example", depth))])
        least[number] = min(depth, least.get(number, depth))
        assert len(seen.young) + len(seen.old) <= capacity + 2
    for known in (seen.young, seen.old):
        assert all(depth >= least[number] for number, depth in known.items())


# -- shards ----------------------------------------------------------------------------------------------


def test_a_redirect_to_another_shard_has_a_state_and_a_link_to_one_has_none() -> None:
    finder = discoverer(shard="1/2", scope="any")
    names = [f"https://h{number}.example/" for number in range(20)]
    own = [item.request.url for item in finder.links(request(), [link(url) for url in names])]
    other = next(url for url in names if url not in own)
    for depth in (0, 3):
        found, root = finder.redirect(request(depth=depth), link(other))
        assert (found.refusal, found.detail, root) == ("shard", "it belongs to shard 2/2", "")
        found, _ = finder.redirect(request(depth=depth), link(own[0]))
        assert found.refusal == ""
