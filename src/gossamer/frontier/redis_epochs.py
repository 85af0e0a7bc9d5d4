"""Which epoch each partition of a schedule was in when it was last heard of, and when that was."""

from __future__ import annotations


class Epochs:
    """What one worker knows of the epochs. It counts them by itself, from 1.

    An epoch that was heard of at a moment counts as lasting for `slack` seconds more. A new one makes every group wait for
    so long, so that nothing begins in both.
    """

    def __init__(self, partitions: int, slack: float) -> None:
        self._slack = slack
        self._names = [b""] * partitions
        self._numbers = [0] * partitions
        self._until = [0.0] * partitions

    def hear(self, partition: int, name: bytes, asked_at: float) -> int:
        """Learn from the answer to a question asked at `asked_at`; returns the number of the epoch, which had not ended."""
        if self._names[partition] != name:
            self._names[partition] = name
            self._numbers[partition] += 1
        self._until[partition] = asked_at + self._slack
        return self._numbers[partition]

    def settled_at(self) -> float:
        """Return until when the newest epoch makes groups wait, by the server's clock."""
        began = [float(words[1]) for name in self._names if len(words := name.split()) > 1]
        return max(began, default=0.0) + self._slack

    def number(self, partition: int) -> int:
        """Return the number of the epoch that a partition is in."""
        return self._numbers[partition]

    def lasts_until(self, partition: int, number: int) -> float:
        """Return until when an epoch counts as lasting; 0 where it is known to be over."""
        return self._until[partition] if self._numbers[partition] == number else 0.0
