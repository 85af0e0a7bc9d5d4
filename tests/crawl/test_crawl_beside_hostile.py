"""A crawl of good hosts beside hostile ones, served by a process of their own; `bench/hostile.py` is its timed version."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from gossamer.model.outcome import State
from gossamer.testing.crawl_rig import Crawled, CrawlRig

ROOT = Path(__file__).parents[2]
GOOD_HOSTS, PAGES = 3, 8
#: The guards of the defaults, with less patience.
IMPATIENT = ("--delay", "0.01", "--timeout", "1", "--min-rate-seconds", "0.3", "--max-calendar-depth", "6")
#: Hosts that fail are slowed down and asked again; here they have few chances, soon.
FEW_CHANCES = ("--retries", "1", "--robots-probes", "2", "--max-backoff-seconds", "0.1", "--no-adaptive")


@contextmanager
def hosts() -> Iterator[tuple[list[str], list[str]]]:
    """Yield the seeds of the good hosts and of the hostile ones, one of each kind."""
    options = ["--good", str(GOOD_HOSTS), "--pages", str(PAGES), "--seconds", "100"]
    argv = [sys.executable, "-m", "bench.hostile_site", *options]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            seeds = json.loads(process.stdout.readline())
            yield seeds["good"], seeds["hostile"]
        finally:
            process.terminate()


def reasons_of(crawled: Crawled, seed: str) -> set[str]:
    """Return what the URLs of a host came to."""
    return {crawled.state(url) for url in crawled.rows if url.startswith(seed)}


def test_hostile_hosts_end_with_a_reason_and_cost_no_good_page(rig: CrawlRig) -> None:
    with hosts() as (good, hostile):
        crawled = rig.crawl(*hostile, *good, *IMPATIENT, *FEW_CHANCES)
    assert crawled.code == 0
    fetched = Counter(urlsplit(url).hostname for url in crawled.urls)
    assert [fetched[urlsplit(seed).hostname] for seed in good] == [PAGES] * GOOD_HOSTS
    assert [row.url for row in crawled.rows.values() if row.state is State.QUEUED or not row.reason] == []
    drip, bomb, loop, calendar, silent, robots = (reasons_of(crawled, seed) for seed in hostile)
    # The first page of the first four is harmless, so that they get as far as the rest.
    assert drip == {"fetched ok", "failed timeout", "held host_failing"}
    assert bomb == {"fetched ok", "failed too_large"}
    assert loop == {"fetched ok", "redirected redirect", "failed redirect_loop", "failed too_many_redirects"}
    assert calendar == {"fetched ok", "refused trap"}
    assert silent == robots == {"held robots_unreachable"}
