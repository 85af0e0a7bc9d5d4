"""One clock for each host, shared by all jobs of a folder, so that two of them together keep its delay.

The clocks are a sparse file: in each of a million slots, when a request was last started and until when to rest. A
politeness group has one slot, by its hash; two groups that meet in one are only slower for it. Whoever wants to
start locks the slot's byte until the start is known. The kernel unlocks it when its holder dies, so nothing is left
behind, and the file can be deleted whenever no job is running.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from gossamer.errors import OutputFailed
from gossamer.frontier.window import Group

_SLOTS = 1 << 20
_CLOCK = struct.Struct("<dd")
#: A struct flock of Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
#: How soon to look again when another job is about to start a request.
_POLL_SECONDS = 0.05


class HostClocks:
    """The shared clocks of a jobs folder.

    * Between `claim` and `free`, no other job can start a request in the group.
    * A claim is granted only if the last start of any job is at least `delay` ago and none was told to wait.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Let go of the file and of everything claimed."""
        os.close(self._descriptor)

    def claim(self, group: str, now: float, delay: float, longest_rest: float) -> float:
        """Claim the group's clock and return 0.0, or the instant before which that cannot succeed.

        A rest of more than `longest_rest` seconds is not believed: the file may be damaged, or the system's clock
        was set back.
        """
        slot = _slot(group)
        if not self._lock(slot, fcntl.F_WRLCK):
            return now + _POLL_SECONDS
        started, until = self._read(slot)
        due = started + delay if started <= now else 0.0
        if now < until <= now + longest_rest:
            due = max(due, until)
        if due > now:
            self._lock(slot, fcntl.F_UNLCK)
            return due
        return 0.0

    def free(self, group: str, started_at: float) -> None:
        """Let others have the clock; `started_at` is when the request was started, or 0.0 where it was not."""
        slot = _slot(group)
        if started_at:
            self._write(slot, started_at, self._read(slot)[1])
        self._lock(slot, fcntl.F_UNLCK)

    def rest(self, group: str, until: float) -> None:
        """Let no job start a request in the group before `until`."""
        slot = _slot(group)
        started, known = self._read(slot)
        self._write(slot, started, max(known, until))

    def _read(self, slot: int) -> tuple[float, float]:
        with self._explained():
            packed = os.pread(self._descriptor, _CLOCK.size, slot * _CLOCK.size)
        started, until = _CLOCK.unpack(packed.ljust(_CLOCK.size, b"\0"))
        return started, until

    def _write(self, slot: int, started: float, until: float) -> None:
        with self._explained():
            os.pwrite(self._descriptor, _CLOCK.pack(started, until), slot * _CLOCK.size)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputFailed(
                f"{self._path}, the clocks that jobs share, failed ({error.strerror}): check its folder and the disk"
            ) from error

    def _lock(self, slot: int, kind: int) -> bool:
        try:
            if hasattr(fcntl, "F_OFD_SETLK"):
                # Of the open file and not of the process: two jobs of one process are two jobs.
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, slot, 1, 0))
            else:
                command = fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
                fcntl.lockf(self._descriptor, command, 1, slot)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise OutputFailed(f"{self._path} cannot be locked: {error.strerror}") from error
        return True


class Claims:
    """What a scheduler does with the clocks: it claims a group's before it leases, and frees it at the start.

    Without clocks to share everything is granted. A group without a delay has nothing to keep.
    """

    def __init__(self, clocks: HostClocks | None, longest_rest: float) -> None:
        self._clocks = clocks
        self._longest_rest = longest_rest

    def take(self, group: Group, now: float) -> bool:
        """Claim the group's clock, or make the group wait until it may be had."""
        if self._clocks is None or not group.delay or group.claimed:
            return True
        later = self._clocks.claim(group.name, now, group.delay, self._longest_rest)
        group.due = max(group.due, later)
        group.claimed = not later
        return group.claimed

    def begun(self, group: Group, token: int, at: float) -> None:
        """Note that a lease has started its request at `at`, or with 0.0 that it did not."""
        group.starting.discard(token)
        if group.claimed and not group.starting and self._clocks is not None:
            group.claimed = False
            self._clocks.free(group.name, at)

    def rest(self, group: Group, until: float) -> None:
        """Let other jobs hear of a pause."""
        if until and self._clocks is not None:
            self._clocks.rest(group.name, until)


def _slot(group: str) -> int:
    return xxhash.xxh3_64_intdigest(group.encode()) % _SLOTS
