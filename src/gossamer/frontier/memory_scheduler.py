"""The scheduler of one machine, in memory. It is the specification that other schedulers are held to.

Structure: a politeness group owns the windows of its hosts; a heap orders groups by the moment they may next
start a request. A group is *ready* (in the heap), *starting* (a lease is out whose first byte has not gone,
so the next due time is unknown), *full* (`per_host` leases open) or *idle* (no request at hand). A heap entry
carries the stamp its group had, and a changed stamp voids it; void ones are dropped now and then.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence

from gossamer.config.settings import FrontierSettings, PolitenessSettings
from gossamer.contracts import Clock
from gossamer.frontier.host_clocks import Claims, HostClocks
from gossamer.frontier.window import Group, Window, chosen, restored, rotated
from gossamer.model.outcome import GroupState, Pause
from gossamer.model.request import Known, Lease
from gossamer.model.schedule import HostInfo, Lost, Outlook, Refill, Stall
from gossamer.policy.politeness import is_given_up, slots_of


class MemoryScheduler:
    """Implements `Scheduler` for one process. Not thread-safe; every call completes without waiting.

    `resumed_at` is the moment a resumed job began: starts of the run before it may be unrecorded, so every
    group first waits out a whole delay from then. `clocks` are shared with other jobs of this machine.
    """

    def __init__(
        self,
        settings: FrontierSettings,
        politeness: PolitenessSettings,
        clock: Clock,
        random: Callable[[], float],
        *,
        max_pages_per_host: int | None = None,
        resumed_at: float = 0.0,
        clocks: HostClocks | None = None,
    ) -> None:
        self._settings = settings
        self._politeness = politeness
        self._clock = clock
        self._random = random
        self._max_pages = max_pages_per_host
        self._resumed_at = resumed_at
        self._claims = Claims(clocks, politeness.max_wait_seconds)
        self._groups: dict[str, Group] = {}
        self._windows: dict[str, tuple[Window, Group]] = {}
        self._heap: list[tuple[float, int, int, Group]] = []
        self._order = itertools.count(1)
        self._tokens = itertools.count(1)
        #: Every fingerprint in a window (0) or under a lease (its token).
        self._places: dict[int, int] = {}
        self._leases: dict[int, tuple[Lease, bool]] = {}
        self._hungry: dict[str, None] = {}
        #: More hosts have work than may be active: those that had their turn run dry and make room.
        self._crowded = False
        self._sweeps = 0
        self._stale = 0

    def __repr__(self) -> str:
        return f"<MemoryScheduler {len(self._windows)} hosts, {len(self._places)} requests, {len(self._leases)} leased>"

    # -- hosts -----------------------------------------------------------------------------------------

    async def missing(self, hosts: Sequence[str]) -> list[str]:
        """Return those of `hosts` that are not scheduled and for which there is room."""
        absent = []
        for host in hosts:
            found = self._windows.get(host)
            if found is None:
                absent.append(host)
            elif found[0].idle and not self._crowded:
                # The ledger has work for a host we took for finished: whatever was missed, look again.
                found[0].exhausted = False
                self._hungry[host] = None
        if self._crowded or len(absent) > self._settings.active_hosts - len(self._windows):
            self._retire_idle_hosts()
        room = max(self._settings.active_hosts - len(self._windows), 0)
        # Hosts are asked about in parts: that all of one part are scheduled says nothing about the others.
        if absent:
            self._crowded = len(absent) > room
        self._sweeps += 1
        return chosen(absent, room, self._sweeps)

    async def activate(self, infos: Sequence[HostInfo]) -> None:
        """Schedule hosts, empty and hungry, with the politeness state they had."""
        for info in infos:
            if info.host in self._windows:
                continue
            if len(self._windows) >= self._settings.active_hosts:
                self._crowded = True
                break
            group = self._groups.get(info.state.group)
            if group is None:
                group = restored(info.state, self._politeness, self._resumed_at)
                self._groups[group.name] = group
            window = Window(info.host, info.pages)
            group.windows[info.host] = window
            self._windows[info.host] = (window, group)
            self._hungry[info.host] = None

    def _retire_idle_hosts(self) -> None:
        """Forget hosts that have nothing at hand. The sweeper brings back those the ledger still has work for."""
        now = self._clock()
        for host, (window, group) in list(self._windows.items()):
            # One that was never filled has not had its turn yet.
            if window.idle and host not in self._hungry:
                del self._windows[host], group.windows[host]
        for group in [g for g in self._groups.values() if not g.windows and g.due <= now]:
            del self._groups[group.name]

    # -- filling ---------------------------------------------------------------------------------------

    async def offer(self, known: Sequence[Known]) -> int:
        """Put freshly committed requests into the windows that have room for them."""
        now = self._clock()
        fitted = 0
        touched: dict[str, Group] = {}
        for item in known:
            found = self._windows.get(item.request.host)
            if found is None:
                continue
            window, group = found
            if self._place(window, item, now):
                fitted += 1
                touched[group.name] = group
        for group in touched.values():
            self._reschedule(group)
        return fitted

    def _place(self, window: Window, known: Known, now: float) -> bool:
        fingerprint = known.request.fingerprint
        if fingerprint in self._places:
            return False
        key = (known.request.priority, known.seq)
        if window.floor is not None and key > window.floor:
            window.missed = True
            return False
        if self._crowded and window.served >= self._window_urls():
            window.exhausted = False
            window.missed = True
            return False
        if len(window) >= self._window_urls():
            window.floor = key
            window.exhausted = False
            window.missed = True
            return False
        window.put(known, now)
        self._places[fingerprint] = 0
        return True

    async def hungry(self, limit: int) -> list[Refill]:
        """Return refills for hosts whose windows ran low; each must be answered by `push`."""
        refills: list[Refill] = []
        for host in list(itertools.islice(self._hungry, limit)):
            del self._hungry[host]
            window, _ = self._windows[host]
            window.refill = next(self._tokens)
            window.missed = False
            window.tombstones.clear()
            # The ledger also returns what is leased: ask for that much more than fits.
            asked = self._window_urls() + window.leased
            refills.append(Refill(host, window.refill, asked))
        return refills

    async def push(self, refill: Refill, known: Sequence[Known]) -> int:
        """Fill a window. Fewer than `refill.limit` means the ledger has no more for this host now."""
        found = self._windows.get(refill.host)
        if found is None or found[0].refill != refill.token:
            self._stale += 1
            return 0
        window, group = found
        now = self._clock()
        placed = 0
        window.exhausted = len(known) < refill.limit and not window.missed
        window.floor = None
        for item in known:
            if item.request.fingerprint in window.tombstones:
                # Settled since, or settled and queued again: only the ledger can tell.
                window.exhausted = False
                continue
            placed += self._place(window, item, now)
        if len(known) >= refill.limit and window.floor is None:
            last = known[-1]
            window.floor = (last.request.priority, last.seq)
        window.refill = 0
        window.tombstones.clear()
        self._note_hunger(window)
        self._reschedule(group)
        return placed

    # -- leasing ---------------------------------------------------------------------------------------

    async def lease(self, limit: int) -> list[Lease]:
        """Lease up to `limit` due requests."""
        now = self._clock()
        leases: list[Lease] = []
        while (heap := self._heap) and heap[0][0] <= now and len(leases) < limit:
            _, _, stamp, group = heapq.heappop(heap)
            if stamp != group.stamp:
                continue
            lease = self._lease_from(group, now)
            if lease is not None:
                leases.append(lease)
            self._reschedule(group)
        return leases

    def _lease_from(self, group: Group, now: float) -> Lease | None:
        """Take the best request of the group's hosts in turn."""
        windows = list(group.windows.values()) if len(group.windows) > 1 else group.windows.values()
        for window in rotated(windows, group.turn):
            window.ripen(now)
            if not window.entries or self._is_full(window):
                continue
            if not self._claims.take(group, now):
                return None
            _, _, known = heapq.heappop(window.entries)
            token = next(self._tokens)
            lease = group.lease(known, token, now + self._settings.lease_seconds)
            self._places[known.request.fingerprint] = token
            self._leases[token] = (lease, True)
            window.taken += 1
            window.leased += 1
            window.served += 1
            group.in_flight += 1
            group.turn += 1
            # Round robin between groups without a delay: the one served last is due last.
            group.due = max(group.due, now)
            group.starting.add(token)
            self._note_hunger(window)
            return lease
        return None

    def _is_full(self, window: Window) -> bool:
        return self._max_pages is not None and window.taken >= self._max_pages

    def _window_urls(self) -> int:
        """How many requests a window holds: the more hosts are active, the fewer, so that the sum is bounded."""
        share = self._settings.scheduled_urls // max(len(self._windows), 1)
        return min(self._settings.window_urls, max(share, 4))

    def _note_hunger(self, window: Window) -> None:
        low = self._window_urls() // 4
        if not (window.exhausted or window.refill or self._crowded) and len(window) <= low:
            self._hungry[window.host] = None

    def begin_by(self, lease: Lease) -> float:
        """Return when the lease expires."""
        return lease.expires_at

    async def started(self, lease: Lease, at: float) -> None:
        """Note that the first byte is about to go out."""
        held = self._leases.get(lease.token)
        if held is None or not held[1]:
            self._stale += 1
            return
        _, group = self._windows[lease.request.host]
        self._start(group, at)
        self._claims.begun(group, lease.token, at)
        self._reschedule(group)

    def _start(self, group: Group, at: float) -> None:
        group.start(at, 1.0 + self._politeness.jitter * self._random())

    async def release(self, lease: Lease, pause: Pause, *, put_back: bool = False) -> None:
        """Free the host's slot and set when it is due."""
        held = self._leases.get(lease.token)
        if held is None or not held[1]:
            self._stale += 1
            return
        window, group = self._windows[lease.request.host]
        group.in_flight -= 1
        self._claims.begun(group, lease.token, pause.started_at)
        self._apply(group, pause)
        if put_back:
            del self._leases[lease.token]
            window.taken -= 1
            window.leased -= 1
            del self._places[lease.request.fingerprint]
            self._place(window, lease.known, self._clock())
        else:
            self._leases[lease.token] = (lease, False)
        self._reschedule(group)

    def _apply(self, group: Group, pause: Pause) -> None:
        group.rest(pause, self._politeness.delay)
        self._claims.rest(group, pause.until)
        if pause.started_at or pause.delay is not None:
            self._start(group, pause.started_at)

    def _free(self, group: Group, token: int) -> None:
        """Free the slot of a lease that nobody released."""
        group.in_flight -= 1
        if token in group.starting:
            # Its worker never said whether it began: assume the worst, that it did so just now.
            self._start(group, self._clock())
            self._claims.begun(group, token, self._clock())

    async def settle(self, leases: Sequence[Lease], recorded: frozenset[int] = frozenset()) -> None:
        """Forget requests after their commit."""
        for lease in leases:
            if lease.token not in self._leases:
                self._stale += 1
                continue
            _, is_open = self._leases.pop(lease.token)
            fingerprint = lease.request.fingerprint
            self._places.pop(fingerprint, None)
            window, group = self._windows[lease.request.host]
            window.leased -= 1
            if window.refill:
                window.tombstones.add(fingerprint)
            if fingerprint not in recorded:
                window.taken -= 1
            if is_open:
                self._free(group, lease.token)
            if is_open or self._max_pages is not None:
                self._reschedule(group)

    async def expired(self) -> list[Lost]:
        """Take leases past their expiry from their holders: from now on they wait for the commit of the caller."""
        now, lost = self._clock(), []
        for lease, is_open in list(self._leases.values()):
            # A released lease waits for its commit and belongs to the committer, however long that takes.
            if is_open and lease.expires_at <= now:
                _, group = self._windows[lease.request.host]
                lost.append(Lost(lease, begun=lease.token not in group.starting))
                self._leases[lease.token] = (lease, False)
                self._free(group, lease.token)
                self._reschedule(group)
        return lost

    async def stalled(self, horizon: float) -> list[Stall]:
        """Unschedule hosts with nothing leased that cannot be served."""
        stalls = []
        for host, (window, group) in list(self._windows.items()):
            if window.leased or window.refill or not len(window):
                continue
            if self._is_full(window):
                stalls.append(Stall(host, "host_limit"))
            elif is_given_up(group.failures, self._politeness):
                stalls.append(Stall(host, group.trouble))
            elif group.due > horizon:
                stalls.append(Stall(host, "wait_too_long"))
        for stall in stalls:
            self._drop(stall.host)
        return stalls

    def _drop(self, host: str) -> None:
        window, group = self._windows.pop(host)
        del group.windows[host]
        self._hungry.pop(host, None)
        for *_, known in (*window.entries, *window.later):
            del self._places[known.request.fingerprint]
        self._reschedule(group)

    # -- answers ---------------------------------------------------------------------------------------

    def _reschedule(self, group: Group) -> None:
        """Void the group's place in the heap and give it a new one if it could lease at some moment."""
        group.stamp += 1
        slots = slots_of(group.failures, self._politeness)
        if (group.starting and group.delay > 0) or group.in_flight >= slots:
            return
        ready = None
        for window in group.windows.values():
            if self._is_full(window):
                continue
            if window.entries:
                ready = 0.0
                break
            if window.later and (ready is None or window.later[0][0] < ready):
                ready = window.later[0][0]
        if len(self._heap) > 2 * len(self._groups) + 64:
            self._heap[:] = [entry for entry in self._heap if entry[2] == entry[3].stamp]
            heapq.heapify(self._heap)
        if ready is not None:
            heapq.heappush(self._heap, (max(group.due, ready), next(self._order), group.stamp, group))

    async def group_states(self, groups: Iterable[str]) -> list[GroupState]:
        """Return what of these groups' clocks must survive a restart."""
        return [self._groups[name].state() for name in groups if name in self._groups]

    async def outlook(self) -> Outlook:
        """Describe what waits and until when."""
        while self._heap and self._heap[0][2] != self._heap[0][3].stamp:
            heapq.heappop(self._heap)
        return Outlook(
            queued=len(self._places) - len(self._leases),
            in_flight=len(self._leases),
            hosts=len(self._windows),
            next_due=self._heap[0][0] if self._heap else None,
            stale=self._stale,
        )
