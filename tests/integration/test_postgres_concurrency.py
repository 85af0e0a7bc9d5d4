"""Many workers commit to one job at once: nothing is lost, counted twice or waited for in a circle."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import psycopg
import pytest

from gossamer.config.postgres import PostgresLimits
from gossamer.frontier.controls import set_host_delay, settle_host, switch_host
from gossamer.frontier.postgres_books import MAX_REMOVED_COOKIES
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_roots import PostgresRoots
from gossamer.model.outcome import SWITCHED_OFF, Committed, GroupState, Hop, Retry, State, StoredCookie
from gossamer.model.schedule import LogEntry
from gossamer.testing.frontier_cases import (
    FETCHED,
    NOW,
    batch,
    fingerprint_of,
    found,
    names_of,
    request_for,
    visit,
)
from gossamer.testing.ledger_contract import at_most, saying
from gossamer.testing.postgres_rig import ask, new_database, workers
from gossamer.testing.postgres_server import programs

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")

WORKERS = 6


@pytest.fixture
def dsn() -> Iterator[str]:
    with new_database() as address:
        yield address


def recount(dsn: str) -> Counter[tuple[State, str]]:
    rows = ask(dsn, "SELECT state, reason, count(*) FROM urls GROUP BY state, reason")
    return Counter({(State(state), reason): n for state, reason, n in rows})


def test_committers_that_share_urls_never_deadlock_and_each_page_counts_once(dsn: str) -> None:
    async def work(ledger: PostgresLedger, number: int, rounds: int) -> int:
        """Visit pages that others visit too, with links to all of theirs, nearer each time."""
        chance = random.Random(number)
        recorded = 0
        for turn in range(rounds):
            taken = await ledger.take("a.test", 40, NOW)
            chance.shuffle(taken)
            links = [found(f"a.test/{chance.randrange(400)}", depth=rounds - turn) for _ in range(60)]
            visits = [
                visit(item, Retry("timeout", NOW) if chance.random() < 0.2 else FETCHED, *links)
                for item in taken[:15]
            ]
            done = await ledger.commit(batch(f"{number}-{turn}", *visits))
            recorded += done.records
        return recorded

    async def main() -> None:
        async with workers(dsn, WORKERS) as ledgers:
            await ledgers[0].add([found(f"a.test/{number}", depth=99) for number in range(100)])
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(each, n, 12)) for n, each in enumerate(ledgers)]
            assert sum(ledger._pool.deadlocks for ledger in ledgers) == 0
            entries = await ledgers[0].log(0, 999)
            urls = [
                msgspec.json.decode(line)["url"] for entry in entries for line in entry.lines.splitlines()
            ]
            assert len(urls) == len(set(urls)) == sum(task.result() for task in tasks) > 100
            assert await ledgers[0].counts() == recount(dsn)
            assert (await ledgers[0].counts())[State.FETCHED, "ok"] == len(urls)
            (info,) = await ledgers[0].host_info(["a.test"])
            assert info.pages == len(urls)

    asyncio.run(main())


def test_a_commit_does_not_wait_for_whoever_changes_a_page_it_only_links_to(dsn: str) -> None:
    async def main() -> None:
        impatient = PostgresLimits(statement_seconds=3.0, patience_seconds=0.0)
        async with workers(dsn, limits=impatient) as (ledger,):
            one, two = (await ledger.add([found("a.test/1"), found("a.test/2")])).live
            with psycopg.connect(dsn, options="-c search_path=gossamer") as other:
                # Were both to wait for the page the other one changes, neither would ever end.
                other.execute(
                    "UPDATE urls SET state = 2, reason = 'ok' WHERE fp = %s", (two.request.fingerprint,)
                )
                done = await ledger.commit(batch("1", visit(one, FETCHED, found("a.test/2", depth=1))))
                other.rollback()
            assert (done.records, done.added) == (1, 0)

    asyncio.run(main())


def test_the_same_urls_added_by_many_at_once_are_new_to_one_of_them(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, WORKERS) as ledgers:
            many = [found(f"h{number % 7}.test/{number}", depth=5) for number in range(500)]
            nearer = [found(f"h{number % 7}.test/{number}", depth=2) for number in range(500)]
            lists = [many, many[::-1], nearer, many, nearer[::-1], many]
            added = await asyncio.gather(*[each.add(some) for each, some in zip(ledgers, lists, strict=True)])
            assert sum(item.new for item in added) == 500
            assert sum(len(item.live) for item in added) == 500
            assert sum(ledger._pool.deadlocks for ledger in ledgers) == 0
            assert await ledgers[0].counts() == {(State.QUEUED, ""): 500}
            assert ask(dsn, "SELECT DISTINCT depth FROM urls") == [(2,)]

    asyncio.run(main())


def test_a_reader_of_the_log_never_finds_a_position_at_or_below_one_it_has_read(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, WORKERS + 1) as (reader, *ledgers):
            pages = (await reader.add([found(f"a.test/{number}") for number in range(240)])).live
            done = asyncio.Event()
            read: list[LogEntry] = []

            async def follow() -> None:
                while not done.is_set():
                    read.extend(await reader.log(read[-1].position if read else 0, 3))

            async def commit(ledger: PostgresLedger, number: int) -> None:
                for turn in range(20):
                    # Large and small ones, so that those that begin first often end last.
                    first = number * 40 + turn * 2
                    links = [found(f"b.test/{number}/{turn}/{link}") for link in range(200 * (number % 2))]
                    visits = [visit(item, FETCHED, *links) for item in pages[first : first + 2]]
                    await ledger.commit(batch(f"{number}-{turn}", *visits))

            async with asyncio.TaskGroup() as group:
                group.create_task(follow())
                async with asyncio.TaskGroup() as committers:
                    for number, ledger in enumerate(ledgers):
                        committers.create_task(commit(ledger, number))
                done.set()
            read += await reader.log(read[-1].position if read else 0, 999)
            assert [entry.position for entry in read] == list(range(1, 20 * WORKERS + 1))
            assert read == await reader.log(0, 999)

    asyncio.run(main())


def test_a_batch_sent_by_two_at_once_is_applied_once_and_answered_alike(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, 4) as ledgers:
            pages = (await ledgers[0].add([found(f"a.test/{number}") for number in range(50)])).live
            sent = batch("1", *[visit(page, FETCHED, found("b.test/1")) for page in pages])
            answers = await asyncio.gather(*[ledger.commit(sent) for ledger in ledgers])
            assert sorted(answer.repeated for answer in answers) == [False, True, True, True]
            assert {(answer.position, answer.lost) for answer in answers} == {(1, frozenset())}
            assert [entry.records for entry in await ledgers[0].log(0, 9)] == [50]

    asyncio.run(main())


@pytest.mark.parametrize("limit", [1, 50, 237])
def test_workers_that_reach_the_limit_at_once_bring_exactly_as_many_records(dsn: str, limit: int) -> None:
    async def main() -> None:
        async with workers(dsn, WORKERS) as ledgers:
            pages = (await ledgers[0].add([found(f"a.test/{number}") for number in range(240)])).live

            async def commit(ledger: PostgresLedger, number: int) -> list[Committed]:
                mine = pages[number::WORKERS]
                return [
                    await ledger.commit(
                        at_most(
                            limit,
                            f"{number}-{first}",
                            *[
                                visit(item, FETCHED, found(f"b.test/{item.seq}"))
                                for item in mine[first : first + 4]
                            ],
                        )
                    )
                    for first in range(0, len(mine), 4)
                ]

            parts = await asyncio.gather(*[commit(ledger, n) for n, ledger in enumerate(ledgers)])
            done = [each for part in parts for each in part]
            assert sum(each.records for each in done) == limit
            assert ask(dsn, "SELECT count(*) FROM pages") == [(limit,)]
            assert sum(len(each.lost) for each in done) == 240 - limit
            assert max(each.total or 0 for each in done) == limit
            assert await ledgers[0].counts() == recount(dsn)
            assert (await ledgers[0].counts())[State.QUEUED, ""] == 240
            assert sum(ledger._pool.deadlocks for ledger in ledgers) == 0
            assert len(await ledgers[0].take("a.test", 999, NOW)) == 240 - limit

    asyncio.run(main())


def test_of_pages_with_nearly_one_content_committed_at_once_one_has_a_record(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, WORKERS) as ledgers:
            names = [f"a.test/{number}" for number in range(WORKERS)]
            pages = (await ledgers[0].add([found(name) for name in names])).live
            commits = [
                ledger.commit(batch(name, saying(page, number, 0xF0F0 ^ 1 << number % 2)))
                for number, (ledger, name, page) in enumerate(zip(ledgers, names, pages, strict=True))
            ]
            done = await asyncio.gather(*commits)
            assert sum(each.records for each in done) == 1
            assert sum(len(each.duplicates) for each in done) == WORKERS - 1

    asyncio.run(main())


def test_a_url_that_is_held_while_its_visit_is_committed_is_either_held_or_fetched(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, 2) as (one, other):
            pages = (await one.add([found(f"a.test/{number}") for number in range(300)])).live
            commits = [one.commit(batch(str(n), *map(visit, pages[n * 30 : n * 30 + 30]))) for n in range(10)]
            holding = asyncio.create_task(other.hold("page_limit"), name="hold")
            done = await asyncio.gather(*commits)
            held = await holding
            assert held + sum(each.records for each in done) == 300
            assert held == sum(len(each.lost) for each in done)
            assert await one.counts() == recount(dsn)

    asyncio.run(main())


def test_a_group_has_one_clock_for_all_jobs_and_it_never_goes_back(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (one,), workers(dsn, job="other") as (other,):
            await one.commit(batch("1", groups=(GroupState("a.test", NOW, 2.0, NOW + 9, 1, 0.5),)))
            await other.commit(batch("1", groups=(GroupState("a.test", NOW - 5, 1.0, NOW + 3, 0, 0.0),)))
            for ledger in (one, other):
                (info,) = await ledger.host_info(["a.test"])
                assert info.state == GroupState("a.test", NOW, 2.0, NOW + 9, 1, 0.5)
            await other.commit(batch("2", groups=(GroupState("a.test", NOW + 5, 1.0, 0.0, 0, 0.0),)))
            (info,) = await one.host_info(["a.test"])
            assert info.state == GroupState("a.test", NOW + 5, 1.0, NOW + 9, 0, 0.0)

    asyncio.run(main())


def test_numbers_are_folded_now_and_then_and_stay_right(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.frontier.postgres_ledger._COMMITS_A_FOLD", 5)

    async def main() -> None:
        async with workers(dsn, 2) as ledgers:
            pages = (await ledgers[0].add([found(f"a.test/{number}") for number in range(40)])).live

            async def commit(ledger: PostgresLedger, some: int) -> None:
                for number in range(some, 40, 2):
                    await ledger.commit(batch(str(number), visit(pages[number])))

            await asyncio.gather(*[commit(ledger, n) for n, ledger in enumerate(ledgers)])
            assert await ledgers[0].counts() == {(State.FETCHED, "ok"): 40}
            assert (await ledgers[0].totals())["wire_bytes"] == 40_000
            assert ask(dsn, "SELECT count(*) FROM counts")[0][0] < 20

    asyncio.run(main())


def test_a_host_that_is_switched_off_is_inactive_and_its_urls_are_held_in_all_jobs(dsn: str) -> None:
    async def main() -> None:
        async with (
            workers(dsn) as (one,),
            workers(dsn, job="other") as (other,),
            workers(dsn, job="late") as (late,),
        ):
            for ledger in (one, other):
                await ledger.add([found(f"{name}.test/{page}") for name in "ab" for page in range(3)])
            await switch_host(one._pool, "job", "a.test", on=False)
            assert await settle_host(one._pool, "a.test", on=False) == 6
            await set_host_delay(one._pool, "job", "b.test", 5.0)
            await late.add([found("a.test/1"), found("b.test/1"), found("c.test/1")])
            copied = ask(
                dsn, "SELECT host, active, min_delay FROM sources WHERE job = %s ORDER BY 1", late._job
            )
            assert copied == [("a.test", False, 0.0), ("b.test", True, 5.0), ("c.test", True, 0.0)]
            for ledger in (one, other, late):
                infos = await ledger.host_info(["a.test", "b.test", "unknown.test"])
                assert [info.active for info in infos] == [False, True, True]
            assert await late.hold(SWITCHED_OFF, "a.test") == 1
            for ledger in (one, other):
                assert await ledger.counts() == {(State.QUEUED, ""): 3, (State.HELD, SWITCHED_OFF): 3}
            await switch_host(one._pool, "job", "a.test", on=True)
            assert await late.hold(SWITCHED_OFF, "a.test") == 0, "it is on again"
            assert await settle_host(one._pool, "a.test", on=True) == 7
            assert await one.counts() == {(State.QUEUED, ""): 6}
            assert [info.active for info in await one.host_info(["a.test"])] == [True]

    asyncio.run(main())


def test_what_is_under_way_when_its_host_is_switched_off_is_finished(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn) as (ledger,):
            added = await ledger.add([found(f"a.test/{name}") for name in ("page", "again", "hop", "waits")])
            page, again, hop, _ = added.live
            await switch_host(ledger._pool, "job", "a.test", on=False)
            await settle_host(ledger._pool, "a.test", on=False)
            done = await ledger.commit(
                batch(
                    "1",
                    visit(page, FETCHED, found("b.test/1")),
                    visit(again, Retry("timeout", NOW)),
                    visit(hop, Hop(msgspec.structs.replace(request_for("a.test/hop"), host="b.test"))),
                )
            )
            assert (done.records, done.lost) == (1, frozenset({hop.request.fingerprint}))
            assert names_of(done.live) == ["b.test/1"]
            held = {(State.FETCHED, "ok"): 1, (State.QUEUED, ""): 1, (State.HELD, SWITCHED_OFF): 3}
            assert await ledger.counts() == held == recount(dsn)
            twice = await ledger.commit(batch("2", visit(again)))
            assert twice.lost == {again.request.fingerprint}, "its attempt is over"
            await switch_host(ledger._pool, "job", "a.test", on=True)
            await settle_host(ledger._pool, "a.test", on=True)
            assert len(await ledger.take("a.test", 9, NOW)) == 3
            assert (await ledger.commit(batch("3", visit(hop)))).lost == {hop.request.fingerprint}

    asyncio.run(main())


def test_a_host_that_is_switched_on_while_workers_hold_it_has_nothing_held(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, 4) as ledgers:
            pool = ledgers[0]._pool
            await ledgers[0].add([found(f"a.test/{page}") for page in range(200)])
            for _ in range(5):
                await switch_host(pool, "job", "a.test", on=False)
                holding = [asyncio.create_task(each.hold(SWITCHED_OFF, "a.test")) for each in ledgers]
                await switch_host(pool, "job", "a.test", on=True)
                await settle_host(pool, "a.test", on=True)
                await asyncio.gather(*holding)
                assert await ledgers[0].counts() == {(State.QUEUED, ""): 200} == recount(dsn)

    asyncio.run(main())


def test_a_reader_of_cookies_hears_of_those_that_were_removed_and_only_the_newest_are_remembered(
    dsn: str,
) -> None:
    async def main() -> None:
        async with workers(dsn, 2) as (reader, writer):
            (item,) = (await writer.add([found("a.test/1")])).live
            numbers = itertools.count(1)

            async def write(*cookies: StoredCookie) -> None:
                sent = msgspec.structs.replace(visit(item), cookies=cookies)
                await writer.commit(batch(f"{next(numbers)}", sent))

            def removed(key: str) -> StoredCookie:
                return StoredCookie(key, f"no {key}".encode(), removed=True)

            await write(StoredCookie("a", b"a"), StoredCookie("b", b"b"))
            ((_, _), (seen, _)) = await reader.cookies_after(0)
            await write(removed("a"), removed("never set"))
            ((seen, data),) = await reader.cookies_after(seen)
            assert data == b"no a"
            await write(removed("a"))
            assert await reader.cookies_after(seen) == [], "it was removed before"
            await write(StoredCookie("a", b"again"))
            ((seen, data),) = await reader.cookies_after(seen)
            assert data == b"again"
            assert [data for _, data in await reader.cookies_after(0)] == [b"b", b"again"]
            many = [f"{number}" for number in range(MAX_REMOVED_COOKIES + 5)]
            await write(*(StoredCookie(key, b"x") for key in many))
            await write(*map(removed, many))
            told = [data.decode() for _, data in await reader.cookies_after(seen)]
            assert told == [f"no {key}" for key in many[-MAX_REMOVED_COOKIES:]]

    asyncio.run(main())


def test_a_reader_of_cookies_gets_each_once_and_none_appears_behind_its_back(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, 4) as (reader, *writers):
            done, read = asyncio.Event(), list[tuple[int, bytes]]()

            async def follow() -> None:
                while not done.is_set():
                    read.extend(await reader.cookies_after(read[-1][0] if read else 0))

            async def write(ledger: PostgresLedger, writer: int) -> None:
                pages = (await ledger.add([found(f"a.test/{writer}/{page}") for page in range(20)])).live
                for page, item in enumerate(pages):
                    # The same keys again and again, as a session has it.
                    cookies = tuple(
                        StoredCookie(f"{writer}-{key}", f"{page}-{key}".encode()) for key in range(3)
                    )
                    sent = msgspec.structs.replace(visit(item), cookies=cookies)
                    await ledger.commit(batch(f"{writer}-{page}", sent))

            async with asyncio.TaskGroup() as group:
                group.create_task(follow())
                async with asyncio.TaskGroup() as writing:
                    for number, ledger in enumerate(writers):
                        writing.create_task(write(ledger, number))
                done.set()
            read += await reader.cookies_after(read[-1][0])
            assert [number for number, _ in read] == sorted({number for number, _ in read})
            stored = await reader.cookies()
            assert len(stored) == 9
            assert [data for _, data in read if data.startswith(b"19-")] == stored
            assert await reader.cookies_after(read[-1][0]) == []

    asyncio.run(main())


def test_what_is_odd_about_a_visit_is_kept_with_its_url_and_worker(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, 2) as (_, ledger):
            (page,) = (await ledger.add([found("a.test/1")])).live
            sent = msgspec.structs.replace(visit(page), notes=("robots.txt is cut",))
            await ledger.commit(batch("1", sent))
            rows = ask(dsn, "SELECT worker, level, url, note, at FROM notes")
            assert rows == [("w1", "warning", "http://a.test/1", "robots.txt is cut", NOW)]
            assert ask(dsn, "SELECT worker, fp FROM fetches") == [("w1", fingerprint_of("a.test/1"))]

    asyncio.run(main())


def test_roots_are_looked_up_once_and_a_bounded_number_is_remembered(dsn: str) -> None:
    async def main() -> None:
        async with workers(dsn, 1) as (ledger,):
            await ledger.add([], roots=["a.test", "b.test"])
            roots = PostgresRoots(ledger._pool, ledger._job)
            assert roots.is_root("a.test") is None
            await roots.look_up({"a.test", "c.test"})
            assert [roots.is_root(f"{host}.test") for host in "abc"] == [True, None, False]
            await ledger.add([], roots=["c.test"])
            trips = ledger._pool.round_trips
            await roots.look_up({"a.test", "c.test"})
            assert (roots.is_root("c.test"), ledger._pool.round_trips) == (False, trips)
            roots.forget(["c.test"])
            assert roots.is_root("c.test") is None
            await roots.look_up({"b.test", "c.test", "d.test"})
            assert [roots.is_root(f"{host}.test") for host in "abcd"] == [True, True, True, False]
            roots.forget_strangers()
            assert [roots.is_root(f"{host}.test") for host in "abcd"] == [True, True, True, None]
            many = [f"{number}.test" for number in range(100_020)]
            await roots.look_up(many)
            assert all(roots.is_root(root) is False for root in many)
            await roots.look_up(["a.test"])
            # The oldest have made room.
            assert [roots.is_root(f"{number}.test") for number in (0, 100_019)] == [None, False]
            assert roots.is_root("a.test") is True

    asyncio.run(main())
