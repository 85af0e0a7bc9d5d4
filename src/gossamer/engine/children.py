"""A worker process, as its parent sees it: the socket to it, and the leases it holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from gossamer.model.request import Lease
from gossamer.model.wire import ToChild, Unframer, Work, frame


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


class Child:
    """A worker process and the leases it holds: one at a time for each slot."""

    def __init__(self, number: int, slots: int) -> None:
        self.number = number
        self.slots = slots
        self.leases: dict[int, Lease] = {}
        #: Finished, reported, and waiting for their commit.
        self.unlearnt: set[int] = set()
        #: Not handed over yet, because the process is only being started.
        self.waiting: deque[Lease] = deque()
        self.link: Link | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.up = asyncio.Event()
        self.gone = asyncio.Event()
        #: Set while it holds nothing.
        self.idle = asyncio.Event()

    @property
    def free(self) -> int:
        """How many more leases it may have now."""
        return self.slots - len(self.leases) - len(self.waiting) if self.link is not None else 0

    def send(self, message: ToChild) -> None:
        """Send a message soon; one to a process that is gone is dropped."""
        if self.link is not None:
            self.link.send(frame(message))

    def take(self, lease: Lease) -> None:
        """Give it a lease, or keep it until there is a process to give it to."""
        self.waiting.append(lease)
        self.idle.clear()
        self.hand_over()

    def hand_over(self) -> None:
        """Send what waits, in order."""
        while self.waiting and self.link is not None:
            lease = self.waiting.popleft()
            self.leases[lease.token] = lease
            self.send(Work([lease]))

    def withdraw(self, lease: Lease) -> bool:
        """Take a lease back that no process has got; says whether that was so."""
        if lease not in self.waiting:
            return False
        self.waiting.remove(lease)
        self._note_idle()
        return True

    def give(self, token: int) -> Lease | None:
        """Return a lease it has done, if it was its own."""
        lease = self.leases.pop(token, None)
        self._note_idle()
        return lease

    def give_all(self) -> list[Lease]:
        """Return what a process held that is gone."""
        held = list(self.leases.values())
        self.leases.clear()
        self.unlearnt.clear()
        self._note_idle()
        return held

    def _note_idle(self) -> None:
        if not self.leases and not self.waiting:
            self.idle.set()
