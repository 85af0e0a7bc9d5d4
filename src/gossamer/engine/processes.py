"""Several processes on one machine: children fetch and extract, the parent alone leases, commits and writes.

A host's pages go to the same child while it has a free slot, so that connections and robots stay warm; with more
slots per host than one child has, others help. What a child learns about cookies, its siblings hear. A child that
dies is replaced, and its leases are reported as crashed. Credits bound both directions: a child never
holds more leases than it has slots, and so never has more reports to send.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

import xxhash

from gossamer.contracts import Clock
from gossamer.engine.committer import Done
from gossamer.engine.crew import Desk
from gossamer.engine.report import Report
from gossamer.engine.robots_visit import on_detour
from gossamer.errors import WorkerLost
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
    Started,
    Stocked,
    ToChild,
    ToParent,
    Unframer,
    WireReport,
    Work,
    decode_to_parent,
    frame,
)
from gossamer.policy.cookies import CookieJar
from gossamer.policy.scope import MAX_ROOTS

_MAX_QUICK_DEATHS = 5
_QUICK_SECONDS = 10.0


class Link(asyncio.Protocol):
    """One end of the socket between parent and child; writes of one turn of the loop go out together."""

    def __init__(self, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._unframer = Unframer()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are no subclasses of asyncio's, though they keep the contract.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand complete frames on."""
        for body in self._unframer.feed(data):
            self._received(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the other side is gone."""
        del exc
        self._transport = None
        self._lost()

    def send(self, data: bytes) -> None:
        """Send a frame soon; what is sent to a lost peer is dropped."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None:
            self._transport.write(b"".join(out))

    def close(self) -> None:
        """Close this end; the child takes it as the order to leave."""
        if self._transport is not None:
            self._transport.close()


class _Child:
    """A worker process and the leases it holds."""

    def __init__(self, number: int, slots: int) -> None:
        self.number = number
        self.slots = slots
        self.leases: dict[int, Lease] = {}
        #: Finished, reported, and waiting for their commit.
        self.unlearnt: set[int] = set()
        #: Not handed over yet: a suspect that waits to be alone, and whatever came behind it.
        self.waiting: deque[Lease] = deque()
        self.solitary = 0
        self.link: Link | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.gone = asyncio.Event()

    @property
    def free(self) -> int:
        blocked = self.waiting or self.solitary in self.leases or self.link is None
        return 0 if blocked else self.slots - len(self.leases)

    def send(self, message: ToChild) -> None:
        if self.link is not None:
            self.link.send(frame(message))

    def take(self, lease: Lease) -> None:
        self.waiting.append(lease)
        self.hand_over()

    def hand_over(self) -> None:
        """Send what waits, in order. A suspect goes when nothing else is under way, and nothing goes beside it."""
        while self.waiting and self.link is not None and self.solitary not in self.leases:
            lease = self.waiting[0]
            if lease.known.crashes:
                if self.leases:
                    return
                self.solitary = lease.token
            self.waiting.popleft()
            self.leases[lease.token] = lease
            self.send(Work([lease]))


class ProcessCrew:
    """Implements `Crew` with child processes started by `command`."""

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        concurrency: int,
        load_robots: Callable[[str], Awaitable[StoredRobots]],
        clock: Clock,
        roots: Iterable[str] = (),
        cookies: CookieJar | None = None,
    ) -> None:
        self._command = command
        self._load_robots = load_robots
        self._clock = clock
        slots = -(-concurrency // workers)
        self._children = [_Child(number, slots) for number in range(workers)]
        self._holders: dict[int, _Child] = {}
        #: As many as a child's scope keeps; the others it looks up.
        self._roots = dict.fromkeys(roots)
        #: What the ledger had and what children have received since: a child that starts begins with it.
        self._cookies = cookies
        self._deaths: deque[float] = deque(maxlen=_MAX_QUICK_DEATHS)
        #: Origins whose robots.txt a child is fetching, and the others that want it.
        self._robots_wanted: dict[str, tuple[_Child, list[_Child]]] = {}
        #: Files that were fetched and are not in the ledger yet.
        self._robots_fetched: dict[str, StoredRobots] = {}
        self._desk: Desk | None = None
        self._group: asyncio.TaskGroup | None = None

    # -- Crew ------------------------------------------------------------------------------------------

    def free(self) -> int:
        """How many more leases may be submitted now."""
        return sum(child.free for child in self._children)

    def submit(self, lease: Lease) -> None:
        """Hand a lease to its host's child, or to the freest one if that has no slot left."""
        home = self._children[xxhash.xxh3_64_intdigest(lease.request.host.encode()) % len(self._children)]
        child = home
        if not lease.known.crashes and home.free <= 0:
            child = max(self._children, key=lambda child: child.free)
        self._holders[lease.token] = child
        child.take(lease)

    def learn(self, done: Iterable[Done], lost: frozenset[int]) -> None:
        """Tell each child which of its visits are in the ledger."""
        answers: dict[int, tuple[list[int], list[int]]] = {}
        for lease, visit in done:
            for file in visit.robots:
                self._robots_fetched.pop(file.origin, None)
            child = self._holders.pop(lease.token, None)
            if child is not None and lease.token in child.unlearnt:
                child.unlearnt.discard(lease.token)
                won = visit.known.request.fingerprint not in lost
                answers.setdefault(child.number, ([], []))[0 if won else 1].append(lease.token)
        for number, (won_tokens, lost_tokens) in answers.items():
            self._children[number].send(Learnt(won_tokens, lost_tokens))

    def join(self, root: str) -> None:
        """Tell every child of a root that joined the scope."""
        if root not in self._roots and len(self._roots) < MAX_ROOTS:
            self._roots[root] = None
            for child in self._children:
                child.send(Joined([root]))

    def revoke(self, leases: Iterable[Lease]) -> None:
        """Kill the children that sat on a lease until it expired."""
        for lease in leases:
            child = self._holders.get(lease.token)
            if child is not None and child.process is not None and lease.token in child.leases:
                child.process.kill()

    async def run(self, desk: Desk) -> None:
        """Keep the children alive until cancelled."""
        self._desk = desk
        async with asyncio.TaskGroup() as group:
            self._group = group
            for child in self._children:
                group.create_task(self._tend(child), name=f"child-{child.number}")

    # -- children --------------------------------------------------------------------------------------

    async def _tend(self, child: _Child) -> None:
        """Start a child, wait until it is gone, report what it held, and start the next."""
        while True:
            await self._start(child)
            try:
                await child.gone.wait()
            finally:
                await self._end(child)
            self._bury(child)

    async def _start(self, child: _Child) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            child.process = await asyncio.create_subprocess_exec(
                *self._command,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                # A Ctrl-C in the terminal is for us: it must not reach a child, least of all one that is starting.
                start_new_session=True,
            )
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
        assert self._desk is not None
        self._desk.ready()

    async def _end(self, child: _Child) -> None:
        """Close the child's link; it leaves by itself, or is made to."""
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

    def _bury(self, child: _Child) -> None:
        held = list(child.leases.values())
        child.leases.clear()
        child.unlearnt.clear()
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

    def _received(self, child: _Child, message: ToParent) -> None:
        assert self._desk is not None
        match message:
            case Reported(reports):
                for report in reports:
                    self._reported(child, report)
                child.hand_over()
            case Started(starts):
                for token, at in starts:
                    if token in child.leases:
                        self._desk.started(child.leases[token], at)
            case Baked():
                self._share(child, message)
            case RobotsWanted(origin):
                assert self._group is not None
                self._group.create_task(self._send_robots(child, origin), name=f"robots {origin}")

    def _share(self, child: _Child, baked: Baked) -> None:
        """Let every other child have the cookies that one has received, also those that start later."""
        if self._cookies is not None:
            self._cookies.store(baked.url, baked.headers, self._clock())
        for sibling in self._children:
            if sibling is not child:
                sibling.send(baked)

    def _reported(self, child: _Child, wire: WireReport) -> None:
        lease = child.leases.pop(wire.token, None)
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

    async def _send_robots(self, child: _Child, origin: str) -> None:
        """Answer from the ledger. What it does not have, one child fetches and the others wait for."""
        stored = self._robots_fetched.get(origin) or await self._load_robots(origin)
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
