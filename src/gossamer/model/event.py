"""What a run tells those who watch it."""

from __future__ import annotations

import msgspec


class HostSpeed(msgspec.Struct, frozen=True):
    """How long a host takes to answer, in this run."""

    host: str
    fetches: int
    mean_seconds: float


class Snapshot(msgspec.Struct, frozen=True):
    """A run at one moment. Counts by state are the job's, over all its runs; the rest is this run's."""

    #: Seconds since the run began.
    elapsed: float
    #: URLs by state label and reason: {"fetched": {"ok": 12}, "queued": {"": 30}, …}.
    states: dict[str, dict[str, int]]
    #: Page records of the job, and of this run.
    pages: int
    run_pages: int
    #: Requests that went out, and bytes received, in this run.
    fetches: int
    wire_bytes: int
    retries: int
    #: URLs leased or waiting for their commit.
    in_flight: int
    #: Hosts on the schedule.
    hosts: int
    #: Seconds until the next host is due; None where nothing waits for a moment in time.
    next_due: float | None
    seeding: bool
    #: Why nothing more is fetched right now, in words; empty while it is.
    waiting: str = ""
    slowest: tuple[HostSpeed, ...] = ()
    #: Set while the run comes to its end: "draining: page limit", ….
    ending: str = ""

    def count(self, state: str) -> int:
        """Return the number of URLs in a state."""
        return sum(self.states.get(state, {}).values())
