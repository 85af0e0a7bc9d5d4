"""What the memory scheduler keeps: a window of requests for each host, and a clock for each politeness group."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable

import msgspec

from gossamer.config.settings import PolitenessSettings
from gossamer.model.outcome import GroupState, Pause
from gossamer.model.request import Known, Lease
from gossamer.policy.politeness import is_parked

Entry = tuple[int, int, Known]
#: Origins of one group whose own delays are told apart; of more, the longest holds for all.
_MAX_FLOORS = 1000


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
        "claimed",
        "delay",
        "due",
        "failures",
        "floors",
        "in_flight",
        "last_start",
        "name",
        "slowness",
        "stamp",
        "starting",
        "trouble",
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
        self.slowness = state.slowness
        #: Why its URLs would be held if it went on failing.
        self.trouble = ""
        #: By origin, the delays that are longer than our own: the longest is the least of the group.
        self.floors: dict[str, float] = {}
        self.in_flight = 0
        #: Whether this job holds the clock that it shares with others.
        self.claimed = False
        #: Tokens of leases whose start nobody has reported.
        self.starting: set[int] = set()
        self.stamp = 0
        self.windows: dict[str, Window] = {}
        self.turn = 0

    def lease(self, known: Known, token: int, expires_at: float) -> Lease:
        """Return a lease that tells its worker what the pace of the group is."""
        return Lease(known, token, expires_at, self.delay, self.failures, self.name, self.slowness)

    def start(self, at: float, stretch: float) -> None:
        """Note a start: the group is due again a delay later, `stretch` times as long as it must be."""
        self.last_start = max(self.last_start, at)
        self.due = max(self.due, self.last_start + self.delay * stretch)

    def rest(self, pause: Pause, least_delay: float) -> None:
        """Take in what a finished fetch means for the pace of the group."""
        if pause.floor > least_delay:
            if len(self.floors) >= _MAX_FLOORS:
                self.floors = {"": max(self.floors.values())}
            self.floors[pause.origin] = pause.floor
        elif self.floors:
            self.floors.pop(pause.origin, None)
        if pause.delay is not None:
            self.delay = max(pause.delay, *self.floors.values()) if self.floors else pause.delay
        if pause.slowness is not None:
            self.slowness = pause.slowness
        self.until = max(self.until, pause.until)
        self.due = max(self.due, self.until)
        if pause.failed is not None:
            self.failures = self.failures + 1 if pause.failed else 0
            self.trouble = pause.trouble

    def state(self) -> GroupState:
        """Return what must survive a restart."""
        return GroupState(self.name, self.last_start, self.delay, self.until, self.failures, self.slowness)


def restored(state: GroupState, politeness: PolitenessSettings, resumed_at: float) -> Group:
    """Return the clock of a group as it was. A job that was resumed first waits out a whole delay from then."""
    delay = max(state.delay, politeness.delay)
    due = max(state.until, state.last_start + delay if state.last_start else 0.0)
    if resumed_at:
        due = max(due, resumed_at + delay)
    if is_parked(state.failures, politeness):
        # Given up in an earlier run, or parked: it gets its probes again, and nothing more.
        state = msgspec.structs.replace(state, failures=politeness.park_after_failures)
    return Group(state, due, delay)


def chosen(hosts: list[str], room: int, turn: int) -> list[str]:
    """Return as many hosts as there is room for: others each turn, or those listed last would never be among the first."""
    if len(hosts) <= room:
        return hosts
    return sorted(hosts, key=lambda host: zlib.crc32(host.encode(), turn))[:room]


def rotated(windows: Iterable[Window], turn: int) -> Iterable[Window]:
    """Return the windows beginning with whose turn it is; a lone one as it is."""
    if not isinstance(windows, list):
        return windows
    start = turn % len(windows)
    return windows[start:] + windows[:start]
