"""The scheduler of many machines: the schedule lives in Redis, and each worker has a view of it.

When a group of hosts was asked and may be asked again is one clock for all jobs. Windows of URLs are each job's own.
The rules are those of the memory scheduler, in Lua (`lua/`): a script is one step that nothing can come between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from gossamer.config.redis import RedisSettings
from gossamer.config.settings import FrontierSettings, PolitenessSettings
from gossamer.contracts import Clock
from gossamer.errors import UsageError
from gossamer.frontier.redis_affinity import Affinity, divided
from gossamer.frontier.redis_calls import RedisCalls
from gossamer.frontier.redis_codec import (
    PARTITIONS,
    info_of,
    lease_op,
    leases_of,
    lost_of,
    pack_known,
    release_op,
    rows_of,
    states_of,
)
from gossamer.frontier.redis_controls import RedisControls
from gossamer.frontier.redis_link import OutOfMemory
from gossamer.frontier.window import chosen
from gossamer.model.outcome import GroupState, Pause
from gossamer.model.request import Known, Lease
from gossamer.model.schedule import HostInfo, Lost, Outlook, Refill, Stall

#: Within a key a name must not be taken for two.
_JOB_NAME = re.compile(r"[\w.-]+")
#: Hosts of which a worker remembers the partition.
_MAX_HOMES = 200_000
#: How often one call goes round where the first answer is not the whole.
_MAX_ROUNDS = 20


class RedisScheduler(RedisControls):
    """Implements `Scheduler` as one worker's view of one job. Any number of them share a Redis.

    * Starts, releases and settlements wait a moment (`flush_seconds`) and go out together with the next call.
    * The time is the server's. A worker's own is only ever taken for later than it is (`Skew`).
    * A lease that was released waits for its commit for as long as its worker is heard of.
    * When the server was emptied or started anew, a new epoch begins: every group first waits out `slack_seconds` and
      a whole delay, and the sweep brings back what is missing. For so long may a request begin on a lease from before.
    * A Redis without room takes no more hosts and requests (`refused` counts); leases go on and make room.
    * A Redis that stops answering is a `BackendLost`. The call may be made again, and waits longer each time.
    * Each worker has groups that it leases first, so that connections stay in use (`Affinity`). Others' it leases
      when they have been due for `affinity_seconds`.
    * `active_hosts` is exact for one worker; workers that activate at the same moment may exceed it by what each
      activates, where there are several partitions.

    Keys, with `<prefix>:{g:<partition>}` before each. A group's partition is a hash of its name.

    ====================  ======  ==========================================================================
    `epoch`, `n`          string  when this epoch began and on which run of the server; the last number given
    `h:<group>`           string  the clock all jobs share: last start, rest, failures, slots taken. Expires when
                                  no job has a window in the group
    `partitions`          string  how many there are: all workers must agree
    `alive`               zset    worker → when it was last heard of
    `workers:<job>`       zset    worker → when it last wanted to lease
    `x`, `lease`          hash    number → lease; zset, number → when it expires
    `lost:<job>`          set     leases that another job found expired
    `rules`               hash    job → its bounds and its pace, for when another job frees a slot
    `control:<job>`       string  `paused` or `stopped`
    `off`, `delays`       set     hosts switched off; hash, host → the least delay somebody set
    `g:<job>`             hash    group → delay, due time, and hosts with something at hand
    `ready:<job>`         zset    group, after a number that grows → when it is due
    `stuck:<job>`         set     groups that may have to be given up
    `w:<job>`             hash    host → the state of its window
    `hungry:<job>`        zset    host → from when on it needs a refill
    `idle:<job>`          set     hosts with nothing at hand
    `crowd:<job>`         string  there if more hosts have work than may be active
    `c:<job>`             hash    requests queued and leased
    `r:<job>:<host>`      hash    fingerprint → request, queued or leased
    `q:…`, `l:…`          zset    position and fingerprint → priority; fingerprint → its first moment
    `t:…`                 set     settled while a refill was under way. Expires
    ====================  ======  ==========================================================================
    """

    def __init__(
        self,
        job: str,
        redis: RedisSettings,
        settings: FrontierSettings,
        politeness: PolitenessSettings,
        clock: Clock,
        random: Callable[[], float],
        *,
        max_pages_per_host: int | None = None,
        resumed_at: float = 0.0,
        server_time: bool = True,
    ) -> None:
        if not _JOB_NAME.fullmatch(job):
            raise UsageError(f"{job!r} cannot name a shared job: use letters, digits, `.`, `-` and `_`")
        calls = RedisCalls(
            job,
            redis,
            settings,
            politeness,
            clock,
            random,
            pages=-1 if max_pages_per_host is None else max_pages_per_host,
            resumed_at=resumed_at,
            server_time=server_time,
        )
        super().__init__(job, calls)
        self._settings = settings
        self._jitter = politeness.jitter
        #: Requests that one call of a script goes through: Redis does nothing else meanwhile.
        self._batch = redis.batch_entries
        self._affinity = Affinity(calls.worker, redis.affinity_seconds)
        self._clock = clock
        self._random = random
        #: The partition of each host this worker has seen scheduled.
        self._homes: dict[str, int] = {}
        self._sweeps = 0
        self._stale = 0

    def __repr__(self) -> str:
        return f"<RedisScheduler {self.job}, worker {self._calls.worker}, {self.round_trips} round trips>"

    async def open(self) -> None:
        """Connect. A Redis that evicts, or whose schedule has other partitions, is a `UsageError`."""
        await self._calls.open()

    async def close(self) -> None:
        """Send what waits to be sent, if Redis can be reached, and let go of it."""
        await self._calls.close()

    async def beat(self) -> None:
        """Be heard of: leases that were released and wait for their commit stay with this worker."""
        await self._calls.ask_all("report", [])

    @property
    def round_trips(self) -> int:
        """How often this worker has waited for Redis."""
        return self._calls.link.round_trips

    @property
    def refused(self) -> int:
        """How many calls Redis had no room for."""
        return self._calls.link.refused

    # -- hosts -----------------------------------------------------------------------------------------

    async def missing(self, hosts: Sequence[str]) -> list[str]:
        """Return those of `hosts` that are not scheduled and for which there is room."""
        absent, active, crowded = await self._find(hosts)
        if crowded or len(absent) > self._settings.active_hosts - active:
            active = sum(await self._calls.ask_all("retire", None))
        room = max(self._settings.active_hosts - active, 0)
        # Hosts are asked about in parts: that all of one part are scheduled says nothing about the others.
        if absent and crowded != (len(absent) > room):
            await self._calls.ask_all("crowd", not crowded)
        self._sweeps += 1
        return chosen(absent, room, self._sweeps)

    async def _find(self, hosts: Sequence[str]) -> tuple[list[str], int, bool]:
        """Return which hosts are not scheduled, how many are active in all, and whether the schedule is crowded."""
        wanted = list(dict.fromkeys(hosts))
        answers = await self._calls.ask_all("find", wanted)
        found = {wanted[place]: number for number, answer in enumerate(answers) for place in answer[2:]}
        self._learn_homes(found)
        absent = [host for host in wanted if host not in found]
        for host in absent:
            self._homes.pop(host, None)
        return absent, sum(answer[0] for answer in answers), any(answer[1] for answer in answers)

    def _learn_homes(self, homes: dict[str, int]) -> None:
        if self._calls.partitions > 1:
            if len(self._homes) + len(homes) > _MAX_HOMES:
                self._homes.clear()
            self._homes.update(homes)

    async def activate(self, infos: Sequence[HostInfo]) -> None:
        """Schedule hosts, empty and hungry, with the politeness state they had."""
        if not infos:
            return
        parts: dict[int, list[HostInfo]] = {}
        for info in infos:
            parts.setdefault(self._calls.partition(info.state.group), []).append(info)
        limits = await self._limits(parts)
        answers = await self._calls.ask_many(
            [
                ("activate", number, (limits[number], [info_of(info) for info in part]))
                for number, part in parts.items()
            ]
        )
        self._learn_homes({info.host: number for number, part in parts.items() for info in part})
        if self._calls.partitions > 1 and 1 in answers:
            await self._calls.ask_all("crowd", argument=True)

    async def _limits(self, parts: dict[int, list[HostInfo]]) -> dict[int, int]:
        """Return how many hosts each partition may have, so that all together have no more than is allowed."""
        most = self._settings.active_hosts
        if self._calls.partitions == 1:
            return {0: most}
        active = [answer[0] for answer in await self._calls.ask_all("find", [])]
        room = max(most - sum(active), 0)
        limits = {}
        for number, part in parts.items():
            share = min(len(part), room)
            limits[number] = active[number] + share
            room -= share
        return limits

    # -- filling ---------------------------------------------------------------------------------------

    async def offer(self, known: Sequence[Known]) -> int:
        """Put freshly committed requests into the windows that have room for them; returns how many fitted."""
        if self._calls.partitions > 1:
            strange = {item.request.host for item in known} - self._homes.keys()
            if strange:
                await self._find(list(strange))
        calls = []
        for start in range(0, len(known), self._batch):
            parts: dict[int, dict[str, list[msgspec.Raw]]] = {}
            for item in known[start : start + self._batch]:
                host = item.request.host
                home = self._homes.get(host) if self._calls.partitions > 1 else 0
                if home is not None:
                    parts.setdefault(home, {}).setdefault(host, []).append(pack_known(item))
            calls += [("offer", number, list(part.items())) for number, part in parts.items()]
        answers = await self._calls.ask_many(calls) if calls else []
        return sum(answer for answer in answers if not isinstance(answer, OutOfMemory))

    async def hungry(self, limit: int) -> list[Refill]:
        """Return refills for hosts whose windows ran low; each must be answered by `push`.

        One that is not answered within `refill_seconds` is handed out again, to whoever asks. None is handed out
        while Redis has no room.
        """
        if self._calls.partitions == 1:
            shares = {0: limit}
        else:
            self._sweeps += 1
            shares = divided(limit, await self._calls.ask_all("hunger", None), self._sweeps)
        answers = await self._calls.ask_many([("hungry", number, share) for number, share in shares.items()])
        return [
            Refill(host.decode(), int(refill) * PARTITIONS + number, asked)
            for number, answer in zip(shares, answers, strict=True)
            if not isinstance(answer, OutOfMemory)
            for host, refill, asked in rows_of(answer, 3)
        ]

    async def push(self, refill: Refill, known: Sequence[Known]) -> int:
        """Fill a window. Fewer than `refill.limit` means the ledger has no more for this host now."""
        n, number = divmod(refill.token, PARTITIONS)
        argument = (refill.host, n, refill.limit, [pack_known(item) for item in known])
        placed = await self._calls.ask("push", number, argument)
        if isinstance(placed, OutOfMemory):
            return 0
        if placed < 0:
            self._stale += 1
            return 0
        return int(placed)

    # -- leasing ---------------------------------------------------------------------------------------

    async def lease(self, limit: int) -> list[Lease]:
        """Lease up to `limit` due requests."""
        leases: list[Lease] = []
        for _ in range(_MAX_ROUNDS if limit > 0 else 0):
            shares = await self._shares(limit - len(leases))
            asked_at = self._clock()
            answers = await self._calls.ask_many(
                [("lease", number, self._affinity.asking(share)) for number, share in shares]
            )
            got = [
                self._leases(answer, number, asked_at)
                for (number, _), answer in zip(shares, answers, strict=True)
            ]
            leases += [lease for part in got for lease in part]
            if not self._may_have_more(shares, got) or len(leases) >= limit:
                break
        return leases

    def _may_have_more(self, shares: list[tuple[int, int]], got: list[list[Lease]]) -> bool:
        if self._calls.partitions == 1:
            return len(got[0]) == shares[0][1]
        return any(got)

    def _leases(self, answer: Sequence[Any], number: int, asked_at: float) -> list[Lease]:
        self._calls.learn_time(asked_at, answer[0])
        epoch = self._calls.epochs.hear(number, answer[1], asked_at)
        expires_at = float(answer[0]) + self._settings.lease_seconds - self._calls.skew.seconds
        return list(leases_of(answer, number, expires_at, epoch))

    async def _shares(self, limit: int) -> list[tuple[int, int]]:
        """Say how many to lease of each partition, so that whoever is due first, anywhere, comes first.

        Groups that this worker prefers come before all others.
        """
        limit = min(limit, self._batch)
        if self._calls.partitions == 1:
            return [(0, limit)]
        answers = await self._calls.ask_all("peek", self._affinity.asking(limit))
        due = sorted(
            (place >= own, float(at), number)
            for number, (own, *instants) in enumerate(answers)
            for place, at in enumerate(instants)
        )[:limit]
        shares: dict[int, int] = {}
        for *_, number in due:
            shares[number] = shares.get(number, 0) + 1
        if shares and len(due) < limit:
            # Every group that is due has its share: one that may be asked several times at once can have the rest.
            shares[due[0][2]] += limit - len(due)
        return list(shares.items())

    def begin_by(self, lease: Lease) -> float:
        """Return when the lease expires, or its epoch counts as over because nothing was heard of it."""
        epoch_ends = self._calls.epochs.lasts_until(lease.token % PARTITIONS, lease.epoch)
        return min(lease.expires_at, epoch_ends)

    async def started(self, lease: Lease, at: float) -> None:
        """Note that the first byte is about to go out."""
        op = lease_op("start", lease, at + self._calls.skew.seconds, self._stretch())
        self._calls.report(lease.token % PARTITIONS, op)

    async def release(self, lease: Lease, pause: Pause, *, put_back: bool = False) -> None:
        """Free the host's slot and set when it is due."""
        op = release_op(lease, pause, self._calls.skew.seconds, self._stretch(), put_back=put_back)
        self._calls.report(lease.token % PARTITIONS, op)

    async def settle(self, leases: Sequence[Lease], recorded: frozenset[int] = frozenset()) -> None:
        """Forget requests after their commit."""
        now = self._calls.server_now()
        for lease in leases:
            is_page = lease.request.fingerprint in recorded
            op = lease_op("settle", lease, now, self._stretch(), recorded=is_page)
            self._calls.report(lease.token % PARTITIONS, op)

    def _stretch(self) -> float:
        return 1.0 + self._jitter * self._random()

    async def expired(self) -> list[Lost]:
        """Take leases of this job past their expiry from their holders; each goes to one worker alone."""
        lost: list[Lost] = []
        for _ in range(_MAX_ROUNDS):
            answers = await self._calls.ask_all("expire", self._stretch())
            for number, answer in enumerate(answers):
                epoch = self._calls.epochs.number(number)
                lost += lost_of(answer, number, self._calls.skew.seconds, epoch)
            if not any(answer[0] for answer in answers):
                break
        return lost

    async def stalled(self, horizon: float) -> list[Stall]:
        """Unschedule hosts with nothing leased that cannot be served."""
        answers = await self._calls.ask_all("stalled", horizon + self._calls.skew.seconds)
        return [
            Stall(host.decode(), reason.decode()) for answer in answers for host, reason in rows_of(answer, 2)
        ]

    # -- answers ---------------------------------------------------------------------------------------

    async def group_states(self, groups: Iterable[str]) -> list[GroupState]:
        """Return what of these groups' clocks must survive a restart, by the server's time."""
        parts: dict[int, list[str]] = {}
        for group in groups:
            parts.setdefault(self._calls.partition(group), []).append(group)
        answers = await self._calls.ask_many([("states", number, part) for number, part in parts.items()])
        return [state for answer in answers for state in states_of(answer)]

    async def outlook(self) -> Outlook:
        """Describe what waits and until when. Nothing is due while the job is paused."""
        asked_at = self._clock()
        answers = await self._calls.ask_all("outlook", self._affinity.asking(self._batch))
        self._calls.learn_time(asked_at, answers[0][5])
        self._affinity.hear(answers[0][6])
        for number, answer in enumerate(answers):
            self._calls.epochs.hear(number, answer[7], asked_at)
        due = [float(answer[4]) for answer in answers if answer[4] and not answer[3]]
        return Outlook(
            queued=sum(answer[0] for answer in answers),
            in_flight=sum(answer[1] for answer in answers),
            hosts=sum(answer[2] for answer in answers),
            next_due=min(due) - self._calls.skew.seconds if due else None,
            stale=self._stale + self._calls.stale,
            workers=self._affinity.count,
            is_new=self._calls.server_now() < self._calls.epochs.settled_at(),
        )
