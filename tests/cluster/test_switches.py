"""A host is switched off and on while jobs crawl it: its URLs are held, the jobs end, and nothing is lost."""

from __future__ import annotations

from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import (
    LONGEST_SECONDS,
    PATIENT,
    Crew,
    Servers,
    check_books,
    check_done,
    gossamer,
    submit,
    wait_until,
)
from .site import Site


def test_a_job_ends_without_a_host_that_is_switched_off_and_goes_on_with_it(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 150, 6)
    host = f"{site.hosts[0]}.localhost"
    submit(servers, site, *PATIENT)
    begun = site.after_hits(15)
    # One of its pages is under way when it is switched off, and most of the others are not asked for yet.
    release = site.hold(after=3, host=site.hosts[0])
    crew.start()
    crew.start()
    assert begun.wait(LONGEST_SECONDS)
    wait_until(lambda: held_pages(site) == 4, "a page of it is under way")
    off = gossamer(servers, "sources", "job", "--off", host)
    release.set()
    assert off.returncode == 0, off.stderr
    assert f"{host} is off" in off.stdout
    crew.finish()
    job = servers.number("SELECT id FROM jobs")
    counts = dict(servers.ask("SELECT reason, count(*) FROM urls GROUP BY reason"))
    assert counts.keys() == {"ok", "switched_off"}
    asked = servers.number("SELECT count(*) FROM fetches WHERE grp = %s AND kind = 'page'", host)
    recorded = servers.number("SELECT pages FROM sources WHERE host = %s", host)
    assert asked == recorded == 25 - counts["switched_off"], "what was under way has its record"
    check_books(servers, job)
    _is_explained(servers, site, counts["switched_off"])
    _stays_off(servers, site, crew, host)
    on = gossamer(servers, "sources", "job", "--on", host)
    assert f"{counts['switched_off']} URLs queued again" in on.stdout
    crew.start()
    crew.finish()
    check_done(servers, site)
    assert set(site.page_hits().values()) == {1}, "nothing was fetched in vain"


def held_pages(site: Site) -> int:
    """Return how many pages of the first host were asked for."""
    return sum(hit.host == site.hosts[0] and hit.path != "/robots.txt" for hit in site.hits())


def _is_explained(servers: Servers, site: Site, held: int) -> None:
    status = gossamer(servers, "status", "job").stdout
    assert "done" in status
    assert str(held) in status.split("switched_off")[1].splitlines()[0]
    (url,) = servers.ask("SELECT url FROM urls WHERE reason = 'switched_off' LIMIT 1")[0]
    host = f"{site.hosts[0]}.localhost"
    assert f"gossamer sources job --on {host}" in gossamer(servers, "explain", "job", url).stdout
    assert "gossamer sources job --on HOST" in gossamer(servers, "report", "job").stdout
    refused = gossamer(servers, "retry", "job", "--reason", "switched_off")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--on HOST" in refused.stderr
    assert "Nothing to queue again" in gossamer(servers, "retry", "job").stdout


def _stays_off(servers: Servers, site: Site, crew: Crew, host: str) -> None:
    hits = len(site.hits())
    servers.redis.ask("FLUSHALL")
    submit(servers, site, *PATIENT)
    assert gossamer(servers, "resume", "job").returncode == 0
    crew.start()
    crew.finish()
    assert len(site.hits()) == hits
    # Without the decision in Redis, and with URLs that seem to wait, it is the ledger that says so.
    servers.ask("UPDATE urls SET state = 0, reason = '' WHERE reason = 'switched_off' RETURNING 1")
    servers.ask("UPDATE counts SET state = 0, reason = '' WHERE reason = 'switched_off' RETURNING 1")
    crew.start()
    crew.finish()
    assert len(site.hits()) == hits
    assert host in servers.redis.ask("SMEMBERS", "gossamer:{g:0}:off")


def test_a_host_is_switched_off_and_on_again_before_any_worker_hears_of_it(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 60, 3)
    host = f"{site.hosts[0]}.localhost"
    submit(servers, site, job="one")
    submit(servers, site, job="two")
    begun = site.after_hits(9)
    workers = [crew.hire(), crew.hire()]
    assert begun.wait(LONGEST_SECONDS)
    wait_until(lambda: servers.queued("one") > 0, "something waits in its windows")
    for worker in workers:
        worker.kill()
    gossamer(servers, "sources", "one", "--off", host)
    assert servers.number("SELECT count(DISTINCT job) FROM urls WHERE reason = 'switched_off'") == 2
    gossamer(servers, "sources", "two", "--on", host)
    assert servers.number("SELECT count(*) FROM urls WHERE reason = 'switched_off'") == 0
    crew.start()
    crew.finish()
    for job in ("one", "two"):
        check_done(servers, site, job=job)
    asked = servers.number("SELECT count(*) FROM fetches WHERE kind = 'page' AND grp = %s", host)
    assert asked == 2 * 20, "no window had what was held meanwhile"
