"""What every `Ledger` must do: subclass `LedgerContract` as `Test…`, say how to make one, and pytest holds it to this."""
# ruff: noqa: D102 - a test's name is its docstring

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from gossamer.contracts import Failpoint, Ledger, no_failpoint
from gossamer.model.outcome import (
    ROBOTS_ASSUMED,
    ROBOTS_UNREACHABLE,
    Batch,
    Committed,
    Content,
    Crashed,
    Cursor,
    Deferred,
    Found,
    GroupState,
    Hop,
    Retry,
    RobotsFile,
    Settled,
    State,
    StoredCookie,
    StoredRobots,
    Visit,
)
from gossamer.model.request import Known, Request, Source
from gossamer.policy.cookies import MAX_COOKIES
from gossamer.testing.frontier_cases import (
    FETCHED,
    NOW,
    REDIRECTED,
    batch,
    fingerprint_of,
    found,
    known,
    names_of,
    record_of,
    request_for,
    url_of,
    visit,
)

C = TypeVar("C", bound="LedgerMaker")


class PowerCut(Exception):
    """What a failpoint raises in place of the end of the process."""


class LedgerMaker(ABC):
    """How the contract gets at a ledger of the backend under test."""

    #: Whether it keeps nothing of a finished URL but that it was seen. Then `state_of` does not know it, and `deepen`
    #: cannot tell what came nearer by way of it; all else is the same.
    forgets_finished = False

    def finished(self, state: State, reason: str) -> tuple[State, str] | None:
        """Return what `state_of` must say of a URL that is finished so."""
        return None if self.forgets_finished else (state, reason)

    @abstractmethod
    async def make(self, place: Path, failpoint: Failpoint = no_failpoint) -> Ledger:
        """Open the ledger that lives at `place`; a second call, after `close`, opens the same one again."""

    @abstractmethod
    async def state_of(self, ledger: Ledger, fingerprint: int) -> tuple[State, str] | None:
        """Read state and reason of a URL behind the ledger's back; None for one it does not know."""

    @abstractmethod
    async def fetch_count(self, ledger: Ledger) -> int:
        """Count the rows of the fetch log behind the ledger's back."""

    @asynccontextmanager
    async def opened(self, place: Path, failpoint: Failpoint = no_failpoint) -> AsyncIterator[Ledger]:
        """Make a ledger and close it in the end."""
        ledger = await self.make(place, failpoint)
        try:
            yield ledger
        finally:
            await ledger.close()


def on_ledger(test: Callable[[C, Ledger], Awaitable[None]]) -> Callable[[C, Path], None]:
    """Run a test on a new ledger, in an event loop of its own."""

    def run(self: C, tmp_path: Path) -> None:
        async def main() -> None:
            async with self.opened(tmp_path) as ledger:
                await test(self, ledger)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


async def contents(ledger: Ledger) -> tuple[object, ...]:
    """Read all a ledger answers to questions, so that two moments can be compared."""
    hosts, after = await ledger.hosts(0, 100)
    assert after == 0
    # Numbers may have gaps, as after a rollback: only their order counts, and that is the order of the list.
    live = [
        [msgspec.structs.replace(item, seq=0) for item in await ledger.take(host, 100, NOW)]
        for host in sorted(hosts)
    ]
    infos = await ledger.host_info(["a.test", "b.test"])
    robots = (await ledger.robots("http://a.test"), await ledger.cookies())
    return live, infos, robots, await ledger.log(0, 100), await ledger.cursors(), await ledger.is_drained()


async def add_one(ledger: Ledger, name: str) -> Known:
    """Add a URL that must be new."""
    added = await ledger.add([found(name)])
    assert added.new == 1
    return added.live[0]


class AddContract(LedgerMaker):
    """A fingerprint is accepted once; finding it again may only improve it."""

    @on_ledger
    async def test_add_counts_what_is_new_and_returns_it_as_live_in_the_order_found(
        self, ledger: Ledger
    ) -> None:
        names = [f"a.test/{number}" for number in (3, 1, 2)]
        added = await ledger.add([found(name) for name in names])
        assert added.new == 3
        assert names_of(added.live) == names
        assert await ledger.take("a.test", 10, NOW) == added.live

    @on_ledger
    async def test_adding_again_changes_nothing(self, ledger: Ledger) -> None:
        await ledger.add([found("a.test/1", depth=1), found("a.test/2", refusal="scope")])
        before = await contents(ledger)
        again = await ledger.add([found("a.test/1", depth=1), found("a.test/2", refusal="scope")])
        assert (again.new, again.live) == (0, [])
        assert await contents(ledger) == before

    @on_ledger
    async def test_duplicates_inside_one_add_count_once_and_the_best_finding_wins(
        self, ledger: Ledger
    ) -> None:
        refused, far, near = (
            found("a.test/1", depth=0, refusal="excluded"),
            found("a.test/1", depth=3),
            found("a.test/1", depth=2),
        )
        added = await ledger.add([refused, far, near, far])
        assert added.new == 1
        assert [item.request.depth for item in added.live] == [2]
        assert [item.request.depth for item in await ledger.take("a.test", 10, NOW)] == [2]

    @on_ledger
    async def test_many_duplicates_over_several_lookups_are_all_recognised(self, ledger: Ledger) -> None:
        many = [found(f"a.test/{number}") for number in range(250)]
        assert (await ledger.add(many)).new == 250
        assert (await ledger.add([*many, found("a.test/new")])).new == 1

    @on_ledger
    async def test_a_refused_finding_is_remembered_with_its_reason_and_does_not_wait(
        self, ledger: Ledger
    ) -> None:
        added = await ledger.add([found("a.test/1", refusal="scope")])
        assert (added.new, added.live) == (1, [])
        assert await ledger.hosts(0, 10) == ([], 0)
        assert await self.state_of(ledger, fingerprint_of("a.test/1")) == self.finished(
            State.REFUSED, "scope"
        )

    @on_ledger
    async def test_fingerprints_use_all_64_bits(self, ledger: Ledger) -> None:
        ends = (-(2**63), -1, 0, 2**63 - 1)
        added = await ledger.add([Found(Request(url_of(f"a.test/{fp}"), fp, "a.test")) for fp in ends])
        assert added.new == 4
        assert {item.request.fingerprint for item in await ledger.take("a.test", 9, NOW)} == set(ends)

    @on_ledger
    async def test_a_request_comes_back_whole(self, ledger: Ledger) -> None:
        request = msgspec.structs.replace(
            request_for("a.test/form", depth=2, priority=-5),
            source=Source.SEED,
            method="POST",
            body=b"\x00\xff",
            headers=(("accept", "a/b"), ("accept", "c/d")),
            route="search",
            fetcher="browser",
            metadata={"key": "wörd"},
        )
        await ledger.add([Found(request)])
        assert [item.request for item in await ledger.take("a.test", 1, NOW)] == [request]

    @on_ledger
    async def test_a_smaller_depth_improves_a_queued_url(self, ledger: Ledger) -> None:
        await ledger.add([found("a.test/1", depth=5)])
        assert (await ledger.add([found("a.test/1", depth=2)])).new == 0
        assert [item.request.depth for item in await ledger.take("a.test", 9, NOW)] == [2]
        await ledger.add([found("a.test/1", depth=4)])
        assert [item.request.depth for item in await ledger.take("a.test", 9, NOW)] == [2]

    @on_ledger
    async def test_a_better_priority_improves_a_queued_url_and_its_turn(self, ledger: Ledger) -> None:
        await ledger.add([found("a.test/1", priority=5), found("a.test/2", priority=5)])
        await ledger.add([found("a.test/2", priority=1, depth=7)])
        taken = await ledger.take("a.test", 9, NOW)
        assert names_of(taken) == ["a.test/2", "a.test/1"]
        assert taken[0].request.depth == 0

    @on_ledger
    async def test_a_smaller_depth_reopens_what_only_its_depth_had_refused(self, ledger: Ledger) -> None:
        await ledger.add([found("a.test/1", depth=9, refusal="depth")])
        still = await ledger.add([found("a.test/1", depth=8, refusal="depth")])
        assert still.live == []
        reopened = await ledger.add([found("a.test/1", depth=3)])
        assert (reopened.new, names_of(reopened.live)) == (0, ["a.test/1"])
        taken = await ledger.take("a.test", 9, NOW)
        assert [item.request.depth for item in taken] == [item.request.depth for item in reopened.live] == [3]

    @on_ledger
    async def test_a_smaller_depth_reopens_nothing_that_was_refused_settled_or_held_otherwise(
        self, ledger: Ledger
    ) -> None:
        await ledger.add([found("a.test/scope", depth=5, refusal="scope")])
        seen = await ledger.add([found(f"a.test/{name}", depth=5) for name in ("done", "failed", "held")])
        failed = visit(seen.live[1], Settled(State.FAILED, "http_404", status=404))
        await ledger.commit(batch("1", visit(seen.live[0]), failed))
        await ledger.hold("page_limit")
        again = await ledger.add(
            [found(f"a.test/{name}", depth=1) for name in ("scope", "done", "failed", "held")]
        )
        assert (again.new, again.live) == (0, [])
        assert await ledger.hosts(0, 10) == ([], 0)

    @on_ledger
    async def test_a_page_found_nearer_after_its_fetch_brings_its_links_nearer(self, ledger: Ledger) -> None:
        added = await ledger.add([found("a.test/seed"), found("a.test/late", depth=2)])
        links = [
            found("a.test/link", depth=3, refusal="depth"),
            found("a.test/far", depth=9, refusal="depth"),
        ]
        await ledger.commit(batch("1", visit(added.live[1], FETCHED, *links[:1])))
        await ledger.commit(
            batch("2", visit(added.live[0], FETCHED, found("a.test/late", depth=1), links[1]))
        )
        if self.forgets_finished:
            assert await ledger.deepen(2) == 0
            return
        assert await ledger.deepen(2) == 2
        taken = {item.request.url: item.request.depth for item in await ledger.take("a.test", 9, NOW)}
        assert taken == {url_of("a.test/link"): 2, url_of("a.test/far"): 1}
        assert await ledger.deepen(2) == 0

    def test_what_was_added_survives_closing(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with self.opened(tmp_path) as ledger:
                await ledger.add(
                    [found("a.test/1"), found("b.test/1")], roots=["http://a.test"], progress="2"
                )
                first = visit((await ledger.take("a.test", 1, NOW))[0], FETCHED, found("a.test/2"))
                await ledger.commit(batch("1", first))
                await ledger.save_cursors([Cursor("out.jsonl", 1, 2, 3)])
                before = await contents(ledger)
            async with self.opened(tmp_path) as ledger:
                assert await contents(ledger) == before
                assert (await ledger.add([found("a.test/1"), found("a.test/2"), found("a.test/3")])).new == 1

        asyncio.run(main())


class CommitContract(LedgerMaker):
    """A batch is one transaction; a visit counts only if its URL is still live at the attempt it names."""

    @on_ledger
    async def test_a_commit_settles_records_adds_links_and_logs_the_fetch(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        done = await ledger.commit(batch("1", visit(one, FETCHED, found("b.test/2", depth=1))))
        assert (done.lost, done.added, done.repeated, names_of(done.live)) == (
            frozenset(),
            1,
            False,
            ["b.test/2"],
        )
        assert await self.state_of(ledger, one.request.fingerprint) == self.finished(State.FETCHED, "ok")
        assert await ledger.take("a.test", 9, NOW) == []
        assert [item.request.parent for item in await ledger.take("b.test", 9, NOW)] == [one.request.url]
        assert [entry.lines for entry in await ledger.log(0, 9)] == [record_of(one) + b"\n"]
        assert await self.fetch_count(ledger) == 1

    @pytest.mark.parametrize("stale", ["settled", "retried", "crashed", "held", "never added"])
    def test_a_stale_visit_changes_nothing_but_its_fetches_are_kept(self, tmp_path: Path, stale: str) -> None:
        async def main() -> None:
            async with self.opened(tmp_path) as ledger:
                late = await add_one(ledger, "a.test/1") if stale != "never added" else known("a.test/1")
                await self._overtake(ledger, late, stale)
                before, fetches = await contents(ledger), await self.fetch_count(ledger)
                done = await ledger.commit(batch("late", visit(late, FETCHED, found("b.test/2"))))
                assert done.lost == {late.request.fingerprint}
                assert (done.added, done.live) == (0, [])
                assert await contents(ledger) == before
                assert await self.fetch_count(ledger) == fetches + 1

        asyncio.run(main())

    async def _overtake(self, ledger: Ledger, late: Known, how: str) -> None:
        match how:
            case "settled":
                await ledger.commit(batch("first", visit(late)))
            case "retried":
                await ledger.commit(batch("first", visit(late, Retry("timeout", NOW))))
            case "crashed":
                await ledger.commit(batch("first", visit(late, Crashed(alone=False))))
            case "held":
                await ledger.hold("page_limit")

    @on_ledger
    async def test_links_become_known_through_winners_only(self, ledger: Ledger) -> None:
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        await ledger.commit(batch("1", visit(one)))
        done = await ledger.commit(
            batch("2", visit(one, FETCHED, found("b.test/lost")), visit(two, FETCHED, found("b.test/won")))
        )
        assert done.lost == {one.request.fingerprint}
        assert names_of(done.live) == ["b.test/won"]
        assert (await ledger.add([found("b.test/won")])).new == 0
        assert (await ledger.add([found("b.test/lost")])).new == 1

    @on_ledger
    async def test_of_two_visits_of_one_url_in_a_batch_one_counts(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        done = await ledger.commit(batch("1", visit(one), visit(one)))
        assert done.lost == {one.request.fingerprint}
        assert [entry.records for entry in await ledger.log(0, 9)] == [1]

    @on_ledger
    async def test_the_same_batch_again_is_recognised_and_answered_alike(self, ledger: Ledger) -> None:
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        await ledger.commit(batch("0", visit(two)))
        sent = batch("1", visit(one, FETCHED, found("a.test/3")), visit(two))
        first = await ledger.commit(sent)
        before, fetches = await contents(ledger), await self.fetch_count(ledger)
        again = await ledger.commit(sent)
        assert (again.repeated, again.position, again.lost) == (True, first.position, first.lost)
        assert first.lost == {two.request.fingerprint}
        assert await contents(ledger) == before
        assert await self.fetch_count(ledger) == fetches

    def test_a_lost_commit_reply_does_no_harm(self, tmp_path: Path) -> None:
        async def main() -> None:
            cut = Cut()
            async with self.opened(tmp_path, cut) as ledger:
                sent = batch("1", visit(await add_one(ledger, "a.test/1"), FETCHED, found("a.test/2")))
                cut.at = "commit:done"
                with pytest.raises(PowerCut):
                    await ledger.commit(sent)
                cut.at = ""
                assert (await ledger.commit(sent)).repeated
                assert [entry.records for entry in await ledger.log(0, 9)] == [1]
                assert names_of(await ledger.take("a.test", 9, NOW)) == ["a.test/2"]

        asyncio.run(main())

    @on_ledger
    async def test_a_cancelled_commit_can_be_sent_again(self, ledger: Ledger) -> None:
        sent = batch("1", visit(await add_one(ledger, "a.test/1"), FETCHED, found("a.test/2")))
        task = asyncio.create_task(ledger.commit(sent))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ledger.commit(sent)
        assert [entry.records for entry in await ledger.log(0, 9)] == [1]
        assert names_of(await ledger.take("a.test", 9, NOW)) == ["a.test/2"]

    @on_ledger
    async def test_a_retry_waits_for_its_moment_at_the_next_attempt(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        done = await ledger.commit(batch("1", visit(one, Retry("timeout", NOW + 60, "no answer"))))
        (again,) = done.live
        assert (again.attempt, again.not_before, again.crashes) == (one.attempt + 1, NOW + 60, 0)
        assert await ledger.take("a.test", 9, NOW) == [again]
        assert await ledger.log(0, 9) == []

    @on_ledger
    async def test_a_crash_is_counted_apart_and_leaves_the_dead_worker_stale(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        (again,) = (await ledger.commit(batch("1", visit(one, Retry("timeout", NOW))))).live
        (shared,) = (await ledger.commit(batch("2", visit(again, Crashed(alone=False))))).live
        (alone,) = (await ledger.commit(batch("3", visit(shared, Crashed(alone=True))))).live
        assert [item.crashes for item in (again, shared, alone)] == [0, 1, 2]
        assert [item.tries for item in (one, again, shared, alone)] == [0, 1, 1, 1]
        assert await ledger.take("a.test", 9, NOW) == [alone]
        assert (await ledger.commit(batch("4", visit(shared)))).lost == {one.request.fingerprint}

    @on_ledger
    async def test_poison_is_failed_for_good(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        done = await ledger.commit(batch("1", visit(one, Crashed(alone=True, poison=True))))
        assert (done.lost, done.live) == (frozenset(), [])
        assert await self.state_of(ledger, one.request.fingerprint) == (State.FAILED, "poison")
        assert await ledger.hosts(0, 9) == ([], 0)

    @on_ledger
    async def test_a_hop_keeps_the_url_open_under_its_name_and_moves_it_to_the_host_it_leads_to(
        self, ledger: Ledger
    ) -> None:
        one = await add_one(ledger, "a.test/1")
        onward = msgspec.structs.replace(one.request, host="b.test", hop="http://b.test/2")
        done = await ledger.commit(batch("1", visit(one, Hop(onward))))
        assert [item.request for item in done.live] == [onward]
        assert await ledger.take("b.test", 9, NOW) == done.live
        assert await ledger.take("a.test", 9, NOW) == []
        assert (await ledger.commit(batch("2", visit(done.live[0])))).lost == frozenset()

    @on_ledger
    async def test_a_deferred_visit_changes_nothing_about_its_url(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        done = await ledger.commit(batch("1", visit(one, Deferred())))
        assert (done.lost, done.live) == (frozenset(), [])
        assert await ledger.take("a.test", 9, NOW) == [one]
        assert await self.fetch_count(ledger) == 1

    @on_ledger
    async def test_redirects_back_into_their_own_chain_reopen_a_url_once(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        (two,) = (
            await ledger.commit(batch("1", visit(one, REDIRECTED, found("a.test/2", chain=("a.test/1",)))))
        ).live
        back = found("a.test/1", chain=("a.test/1", "a.test/2"))
        (again,) = (await ledger.commit(batch("2", visit(two, REDIRECTED, back)))).live
        assert again.attempt > one.attempt
        assert await ledger.take("a.test", 9, NOW) == [again]
        await ledger.commit(batch("3", visit(again, REDIRECTED)))
        assert (await ledger.add([back])).live == []
        assert await ledger.hosts(0, 9) == ([], 0)

    @on_ledger
    async def test_a_redirect_to_a_settled_url_outside_its_chain_reopens_nothing(
        self, ledger: Ledger
    ) -> None:
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        await ledger.commit(batch("1", visit(one, REDIRECTED)))
        target = found("a.test/1", chain=("a.test/2",))
        assert (await ledger.commit(batch("2", visit(two, REDIRECTED, target)))).live == []


class ReadContract(LedgerMaker):
    """What a ledger answers is what was written to it, in order."""

    @on_ledger
    async def test_take_returns_due_requests_by_priority_and_age_then_those_that_wait(
        self, ledger: Ledger
    ) -> None:
        waits = await add_one(ledger, "a.test/waits")
        await ledger.commit(batch("1", visit(waits, Retry("timeout", NOW + 5))))
        await ledger.add([found("a.test/low", priority=9), found("a.test/old"), found("a.test/new")])
        names = ["a.test/old", "a.test/new", "a.test/low", "a.test/waits"]
        assert names_of(await ledger.take("a.test", 9, NOW)) == names
        assert names_of(await ledger.take("a.test", 2, NOW)) == names[:2]
        assert names_of(await ledger.take("a.test", 9, NOW + 5)) == ["a.test/waits", *names[:3]]
        assert await ledger.take("unknown.test", 9, NOW) == []

    @on_ledger
    async def test_hosts_pages_through_all_hosts_with_live_urls_and_no_others(self, ledger: Ledger) -> None:
        live = [f"h{number}.test" for number in range(7)]
        await ledger.add([found(f"{host}/{page}") for host in live for page in range(3)])
        done = await add_one(ledger, "done.test/1")
        await ledger.commit(batch("1", visit(done)))
        await ledger.add([found("refused.test/1", refusal="scope")])
        for limit in (1, 3, 7, 100):
            seen, after = await ledger.hosts(0, limit)
            while after:
                page, after = await ledger.hosts(after, limit)
                seen += page
            assert sorted(seen) == live

    @on_ledger
    async def test_the_record_log_keeps_commit_order_and_every_byte(self, ledger: Ledger) -> None:
        items = (await ledger.add([found(f"a.test/{number}") for number in range(6)])).live
        records = [msgspec.json.encode({"n": n, "text": "ü\n" * n}) for n in range(6)]
        visits = [msgspec.structs.replace(visit(i), record=r) for i, r in zip(items, records, strict=True)]
        first = await ledger.commit(batch("z", *visits[:2]))
        second = await ledger.commit(batch("a", visits[2]))
        empty = await ledger.commit(batch("m", visit(items[3], Retry("timeout", NOW))))
        last = await ledger.commit(batch("b", visits[4], visits[5]))
        entries = await ledger.log(0, 99)
        assert [entry.position for entry in entries] == [first.position, second.position, last.position]
        assert first.position < second.position < empty.position < last.position
        assert [entry.records for entry in entries] == [2, 1, 2]
        assert [sorted(entry.lines.splitlines()) for entry in entries] == [
            sorted(records[:2]),
            [records[2]],
            sorted(records[4:]),
        ]
        assert await ledger.log(0, 2) == entries[:2]
        assert await ledger.log(first.position, 99) == entries[1:]
        assert await ledger.log(last.position, 99) == []

    @on_ledger
    async def test_cursors_are_kept_per_output_and_the_last_one_counts(self, ledger: Ledger) -> None:
        await ledger.save_cursors([Cursor("a.jsonl", 1, 10, 1), Cursor("b.csv")])
        await ledger.commit(Batch("1", (), cursors=(Cursor("a.jsonl", 2, 20, 3),)))
        kept = sorted(await ledger.cursors(), key=lambda cursor: cursor.output)
        assert kept == [Cursor("a.jsonl", 2, 20, 3), Cursor("b.csv")]

    @on_ledger
    async def test_cookies_are_kept_by_their_keys_in_the_order_they_were_set_whoever_brought_them(
        self, ledger: Ledger
    ) -> None:
        one = await add_one(ledger, "a.test/1")
        steps = [{"a": b"1", "b": b"2", "c": b"3"}, {"a": b"4", "c": b""}, {"d": b"5", "none": b""}]
        for number, step in enumerate(steps):
            cookies = tuple(StoredCookie(key, data) for key, data in step.items())
            # From the second on they have lost: the URL is settled. But their cookies did arrive.
            await ledger.commit(batch(str(number), msgspec.structs.replace(visit(one), cookies=cookies)))
        assert await ledger.cookies() == [b"2", b"4", b"5"]

    @on_ledger
    async def test_as_many_cookies_are_kept_as_a_jar_holds_the_newest(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        many = [b"%d" % number for number in range(MAX_COOKIES + 10)]
        cookies = tuple(StoredCookie(data.decode(), data) for data in many)
        await ledger.commit(batch("0", msgspec.structs.replace(visit(one), cookies=cookies)))
        assert await ledger.cookies() == many[-MAX_COOKIES:]

    @on_ledger
    async def test_the_newest_robots_file_of_an_origin_wins(self, ledger: Ledger) -> None:
        one = await add_one(ledger, "a.test/1")
        new = RobotsFile("http://a.test", NOW, 200, b"Disallow: /\xff", 7)
        old = RobotsFile("http://a.test", NOW - 50, 200, b"Allow: /", -8)
        none = RobotsFile("http://b.test", NOW, 404, b"", 9)
        for number, file in enumerate((new, old, none)):
            sent = msgspec.structs.replace(visit(one, Deferred()), robots=(file,))
            await ledger.commit(batch(str(number), sent))
        assert await ledger.robots("http://a.test") == StoredRobots(new)
        assert await ledger.robots("http://b.test") == StoredRobots(none)
        assert await ledger.robots("http://c.test") == StoredRobots()

    @on_ledger
    async def test_a_robots_txt_that_does_not_answer_is_noted_from_its_first_failure_to_its_next_answer(
        self, ledger: Ledger
    ) -> None:
        one = await add_one(ledger, "a.test/1")

        async def commit(at: float, status: int) -> StoredRobots:
            file = RobotsFile("http://a.test", at, status, b"", 7)
            sent = msgspec.structs.replace(visit(one, Deferred()), robots=(file,))
            await ledger.commit(batch(str(at), sent))
            return await ledger.robots("http://a.test")

        assert await commit(NOW, ROBOTS_UNREACHABLE) == StoredRobots(None, NOW)
        assert (await commit(NOW + 1, ROBOTS_UNREACHABLE)).unreachable_since == NOW
        assumed = RobotsFile("http://a.test", NOW + 2, ROBOTS_ASSUMED, b"", 7)
        assert await commit(NOW + 2, ROBOTS_ASSUMED) == StoredRobots(assumed, NOW)
        answer = RobotsFile("http://a.test", NOW + 3, 404, b"", 7)
        assert await commit(NOW + 3, 404) == StoredRobots(answer)
        assert await commit(NOW + 4, ROBOTS_UNREACHABLE) == StoredRobots(answer, NOW + 4)
        assert await ledger.robots("http://b.test") == StoredRobots()

    @on_ledger
    async def test_host_info_counts_page_records_and_remembers_the_group_clock(self, ledger: Ledger) -> None:
        one, two, three = (await ledger.add([found(f"a.test/{number}") for number in range(3)])).live
        state = GroupState("a.test", NOW, 2.5, NOW + 60, 3)
        await ledger.commit(
            batch("1", visit(one), visit(two, REDIRECTED), groups=(GroupState("a.test", 1.0),))
        )
        await ledger.commit(batch("2", visit(three), visit(one), groups=(state,)))
        infos = await ledger.host_info(["a.test", "unknown.test"])
        assert [(item.host, item.pages) for item in infos] == [("a.test", 2), ("unknown.test", 0)]
        assert [item.state for item in infos] == [state, GroupState("unknown.test")]

    @on_ledger
    async def test_a_job_is_drained_when_seeding_is_closed_and_nothing_is_live(self, ledger: Ledger) -> None:
        assert not await ledger.is_drained()
        one = await add_one(ledger, "a.test/1")
        await ledger.close_seeding()
        assert not await ledger.is_drained()
        (again,) = (await ledger.commit(batch("1", visit(one, Retry("timeout", NOW + 9))))).live
        assert not await ledger.is_drained()
        await ledger.commit(batch("2", visit(again)))
        assert await ledger.is_drained()

    @on_ledger
    async def test_held_urls_are_not_live_and_hold_up_nothing(self, ledger: Ledger) -> None:
        await ledger.add([found("a.test/1"), found("a.test/2"), found("b.test/1")])
        await ledger.close_seeding()
        assert await ledger.hold("host_limit", "a.test") == 2
        assert await ledger.hosts(0, 9) == (["b.test"], 0)
        assert await self.state_of(ledger, fingerprint_of("a.test/1")) == (State.HELD, "host_limit")
        assert await ledger.hold("page_limit") == 1
        assert await ledger.hold("page_limit") == 0
        assert await ledger.is_drained()


class DuplicateContract(LedgerMaker):
    """A content has one record: that of the page that was committed first with it."""

    @on_ledger
    async def test_a_later_page_with_the_same_content_is_a_duplicate_without_a_record_but_with_its_links(
        self, ledger: Ledger
    ) -> None:
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        first = await ledger.commit(batch("1", saying(one, 7)))
        second = await ledger.commit(batch("2", saying(two, 7, None, found("b.test/3"))))
        assert not first.duplicates
        assert second.duplicates == {two.request.fingerprint}
        assert (second.lost, second.records, second.lines) == (frozenset(), 0, b"")
        assert names_of(second.live) == ["b.test/3"]
        assert [entry.lines for entry in await ledger.log(0, 9)] == [record_of(one) + b"\n"]
        assert await self.state_of(ledger, one.request.fingerprint) == self.finished(State.FETCHED, "ok")
        assert await self.state_of(ledger, two.request.fingerprint) == self.finished(
            State.DUPLICATE, "duplicate"
        )
        assert [item.pages for item in await ledger.host_info(["a.test"])] == [1]
        assert await self.fetch_count(ledger) == 2

    @on_ledger
    async def test_of_one_batch_the_page_whose_record_comes_first_has_the_content(
        self, ledger: Ledger
    ) -> None:
        live = (await ledger.add([found(f"a.test/{number}") for number in range(9)])).live
        whole = await ledger.commit(
            batch("1", *[saying(item, 10 + number) for number, item in enumerate(live[:4])])
        )
        order = [msgspec.json.decode(line)["url"] for line in whole.lines.splitlines()]
        assert len(order) == 4
        done = await ledger.commit(batch("2", *[saying(item, 7) for item in reversed(live[4:])]))
        assert (done.records, len(done.duplicates)) == (1, 4)
        first = min(live[4:], key=lambda item: item.request.fingerprint)
        assert order == sorted(order, key=lambda url: fingerprint_of(url.removeprefix("http://")))
        assert done.lines == record_of(first) + b"\n"

    @on_ledger
    async def test_other_contents_and_pages_without_any_are_no_duplicates(self, ledger: Ledger) -> None:
        live = (await ledger.add([found(f"a.test/{number}") for number in range(5)])).live
        ends = (-(2**63), 2**63 - 1, 0)
        done = await ledger.commit(batch("1", *map(saying, live[:3], ends), visit(live[3]), visit(live[4])))
        assert (done.records, done.duplicates) == (5, frozenset())

    def test_a_content_is_remembered_when_the_ledger_is_opened_again(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with self.opened(tmp_path) as ledger:
                one, two, three = (await ledger.add([found(f"a.test/{n}") for n in range(3)])).live
                await ledger.commit(batch("1", saying(one, 7, 2**64 - 1)))
            async with self.opened(tmp_path) as ledger:
                done = await ledger.commit(batch("2", saying(two, 7), saying(three, 8, 2**64 - 2)))
                assert done.duplicates == {two.request.fingerprint, three.request.fingerprint}

        asyncio.run(main())

    @on_ledger
    async def test_a_page_whose_text_differs_in_three_bits_is_a_duplicate_and_in_four_is_not(
        self, ledger: Ledger
    ) -> None:
        live = (await ledger.add([found(f"a.test/{number}") for number in range(6)])).live
        text = 0xF0F0_0000_1234_8001
        near = text ^ (1 | 1 << 20 | 1 << 40)
        hashes = (text, near, text ^ (7 << 61), near ^ 1 << 63, text ^ 0xF, 0)
        flags = []
        for number, (item, simhash) in enumerate(zip(live, hashes, strict=True)):
            done = await ledger.commit(batch(str(number), saying(item, number, simhash)))
            flags.append(bool(done.duplicates))
        assert flags == [False, True, True, False, False, False]

    @on_ledger
    async def test_a_visit_that_does_not_count_has_no_content(self, ledger: Ledger) -> None:
        one, two, three = (await ledger.add([found(f"a.test/{number}") for number in range(3)])).live
        await ledger.commit(batch("1", visit(one, Retry("timeout", NOW))))
        stale = await ledger.commit(batch("2", saying(one, 7, 9)))
        assert stale.lost == {one.request.fingerprint}
        assert not stale.duplicates
        silent = msgspec.structs.replace(saying(two, 7, 9), record=b"")
        assert (await ledger.commit(batch("3", silent))).duplicates == frozenset()
        done = await ledger.commit(batch("4", saying(three, 7, 9)))
        assert (done.records, done.duplicates) == (1, frozenset())

    def test_a_page_is_no_duplicate_of_itself_when_its_commit_failed(self, tmp_path: Path) -> None:
        async def main() -> None:
            cut = Cut()
            async with self.opened(tmp_path, cut) as ledger:
                one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
                cut.at = "commit:written"
                with pytest.raises(PowerCut):
                    await ledger.commit(batch("1", saying(one, 7, 9)))
                cut.at = ""
                done = await ledger.commit(batch("2", saying(one, 7, 9), saying(two, 8)))
                assert (done.records, done.duplicates) == (2, frozenset())

        asyncio.run(main())

    @on_ledger
    async def test_the_same_batch_again_names_the_same_duplicates(self, ledger: Ledger) -> None:
        one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
        sent = batch("1", saying(one, 7), saying(two, 7))
        first = await ledger.commit(sent)
        again = await ledger.commit(sent)
        assert again.repeated
        assert len(first.duplicates) == 1
        assert again.duplicates == first.duplicates


def saying(item: Known, exact: int, near: int | None = None, *links: Found) -> Visit:
    """Visit a page whose content has these hashes."""
    return msgspec.structs.replace(visit(item, FETCHED, *links), content=Content(exact, near))


class LimitContract(LedgerMaker):
    """A job has as many records as it may have, and what is beyond that is as if it had not been visited."""

    @on_ledger
    async def test_of_a_batch_that_passes_the_limit_as_many_records_are_kept_as_fit(
        self, ledger: Ledger
    ) -> None:
        pages = (await ledger.add([found(f"a.test/{number}") for number in range(5)])).live
        await ledger.commit(at_most(3, "1", visit(pages[0])))
        fetches = await self.fetch_count(ledger)
        links = {page.request.fingerprint: found(f"b.test/{page.request.fingerprint}") for page in pages[1:]}
        visits = [visit(page, FETCHED, links[page.request.fingerprint]) for page in pages[1:]]
        done = await ledger.commit(at_most(3, "2", *visits))
        assert (done.records, done.total, done.added, len(done.lost)) == (2, 3, 2, 2)
        assert sum(entry.records for entry in await ledger.log(0, 9)) == 3
        assert await self.fetch_count(ledger) == fetches + 4
        beyond = [page for page in pages if page.request.fingerprint in done.lost]
        assert await ledger.take("a.test", 9, NOW) == beyond
        assert {known.request.url for known in await ledger.take("b.test", 9, NOW)} == {
            link.request.url for fingerprint, link in links.items() if fingerprint not in done.lost
        }
        (info,) = await ledger.host_info(["a.test"])
        assert info.pages == 3

    @on_ledger
    async def test_what_did_not_fit_counts_when_the_limit_is_raised(self, ledger: Ledger) -> None:
        pages = (await ledger.add([found(f"a.test/{number}") for number in range(3)])).live
        first = await ledger.commit(at_most(1, "1", *map(visit, pages)))
        assert await ledger.commit(at_most(1, "1", *map(visit, pages))) == Committed(
            first.position, first.lost, [], repeated=True
        )
        beyond = [page for page in pages if page.request.fingerprint in first.lost]
        second = await ledger.commit(at_most(3, "2", *map(visit, beyond)))
        assert (second.records, second.lost, second.total) == (2, frozenset(), 3)

    @on_ledger
    async def test_a_job_that_is_full_still_settles_what_yields_no_record(self, ledger: Ledger) -> None:
        page, failed, again, more = (
            await ledger.add([found(f"a.test/{name}") for name in ("page", "failed", "again", "more")])
        ).live
        await ledger.commit(batch("1", visit(page)))
        visits = (
            visit(failed, Settled(State.FAILED, "http_500")),
            visit(again, Retry("timeout", NOW)),
            visit(more),
        )
        done = await ledger.commit(at_most(1, "2", *visits))
        assert (done.records, done.lost, names_of(done.live)) == (
            0,
            frozenset({more.request.fingerprint}),
            ["a.test/again"],
        )
        assert await self.state_of(ledger, failed.request.fingerprint) == (State.FAILED, "http_500")
        below = await ledger.commit(at_most(0, "3", visit(more)))
        assert below.lost == {more.request.fingerprint}

    @on_ledger
    async def test_a_visit_that_does_not_count_takes_no_room(self, ledger: Ledger) -> None:
        pages = (await ledger.add([found(f"a.test/{number}") for number in range(6)])).live
        await ledger.commit(batch("1", *map(visit, pages[:5])))
        done = await ledger.commit(at_most(6, "2", *map(visit, pages)))
        assert (done.records, done.total) == (1, 6)

    @on_ledger
    async def test_duplicates_take_no_room_for_long(self, ledger: Ledger) -> None:
        added = await ledger.add([found(f"a.test/{number}") for number in range(4)])
        # In the order in which a batch has its records.
        pages = sorted(added.live, key=lambda page: page.request.fingerprint)
        await ledger.commit(batch("1", saying(pages[0], 7)))
        visits = [saying(pages[1], 7), saying(pages[2], 7), saying(pages[3], 9)]
        for name in ("2", "3", "4"):
            done = await ledger.commit(at_most(2, name, *visits))
            visits = [sent for sent in visits if sent.known.request.fingerprint in done.lost]
        assert not visits
        assert sum(entry.records for entry in await ledger.log(0, 9)) == 2


def at_most(records: int, name: str, *visits: Visit) -> Batch:
    """Commit visits to a job that may have so many records."""
    return msgspec.structs.replace(batch(name, *visits), max_records=records)


class Cut:
    """A failpoint that cuts the power at one boundary."""

    def __init__(self) -> None:
        self.at = ""

    def __call__(self, name: str) -> None:
        if name == self.at:
            raise PowerCut(name)


class FailureContract(LedgerMaker):
    """What fails leaves no trace; what had been committed stays."""

    @pytest.mark.parametrize("call", ["add", "commit", "cursor", "hold"])
    @pytest.mark.parametrize("moment", ["before", "written", "done"])
    def test_a_call_cut_short_has_happened_wholly_or_not_at_all(
        self, tmp_path: Path, call: str, moment: str
    ) -> None:
        async def main() -> None:
            cut = Cut()
            async with self.opened(tmp_path / "cut", cut) as ledger, self.opened(tmp_path / "whole") as whole:
                one, same = await self._prepare(ledger), await self._prepare(whole)
                untouched = await contents(ledger)
                cut.at = f"{call}:{moment}"
                with pytest.raises(PowerCut):
                    await self._do(ledger, call, one)
                cut.at = ""
                await self._do(whole, call, same)
                expected = await contents(whole) if moment == "done" else untouched
                assert await contents(ledger) == expected
                await self._do(ledger, call, one)
                assert await contents(ledger) == await contents(whole)

        (tmp_path / "cut").mkdir()
        (tmp_path / "whole").mkdir()
        asyncio.run(main())

    async def _prepare(self, ledger: Ledger) -> Known:
        one = await add_one(ledger, "a.test/1")
        other = await add_one(ledger, "a.test/2")
        await ledger.commit(batch("0", visit(other)))
        await ledger.save_cursors([Cursor("out.jsonl")])
        return one

    async def _do(self, ledger: Ledger, call: str, one: Known) -> None:
        match call:
            case "add":
                await ledger.add([found("b.test/1"), found("a.test/3"), found("a.test/1", priority=-1)])
            case "commit":
                file = RobotsFile("http://a.test", NOW, 200, b"", 1)
                sent = msgspec.structs.replace(visit(one, FETCHED, found("b.test/2")), robots=(file,))
                sent = msgspec.structs.replace(sent, cookies=(StoredCookie("a", b"1"),))
                group = GroupState("a.test", NOW, 1.0)
                await ledger.commit(Batch("1", (sent,), (group,), (Cursor("out.jsonl", 1, 2, 3),), NOW))
            case "cursor":
                await ledger.save_cursors([Cursor("out.jsonl", 4, 5, 6)])
            case "hold":
                await ledger.hold("page_limit")


class LedgerContract(
    AddContract, CommitContract, DuplicateContract, LimitContract, ReadContract, FailureContract
):
    """The whole contract of a ledger."""
