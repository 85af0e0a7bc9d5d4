"""Two jobs on one host keep its delay together."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gossamer.errors import OutputFailed
from gossamer.frontier.host_clocks import HostClocks
from gossamer.frontier.memory_scheduler import MemoryScheduler
from gossamer.model.outcome import Pause
from gossamer.model.request import Lease
from gossamer.testing.clock import FakeClock
from gossamer.testing.frontier_cases import NOW, info
from gossamer.testing.scheduler_contract import Bench, Plan, some

_HOLD_AND_DIE = """
import sys, os, signal
from pathlib import Path
from gossamer.frontier.host_clocks import HostClocks
clocks = HostClocks(Path(sys.argv[1]))
assert not clocks.claim("a.test", 1000.0, 1.0, 300.0)
print("claimed", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[HostClocks, HostClocks]]:
    one, other = HostClocks(tmp_path / "clocks"), HostClocks(tmp_path / "clocks")
    yield one, other
    one.close()
    other.close()


def test_what_one_job_has_claimed_another_waits_for(two: tuple[HostClocks, HostClocks]) -> None:
    one, other = two
    assert one.claim("a.test", NOW, 1.0, 300.0) == 0.0
    assert NOW < other.claim("a.test", NOW, 1.0, 300.0) < NOW + 1
    assert other.claim("b.test", NOW, 1.0, 300.0) == 0.0, "another host is another clock"
    one.free("a.test", NOW + 0.3)
    assert other.claim("a.test", NOW + 0.4, 1.0, 300.0) == NOW + 1.3
    assert other.claim("a.test", NOW + 1.3, 1.0, 300.0) == 0.0


def test_each_job_keeps_its_own_delay_from_the_start_of_the_other(
    two: tuple[HostClocks, HostClocks],
) -> None:
    one, other = two
    one.claim("a.test", NOW, 1.0, 300.0)
    one.free("a.test", NOW)
    assert other.claim("a.test", NOW + 1, 5.0, 300.0) == NOW + 5
    assert one.claim("a.test", NOW + 1, 1.0, 300.0) == 0.0


def test_a_claim_that_came_to_nothing_leaves_no_start(two: tuple[HostClocks, HostClocks]) -> None:
    one, other = two
    one.claim("a.test", NOW, 1.0, 300.0)
    one.free("a.test", 0.0)
    assert other.claim("a.test", NOW, 1.0, 300.0) == 0.0


def test_a_rest_holds_for_everybody_unless_it_is_absurd(two: tuple[HostClocks, HostClocks]) -> None:
    one, other = two
    one.rest("a.test", NOW + 60)
    assert other.claim("a.test", NOW, 1.0, 300.0) == NOW + 60
    one.rest("b.test", NOW + 9999)
    assert other.claim("b.test", NOW, 1.0, 300.0) == 0.0


def test_the_clock_of_a_job_that_was_killed_is_free(tmp_path: Path) -> None:
    path = tmp_path / "clocks"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD_AND_DIE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"claimed\n"
        clocks = HostClocks(path)
        assert clocks.claim("a.test", 1000.0, 1.0, 300.0) > 1000.0
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        holder.wait(60)
    assert clocks.claim("a.test", 1000.0, 1.0, 300.0) == 0.0
    clocks.close()


def test_garbage_in_the_file_does_not_stop_anybody_for_long(tmp_path: Path) -> None:
    path = tmp_path / "clocks"
    path.write_bytes(os.urandom(1 << 20) * 16)
    clocks = HostClocks(path)
    for number in range(200):
        assert clocks.claim(f"{number}.test", NOW, 1.0, 300.0) <= NOW + 300
    clocks.close()


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(OutputFailed, match="clocks that jobs share"):
        HostClocks(tmp_path / "absent" / "clocks")


@pytest.mark.parametrize("per_host", [1, 3])
def test_the_starts_of_two_jobs_are_a_delay_apart(tmp_path: Path, per_host: int) -> None:
    """Two schedulers, one clock, and leases that start and end at random moments."""

    async def main() -> list[float]:
        clock = FakeClock(NOW)
        chance = random.Random(per_host)
        clocks = [HostClocks(tmp_path / "clocks") for _ in range(2)]
        benches = []
        for shared in clocks:
            plan = Plan(clock=clock, per_host=per_host)
            scheduler = MemoryScheduler(plan.frontier, plan.politeness, clock, lambda: 0.0, clocks=shared)
            benches.append(Bench(scheduler, plan))
            await benches[-1].schedule(info("a.test"), *some("a.test", 8))
        starts: list[float] = []
        open_: list[tuple[Bench, Lease, float]] = []
        for _ in range(4000):
            for bench in benches:
                open_ += [(bench, lease, clock() + chance.random()) for lease in await bench.lease()]
            for entry in [entry for entry in open_ if entry[2] <= clock()]:
                bench, lease, _at = entry
                open_.remove(entry)
                starts.append(clock())
                if per_host > 1:
                    await bench.scheduler.started(lease, clock())
                await bench.scheduler.release(lease, Pause(clock()))
                await bench.scheduler.settle([lease])
            clock.advance(0.01)
        for shared in clocks:
            shared.close()
        return starts

    starts = asyncio.run(main())
    assert len(starts) == 16, "both jobs came to their end"
    assert min(later - sooner for sooner, later in pairwise(starts)) >= 1.0
