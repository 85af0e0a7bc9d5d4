"""SIGKILL at random instants, with one process and with several, and the same command again each time."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import (
    KILLED,
    LONGEST_SECONDS,
    Crawl,
    GeneratedSite,
    check_complete,
    check_ledger,
    check_readable,
    check_refetches,
    crawl_of,
    has_begun,
    ignore,
)

PAGES = 300
#: Long enough for a kill to meet many requests under way, and for a run to outlive all kills that are meant for it.
ANSWER_SECONDS = 0.02
#: The command needs about this long before its first request.
STARTING_SECONDS = 0.4


def kill_at_random(crawl: Crawl, chance: random.Random) -> bool:
    """Run, and kill at a random moment of the start or of the crawl; returns whether it came to that."""
    with crawl.started() as process:
        if chance.random() < 0.25:
            timer = threading.Timer(chance.uniform(0.0, STARTING_SECONDS), process.kill)
            timer.start()
        else:
            # So many pages later, and then anywhere within a commit.
            timer = threading.Timer(chance.uniform(0.0, 0.05), process.kill)
            crawl.site.after_hits(chance.randint(1, PAGES // 10), timer.start)
        _, said = process.communicate(timeout=LONGEST_SECONDS)
        crawl.site.on_hit = ignore
        timer.cancel()
    assert process.returncode in {0, KILLED}, said
    return process.returncode == KILLED


def kill_again_and_again(crawl: Crawl, seed: int, kills: int) -> int:
    """Kill up to `kills` times, as long as the job lasts, and check it after each kill; returns how many it were."""
    chance = random.Random(seed)
    killed = 0
    while killed < kills and kill_at_random(crawl, chance):
        killed += 1
        if has_begun(crawl):
            check_ledger(crawl)
    crawl.finish()
    check_readable(crawl)
    check_complete(crawl)
    check_refetches(crawl, killed)
    return killed


@pytest.mark.parametrize(("workers", "seed", "kills"), [("1", 1, 8), ("2", 2, 4)])
def test_killed_at_random_instants_a_job_ends_with_each_page_once(
    web: SyntheticWeb, tmp_path: Path, workers: str, seed: int, kills: int
) -> None:
    site = GeneratedSite(web, PAGES, delay_seconds=ANSWER_SECONDS)
    assert kill_again_and_again(crawl_of(site, tmp_path, "--workers", workers), seed, kills) == kills


@pytest.mark.soak
@pytest.mark.parametrize("workers", ["1", "2", "3"])
@pytest.mark.parametrize("seed", range(10, 20))
def test_killed_at_random_instants_more_than_a_hundred_times(
    web: SyntheticWeb, tmp_path: Path, workers: str, seed: int
) -> None:
    site = GeneratedSite(web, PAGES, delay_seconds=ANSWER_SECONDS)
    kill_again_and_again(crawl_of(site, tmp_path, "--workers", workers), seed, kills=10)
