"""The process that visits suspects alone begins what it holds while the schedule stands by the lease, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from gossamer.config.job_file import JobSpec
from gossamer.config.load import load_settings
from gossamer.contracts import Clock
from gossamer.engine.processes import ProcessCrew
from gossamer.engine.report import Report
from gossamer.model.outcome import Deferred, Outcome, RobotsFile, Settled, StoredRobots
from gossamer.model.request import Known, Lease
from gossamer.parts import hiring, steady_clock
from gossamer.scopes import SharedBrief
from gossamer.testing.small_job import found
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb

LONGEST_SECONDS = 30.0


class Desk:
    """Takes one report."""

    def __init__(self, begin_by: Callable[[], float]) -> None:
        self._begin_by = begin_by
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def ready(self) -> None: ...

    def begin_by(self, lease: Lease) -> float:
        return self._begin_by()

    def started(self, lease: Lease, at: float) -> None: ...

    def reported(self, lease: Lease, report: Report) -> None:
        self.outcome.set_result(report.visit.outcome)

    def crashed(self, leases: Sequence[Lease], *, alone: bool) -> None:
        raise AssertionError(leases, alone)


def visit_in_the_cell(
    web: SyntheticWeb, host: str, begin_by: Callable[[Clock], float], *, robots_seconds: float = 0.0
) -> tuple[Outcome, int]:
    """Have a suspect visited whose robots.txt takes a while to look up; returns its outcome and how often it was asked for."""
    hits: list[Hit] = []

    async def answer(hit: Hit) -> Reply:
        hits.append(hit)
        return Reply(body=b"<title>x</title>")

    web.add(host, "/page", answer)
    settings, _ = load_settings({"allow_private": True}, {}, None)
    spec = JobSpec("scrape", (), settings=settings)
    brief = SharedBrief(msgspec.json.encode(spec.to_toml()).decode())
    clock = steady_clock()

    async def robots(origin: str) -> StoredRobots:
        await asyncio.sleep(robots_seconds)
        return StoredRobots(RobotsFile(origin, clock(), 404, b"", 1))

    async def main() -> Outcome:
        cell = hiring(settings, ["gossamer.child", "-"], workers=0, brief=msgspec.json.encode(brief))
        crew, desk = ProcessCrew(cell, robots, clock), Desk(lambda: begin_by(clock))
        running = asyncio.create_task(crew.run(desk))
        known = Known(found(web.url(host, "/page")).request, 1, crashes=1)
        crew.submit(Lease(known, 7, clock() + 60.0, settings.politeness.delay))
        async with asyncio.timeout(LONGEST_SECONDS):
            outcome = await desk.outcome
        running.cancel()
        await asyncio.wait([running])
        return outcome

    return asyncio.run(main()), len(hits)


def test_a_suspect_that_the_schedule_does_not_stand_by_is_given_back_untouched(web: SyntheticWeb) -> None:
    outcome, hits = visit_in_the_cell(web, "cell1", lambda _clock: 0.0)
    assert (outcome, hits) == (Deferred(), 0)


def test_a_suspect_may_begin_for_as_long_as_the_schedule_goes_on_standing_by_it(web: SyntheticWeb) -> None:
    outcome, hits = visit_in_the_cell(web, "cell2", lambda clock: clock() + 3.0, robots_seconds=3.5)
    assert isinstance(outcome, Settled), outcome
    assert hits == 1
