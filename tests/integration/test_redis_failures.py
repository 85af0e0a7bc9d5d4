"""What a Redis can do to a schedule: forget it, die, fill up, lose its scripts, or be the wrong one from the start."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.config.redis import RedisSettings
from gossamer.contracts import Scheduler
from gossamer.errors import BackendLost, BackendUnreachable, UsageError
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.model.outcome import Pause
from gossamer.model.request import Known, Lease
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW, info, known, names_of
from gossamer.testing.frontier_rig import Rig, rig
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import (
    RedisServer,
    free_port,
    is_redis_installed,
    redis_cluster,
    redis_server,
)
from gossamer.testing.scheduler_contract import Bench, Plan, assert_apart, some

pytestmark = pytest.mark.skipif(not is_redis_installed(), reason="needs redis-server")

SLACK = RedisSettings().slack_seconds
QUICK = RedisSettings(reconnect_seconds=0.01, max_reconnect_seconds=0.05, timeout_seconds=5.0)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def settings_for(server: RedisServer) -> RedisSettings:
    return dataclasses.replace(QUICK, url=server.url, prefix=new_prefix())


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await main()

    asyncio.run(all_of_it())


async def crawl(r: Rig, starts: list[tuple[float, str]], rounds: int) -> None:
    """Fetch what is due, for a while, as an engine that sweeps all the time."""
    for _ in range(rounds):
        for lost in await r.scheduler.expired():
            await r.scheduler.settle([lost.lease])
        await r.sweep()
        for lease in await r.scheduler.lease(9):
            starts.append((r.clock(), lease.request.url))
            await r.fetch(lease)
        r.clock.advance(0.5)


async def next_lease(r: Rig) -> Lease:
    """Let time pass until something is due, and lease it."""
    while not (leases := await r.scheduler.lease(1)):
        r.clock.advance(0.5)
    return leases[0]


# -- it forgets ------------------------------------------------------------------------------------------


def wipe(server: RedisServer) -> None:
    assert server.ask("FLUSHALL").startswith("+OK")


def restart_empty(server: RedisServer) -> None:
    server.kill()
    server.start()


async def patiently(server: RedisServer, scheduler: Scheduler) -> None:
    """Ask until there is an answer, as an engine does whose backend was lost."""
    for _ in range(50):
        try:
            await scheduler.outlook()
        except BackendLost:
            continue
        return
    raise AssertionError(f"the server on port {server.port} was never found again")


@pytest.mark.parametrize("forget", [wipe, restart_empty])
def test_after_redis_forgot_everything_the_ledger_brings_it_back(
    server: RedisServer, tmp_path: Path, forget: Callable[[RedisServer], None]
) -> None:
    async def main() -> None:
        async def make(plan: Plan) -> RedisScheduler:
            return await redis_scheduler(plan, settings_for(server))

        async with rig(tmp_path, Plan(delay=2, lease_seconds=600), make=make) as r:
            await r.add(*[f"a.test/{number}" for number in range(8)], "b.test/0")
            starts: list[tuple[float, str]] = []
            await crawl(r, starts, 6)
            under_way = await next_lease(r)
            starts.append((r.clock(), under_way.request.url))
            forget(server)
            await patiently(server, r.scheduler)
            # What it held before is told nobody, and is fetched again.
            before = (await r.scheduler.outlook()).stale
            await r.scheduler.release(under_way, Pause(r.clock(), until=r.clock() + 9999))
            await r.scheduler.settle([under_way])
            assert (await r.scheduler.outlook()).stale == before + 2
            await crawl(r, starts, 60)
            assert len(await r.records()) == 9
            assert_apart([start for start in starts if "a.test" in start[1]], 2)
            assert [url for _, url in starts].count(under_way.request.url) == 2

    run(main)


def test_after_a_wipe_a_group_waits_for_the_longest_of_its_delay_and_its_rest(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=3.0)
        bench = Bench(await redis_scheduler(plan, settings_for(server), aged=False), plan)
        await bench.schedule("new.test", *some("new.test", 1))
        await bench.schedule(info("slow.test", delay=7.0, last_start=NOW - 100), *some("slow.test", 1))
        await bench.schedule(info("resting.test", until=NOW + 30), *some("resting.test", 1))
        assert [(at - NOW, name) for at, name in await bench.drain(40)] == [
            (SLACK + 3, "new.test/1"),
            (SLACK + 7, "slow.test/1"),
            (30, "resting.test/1"),
        ]

    run(main)


def test_a_server_that_comes_back_with_what_it_once_saved_begins_a_new_epoch(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=5.0)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 5))
        assert server.ask("SAVE").startswith("+OK")
        (lease,) = await bench.lease()
        await scheduler.started(lease, NOW)
        bench.clock.advance(2)
        assert await bench.queued() == 4
        restart_empty(server)
        await patiently(server, scheduler)
        assert await bench.queued() == 5, "it knows nothing of the lease"
        assert await bench.lease() == []
        # Nobody knows when the last start was: it may be yet to come.
        assert (await scheduler.outlook()).next_due == NOW + 7 + SLACK
        bench.clock.advance(4.5 + SLACK)
        assert await bench.lease() == []
        bench.clock.advance(0.5)
        (again,) = await bench.lease()
        assert again.token != lease.token
        await scheduler.release(lease, Pause(NOW))
        assert await bench.stale() == 1

    run(main)


# -- it does not answer ----------------------------------------------------------------------------------


def test_a_lost_server_is_one_kind_of_error_and_reports_wait_for_its_return(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=0)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 3))
        (lease,) = await bench.lease()
        server.ask("SAVE")
        await scheduler.release(lease, Pause(NOW))
        server.kill()
        calls: list[Callable[[], Awaitable[object]]] = [
            scheduler.outlook,
            scheduler.expired,
            lambda: scheduler.lease(1),
            lambda: scheduler.missing(["a.test"]),
            lambda: scheduler.offer(some("a.test", 1)),
            lambda: scheduler.hungry(1),
        ]
        for call in calls:
            with pytest.raises(BackendLost, match="stopped answering"):
                await call()
        server.start()
        await patiently(server, scheduler)
        assert await bench.lease_names() == ["a.test/2"], "the slot was freed by the report that waited"

    run(main)


def refuse_writes(server: RedisServer, *, now: bool) -> None:
    """Let a server take no writes, as one does that cannot save, or has lost its replicas."""
    assert server.ask("CONFIG", "SET", "min-replicas-to-write", "1" if now else "0").startswith("+OK")


def test_a_server_that_refuses_writes_for_now_is_a_lost_one(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=0)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 3))
        refuse_writes(server, now=True)
        with pytest.raises(BackendLost, match="NOREPLICAS"):
            await scheduler.lease(1)
        refuse_writes(server, now=False)
        assert await bench.lease_names() == ["a.test/1"]

    run(main)


def test_whoever_comes_while_a_server_refuses_writes_is_told_to_come_again(server: RedisServer) -> None:
    async def main() -> None:
        refuse_writes(server, now=True)
        with pytest.raises(BackendUnreachable, match="NOREPLICAS") as caught:
            await redis_scheduler(Plan(), settings_for(server))
        # What is lost would end a worker, with all its other jobs.
        assert not isinstance(caught.value, BackendLost)

    run(main)


def test_whoever_could_not_greet_a_server_that_was_started_anew_does_so_before_anything_else(
    server: RedisServer,
) -> None:
    async def main() -> None:
        plan = Plan(delay=5.0)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 5))
        server.ask("SAVE")
        restart_empty(server)
        refuse_writes(server, now=True)
        with pytest.raises(BackendLost):
            await scheduler.outlook()
        with pytest.raises(BackendLost):
            await scheduler.outlook()
        refuse_writes(server, now=False)
        await patiently(server, scheduler)
        assert await bench.lease() == [], "a new epoch has begun"
        assert (await scheduler.outlook()).next_due == NOW + 5 + SLACK

    run(main)


@pytest.mark.parametrize("is_back", [True, False])
def test_whoever_closes_waits_for_the_reports_under_way(server: RedisServer, is_back: bool) -> None:
    async def main() -> None:
        loop, troubles = asyncio.get_running_loop(), list[dict[str, Any]]()
        loop.set_exception_handler(lambda _loop, context: troubles.append(context))
        settings = dataclasses.replace(settings_for(server), flush_seconds=0.0, timeout_seconds=0.5)
        plan = Plan(delay=0)
        scheduler = await redis_scheduler(plan, settings)
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 3))
        (lease,) = await bench.lease()
        server.pause()
        await scheduler.release(lease, Pause(NOW), put_back=True)
        while not any(task.get_name() == "redis flush" for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        if is_back:
            loop.call_later(0.1, server.go_on)
        await scheduler.close()
        server.go_on()
        assert not any(task.get_name() == "redis flush" for task in asyncio.all_tasks())
        # As long as it takes for whatever was put off to be tried again.
        await asyncio.sleep(2 * QUICK.max_reconnect_seconds)
        gc.collect()
        assert not troubles
        if is_back:
            other = Bench(await redis_scheduler(plan, settings, aged=False), plan)
            assert await other.lease_names() == ["a.test/1"], "it was given back"

    run(main)


def test_tries_to_reconnect_are_spread_out(server: RedisServer) -> None:
    async def main() -> None:
        scheduler = await redis_scheduler(Plan(), settings_for(server))
        server.kill()
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(6):
            with pytest.raises(BackendLost):
                await scheduler.outlook()
        # 0.01, 0.02, 0.04, 0.05, 0.05 seconds, each at least halved by chance, which is 0 here.
        assert loop.time() - began >= 0.5 * 0.17

    run(main)


def test_a_server_that_hangs_is_lost_after_the_timeout(server: RedisServer) -> None:
    async def main() -> None:
        settings = dataclasses.replace(settings_for(server), timeout_seconds=1.0)
        scheduler = await redis_scheduler(Plan(), settings)
        server.pause()
        try:
            with pytest.raises(BackendLost):
                async with asyncio.timeout(30):
                    await scheduler.outlook()
        finally:
            server.go_on()
        await patiently(server, scheduler)

    run(main)


def test_a_call_that_is_cancelled_loses_no_report_and_no_answer_is_taken_for_another(
    server: RedisServer,
) -> None:
    async def main() -> None:
        plan = Plan(delay=0)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 3))
        (lease,) = await bench.lease()
        server.pause()
        await scheduler.release(lease, Pause(NOW))
        waiting = asyncio.create_task(scheduler.group_states(["a.test"]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await waiting
        server.go_on()
        outlook = await scheduler.outlook()
        assert (outlook.queued, outlook.in_flight, outlook.hosts) == (2, 1, 1)
        assert await bench.lease_names() == ["a.test/2"]

    run(main)


def test_whoever_asks_again_and_again_ends_when_cancelled_at_whatever_moment(server: RedisServer) -> None:
    async def main() -> None:
        scheduler = await redis_scheduler(Plan(), settings_for(server))

        async def ask_for_ever() -> None:
            while True:
                await scheduler.outlook()

        for turns in range(60):
            task = asyncio.create_task(ask_for_ever())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            ended, _ = await asyncio.wait([task], timeout=3.0)
            assert ended, f"cancelled after {turns} turns of the loop, it went on"

    run(main)


def test_a_cluster_that_lost_a_node_is_a_lost_backend() -> None:
    async def main(nodes: list[RedisServer]) -> None:
        settings = dataclasses.replace(QUICK, url=nodes[0].url, cluster=True)
        scheduler = await redis_scheduler(Plan(), settings)
        nodes[1].kill()
        for _ in range(3):
            with pytest.raises(BackendLost):
                await scheduler.outlook()

    with redis_cluster() as nodes:
        asyncio.run(main(nodes))


def test_an_address_nobody_listens_on_is_unreachable() -> None:
    async def main() -> None:
        settings = dataclasses.replace(QUICK, url=f"redis://:secret@127.0.0.1:{free_port()}/0")
        with pytest.raises(BackendUnreachable, match="no answer from Redis at 127") as caught:
            await redis_scheduler(Plan(), settings)
        assert "secret" not in str(caught.value)

    run(main)


def test_what_is_no_address_is_said_to_be_none() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="no address"):
            await redis_scheduler(Plan(), RedisSettings(url="localhost:6379"))

    run(main)


# -- it is the wrong one, or full ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "memory", "fits"),
    [
        ("noeviction", "100mb", True),
        ("volatile-lru", "0", True),
        ("volatile-ttl", "100mb", False),
        ("allkeys-lru", "0", False),
        ("allkeys-random", "100mb", False),
    ],
)
def test_a_redis_that_evicts_is_refused(policy: str, memory: str, fits: bool) -> None:
    async def main(settings: RedisSettings) -> None:
        if fits:
            await redis_scheduler(Plan(), settings)
            return
        with pytest.raises(UsageError, match="set maxmemory-policy to noeviction"):
            await redis_scheduler(Plan(), settings)

    with redis_server("--maxmemory-policy", policy, "--maxmemory", memory) as server:
        asyncio.run(main(RedisSettings(url=server.url)))


def test_a_full_redis_takes_nothing_in_and_still_lets_work_go_on(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=0, per_host=4, window_urls=64)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 20))
        await scheduler.activate([info("b.test")])
        (refill,) = await scheduler.hungry(9)
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        assert await scheduler.push(refill, some("b.test", 4)) == 0
        assert await scheduler.offer(some("a.test", 4, first=50)) == 0
        await scheduler.activate([info("c.test")])
        assert await scheduler.hungry(9) == []
        assert scheduler.refused == 4
        assert (await scheduler.outlook()).hosts == 2
        fetched = 0
        while leases := await bench.lease():
            for lease in leases:
                await bench.finish(lease)
            fetched += len(leases)
        assert fetched == 20
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert await scheduler.push(refill, some("b.test", 4)) == 4

    run(main)


def test_scripts_the_server_forgot_are_sent_again(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=0)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 4))
        for number in range(1, 5):
            server.ask("SCRIPT", "FLUSH")
            (lease,) = await bench.lease()
            assert names_of([lease.known]) == [f"a.test/{number}"]
            await bench.finish(lease)
        assert (await scheduler.outlook()).in_flight == 0
        assert await bench.stale() == 0

    run(main)


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "redis":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    async def main() -> None:
        monkeypatch.setattr(builtins, "__import__", absent)
        with pytest.raises(UsageError, match=r"pip install 'gossamer\[redis\]'"):
            await redis_scheduler(Plan(), RedisSettings())

    run(main)


# -- what goes over the line -----------------------------------------------------------------------------


def test_a_page_costs_far_less_than_two_round_trips(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=0, window_urls=256, per_host=64)
        scheduler = await redis_scheduler(plan, settings_for(server))
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *some("a.test", 192))
        before = scheduler.round_trips
        for _ in range(3):
            leases = await bench.lease(64)
            assert len(leases) == 64
            for lease in leases:
                await scheduler.started(lease, NOW)
                await scheduler.release(lease, Pause(NOW))
            await scheduler.settle(leases)
        assert scheduler.round_trips - before <= 6
        assert (await scheduler.outlook()).in_flight == 0

    run(main)


def test_a_report_goes_out_by_itself_when_nobody_asks_anything(server: RedisServer) -> None:
    async def main() -> None:
        settings = settings_for(server)
        plan = Plan(delay=0)
        bench = Bench(await redis_scheduler(plan, settings), plan)
        other = Bench(await redis_scheduler(plan, settings, aged=False), plan)
        await bench.schedule("a.test", *some("a.test", 2))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause())
        async with asyncio.timeout(30):
            while not (got := await other.lease_names()):
                await asyncio.sleep(0.005)
        assert got == ["a.test/2"]

    run(main)


def test_a_request_survives_the_way_through_redis(server: RedisServer) -> None:
    async def main() -> None:
        plan = Plan(delay=0, per_host=9)
        bench = Bench(await redis_scheduler(plan, settings_for(server)), plan)
        plain = known("a.test/ä?q=%00", 2**40, priority=-3_000_000, attempt=7, not_before=NOW - 0.125)
        rich = with_everything(plain)
        await bench.schedule("a.test", plain, rich)
        assert [lease.known for lease in await bench.lease()] == [plain, rich]

    run(main)


def with_everything(plain: Known) -> Known:
    """Return another request, with all that most requests lack."""
    request = msgspec.structs.replace(
        plain.request,
        fingerprint=-1,
        method="POST",
        body=b"\x00\xff",
        headers=(("X-A", "b"),),
        route="r",
        metadata={"k": "v"},
        redirected_from=("http://a.test/0",),
        hop="http://a.test/hop",
        parent="http://a.test/",
    )
    return msgspec.structs.replace(
        plain, request=request, seq=2**40 + 1, etag='"x"', last_modified="y", visit=3, tries=2, crashes=1
    )


def test_a_worker_whose_clock_is_wrong_keeps_the_delay_by_that_of_the_server(server: RedisServer) -> None:
    async def main() -> None:
        behind = FakeClock(NOW)
        plan = Plan(clock=behind, delay=30.0)
        settings = settings_for(server)
        scheduler = RedisScheduler(
            "job", settings, plan.frontier, plan.politeness, behind, lambda: 0.0, server_time=True
        )
        await scheduler.open()
        bench = Bench(scheduler, plan)
        # The epoch is new: nothing is due, but the clocks have been compared.
        await bench.schedule("a.test", *some("a.test", 2))
        due = (await scheduler.outlook()).next_due
        assert due is not None
        assert NOW + 25 < due - SLACK <= NOW + 30
        await scheduler.close()

    run(main)
