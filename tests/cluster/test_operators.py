"""What operators do to jobs and workers while both are there: rest, go on with other limits, leave."""

from __future__ import annotations

import signal
import time

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import LONGEST_SECONDS, PATIENT, Crew, Servers, check_done, gossamer, submit, wait_until
from .site import Site


def test_whoever_waits_for_the_end_of_a_paused_job_rests_until_it_is_resumed(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    paused, running = Site(web, 8, 4), Site(web, 40, 2)
    submit(servers, paused, job="paused")
    submit(servers, running, job="running")
    assert gossamer(servers, "pause", "paused").returncode == 0
    worker = crew.start()
    wait_until(lambda: worker.events("job_ended"), "the other job is done")
    assert not paused.hits()
    assert worker.is_running()
    assert gossamer(servers, "resume", "paused").returncode == 0
    crew.finish()
    assert [event["job"] for event in worker.events("job_started")] == ["running", "paused"]
    for site, job in ((paused, "paused"), (running, "running")):
        check_done(servers, site, job=job)


def test_a_shared_job_is_resumed_with_another_limit(web: SyntheticWeb, servers: Servers, crew: Crew) -> None:
    site = Site(web, 40, 4)
    submit(servers, site, "-n", "10")
    crew.start()
    crew.finish()
    assert "gossamer resume job --max-pages N" in gossamer(servers, "report", "job").stdout
    resumed = gossamer(servers, "resume", "job", "--max-pages", "25")
    assert resumed.returncode == 0, resumed.stderr
    crew.start()
    crew.finish()
    assert servers.number("SELECT count(*) FROM pages") == 25
    assert gossamer(servers, "resume", "job", "--max-pages", "1000").returncode == 0
    crew.start()
    crew.finish()
    check_done(servers, site)


def test_a_worker_whose_time_is_up_comes_back_to_a_job_that_is_given_more(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 60, 2)
    submit(servers, site, "--time", "1")
    worker = crew.hire()
    wait_until(lambda: worker.events("job_ended"), "its time is up")
    assert worker.events("job_ended")[0]["ending"] == "time limit"
    assert gossamer(servers, "resume", "job", "--time", "1000").returncode == 0
    wait_until(lambda: len(worker.events("job_ended")) == 2, "it has come back")
    assert len(worker.events("job_started")) == 2
    check_done(servers, site)


def test_more_than_one_sigterm_leaves_a_worker_the_time_it_was_given(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 4, 4)
    asked, release = site.after_hits(4), site.hold()
    # What the operator of the machine says counts, not what the job says.
    submit(servers, site, *PATIENT, "--grace-seconds", "0.1")
    leaving = crew.hire("--grace-seconds", "50")
    assert asked.wait(LONGEST_SECONDS)
    for _ in range(2):
        leaving.send(signal.SIGTERM)
        # As long as it would need to give up what is under way.
        time.sleep(1.0)
        assert servers.leases() == 4
    release.set()
    assert leaving.wait() == 128 + signal.SIGTERM
    check_done(servers, site)


def test_a_ctrl_c_after_a_sigterm_ends_a_worker_at_once(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 4, 4)
    asked, release = site.after_hits(4), site.hold()
    submit(servers, site, *PATIENT)
    leaving = crew.hire("--grace-seconds", "1000", "--health-port", "0")
    assert asked.wait(LONGEST_SECONDS)
    leaving.send(signal.SIGTERM)
    # Of two that wait, the system may hand over either first.
    wait_until(lambda: leaving.health("/readyz")[0] == 503, "it has heard of the first")
    leaving.send(signal.SIGINT)
    assert leaving.wait() == 128 + signal.SIGTERM
    assert servers.leases() == 0
    release.set()
    crew.start()
    crew.finish()
    check_done(servers, site)


def test_what_means_nothing_to_a_shared_job_is_mentioned(web: SyntheticWeb, servers: Servers) -> None:
    flags = ("--job", "job", "--dedup", "bloom", "--workers", "4")
    said = gossamer(servers, "submit", web.url("elsewhere"), *flags)
    assert said.returncode == 0, said.stderr
    assert "PostgreSQL knows every URL of this one exactly" in said.stderr
    assert "gossamer worker --processes 4" in said.stderr
    assert "gossamer" not in gossamer(servers, "submit", web.url("elsewhere"), *flags, "-q").stderr
