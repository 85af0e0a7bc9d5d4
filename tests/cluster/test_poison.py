"""A page that takes down whoever visits it is given up, and nothing beside it is."""

from __future__ import annotations

import os
import signal
import time

import pytest

from gossamer.testing.synthetic_reply import Hit
from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import Crew, Servers, check_done, holder_of, submit
from .site import Site

POISONOUS = 25


def poison(
    site: Site, crew: Crew, number: signal.Signals, times: int, *, with_parent: bool = False
) -> list[int]:
    """Do to the process that asks for one page what a bug in its visit would do, so many times; returns to whom.

    `with_parent` strikes the worker whose child it is too, as a container does that is out of memory.
    """
    struck: list[int] = []
    poisonous = site.paths[POISONOUS]

    def strike(hit: Hit) -> None:
        if (hit.host, hit.path) == poisonous and len(struck) < times:
            family = {
                pid: worker.pid for worker in crew.running() for pid in [worker.pid, *worker.children()]
            }
            holder = holder_of(hit.port, site.web.port, list(family))
            if not holder:  # whoever asked has given up, and did so unharmed
                return
            struck.append(holder)
            os.kill(holder, number)
            if with_parent and family[holder] != holder:
                struck[-1] = family[holder]
                os.kill(family[holder], number)

    site.on_hit = strike
    return struck


def keep_two(servers: Servers, crew: Crew, struck: list[int]) -> None:
    """Replace whoever was struck, until the job is done."""
    while servers.number("SELECT count(*) FROM urls WHERE state = 0"):
        able = [worker for worker in crew.running() if worker.pid not in struck]
        for _ in range(2 - len(able)):
            crew.start()
        time.sleep(0.1)
    for worker in crew.running():
        if worker.pid not in struck:
            assert worker.wait() == 0, worker.said()


def test_a_page_that_kills_its_process_alone_three_times_is_poison_and_nothing_beside_it_is(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 80, 20, answer_seconds=0.1)
    submit(servers, site)
    crew.start()
    struck = poison(site, crew, signal.SIGKILL, times=9)
    keep_two(servers, crew, struck)
    # Once beside others. From then on alone, in a process that is there for nothing else: no worker dies of it.
    assert len(struck) == 4
    assert [pid for pid in struck if pid in {worker.pid for worker in crew.all}] == struck[:1]
    check_done(servers, site, failed={site.urls[POISONOUS]: "poison"})


@pytest.mark.soak
def test_a_page_that_takes_the_worker_down_with_its_child_is_poison(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 80, 20, answer_seconds=0.1)
    submit(servers, site)
    crew.start()
    struck = poison(site, crew, signal.SIGKILL, times=9, with_parent=True)
    keep_two(servers, crew, struck)
    assert len(struck) == 4
    check_done(servers, site, failed={site.urls[POISONOUS]: "poison"})


def test_a_page_that_hangs_its_worker_is_visited_by_another_after_the_lease(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 80, 20, answer_seconds=0.1)
    submit(servers, site)
    crew.start()
    struck = poison(site, crew, signal.SIGSTOP, times=1)
    crew.start()
    keep_two(servers, crew, struck)
    assert len(struck) == 1
    check_done(servers, site)


@pytest.mark.soak
def test_a_page_that_hangs_whatever_visits_it_is_poison(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 80, 20, answer_seconds=0.1)
    submit(servers, site)
    crew.start()
    struck = poison(site, crew, signal.SIGSTOP, times=9)
    keep_two(servers, crew, struck)
    assert len(struck) == 4
    check_done(servers, site, failed={site.urls[POISONOUS]: "poison"})
