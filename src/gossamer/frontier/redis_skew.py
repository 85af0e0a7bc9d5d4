"""How far the clock of a server is ahead of ours."""

from __future__ import annotations

from collections import deque

_SAMPLES = 64


class Skew:
    """An estimate that is never too small, so that what we report as begun is never reported as earlier than it was.

    The server reads its clock after we have sent our question: the difference is the skew and the way there. The
    smallest of the last few is nearest to the truth.
    """

    def __init__(self) -> None:
        self._samples: deque[float] = deque([0.0], maxlen=_SAMPLES)
        self._is_new = True
        self.seconds = 0.0

    def note(self, sent_at: float, server_now: float) -> None:
        """Learn from an answer to a question that was sent at `sent_at`, by our clock."""
        if self._is_new:
            self._samples.clear()
            self._is_new = False
        self._samples.append(server_now - sent_at)
        self.seconds = min(self._samples)
