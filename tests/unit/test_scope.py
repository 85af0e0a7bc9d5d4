from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.settings import ScopeName, ScopeSettings
from gossamer.errors import UsageError
from gossamer.model.url import canonicalise, host_of
from gossamer.policy.scope import MAX_ROOTS, Globs, Scope
from gossamer.policy.shard import Shard, parse_shard

SEED = "https://www.example.co.uk/shop/index.html"


def scope_of(
    name: ScopeName, *seeds: str, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> Scope:
    scope = Scope(ScopeSettings(scope=name, include=include, exclude=exclude))
    for seed in seeds:
        scope.join(scope.root_of(seed, host_of(seed)))
    return scope


def refusal(scope: Scope, url: str) -> str:
    canonical = canonicalise(url)
    return scope.refusal(canonical, host_of(canonical))


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        (
            "host",
            ["https://www.example.co.uk/", "http://www.example.co.uk:8080/x", "https://WWW.example.co.uk/y"],
            ["https://example.co.uk/", "https://a.www.example.co.uk/", "https://www.example.com/"],
        ),
        (
            "domain",
            ["https://example.co.uk/", "https://deep.api.example.co.uk/", "https://www.example.co.uk/"],
            ["https://other.co.uk/", "https://example.com/", "https://notexample.co.uk/"],
        ),
        (
            "prefix",
            ["https://www.example.co.uk/shop/", "https://www.example.co.uk/shop/a/b?c=/", "http://www.example.co.uk/shop/"],
            [
                "https://www.example.co.uk/",
                "https://www.example.co.uk/shop",
                "https://www.example.co.uk/shopping/",
                "https://www.example.co.uk/?x=/shop/",
                "https://www.example.co.uk/shop/../secret",
                "https://example.co.uk/shop/",
            ],
        ),
        ("page", [], ["https://www.example.co.uk/shop/", "https://www.example.co.uk/shop/index.html"]),
        ("any", ["https://example.org/", "http://10.0.0.1/"], []),
    ],
)  # fmt: skip
def test_a_scope_holds_what_belongs_to_its_seed(
    name: ScopeName, inside: list[str], outside: list[str]
) -> None:
    scope = scope_of(name, SEED)
    assert [url for url in inside if refusal(scope, url)] == []
    assert [url for url in outside if refusal(scope, url) != "scope"] == []


def test_a_scope_spans_all_its_seeds() -> None:
    scope = scope_of("host", "https://a.example/", "https://b.example/")
    assert not refusal(scope, "https://b.example/x")
    assert scope.roots == {"a.example", "b.example"}


def test_an_address_is_a_host_and_a_domain_of_its_own() -> None:
    for name in ("host", "domain"):
        scope = scope_of(name, "http://127.0.0.1:8000/")
        assert not refusal(scope, "http://127.0.0.1:9000/")
        assert refusal(scope, "http://127.0.0.2/") == "scope"


def test_a_site_on_a_shared_suffix_does_not_reach_its_neighbours() -> None:
    scope = scope_of("domain", "https://me.github.io/")
    assert not refusal(scope, "https://deep.me.github.io/")
    assert refusal(scope, "https://you.github.io/") == "scope"


def test_the_root_of_a_prefix_is_the_folder_of_the_seed() -> None:
    scope = scope_of("prefix")
    assert scope.root_of("https://a.example/x/y/z?q=/w/", "a.example") == "a.example/x/y/"
    assert scope.root_of("https://a.example/", "a.example") == "a.example/"


def test_exclude_wins_over_include_and_both_bind_seeds() -> None:
    scope = scope_of("any", include=("/keep/*",), exclude=("*.pdf",))
    assert scope.exclusion("https://a.example/keep/x") == ""
    assert scope.exclusion("https://a.example/keep/x.pdf") == "excluded"
    assert scope.exclusion("https://a.example/other") == "excluded"


def test_out_of_scope_is_said_before_excluded() -> None:
    scope = scope_of("host", "https://a.example/", exclude=("*",))
    assert refusal(scope, "https://b.example/") == "scope"
    assert refusal(scope, "https://a.example/") == "excluded"


@pytest.mark.parametrize(
    ("glob", "url", "matches"),
    [
        ("/a/*", "https://x.example/a/b/c?d", True),
        ("/a/*", "https://x.example/b/a/c", False),
        ("/a", "https://x.example/a", True),
        ("/a", "https://x.example/a?b", False),
        ("*.pdf", "https://x.example/a.pdf", True),
        ("*.pdf", "https://x.example/a.pdf?x", False),
        ("https://x.example/*", "https://x.example/", True),
        ("*x.example*", "https://x.example/", True),
        ("/p?ge", "http://x.example/page", True),
        ("/[ab]/*", "http://x.example/b/", True),
        ("/[!ab]/*", "http://x.example/b/", False),
        ("/a.c", "http://x.example/abc", False),
        ("[", "http://x.example/[", False),
    ],
)
def test_a_glob_matches_the_whole_url_or_from_a_slash_on_the_path(glob: str, url: str, matches: bool) -> None:
    assert Globs((glob,)).match(url) is matches


def test_no_globs_match_nothing_and_are_false() -> None:
    assert not Globs(())
    assert not Globs(()).match("https://x.example/")


def test_any_of_several_globs_is_enough() -> None:
    globs = Globs(("/a", "/b"))
    assert [globs.match(f"https://x.example/{path}") for path in "abc"] == [True, True, False]


@given(st.text(alphabet="ab*?[]!^-/\\(+$.|{}", max_size=12), st.text(alphabet="ab/[.", max_size=20))
def test_any_text_is_a_glob_and_answers(glob: str, path: str) -> None:
    assert Globs((glob,)).match(f"https://x.example/{path}") in {True, False}


def test_a_glob_full_of_stars_answers_at_once() -> None:
    """Each star is atomic in the translation; with backtracking this would outlive the universe."""
    assert not Globs(("*a" * 30 + "b",)).match("https://x.example/" + "a" * 4000)


# -- shards ----------------------------------------------------------------------------------------------

HOSTS = [f"h{number}.example" for number in range(300)]


def shards(count: int, scope: ScopeName = "host") -> list[Scope]:
    return [
        Scope(ScopeSettings(scope=scope, shard=f"{number}/{count}"), HOSTS) for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_host_belongs_to_one_shard_and_shards_are_of_like_size(count: int) -> None:
    owned = [[host for host in HOSTS if not scope.owner(host)] for scope in shards(count)]
    assert sorted(host for part in owned for host in part) == sorted(HOSTS)
    assert min(map(len, owned)) > 0.6 * len(HOSTS) / count


def test_the_shard_of_a_host_never_changes() -> None:
    """Jobs on other machines, with other versions, must agree; so the hash is part of what was released."""
    names = ["weaver.example", "docs.python.org", "127.0.0.1", "xn--bcher-kva.example"]
    assert [str(Shard(1, 1000).of(name)) for name in names] == [
        "936/1000",
        "299/1000",
        "965/1000",
        "983/1000",
    ]


def test_a_host_goes_where_it_goes_with_www_in_front() -> None:
    assert all(Shard(1, 50).of(host) == Shard(1, 50).of(f"www.{host}") for host in HOSTS)


def test_with_scope_domain_all_hosts_of_a_domain_belong_to_one_shard() -> None:
    for by_domain in shards(5, "domain"):
        assert len({by_domain.owner(f"{host}.weaver.example") for host in "abcdefghij"}) == 1
    for by_host in shards(5):
        assert len({by_host.owner(f"{host}.weaver.example") for host in "abcdefghij"}) > 1


def test_another_shard_is_a_reason_of_its_own_and_is_named() -> None:
    first, second = shards(2)
    host = next(host for host in HOSTS if not first.owner(host))
    assert refusal(first, f"https://{host}/") == ""
    assert refusal(second, f"https://{host}/") == "shard"
    assert second.owner(host) == "1/2"


@pytest.mark.parametrize(
    "text",
    ["0/3", "4/3", "1", "1/", "/3", "1/0", "-1/3", "1.5/3", "a/b", "01/3", "1/3/3", " 1/3", "\u0661/3"],
)
def test_what_is_no_shard_is_refused_in_one_line_with_its_form(text: str) -> None:
    with pytest.raises(UsageError, match="write I/N, from 1/3 to 3/3 for three jobs") as raised:
        parse_shard(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("known", "sure"),
    [({}, "unsure"), ({"b.example/x/": True}, ""), ({"b.example/": False, "b.example/x/": False}, "scope")],
)
def test_a_scope_is_unsure_only_while_a_root_that_would_decide_is_unknown(
    known: dict[str, bool], sure: str
) -> None:
    crowd = [f"{number}.test/" for number in range(MAX_ROOTS)]
    scope = Scope(ScopeSettings(scope="prefix", exclude=("*.pdf",)), crowd, known.get)
    assert scope.is_partial
    assert refusal(scope, "https://b.example/x/y") == sure
    assert refusal(scope, "https://0.test/x/y") == ""
    assert refusal(scope, "https://b.example/x/y.pdf") == ("scope" if sure == "scope" else "excluded")
    assert scope.roots_over("https://b.example/x/y", "b.example") == ["b.example/", "b.example/x/"]


def test_a_scope_with_room_for_its_roots_asks_nobody() -> None:
    scope = Scope(ScopeSettings(), ["a.example"], lambda _root: None)
    assert not scope.is_partial
    assert refusal(scope, "https://b.example/") == "scope"
