"""Several processes on one machine: children fetch and extract, the parent alone leases, commits and writes.

A host's pages go to the same child while it has a free slot, so that connections and robots stay warm; with more
slots per host than one child has, others help. What a child learns about cookies, its siblings hear. A child that
dies is replaced, and its leases are reported as crashed. Credits bound both directions: a child never
holds more leases than it has slots, and so never has more reports to send.

Suspects, URLs whose worker died before, go to a child of their own, the cell, one after another. It is started for them
and ends when there are none. If it dies, it is known at once which URL did it, and nothing else was under way there.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import xxhash

from gossamer.contracts import Clock
from gossamer.engine.children import Child, Link
from gossamer.engine.committer import Done
from gossamer.engine.crew import Desk, untouched
from gossamer.engine.report import Report
from gossamer.engine.robots_visit import on_detour
from gossamer.errors import LeaseLost, WorkerLost
from gossamer.model.outcome import ROBOTS_UNREACHABLE, Hop, StoredRobots, Visit
from gossamer.model.request import Lease
from gossamer.model.url import origin_of
from gossamer.model.wire import (
    Baked,
    Joined,
    Learnt,
    Reported,
    RobotsKept,
    RobotsWanted,
    Stands,
    Started,
    Stocked,
    ToParent,
    WireReport,
    decode_to_parent,
)
from gossamer.policy.cookies import CookieJar
from gossamer.policy.scope import MAX_ROOTS

_MAX_QUICK_DEATHS = 5
_QUICK_SECONDS = 10.0
#: The cell is kept for so long after its last suspect: they come in crowds.
_LINGER_SECONDS = 5.0
#: How often the cell hears for how long the schedule stands by its lease.
_TELL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Hiring:
    """How worker processes are started, and what they may hold."""

    command: Sequence[str]
    #: Besides the cell; with none, the crew is there for suspects alone.
    workers: int
    concurrency: int
    #: The longest honest visit.
    visit_seconds: float
    #: What a lease has beyond that.
    slack_seconds: float
    #: What a process reads from its standard input.
    brief: bytes = b""


class ProcessCrew:
    """Implements `Crew` with child processes. `prepare` is called before a suspect is visited; `LeaseLost` hands it back.

    * A suspect that waits for its turn is handed back when too little of its lease is left for a whole visit.
    * One that is not done when its lease is about to run out has hung the cell, which is killed.
    """

    def __init__(
        self,
        hiring: Hiring,
        load_robots: Callable[[str], Awaitable[StoredRobots]],
        clock: Clock,
        roots: Iterable[str] = (),
        cookies: CookieJar | None = None,
        prepare: Callable[[Lease], Awaitable[None]] | None = None,
    ) -> None:
        self._hiring = hiring
        self._load_robots = load_robots
        self._clock = clock
        self._prepare = prepare
        slots = -(-hiring.concurrency // max(hiring.workers, 1))
        self._children = [Child(number, slots) for number in range(hiring.workers)]
        self._cell = Child(hiring.workers, 1)
        self._suspects: asyncio.Queue[Lease] = asyncio.Queue()
        self._holders: dict[int, Child] = {}
        #: As many as a child's scope keeps; the others it looks up.
        self._roots = dict.fromkeys(roots)
        #: What the ledger had and what children have received since: a child that starts begins with it.
        self._cookies = cookies
        self._deaths: deque[float] = deque(maxlen=_MAX_QUICK_DEATHS)
        #: Origins whose robots.txt a child is fetching, and the others that want it.
        self._robots_wanted: dict[str, tuple[Child, list[Child]]] = {}
        #: Files that were fetched and are not in the ledger yet.
        self._robots_fetched: dict[str, StoredRobots] = {}
        self._desk: Desk | None = None
        self._group: asyncio.TaskGroup | None = None

    # -- Crew ------------------------------------------------------------------------------------------

    def free(self) -> int:
        """How many more leases may be submitted now: any of them may be a suspect."""
        return min(sum(child.free for child in self._children), self.room_for_suspects)

    @property
    def room_for_suspects(self) -> int:
        """How many more suspects may wait."""
        return self._hiring.concurrency - self._suspects.qsize()

    def submit(self, lease: Lease) -> None:
        """Hand a lease to its host's child, or to the freest one if that has no slot left. Suspects wait for the cell."""
        if lease.known.crashes:
            self._suspects.put_nowait(lease)
            return
        child = self._children[xxhash.xxh3_64_intdigest(lease.request.host.encode()) % len(self._children)]
        if child.free <= 0:
            child = max(self._children, key=lambda child: child.free)
        self._hand(child, lease)

    def _hand(self, child: Child, lease: Lease) -> None:
        self._holders[lease.token] = child
        child.take(lease)

    def learn(self, done: Iterable[Done], lost: frozenset[int]) -> None:
        """Tell each child which of its visits are in the ledger."""
        answers: dict[Child, tuple[list[int], list[int]]] = {}
        for lease, visit in done:
            for file in visit.robots:
                self._robots_fetched.pop(file.origin, None)
            child = self._holders.pop(lease.token, None)
            if child is not None and lease.token in child.unlearnt:
                child.unlearnt.discard(lease.token)
                won = visit.known.request.fingerprint not in lost
                answers.setdefault(child, ([], []))[0 if won else 1].append(lease.token)
        for child, (won_tokens, lost_tokens) in answers.items():
            child.send(Learnt(won_tokens, lost_tokens))

    def join(self, root: str) -> None:
        """Tell every child of a root that joined the scope."""
        if root not in self._roots and len(self._roots) < MAX_ROOTS:
            self._roots[root] = None
            for child in self._all():
                child.send(Joined([root]))

    def _all(self) -> list[Child]:
        return [*self._children, self._cell]

    def revoke(self, leases: Iterable[Lease]) -> None:
        """Kill the children that sat on a lease until it expired."""
        for lease in leases:
            child = self._holders.get(lease.token)
            if child is not None and child.process is not None and lease.token in child.leases:
                child.process.kill()

    def hand_back(self) -> None:
        """Report the suspects that still wait as untouched."""
        while not self._suspects.empty():
            self._decline(self._suspects.get_nowait())

    def _decline(self, lease: Lease) -> None:
        assert self._desk is not None
        self._desk.reported(lease, untouched(lease))

    def stock(self, cookies: list[bytes]) -> None:
        """Tell every child of cookies that others have set or removed, in the order that happened."""
        for child in self._all():
            child.send(Stocked(cookies))

    async def run(self, desk: Desk) -> None:
        """Keep the children alive until cancelled."""
        self._desk = desk
        async with asyncio.TaskGroup() as group:
            self._group = group
            for child in self._children:
                group.create_task(self._tend(child), name=f"child-{child.number}")
            group.create_task(self._attend(), name="cell")

    # -- suspects --------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        """Visit suspects, one at a time, in a process that is there for as long as there are any."""
        while True:
            lease: Lease | None = await self._suspects.get()
            async with asyncio.TaskGroup() as group:
                process = group.create_task(self._tend(self._cell), name="cell process")
                while lease is not None:
                    await self._visit_alone(lease)
                    lease = await self._next_suspect()
                process.cancel()

    async def _next_suspect(self) -> Lease | None:
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                return await self._suspects.get()
        except TimeoutError:
            return None

    async def _visit_alone(self, lease: Lease) -> None:
        """Have a suspect visited, and wait until it is done, or has killed or hung its process."""
        await self._cell.up.wait()
        try:
            if self._prepare is not None:
                await self._prepare(lease)
        except LeaseLost:
            self._decline(lease)
            return
        left = lease.expires_at - self._clock()
        if left < self._hiring.visit_seconds + self._hiring.slack_seconds / 2:
            self._decline(lease)
            return
        assert self._desk is not None
        held = msgspec.structs.replace(lease, expires_at=self._desk.begin_by(lease))
        self._hand(self._cell, held)
        # Before others learn that the lease is lost: so it is ours to say that the URL was alone.
        in_time = left - self._hiring.slack_seconds / 4
        timer = asyncio.get_running_loop().call_later(in_time, self._give_up, held)
        try:
            await self._stand_by(lease, self._desk)
        finally:
            timer.cancel()

    async def _stand_by(self, lease: Lease, desk: Desk) -> None:
        """Wait until the cell is idle. Until when its request must have begun it is told again and again: it cannot ask."""
        while not self._cell.idle.is_set():
            self._cell.send(Stands(lease.token, desk.begin_by(lease)))
            with suppress(TimeoutError):
                async with asyncio.timeout(_TELL_SECONDS):
                    await self._cell.idle.wait()

    def _give_up(self, suspect: Lease) -> None:
        if self._cell.withdraw(suspect):
            self._decline(suspect)
        else:
            self.revoke([suspect])

    # -- children --------------------------------------------------------------------------------------

    async def _tend(self, child: Child) -> None:
        """Start a child, wait until it is gone, report what it held, and start the next."""
        while True:
            await self._start(child)
            try:
                await child.gone.wait()
            finally:
                await self._end(child)
            self._bury(child)

    async def _start(self, child: Child) -> None:
        brief = self._hiring.brief
        ours, theirs = socket.socketpair()
        with theirs:
            child.process = await asyncio.create_subprocess_exec(
                *self._hiring.command,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.PIPE if brief else asyncio.subprocess.DEVNULL,
                # A Ctrl-C in the terminal is for us: it must not reach a child, least of all one that is starting.
                start_new_session=True,
            )
        if child.process.stdin is not None:
            child.process.stdin.write(brief)
            child.process.stdin.close()
        child.gone.clear()
        loop = asyncio.get_running_loop()
        _, child.link = await loop.create_connection(
            lambda: Link(lambda body: self._received(child, decode_to_parent(body)), child.gone.set),
            sock=ours,
        )
        child.send(Joined(list(self._roots)))
        if self._cookies is not None and self._cookies.count:
            child.send(Stocked(self._cookies.dump()))
        child.hand_over()
        child.up.set()
        assert self._desk is not None
        self._desk.ready()

    async def _end(self, child: Child) -> None:
        """Close the child's link; it leaves by itself, or is made to."""
        child.up.clear()
        if child.link is not None:
            child.link.close()
            child.link = None
        process, child.process = child.process, None
        if process is None:
            return
        try:
            async with asyncio.timeout(2.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _bury(self, child: Child) -> None:
        held = child.give_all()
        for lease in held:
            self._holders.pop(lease.token, None)
        for origin, (holder, waiting) in list(self._robots_wanted.items()):
            if holder is child:
                del self._robots_wanted[origin]
                for other in waiting:
                    other.send(RobotsKept(origin, StoredRobots()))
        self._deaths.append(self._clock())
        if (
            len(self._deaths) == _MAX_QUICK_DEATHS
            and self._clock() - self._deaths[0] < _QUICK_SECONDS
            and not held
        ):
            raise WorkerLost("worker processes die as soon as they are started: see their messages above")
        assert self._desk is not None
        self._desk.crashed(held, alone=len(held) == 1)

    # -- messages --------------------------------------------------------------------------------------

    def _received(self, child: Child, message: ToParent) -> None:
        assert self._desk is not None
        match message:
            case Reported(reports):
                for report in reports:
                    self._reported(child, report)
            case Started(starts):
                for token, at in starts:
                    if token in child.leases:
                        self._desk.started(child.leases[token], at)
            case Baked():
                self._share(child, message)
            case RobotsWanted(origin):
                assert self._group is not None
                self._group.create_task(self._send_robots(child, origin), name=f"robots {origin}")

    def _share(self, child: Child, baked: Baked) -> None:
        """Let every other child have the cookies that one has received, also those that start later."""
        if self._cookies is not None:
            self._cookies.store(baked.url, baked.headers, self._clock())
        for sibling in self._all():
            if sibling is not child:
                sibling.send(baked)

    def _reported(self, child: Child, wire: WireReport) -> None:
        lease = child.give(wire.token)
        if lease is None or self._desk is None:
            return
        child.unlearnt.add(wire.token)
        visit = wire.visit(lease.known)
        if visit.robots or any(fetch.kind == "robots" for fetch in visit.fetches):
            self._pass_robots_on(visit)
        if not visit.settles:
            self._holders.pop(wire.token, None)
            child.unlearnt.discard(wire.token)
        self._desk.reported(lease, Report(visit, wire.pause))

    async def _send_robots(self, child: Child, origin: str) -> None:
        """Answer from the ledger. What it does not have, one child fetches and the others wait for."""
        try:
            stored = self._robots_fetched.get(origin) or await self._load_robots(origin)
        except LeaseLost:
            # The ledger is away: it is asked for once more, at the site.
            stored = StoredRobots()
        if stored.file is None:
            # It may have come while the ledger was asked.
            stored = self._robots_fetched.get(origin, stored)
        pending = self._robots_wanted.get(origin)
        if stored.file is None and pending is not None and pending[0] is not child:
            pending[1].append(child)
            return
        if stored.file is None:
            self._robots_wanted[origin] = (child, [])
        child.send(RobotsKept(origin, stored))

    def _pass_robots_on(self, visit: Visit) -> None:
        """Give the robots.txt a child has just fetched, or failed to fetch, to those who wait for it."""
        if isinstance(visit.outcome, Hop) and on_detour(visit.outcome.request):
            return
        origin = origin_of(visit.known.request.target)
        read = (file for file in visit.robots if file.status != ROBOTS_UNREACHABLE)
        stored = StoredRobots(next((file for file in read if file.origin == origin), None))
        if stored.file is not None:
            self._robots_fetched[origin] = stored
        for child in self._robots_wanted.pop(origin, (None, []))[1]:
            child.send(RobotsKept(origin, stored))
