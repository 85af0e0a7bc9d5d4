"""What parent and worker processes say to each other: MessagePack, never pickles."""

from __future__ import annotations

import struct

import msgspec

from gossamer.model.outcome import (
    Content,
    Crashed,
    Deferred,
    Fetch,
    Found,
    Hop,
    Pause,
    Retry,
    RobotsFile,
    Settled,
    StoredCookie,
    StoredRobots,
    Visit,
)
from gossamer.model.request import Known, Lease

_LENGTH = struct.Struct("<I")
HEADER_BYTES = _LENGTH.size
#: A frame holds at most a few hundred records; anything larger is not ours.
MAX_FRAME_BYTES = 1 << 30


class WireReport(msgspec.Struct, frozen=True, array_like=True):
    """A finished visit. The parent has the lease; only its token travels back."""

    token: int
    outcome: Settled | Retry | Hop | Deferred | Crashed
    record: bytes
    found: tuple[Found, ...]
    fetches: tuple[Fetch, ...]
    robots: tuple[RobotsFile, ...]
    root: str
    cookies: tuple[StoredCookie, ...]
    content: Content | None
    notes: tuple[str, ...]
    pause: Pause

    def visit(self, known: Known) -> Visit:
        """Return the visit as the worker made it, with the parent's copy of the request."""
        return Visit(
            known,
            self.outcome,
            self.record,
            self.found,
            self.fetches,
            self.robots,
            self.root,
            self.cookies,
            self.content,
            self.notes,
        )


def wire_report(token: int, visit: Visit, pause: Pause) -> WireReport:
    """Return what of a finished visit the parent does not have."""
    return WireReport(
        token,
        visit.outcome,
        visit.record,
        visit.found,
        visit.fetches,
        visit.robots,
        visit.root,
        visit.cookies,
        visit.content,
        visit.notes,
        pause,
    )


class Work(msgspec.Struct, frozen=True, tag="work"):
    """Parent to child: leases to visit."""

    leases: list[Lease]


class Stands(msgspec.Struct, frozen=True, tag="stands"):
    """Parent to child: the moment before which the request of a lease must begin, in place of its expiry."""

    token: int
    until: float


class Learnt(msgspec.Struct, frozen=True, tag="learnt"):
    """Parent to child: visits that are in the ledger, and visits that lost."""

    won: list[int]
    lost: list[int]


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Parent to child: roots that joined the scope."""

    roots: list[str]


class Baked(msgspec.Struct, frozen=True, tag="baked"):
    """Both ways: Set-Cookie headers a worker received, so that the others know them too."""

    url: str
    headers: list[str]


class Stocked(msgspec.Struct, frozen=True, tag="stocked"):
    """Parent to child, when it starts: the cookies there are; later: those that others have set or removed. As the jar writes them."""

    cookies: list[bytes]


class RobotsWanted(msgspec.Struct, frozen=True, tag="robots?"):
    """Child to parent: the question what the ledger has of the robots.txt of this origin."""

    origin: str


class RobotsKept(msgspec.Struct, frozen=True, tag="robots"):
    """Parent to child: the answer."""

    origin: str
    stored: StoredRobots


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Child to parent: first bytes about to go out, as (token, instant)."""

    starts: list[tuple[int, float]]


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """Child to parent: finished visits."""

    reports: list[WireReport]


ToChild = Work | Stands | Learnt | Joined | Baked | Stocked | RobotsKept
ToParent = Started | Reported | Baked | RobotsWanted

_encoder = msgspec.msgpack.Encoder()
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_to_parent = msgspec.msgpack.Decoder(ToParent).decode


def frame(message: ToChild | ToParent) -> bytes:
    """Return a message with its length before it."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Unframer:
    """Cuts a stream of bytes into the bodies of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes and return the frames they complete."""
        buffer = self._buffer
        buffer += data
        bodies = []
        start = 0
        while len(buffer) - start >= HEADER_BYTES:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            end = start + HEADER_BYTES + length
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[start + HEADER_BYTES : end]))
            start = end
        if start:
            del buffer[:start]
        return bodies
