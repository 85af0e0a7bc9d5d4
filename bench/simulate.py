"""How fast can a polite crawl of a million hosts be? Runs the crawl's real loop and scheduler in virtual time."""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import random
import sys
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import psutil

from bench import report
from bench.simulated_web import (
    ArrayLedger,
    Seen,
    Servers,
    VirtualLoop,
    Web,
    mean_gap,
    quantile,
)
from gossamer.config.settings import EngineSettings, FrontierSettings, Settings
from gossamer.engine.frontier import Frontier
from gossamer.engine.loop import Ending, Loop, Standing
from gossamer.engine.outputs import Outputs
from gossamer.engine.seeds import Seeds
from gossamer.frontier.memory_scheduler import MemoryScheduler
from gossamer.model.url import UrlPolicy
from gossamer.policy.scope import Scope
from gossamer.testing.clock import FakeClock

PAGE = report.DOCS / "scaling.md"
PLOT = report.DOCS / "simulate.svg"
#: What a curve of the picture has, about.
_POINTS = 300


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: its settings, and after how many requests it ends though the web is not read to its end."""

    slots: int = 64
    active_hosts: int = 2000
    window_urls: int = 256
    scheduled_urls: int = 50_000
    sweep_seconds: float = 5.0
    max_starts: int | None = None

    @property
    def turn(self) -> int:
        """URLs of a window when all hosts that may be active are: the scheduler's own rule."""
        return min(self.window_urls, max(self.scheduled_urls // self.active_hosts, 4))

    def settings(self) -> Settings:
        return Settings(
            engine=replace(EngineSettings(), concurrency=self.slots),
            frontier=replace(
                FrontierSettings(),
                active_hosts=self.active_hosts,
                window_urls=self.window_urls,
                scheduled_urls=self.scheduled_urls,
                sweep_seconds=self.sweep_seconds,
            ),
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """The crawl at one moment of virtual time."""

    at: float
    starts: int
    pages: int
    #: Requests the scheduler holds, waiting or leased, and its hosts.
    scheduled: int
    hosts: int
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    ending: Ending
    samples: list[Sample]
    seen: Seen
    cpu_seconds: float
    #: Resident MB with the arrays of the web and its servers, and nothing scheduled yet.
    empty_mb: float
    #: Jain's index when half of the requests were out.
    jain: float
    pages_left: int

    @property
    def starts_per_second(self) -> float:
        return plateau(self.samples)


class NoLog:
    """Implements `EventLog`."""

    def write(self, event: str, /, **fields: object) -> None:
        raise AssertionError(f"{event}: {fields}")


class NoGrouping:
    """Implements `Grouping`: every host is a group of its own."""

    async def groups(self, hosts: Sequence[str]) -> dict[str, str]:
        del hosts
        return {}


def jain(values: Sequence[int]) -> float:
    """Return Jain's index of fairness: 1 where all have the same, 1/n where one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def fairness(sizes: array[int], done: array[int]) -> float:
    """Return the mean of Jain's index over hosts of equal size, of all sizes from 8 pages that 20 hosts have."""
    classes: dict[int, list[int]] = defaultdict(list)
    for size, fetched in zip(sizes, done, strict=True):
        if size >= 8:
            classes[size].append(fetched)
    crowds = [values for values in classes.values() if len(values) >= 20]
    weight = sum(map(len, crowds))
    return sum(jain(values) * len(values) for values in crowds) / weight if weight else 1.0


def plateau(samples: Sequence[Sample]) -> float:
    """Return the starts a second over the middle half of all starts."""
    total = samples[-1].starts
    first = next(sample for sample in samples if sample.starts >= total / 4)
    last = next(sample for sample in samples if sample.starts >= total * 3 / 4)
    if first is last:
        return total / max(samples[-1].at, 1.0)
    return (last.starts - first.starts) / (last.at - first.at)


class Simulation:
    """A web, the real loop around the real scheduler, and somebody who watches."""

    def __init__(self, web: Web, plan: Plan, sample_seconds: float) -> None:
        self._plan = plan
        self._every = sample_seconds
        self._settings = settings = plan.settings()
        self._clock = clock = FakeClock()
        self._ledger = ArrayLedger(web.sizes())
        self._process = psutil.Process()
        self._servers = Servers(web, settings.politeness, plan.slots, clock, self._after_start)
        self._empty_mb = self._rss_mb()
        scheduler = MemoryScheduler(
            settings.frontier, settings.politeness, clock, random.Random(web.seed).random
        )
        self._frontier = Frontier(self._ledger, scheduler, settings.politeness, clock, NoGrouping())
        self._last_start = plan.max_starts or self._ledger.left + web.hosts
        self._jain = 1.0
        self._loop: Loop | None = None

    def run(self) -> Outcome:
        """Crawl until every page is fetched, or as many requests are out as were planned."""
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self._clock)) as runner:
            return runner.run(self._crawl())

    async def _crawl(self) -> Outcome:
        settings = self._settings
        seeds = Seeds((), "", UrlPolicy(), Scope(settings.scope), 1)
        standing = Standing(seeding="closed")
        self._loop = loop = Loop(
            settings,
            self._frontier,
            self._servers,
            seeds,
            Outputs([]),
            standing,
            self._clock,
            NoLog(),
            "simulation",
        )
        samples: list[Sample] = []
        watch = asyncio.create_task(self._watch(samples), name="watch")
        begun = time.process_time()
        ending = await loop.run()
        cpu = time.process_time() - begun
        watch.cancel()
        samples.append(await self._sample())
        return Outcome(
            self._plan,
            ending,
            samples,
            self._servers.seen,
            cpu,
            self._empty_mb,
            self._jain,
            self._ledger.left,
        )

    def _after_start(self, starts: int) -> None:
        if starts == self._last_start // 2:
            self._jain = fairness(self._ledger.sizes, self._ledger.done)
        if starts == self._plan.max_starts and self._loop is not None:
            self._loop.stop(Ending.TIME_LIMIT)

    async def _watch(self, samples: list[Sample]) -> None:
        while True:
            samples.append(await self._sample())
            await asyncio.sleep(self._every)

    async def _sample(self) -> Sample:
        outlook = await self._frontier.outlook()
        seen = self._servers.seen
        scheduled = outlook.queued + outlook.in_flight
        return Sample(
            self._clock() - seen.began, seen.starts, seen.pages, scheduled, outlook.hosts, self._rss_mb()
        )

    def _rss_mb(self) -> float:
        return float(self._process.memory_info().rss) / 1e6


def simulate(web: Web, plan: Plan, sample_seconds: float = 1.0) -> Outcome:
    """Run one plan."""
    return Simulation(web, plan, sample_seconds).run()


# -- what is told of it --------------------------------------------------------------------------------

STARTS = 100_000
PLANS = (
    Plan(64),
    Plan(256),
    Plan(1000),
    Plan(1000, sweep_seconds=1.0),
    Plan(1000, 10_000, sweep_seconds=1.0),
    Plan(1000, 10_000, scheduled_urls=640_000, sweep_seconds=1.0),
    Plan(4000, 20_000, sweep_seconds=0.25),
)
HEAD = (
    "slots",
    "active hosts",
    "window",
    "sweep, s",
    "requests/s",
    "bound",
    "of it",
    "too early",
    "again after, s: p50, p99, longest",
    "URLs held",
    "MB more",
    "CPU µs",
)


def bound(web: Web, plan: Plan) -> float:
    """Return the requests a second that slots and politeness allow, whichever allow fewer."""
    return min(plan.slots / web.mean_seconds, plan.active_hosts * host_rate(web, plan))


def host_rate(web: Web, plan: Plan) -> float:
    """Return the requests a second of an active host.

    It stays for a turn, as long as a window: from one request to the next a gap passes, and the last only has to be
    answered. So hosts that leave soon are faster than one that never runs out of pages.
    """
    politeness = plan.settings().politeness
    first = politeness.delay * (1 + politeness.jitter / 2)
    gap = mean_gap(web, politeness)
    requests, seconds = 0, 0.0
    for pages, hosts in Counter(web.sizes()).items():
        stays = math.ceil((pages + 1) / plan.turn)
        requests += hosts * (pages + 1)
        seconds += hosts * (first + (pages - stays) * gap + stays * web.mean_seconds)
    return requests / seconds


def row(web: Web, outcome: Outcome) -> list[str]:
    plan, seen, samples = outcome.plan, outcome.seen, outcome.samples
    most = bound(web, plan)
    waits = [quantile(seen.waits, 0.5), quantile(seen.waits, 0.99), seen.longest_wait]
    return [
        f"{plan.slots:,}",
        f"{plan.active_hosts:,}",
        f"{plan.turn}",
        f"{plan.sweep_seconds:g}",
        f"{outcome.starts_per_second:,.0f}",
        f"{most:,.0f}",
        f"{outcome.starts_per_second / most:.0%}",
        f"{seen.too_early + seen.beside_another}",
        ", ".join(f"{wait:,.1f}" for wait in waits),
        f"{max(sample.scheduled for sample in samples):,}",
        f"{max(sample.rss_mb for sample in samples) - outcome.empty_mb:.0f}",
        f"{1e6 * outcome.cpu_seconds / seen.starts:.0f}",
    ]


def moment(samples: Sequence[Sample], share: float) -> float:
    """Return when so large a share of the pages was fetched."""
    wanted = share * samples[-1].pages
    return next(sample.at for sample in samples if sample.pages >= wanted)


def ramp_seconds(outcome: Outcome) -> float:
    """Return when the crawl first ran at nine tenths of its plateau."""
    for before, after in pairwise(outcome.samples):
        if after.starts - before.starts >= 0.9 * outcome.starts_per_second * (after.at - before.at):
            return after.at
    return outcome.samples[-1].at


def story(web: Web, outcome: Outcome) -> str:
    """Tell a run to the end in sentences."""
    samples, sizes = outcome.samples, web.sizes()
    end = samples[-1].at
    gap = mean_gap(web, outcome.plan.settings().politeness)
    most = moment(samples, 0.9)
    first = quantile(outcome.seen.first_waits, 0.5), quantile(outcome.seen.first_waits, 1.0)
    return (
        f"To the end: {web.hosts:,} hosts, {sum(sizes):,} pages, {sum(size == 1 for size in sizes):,} hosts of one page, the"
        f" largest of {max(sizes):,}; {outcome.plan.slots} slots, {outcome.plan.active_hosts:,} active hosts. Nine tenths of"
        f" the plateau of {outcome.starts_per_second:,.0f} requests/s were reached within {ramp_seconds(outcome):,.0f} s."
        f" A host's first request came after {first[0]:,.0f} s (median) and {first[1]:,.0f} s (last)."
        f" 90% of the pages were fetched after {most:,.0f} s, all after {end:,.0f} s: the last tenth took"
        f" {1 - most / end:.0%} of the time. The largest host alone needs {max(sizes):,} x {gap:.2f} s ="
        f" {max(sizes) * gap:,.0f} s, however many workers there are."
        f" When half of the requests were out, Jain's index over hosts of equal size was {outcome.jain:.2f}."
        f" {outcome.seen.too_early} of {outcome.seen.starts:,} requests came too early."
    )


def draw(outcome: Outcome) -> None:
    """Draw requests a second, and the share of pages fetched, over the time of a run to the end."""
    # A run without a picture needs no matplotlib.
    from matplotlib import pyplot as plt  # noqa: PLC0415

    from bench import plot  # noqa: PLC0415

    samples = outcome.samples[:: max(len(outcome.samples) // _POINTS, 1)]
    pairs = [(a, b) for a, b in pairwise(samples) if b.at > a.at]
    canvas, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8))
    left.plot(
        [b.at for _, b in pairs], [(b.starts - a.starts) / (b.at - a.at) for a, b in pairs], color="#b5475b"
    )
    left.set(xlabel="virtual seconds", ylabel="requests per second", ylim=(0, None))
    total = samples[-1].pages
    right.plot([s.at for s in samples], [100 * s.pages / total for s in samples], color="#b5475b")
    right.set(xlabel="virtual seconds", ylabel="% of pages fetched", ylim=(0, None))
    canvas.tight_layout()
    canvas.savefig(PLOT, bbox_inches="tight", metadata=plot.METADATA)
    plt.close(canvas)


def alone(web: Web, plan: Plan) -> Outcome:
    """Run a plan in a process of its own, so that its memory is its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(simulate, web, plan).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1_000_000)
    parser.add_argument("--starts", type=int, default=STARTS, help="requests of each plan")
    parser.add_argument("--end-hosts", type=int, default=200_000, help="hosts of the run to the end")
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/scaling.md")
    given = parser.parse_args()
    web = scaled(given.hosts)
    rows = []
    for plan in PLANS:
        rows.append(row(web, alone(web, replace(plan, max_starts=given.starts))))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    small = scaled(given.end_hosts)
    ended = alone(small, Plan(256, sweep_seconds=1.0))
    text = f"{report.table(HEAD, rows)}\n\nEach row: the first {given.starts:,} requests.\n\n{story(small, ended)}"
    print(text)
    if given.write_docs:
        draw(ended)
        report.write_section(
            "simulate", f"{text}\n\n![Simulation](simulate.svg)\n\n{report.machine()}.", PAGE
        )


def scaled(hosts: int) -> Web:
    """Return a web whose pages grow with its hosts, a hundredth of them in the largest."""
    return Web(hosts, scale=max(hosts // 10, 1), largest=max(hosts // 100, 1))


if __name__ == "__main__":
    main()
