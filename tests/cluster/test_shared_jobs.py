"""A shared job from the command line: submitted, crawled with others, written to files, changed and steered."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

from gossamer.testing.crawl_rig import html
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import FLAGS, LONGEST_SECONDS, Crew, Servers, check_books, check_done, submit, wait_until
from .site import Site

QUICK = (*FLAGS, "--delay", "0", "--progress", "none")


def gossamer(servers: Servers, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *arguments],
        env=servers.environment(),
        cwd=servers.folder,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )


def records(path: Path) -> list[str]:
    return sorted(json.loads(line)["url"] for line in path.read_text("utf-8").splitlines())


def test_a_crawl_in_the_foreground_writes_what_all_workers_found(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 120, 12)
    crew.hire()
    done = gossamer(
        servers, "crawl", *site.seeds, "--job", "job", *FLAGS, "-o", "pages.jsonl", "-o", "pages.csv"
    )
    assert done.returncode == 0, done.stderr
    check_done(servers, site)
    assert records(servers.folder / "pages.jsonl") == sorted(site.urls)
    with (servers.folder / "pages.csv").open(newline="", encoding="utf-8") as stream:
        assert sorted(row["url"] for row in csv.DictReader(stream)) == sorted(site.urls)
    again = gossamer(servers, "crawl", *site.seeds, "--job", "job", *FLAGS, "-o", "late.jsonl")
    assert again.returncode == 0, again.stderr
    assert records(servers.folder / "late.jsonl") == sorted(site.urls), "a late output needs no fetch"
    assert max(site.page_hits().values()) == 1


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
    assert 10 <= pages < 40
    assert servers.number("SELECT count(*) FROM urls WHERE reason = 'page_limit'") > 0
    other = gossamer(servers, "submit", web.url("elsewhere"), "--job", "job")
    assert other.returncode == 2
    assert "other seeds" in other.stderr
    submit(servers, site)
    crew.start()
    crew.finish()
    check_done(servers, site)


def test_a_cookie_that_one_worker_received_is_sent_by_another(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    def guarded(hit: Hit) -> Reply:
        return html() if "session=1" in hit.headers.get("cookie", "") else Reply(status=403)

    web.add("wall", "/", html("/inside").with_headers(("Set-Cookie", "session=1; Path=/")))
    web.add("wall", "/inside", guarded)
    gossamer(servers, "submit", web.url("wall"), "--job", "job", *FLAGS, "-n", "1")
    crew.start()
    crew.finish()
    gossamer(servers, "submit", web.url("wall"), "--job", "job", *FLAGS)
    crew.start()
    crew.finish()
    statuses = dict(servers.ask("SELECT record->>'url', (record->>'status')::int FROM pages"))
    assert statuses == {web.url("wall"): 200, web.url("wall", "/inside"): 200}


def test_several_processes_are_replaced_when_they_die_and_end_together(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 200, 10)
    submit(servers, site)
    started = site.after_hits(20)
    supervisor = crew.start("--processes", "2")
    assert started.wait(LONGEST_SECONDS)
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text("ascii").split()
    assert len(children) == 2
    subprocess.run(["kill", "-9", children[0]], check=True)
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
    assert wait_until(lambda: servers.leases() == 0, "all leases were given back", 10)
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
