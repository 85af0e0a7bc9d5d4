"""A run that an error has ended gives back what it holds: no lease is left to run out, and every host keeps its clock."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gossamer.config.redis import RedisSettings
from gossamer.contracts import Failpoint, Scheduler, no_failpoint
from gossamer.engine.frontier import Frontier
from gossamer.engine.leaving import abandon, let_finish
from gossamer.engine.report import Report
from gossamer.fetch.grouping import ByHost
from gossamer.model.outcome import Pause
from gossamer.model.request import Lease
from gossamer.testing.frontier_cases import NOW, visit
from gossamer.testing.frontier_rig import Rig, make_in_memory, rig
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_server
from gossamer.testing.scheduler_contract import Plan

LONGEST_SECONDS = 60.0


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisSettings]:
    if not is_redis_installed():
        pytest.skip("needs redis-server")
    with redis_server() as server:
        yield RedisSettings(url=server.url)


@pytest.fixture(params=["memory", "redis"])
def shared(request: pytest.FixtureRequest) -> RedisSettings | None:
    """The Redis to schedule by, or None for a schedule in memory."""
    return None if request.param == "memory" else request.getfixturevalue("redis")


@asynccontextmanager
async def crawl(
    place: Path, shared: RedisSettings | None, plan: Plan, failpoint: Failpoint = no_failpoint
) -> AsyncIterator[tuple[Rig, Frontier]]:
    """Open the halves of a frontier, and the whole."""

    async def make(plan: Plan) -> Scheduler:
        if shared is None:
            return await make_in_memory(plan)
        return await redis_scheduler(plan, dataclasses.replace(shared, prefix=new_prefix()))

    async with rig(place, plan, failpoint, make) as halves:
        yield (
            halves,
            Frontier(halves.ledger, halves.scheduler, plan.politeness, plan.clock, ByHost()),
        )


async def due_at(halves: Rig) -> dict[str, float]:
    """Lease all there is as soon as it may be; returns when each host was due."""
    due: dict[str, float] = {}
    for _ in range(20):
        await halves.sweep()
        due |= {lease.request.host: halves.clock() - NOW for lease in await halves.scheduler.lease(99)}
        outlook = await halves.scheduler.outlook()
        if outlook.next_due is None:
            break
        halves.clock.advance(max(outlook.next_due - halves.clock(), 0.0))
    return due


def by_host(leases: list[Lease]) -> dict[str, Lease]:
    return {lease.request.host: lease for lease in leases}


def test_what_a_failed_run_holds_is_leased_again_and_no_host_sooner_than_it_may_be(
    tmp_path: Path, shared: RedisSettings | None
) -> None:
    async def main() -> None:
        async with crawl(tmp_path, shared, Plan(delay=2.0)) as (halves, frontier):
            await halves.add("busy.test/1", "reported.test/1", "fetched.test/1", "idle.test/1")
            await halves.sweep()
            leases = by_host(await halves.scheduler.lease(99))
            idle = leases.pop("idle.test")
            await halves.scheduler.release(idle, Pause(), put_back=True)
            # Fetched at once; it waits for its commit.
            fetched = leases["fetched.test"]
            await frontier.release(fetched, Pause(NOW))
            halves.clock.advance(1.0)
            reported = leases["reported.test"]
            report = Report(visit(reported.known), Pause(NOW, until=NOW + 30.0))
            await abandon(
                frontier,
                leases.values(),
                [(reported, report)],
                [(fetched, visit(fetched.known))],
                halves.clock,
            )
            assert (await halves.scheduler.outlook()).in_flight == 0
            assert await due_at(halves) == {
                "idle.test": 1.0,
                "fetched.test": 2.0,
                # Whether it had begun is not known.
                "busy.test": 3.0,
                "reported.test": 30.0,
            }

    asyncio.run(main())


def test_a_commit_under_way_when_the_run_fails_is_finished_and_its_leases_are_settled(
    tmp_path: Path, shared: RedisSettings | None
) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def failpoint(name: str) -> None:
        if name == "commit:written":
            writing.set()
            assert go_on.wait(LONGEST_SECONDS)

    async def main() -> None:
        async with crawl(tmp_path, shared, Plan(delay=0), failpoint) as (halves, frontier):
            await halves.add("a.test/1")
            await halves.sweep()
            (lease,) = await halves.scheduler.lease(99)
            await frontier.release(lease, Pause(NOW))
            committing = asyncio.create_task(frontier.commit("1", [(lease, visit(lease.known))], ()))
            assert await asyncio.to_thread(writing.wait, LONGEST_SECONDS)
            committing.cancel()
            # The cancellation has arrived before the commit is through.
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await committing
            outlook = await halves.scheduler.outlook()
            assert (outlook.in_flight, outlook.queued, outlook.stale) == (0, 0, 0)
            assert len(await halves.records()) == 1

    asyncio.run(main())


def test_leases_that_are_answered_while_the_run_fails_are_still_heard_of(
    tmp_path: Path, redis: RedisSettings
) -> None:
    async def main() -> None:
        async with crawl(tmp_path, redis, Plan()) as (halves, _):
            await halves.add("a.test/1", "b.test/1")
            await halves.sweep()
            held: list[Lease] = []
            stopped = asyncio.Event()

            async def dispatch() -> None:
                while not stopped.is_set():
                    held.extend(await halves.scheduler.lease(99))

            leading = asyncio.create_task(let_finish(asyncio.create_task(dispatch()), stopped.set))
            # Turns to begin, and to send the question.
            for _ in range(4):
                await asyncio.sleep(0)
            leading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leading
            assert len(held) == (await halves.scheduler.outlook()).in_flight == 2

    asyncio.run(main())
