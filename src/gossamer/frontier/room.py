"""How many records a job may still have while a batch is applied to it."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.model.outcome import Visit


@dataclass(slots=True)
class Room:
    """What is left of `Batch.max_records`; None for no limit."""

    left: int | None = None

    def takes(self, visit: Visit) -> bool:
        """Take in a visit that counts; False where it brings a record too many."""
        if self.left is None or not visit.record:
            return True
        self.left -= 1
        return self.left >= 0
