from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.settings import TrapSettings
from gossamer.errors import InvalidUrl
from gossamer.model.url import canonicalise
from gossamer.policy.soft_404 import looks_like_soft_404
from gossamer.policy.traps import TRAPS, Place, TrapGuard

HOST = "https://x.example"


def refusals(urls: Iterable[str], settings: TrapSettings | None = None, depth: int = 3) -> list[str]:
    guard = TrapGuard(settings or TrapSettings())
    return [reason for url in urls if (reason := guard.refusal(url, depth))]


def trap(path: str, depth: int = 3) -> str:
    """Return the kind of trap a single URL is, or an empty string."""
    return TrapGuard(TrapSettings()).refusal(HOST + path, depth).partition(":")[0]


def admitted(guard: TrapGuard, urls: Iterable[str], depth: int = 3) -> int:
    return sum(not guard.refusal(url, depth) for url in urls)


# -- ordinary sites pass ---------------------------------------------------------------------------------


def test_a_blog_of_twenty_years_passes_with_its_archives() -> None:
    days = [(year, month, day) for year in range(2005, 2025) for month in range(1, 13) for day in (3, 12, 28)]
    posts = [f"{HOST}/{y}/{m:02}/{d:02}/a-post-of-that-day" for y, m, d in days]
    archives = chain(
        (f"{HOST}/{y}/" for y, _, _ in days),
        (f"{HOST}/{y}/{m:02}/" for y, m, _ in days),
        (f"{HOST}/{y}/{m:02}/{d:02}/" for y, m, d in days),
        (f"{HOST}/page/{number}/" for number in range(1, 400)),
        (f"{HOST}/tag/{name}/feed/" for name in "abcdefgh"),
    )
    assert refusals(chain(posts, archives)) == []


def test_a_wiki_passes_with_its_titles_and_histories() -> None:
    pages = (f"{HOST}/wiki/Title_{number}" for number in range(40_000))
    talk = (f"{HOST}/wiki/Talk:Title_{number}/Archive_1" for number in range(1000))
    edits = (f"{HOST}/w/index.php?title=Title_{number}&action=history" for number in range(10_000))
    assert refusals(chain(pages, talk, edits)) == []


def test_a_forum_passes_with_its_topics_and_their_pages() -> None:
    topics = (f"{HOST}/viewtopic.php?t={topic}&page={page}" for topic in range(4000) for page in range(1, 5))
    boards = (
        f"{HOST}/viewforum.php?f={board}&start={start}" for board in range(20) for start in range(0, 2000, 50)
    )
    assert refusals(chain(topics, boards)) == []


def test_a_tree_of_documentation_passes() -> None:
    versions = ("stable", "latest", "3.11", "3.12")
    tree = (
        f"{HOST}/en/{version}/api/org/project/module{module}/package/class{name}.html"
        for version in versions
        for module in range(40)
        for name in range(30)
    )
    deep = [f"{HOST}/project/blob/main/src/main/java/com/project/core/main/internal/project/Main.java"]
    assert refusals(chain(tree, deep)) == []


def test_the_facets_of_a_shop_pass_up_to_a_limit() -> None:
    names = ("brand", "colour", "size", "price", "sort", "page")
    choices = [choice for count in range(1, 7) for choice in combinations(names, count)]
    urls = [
        f"{HOST}/shop/shoes?" + "&".join(f"{name}={value}" for name in choice)
        for choice in choices
        for value in range(50)
    ]
    assert refusals(urls) == []
    more = [
        f"{HOST}/shop/shoes?" + "&".join(f"f{number}={bit}" for bit, number in enumerate(choice))
        for choice in combinations(range(20), 2)
    ]
    assert {reason.partition(":")[0] for reason in refusals(more)} == {"parameters"}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/tiles/7/7/7.png",
        "/2011/11/11/",
        "/0/0/0/0/0/0",
        "/a/a",
        "/en/guide/en/guide",
        "/web/2020/https://example.com//index.html",
        "/songs/la/la",
        "/?s=shoes",
        "/?session=morning&sid=12",
        "/search?q=phpsessid",
        "/thing;v=2;lang=en/part",
        "/a_(disambiguation)",
        "/?",
        "/wiki/" + "%D0%A8" * 120,
        "/signed?" + "x=" + "f" * 1500,
    ],
)
def test_an_odd_url_is_not_a_trap(path: str) -> None:
    assert trap(path) == ""


@pytest.mark.parametrize(
    "host",
    ["http://10.10.10.10", "http://[fe80::1]:8080", "https://www.a.b.c.example.co.uk", "http://localhost:80"],
)
def test_an_ordinary_host_is_not_a_trap(host: str) -> None:
    assert refusals([host + "/"]) == []


# -- traps by their shape --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/loop/loop/loop", "path_loop"),
        ("/loop/loop/loop/", "path_loop"),
        ("/x/loop/loop/loop/page.html", "path_loop"),
        ("/a/b/a/b/a/b", "path_loop"),
        ("/x/a/b/c/a/b/c/a/b/c/y", "path_loop"),
        ("/loop/loop/loop?x=1", "path_loop"),
        ("/en/1/en/2/en/3/en/4/en/5", "path_loop"),
        ("/a////b", "path_loop"),
        ("/" + "/".join(f"s{number}" for number in range(26)), "path_depth"),
        ("/" + "x" * 1100, "path_length"),
        ("/" + "x" * 1100 + "?y", "path_length"),
        ("/a?" + "x" * 2100, "parameters"),
        ("/a?" + "&".join(f"p{number}=1" for number in range(21)), "parameters"),
    ],
)  # fmt: skip
def test_a_trap_is_known_by_its_shape(path: str, kind: str) -> None:
    assert trap(path) == kind


def test_nothing_is_followed_for_ever() -> None:
    assert trap("/next", depth=1000) == ""
    assert trap("/next", depth=1001) == "link_depth"


@pytest.mark.parametrize(
    "host",
    ["www.www.www.example.com", "a.b.a.b.a.b.example.com", ".".join("abcdefghi") + ".example.com"],
)
def test_a_host_name_that_repeats_itself_or_is_endless_is_a_trap(host: str) -> None:
    assert refusals([f"http://{host}/"])[0].startswith("hosts: ")


@pytest.mark.parametrize(
    "form",
    [
        "/a?PHPSESSID={}",
        "/a?page=1&phpsessid={}&x=2",
        "/a?sid={}",
        "/a?s={}",
        "/cart.jsp;jsessionid={}",
        "/app;JSESSIONID={}/cart",
        "/a;jsessionid={}?x=1",
        "/(S({}))/default.aspx",
        "/a?CFID={}&CFTOKEN=4711",
    ],
)
def test_a_second_session_is_a_trap_and_the_first_is_the_crawlers_own(form: str) -> None:
    guard = TrapGuard(TrapSettings())
    first, second = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")
    assert guard.refusal(HOST + form.format(first), 1) == ""
    assert guard.refusal(HOST + "/other" + form.format(first), 1) == ""
    assert guard.refusal(HOST + form.format(second), 1).startswith("session: ")
    assert guard.refusal("https://other.example" + form.format(second), 1) == ""


def test_without_sessions_allowed_the_first_is_a_trap() -> None:
    settings = TrapSettings(max_sessions_per_host=0)
    assert refusals([f"{HOST}/a?PHPSESSID=abcdefgh"], settings) == ["session: PHPSESSID=abcdefgh"]


# -- traps by their number -------------------------------------------------------------------------------


def calendar_of_queries(count: int) -> list[str]:
    return [f"{HOST}/calendar?month={number}" for number in range(count)]


def calendar_of_iso_dates(count: int) -> list[str]:
    return [
        f"{HOST}/events?at={2000 + n // 336}-{n // 28 % 12 + 1:02}-{n % 28 + 1:02}&view=day"
        for n in range(count)
    ]


def calendar_of_paths(count: int) -> list[str]:
    return [f"{HOST}/cal/{2000 + number // 12}/{number % 12 + 1:02}/" for number in range(count)]


@pytest.mark.parametrize("calendar", [calendar_of_queries, calendar_of_iso_dates, calendar_of_paths])
def test_a_calendar_ends(calendar: Callable[[int], list[str]]) -> None:
    reasons = refusals(calendar(3100))
    assert len(reasons) == 100
    assert all(reason.startswith("calendar: more than 3,000 in https://x.example/") for reason in reasons)


def test_a_calendar_that_leads_from_date_to_date_ends_sooner() -> None:
    guard = TrapGuard(TrapSettings())
    followed = [url for depth, url in enumerate(calendar_of_queries(2000)) if not guard.refusal(url, depth)]
    assert len(followed) == 367


def test_the_queries_of_one_path_are_limited_and_others_are_not_concerned() -> None:
    settings = TrapSettings(max_queries_per_path=50)
    guard = TrapGuard(settings)
    assert admitted(guard, (f"{HOST}/search?q={number}" for number in range(100))) == 50
    assert guard.refusal(f"{HOST}/search?q=new", 1) == "queries: more than 50 in https://x.example/search?"
    assert guard.refusal(f"{HOST}/other?q=1", 1) == ""


def test_the_choices_of_parameters_are_limited_whatever_their_order() -> None:
    settings = TrapSettings(max_parameter_sets_per_path=3)
    urls = [f"{HOST}/a?{query}" for query in ("x=1", "y=1", "x=1&y=1", "y=2&x=2", "z=1", "x=7")]
    assert refusals(urls, settings) == ["parameters: more than 3 choices of them in https://x.example/a?"]


def test_the_hosts_of_one_domain_are_limited() -> None:
    guard = TrapGuard(TrapSettings(max_hosts_per_domain=20))
    assert admitted(guard, (f"http://h{number}.example.com/" for number in range(50))) == 20
    assert guard.refusal("http://h7.example.com:8080/again", 1) == ""
    assert guard.refusal("http://www.example.org/", 1) == ""


def test_people_who_share_a_public_suffix_are_not_one_domain() -> None:
    guard = TrapGuard(TrapSettings(max_hosts_per_domain=5))
    assert admitted(guard, (f"https://user{number}.github.io/" for number in range(50))) == 50


def test_a_folder_is_limited_and_so_is_a_section_of_ever_new_folders() -> None:
    settings = TrapSettings(max_urls_per_folder=30, max_urls_per_section=80)
    guard = TrapGuard(settings)
    assert admitted(guard, (f"{HOST}/a/{number}" for number in range(100))) == 30
    assert admitted(guard, (f"{HOST}/b/{number}/{number}" for number in range(100))) == 80
    assert guard.refusal(f"{HOST}/b/new/new", 1) == "folder: more than 80 in https://x.example/b *"


@pytest.mark.parametrize("form", ["/s{}/page", "/s{}/", "/s{}?x=1", "/s{}/?x=1"])
def test_ever_new_sections_and_paths_fill_the_root(form: str) -> None:
    guard = TrapGuard(TrapSettings(max_urls_per_folder=30))
    assert admitted(guard, (HOST + form.format(number) for number in range(100))) == 30


def test_an_empty_segment_does_not_make_room_in_the_root() -> None:
    guard = TrapGuard(TrapSettings(max_urls_per_folder=30))
    assert admitted(guard, [f"{HOST}//x/y", *(f"{HOST}/{number}" for number in range(100))]) == 30


# -- what is counted -------------------------------------------------------------------------------------


def test_a_url_counts_once_and_passes_again_when_its_folder_is_full() -> None:
    guard = TrapGuard(TrapSettings(max_urls_per_folder=3))
    urls = [f"{HOST}/a/{name}" for name in "xyz"]
    assert admitted(guard, urls * 3) == 9
    assert guard.refusal(f"{HOST}/a/new", 1) != ""
    assert admitted(guard, urls) == 3


#: Every page is looked at, wherever one has passed.
WATCHFUL = TrapSettings(suspect_from_urls=1, compare_every_pages=1)
ALIKE = " (pages there are nearly the same, or say that there is nothing)"


def place_of(guard: TrapGuard, url: str) -> Place:
    place = guard.watch(url)
    assert place is not None
    return place


def test_suspect_pages_shrink_the_room_beside_them_and_others_restore_it() -> None:
    settings = TrapSettings(
        max_urls_per_folder=1000, min_suspect_urls=10, suspects_per_halving=2, compare_every_pages=1
    )
    guard = TrapGuard(settings)
    urls = [f"{HOST}/a/{number}" for number in range(600)]
    assert admitted(guard, urls) == 600
    for url in urls[:4]:
        guard.suspect(place_of(guard, url))
    assert guard.refusal(f"{HOST}/a/new", 1) == f"folder: more than 250 in https://x.example/a/{ALIKE}"
    assert guard.refusal(f"{HOST}/b/new", 1) == ""
    for url in urls[4:8]:
        guard.trust(place_of(guard, url))
    assert guard.refusal(f"{HOST}/a/new", 1) == ""


def test_a_place_where_every_page_is_suspect_keeps_the_least_room_and_can_recover() -> None:
    guard = TrapGuard(replace(WATCHFUL, min_suspect_urls=10))
    first = f"{HOST}/list?x=first"
    assert guard.refusal(first, 1) == ""
    for _ in range(1000):
        guard.suspect(place_of(guard, first))
    assert admitted(guard, (f"{HOST}/list?x={number}" for number in range(500))) == 9
    assert (
        guard.refusal(f"{HOST}/list?x=new", 1) == f"queries: more than 10 in https://x.example/list?x{ALIKE}"
    )
    for _ in range(100):
        guard.trust(place_of(guard, first))
    assert admitted(guard, (f"{HOST}/list?x={number}" for number in range(1000, 1500))) == 500


def test_a_date_that_was_refused_takes_no_room_in_its_calendar() -> None:
    guard = TrapGuard(replace(WATCHFUL, min_suspect_urls=5, max_dates_per_path=10))
    days = calendar_of_queries(200)
    assert admitted(guard, days[:5]) == 5
    for _ in range(100):
        guard.suspect(place_of(guard, days[0]))
    assert admitted(guard, days[5:]) == 0
    for _ in range(100):
        guard.trust(place_of(guard, days[0]))
    assert admitted(guard, days[5:]) == 5


@pytest.mark.parametrize(
    ("trap", "honest"),
    [
        ("/a/list?x={}", "/a/{}"),
        ("/index.php?month={}", "/index.php?article={}"),
        ("/a/days/{}", "/a/papers/{}"),
        ("/a/2024/05/{:02}", "/a/slug-{}"),
        ("/a/2024/05/{:02}", "/a/2024/slug-{}"),
    ],
)
def test_suspect_pages_take_no_room_from_pages_of_another_kind(trap: str, honest: str) -> None:
    guard = TrapGuard(replace(WATCHFUL, min_suspect_urls=1))
    for number in range(1, 29):
        url = HOST + trap.format(number)
        if not guard.refusal(url, 1):
            for _ in range(40):
                guard.suspect(place_of(guard, url))
    assert guard.refusal(HOST + trap.format(29), 1) != ""
    assert admitted(guard, (HOST + honest.format(number) for number in range(300))) == 300


def test_where_each_folder_has_a_few_pages_their_section_is_watched() -> None:
    guard = TrapGuard(TrapSettings(suspect_from_urls=50, min_suspect_urls=60, compare_every_pages=1))
    urls = [f"{HOST}/a/{number}/page" for number in range(60)]
    assert admitted(guard, urls) == 60
    assert place_of(guard, urls[0]).prefix == f"{HOST}/a *"
    for url in urls:
        guard.suspect(place_of(guard, url))
    assert guard.refusal(f"{HOST}/a/new/page", 1) != ""
    assert guard.refusal(f"{HOST}/b/new/page", 1) == ""


def test_of_a_crowded_place_one_page_in_so_many_is_looked_at_until_one_is_suspect() -> None:
    guard = TrapGuard(TrapSettings(suspect_from_urls=100, compare_every_pages=10))
    urls = [f"{HOST}/a/{number}" for number in range(150)]
    assert admitted(guard, urls[:99]) == 99
    assert {guard.watch(url) for url in urls[:99]} == {None}
    assert admitted(guard, urls[99:]) == 51
    looked = [place for url in urls[:100] if (place := guard.watch(url))]
    assert len(looked) == 10
    guard.suspect(looked[0])
    assert all(guard.watch(url) for url in urls)
    guard.trust(looked[0])
    assert not all(guard.watch(url) for url in urls)


def test_a_page_now_and_then_that_is_suspect_changes_nothing() -> None:
    guard = TrapGuard(TrapSettings())
    urls = [f"{HOST}/wiki/{number}" for number in range(3000)]
    looks = 0
    for number, url in enumerate(urls):
        assert guard.refusal(url, 1) == ""
        if place := guard.watch(url):
            looks += 1
            (guard.suspect if number % 3 == 0 else guard.trust)(place)
    assert 100 < looks < 1000


def test_a_page_that_never_passed_is_not_looked_at() -> None:
    guard = TrapGuard(TrapSettings(suspect_from_urls=0, compare_every_pages=1))
    for url in (f"{HOST}/", f"{HOST}/a/b", f"{HOST}/a?b"):
        assert guard.watch(url) is None


def test_memory_is_bounded_and_what_is_in_use_is_not_forgotten() -> None:
    settings = TrapSettings(remembered_prefixes=100, remembered_urls=100, max_urls_per_folder=200)
    guard = TrapGuard(settings)
    chance = random.Random(1)
    busy = 0
    for number in range(5000):
        guard.refusal(f"https://h{number}.example{chance.randint(0, 9)}.com/s/{number}?x{number}=1", 1)
        busy += not guard.refusal(f"{HOST}/busy/{number}", 1)
    assert busy == 200
    assert len(guard._young) + len(guard._old) <= 200
    places = [*guard._places._young.values(), *guard._places._old.values()]
    assert sum(1 + len(place.members) for place in places) <= 200


def test_a_section_is_not_forgotten_while_one_of_its_folders_is_in_use() -> None:
    guard = TrapGuard(TrapSettings(remembered_prefixes=100, max_urls_per_section=300))
    for number in range(300):
        assert guard.refusal(f"{HOST}/busy/folder/{number}", 1) == ""
        guard.refusal(f"https://h{number}.other{number}.com/", 1)
    assert (
        guard.refusal(f"{HOST}/busy/another/page", 1) == "folder: more than 300 in https://x.example/busy *"
    )


def test_the_same_urls_in_the_same_order_are_judged_the_same_way() -> None:
    chance = random.Random(2)
    settings = TrapSettings(
        max_urls_per_folder=5, max_queries_per_path=5, remembered_prefixes=50, remembered_urls=50
    )
    urls = [
        f"{HOST}/{chance.randint(0, 9)}/{chance.randint(0, 9)}?{chance.choice('ab')}={chance.randint(0, 9)}"
        for _ in range(2000)
    ]
    assert refusals(urls, settings) == refusals(urls, settings) != []


@given(
    st.lists(st.text(st.sampled_from("ab1/?&=;().%-é \t\\:@#"), max_size=40), max_size=30),
    st.integers(0, 2000),
)
def test_any_canonical_url_is_judged_and_a_refusal_names_its_trap(paths: list[str], depth: int) -> None:
    guard = TrapGuard(
        replace(
            WATCHFUL, max_urls_per_folder=4, max_queries_per_path=3, max_parameters=3, max_dates_per_path=1
        )
    )
    for path in paths:
        try:
            url = canonicalise(path, "http://x.example/")
        except InvalidUrl:
            continue
        reason = guard.refusal(url, depth)
        kind, colon, detail = reason.partition(": ")
        assert reason == "" or (kind in TRAPS and colon and 0 < len(detail) < 200)
        if place := guard.watch(url):
            guard.suspect(place)
        assert bool(guard.refusal(url, depth)) == bool(reason)


# -- soft 404 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "title",
    [
        "404",
        "Error 404",
        "404 - Page Not Found",
        "Page not found | Example",
        "Example \u2013 404 Not Found",
        "Sorry, the page you were looking for could not be found!",
        "Oops! This page does not exist",
        "This page doesn\u2019t exist",
        "Seite nicht gefunden - Beispiel",
        "Page introuvable",
        "Página no encontrada | Ejemplo",
        "Página não encontrada",
        "Страница не найдена",
        "ページが見つかりません",
        "Document not found",
    ],
)  # fmt: skip
def test_a_page_that_says_it_is_not_there_is_a_soft_404(title: str) -> None:
    assert looks_like_soft_404(title, 400, 200)


@pytest.mark.parametrize(
    "title",
    [
        "",
        "Room 404",
        "How to fix a 404 error in nginx",
        "Lost and not found",
        "Page",
        "The page",
        "Error",
        "Peugeot 404 | Cars",
    ],
)
def test_a_page_about_something_else_is_not_a_soft_404(title: str) -> None:
    assert not looks_like_soft_404(title, 400, 200)


def test_a_long_page_or_an_honest_status_is_not_a_soft_404() -> None:
    assert not looks_like_soft_404("404 Not Found", 20_000, 200)
    assert not looks_like_soft_404("404 Not Found", 400, 404)
    assert not looks_like_soft_404("404 Not Found", 400, 301)


@given(st.text(), st.integers(), st.integers())
def test_any_title_can_be_judged(title: str, text_length: int, status: int) -> None:
    assert looks_like_soft_404(title * 100, text_length, status) in {True, False}
