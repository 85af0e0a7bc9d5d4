"""A clock that stands still until it is told to move."""

from __future__ import annotations


class FakeClock:
    """Time for tests: `clock()` is the instant, `advance` moves it on."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the instant."""
        return self.now

    def advance(self, seconds: float) -> float:
        """Let time pass; it never goes back."""
        assert seconds >= 0
        self.now += seconds
        return self.now
