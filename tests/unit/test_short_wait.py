"""Questions to a ledger that may be silent: who waits, for how long, and what becomes of the question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gossamer.engine.short_wait import ShortWait
from gossamer.errors import BackendLost, LeaseLost


class Ledger:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.awake = asyncio.Event()
        self.error: Exception | None = None

    async def ask(self, key: str) -> str:
        self.asked.append(key)
        await self.awake.wait()
        if self.error is not None:
            raise self.error
        return f"of {key}"


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in which no task may be left and no error forgotten."""
    forgotten: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: forgotten.append(context))
        await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(watched())
    assert forgotten == []


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_an_answer_that_comes_in_time_is_returned_to_all_who_asked_and_asked_for_once() -> None:
    async def main() -> None:
        ledger = Ledger()
        soon = ShortWait(60.0, ledger.ask)
        waiting = [asyncio.create_task(soon(key)) for key in ("a", "a", "b")]
        await settle()
        ledger.awake.set()
        assert await asyncio.gather(*waiting) == ["of a", "of a", "of b"]
        assert ledger.asked == ["a", "b"]
        assert await soon("a") == "of a"
        assert ledger.asked == ["a", "b", "a"]

    run(main)


def test_a_silent_ledger_costs_the_lease_and_is_not_asked_again_before_it_answered() -> None:
    async def main() -> None:
        ledger = Ledger()
        soon = ShortWait(0.01, ledger.ask)
        for _ in range(3):
            with pytest.raises(LeaseLost):
                await soon("a")
        assert ledger.asked == ["a"]
        ledger.awake.set()
        assert await soon("a") == "of a"
        assert ledger.asked == ["a"]

    run(main)


def test_an_error_is_raised_to_whoever_waits_and_forgotten_by_nobody() -> None:
    async def main() -> None:
        ledger = Ledger()
        ledger.error = BackendLost("it went away: start it")
        soon = ShortWait(0.01, ledger.ask)
        with pytest.raises(LeaseLost):
            await soon("a")
        ledger.awake.set()
        with pytest.raises(BackendLost):
            await soon("b")
        await settle()

    run(main)
