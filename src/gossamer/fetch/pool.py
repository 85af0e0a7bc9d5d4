"""Idle connections, waiting to be used again."""

from __future__ import annotations

import asyncio

from gossamer.fetch.connection import Connection


class IdlePool:
    """Keeps idle connections by origin; the one used last is used first.

    At most `max_idle` are kept, none longer than `keep_seconds`; the oldest goes first. One timer serves them
    all: they expire in the order they came.
    """

    def __init__(self, keep_seconds: float, max_idle: int) -> None:
        self._keep_seconds = keep_seconds
        self._max_idle = max_idle
        self._stacks: dict[str, list[Connection]] = {}
        self._idle: dict[Connection, tuple[str, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, origin: str) -> Connection | None:
        """Hand over a live idle connection to `origin`, if there is one."""
        stack = self._stacks.get(origin)
        if stack is None:
            return None
        connection = stack.pop()
        if not stack:
            del self._stacks[origin]
        del self._idle[connection]
        return connection

    def give(self, origin: str, connection: Connection) -> None:
        """Take back a reusable connection, or close it if there is no room."""
        if self._closed or not self._max_idle:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        expires_at = loop.time() + self._keep_seconds
        self._idle[connection] = (origin, expires_at)
        stack = self._stacks.get(origin)
        if stack is None:
            self._stacks[origin] = [connection]
        else:
            stack.append(connection)
        if len(self._idle) > self._max_idle:
            self._drop(next(iter(self._idle)))
        if self._timer is None:
            self._timer = loop.call_at(expires_at, self._sweep)

    def discard(self, connection: Connection) -> None:
        """Forget a connection that was lost, if it was idle."""
        entry = self._idle.pop(connection, None)
        if entry is None:
            return
        stack = self._stacks[entry[0]]
        stack.remove(connection)
        if not stack:
            del self._stacks[entry[0]]

    def close(self) -> None:
        """Close every idle connection, and from now on every one that is given back."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._idle):
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self.discard(connection)
        connection.abort()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for connection, (_, expires_at) in list(self._idle.items()):
            if expires_at > now:
                self._timer = loop.call_at(expires_at, self._sweep)
                return
            self._drop(connection)
