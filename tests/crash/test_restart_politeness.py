"""The delay of a host outlives the process that kept it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.testing.stalls import quiet_gaps, stall_watch
from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import KILLED, LONGEST_SECONDS, GeneratedSite, check_complete, crawl_of

#: Several times what a start of the command takes, or the start alone would keep it.
DELAY_SECONDS = 1.5
#: Between the crawler's note of a start and the server's note of the arrival the machine may pause.
TOLERANCE_SECONDS = 0.05


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_and_resumed_crawl_keeps_the_delay_between_its_last_and_its_first_request(
    web: SyntheticWeb, tmp_path: Path, workers: str
) -> None:
    stall_watch()
    site = GeneratedSite(web, 6)
    polite = ("--delay", str(DELAY_SECONDS), "--per-host", "1", "--jitter", "0", "--no-robots")
    crawl = crawl_of(site, tmp_path, *polite, "--workers", workers)
    with crawl.started() as process:
        # Before its answer: nothing about the third host's start can have been stored.
        site.after_hits(3, process.kill)
        process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == KILLED
    crawl.finish()
    check_complete(crawl)
    starts: dict[str, list[float]] = {}
    for hit in web.hits:
        starts.setdefault(hit.host, []).append(hit.at)
    gaps = [gap for times in starts.values() for gap in quiet_gaps(times)]
    assert len(starts) == 3
    assert min(gaps, default=DELAY_SECONDS) >= DELAY_SECONDS - TOLERANCE_SECONDS
