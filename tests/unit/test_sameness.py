"""What is asked about a page, and what the guard against traps hears of it."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from gossamer.config.settings import RecordSettings, Settings, TrapSettings
from gossamer.engine.sameness import Sameness
from gossamer.model.outcome import Content
from gossamer.model.page import Facts
from gossamer.model.response import Response
from gossamer.policy.near_duplicates import simhash
from gossamer.policy.traps import Place, TrapGuard

TEXT = " ".join(f"word{number}" for number in range(300))
WATCHFUL = TrapSettings(suspect_from_urls=1, compare_every_pages=1)


def answer(body: bytes = b"body", content_type: str = "text/html", status: int = 200) -> Response:
    return Response("http://x.example/", status, (("content-type", content_type),), body, 1.0, 0.1, len(body))


def sameness(
    skip: Literal["none", "exact", "near"] = "none",
    *,
    near_duplicates: bool = False,
    guard: TrapGuard | None = None,
) -> Sameness:
    return Sameness(
        Settings(record=RecordSettings(near_duplicates=near_duplicates, skip_duplicates=skip)), guard
    )


class Watched:
    """A folder whose pages are all looked at."""

    def __init__(self) -> None:
        self.guard = TrapGuard(WATCHFUL)
        self._sameness = sameness(guard=self.guard)
        self._number = 0

    def visit(self, facts: Facts, status: int = 200) -> int:
        """Fetch another page of the folder; returns how suspect the folder is then."""
        self._number += 1
        url = f"http://x.example/a/{self._number}"
        assert self.guard.refusal(url, 1) == ""
        asked = self._sameness.question(url, status)
        self._sameness.simhash(asked, answer(status=status), facts)
        return self.place(url).suspicion

    def place(self, url: str) -> Place:
        place = self.guard.watch(url)
        assert place is not None
        return place


def test_nobody_asks_for_the_text_of_an_ordinary_page() -> None:
    guard = TrapGuard(TrapSettings())
    guard.refusal("http://x.example/a", 1)
    for quiet in (sameness(), sameness("exact"), sameness(guard=guard)):
        assert not quiet.question("http://x.example/a", 200).wants_text
    for curious in (sameness("near"), sameness(near_duplicates=True)):
        assert curious.question("http://x.example/a", 200).wants_text


def test_a_content_is_told_only_where_duplicates_are_skipped() -> None:
    digest = bytes(range(0xF0, 0x100))
    exact = int.from_bytes(digest[:8], "big", signed=True)
    assert sameness(near_duplicates=True).content(answer(), digest, 5) is None
    assert sameness("exact").content(answer(), digest, 5) == Content(exact)
    assert sameness("near").content(answer(), digest, 5) == Content(exact, 5)
    assert sameness("near").content(answer(), digest, 0) == Content(exact)


@pytest.mark.parametrize("odd", [answer(b""), answer(status=404), answer(status=304), answer(status=503)])
def test_an_empty_page_or_one_without_success_has_no_content(odd: Response) -> None:
    assert sameness("near").content(odd, bytes(32), 5) is None


def test_records_have_the_hash_as_16_digits_only_where_asked_for_and_where_there_is_text() -> None:
    assert sameness(near_duplicates=True).in_record(255) == "00000000000000ff"
    assert sameness(near_duplicates=True).in_record(0) is msgspec.UNSET
    assert sameness("near").in_record(255) is msgspec.UNSET


@pytest.mark.parametrize(
    ("kind", "has_text"),
    [("text/plain", True), ("Text/CSV", True), ("text/xml", False), ("image/png", False)],
)
def test_text_without_markup_is_hashed_and_other_bytes_are_not(kind: str, has_text: bool) -> None:
    asker = sameness("near")
    asked = asker.question("http://x.example/a", 200)
    found = asker.simhash(asked, answer(TEXT.encode(), kind), Facts())
    assert found == (simhash(TEXT) if has_text else 0)


def test_pages_with_the_same_text_and_name_but_for_numbers_are_suspect() -> None:
    watched = Watched()
    pages = [Facts(title=f"Day {n}", headings=[f"{n} May"], text=f"{TEXT} {n}") for n in range(5)]
    assert [watched.visit(page) for page in pages] == [0, 1, 2, 3, 4]


def test_pages_with_the_same_text_and_another_name_are_not_and_make_up_for_suspect_ones() -> None:
    watched = Watched()
    pages = [
        Facts(title=f"Cup {name}", text=TEXT) for name in ("red", "red", "red", "blue", "green", "white")
    ]
    assert [watched.visit(page) for page in pages] == [0, 1, 2, 1, 0, 0]


def test_a_short_text_is_the_same_but_for_numbers_if_these_are_few() -> None:
    def suspicion(text: str) -> int:
        watched = Watched()
        pages = [Facts(title="Readings", text=text.format(n * n, n * 7, n * 31)) for n in range(100, 110)]
        return [watched.visit(page) for page in pages][-1]

    assert suspicion(f"page {{0}} before {{1}} after {{2}} {'more words without numbers ' * 10}") == 9
    assert suspicion("{0} {1} {2} degrees " * 10) == 0


def test_a_page_that_says_there_is_nothing_is_suspect_if_it_was_a_success() -> None:
    watched = Watched()
    assert watched.visit(Facts(title="Page not found", text="nothing here")) == 1
    assert watched.visit(Facts(title="Page not found", text="another nothing"), status=404) == 1


def test_a_page_without_text_says_nothing_about_its_folder() -> None:
    watched = Watched()
    assert [watched.visit(Facts(title="t")) for _ in range(3)] == [0, 0, 0]
