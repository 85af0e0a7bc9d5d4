"""When a worker leaves: never before all is done, and never after it is known that nobody will finish it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import DELAY, FLAGS, LONGEST_SECONDS, Crew, Servers, check_done, gossamer, submit, wait_until
from .site import Site


def test_workers_wait_for_a_submit_that_is_still_reading(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 18, 18)
    command = [sys.executable, "-m", "gossamer", "submit", "-i", "-", "--scrape", "--job", "job", *FLAGS]
    with subprocess.Popen(
        [*command, "--seed-batch-urls", "6"], env=servers.environment(), stdin=subprocess.PIPE, text=True
    ) as submitting:
        assert submitting.stdin is not None
        for first in range(0, 18, 6):
            for url in site.urls[first : first + 6]:
                submitting.stdin.write(f"{url}\n")
            submitting.stdin.flush()
            if not crew.all:
                wait_until(lambda: servers.ask("SELECT 1 FROM urls LIMIT 1"), "the first are in")
                crew.start()
                crew.start()
            fetched = first + 6
            wait_until(lambda: len(site.page_hits()) == fetched, "these were fetched")  # noqa: B023 - asked now
            servers.redis.ask("FLUSHALL")
            time.sleep(0.5)
            assert len(crew.running()) == 2
        submitting.stdin.close()
        assert submitting.wait(LONGEST_SECONDS) == 0
    crew.finish()
    check_done(servers, site)


def test_workers_do_not_leave_while_a_page_under_way_may_have_links(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    # A chain: there is never more than one page to do, and most workers have nothing.
    site = Site(web, 4, 1, answer_seconds=0.5)
    site.be_a_chain()
    submit(servers, site)
    for _ in range(3):
        crew.start()
    assert site.after_hits(len(site.urls)).wait(LONGEST_SECONDS)
    assert len(crew.running()) == 3
    crew.finish()
    check_done(servers, site)


def test_a_worker_says_so_when_the_submit_died_half_way_and_the_next_one_goes_on(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 20, 20)
    few = ("--scrape", "--seed-batch-urls", "5")
    submit(servers, site, *few, failpoint="add:done@2")
    worker = crew.start()
    wait_until(lambda: len(site.page_hits()) == 10, "all there is was done")
    assert worker.is_running()
    # As if a minute had passed.
    servers.ask("UPDATE meta SET value = (value::float8 - 70)::text WHERE key = 'seeding_at' RETURNING 1")
    assert worker.wait(20.0) == 2, worker.said()
    assert "run it again" in worker.said().splitlines()[-1]
    submit(servers, site, *few)
    crew.start()
    crew.finish()
    check_done(servers, site)
    assert set(site.page_hits().values()) == {1}


def test_two_jobs_on_the_same_hosts_keep_their_delay_together(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 60, 10)
    submit(servers, site, job="one")
    submit(servers, site, job="two")
    crew.start()
    crew.start("--job", "two")
    crew.finish()
    check_done(servers, site, job="one", delay=DELAY)
    check_done(servers, site, job="two", delay=DELAY)


def test_a_worker_that_cannot_do_the_only_job_says_why_and_ends(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 20, 2)
    submit(servers, site)
    misfit = crew.start("--redis-partitions", "3")
    assert misfit.wait() == 2, misfit.said()
    assert misfit.said().splitlines()[-1].startswith("gossamer: the schedule `gossamer` has 1 partitions")
    crew.start()
    crew.finish()
    check_done(servers, site)


@pytest.mark.parametrize("name", ["a/b", ".hidden", "a b", "a:b", "{a}", "x" * 201])
def test_a_name_that_no_schedule_can_have_is_refused_before_a_job_is_made(
    servers: Servers, name: str
) -> None:
    done = gossamer(servers, "submit", "http://host.test/", "--job", name)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not a usable name" in done.stderr
    assert servers.number("SELECT count(*) FROM jobs") == 0


def test_a_job_may_be_named_in_any_alphabet(web: SyntheticWeb, servers: Servers, crew: Crew) -> None:
    site = Site(web, 20, 2)
    submit(servers, site, job="Übung-織り")
    crew.start()
    crew.finish()
    check_done(servers, site, job="Übung-織り")
