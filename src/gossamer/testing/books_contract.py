"""What every `Ledger` must keep besides URLs: counts, totals, roots and notes, and what revive brings back."""
# ruff: noqa: D102 - a test's name is its docstring

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from gossamer.contracts import Failpoint, JobLedger, no_failpoint
from gossamer.model.outcome import Crashed, Outcome, Retry, Revival, Settled, State, StoredCookie, Visit
from gossamer.policy.cookies import MAX_COOKIES
from gossamer.testing.frontier_cases import NOW, REDIRECTED, batch, found, names_of, visit
from gossamer.testing.ledger_contract import Cut, LedgerMaker, PowerCut, add_one

B = TypeVar("B", bound="BooksMaker")

DIED = Crashed(alone=True)
FAILED = Settled(State.FAILED, "http_404", status=404)
#: Whatever may be revived at all.
ALL = Revival((State.HELD, State.UNCHANGED, State.DUPLICATE, State.REFUSED, State.FAILED))


class BooksMaker(LedgerMaker):
    """How the contract gets at a ledger with books."""

    @abstractmethod
    async def make(self, place: Path, failpoint: Failpoint = no_failpoint) -> JobLedger:
        """Open the ledger that lives at `place`."""

    @abstractmethod
    async def recount(self, ledger: JobLedger) -> Counter[tuple[State, str]]:
        """Count the URLs by state and reason behind the ledger's back."""

    @asynccontextmanager
    async def books(self, place: Path, failpoint: Failpoint = no_failpoint) -> AsyncIterator[JobLedger]:
        """Make a ledger and close it in the end."""
        ledger = await self.make(place, failpoint)
        try:
            yield ledger
        finally:
            await ledger.close()


def on_books(test: Callable[[B, JobLedger], Awaitable[None]]) -> Callable[[B, Path], None]:
    """Run a test on a new ledger, in an event loop of its own."""

    def run(self: B, tmp_path: Path) -> None:
        async def main() -> None:
            async with self.books(tmp_path) as ledger:
                await test(self, ledger)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


class BooksContract(BooksMaker):
    """The numbers agree with the rows, and survive what fails."""

    @on_books
    async def test_counts_equal_a_recount_after_every_kind_of_change(self, ledger: JobLedger) -> None:
        names = [f"a.test/{number}" for number in range(8)]
        live = (await ledger.add([*map(found, names), found("a.test/far", depth=9, refusal="depth")])).live
        poison = msgspec.structs.replace(DIED, poison=True)
        outcomes: list[Outcome] = [FAILED, REDIRECTED, Retry("timeout", NOW), DIED, poison]
        for number, (item, outcome) in enumerate(zip(live, outcomes, strict=False)):
            await ledger.commit(batch(str(number), visit(item, outcome, found(f"b.test/{number}"))))
            assert await ledger.counts() == await self.recount(ledger)
        await ledger.commit(batch("late", visit(live[0]), visit(live[5]), visit(live[5])))
        await ledger.add([found("a.test/far", depth=1), found(names[1], chain=(names[1], names[2]))])
        assert await ledger.counts() == await self.recount(ledger)
        await ledger.hold("host_limit", "b.test")
        await ledger.hold("page_limit")
        assert await ledger.counts() == await self.recount(ledger)
        await ledger.revive(Revival((State.HELD,), "host_limit"))
        assert await ledger.counts() == await self.recount(ledger)
        assert (await ledger.counts())[State.QUEUED, ""] == 5

    @pytest.mark.parametrize("call", ["add", "commit", "hold", "revive"])
    def test_counts_equal_a_recount_after_a_failure(self, tmp_path: Path, call: str) -> None:
        async def main() -> None:
            cut = Cut()
            async with self.books(tmp_path, cut) as ledger:
                one, two, _ = (await ledger.add([found(f"a.test/{number}") for number in range(3)])).live
                await ledger.commit(batch("0", visit(two, FAILED)))
                cut.at = f"{call}:written"
                calls: dict[str, Callable[[], Awaitable[object]]] = {
                    "add": lambda: ledger.add([found("new.test/1")]),
                    "commit": lambda: ledger.commit(batch("1", visit(one, FAILED, found("new.test/1")))),
                    "hold": lambda: ledger.hold("page_limit"),
                    "revive": lambda: ledger.revive(ALL),
                }
                with pytest.raises(PowerCut):
                    await calls[call]()
                cut.at = ""
                await ledger.add([found("new.test/2")])
                assert await ledger.counts() == await self.recount(ledger)
                assert names_of(await ledger.take("new.test", 9, NOW)) == ["new.test/2"]

        asyncio.run(main())

    @on_books
    async def test_revive_queues_what_was_held_or_failed_and_nothing_that_was_fetched(
        self, ledger: JobLedger
    ) -> None:
        one, two, three = (await ledger.add([found(f"a.test/{number}") for number in range(3)])).live
        await ledger.commit(batch("1", visit(one), visit(two, FAILED)))
        await ledger.hold("robots_unreachable")
        assert await ledger.revive(Revival(tuple(State))) == 2
        taken = await ledger.take("a.test", 9, NOW)
        assert names_of(taken) == names_of([two, three])
        late = await ledger.commit(batch("late", visit(three)))
        assert late.lost == {three.request.fingerprint}
        assert (await ledger.commit(batch("2", *map(visit, taken)))).lost == frozenset()

    @pytest.mark.parametrize(
        ("which", "names"),
        [
            (Revival((State.FAILED,)), ["a.test/1", "b.test/1"]),
            (Revival((State.FAILED,), "http_404"), ["a.test/1"]),
            (Revival((State.FAILED,), except_reasons=("http_404", "depth")), ["b.test/1"]),
            (Revival((State.FAILED, State.HELD), host="b.test"), ["b.test/1", "b.test/2"]),
            (Revival((State.FAILED, State.HELD), max_depth=0), ["a.test/1", "b.test/1"]),
            (Revival((State.FAILED, State.HELD), pages_below=1), ["b.test/1", "b.test/2"]),
            (Revival((State.FAILED,), fingerprint=found("a.test/1").request.fingerprint), ["a.test/1"]),
        ],
    )
    def test_revive_queues_what_matches_and_nothing_else(
        self, tmp_path: Path, which: Revival, names: list[str]
    ) -> None:
        async def main() -> None:
            async with self.books(tmp_path) as ledger:
                seen = [found("a.test/0"), found("a.test/1"), found("b.test/1"), found("b.test/2", depth=3)]
                page, missing, slow, _ = (await ledger.add(seen)).live
                late = Settled(State.FAILED, "timeout")
                await ledger.commit(batch("1", visit(page), visit(missing, FAILED), visit(slow, late)))
                await ledger.hold("page_limit")
                assert await ledger.revive(which) == len(names)
                hosts, _ = await ledger.hosts(0, 9)
                live = [name for host in hosts for name in names_of(await ledger.take(host, 9, NOW))]
                assert sorted(live) == names
                assert await ledger.revive(which) == 0

        asyncio.run(main())

    @on_books
    async def test_totals_add_up_and_a_repeated_batch_adds_nothing(self, ledger: JobLedger) -> None:
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        for _ in range(2):
            await ledger.commit(batch("1", visit(one), visit(two, FAILED)))
        await ledger.commit(batch("2", visit(one)))
        assert await ledger.totals() == {"records": 1, "fetches": 3, "wire_bytes": 3000}

    @on_books
    async def test_roots_come_from_seeds_and_from_winning_visits(self, ledger: JobLedger) -> None:
        added = await ledger.add([found("a.test/1")], roots=["http://a.test"], progress="1")
        (one,) = added.live
        await ledger.add([], roots=["http://a.test"])
        won = visit(one, REDIRECTED)
        await ledger.commit(batch("1", _with_root(won, "http://b.test")))
        await ledger.commit(batch("2", _with_root(won, "http://late.test")))
        assert sorted(await ledger.roots(10)) == ["http://a.test", "http://b.test"]
        assert len(await ledger.roots(1)) == 1

    @on_books
    async def test_a_cookie_that_a_server_removed_is_forgotten_and_may_be_set_again(
        self, ledger: JobLedger
    ) -> None:
        one = await add_one(ledger, "a.test/1")
        steps = [
            (StoredCookie("a", b"1"), StoredCookie("b", b"2"), StoredCookie("c", b"3")),
            (StoredCookie("a", b"gone", removed=True), StoredCookie("none", b"gone", removed=True)),
            # Set and removed in one response, and the other way round.
            (StoredCookie("d", b"4"), StoredCookie("d", b"gone", removed=True)),
            (StoredCookie("c", b"gone", removed=True), StoredCookie("c", b"5")),
            (StoredCookie("a", b"gone", removed=True),),
            (StoredCookie("a", b"6"),),
        ]
        for number, step in enumerate(steps):
            await ledger.commit(batch(str(number), _with_cookies(visit(one), step)))
        assert await ledger.cookies() == [b"2", b"5", b"6"]

    @on_books
    async def test_what_was_removed_takes_no_place_from_the_cookies_that_are_kept(
        self, ledger: JobLedger
    ) -> None:
        one = await add_one(ledger, "a.test/1")
        many = [f"{number}" for number in range(MAX_COOKIES)]
        stay = tuple(StoredCookie(f"stay {key}", key.encode()) for key in many)
        come = tuple(StoredCookie(f"go {key}", b"x") for key in many[:100])
        go = tuple(StoredCookie(cookie.key, b"gone", removed=True) for cookie in come)
        for number, step in enumerate([stay[:-100], come, go, stay[-100:]]):
            await ledger.commit(batch(str(number), _with_cookies(visit(one), step)))
        assert await ledger.cookies() == [key.encode() for key in many]

    @on_books
    async def test_notes_are_kept_by_their_keys_and_seeding_is_one(self, ledger: JobLedger) -> None:
        assert await ledger.get_meta("seeding") == ""
        await ledger.add([found("a.test/1")], progress="17")
        assert await ledger.get_meta("seeding") == "17"
        await ledger.close_seeding()
        assert await ledger.get_meta("seeding") == "closed"
        await ledger.set_meta("other", "1")
        await ledger.set_meta("other", "2")
        assert await ledger.get_meta("other") == "2"

    @on_books
    async def test_what_a_crash_left_queued_is_not_revived_but_still_waits(self, ledger: JobLedger) -> None:
        one = await add_one(ledger, "a.test/1")
        (again,) = (await ledger.commit(batch("1", visit(one, DIED)))).live
        assert await ledger.revive(Revival(tuple(State))) == 0
        assert await ledger.take("a.test", 9, NOW) == [again]


def _with_cookies(sent: Visit, cookies: tuple[StoredCookie, ...]) -> Visit:
    return msgspec.structs.replace(sent, cookies=cookies)


def _with_root(sent: Visit, root: str) -> Visit:
    return msgspec.structs.replace(sent, root=root)
