"""Ctrl-C and its relatives: the first drains, the second stops at once, and both can be resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import (
    LONGEST_SECONDS,
    GeneratedSite,
    check_complete,
    check_ledger,
    check_readable,
    check_refetches,
    children_of,
    crawl_of,
)

PAGES = 120
ANSWER_SECONDS = 0.005
#: A page of this length outlives the test's patience: whoever waits for it fails by timeout.
FOREVER_SECONDS = 300.0


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_the_requests_under_way_finish_and_says_how_to_resume(
    web: SyntheticWeb, tmp_path: Path, number: signal.Signals, code: int, workers: str
) -> None:
    site = GeneratedSite(web, PAGES, delay_seconds=0.05)
    crawl = crawl_of(site, tmp_path, "--workers", workers)
    with crawl.started() as process:
        site.after_hits(40, lambda: os.killpg(process.pid, number))
        _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == code
    assert "interrupted" in said
    assert "go on from here" in said or "gossamer crawl -i" in said
    assert "Traceback" not in said
    asked = len(site.page_hits())
    assert 40 <= asked < PAGES
    check_readable(crawl)
    check_ledger(crawl)
    site.delay_seconds = 0.0
    crawl.finish()
    check_complete(crawl)
    # What was under way is committed: nothing is asked for twice.
    check_refetches(crawl, kills=0)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_signal_stops_at_once_whatever_is_under_way(
    web: SyntheticWeb, tmp_path: Path, workers: str
) -> None:
    site = GeneratedSite(web, PAGES)
    patience = ("--timeout", "200", "--grace-seconds", "200", "--progress", "plain")
    crawl = crawl_of(site, tmp_path, "--workers", workers, *patience)
    with crawl.started() as process:

        def hang() -> None:
            site.delay_seconds = FOREVER_SECONDS
            process.send_signal(signal.SIGINT)

        site.after_hits(40, hang)
        assert process.stderr is not None
        assert any("press Ctrl-C again" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in said
    check_readable(crawl)
    check_ledger(crawl)
    site.delay_seconds = 0.0
    crawl.finish()
    check_complete(crawl)
    check_refetches(crawl, kills=1)


def test_a_signal_while_worker_processes_start_ends_without_a_traceback(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    site = GeneratedSite(web, PAGES)
    crawl = crawl_of(site, tmp_path, "--workers", "2")
    with crawl.started() as process:
        while not children_of(process.pid) and process.poll() is None:
            pass  # a sleep could miss the moment
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in said
    crawl.finish()
    check_complete(crawl)
    check_refetches(crawl, kills=0)
