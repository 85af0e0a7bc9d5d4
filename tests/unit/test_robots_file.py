from __future__ import annotations

import pytest

from gossamer.config.settings import PolitenessSettings
from gossamer.policy.robots_file import (
    given_up,
    given_up_note,
    pace_notes,
    read_robots,
    robots_ttl,
    robots_version,
)

DAY = 86_400.0
ORIGIN = "http://a.test"
NOW = 1_800_000_000.0


def notes_of(lines: str, **settings: float) -> tuple[str, ...]:
    politeness = PolitenessSettings(**settings)  # type: ignore[arg-type]  # numbers for number settings
    pace = read_robots(f"User-agent: *\n{lines}".encode(), politeness).pace("x")
    return pace_notes(ORIGIN, pace, politeness)


def test_a_version_is_stable_fits_a_signed_integer_and_differs_with_the_text() -> None:
    assert robots_version(b"") == 0x2D06800538D394C2 >> 1
    assert robots_version(b"a") != robots_version(b"b")
    assert all(0 <= robots_version(bytes([octet])) < 1 << 63 for octet in range(256))


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, DAY),
        ({"robots_ttl_seconds": 5.0}, 120.0),
        ({"robots_ttl_seconds": 0.0, "max_crawl_delay_seconds": 3.0, "delay": 2.0}, 6.0),
        ({"robots_ttl_seconds": 0.0, "max_crawl_delay_seconds": 0.0, "delay": 0.0}, 1.0),
    ],
)
def test_a_robots_txt_is_used_long_enough_for_the_page_behind_it(
    settings: dict[str, float], seconds: float
) -> None:
    assert robots_ttl(PolitenessSettings(**settings)) == seconds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("days", "since", "expected"),
    [
        (30.0, NOW - 30 * DAY, True),
        (30.0, NOW - 30 * DAY + 1, False),
        (0.5, NOW - DAY / 2, True),
        (30.0, 0.0, False),
        (0.0, 1.0, False),
    ],
)
def test_a_robots_txt_is_given_up_after_the_days_and_never_without_them(
    days: float, since: float, expected: bool
) -> None:
    assert given_up(since, NOW, PolitenessSettings(robots_unreachable_days=days)) is expected


def test_a_pace_that_is_followed_as_written_is_not_worth_a_line() -> None:
    assert notes_of("Crawl-delay: 60\nRequest-rate: 1/60\nDisallow: /\n") == ()


def test_what_is_ignored_and_what_is_cut_is_said() -> None:
    assert notes_of("Crawl-delay: 99999999\nCrawl-delay:\nRequest-rate: 1/2h\nCrawl-delay: 90.5\n") == (
        "robots.txt of http://a.test: Crawl-delay 99999999 ignored: it is longer than 86,400 s (line 2)",
        "robots.txt of http://a.test: Crawl-delay (empty) ignored: it is not a number (line 3)",
        "robots.txt of http://a.test: Crawl-delay 90.5 cut to 60 s",
        "robots.txt of http://a.test: Request-rate 1/7200 cut to one in 60 s",
    )


def test_the_bounds_are_settings() -> None:
    assert notes_of("Crawl-delay: 90\n", max_crawl_delay_seconds=100.0) == ()
    (note,) = notes_of("Crawl-delay: 90\n", absurd_crawl_delay_seconds=80.0)
    assert note.endswith("Crawl-delay 90 ignored: it is longer than 80 s (line 2)")


def test_what_is_assumed_of_a_robots_txt_is_said() -> None:
    since = NOW - 31.5 * DAY
    assert given_up_note(ORIGIN, b"", since, NOW) == (
        "robots.txt of http://a.test: unreachable for 31.5 days: its absence is assumed, so all is allowed"
    )
    assert given_up_note(ORIGIN, b"x", since, NOW).endswith(": the last copy is used")
