"""Workers and submits are killed between a commit in PostgreSQL and what Redis hears of it."""

from __future__ import annotations

import signal

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import Crew, Servers, check_done, submit
from .site import Site

BOUNDARIES = ["commit:before", "commit:written", "commit:done", "settle:before", "settle:after"]


def test_killed_between_the_ledger_and_the_schedule_workers_leave_the_rest_to_others(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 300, 20)
    # A dozen pages in a commit at most: all but one of them die before they can have done everything.
    submit(servers, site, "-c", "4", "--max-uncommitted-pages", "8")
    doomed = [crew.start(failpoint=f"{boundary}@{2 + n}") for n, boundary in enumerate(BOUNDARIES)]
    for worker in doomed:
        assert worker.wait() == -signal.SIGKILL, worker.said()
    crew.start()
    crew.finish()
    check_done(servers, site)


@pytest.mark.parametrize(
    "boundary",
    [
        "add:written",
        pytest.param("add:before", marks=pytest.mark.soak),
        pytest.param("add:done", marks=pytest.mark.soak),
    ],
)
def test_a_submit_killed_at_a_boundary_goes_on_when_it_is_repeated(
    web: SyntheticWeb, servers: Servers, crew: Crew, boundary: str
) -> None:
    site = Site(web, 20, 20)
    few = ("--seed-batch-urls", "3")
    assert submit(servers, site, *few, failpoint=f"{boundary}@3").returncode == -signal.SIGKILL
    added = servers.number("SELECT count(*) FROM urls")
    assert added in {6, 9}
    assert submit(servers, site, *few).returncode == 0
    assert servers.number("SELECT count(*) FROM urls") == 20
    assert servers.ask("SELECT sum(n)::bigint FROM counts") == [(20,)]
