from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy.retry_after import MAX_SECONDS, parse_retry_after

#: Sun, 06 Nov 1994 08:49:37 GMT
NOW = 784_111_777.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120.0), (" 0 ", 0.0), ("1.5", 1.5), ("007", 7.0)],
)
def test_seconds_are_taken_as_they_are(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    ["Sun, 06 Nov 1994 08:50:37 GMT", "Sunday, 06-Nov-94 08:50:37 GMT", "Sun Nov  6 08:50:37 1994"],
)
def test_all_three_forms_of_an_http_date_are_counted_from_now(value: str) -> None:
    assert parse_retry_after(value, NOW) == 60.0


def test_a_date_in_the_past_asks_for_no_wait() -> None:
    assert parse_retry_after("Sat, 05 Nov 1994 08:49:37 GMT", NOW) == 0.0


@pytest.mark.parametrize(
    "value", ["", "soon", "-1", "1e3", "inf", "nan", "٣", "12 34", "Sun, 32 Nov 1994 08:50:37 GMT"]
)
def test_what_is_neither_says_nothing(value: str) -> None:
    assert parse_retry_after(value, NOW) is None


@pytest.mark.parametrize("value", ["9" * 30, "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_wait_without_end_is_bounded(value: str) -> None:
    assert parse_retry_after(value, NOW) == MAX_SECONDS


@given(st.text(), st.floats(0, 4e9))
def test_any_header_gives_a_finite_wait_or_none(value: str, now: float) -> None:
    seconds = parse_retry_after(value, now)
    assert seconds is None or (math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS)
