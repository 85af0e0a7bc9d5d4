"""What is known of the servers that shared jobs depend on, for whoever judges whether they will do."""

from __future__ import annotations

import msgspec


class ClockReading(msgspec.Struct, frozen=True):
    """How far away a server is, and how far its clock is ahead of ours, in seconds."""

    round_trip: float
    ahead: float


class PostgresFacts(msgspec.Struct, frozen=True):
    """A PostgreSQL as it presents itself."""

    #: As in `server_version_num`: 150004 is 15.4.
    version_number: int
    version: str
    #: Of our tables; empty where there are none.
    schema_version: str
    #: Why nothing can be written; empty where it can.
    unwritable: str
    clock: ClockReading


class RedisFacts(msgspec.Struct, frozen=True):
    """A Redis, or a Valkey, as it presents itself."""

    product: str
    version: str
    policy: str
    max_memory_bytes: int
    used_memory_bytes: int
    appends_to_file: bool
    #: Empty for a single server, else the state of the cluster it is a node of.
    cluster: str
    #: Why nothing can be written; empty where it can.
    unwritable: str
    clock: ClockReading
    #: It was the limit of its memory that kept us from writing.
    is_full: bool = False


def evicts(policy: str, max_memory_bytes: int) -> bool:
    """Say whether a Redis drops keys to make room, or will as soon as it is given a limit."""
    return policy.startswith("allkeys") or (max_memory_bytes > 0 and policy != "noeviction")


def best_reading(samples: list[tuple[float, float, float]]) -> ClockReading:
    """Return the median of the round trips, and the skew by the quickest of them, which is nearest to the truth.

    A sample is when a question was sent, what the server's clock showed, and when the answer was there.
    """
    trips = sorted(received - sent for sent, _, received in samples)
    sent, shown, received = min(samples, key=lambda sample: sample[2] - sample[0])
    return ClockReading(trips[len(trips) // 2], shown - (sent + received) / 2)
