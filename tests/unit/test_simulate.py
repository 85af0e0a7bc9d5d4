"""The simulation of a large crawl keeps the promises of the real one, and the page of its figures adds up."""

from __future__ import annotations

import asyncio
import doctest
import re
from array import array
from pathlib import Path

import pytest
from bench.simulate import Outcome, Plan, bound, host_rate, jain, simulate
from bench.simulated_web import ArrayLedger, Servers, VirtualLoop, Web, mean_gap, quantile

from gossamer.config.settings import PolitenessSettings
from gossamer.engine.loop import Ending
from gossamer.engine.report import Report
from gossamer.model.request import Known, Lease, Request
from gossamer.testing.clock import FakeClock

DOCS = Path(__file__).parents[2] / "docs"
WEB = Web(hosts=300, exponent=0.4, scale=60, largest=40)
#: A fifth of the hosts may be active, and a turn is a few pages: hosts must make room for each other.
CROWDED = Plan(slots=40, active_hosts=60, window_urls=4, scheduled_urls=240, sweep_seconds=1.0)


@pytest.fixture(scope="module", params=[Plan(slots=40), CROWDED], ids=["roomy", "crowded"])
def outcome(request: pytest.FixtureRequest) -> Outcome:
    plan: Plan = request.param
    return simulate(WEB, plan)


def test_every_page_is_fetched_once_and_every_robots_file_before_it(outcome: Outcome) -> None:
    assert (outcome.ending, outcome.pages_left) == (Ending.DONE, 0)
    assert outcome.seen.pages == sum(WEB.sizes())
    assert outcome.seen.starts == sum(WEB.sizes()) + WEB.hosts


def test_no_host_is_asked_too_early_or_twice_at_a_time(outcome: Outcome) -> None:
    assert (outcome.seen.too_early, outcome.seen.beside_another) == (0, 0)
    assert quantile(outcome.seen.waits, 0.0) >= PolitenessSettings().delay


def test_the_schedule_stays_within_its_bounds(outcome: Outcome) -> None:
    plan = outcome.plan
    assert max(sample.hosts for sample in outcome.samples) <= plan.active_hosts
    # What is leased, or fetched and not committed yet, is no longer in a window.
    leased = plan.slots + plan.settings().engine.commit_pages
    assert max(sample.scheduled for sample in outcome.samples) <= plan.scheduled_urls + leased


def test_no_crawl_is_faster_than_slots_and_politeness_allow(outcome: Outcome) -> None:
    # Over a short run the answers are a little faster or slower than on average.
    assert outcome.starts_per_second <= 1.15 * bound(WEB, outcome.plan)


def test_the_bound_is_set_by_slots_or_by_hosts_whichever_are_fewer() -> None:
    assert bound(WEB, Plan(slots=1, active_hosts=1000)) == 1 / WEB.mean_seconds
    assert bound(WEB, Plan(slots=1000, active_hosts=1)) == host_rate(WEB, Plan(active_hosts=1))


def test_a_host_without_end_is_asked_once_a_gap_and_one_of_one_page_twice_in_its_stay() -> None:
    endless = Web(hosts=1, scale=10**6, largest=10**6)
    one_turn = Plan(active_hosts=1, window_urls=10**7, scheduled_urls=10**7)
    assert host_rate(endless, one_turn) == pytest.approx(
        1 / mean_gap(endless, PolitenessSettings()), rel=1e-3
    )
    tiny = Web(hosts=1, scale=1, largest=1)
    assert host_rate(tiny, Plan()) == pytest.approx(2 / (1.05 + tiny.mean_seconds))


def test_hosts_of_one_page_come_in_as_fast_as_others_leave() -> None:
    # Each stays for a second and a half: at the pace of the sweep, a window in five seconds, most slots would be idle.
    web = Web(3000, scale=1, largest=1)
    plan = Plan(200, active_hosts=150, sweep_seconds=5.0)
    assert simulate(web, plan).starts_per_second > 0.7 * bound(web, plan)


def test_the_same_seed_gives_the_same_crawl() -> None:
    first, second = (simulate(WEB, CROWDED) for _ in range(2))
    assert [(s.at, s.starts) for s in first.samples] == [(s.at, s.starts) for s in second.samples]


def test_a_request_that_comes_too_early_is_noticed() -> None:
    clock = FakeClock()
    servers = Servers(WEB, PolitenessSettings(), 2, clock, lambda starts: None)
    known = Known(Request("http://7/0", 7, "7"), 0)

    async def two_at_once() -> None:
        servers.submit(Lease(known, 1, 0.0))
        clock.advance(0.5)
        servers.submit(Lease(known, 2, 0.0))

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(two_at_once())
    assert (servers.seen.too_early, servers.seen.beside_another) == (1, 1)


def test_a_minute_of_virtual_time_passes_at_once() -> None:
    clock = FakeClock(0.0)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(asyncio.sleep(60))
    assert clock() == pytest.approx(60)


def test_jains_index_is_one_for_equals_and_small_where_one_has_all() -> None:
    assert jain([3, 3, 3]) == 1.0
    assert jain([9, 0, 0]) == pytest.approx(1 / 3)


def test_a_host_that_answers_slowly_has_longer_gaps() -> None:
    fast, slow = Web(median_seconds=0.01), Web(median_seconds=1.0)
    assert mean_gap(fast, PolitenessSettings()) == pytest.approx(1.05, rel=0.01)
    # Twice as long as the answer, where that is more than a second: 2.0 x 1.377 s, and the jitter.
    assert mean_gap(slow, PolitenessSettings()) == pytest.approx(2.92, rel=0.03)


# -- the page ------------------------------------------------------------------------------------------

_INPUT = re.compile(r"^>>> \w+ = ([\d_.]+)  # (\S+): (.+)$", re.MULTILINE)


def blocks() -> str:
    text = (DOCS / "scaling.md").read_text("utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def test_the_results_on_the_page_follow_from_its_inputs() -> None:
    test = doctest.DocTestParser().get_doctest(blocks(), {}, "scaling.md", None, 0)
    assert len(test.examples) > 40
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert "".join(said) == ""


def test_every_measured_input_of_the_page_is_what_the_table_it_names_says() -> None:
    inputs = _INPUT.findall(blocks())
    assert len(inputs) > 8
    for value, page, label in inputs:
        rows = [row for row in (DOCS / page).read_text("utf-8").split("\n") if row.startswith(f"| {label} ")]
        numbers = {float(found) for row in rows for found in re.findall(r"[\d.]+", row.replace(",", ""))}
        assert float(value) in numbers, f"{value} is not in the row {label!r} of {page}: measure or correct"


def test_a_ledger_of_arrays_returns_what_is_not_done_in_order() -> None:
    ledger = ArrayLedger(array("I", [5]))
    for page in (1, 0, 3):
        ledger._settle(0, page)
    known = asyncio.run(ledger.take("0", 9, 0.0))
    assert [item.seq for item in known] == [2, 4]


def test_reports_are_made_for_every_answer() -> None:
    clock = FakeClock()
    servers = Servers(WEB, PolitenessSettings(), 1, clock, lambda starts: None)
    reports: list[Report] = []

    class Desk:
        def ready(self) -> None: ...
        def begin_by(self, lease: Lease) -> float:
            return lease.expires_at

        def started(self, lease: Lease, at: float) -> None: ...
        def crashed(self, leases: object, *, alone: bool) -> None: ...
        def reported(self, lease: Lease, report: Report) -> None:
            reports.append(report)

    async def ask_twice() -> None:
        crew = asyncio.create_task(servers.run(Desk()))
        for token in (1, 2):
            await asyncio.sleep(60)
            servers.submit(Lease(Known(Request("http://7/0", 7, "7"), 0), token, 0.0))
        await asyncio.sleep(60)
        crew.cancel()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(ask_twice())
    assert [report.visit.fetches[0].kind for report in reports] == ["robots", "page"]
