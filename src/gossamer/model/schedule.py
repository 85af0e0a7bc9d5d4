"""What a ledger and a schedule say to the engine: values that pass the seams of `contracts.py`."""

from __future__ import annotations

import msgspec

from gossamer.model.outcome import GroupState
from gossamer.model.request import Known, Lease


class Added(msgspec.Struct, frozen=True):
    """The effect of `Ledger.add`: how many were new, and the requests that now wait because of it."""

    new: int
    live: list[Known]


class HostInfo(msgspec.Struct, frozen=True):
    """What the schedule must know of a host before it may be leased."""

    host: str
    #: Page records committed so far.
    pages: int
    state: GroupState
    #: Not switched off by an operator, for whatever job.
    active: bool = True


class LogEntry(msgspec.Struct, frozen=True):
    """One committed batch of the record log: JSON objects, one a line."""

    position: int
    records: int
    lines: bytes


class Refill(msgspec.Struct, frozen=True):
    """The right to fill one host's window. At most one exists per host."""

    host: str
    token: int
    #: How many requests to ask of the ledger: what the window lacks and what it already has.
    limit: int


class Stall(msgspec.Struct, frozen=True):
    """A host taken off the schedule, and the reason its URLs are to be held for."""

    host: str
    reason: str


class Lost(msgspec.Struct, frozen=True):
    """A lease that its holder was silent about for too long."""

    lease: Lease
    #: Its start was reported and its end was not. Otherwise its holder may never have got to it, or was done with it.
    begun: bool


class Outlook(msgspec.Struct, frozen=True):
    """The schedule at a glance. `next_due` is None when nothing is waiting for a moment in time."""

    queued: int
    in_flight: int
    hosts: int
    next_due: float | None
    #: Leases that came back too late and changed nothing.
    stale: int = 0
    #: Who leases, as far as is known.
    workers: int = 1
    #: It was made anew, and leaves hosts alone for a moment: others may have asked them just before.
    is_new: bool = False
