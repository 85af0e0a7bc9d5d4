"""How slowly a robots.txt asks to be visited: Crawl-delay and Request-rate, and those of them that make no sense."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import msgspec

#: A longer wait between two requests is a mistake, not a wish.
ABSURD_SECONDS = 86_400.0
#: Of one user agent; a file may hold thousands.
_MAX_IGNORED = 20
_MAX_SHOWN_BYTES = 40

_RATE = re.compile(rb"(\d{1,9})\s*/\s*(\d{1,9})\s*([smh]?)")
_UNIT_SECONDS = {b"": 1, b"s": 1, b"m": 60, b"h": 3600}


class RequestRate(NamedTuple):
    """`requests` may be made every `seconds`."""

    requests: int
    seconds: int

    @property
    def delay(self) -> float:
        """The seconds between two requests that keep it."""
        return self.seconds / self.requests


class Ignored(msgspec.Struct, frozen=True):
    """A line that asks for a pace nobody can mean."""

    line: int
    #: `Crawl-delay` or `Request-rate`.
    directive: str
    #: As written; a long one is cut.
    value: str
    why: str


class Pace(msgspec.Struct, frozen=True):
    """What a robots.txt asks of one user agent: the slowest, where it names several."""

    crawl_delay: float | None = None
    request_rate: RequestRate | None = None
    ignored: tuple[Ignored, ...] = ()

    @property
    def delay(self) -> float | None:
        """The seconds between two requests that keep both, or None where it asks for neither."""
        if self.request_rate is None:
            return self.crawl_delay
        return max(self.crawl_delay or 0.0, self.request_rate.delay)


class PaceReader:
    """Gathers the pace of each user agent. What is longer than `absurd_seconds` counts as never said."""

    def __init__(self, absurd_seconds: float) -> None:
        self.paces: dict[str, Pace] = {}
        self._absurd_seconds = absurd_seconds

    def crawl_delay(self, line: int, value: bytes, tokens: list[str]) -> None:
        """Take in a Crawl-delay that holds for these product tokens."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        why = self._objection(seconds) if not math.isnan(seconds) else "it is not a number"
        for token in tokens:
            pace = self.paces.get(token, _NO_PACE)
            if why:
                self.paces[token] = _without(pace, line, "Crawl-delay", value, why)
            else:
                longest = max(seconds, pace.crawl_delay or 0.0)
                self.paces[token] = msgspec.structs.replace(pace, crawl_delay=longest)

    def request_rate(self, line: int, value: bytes, tokens: list[str]) -> None:
        """Take in a Request-rate that holds for these product tokens."""
        match = _RATE.match(value.lower())
        rate, why = _NO_RATE, "it is not a rate such as 1/10"
        if match is not None and int(match[1]) and int(match[2]):
            rate = RequestRate(int(match[1]), int(match[2]) * _UNIT_SECONDS[match[3]])
            why = self._objection(rate.delay)
        for token in tokens:
            pace = self.paces.get(token, _NO_PACE)
            if why:
                self.paces[token] = _without(pace, line, "Request-rate", value, why)
            else:
                slowest = max(rate, pace.request_rate or rate, key=lambda each: each.delay)
                self.paces[token] = msgspec.structs.replace(pace, request_rate=slowest)

    def _objection(self, seconds: float) -> str:
        if seconds < 0:
            return "it is negative"
        if seconds > self._absurd_seconds:
            return f"it is longer than {self._absurd_seconds:,.15g} s"
        return ""


def _without(pace: Pace, line: int, directive: str, value: bytes, why: str) -> Pace:
    if len(pace.ignored) >= _MAX_IGNORED:
        return pace
    text = value[:_MAX_SHOWN_BYTES].decode("utf-8", "replace")
    shown = text + "…" if len(value) > _MAX_SHOWN_BYTES else text
    return msgspec.structs.replace(pace, ignored=(*pace.ignored, Ignored(line, directive, shown, why)))


_NO_PACE = Pace()
_NO_RATE = RequestRate(1, 0)
