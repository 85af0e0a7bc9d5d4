"""A worker process: visits what its parent leases to it, and leaves when the parent does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from gossamer.config.job_file import JobSpec
from gossamer.engine.children import Link
from gossamer.engine.crew import LocalCrew
from gossamer.engine.leash import signal_when_orphaned
from gossamer.engine.report import Report
from gossamer.model.outcome import Found, StoredCookie, StoredRobots
from gossamer.model.request import Lease
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
    ToChild,
    Work,
    decode_to_child,
    frame,
    wire_report,
)
from gossamer.parts import build_worker, identity_of, steady_clock
from gossamer.policy.cookies import CookieJar
from gossamer.policy.scope import Scope
from gossamer.scopes import SharedBrief, folder_job, shared_job


class SharedCookies:
    """A cookie jar that tells the parent of every cookie, so that the other children have it too."""

    def __init__(self, tell: Link) -> None:
        self._jar = CookieJar(by_port=True)
        self._tell = tell

    def store(self, url: str, set_cookie_headers: Sequence[str], now: float) -> tuple[StoredCookie, ...]:
        """Keep cookies and pass them on; returns what the ledger must write."""
        changed = self._jar.store(url, set_cookie_headers, now)
        self._tell.send(frame(Baked(url, list(set_cookie_headers))))
        return changed

    def hear(self, message: Baked | Stocked, now: float) -> None:
        """Keep what a sibling received, or all that the parent has at the start."""
        match message:
            case Baked(url, headers):
                self._jar.store(url, headers, now)
            case Stocked(cookies):
                self._jar.load(cookies, now)

    def header_for(self, url: str, now: float) -> str:
        """Return the Cookie header for a request."""
        return self._jar.header_for(url, now)


class Child:
    """The desk of a child's crew: everything is passed on to the parent."""

    def __init__(self, spec: JobSpec, scope: Scope) -> None:
        self._spec = spec
        self._clock = steady_clock()
        self.gone = asyncio.Event()
        self.link = Link(lambda body: self._received(decode_to_child(body)), self.gone.set)
        self._cookies = SharedCookies(self.link) if self._spec.settings.fetch.cookies else None
        worker, self._discoverer = build_worker(
            self._spec.settings,
            scope,
            self._robots,
            self._clock,
            follow=self._spec.mode == "crawl",
            cookies=self._cookies,
            identity=identity_of(self._spec),
        )
        # The parent gives no more leases than its credits allow: these are only as many hands as it may need.
        self._crew = LocalCrew(worker, self._discoverer, self._spec.settings.engine.concurrency)
        self._wanted: dict[str, asyncio.Future[StoredRobots]] = {}
        self._found: dict[int, tuple[Found, ...]] = {}
        #: The last word on a lease: only a cell gets it, which has one lease at a time.
        self._stands: Stands | None = None

    async def run(self) -> None:
        """Work until the parent closes the link."""
        crew = asyncio.create_task(self._crew.run(self), name="crew")
        gone = asyncio.create_task(self.gone.wait(), name="gone")
        await asyncio.wait([crew, gone], return_when=asyncio.FIRST_COMPLETED)
        if crew.done():
            await crew
        crew.cancel()

    def _received(self, message: ToChild) -> None:
        match message:
            case Work(leases):
                for lease in leases:
                    self._crew.submit(lease)
            case Stands():
                self._stands = message
            case Learnt():
                self._learn(message)
            case Joined(roots):
                for root in roots:
                    self._discoverer.join(root)
            case Baked() | Stocked():
                if self._cookies is not None:
                    self._cookies.hear(message, self._clock())
            case RobotsKept(origin, stored) if origin in self._wanted:
                self._wanted.pop(origin).set_result(stored)

    def _learn(self, learnt: Learnt) -> None:
        for token in learnt.won:
            self._discoverer.learn(self._found.pop(token, ()))
        for token in learnt.lost:
            self._found.pop(token, None)

    async def _robots(self, origin: str) -> StoredRobots:
        """Ask the parent what the ledger has."""
        future = self._wanted.get(origin)
        if future is None:
            future = self._wanted[origin] = asyncio.get_running_loop().create_future()
            self.link.send(frame(RobotsWanted(origin)))
        return await asyncio.shield(future)

    # -- Desk ------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Nothing to tell: the parent knows when it has started us."""

    def begin_by(self, lease: Lease) -> float:
        """Return what the parent last said of this lease, or its expiry."""
        stands = self._stands
        return stands.until if stands is not None and stands.token == lease.token else lease.expires_at

    def started(self, lease: Lease, at: float) -> None:
        """Pass a start on where the schedule needs it before the visit ends."""
        if lease.known.crashes or (lease.delay and self._spec.settings.politeness.per_host > 1):
            self.link.send(frame(Started([(lease.token, at)])))

    def reported(self, lease: Lease, report: Report) -> None:
        """Pass a finished visit on, and keep what it found until its commit."""
        visit = report.visit
        if visit.found:
            self._found[lease.token] = visit.found
        self.link.send(frame(Reported([wire_report(lease.token, visit, report.pause)])))

    def crashed(self, leases: Sequence[Lease], *, alone: bool) -> None:
        """Cannot happen: the crew of a child is the child itself."""
        raise AssertionError(leases, alone)


def _job(job_file: str) -> tuple[JobSpec, Scope]:
    """Return a job and its scope; `-` is a shared one, which the parent describes on standard input."""
    if job_file != "-":
        return folder_job(Path(job_file))
    return shared_job(msgspec.json.decode(sys.stdin.buffer.read(), type=SharedBrief))


async def _main(descriptor: int, job_file: str) -> None:
    child = Child(*_job(job_file))
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: child.link, sock=socket.socket(fileno=descriptor))
    await child.run()


def main() -> None:
    """Run a child: `python -m gossamer.child JOB_FILE|- DESCRIPTOR`."""
    # The parent decides when to stop. Whoever signals all of us at once, as a service manager does, means the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal_when_orphaned(signal.SIGKILL)
    job_file, descriptor = sys.argv[1:]
    uvloop.run(_main(int(descriptor), job_file))
    os._exit(0)  # nothing here needs an orderly end: what was not reported will be done again


if __name__ == "__main__":
    main()
