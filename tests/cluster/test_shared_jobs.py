"""A shared job from the command line: submitted, crawled with others, written to files, changed and steered."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from gossamer import cluster
from gossamer.config.redis import RedisSettings
from gossamer.contracts import no_failpoint
from gossamer.engine.loop import Ending
from gossamer.frontier.postgres_jobs import open_job
from gossamer.job_part import JobPart
from gossamer.testing.crawl_rig import html
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import (
    FLAGS,
    LONGEST_SECONDS,
    PATIENT,
    Crew,
    Servers,
    check_books,
    check_done,
    gossamer,
    holder_of,
    submit,
    wait_until,
)
from .site import Site

QUICK = (*FLAGS, "--delay", "0", "--progress", "none")


def records(path: Path) -> list[str]:
    return sorted(json.loads(line)["url"] for line in path.read_text("utf-8").splitlines())


def test_a_crawl_in_the_foreground_writes_what_all_workers_found(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 120, 12)
    crew.hire()
    done = gossamer(
        servers,
        *("crawl", *site.seeds, "--job", "job", *FLAGS, *PATIENT),
        *("-o", "pages.jsonl", "-o", "pages.csv"),
    )
    assert done.returncode == 0, done.stderr
    check_done(servers, site)
    assert records(servers.folder / "pages.jsonl") == sorted(site.urls)
    with (servers.folder / "pages.csv").open(newline="", encoding="utf-8") as stream:
        assert sorted(row["url"] for row in csv.DictReader(stream)) == sorted(site.urls)
    again = gossamer(servers, "crawl", *site.seeds, "--job", "job", *FLAGS, *PATIENT, "-o", "late.jsonl")
    assert again.returncode == 0, again.stderr
    assert records(servers.folder / "late.jsonl") == sorted(site.urls), "a late output needs no fetch"
    assert max(site.page_hits().values()) == 1


def test_a_crawl_in_the_foreground_says_which_lines_of_its_input_are_no_urls(
    web: SyntheticWeb, servers: Servers
) -> None:
    site = Site(web, 1, 1)
    lines = f"{site.seeds[0]}\nrubbish here\n"
    done = gossamer(servers, "crawl", "-i", "-", "--job", "job", *QUICK, stdin=lines)
    assert done.returncode == 0, done.stderr
    assert "1 line of the input is not a URL and was passed over; line 2" in done.stderr


def test_a_crawl_on_an_empty_redis_says_why_nothing_happens_at_first(
    web: SyntheticWeb, servers: Servers
) -> None:
    web.add("alone", "/", html())
    waits = []
    for job in ("first", "second"):
        if job == "first":
            servers.redis.ask("FLUSHALL")
        done = gossamer(servers, "crawl", web.url("alone"), "--job", job, *FLAGS, "--progress", "json")
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        waits.append("waiting: the schedule in Redis is new" in [line.get("waiting") for line in lines])
    assert waits == [True, False]


def test_a_scrape_follows_nothing_and_keeps_the_names_of_its_inputs(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    web.add("moved", "/old", Reply(status=302, headers=(("Location", "/new"),)))
    web.add("moved", "/new", html("/never"))
    url = web.url("moved", "/old")
    done = gossamer(
        servers, "submit", "--scrape", "-i", "-", "--job", "job", *QUICK[:-2], stdin=f"{url}\nno url\n"
    )
    assert "1 line of the input is not a URL" in done.stderr
    crew.start()
    crew.finish()
    assert servers.ask("SELECT record->>'url', record->>'final_url' FROM pages") == [
        (url, web.url("moved", "/new"))
    ]


def test_the_same_name_with_other_seeds_is_refused_and_with_other_limits_goes_on(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 40, 4)
    submit(servers, site, "-n", "10")
    crew.start()
    crew.finish()
    pages = servers.number("SELECT count(*) FROM pages")
    assert pages == 10
    assert servers.number("SELECT count(*) FROM urls WHERE reason = 'page_limit'") > 0
    other = gossamer(servers, "submit", web.url("elsewhere"), "--job", "job")
    assert other.returncode == 2
    assert "other seeds" in other.stderr
    submit(servers, site)
    crew.start()
    crew.finish()
    check_done(servers, site)


def test_workers_that_share_a_page_limit_bring_exactly_as_many_records(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 400, 40)
    fetches = "SELECT count(*) FROM fetches WHERE kind = 'page'"
    for missing, limit in ((100, 100), (50, 150)):
        before = servers.number(fetches)
        submit(servers, site, *PATIENT, "--delay", "0", "-n", str(limit))
        for _ in range(3):
            crew.start()
        crew.finish()
        assert servers.number("SELECT count(*) FROM pages") == limit
        check_books(servers, servers.number("SELECT id FROM jobs"))
        assert servers.number("SELECT count(*) FROM urls WHERE state = 0") == 0
        assert servers.number("SELECT count(*) FROM urls WHERE reason = 'page_limit'") > 0
        # What others have just begun is not known at every moment: once as much as each may have under way.
        assert missing <= servers.number(fetches) - before <= missing + 3 * 16 + 10
        assert "done" in gossamer(servers, "status", "job").stdout
        assert servers.leases() == 0


def test_workers_take_up_another_limit_while_they_work(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 120, 6)
    begun = site.after_hits(12)
    submit(servers, site, "-n", "60")
    crew.hire()
    crew.hire()
    assert begun.wait(LONGEST_SECONDS)
    submit(servers, site, "-n", "90")
    pages, live = "SELECT count(*) FROM pages", "SELECT count(*) FROM urls WHERE state = 0"
    wait_until(lambda: servers.number(pages) >= 90, "the new limit is reached")
    wait_until(lambda: servers.number(live) == 0, "the rest is held")
    assert servers.number(pages) == 90
    submit(servers, site)
    wait_until(lambda: servers.number(pages) == 120, "there is no limit any more")
    assert servers.number("SELECT count(*) FROM fetches WHERE kind = 'page'") <= 120 + 20
    check_books(servers, servers.number("SELECT id FROM jobs"))
    assert len(crew.running()) == 2


def test_a_limit_that_is_raised_at_the_moment_it_is_reached_is_not_the_end(
    web: SyntheticWeb, servers: Servers
) -> None:
    site = Site(web, 40, 4)
    submit(servers, site, "--delay", "0", "-n", "10")
    (before,) = servers.ask("SELECT settings FROM jobs")[0]
    submit(servers, site, "--delay", "0", "-n", "25")

    async def main() -> None:
        where = cluster.Servers(servers.dsn, RedisSettings(url=servers.redis.url))
        async with cluster.open_cluster(where, time.time, no_failpoint, NoLog(), patient=False) as opened:
            job = await open_job(opened.pool, "job")
            # As one who has it open since before.
            async with JobPart.open(opened, msgspec.structs.replace(job, settings=before)) as part:
                assert await part.run() is Ending.PAGE_LIMIT

    asyncio.run(main())
    assert servers.number("SELECT count(*) FROM pages") == 10
    assert servers.ask("SELECT DISTINCT reason FROM urls WHERE reason <> 'ok'") == [("",)]


class NoLog:
    def write(self, event: str, /, **fields: object) -> None:
        pass


def test_workers_that_share_a_limit_of_each_host_bring_exactly_as_many_records_of_it(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 240, 6)
    for limit in (7, 12):
        submit(servers, site, *PATIENT, "--delay", "0", "--per-host", "4", "--max-pages-per-host", str(limit))
        for _ in range(3):
            crew.start()
        crew.finish()
        pages = dict(servers.ask("SELECT host, pages FROM sources"))
        assert pages == dict.fromkeys(pages, limit)
        assert len(pages) == 6
        check_books(servers, servers.number("SELECT id FROM jobs"))
        assert servers.number("SELECT count(*) FROM fetches WHERE kind = 'page'") == 6 * limit
        assert servers.number("SELECT count(*) FROM urls WHERE reason = 'host_limit'") > 0


def test_a_cookie_that_one_worker_received_is_sent_by_another(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    def guarded(hit: Hit) -> Reply:
        return html() if "session=1" in hit.headers.get("cookie", "") else Reply(status=403)

    web.add("door", "/", html("/inside").with_headers(("Set-Cookie", "session=1; Path=/")))
    web.add("door", "/inside", guarded)
    gossamer(servers, "submit", web.url("door"), "--job", "job", *FLAGS, "-n", "1")
    crew.start()
    crew.finish()
    gossamer(servers, "submit", web.url("door"), "--job", "job", *FLAGS)
    crew.start()
    crew.finish()
    statuses = dict(servers.ask("SELECT record->>'url', (record->>'status')::int FROM pages"))
    assert statuses == {web.url("door"): 200, web.url("door", "/inside"): 200}


def test_a_cookie_that_one_worker_receives_is_soon_known_to_another_that_is_at_work(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    go = threading.Event()

    def busy(hit: Hit) -> Reply:
        # A chain without end keeps the job open; at a word it leads to the wall.
        following = f"/chain/{int(hit.path.rpartition('/')[2] or 0) + 1}"
        return html(following, web.url("wall", "/")) if go.is_set() else html(following)

    def guarded(hit: Hit) -> Reply:
        return html() if "session=1" in hit.headers.get("cookie", "") else Reply(status=403)

    web.add("busy", "/", busy)
    web.add("busy", "/chain/*", busy)
    web.add("wall", "/robots.txt", Reply(body=b"User-agent: *\nCrawl-delay: 3\n"))
    web.add("wall", "/seed", html())
    web.add("wall", "/", html("/inside").with_headers(("Set-Cookie", "session=1; Path=/")))
    web.add("wall", "/inside", guarded)
    gossamer(servers, "submit", web.url("busy"), web.url("wall", "/seed"), "--job", "job", *FLAGS)
    workers = [crew.hire(), crew.hire()]
    for worker in workers:
        wait_until(lambda: worker.events("job_started"), "it has a part in the job")  # noqa: B023 - asked now
    go.set()
    wait_until(lambda: servers.ask("SELECT 1 FROM cookies"), "the cookie is in the ledger")
    hit = [hit for hit in list(web.hits) if (hit.host, hit.path) == ("wall", "/")][-1]
    holder = holder_of(hit.port, web.port, [worker.pid for worker in workers])
    next(worker for worker in workers if worker.pid == holder).kill()
    inside = "SELECT (record->>'status')::int FROM pages WHERE record->>'url' = %s"
    found = wait_until(lambda: servers.ask(inside, web.url("wall", "/inside")), "the other one was inside")
    assert found == [(200,)]


def test_a_cookie_that_a_server_removes_is_soon_sent_by_no_worker(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    def busy(hit: Hit) -> Reply:
        return html(f"/chain/{int(hit.path.rpartition('/')[2] or 0) + 1}")

    # A chain without end keeps the job open.
    web.add("busy", "/", busy)
    web.add("busy", "/chain/*", busy)
    # Time enough for both to hear of what happens to one of them.
    web.add("wall", "/robots.txt", Reply(body=b"User-agent: *\nCrawl-delay: 3\n"))
    web.add("wall", "/", html("/logout").with_headers(("Set-Cookie", "session=1; Path=/")))
    web.add("wall", "/logout", html("/after").with_headers(("Set-Cookie", "session=; Path=/; Max-Age=0")))
    web.add("wall", "/after", html())
    gossamer(servers, "submit", web.url("busy"), web.url("wall"), "--job", "job", *FLAGS)
    workers = [crew.hire(), crew.hire()]
    removal = "SELECT 1 FROM cookies WHERE left(key, 1) = chr(10)"
    wait_until(lambda: servers.ask(removal), "the removal is in the ledger")
    (hit,) = [hit for hit in list(web.hits) if (hit.host, hit.path) == ("wall", "/logout")]
    assert hit.headers.get("cookie") == "session=1"
    holder = holder_of(hit.port, web.port, [worker.pid for worker in workers])
    next(worker for worker in workers if worker.pid == holder).kill()

    def after() -> list[Hit]:
        return [hit for hit in list(web.hits) if (hit.host, hit.path) == ("wall", "/after")]

    assert "cookie" not in wait_until(after, "the other one went on")[0].headers


def test_several_processes_are_replaced_when_they_die_and_end_together(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 200, 10)
    submit(servers, site)
    started = site.after_hits(20)
    supervisor = crew.start("--processes", "2")
    assert started.wait(LONGEST_SECONDS)
    children = supervisor.children()
    assert len(children) == 2
    os.kill(children[0], signal.SIGKILL)
    crew.finish()
    assert "died (signal 9) and is replaced" in supervisor.said()
    check_done(servers, site)


def test_a_supervisor_passes_signals_on(web: SyntheticWeb, servers: Servers, crew: Crew) -> None:
    site = Site(web, 200, 4)
    submit(servers, site)
    started = site.after_hits(8)
    supervisor = crew.hire("--processes", "2")
    assert started.wait(LONGEST_SECONDS)
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 143
    assert wait_until(lambda: servers.leases() == 0, "all leases were given back")
    check_books(servers, servers.number("SELECT id FROM jobs"))


def test_what_is_missing_is_said_in_one_line(servers: Servers) -> None:
    without = subprocess.run(
        [sys.executable, "-m", "gossamer", "worker", "--postgres", servers.dsn],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "GOSSAMER_REDIS" in without.stderr
    nowhere = gossamer(servers, "worker", "--postgres", "postgresql://127.0.0.1:1/none")
    assert (nowhere.returncode, nowhere.stderr.count("\n")) == (6, 1)
    unknown = gossamer(servers, "worker", "--job", "absent")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
