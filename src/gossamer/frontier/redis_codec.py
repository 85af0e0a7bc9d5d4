"""What workers and scripts say to each other: requests packed small, and reports of what became of leases."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gossamer.model.outcome import GroupState, Pause
from gossamer.model.request import Known, Lease, Request, Source
from gossamer.model.schedule import HostInfo, Lost

#: A lease's number is unique in its partition; its token, `number * PARTITIONS + partition`, everywhere.
PARTITIONS = 1024
#: Fingerprint, position, priority and first moment of a request stand before it, for the scripts to read.
_HEAD = struct.Struct(">qQdd")
#: Bytes go to scripts as MessagePack strings, which theirs takes for bytes; of the type for bytes it knows nothing.
_FINGERPRINT = struct.Struct(">Bq")
_EIGHT_BYTES = 0xA8
_STRING = struct.Struct(">BI")
_LONG_STRING = 0xDB


class _Packed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A known request without its host, which names its window. What most requests lack comes last, and is left out."""

    url: str
    fingerprint: int
    seq: int
    attempt: int
    tries: int
    crashes: int
    not_before: float
    visit: int
    depth: int
    priority: int
    parent: str
    source: Source
    etag: str
    last_modified: str
    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    route: str = ""
    fetcher: str = "http"
    metadata: dict[str, str] = {}
    redirected_from: tuple[str, ...] = ()
    hop: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def _fingerprint(lease: Lease) -> msgspec.Raw:
    return msgspec.Raw(_FINGERPRINT.pack(_EIGHT_BYTES, lease.request.fingerprint))


def pack_known(known: Known) -> msgspec.Raw:
    """Pack a request for its window."""
    r = known.request
    plain = (
        r.url,
        r.fingerprint,
        known.seq,
        known.attempt,
        known.tries,
        known.crashes,
        known.not_before,
        known.visit,
        r.depth,
        r.priority,
        r.parent,
        r.source,
        known.etag,
        known.last_modified,
    )
    rest = (r.method, r.body, r.headers, r.route, r.fetcher, r.metadata, r.redirected_from, r.hop)
    head = _HEAD.pack(r.fingerprint, known.seq, r.priority, known.not_before)
    body = _encode(plain if rest == _ORDINARY else plain + rest)
    return msgspec.Raw(_STRING.pack(_LONG_STRING, len(head) + len(body)) + head + body)


#: What most requests have for the rest.
_ORDINARY: tuple[object, ...] = ("GET", b"", (), "", "http", {}, (), "")


def unpack_known(packed: bytes, host: str) -> Known:
    """Return the request that `pack_known` packed, without the bytes that stand before it."""
    p = _decode(packed)
    request = Request(
        p.url,
        p.fingerprint,
        host,
        p.depth,
        p.priority,
        p.parent,
        p.source,
        p.method,
        p.body,
        p.headers,
        p.route,
        p.fetcher,
        p.metadata,
        p.redirected_from,
        p.hop,
    )
    return Known(
        request, p.seq, p.attempt, p.tries, p.crashes, p.not_before, p.etag, p.last_modified, p.visit
    )


class Op(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A report about one lease, as `report.lua` reads it."""

    kind: str
    #: The number of the lease, and the request it must be for.
    n: int
    fp: msgspec.Raw
    #: When the request was started, or for a settlement when it was settled.
    at: float
    #: How many times as long as it must be the next delay is.
    stretch: float
    recorded: bool = False


class ReleaseOp(msgspec.Struct, frozen=True, gc=False):
    """The end of a fetch, as `report.lua` reads it: a `Pause`, in the time of the server."""

    n: int
    fp: msgspec.Raw
    at: float
    stretch: float
    delay: float | bool
    till: float
    #: 1 where the group failed, -1 where it answered, 0 where nothing is said.
    failed: int
    why: str
    slow: float | bool
    origin: str
    floor: float
    back: bool
    kind: str = "release"


def release_op(lease: Lease, pause: Pause, skew: float, stretch: float, *, put_back: bool) -> ReleaseOp:
    """Return what a release says. `skew` is how far the server's clock is ahead of ours."""
    failed = 0 if pause.failed is None else 1 if pause.failed else -1
    return ReleaseOp(
        lease.token // PARTITIONS,
        _fingerprint(lease),
        pause.started_at + skew if pause.started_at else 0.0,
        stretch,
        False if pause.delay is None else pause.delay,
        pause.until + skew if pause.until else 0.0,
        failed,
        pause.trouble,
        False if pause.slowness is None else pause.slowness,
        pause.origin,
        pause.floor,
        put_back,
    )


def lease_op(kind: str, lease: Lease, at: float, stretch: float, *, recorded: bool = False) -> Op:
    """Return a start or a settlement."""
    return Op(kind, lease.token // PARTITIONS, _fingerprint(lease), at, stretch, recorded)


class _Info(msgspec.Struct, frozen=True):
    host: str
    pages: int
    group: str
    last: float
    delay: float
    till: float
    fails: int
    slow: float


def info_of(info: HostInfo) -> _Info:
    """Return a host as `activate.lua` reads it."""
    s = info.state
    return _Info(
        info.host, info.pages, s.group, s.last_start, s.delay, s.until, min(s.failures, 1 << 30), s.slowness
    )


def leases_of(reply: Sequence[Any], partition: int, expires_at: float, epoch: int) -> Iterator[Lease]:
    """Return the leases of a reply of `lease.lua`; the first two entries are passed over."""
    for start in range(2, len(reply), 7):
        yield _lease(reply[start : start + 7], partition, expires_at, epoch)


def lost_of(reply: Sequence[Any], partition: int, skew: float, epoch: int) -> Iterator[Lost]:
    """Return the lost leases of a reply of `expire.lua`; the first entry is passed over."""
    for start in range(1, len(reply), 9):
        *parts, expires_at, begun = reply[start : start + 9]
        yield Lost(_lease(parts, partition, float(expires_at) - skew, epoch), bool(begun))


def _lease(parts: Sequence[Any], partition: int, expires_at: float, epoch: int) -> Lease:
    n, host, group, delay, failures, slowness, packed = parts
    return Lease(
        unpack_known(packed, host.decode()),
        int(n) * PARTITIONS + partition,
        expires_at,
        float(delay),
        int(failures),
        group.decode(),
        float(slowness),
        epoch,
    )


def rows_of(flat: Sequence[Any], width: int) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a reply that lists them one after the other."""
    return zip(*[iter(flat)] * width, strict=True)


def states_of(reply: Sequence[Any]) -> Iterator[GroupState]:
    """Return the clocks of a reply of `states.lua`."""
    for start in range(0, len(reply), 6):
        name, last, delay, until, failures, slowness = reply[start : start + 6]
        yield GroupState(
            name.decode(), float(last), float(delay), float(until), int(failures), float(slowness)
        )
