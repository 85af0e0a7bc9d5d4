"""Which groups a worker leases first, so that their connections and robots.txt stay with one worker.

Nothing depends on it but speed: workers that disagree about who is there lease from each other's groups a little sooner
or later, and every rule of the schedule holds all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gossamer.policy.partition import own_parts

#: Groups that nobody has leased from yet fall into so many parts by a hash of their name; prelude.lua has the same number.
PARTS = 512
#: With more workers than this nobody prefers anything: ranking them would take longer than it saves.
MAX_WORKERS = 128


class Affinity:
    """What of a schedule one worker leases first, by the workers it last heard of.

    * A group belongs to a part by its name, and each part to a worker.
    * Others' groups are leased when they have been due for `seconds`, because their worker is busy, or when it is gone.
    """

    def __init__(self, worker: str, seconds: float) -> None:
        self._worker = worker
        self._seconds = seconds
        self._workers: frozenset[str] = frozenset()
        #: One character a part, `1` for its own; empty where everything is.
        self._mine = ""

    @property
    def count(self) -> int:
        """How many work on the job, this one among them."""
        return max(len(self._workers), 1)

    def hear(self, workers: Iterable[bytes]) -> None:
        """Take in who works on the job."""
        known = frozenset(name.decode() for name in workers) | {self._worker}
        if known == self._workers:
            return
        self._workers = known
        if self._seconds <= 0 or not 1 < len(known) <= MAX_WORKERS:
            self._mine = ""
            return
        own = own_parts(self._worker, known, PARTS)
        self._mine = "".join("1" if part in own else "0" for part in range(PARTS))

    def asking(self, limit: int) -> tuple[int, str, float]:
        """Return what scripts must know that lease, or look ahead: a number, what is ours, how long others' must wait."""
        return limit, self._mine, self._seconds


def divided(limit: int, wanted: Sequence[int], first: int) -> dict[int, int]:
    """Give each partition what it wants, beginning with another each time, until the limit is reached."""
    shares: dict[int, int] = {}
    for turn in range(len(wanted)):
        number = (first + turn) % len(wanted)
        if share := min(wanted[number], limit):
            shares[number] = share
            limit -= share
    return shares
