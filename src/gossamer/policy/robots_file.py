"""A robots.txt as a thing that is kept: its version, how long it is used, and what the log should say of it."""

from __future__ import annotations

import math

from xxhash import xxh3_64_intdigest

from gossamer.config.settings import PolitenessSettings
from gossamer.policy import robots
from gossamer.policy.politeness import group_delay
from gossamer.policy.robots_pace import Pace

_MIN_TTL_SECONDS = 1.0
_DAY_SECONDS = 86_400.0


def robots_version(body: bytes) -> int:
    """Return the version of a robots.txt: the hash of its text that the fetch log goes by. Never negative."""
    return xxh3_64_intdigest(body) >> 1


def robots_ttl(settings: PolitenessSettings) -> float:
    """Return the seconds a robots.txt is used.

    After robots.txt the page waits for its own turn: one that was stale by then would be fetched for ever.
    """
    return max(settings.robots_ttl_seconds, 2 * group_delay(math.inf, settings), _MIN_TTL_SECONDS)


def read_robots(body: bytes, settings: PolitenessSettings) -> robots.RobotsRules:
    """Parse a robots.txt within the bounds of the settings."""
    return robots.parse(
        body, max_bytes=settings.max_robots_bytes, absurd_seconds=settings.absurd_crawl_delay_seconds
    )


def given_up(unreachable_since: float, now: float, settings: PolitenessSettings) -> bool:
    """Say whether a robots.txt was unreachable for so long that it need not be waited for (RFC 9309, 2.3.1.4)."""
    days = settings.robots_unreachable_days
    return days > 0 and unreachable_since > 0 and now - unreachable_since >= days * _DAY_SECONDS


def pace_notes(origin: str, pace: Pace, settings: PolitenessSettings) -> tuple[str, ...]:
    """Return a line for each Crawl-delay or Request-rate that is not followed as written."""
    name = f"robots.txt of {origin}"
    notes = [
        f"{name}: {each.directive} {each.value or '(empty)'} ignored: {each.why} (line {each.line})"
        for each in pace.ignored
    ]
    bound = settings.max_crawl_delay_seconds
    if pace.crawl_delay is not None and pace.crawl_delay > bound:
        notes.append(f"{name}: Crawl-delay {pace.crawl_delay:.15g} cut to {bound:.15g} s")
    rate = pace.request_rate
    if rate is not None and rate.delay > bound:
        notes.append(f"{name}: Request-rate {rate.requests}/{rate.seconds} cut to one in {bound:.15g} s")
    return tuple(notes)


def given_up_note(origin: str, body: bytes, unreachable_since: float, now: float) -> str:
    """Return the line that says what is assumed of a robots.txt that was given up."""
    days = (now - unreachable_since) / _DAY_SECONDS
    assumed = "the last copy is used" if body else "its absence is assumed, so all is allowed"
    return f"robots.txt of {origin}: unreachable for {days:.1f} days: {assumed}"
