"""Workers are killed, frozen and told to leave; others go on with what they had."""

from __future__ import annotations

import itertools
import random
import signal
import time

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import LEASE_SECONDS, LONGEST_SECONDS, Crew, Servers, Worker, check_done, submit, wait_until
from .site import Site


def kill_at_random(site: Site, crew: Crew, seed: int, kills: int, pages: int) -> None:
    """Kill a worker every so many pages and put another in its place."""
    chance = random.Random(seed)
    for _ in range(kills):
        reached = site.after_hits(chance.randint(pages // 2, pages))
        assert reached.wait(LONGEST_SECONDS), [worker.said() for worker in crew.running()]
        time.sleep(chance.uniform(0.0, 0.1))
        chance.choice(crew.running()).kill()
        crew.start()


def test_killed_at_random_moments_workers_are_replaced_and_every_page_is_there_once(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 300, 20)
    submit(servers, site)
    for _ in range(2):
        crew.start()
    kill_at_random(site, crew, seed=1, kills=4, pages=40)
    crew.finish()
    check_done(servers, site)


def test_what_a_killed_worker_held_is_asked_for_again_within_its_lease_and_five_seconds(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 40, 20, answer_seconds=1.0)
    submit(servers, site)
    victim = crew.start()
    assert site.after_hits(20).wait(LONGEST_SECONDS)
    victim.kill()
    killed_at = time.monotonic()
    held = {url for url, count in site.page_hits().items() if count}
    held -= {url for (url,) in servers.ask("SELECT url FROM urls WHERE state <> 0")}
    assert held
    site.answer_seconds = 0.0
    crew.start()
    crew.start()
    crew.finish()
    back = [
        hit.at - killed_at
        for hit in site.hits()
        if hit.at > killed_at and web.url(hit.host, hit.path) in held
    ]
    assert len(back) == len(held)
    assert max(back) < LEASE_SECONDS + 5.0
    check_done(servers, site)


def test_slow_pages_of_a_killed_worker_are_not_taken_for_poison(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    # Each is visited alone, which takes longer for all of them than a lease lasts.
    site = Site(web, 8, 8, answer_seconds=0.6)
    submit(servers, site)
    victim = crew.start()
    assert site.after_hits(8).wait(LONGEST_SECONDS)
    victim.kill()
    crew.start()
    crew.finish()
    check_done(servers, site)


def leave_suspects(servers: Servers, site: Site, crew: Crew, count: int) -> set[str]:
    """Kill a worker with so many pages under way, and return the pages that the next one must suspect."""
    victim = crew.start()
    assert site.after_hits(count).wait(LONGEST_SECONDS)
    victim.kill()
    return {url for (url,) in servers.ask("SELECT url FROM urls WHERE state = 0")} & site.page_hits().keys()


def test_while_suspects_are_visited_alone_the_worker_goes_on_with_everything_else(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    # More than it can do before the first lease runs out.
    site = Site(web, 80, 20, answer_seconds=0.5)
    submit(servers, site, "-c", "5")
    suspects = leave_suspects(servers, site, crew, 5)
    assert suspects
    known = len(site.hits())
    crew.start()
    crew.finish()
    hits = [(web.url(hit.host, hit.path), hit.at) for hit in site.hits()[known:]]
    alone = [at for url, at in hits if url in suspects]
    beside = [at for url, at in hits if url not in suspects]
    assert any(0.05 < other - at < 0.45 for at in alone for other in beside)
    assert all(later - earlier > 0.45 for earlier, later in itertools.pairwise(sorted(alone)))
    check_done(servers, site)


def test_told_to_leave_a_worker_hands_over_suspects_that_wait(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 16, 16, answer_seconds=0.8)
    submit(servers, site, "--lease-seconds", "6")
    assert len(leave_suspects(servers, site, crew, 16)) == 16
    leaving = crew.hire()
    assert site.after_hits(2).wait(LONGEST_SECONDS)
    told_at = time.monotonic()
    leaving.send(signal.SIGTERM)
    assert leaving.wait() == 128 + signal.SIGTERM, leaving.said()
    assert time.monotonic() - told_at < 3.0
    assert servers.leases() == 0
    site.answer_seconds = 0.0
    crew.start()
    crew.finish()
    check_done(servers, site)


def test_a_worker_that_was_frozen_past_its_leases_changes_nothing(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 120, 20, answer_seconds=0.3)
    submit(servers, site)
    frozen = crew.hire("--health-port", "0")
    assert site.after_hits(40).wait(LONGEST_SECONDS)
    frozen.send(signal.SIGSTOP)
    crew.start()
    time.sleep(LEASE_SECONDS + 1.0)
    # In the middle of what others do, so that whatever it still sends comes at the wrong time.
    assert site.after_hits(5).wait(LONGEST_SECONDS)
    frozen.send(signal.SIGCONT)
    wait_until(lambda: frozen.metric("gossamer_stale_leases_total"), "its late visits were counted")
    wait_until(lambda: len(crew.running()) == 1, "the other has ended")
    frozen.send(signal.SIGTERM)
    assert frozen.wait() == 128 + signal.SIGTERM
    check_done(servers, site)


def freeze_in_a_transaction(servers: Servers, worker: Worker) -> None:
    """Stop a worker at a moment when it holds locks in PostgreSQL."""
    question = """
        SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
        WHERE a.state = 'idle in transaction' AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
    """

    def is_holding() -> bool:
        worker.send(signal.SIGSTOP)
        time.sleep(0.02)
        if servers.number(question):
            return True
        worker.send(signal.SIGCONT)
        return False

    wait_until(is_holding, "it is in a transaction")


@pytest.mark.soak
def test_a_worker_frozen_in_a_transaction_does_not_hold_up_the_others(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 300, 20, answer_seconds=0.1)
    submit(servers, site)
    frozen = crew.hire()
    assert site.after_hits(40).wait(LONGEST_SECONDS)
    freeze_in_a_transaction(servers, frozen)
    other = crew.start()
    assert other.wait(40.0) == 0, other.said()
    frozen.send(signal.SIGCONT)
    frozen.send(signal.SIGTERM)
    assert frozen.wait() == 128 + signal.SIGTERM, frozen.said()
    check_done(servers, site)


def test_told_to_leave_a_worker_hands_over_at_once_what_it_cannot_finish(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 40, 20, answer_seconds=8.0)
    submit(servers, site, "--timeout", "20", "--lease-seconds", "60")
    leaving = crew.hire("--grace-seconds", "1")
    assert site.after_hits(16).wait(LONGEST_SECONDS)
    told_at = time.monotonic()
    leaving.send(signal.SIGTERM)
    assert leaving.wait(5.0) == 128 + signal.SIGTERM
    assert time.monotonic() - told_at < 3.0
    assert servers.leases() == 0
    site.answer_seconds = 0.0
    started_at = time.monotonic()
    crew.start()
    crew.finish()
    assert time.monotonic() - started_at < 15.0
    check_done(servers, site)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_killed_twenty_times(web: SyntheticWeb, servers: Servers, crew: Crew, seed: int) -> None:
    site = Site(web, 3000, 40, answer_seconds=0.05)
    submit(servers, site)
    for _ in range(3):
        crew.start()
    kill_at_random(site, crew, seed=seed, kills=20, pages=100)
    crew.finish(300)
    check_done(servers, site)
