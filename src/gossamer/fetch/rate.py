"""The slowest rate at which a reply may come."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class MinimumRate:
    """A reply must bring `bytes_per_second` on average over every window of `seconds`; 0 of either is no rule."""

    bytes_per_second: int
    seconds: float

    @property
    def check_seconds(self) -> float:
        """How long to wait from one look at a reply to the next."""
        return self.seconds if self.bytes_per_second > 0 and self.seconds > 0 else inf

    @property
    def window_bytes(self) -> float:
        """What a reply must have brought since the last look."""
        return self.bytes_per_second * self.seconds

    @property
    def complaint(self) -> str:
        """Why a reply was cut, for people."""
        return f"too slow: less than {self.bytes_per_second} bytes/s for {self.seconds:g} s"
