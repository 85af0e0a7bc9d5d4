"""Retry-After: how long a server asks to be left alone (RFC 9110, 10.2.3)."""

from __future__ import annotations

import re

from gossamer.policy.http_date import parse_http_date

#: Longer waits mean "never" to a crawl; the bound keeps arithmetic with them finite.
MAX_SECONDS = 366 * 86_400.0
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?")


def parse_retry_after(value: str, now: float) -> float | None:
    """Return the seconds to wait from `now`, between 0 and `MAX_SECONDS`, or None where the header says nothing.

    Takes seconds (also fractions, which servers send though they should not) or a date; a past date is 0.
    """
    text = value.strip(" \t")
    if _SECONDS.fullmatch(text):
        return min(float(text), MAX_SECONDS)
    instant = parse_http_date(text)
    return None if instant is None else min(max(instant - now, 0.0), MAX_SECONDS)
