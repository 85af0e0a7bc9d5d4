"""What the memory scheduler keeps: a window of requests for each host, and a clock for each politeness group."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from gossamer.model.outcome import GroupState
from gossamer.model.request import Known

Entry = tuple[int, int, Known]


class Window:
    """A host's requests at hand, best first, and those that wait for a later moment."""

    __slots__ = (
        "entries",
        "exhausted",
        "floor",
        "host",
        "later",
        "leased",
        "missed",
        "refill",
        "served",
        "taken",
        "tombstones",
    )

    def __init__(self, host: str, pages: int) -> None:
        self.host = host
        self.entries: list[Entry] = []
        self.later: list[tuple[float, int, Known]] = []
        #: False while the ledger may hold more of this host than the window does.
        self.exhausted = False
        #: With more in the ledger, only requests better than this belong into the window.
        self.floor: tuple[int, int] | None = None
        self.refill = 0
        #: A request was turned away while a refill was under way, which may have read too early to see it.
        self.missed = False
        #: Leased since it was scheduled: its turn, where more hosts have work than may be active.
        self.served = 0
        #: Leased and not settled yet: live in the ledger, and not in the window.
        self.leased = 0
        #: Settled while a refill was under way: the refill may have read them as live.
        self.tombstones: set[int] = set()
        #: Pages fetched or being fetched, against `max_pages_per_host`.
        self.taken = pages

    def __len__(self) -> int:
        return len(self.entries) + len(self.later)

    @property
    def idle(self) -> bool:
        """Whether nothing is at hand and nothing on its way."""
        return not (self.entries or self.later or self.leased or self.refill)

    def ripen(self, now: float) -> None:
        """Move requests whose moment has come to the others."""
        while self.later and self.later[0][0] <= now:
            _, seq, known = heapq.heappop(self.later)
            heapq.heappush(self.entries, (known.request.priority, seq, known))

    def put(self, known: Known, now: float) -> None:
        """Take a request in."""
        if known.not_before > now:
            heapq.heappush(self.later, (known.not_before, known.seq, known))
        else:
            heapq.heappush(self.entries, (known.request.priority, known.seq, known))


class Group:
    """The clock of one politeness group."""

    __slots__ = (
        "delay",
        "due",
        "failures",
        "in_flight",
        "last_start",
        "name",
        "stamp",
        "starting",
        "turn",
        "until",
        "windows",
    )

    def __init__(self, state: GroupState, due: float, delay: float) -> None:
        self.name = state.group
        self.due = due
        self.delay = delay
        self.until = state.until
        self.last_start = state.last_start
        self.failures = state.failures
        self.in_flight = 0
        #: Tokens of leases whose start nobody has reported.
        self.starting: set[int] = set()
        self.stamp = 0
        self.windows: dict[str, Window] = {}
        self.turn = 0


def rotated(windows: Iterable[Window], turn: int) -> Iterable[Window]:
    """Return the windows beginning with whose turn it is; a lone one as it is."""
    if not isinstance(windows, list):
        return windows
    start = turn % len(windows)
    return windows[start:] + windows[:start]
