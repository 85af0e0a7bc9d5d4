"""When a worker leaves: never before all is done, and never after it is known that nobody will finish it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from gossamer.testing.synthetic_reply import Hit
from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import (
    DELAY,
    FLAGS,
    LONGEST_SECONDS,
    PATIENT,
    Crew,
    Servers,
    check_done,
    gossamer,
    submit,
    wait_until,
)
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
    site = Site(web, 4, 1)
    site.be_a_chain()
    submit(servers, site, *PATIENT)
    last, release = site.after_hits(len(site.urls)), site.hold(after=len(site.urls) - 1)
    for _ in range(3):
        crew.start()
    for worker in crew.all:
        wait_until(lambda: worker.events("job_started"), "it has a part in the job")  # noqa: B023 - asked now
    assert last.wait(LONGEST_SECONDS)
    # A worker looks once a second whether it may leave.
    time.sleep(1.5)
    assert len(crew.running()) == 3
    release.set()
    crew.finish()
    check_done(servers, site)


def test_a_worker_says_so_when_the_submit_died_half_way_and_the_next_one_goes_on(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 20, 20)
    few = ("--scrape", "--seed-batch-urls", "5", *PATIENT)
    submit(servers, site, *few, failpoint="add:done@2")
    worker = crew.start()
    wait_until(lambda: len(site.page_hits()) == 10, "all there is was done")
    assert worker.is_running()
    # As if a minute had passed.
    servers.ask("UPDATE meta SET value = (value::float8 - 70)::text WHERE key = 'seeding_at' RETURNING 1")
    assert worker.wait() == 2, worker.said()
    assert "run it again" in worker.said().splitlines()[-1]
    submit(servers, site, *few)
    crew.start()
    crew.finish()
    check_done(servers, site)
    assert set(site.page_hits().values()) == {1}


def test_a_submit_that_died_keeps_no_worker_from_the_other_jobs(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site, other = Site(web, 20, 20), Site(web, 60, 2)
    submit(servers, site, "--scrape", "--seed-batch-urls", "5", *PATIENT, job="half", failpoint="add:done@2")
    submit(servers, other, *PATIENT, job="whole")
    begun = other.after_hits(10)
    worker = crew.start()
    assert begun.wait(LONGEST_SECONDS)
    wait_until(lambda: servers.number("SELECT count(*) FROM pages WHERE job = 1") == 10, "the half is done")
    # As if a minute had passed.
    servers.ask("UPDATE meta SET value = (value::float8 - 70)::text WHERE key = 'seeding_at' RETURNING 1")
    assert worker.wait() == 2, worker.said()
    assert "the submit of job half stopped half-way" in worker.said().splitlines()[-1]
    check_done(servers, other, job="whole")
    assert servers.leases() == 0


def test_a_job_that_is_done_takes_no_room_in_redis(web: SyntheticWeb, servers: Servers, crew: Crew) -> None:
    site = Site(web, 40, 20)
    submit(servers, site)
    crew.start()
    crew.finish()
    assert servers.count_of("HLEN", "gossamer:{g:0}:w:job") == 0
    keys = servers.redis.ask("KEYS", "*").split()
    of_hosts = [key for key in keys if any(f":{host}." in key for host in site.hosts)]
    lasting = [key for key in of_hosts if servers.count_of("TTL", key) < 0]
    assert lasting == [], "what is left are clocks that run out"


def test_a_paused_job_that_is_done_is_not_waited_for(web: SyntheticWeb, servers: Servers, crew: Crew) -> None:
    site = Site(web, 4, 4)
    submit(servers, site)
    crew.start()
    crew.finish()
    assert gossamer(servers, "pause", "job").returncode == 0
    crew.start()
    crew.finish()


def test_a_crawl_of_a_job_that_rests_or_cannot_be_scheduled_says_so_and_makes_nothing(
    web: SyntheticWeb, servers: Servers
) -> None:
    site = Site(web, 4, 4)
    submit(servers, site)
    for word, state in (("pause", "paused"), ("stop", "stopped")):
        gossamer(servers, word, "job")
        refused = gossamer(servers, "crawl", *site.seeds, "--job", "job", *FLAGS)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert f"job job is {state}: `gossamer resume job`" in refused.stderr
        assert f"it is {state}" in submit(servers, site).stderr
    nowhere = gossamer(servers, "crawl", *site.seeds, "--job", "new", "--redis", "redis://127.0.0.1:1/0")
    assert (nowhere.returncode, nowhere.stderr.count("\n")) == (6, 1)
    assert servers.ask("SELECT name FROM jobs") == [("job",)]


def test_a_submit_that_reads_once_more_reopens_a_job_that_was_done(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 6, 6)
    words = ("-i", "-", "--job", "job", *FLAGS)
    for urls in (site.urls[:2], site.urls[2:4]):
        assert gossamer(servers, "submit", "--scrape", *words, stdin="\n".join(urls)).returncode == 0
        crew.start()
        crew.finish()
    done = gossamer(servers, "scrape", *words, stdin="\n".join(site.urls[4:]))
    assert done.returncode == 0, done.stderr
    check_done(servers, site)


def test_a_submit_without_a_url_says_so(servers: Servers) -> None:
    empty = gossamer(servers, "submit", "-", "--job", "job", stdin="# nothing\n")
    assert (empty.returncode, empty.stderr.count("\n")) == (4, 1)
    assert "no URL was submitted" in empty.stderr


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


@pytest.mark.parametrize("name", ["a/b", ".hidden", "-x", "a b", "a:b", "{a}", "x" * 201])
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


def test_a_crawl_whose_output_fails_gives_back_what_it_holds_and_the_next_goes_on_at_once(
    web: SyntheticWeb, servers: Servers
) -> None:
    site = Site(web, 60, 12)

    def dawdle(hit: Hit) -> None:
        # One host is quick: the others are under way when its first record cannot be written.
        site.answer_seconds = 0.0 if hit.host == site.hosts[0] else 0.7

    site.on_hit = dawdle
    # If nobody gave them back, leases would last for longer than the test.
    flags = ("--job", "job", *FLAGS, "--lease-seconds", "600", "--progress", "none")
    failed = gossamer(servers, "crawl", *site.seeds, *flags, "-o", "/dev/full")
    assert failed.returncode == 5, failed.stderr
    assert (failed.stderr.count("\n"), "/dev/full" in failed.stderr) == (1, True), failed.stderr
    assert servers.number("SELECT count(*) FROM urls WHERE state = 0") > 0, "it was cut short"
    assert servers.leases() == 0
    done = gossamer(servers, "crawl", *site.seeds, *flags)
    assert done.returncode == 0, done.stderr
    check_done(servers, site)


def test_a_crawl_that_is_told_twice_to_stop_gives_back_what_it_holds(
    web: SyntheticWeb, servers: Servers
) -> None:
    site = Site(web, 24, 12)
    release = site.hold()
    flags = ("--job", "job", *FLAGS, *PATIENT, "--lease-seconds", "600", "--progress", "none")
    command = [sys.executable, "-m", "gossamer", "crawl", *site.seeds, *flags]
    with subprocess.Popen(command, env=servers.environment(), stderr=subprocess.DEVNULL) as crawling:
        wait_until(lambda: len(site.page_hits()) == 12, "they are under way")
        assert servers.leases() == 12
        # No page comes before the second.
        crawling.send_signal(signal.SIGINT)
        time.sleep(0.1)
        crawling.send_signal(signal.SIGINT)
        assert crawling.wait(LONGEST_SECONDS) == 130
    assert servers.leases() == 0
    assert servers.number("SELECT count(*) FROM pages") == 0
    release.set()
    done = gossamer(servers, "crawl", *site.seeds, *flags)
    assert done.returncode == 0, done.stderr
    check_done(servers, site)
