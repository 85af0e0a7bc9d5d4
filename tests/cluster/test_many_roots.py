"""A job with more roots than a worker keeps in memory: the same pages, and nobody waits for the database to find out."""

from __future__ import annotations

import asyncio
import time

from gossamer.policy.scope import MAX_ROOTS
from gossamer.testing.crawl_rig import html
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import FLAGS, Crew, Servers, gossamer, wait_until

PAGES = 300
#: As many roots as a worker keeps, all of which come before the real ones.
_CROWD = """
    INSERT INTO roots(job, root) SELECT id, lpad(n::text, 8, '0') || '.test' FROM jobs, generate_series(1, %s) n RETURNING 1
"""
_JOIN = "INSERT INTO roots(job, root) SELECT id, %s FROM jobs RETURNING 1"


def crowd(servers: Servers, *hosts: str) -> None:
    """Give the job more roots than fit, and these hosts behind them."""
    servers.ask(_CROWD, MAX_ROOTS)
    for host in hosts:
        servers.ask(_JOIN, f"{host}.localhost")


def submit(servers: Servers, url: str) -> None:
    done = gossamer(servers, "submit", url, "--job", "job", *FLAGS, "--delay", "0", "--scope", "host")
    assert done.returncode == 0, done.stderr


def test_links_are_followed_to_roots_that_are_in_the_database_alone_and_to_nothing_else(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    inside, outside = [f"in{n}" for n in range(4)], [f"out{n}" for n in range(4)]
    web.add("hub", "/", html(*(web.url(host) for host in (*inside, *outside))))
    for host in inside:
        web.add(host, "/", html("/moved", "/away", "/next"))
        web.add(host, "/next", html(*(web.url(other, "/next") for other in (*inside, *outside))))
        web.add(host, "/moved", Reply(status=302, headers=(("Location", web.url("in0", "/target")),)))
        web.add(host, "/away", Reply(status=302, headers=(("Location", web.url("out0", "/target")),)))
    web.add("in0", "/target", html())
    submit(servers, web.url("hub"))
    crowd(servers, *inside)
    # The first page is visited in a process of its own, which knows of no database.
    servers.ask("UPDATE urls SET crashes = 1 RETURNING 1")
    crew.start()
    crew.finish()
    pages = {url for (url,) in servers.ask("SELECT record->>'url' FROM pages")}
    expected = {web.url("hub"), web.url("in0", "/target")}
    assert pages == expected | {web.url(host, path) for host in inside for path in ("/", "/next")}
    assert [hit for hit in web.hits if hit.host in outside] == []
    assert servers.ask("SELECT url FROM urls WHERE reason = 'scope'") == [(web.url("out0", "/target"),)]


def test_a_database_that_hangs_does_not_stop_a_worker_that_must_ask_it_about_roots(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    async def page(hit: Hit) -> Reply:
        # Each leads to a host that nobody has heard of. They take a while: some are left for when the database hangs.
        await asyncio.sleep(0.02)
        return html(web.url(f"stranger{hit.path.removeprefix('/')}"))

    web.add("hub", "/", html(*(f"/{number}" for number in range(PAGES))))
    web.add("hub", "/*", page)
    submit(servers, web.url("hub"))
    crowd(servers)
    worker = crew.start("--health-port", "0")
    wait_until(lambda: len(web.hits) > 20, "it is at work")
    with servers.frozen_postgres():
        asked, until = len(web.hits), time.monotonic() + 3.0
        while time.monotonic() < until:
            assert worker.health("/healthz")[0] == 200
            time.sleep(0.1)
        assert len(web.hits) > asked, "what was scheduled is fetched meanwhile"
    crew.finish()
    assert servers.number("SELECT count(*) FROM pages") == PAGES + 1
    assert not [hit for hit in web.hits if hit.host.startswith("stranger")]
