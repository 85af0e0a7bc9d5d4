"""Waiting for work that must not be left half-known: a commit, a transaction, a write to a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def let_it_be() -> None:
    """Let the work end by itself."""


async def finished(work: asyncio.Future[T], *, interrupt: Callable[[], None] = let_it_be) -> T:
    """Return what the work returns. A cancelled caller calls `interrupt`, then waits: nothing goes on behind its back."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        interrupt()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # looked at: the caller ends for another reason, and asyncio must not print this one
        raise
