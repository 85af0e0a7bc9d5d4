"""Dates in HTTP headers, read as leniently as RFC 6265 (5.1.1) reads those of cookies."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TOKEN = re.compile(r"[^\t\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])")
_DAY = re.compile(r"([0-9]{1,2})(?![0-9])")
_YEAR = re.compile(r"([0-9]{2,4})(?![0-9])")
_MONTH = re.compile(r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
#: Each part is taken from the first token that fits, and a token gives one part: the order decides which.
_PARTS = (_TIME, _DAY, _MONTH, _YEAR)
_MAX_LENGTH = 256


def parse_http_date(text: str) -> float | None:
    """Return seconds since the epoch, or None for what is no date. Zones are ignored: HTTP dates are in GMT.

    Takes all three forms of RFC 9110 and what servers make of them.
    """
    found: dict[re.Pattern[str], re.Match[str]] = {}
    for token in _TOKEN.findall(text[:_MAX_LENGTH]):
        for part in _PARTS:
            if part not in found and (match := part.match(token)):
                found[part] = match
                break
    if len(found) < len(_PARTS):
        return None
    hour, minute, second = map(int, found[_TIME].groups())
    month = _MONTHS.index(found[_MONTH][1].lower()) + 1
    return _timestamp(_full_year(int(found[_YEAR][1])), month, int(found[_DAY][1]), hour, minute, second)


def _full_year(year: int) -> int:
    if 70 <= year <= 99:
        return year + 1900
    return year + 2000 if year <= 69 else year


def _timestamp(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    if year < 1601:
        return None
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
