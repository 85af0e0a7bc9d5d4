from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy import robots
from gossamer.policy.robots import RobotsRules, parse

SITE = "http://foo.bar"


def rules_of(text: str) -> RobotsRules:
    return parse(text.encode())


def may(text: str, path: str, agent: str = "FooBot") -> bool:
    return rules_of(text).allowed(agent, SITE + path)


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        ("disallow: /x/page.html\nallow: /x/", "/x/page.html", False),
        ("allow: /x/page.html\ndisallow: /x/", "/x/page.html", True),
        ("allow: /x/page.html\ndisallow: /x/", "/x/", False),
        ("disallow: \nallow: ", "/x", True),
        ("disallow: /\nallow: /", "/x", True),
        ("disallow: /x\nallow: /x/", "/x", False),
        ("disallow: /x\nallow: /x/", "/x/", True),
        ("allow: /page\ndisallow: /*.html", "/page.html", False),
        ("allow: /x/page.\ndisallow: /*.html", "/x/page.html", True),
        ("allow: /x/page.\ndisallow: /*.html", "/x/y.html", False),
        ("allow: /$\ndisallow: /", "/", True),
        ("allow: /$\ndisallow: /", "/page", False),
        ("allow: /aa\nallow: /a\ndisallow: /*aaaaaa", "/aaaaaaaa", False),
    ],
)
def test_the_longest_rule_wins_and_allow_wins_a_tie(lines: str, path: str, expected: bool) -> None:
    assert may(f"user-agent: FooBot\n{lines}\n", path) is expected


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (
            "/fish",
            ["/fish", "/fish.html", "/fishheads/x", "/fish.php?id=1"],
            ["/Fish.asp", "/catfish", "/?id=fish"],
        ),
        ("/fish*", ["/fish", "/fishheads/x"], ["/Fish", "/cat/fish"]),
        ("/fish/", ["/fish/", "/fish/?id=1", "/fish/a"], ["/fish", "/fish.html"]),
        ("fish/", [], ["/fish/", "/x/fish/"]),
        ("/*.php", ["/a.php", "/x/a.php?y", "/.php/"], ["/", "/a.PHP"]),
        ("/*.php$", ["/a.php", "/x/a.php", "/a.php.php"], ["/a.php?x", "/a.php/", "/php"]),
        ("/fish*.php", ["/fish.php", "/fishes/x.php?id"], ["/Fish.php", "/fish"]),
        ("*.gif$", ["/a.gif", "/x/.gif"], ["/a.gif?x", "/gif"]),
        ("/foo/*/quz", ["/foo/a/quz", "/foo//quz", "/foo/a/b/quz/c"], ["/foo/quz"]),
        ("/a$b", ["/a$b", "/a$bc", "/a%24b"], ["/a", "/ab"]),
        ("/a**b*$", ["/ab", "/axxb", "/abx"], ["/a", "/xab"]),
        ("/ab*b$", ["/abb", "/ab/b"], ["/ab"]),
        ("/x?a=b", ["/x?a=b&c", "/x?a=b#f"], ["/x", "/x#?a=b"]),
        ("/x$", ["/x", "/x#f"], ["/x?", "/xy", "/"]),
        ("$", [], ["/", "/x"]),
        ("*", ["/", "/x"], []),
    ],
)
def test_patterns_match_as_documented(pattern: str, matching: list[str], others: list[str]) -> None:
    text = f"user-agent: FooBot\ndisallow: {pattern}\n"
    assert [path for path in matching + others if not may(text, path)] == matching


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/ツ"),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/%62%61%7A", "/foo/baz"),
        ("/foo/baz", "/foo/%62%61%7a"),
        ("/%7Ejoe", "/~joe"),
        ("/a b", "/a%20b"),
        ('/"x"', "/%22x%22"),
        ("/a%2Ab", "/a*b"),
        ("/a%2fb", "/a%2Fb"),
        ("/100%", "/100%"),
        ("/?q=http://x.y?a&b", "/?q=http://x.y?a&b"),
    ],
)
def test_spellings_of_the_same_path_are_equal(pattern: str, path: str) -> None:
    assert not may(f"user-agent: *\ndisallow: {pattern}\n", path)


@pytest.mark.parametrize(
    ("pattern", "path"), [("/a%2Fb", "/a/b"), ("/a/b", "/a%2Fb"), ("/a%2Ab", "/axb"), ("/a%3Fb", "/a?b")]
)
def test_reserved_characters_differ_from_their_escapes(pattern: str, path: str) -> None:
    assert may(f"user-agent: *\ndisallow: {pattern}\n", path)


def test_bytes_that_are_no_utf8_are_matched_as_bytes() -> None:
    assert not parse(b"user-agent: *\ndisallow: /caf\xe9\n").allowed("x", SITE + "/caf%E9")


def test_allowing_an_index_page_allows_its_folder() -> None:
    text = "User-Agent: *\nAllow: /allowed-slash/index.html\nDisallow: /\n"
    assert may(text, "/allowed-slash/")
    assert may(text, "/allowed-slash/index.html")
    assert not may(text, "/allowed-slash/index.htm")
    assert not may(text, "/allowed-slash/x")
    assert not may(text, "/anyother-url")


def test_disallowing_an_index_page_leaves_its_folder_open() -> None:
    assert may("User-Agent: *\nDisallow: /x/index.html\n", "/x/")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("", "/"),
        ("http://www.example.com", "/"),
        ("http://www.example.com#f", "/"),
        ("http://www.example.com#/x", "/"),
        ("http://www.example.com/a/b?c=http://d.e/", "/a/b?c=http://d.e/"),
        ("http://www.example.com/a/b?c=d&e=f#fragment", "/a/b?c=d&e=f"),
        ("example.com/a", "/a"),
        ("example.com?a", "/?a"),
        ("example.com/a;b#c", "/a;b"),
        ("a", "/"),
        ("/a", "/a"),
        ("//a/b/c", "/b/c"),
        ("https://u:p@h:8080/x", "/x"),
        ("http://h?x=/y", "/?x=/y"),
    ],
)
def test_what_is_matched_is_path_and_query(url: str, path: str) -> None:
    assert not rules_of(f"user-agent: *\ndisallow: {path}$").allowed("x", url)


def reference(rules: list[tuple[bool, str]], path: str) -> bool:
    """Decide as the RFC's text does, trying every rule and every way to match it."""

    def fits(pattern: str) -> bool:
        ends = {0}
        for index, char in enumerate(pattern):
            if char == "$" and index == len(pattern) - 1:
                return len(path) in ends
            if char == "*":
                ends = set(range(min(ends), len(path) + 1))
            else:
                ends = {end + 1 for end in ends if end < len(path) and path[end] == char}
            if not ends:
                return False
        return True

    ranks = [(len(pattern), allow) for allow, pattern in rules if pattern and fits(pattern)]
    return not ranks or max(ranks)[1]


PATTERNS = st.text(alphabet="/ab*$", max_size=8).map("/".__add__) | st.text(alphabet="/ab*$", max_size=5)


@pytest.mark.parametrize("crowd", [0, 32], ids=["by characters", "in turn"])
@given(
    rules=st.lists(st.tuples(st.booleans(), PATTERNS), max_size=12),
    paths=st.lists(st.text(alphabet="/ab$", max_size=12).map("/".__add__), min_size=1, max_size=5),
)
def test_the_index_decides_as_a_search_through_all_rules_does(
    crowd: int, rules: list[tuple[bool, str]], paths: list[str]
) -> None:
    lines = [f"{'allow' if allow else 'disallow'}: {pattern}" for allow, pattern in rules]
    parsed = rules_of("\n".join(["user-agent: *", *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robots, "_CROWD", crowd)
        for path in paths:
            assert parsed.allowed("x", SITE + path) is reference(rules, path)


class CountingPath(str):
    """A path that counts the searches made in it."""

    __slots__ = ("searches",)

    def find(self, *arguments: object) -> int:
        self.searches = getattr(self, "searches", 0) + 1
        return str.find(self, *arguments)  # type: ignore[arg-type]


def test_a_pattern_of_many_wildcards_searches_once_for_each_and_never_goes_back() -> None:
    rule = robots._rule(b"/" + b"*a" * 500 + b"*b$", allow=False, line=1, text=b"", group=robots._Group())
    path = CountingPath("/" + "a" * 4000)
    assert not rule.matches(path)
    assert path.searches == 500


class CountingKeys(list[str]):
    """The prefixes of a rule set, counting how often one is looked at."""

    looks = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204 - as list has it
        self.looks += 1
        return super().__getitem__(index)


def test_of_a_thousand_rules_a_check_looks_at_a_few() -> None:
    lines = [f"disallow: /section-{number:04}/private/" for number in range(1000)]
    rules = rules_of("\n".join(["user-agent: *", *lines]))
    ruleset = rules._compile("x")
    ruleset._keys = CountingKeys(ruleset._keys)
    assert not rules.allowed("x", SITE + "/section-0500/private/a.html")
    assert rules.allowed("x", SITE + "/section-0500/public/a.html")
    assert ruleset._keys.looks <= 2 * 12


def test_of_a_thousand_rules_with_wildcards_a_check_tries_those_that_share_their_rarest_characters() -> None:
    lines = [f"disallow: /*/part-{number:04}/*.html$" for number in range(1000)]
    rules = rules_of("\n".join(["user-agent: *", *lines]))
    (crowd,) = rules._compile("x")._crowds.values()
    assert not rules.allowed("x", SITE + "/a/part-0500/b.html")
    assert rules.allowed("x", SITE + "/a/part-0500/b.htm")
    assert len(crowd.candidates("/a/part-0500/b.html")) <= 30
    assert crowd.candidates("/shop/item.html") == []


@pytest.mark.parametrize(
    "pattern",
    ["/" + "*a" * 8000 + "*b", "/" + "a*" * 8000 + "b$", "/" + "*" * 16_000 + "b$", "/*" + "a" * 8000 + "*b"],
    ids=["stars and letters", "anchored", "stars alone", "a long part"],
)
def test_a_pattern_that_would_never_finish_by_trying_every_way_is_decided_at_once(pattern: str) -> None:
    path = "/" + "a" * 4000
    assert may(f"user-agent: *\ndisallow: {pattern}\n", path)
    assert may("user-agent: *\n" + f"disallow: {pattern}\n" * 30, path)
