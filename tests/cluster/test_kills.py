"""Workers are killed, frozen and told to leave; others go on with what they had."""

from __future__ import annotations

import itertools
import random
import signal
import time

import pytest

from gossamer.testing.synthetic_reply import Hit
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
    others = [crew.start(), crew.start()]
    for worker in others:
        wait_until(lambda: worker.events("job_started"), "it has a part in the job")  # noqa: B023 - asked now
    # One more process is to be started for what was held, and takes as long as these did.
    starting = time.monotonic() - killed_at
    crew.finish()
    back: dict[str, float] = {}
    for hit in site.hits():
        if hit.at > killed_at and (url := web.url(hit.host, hit.path)) in held:
            back.setdefault(url, hit.at - killed_at)
    assert back.keys() == held
    assert max(back.values()) < LEASE_SECONDS + 5.0 + 3 * starting + site.watch.total(killed_at)
    check_done(servers, site)


def test_slow_pages_of_a_killed_worker_are_not_taken_for_poison(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    # Each is visited alone, which takes longer for all of them than a lease lasts.
    site = Site(web, 8, 8, answer_seconds=0.6)
    submit(servers, site)
    all_asked = site.after_hits(8)
    victim = crew.start()
    assert all_asked.wait(LONGEST_SECONDS)
    victim.kill()
    crew.start()
    crew.finish()
    check_done(servers, site)


def leave_suspects(servers: Servers, site: Site, crew: Crew, count: int) -> set[str]:
    """Kill a worker with so many pages under way, and return the pages that the next one must suspect."""
    under_way = site.after_hits(count)
    victim = crew.start()
    assert under_way.wait(LONGEST_SECONDS)
    victim.kill()
    return {url for (url,) in servers.ask("SELECT url FROM urls WHERE state = 0")} & site.page_hits().keys()


def test_while_suspects_are_visited_alone_the_worker_goes_on_with_everything_else(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 80, 20, answer_seconds=0.5)
    submit(servers, site, "-c", "5")
    suspects = leave_suspects(servers, site, crew, 5)
    assert suspects
    known = len(site.hits())
    # More than it can do before the first suspect is visited.
    site.answer_seconds = 1.2

    def at_the_first_suspect(hit: Hit) -> None:
        if web.url(hit.host, hit.path) in suspects:
            site.answer_seconds = 0.5

    site.on_hit = at_the_first_suspect
    crew.start()
    crew.finish()
    hits = [(web.url(hit.host, hit.path), hit.at) for hit in site.hits()[known:]]
    alone = [at for url, at in hits if url in suspects]
    beside = [at for url, at in hits if url not in suspects]
    assert any(abs(other - at) < 0.45 for at in alone for other in beside)
    assert all(later - earlier > 0.45 for earlier, later in itertools.pairwise(sorted(alone)))
    check_done(servers, site)


def test_told_to_leave_a_worker_hands_over_suspects_that_wait(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 16, 16, answer_seconds=1.2)
    submit(servers, site, "--lease-seconds", "6")
    assert len(leave_suspects(servers, site, crew, 16)) > 8
    second = site.after_hits(2)
    leaving = crew.hire()
    assert second.wait(LONGEST_SECONDS)
    leaving.send(signal.SIGTERM)
    begun = site.page_hits().total()
    assert leaving.wait() == 128 + signal.SIGTERM, leaving.said()
    assert site.page_hits().total() <= begun + 2, "the others were not begun"
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
    before = site.page_hits()
    held = {url for (url,) in servers.ask("SELECT url FROM urls WHERE state = 0")} & before.keys()
    crew.start()
    # In the middle of what others do, so that whatever it still sends comes at the wrong time.
    wait_until(
        lambda: any(site.page_hits()[url] > before[url] for url in held), "what it held is asked for again"
    )
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
    # Neither the answers nor the end of the leases can be waited for in the time that is given.
    site = Site(web, 40, 20)
    release = site.hold()
    submit(servers, site, "--timeout", "300", "--lease-seconds", "400")
    begun = site.after_hits(16)
    leaving = crew.hire("--grace-seconds", "1")
    assert begun.wait(LONGEST_SECONDS)
    leaving.send(signal.SIGTERM)
    assert leaving.wait() == 128 + signal.SIGTERM
    assert servers.leases() == 0
    release.set()
    crew.start()
    crew.finish()
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
