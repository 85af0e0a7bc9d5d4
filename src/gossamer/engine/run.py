"""A run from the outside: start the loop, watch it, obey signals, and say how it ended."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from gossamer.contracts import Clock
from gossamer.engine.loop import Ending, Loop
from gossamer.errors import GossamerError
from gossamer.model.event import HostSpeed, Snapshot
from gossamer.model.outcome import State

_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Watcher(Protocol):
    """Somebody who is told how the run is going."""

    interval_seconds: float

    def update(self, snapshot: Snapshot) -> None:
        """Show the run as it is now."""
        ...

    def note(self, text: str) -> None:
        """Show a message once."""
        ...


class Run:
    """One run of a job."""

    def __init__(
        self,
        loop: Loop,
        counts: Callable[[], Awaitable[Counter[tuple[State, str]]]],
        earlier_pages: int,
        clock: Clock,
        insisted: Callable[[], object] = bool,
    ) -> None:
        self._loop = loop
        self._counts = counts
        self._earlier_pages = earlier_pages
        self._clock = clock
        #: Called when a second signal says that now is soon enough.
        self._insisted = insisted
        self._began = clock()
        #: The exit code of the signal that ended the run, or 0.
        self.signal_code = 0

    async def watched(self, watcher: Watcher) -> Ending:
        """Run to the end with somebody watching. The first signal drains, the second stops at once."""
        self._began = self._clock()
        work = asyncio.create_task(self._loop.run(), name="loop")
        watch = asyncio.create_task(self._watch(watcher), name="watch")
        try:
            with self._signals(work, watcher):
                return await work
        except asyncio.CancelledError:
            if not self.signal_code:
                raise
            return Ending.INTERRUPTED
        except BaseExceptionGroup as group:
            raise root_cause(group) from group
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    async def _watch(self, watcher: Watcher) -> None:
        while True:
            watcher.update(await self.snapshot())
            await asyncio.sleep(watcher.interval_seconds)

    @contextmanager
    def _signals(self, work: asyncio.Task[Ending], watcher: Watcher) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def interrupt(number: signal.Signals) -> None:
            if self.signal_code:
                work.cancel()
                self._insisted()
                return
            self.signal_code = _SIGNALS[number]
            watcher.note(
                "finishing the requests under way; press Ctrl-C again to stop at once (both are safe)"
            )
            self._loop.stop(Ending.INTERRUPTED)

        installed = []
        for number in _SIGNALS:
            # Only the main thread may handle signals: elsewhere, as in a notebook's thread, there are none to handle.
            with suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, interrupt, number)
                installed.append(number)
        try:
            yield
        finally:
            for number in installed:
                loop.remove_signal_handler(number)
                if self.signal_code:
                    # The end is near: whoever presses once more must not break what is being written down.
                    loop.add_signal_handler(number, _ignore)

    async def snapshot(self) -> Snapshot:
        """Return the run as it is now."""
        states = by_label(await self._counts())
        loop, tally = self._loop, self._loop.tally
        outlook = loop.outlook
        now = self._clock()
        slowest = sorted(tally.hosts.items(), key=lambda item: -item[1].mean)[:3]
        next_due = max(outlook.next_due - now, 0.0) if outlook.next_due is not None else None
        return Snapshot(
            elapsed=now - self._began,
            states=states,
            pages=self._earlier_pages + tally.pages,
            run_pages=tally.pages,
            fetches=tally.fetches,
            wire_bytes=tally.wire_bytes,
            retries=tally.retries.total(),
            in_flight=loop.in_flight,
            hosts=outlook.hosts,
            next_due=next_due,
            seeding=loop.seeding,
            waiting=_why_waiting(loop.in_flight, outlook.queued, next_due, is_new=outlook.is_new),
            slowest=tuple(HostSpeed(host, t.fetches, t.mean) for host, t in slowest),
            ending=f"draining: {loop.ending}" if loop.ending else "",
        )


def _ignore() -> None:
    """Do nothing about a signal."""


def by_label(counts: Counter[tuple[State, str]]) -> dict[str, dict[str, int]]:
    """Return the counts of a ledger by the label of the state, then by reason."""
    states: dict[str, dict[str, int]] = {}
    for (state, reason), n in counts.items():
        states.setdefault(state.label, {})[reason] = n
    return states


def _why_waiting(in_flight: int, queued: int, next_due: float | None, *, is_new: bool) -> str:
    if in_flight or not queued:
        return ""
    if next_due is None:
        return "waiting for the ledger"
    if is_new:
        return "waiting: the schedule in Redis is new"
    return (
        "keeping the delay of its hosts" if next_due < 5 else "its hosts asked for a pause or are backing off"
    )


@contextmanager
def one_cause() -> Iterator[None]:
    """Let the error that ended a group of tasks out of its group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise root_cause(group) from group


def root_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the run: ours, which says what to do, before anything else."""
    expected, other = group.split(GossamerError)
    first: BaseException = expected or other or group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
