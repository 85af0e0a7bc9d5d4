"""Worker processes that die: with their parent, by chance, or because of a page."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.testing.synthetic_reply import Hit
from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import (
    LONGEST_SECONDS,
    Crawl,
    GeneratedSite,
    Page,
    check_complete,
    check_refetches,
    children_of,
    crawl_of,
    holder_of,
    ignore,
    wait_for_end,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

PAGES = 300
ANSWER_SECONDS = 0.005


def test_worker_processes_die_with_their_parent(web: SyntheticWeb, tmp_path: Path) -> None:
    site = GeneratedSite(web, PAGES, delay_seconds=ANSWER_SECONDS)
    crawl = crawl_of(site, tmp_path, "--workers", "2")
    with crawl.started() as process:
        assert site.after_hits(30, lambda: None).wait(LONGEST_SECONDS)
        handles = [os.pidfd_open(child) for child in children_of(process.pid)]
        process.kill()
        assert len(handles) == 2
        assert wait_for_end(handles)
    crawl.finish()
    check_complete(crawl)


def test_worker_processes_do_not_outlive_an_orderly_end(web: SyntheticWeb, tmp_path: Path) -> None:
    site = GeneratedSite(web, 60, delay_seconds=ANSWER_SECONDS)
    crawl = crawl_of(site, tmp_path, "--workers", "2")
    with crawl.started() as process:
        assert site.after_hits(5, lambda: None).wait(LONGEST_SECONDS)
        handles = [os.pidfd_open(child) for child in children_of(process.pid)]
        _, said = process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 0, said
        assert len(handles) == 2
        assert wait_for_end(handles)
    check_complete(crawl)


# -- by chance -----------------------------------------------------------------------------------------


def kill_children(crawl: Crawl, process: subprocess.Popen[str], chance: random.Random, kills: int) -> int:
    """Kill a random worker process now and then, as pages come in; returns how many were killed."""
    for killed in range(kills):
        due = crawl.site.after_hits(chance.randint(5, PAGES // 6), lambda: None)
        while not (due.wait(0.05) and (children := children_of(process.pid))):
            if process.poll() is not None:
                return killed
        with suppress(ProcessLookupError):  # it was dead, and is buried by now
            os.kill(chance.choice(children), signal.SIGKILL)
    return kills


def crawl_while_children_die(crawl: Crawl, seed: int, kills: int) -> int:
    with crawl.started() as process:
        killed = kill_children(crawl, process, random.Random(seed), kills)
        crawl.site.on_hit = ignore
        _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, said
    check_complete(crawl)
    check_refetches(crawl, killed)
    return killed


def test_worker_processes_that_are_killed_are_replaced_and_nothing_is_lost(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    site = GeneratedSite(web, PAGES, delay_seconds=ANSWER_SECONDS)
    assert crawl_while_children_die(crawl_of(site, tmp_path, "--workers", "2"), seed=3, kills=3) == 3


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20, 50))
def test_worker_processes_killed_many_times_lose_nothing(
    web: SyntheticWeb, tmp_path: Path, seed: int
) -> None:
    site = GeneratedSite(web, PAGES, delay_seconds=ANSWER_SECONDS)
    crawl_while_children_die(crawl_of(site, tmp_path, "--workers", "3"), seed, kills=4)


# -- because of a page ---------------------------------------------------------------------------------


class Killer:
    """Kills the worker process that asks for one page, and notes which pages it had under way."""

    def __init__(self, site: GeneratedSite, poison: Page, crawl: subprocess.Popen[str]) -> None:
        self._site = site
        self._poison = poison
        self._crawl = crawl
        self.company: list[set[Page]] = []
        site.on_hit = self._on_hit

    def _on_hit(self, hit: Hit) -> None:
        if (hit.host, hit.path) != self._poison:
            return
        children, server = children_of(self._crawl.pid), self._site.web.port
        worker = holder_of(hit.port, server, children)
        if not worker:  # as process 0 it would be this one
            return
        under_way = dict(self._site.under_way)
        self.company.append(
            {page for page, port in under_way.items() if holder_of(port, server, children) == worker}
        )
        os.kill(worker, signal.SIGKILL)


def test_a_page_that_kills_its_worker_three_times_alone_is_failed_as_poison_and_no_other_is(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    # Large and slow enough that there is other work all the time the suspect is tried.
    site = GeneratedSite(web, 600, delay_seconds=0.03)
    poison = site.pages[7]
    url = web.url(*poison)
    crawl = crawl_of(site, tmp_path, "--workers", "2")
    with crawl.started() as process:
        killer = Killer(site, poison, process)
        _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, said
    check_complete(crawl, without=[url])
    with SqliteReader(crawl.job / "ledger.sqlite") as reader:
        failed = [
            (row.url, row.state.label, row.reason) for row in reader.urls() if row.state.label != "fetched"
        ]
    assert failed == [(url, "failed", "poison")]
    # Once in company, maybe; from then on it is a suspect, and suspects are visited alone.
    assert killer.company[-3:] == [{poison}] * 3
    assert len(killer.company) <= 4
    hits = site.page_hits()
    assert max(count for page, count in hits.items() if page != poison) <= 2
