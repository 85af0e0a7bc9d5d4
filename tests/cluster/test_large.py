"""A job of a million URLs: what it takes to submit it, and what Redis holds of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import Crew, Servers, submit, wait_until
from .site import Site

HOSTS, URLS = 50_000, 1_000_000
#: What a Redis of this job may use, with everything of its own.
REDIS_BYTES = 200_000_000
#: The hosts that a shared schedule has at a time, unless somebody asks for more.
ACTIVE_HOSTS = 20_000


@pytest.mark.soak
def test_redis_holds_little_of_a_million_urls_on_fifty_thousand_hosts(
    web: SyntheticWeb, servers: Servers, crew: Crew, record_property: Callable[[str, object], None]
) -> None:
    site = Site(web, 1, 1)
    site.seeds = [web.url(f"large{number % HOSTS}", f"/some/path/{number}") for number in range(URLS)]
    began = time.monotonic()
    submit(servers, site, "--scrape", "--delay", "600", seconds=600.0)
    submitted = time.monotonic() - began
    assert servers.number("SELECT count(*) FROM urls WHERE state = 0") == URLS
    crew.start()
    crew.start()
    wait_until(
        lambda: (
            servers.count_of("HLEN", "gossamer:{g:0}:w:job") >= ACTIVE_HOSTS
            and servers.queued("job") > 100_000
        ),
        "the schedule is full",
        300.0,
    )
    # Sweeps go on, and try to bring in the others.
    time.sleep(20.0)
    used = int(servers.redis.info("memory", "used_memory_peak"))
    queued = servers.queued("job")
    record_property(
        "figures",
        f"submitted in {submitted:.0f} s, {queued:,} URLs in Redis, {used / 1e6:.0f} MB",
    )
    assert used < REDIS_BYTES
    assert servers.number("SELECT count(*) FROM urls WHERE state = 0") > URLS - 2 * ACTIVE_HOSTS
