"""Several workers and several jobs on one Redis: one clock for each host, one holder for each URL."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from redis import Redis

from gossamer.config.redis import RedisSettings
from gossamer.config.settings import FrontierSettings, PolitenessSettings
from gossamer.errors import UsageError
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.frontier.redis_skew import Skew
from gossamer.model.outcome import Pause
from gossamer.model.schedule import Lost
from gossamer.testing.frontier_cases import NOW, info
from gossamer.testing.frontier_rig import Rig, rig
from gossamer.testing.redis_rig import new_prefix, redis_scheduler
from gossamer.testing.redis_server import is_redis_installed, redis_server
from gossamer.testing.scheduler_contract import Bench, Plan, some

pytestmark = pytest.mark.skipif(not is_redis_installed(), reason="needs redis-server")

DELAY = 0.05


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as server:
        yield server.url


@pytest.fixture
def redis(url: str) -> RedisSettings:
    return RedisSettings(url=url, prefix=new_prefix())


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await main()

    asyncio.run(all_of_it())


async def two_benches(
    redis: RedisSettings, plan: Plan, other: Plan | None = None, jobs: tuple[str, str] = ("job", "job")
) -> tuple[Bench, Bench]:
    """Two workers, of one job or of two, by the same clock."""
    other = replace(other or plan, clock=plan.clock)
    first = await redis_scheduler(plan, redis, job=jobs[0])
    return Bench(first, plan), Bench(await redis_scheduler(other, redis, job=jobs[1], aged=False), other)


# -- workers of one job ----------------------------------------------------------------------------------


def worker(url: str, prefix: str) -> None:
    """Play a worker until the job has nothing left; print what was started and when."""
    politeness = PolitenessSettings(delay=DELAY, per_host=2, jitter=0.0)

    async def main() -> None:
        # Whoever comes first may take any host: else the first process might keep them all.
        settings = RedisSettings(url=url, prefix=prefix, affinity_seconds=0.0)
        scheduler = RedisScheduler("job", settings, FrontierSettings(), politeness, time.time, random.random)
        await scheduler.open()
        # They begin together: else one might have done it all before the others are there.
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        starts: list[tuple[str, str, float]] = []
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            leases = await scheduler.lease(3)
            for lease in leases:
                at = time.time()
                starts.append((lease.request.host, lease.request.url, at))
                await scheduler.started(lease, at)
            for lease in leases:
                await scheduler.release(lease, Pause())
            await scheduler.settle(leases)
            outlook = await scheduler.outlook()
            if not outlook.queued:
                break
            await asyncio.sleep(min(max((outlook.next_due or 0.0) - time.time(), 0.001), 0.05))
        await scheduler.close()
        sys.stdout.write(json.dumps(starts))

    asyncio.run(main())


def test_processes_never_share_a_url_and_keep_the_delay_together(redis: RedisSettings) -> None:
    hosts = [f"h{number}.test" for number in range(4)]

    async def fill() -> None:
        plan = Plan(window_urls=64, delay=DELAY, per_host=2)
        bench = Bench(await redis_scheduler(plan, redis), plan)
        for host in hosts:
            await bench.schedule(host, *some(host, 12))

    run(fill)
    command = [sys.executable, __file__, redis.url, redis.prefix]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in workers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in workers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [json.loads(process.communicate(timeout=60)[0]) for process in workers]
    starts = [tuple(start) for output in outputs for start in output]
    assert len({name for _, name, _ in starts}) == len(starts) == 48
    assert sum(bool(output) for output in outputs) > 1, "one worker did it all: nothing was shared"
    times = defaultdict(list)
    for host, _, at in starts:
        times[host].append(at)
    assert min(b - a for each in times.values() for a, b in itertools.pairwise(sorted(each))) >= DELAY


def test_a_lease_of_one_worker_is_not_there_for_another(redis: RedisSettings) -> None:
    async def main() -> None:
        one, two = await two_benches(redis, Plan(per_host=9, delay=0))
        await one.schedule("a.test", *some("a.test", 6))
        got = [*await one.lease(2), *await two.lease(2), *await one.lease(9), *await two.lease(9)]
        assert len({lease.request.fingerprint for lease in got}) == len({lease.token for lease in got}) == 6
        assert await two.scheduler.offer([got[0].known]) == 0

    run(main)


def test_a_worker_does_not_wait_for_the_start_of_its_own_leases_only(redis: RedisSettings) -> None:
    async def main() -> None:
        one, two = await two_benches(redis, Plan(per_host=2))
        await one.schedule("a.test", *some("a.test", 4))
        (lease,) = await one.lease()
        assert await two.lease() == []
        await one.scheduler.started(lease, NOW)
        one.clock.advance(0.5)
        assert await one.queued() == 3
        assert await two.lease() == []
        one.clock.advance(0.5)
        assert await two.lease_names() == ["a.test/2"]

    run(main)


def test_what_a_silent_worker_had_goes_to_one_other(redis: RedisSettings) -> None:
    async def main() -> None:
        silent, one = await two_benches(redis, Plan(delay=0, per_host=3))
        two = Bench(await redis_scheduler(one.plan, redis, aged=False), one.plan)
        await silent.schedule("a.test", *some("a.test", 3))
        leases = await silent.lease()
        # One is open, one waits for its commit, and one was put back.
        await silent.scheduler.release(leases[1], Pause(NOW))
        await silent.scheduler.release(leases[2], Pause(NOW), put_back=True)
        await silent.queued()
        one.clock.advance(59)
        assert [*await one.scheduler.expired(), *await two.scheduler.expired()] == []
        one.clock.advance(1)
        lost = [*await one.scheduler.expired(), *await two.scheduler.expired()]
        assert sorted(lost, key=lambda lost: lost.lease.token) == [
            Lost(leases[0], begun=False),
            Lost(leases[1], begun=False),
        ]
        await silent.scheduler.release(leases[0], Pause(NOW + 999, until=NOW + 999))
        await silent.scheduler.settle(leases[:2])
        assert await silent.stale() == 3
        assert await two.lease_names() == ["a.test/3"]
        assert (await one.scheduler.outlook()).in_flight == 3
        await one.scheduler.settle(leases[:2])
        assert (await one.scheduler.outlook()).in_flight == 1

    run(main)


def test_a_worker_that_is_heard_of_keeps_what_waits_for_its_commit(redis: RedisSettings) -> None:
    async def main() -> None:
        slow, other = await two_benches(redis, Plan(delay=0))
        await slow.schedule("a.test", *some("a.test", 1))
        (lease,) = await slow.lease()
        await slow.scheduler.release(lease, Pause(NOW))
        for _ in range(10):
            slow.clock.advance(40)
            await slow.lease()
            assert await other.scheduler.expired() == []
        await slow.scheduler.settle([lease])
        assert (await slow.scheduler.outlook()).in_flight == 0
        assert await slow.stale() == 0

    run(main)


def test_a_worker_that_dies_while_refilling_does_not_starve_the_host(redis: RedisSettings) -> None:
    async def main() -> None:
        dead, other = await two_benches(redis, Plan())
        await dead.scheduler.activate([info("a.test")])
        (lost,) = await dead.scheduler.hungry(9)
        assert await other.scheduler.hungry(9) == []
        other.clock.advance(redis.refill_seconds)
        (again,) = await other.scheduler.hungry(9)
        assert again.token != lost.token
        assert await dead.scheduler.push(lost, some("a.test", 1)) == 0
        assert await other.scheduler.push(again, some("a.test", 2)) == 2

    run(main)


def test_a_number_is_no_lease_without_the_request_it_was_given_for(redis: RedisSettings) -> None:
    async def main() -> None:
        bench, _ = await two_benches(redis, Plan(delay=0))
        await bench.schedule("a.test", *some("a.test", 2))
        (lease,) = await bench.lease()
        (other,) = some("a.test", 1, first=9)
        await bench.scheduler.release(msgspec.structs.replace(lease, known=other), Pause(NOW))
        assert await bench.stale() == 1
        assert await bench.lease() == []

    run(main)


def test_making_room_keeps_a_delay_the_ledger_has_not_heard_of(redis: RedisSettings) -> None:
    async def main() -> None:
        bench, _ = await two_benches(redis, Plan(active_hosts=1))
        await bench.schedule("a.test", *some("a.test", 1))
        (lease,) = await bench.lease()
        await bench.scheduler.release(lease, Pause(NOW, 100.0))
        await bench.scheduler.settle([lease])
        assert await bench.scheduler.missing(["b.test"]) == ["b.test"]
        await bench.schedule("b.test")
        assert await bench.scheduler.missing(["a.test"]) == ["a.test"]
        await bench.schedule("a.test", *some("a.test", 1, first=2))
        assert (await bench.scheduler.outlook()).next_due == NOW + 100

    run(main)


def test_a_host_keeps_its_place_until_it_was_filled_once(redis: RedisSettings) -> None:
    async def main() -> None:
        one, two = await two_benches(redis, Plan(active_hosts=1))
        await one.scheduler.activate([info("a.test")])
        assert await two.scheduler.missing(["b.test"]) == []
        (refill,) = await two.scheduler.hungry(9)
        assert await two.scheduler.missing(["b.test"]) == []
        await two.scheduler.push(refill, [])
        assert await one.scheduler.missing(["b.test"]) == ["b.test"]

    run(main)


def test_a_lease_for_many_and_an_offer_of_many_are_cut_into_short_scripts(redis: RedisSettings) -> None:
    async def main() -> None:
        plan = Plan(delay=0, per_host=99, window_urls=64)
        scheduler = await redis_scheduler(plan, replace(redis, batch_entries=10))
        await Bench(scheduler, plan).schedule("a.test")
        assert await scheduler.offer(some("a.test", 45)) == 45
        before = scheduler.round_trips
        assert len(await scheduler.lease(99)) == 45
        assert scheduler.round_trips - before == 5

    run(main)


def test_workers_must_agree_on_the_number_of_partitions(redis: RedisSettings) -> None:
    async def main() -> None:
        await redis_scheduler(Plan(), redis)
        with pytest.raises(UsageError, match="1 partitions"):
            await redis_scheduler(Plan(), replace(redis, partitions=4), aged=False)

    run(main)


def test_every_host_gets_its_turn_whichever_worker_sweeps(redis: RedisSettings, tmp_path: Path) -> None:
    async def main() -> None:
        plan = Plan(active_hosts=2, window_urls=4, delay=0)

        async def make(plan: Plan) -> RedisScheduler:
            return await redis_scheduler(plan, redis)

        async with rig(tmp_path, plan, make=make) as one:
            two = Rig(one.ledger, await redis_scheduler(plan, redis, aged=False), plan, make)
            await one.add(*[f"h{host}.test/{number}" for host in range(6) for number in range(9)])
            # Batches of the two must not be taken for each other.
            next(two._batches)
            two._batches = itertools.count(1_000_000)
            for _ in range(80):
                for worker in (one, two):
                    await worker.sweep()
                    for lease in await worker.scheduler.lease(3):
                        await worker.fetch(lease)
                    one.clock.advance(0.5)
            assert len(await one.records()) == 54
            assert (await one.scheduler.outlook()).queued == 0

    run(main)


# -- jobs ------------------------------------------------------------------------------------------------


def test_the_skew_of_a_clock_is_never_taken_for_less_than_it_is() -> None:
    skew = Skew()
    assert skew.seconds == 0.0
    for way in (0.5, 0.02, 3.0):
        skew.note(NOW, NOW - 7 + way)
    assert skew.seconds == pytest.approx(-7 + 0.02)
    for _ in range(64):
        skew.note(NOW, NOW + 1)
    assert skew.seconds == 1.0


def test_two_jobs_share_the_clock_of_a_host_and_each_keeps_its_own_delay(redis: RedisSettings) -> None:
    async def main() -> None:
        plans = Plan(delay=1.0, window_urls=64), Plan(delay=4.0)
        fast, slow = await two_benches(redis, *plans, jobs=("fast", "slow"))
        await fast.schedule("a.test", *some("a.test", 20))
        await slow.schedule("a.test", *some("a.test", 4))
        starts: list[tuple[float, str]] = []
        for _ in range(160):
            for name, bench in (("slow", slow), ("fast", fast)):
                for lease in await bench.lease():
                    starts.append((bench.clock(), name))
                    await bench.finish(lease)
            fast.clock.advance(0.25)
        for (before, _), (at, name) in itertools.pairwise(starts):
            assert at - before >= (4.0 if name == "slow" else 1.0)
        assert Counter(name for _, name in starts) == {"fast": 20, "slow": 4}

    run(main)


def test_a_retry_after_one_job_was_given_holds_the_other(redis: RedisSettings) -> None:
    async def main() -> None:
        one, two = await two_benches(redis, Plan(), jobs=("one", "two"))
        for bench in (one, two):
            await bench.schedule("a.test", *some("a.test", 2))
        (lease,) = await one.lease()
        assert await two.lease() == [], "the slot is taken"
        await one.scheduler.release(lease, Pause(NOW, until=NOW + 50, failed=True))
        await one.queued()
        assert (await two.scheduler.outlook()).next_due == NOW + 50
        one.clock.advance(49)
        assert await two.lease() == []
        one.clock.advance(1)
        assert [lease.failures for lease in await two.lease()] == [1]

    run(main)


def test_the_slot_of_a_job_whose_workers_are_gone_is_freed_by_another_job(redis: RedisSettings) -> None:
    async def main() -> None:
        gone, here = await two_benches(redis, Plan(delay=10), jobs=("gone", "here"))
        for bench in (gone, here):
            await bench.schedule("a.test", *some("a.test", 2))
        (lease,) = await gone.lease()
        here.clock.advance(60)
        assert await here.scheduler.expired() == [], "it is not a lease of this job"
        assert (await here.scheduler.outlook()).next_due == NOW + 70
        here.clock.advance(10)
        assert await here.lease_names() == ["a.test/1"]
        back = Bench(await redis_scheduler(gone.plan, redis, job="gone", aged=False), gone.plan)
        assert await back.lost() == [lease]

    run(main)


def test_a_job_that_is_forgotten_leaves_only_clocks_that_run_out(redis: RedisSettings) -> None:
    async def main() -> None:
        one, two = await two_benches(redis, Plan(), jobs=("one", "two"))
        for bench in (one, two):
            await bench.schedule("a.test", *some("a.test", 5))
        (lease,) = await one.lease()
        await one.finish(lease)
        assert isinstance(one.scheduler, RedisScheduler)
        await one.scheduler.forget()
        outlook = msgspec.structs.replace(await one.scheduler.outlook(), stale=0)
        assert (outlook.queued, outlook.hosts, outlook.next_due) == (0, 0, None)
        with Redis.from_url(redis.url) as client:
            left = {name.decode().partition("}:")[2] for name in client.scan_iter(f"{redis.prefix}:*")}
            assert not {name for name in left if "one" in name}
            assert client.ttl(f"{redis.prefix}:{{g:0}}:h:a.test") == -1, "the other job needs it"
        assert (await two.scheduler.outlook()).next_due == NOW + 1
        assert await two.lease() == []
        two.clock.advance(1)
        assert await two.lease_names() == ["a.test/1"]
        assert isinstance(two.scheduler, RedisScheduler)
        await two.scheduler.forget()
        with Redis.from_url(redis.url) as client:
            assert 60 <= client.ttl(f"{redis.prefix}:{{g:0}}:h:a.test") <= 60 + 2 * 60

    run(main)


if __name__ == "__main__":
    worker(*sys.argv[1:])
