"""Visits in batches, by count or by age, whichever comes first; one commit at a time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

from gossamer.config.settings import EngineSettings
from gossamer.model.outcome import Committed, Cursor, Visit
from gossamer.model.request import Lease
from gossamer.model.schedule import LogEntry

Done = tuple[Lease, Visit]
Commit = Callable[[str, Sequence[Done], Sequence[Cursor]], Awaitable[Committed]]


class Committer:
    """Collects finished visits and hands them to the frontier.

    `after` runs when a batch is in the ledger: caches learn, outputs are fed, the dispatcher wakes up.
    """

    def __init__(
        self,
        settings: EngineSettings,
        commit: Commit,
        cursors: Callable[[], list[Cursor]],
        after: Callable[[Sequence[Done], Committed], None],
        run_id: str,
    ) -> None:
        self._settings = settings
        self._commit = commit
        self._cursors = cursors
        self._after = after
        self._ids = (f"{run_id}-{number}" for number in itertools.count(1))
        self._pending: list[Done] = []
        self._committing: list[Done] = []
        self._due = asyncio.Event()
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def uncommitted(self) -> int:
        """Visits that are finished and not yet in the ledger."""
        return len(self._pending) + len(self._committing)

    def unfinished(self) -> list[Done]:
        """Return the visits that are not known to be in the ledger."""
        return [*self._committing, *self._pending]

    def put(self, done: Done) -> None:
        """Take a finished visit."""
        self._pending.append(done)
        if len(self._pending) >= self._settings.commit_pages:
            self._due.set()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._settings.commit_seconds, self._due.set)

    def hurry(self) -> None:
        """Commit what there is: nothing else can bring new work."""
        if self._pending:
            self._due.set()

    def close(self) -> None:
        """Let `run` end after it has committed what there is."""
        self._closing = True
        self._due.set()

    async def run(self) -> None:
        """Commit until closed and empty."""
        while not (self._closing and not self._pending):
            await self._due.wait()
            self._due.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._pending:
                await self._commit_pending()
            if self._closing:
                self._due.set()

    async def _commit_pending(self) -> None:
        batch, self._pending = parted(self._pending)
        if self._pending:
            self._due.set()
        self._committing = batch
        committed = await self._commit(next(self._ids), batch, self._cursors())
        self._committing = []
        self._after(batch, committed)


def parted(pending: Sequence[Done]) -> tuple[list[Done], list[Done]]:
    """Return the next batch and what must wait for the one after it.

    Two visits of a URL, a late one and that of whoever took its lease, do not go together: the ledger names URLs that lost,
    not visits.
    """
    batch, later = [], []
    settled: set[int] = set()
    for done in pending:
        visit = done[1]
        fingerprint = visit.known.request.fingerprint
        if fingerprint in settled:
            later.append(done)
            continue
        if visit.settles:
            settled.add(fingerprint)
        batch.append(done)
    return batch, later


def log_entry(committed: Committed) -> LogEntry:
    """Return a commit as the outputs read it."""
    return LogEntry(committed.position, committed.records, committed.lines)
