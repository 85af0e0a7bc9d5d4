"""The scheduler of one machine keeps the contract."""

from __future__ import annotations

import asyncio

from gossamer.frontier.memory_scheduler import MemoryScheduler
from gossamer.model.outcome import Pause
from gossamer.testing.frontier_cases import NOW, info, known
from gossamer.testing.frontier_rig import memory_scheduler
from gossamer.testing.scheduler_contract import Bench, Plan, SchedulerContract
from gossamer.testing.trouble_contract import TroubleContract


class TestMemoryScheduler(SchedulerContract, TroubleContract):
    async def make(self, plan: Plan) -> MemoryScheduler:
        return memory_scheduler(plan)


def test_the_heap_does_not_grow_while_a_paused_host_is_touched() -> None:
    async def main() -> None:
        plan = Plan(window_urls=10_000)
        scheduler = memory_scheduler(plan)
        bench = Bench(scheduler, plan)
        await bench.schedule(info("a.test", until=NOW + 300), known("a.test/0", 0))
        for number in range(1, 2000):
            await scheduler.offer([known(f"a.test/{number}", number)])
        assert len(scheduler._heap) < 200

    asyncio.run(main())


def test_settled_requests_leave_nothing_behind() -> None:
    async def main() -> None:
        plan = Plan(delay=0)
        scheduler = memory_scheduler(plan)
        bench = Bench(scheduler, plan)
        await bench.schedule("a.test", *[known(f"a.test/{number}", number) for number in range(8)])
        for _ in range(8):
            for lease in await bench.lease():
                await scheduler.started(lease, bench.clock())
                await scheduler.release(lease, Pause(bench.clock()))
                await scheduler.settle([lease])
        assert not scheduler._places
        assert not scheduler._leases
        assert repr(scheduler) == "<MemoryScheduler 1 hosts, 0 requests, 0 leased>"

    asyncio.run(main())
