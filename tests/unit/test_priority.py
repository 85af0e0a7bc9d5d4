from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.model.request import Source
from gossamer.policy.priority import PREFERRED, SEED, priority_of
from gossamer.policy.scope import Globs

NONE = Globs(())


def priority(path: str, depth: int = 1, prefer: Globs = NONE, source: Source = Source.LINK) -> int:
    return priority_of(f"https://x.example{path}", depth, source, prefer)


def test_a_seed_comes_first_then_what_is_preferred_then_the_rest() -> None:
    prefer = Globs(("/want/*",))
    order = [
        priority("/x", source=Source.SEED),
        priority("/want/x", depth=50, prefer=prefer),
        priority("/list/", prefer=prefer),
    ]
    assert order == sorted(order)
    assert order[:2] == [SEED, PREFERRED]


@pytest.mark.parametrize(
    "path",
    ["/", "/a/", "/list?page=2", "/a?x=1&p=3", "/category/wool", "/tags/red", "/tag/red", "/archive", "/index.html"],
)  # fmt: skip
def test_a_page_that_lists_others_comes_before_a_plain_one(path: str) -> None:
    assert priority(path) < priority("/about")


@pytest.mark.parametrize(
    "path",
    ["/item/12345", "/a-long-title-of-a-post", "/file.pdf", "/photo.JPG", "/2024-report-final-v2.html"],
)
def test_a_page_of_detail_comes_after_a_plain_one(path: str) -> None:
    assert priority(path) > priority("/about")


@given(
    st.integers(0, 10_000),
    st.sampled_from(["/", "/about", "/item/12345"]),
    st.sampled_from(["/", "/item/999"]),
)
def test_depth_comes_before_kind(depth: int, shallow: str, deep: str) -> None:
    assert priority(shallow, depth) < priority(deep, depth + 1)


@given(st.text(max_size=60), st.integers(0, 2**70))
def test_every_url_at_every_depth_has_a_priority_that_can_be_stored(path: str, depth: int) -> None:
    assert 0 <= priority("/" + path, depth) < 2**31
