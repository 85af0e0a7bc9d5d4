"""Redis forgets everything; the schedule is made anew from PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import LONGEST_SECONDS, RESUME_SECONDS, Crew, Servers, check_done, submit, wait_until
from .site import Site


def test_a_wipe_of_redis_loses_and_doubles_nothing_and_no_host_is_asked_too_soon(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 300, 20, answer_seconds=0.05)
    submit(servers, site)
    crew.start()
    crew.start()
    for _ in range(3):
        assert site.after_hits(40).wait(LONGEST_SECONDS)
        assert servers.redis.ask("FLUSHALL").startswith("+OK")
    crew.finish()
    check_done(servers, site)


def test_a_redis_that_is_killed_and_comes_back_empty_loses_and_doubles_nothing(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 300, 20, answer_seconds=0.05)
    submit(servers, site)
    crew.start()
    crew.start()
    assert site.after_hits(60).wait(LONGEST_SECONDS)
    servers.redis.kill()
    time.sleep(1.0)
    servers.redis.start()
    back_at = time.monotonic()
    assert site.after_hits(1).wait(LONGEST_SECONDS)
    assert time.monotonic() - back_at < RESUME_SECONDS + site.watch.total(back_at)
    crew.finish()
    check_done(servers, site)


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(10))
def test_wiped_every_few_pages(web: SyntheticWeb, servers: Servers, crew: Crew, round_: int) -> None:
    site = Site(web, 1000, 40, answer_seconds=0.02)
    submit(servers, site)
    for _ in range(3):
        crew.start()
    for _ in range(8):
        assert site.after_hits(80 + round_).wait(LONGEST_SECONDS)
        servers.redis.ask("FLUSHALL")
    crew.finish(120)
    check_done(servers, site)


@pytest.mark.soak
def test_a_hundred_thousand_urls_on_two_thousand_hosts_are_scheduled_again_within_thirty_seconds(
    web: SyntheticWeb, servers: Servers, crew: Crew, record_property: Callable[[str, object], None]
) -> None:
    hosts, urls = 2_000, 100_000
    site = Site(web, 1, 1)
    site.seeds = [web.url(f"many{number % hosts}", f"/{number}") for number in range(urls)]
    submit(servers, site, "--scrape", "--delay", "120")
    crew.start()
    crew.start()

    def is_scheduled() -> bool:
        scheduled = servers.count_of("HLEN", "gossamer:{g:0}:w:job")
        return scheduled == hosts and servers.queued("job") + 2 * hosts > urls

    wait_until(is_scheduled, "all are scheduled", 120.0)
    servers.redis.ask("FLUSHALL")
    wiped_at = time.monotonic()
    wait_until(is_scheduled, "all are scheduled again", 30.0)
    record_property("figures", f"{time.monotonic() - wiped_at:.1f} s")
