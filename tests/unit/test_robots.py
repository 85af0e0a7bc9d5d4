from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy.robots import ALLOW_ALL, DISALLOW_ALL, Decision, RobotsRules, parse
from gossamer.policy.robots_pace import Ignored, RequestRate

SITE = "http://foo.bar"


def rules_of(text: str) -> RobotsRules:
    return parse(text.encode())


def may(text: str, path: str, agent: str = "FooBot") -> bool:
    return rules_of(text).allowed(agent, SITE + path)


# --- groups and user agents


def test_an_empty_file_allows_everything() -> None:
    assert ALLOW_ALL.allowed("FooBot", SITE + "/x")
    assert parse(b"").allowed("", "")


def test_disallow_all_leaves_only_robots_txt() -> None:
    assert not DISALLOW_ALL.allowed("FooBot", SITE + "/")
    assert not DISALLOW_ALL.allowed("FooBot", SITE + "/robots.txt.bak")
    assert DISALLOW_ALL.allowed("FooBot", SITE + "/robots.txt")


def test_an_agent_without_name_obeys_no_named_group_and_an_empty_url_is_the_root() -> None:
    rules = rules_of("user-agent: FooBot\ndisallow: /\n")
    assert rules.allowed("", "")
    assert not rules.allowed("FooBot", "")


@pytest.mark.parametrize(
    "agent",
    [
        "FooBot",
        "foobot",
        "FOOBOT",
        "FooBot/1.2",
        "FooBot/0.1 (+http://x.y)",
        "FooBot (a b)",
        " FooBot ",
        "foobot2",
    ],
)
def test_an_agent_is_known_by_the_letters_it_starts_with(agent: str) -> None:
    assert not may("User-Agent: fOOBOT/9.9 beta\nDisallow: /x", "/x", agent)


@pytest.mark.parametrize(
    "agent", ["Foo", "FooBot-News", "FooBots", "Mozilla/5.0 (compatible; FooBot/1.0)", "*"]
)
def test_an_agent_with_another_name_is_another_agent(agent: str) -> None:
    assert may("User-Agent: FooBot\nDisallow: /x", "/x", agent)


def test_a_user_agent_line_counts_up_to_its_first_space_but_two_words_are_no_product() -> None:
    text = "User-Agent: *\nDisallow: /\nUser-Agent: Foo Bar\nAllow: /x/\nDisallow: /\n"
    assert may(text, "/x/y", "Foo")
    assert not may(text, "/x/y", "Foo Bar")


def test_rules_before_the_first_group_are_nobodys() -> None:
    assert may("disallow: /x\nuser-agent: FooBot\ndisallow: /y\n", "/x")


def test_blank_lines_and_comments_end_no_group_and_groups_of_a_name_add_up() -> None:
    text = """
        user-agent: FooBot
        disallow: /a

        # a comment

        disallow: /b
        user-agent: BarBot
        disallow: /c

        user-agent: BazBot

        user-agent: FooBot
        disallow: /d
    """
    assert [may(text, path) for path in ("/a", "/b", "/c", "/d")] == [False, False, True, False]
    assert [may(text, path, "BazBot") for path in ("/a", "/b", "/c", "/d")] == [True, True, True, False]


@pytest.mark.parametrize(
    "line", ["Sitemap: https://foo.bar/s.xml", "Unknown-Thing: 1", "Crawl-delay: 1", "", "# x"]
)
def test_only_a_rule_ends_a_run_of_user_agents(line: str) -> None:
    text = f"User-agent: BarBot\n{line}\nUser-agent: *\nDisallow: /\n"
    assert not may(text, "/x", "BarBot")
    assert not may(text, "/x", "FooBot")


@pytest.mark.parametrize("rule", ["Disallow:", "Allow:"])
def test_an_empty_rule_allows_all_and_still_ends_the_run(rule: str) -> None:
    text = f"User-agent: FooBot\n{rule}\nUser-agent: BarBot\nDisallow: /\n"
    assert may(text, "/x")
    assert not may(text, "/x", "BarBot")


def test_a_group_of_its_own_frees_an_agent_from_the_group_for_all() -> None:
    text = "User-agent: *\nDisallow: /\nUser-agent: FooBot\n"
    assert may(text, "/x")
    assert not may(text, "/x", "BarBot")


def test_an_agent_named_beside_the_star_has_that_group_alone() -> None:
    text = "User-agent: *\nUser-agent: FooBot\nDisallow: /a\nUser-agent: *\nDisallow: /b\n"
    assert [may(text, path) for path in ("/a", "/b")] == [False, True]
    assert [may(text, path, "BarBot") for path in ("/a", "/b")] == [False, False]


@pytest.mark.parametrize(
    ("value", "global_"), [("*", True), ("* and more", True), ("*bot", False), ("", False)]
)
def test_a_star_followed_by_space_is_still_everybody(value: str, global_: bool) -> None:
    assert may(f"User-agent: {value}\nDisallow: /", "/x") is not global_


# --- lines


@pytest.mark.parametrize(
    "key", ["User-Agent", "USER-AGENT", "user-agent ", "useragent", "User Agent", "user-agents"]
)
def test_common_spellings_of_user_agent_are_understood(key: str) -> None:
    assert not may(f"{key}: FooBot\ndisallow: /", "/x")


@pytest.mark.parametrize(
    "key", ["Disallow", "DISALLOW", "dissallow", "dissalow", "disalow", "diasllow", "disallaw", "disallowed"]
)
def test_common_misspellings_of_disallow_are_understood(key: str) -> None:
    assert not may(f"user-agent: FooBot\n{key}: /", "/x")


@pytest.mark.parametrize("line", ["foo: /", "disalloww", ": /", "dis allow: /", "disallow / x", "allowance"])
def test_lines_that_make_no_sense_are_ignored(line: str) -> None:
    assert may(f"user-agent: FooBot\n{line}\n", "/x")


def test_a_forgotten_colon_is_forgiven_where_there_are_two_words() -> None:
    assert not may("user-agent FooBot\ndisallow\t /\n", "/x")


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_kind_of_line_end_works_and_lines_are_counted_alike(end: str) -> None:
    text = end.join(["User-Agent: foo", "", "Allow: /some/path", "User-Agent: bar", "", "", "Disallow: /"])
    assert rules_of(text).decide("foo", SITE + "/some/path").line == 3
    assert rules_of(text).decide("bar", SITE + "/x").line == 7


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_byte_order_mark_is_skipped_even_in_part(mark: bytes) -> None:
    assert not parse(mark + b"User-Agent: foo\nDisallow: /").allowed("foo", SITE + "/")


@pytest.mark.parametrize("junk", [b"\xef\x11\xbf", b"x\xef\xbb\xbf"])
def test_anything_else_before_a_key_spoils_it(junk: bytes) -> None:
    assert parse(junk + b"User-Agent: foo\nDisallow: /").allowed("foo", SITE + "/")


@pytest.mark.parametrize(
    "junk",
    [b"\x00\xff\xfe\x80garbage", "Disallow: /".encode("utf-16"), b"<html>", b"\0" * 99, b"disallow", b": /"],
)
def test_good_lines_count_whatever_stands_between_them(junk: bytes) -> None:
    rules = parse(b"\n".join([junk, b"User-agent: *", junk, b"Disallow: /a", junk, b"Allow: /a/b", junk]))
    assert [rules.allowed("x", SITE + path) for path in ("/a", "/a/b", "/c")] == [False, True, True]


def test_a_nul_ends_a_line_but_not_the_good_line_after_one_in_utf_16() -> None:
    rules = parse(b"User-agent: *\nDisallow: /a\0b\n" + "Allow: /\n".encode("utf-16-le") + b"Disallow: /c\n")
    assert [rules.allowed("x", SITE + path) for path in ("/a", "/c", "/d")] == [False, False, True]


def test_a_line_is_cut_where_the_reference_parser_cuts_it() -> None:
    room = 2083 * 8 - 1 - len("disallow: ")
    path = "/x/" + "a" * (room - 3)
    assert may(f"user-agent: FooBot\ndisallow: {path}b\n", "/fux")
    assert not may(f"user-agent: FooBot\ndisallow: {path}b\n", f"{path}c")
    assert may(f"user-agent: FooBot\ndisallow: {path[:-1]}b\n", f"{path[:-1]}c")


def test_500_kib_are_read_and_the_rest_is_cut_at_a_line_end() -> None:
    head = b"user-agent: *\n" + b"#" * (511_000 - 14) + b"\ndisallow: /early\n"
    body = head + b"#" * (512_000 - len(head) - len(b"\ndisallow: /")) + b"\ndisallow: /late\n"
    rules = parse(body)
    assert not rules.allowed("x", SITE + "/early")
    assert rules.allowed("x", SITE + "/late")
    assert rules.allowed("x", SITE + "/other")


def test_a_line_that_ends_just_at_the_limit_is_whole() -> None:
    body = b"user-agent: *\ndisallow: /x\n"
    assert not parse(body + b"#", max_bytes=len(body) - 1).allowed("a", SITE + "/x")
    assert parse(body + b"#", max_bytes=len(body) - 2).allowed("a", SITE + "/x")


# --- what else it tells


def test_a_decision_names_the_line_that_made_it() -> None:
    rules = rules_of(
        "User-agent: A\nUser-agent: FooBot/2\nDisallow: /ツ\nAllow: /x/index.html # yes\nDisallow: /x\n"
    )
    assert rules.decide("foobot", SITE + "/ツ/y") == Decision(
        allowed=False, rule="/ツ", line=3, user_agents=("A", "FooBot/2")
    )
    assert rules.decide("foobot", SITE + "/x/") == Decision(
        allowed=True, rule="/x/index.html", line=4, user_agents=("A", "FooBot/2")
    )
    assert rules.decide("foobot", SITE + "/x/z") == Decision(
        allowed=False, rule="/x", line=5, user_agents=("A", "FooBot/2")
    )
    assert rules.decide("foobot", SITE + "/z") == Decision(allowed=True)
    assert DISALLOW_ALL.decide("foobot", SITE + "/robots.txt") == Decision(allowed=True)


def test_sitemaps_are_listed_once_wherever_they_stand() -> None:
    text = "sitemap: http://a/1\nUser-agent: *\nSite-Map:http://a/2 # x\nDisallow: /\nSITEMAP: http://a/1\nsitemap:\n"
    assert rules_of(text).sitemaps == ("http://a/1", "http://a/2")


def test_a_crawl_delay_holds_for_the_agents_just_above_it() -> None:
    rules = rules_of(
        "User-agent: a\nCrawl-delay: 5\nUser-agent: b\nUser-agent: c\ncrawl-delay: 0.5\nDisallow: /\n"
    )
    assert [rules.crawl_delay(agent) for agent in ("A/1.0", "b", "c", "d")] == [5.0, 0.5, 0.5, None]


def test_the_longest_of_several_crawl_delays_holds_and_the_star_only_for_those_not_named() -> None:
    rules = rules_of(
        "User-agent: *\nCrawl-delay: 1\nUser-agent: a\nAllow: /\nUser-agent: *\nCrawl-delay: 3\nCrawl-delay: 2"
    )
    assert rules.crawl_delay("b") == 3.0
    assert rules.crawl_delay("a") is None


@pytest.mark.parametrize("value", ["", "-1", "nan", "inf", "1e999", "soon", "1,5"])
def test_a_crawl_delay_that_makes_no_sense_is_ignored(value: str) -> None:
    assert rules_of(f"User-agent: *\nCrawl-delay: {value}\n").crawl_delay("x") is None


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        ("1/5", RequestRate(1, 5)),
        ("10 / 1M", RequestRate(10, 60)),
        ("1/1h 0600-0845", RequestRate(1, 3600)),
        ("0/5", None),
        ("1/0", None),
        ("x", None),
    ],
)
def test_a_request_rate_is_requests_in_seconds(value: str, rate: RequestRate | None) -> None:
    assert rules_of(f"User-agent: *\nRequest-rate: {value}\n").request_rate("x") == rate


def test_the_slowest_of_several_request_rates_holds() -> None:
    assert rules_of("User-agent: *\nRequest-rate: 1/5\nRequest-rate: 1/9\nRequest-rate: 9/9").request_rate(
        "x"
    ) == (1, 9)


def test_the_delay_keeps_both_crawl_delay_and_request_rate() -> None:
    both = "User-agent: *\nCrawl-delay: {}\nRequest-rate: {}\n"
    assert rules_of(both.format(5, "1/7")).delay("x") == 7.0
    assert rules_of(both.format(5, "10/7")).delay("x") == 5.0
    assert rules_of(both.format(0, "3/1m")).delay("x") == 20.0
    assert rules_of("User-agent: *\nRequest-rate: 4/1\n").delay("x") == 0.25
    assert rules_of("User-agent: *\nCrawl-delay: 2\n").delay("x") == 2.0
    assert rules_of(both.format(5, "1/7").replace("*", "other")).delay("x") is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Crawl-delay: 86400.5", "it is longer than 86,400 s"),
        ("Crawl-delay: inf", "it is longer than 86,400 s"),
        ("Crawl-delay: -1", "it is negative"),
        ("Crawl-delay: -inf", "it is negative"),
        ("Crawl-delay: nan", "it is not a number"),
        ("Crawl-delay: 5 seconds", "it is not a number"),
        ("Crawl-delay:", "it is not a number"),
        ("Request-rate: 1/999999999h", "it is longer than 86,400 s"),
        ("Request-rate: 1/99999999999999999999", "it is longer than 86,400 s"),
        ("Request-rate: 0/5", "it is not a rate such as 1/10"),
        ("Request-rate: -1/5", "it is not a rate such as 1/10"),
        ("Request-rate: 1", "it is not a rate such as 1/10"),
    ],
)
def test_a_pace_nobody_can_mean_is_kept_as_ignored_and_spoils_no_other(line: str, why: str) -> None:
    rules = rules_of(f"User-agent: *\nCrawl-delay: 2\n{line}\nRequest-rate: 1/3\n")
    directive, _, value = line.partition(":")
    assert rules.pace("x").ignored == (Ignored(3, directive, value.strip(), why),)
    assert (rules.crawl_delay("x"), rules.request_rate("x")) == (2.0, (1, 3))


def test_what_is_absurd_is_a_choice_and_what_is_just_within_it_holds() -> None:
    text = b"User-agent: *\nCrawl-delay: 100\n"
    assert parse(text, absurd_seconds=100.0).delay("x") == 100.0
    assert parse(text, absurd_seconds=99.0).delay("x") is None
    assert rules_of("User-agent: *\nCrawl-delay: 86400\n").delay("x") == 86_400.0


def test_what_is_ignored_is_that_agents_own_and_bounded() -> None:
    bad = "Crawl-delay: " + "9" * 1000 + "\n"
    rules = rules_of("User-agent: a\n" + bad * 1000 + "Disallow: /\nUser-agent: b\nDisallow: /\n")
    assert rules.pace("b").ignored == ()
    assert len(rules.pace("a").ignored) == 20
    assert rules.pace("a").ignored[0].value == "9" * 40 + "…"


# --- properties


@given(st.binary(max_size=300), st.text(max_size=40), st.text(max_size=60))
def test_no_input_makes_it_fail(body: bytes, agent: str, url: str) -> None:
    for text in (body, b"user-agent: *\ndisallow: " + body, b"\nuser-agent: *\nallow:".join([body, body])):
        rules = parse(text)
        assert rules.decide(agent, url).allowed is rules.allowed(agent, url)
        assert rules.allowed(agent, SITE + "/robots.txt")
        rules.crawl_delay(agent)
        rules.request_rate(agent)


def test_rules_are_compiled_once_for_each_agent_and_the_cache_is_bounded() -> None:
    rules = rules_of("user-agent: *\ndisallow: /x\n")
    for number in range(1000):
        assert not rules.allowed(f"bot{number}", SITE + "/x")
    assert len(rules._compiled) <= 64
