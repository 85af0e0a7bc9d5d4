"""Two processes on one job: the second is turned away, and the first does not notice."""

from __future__ import annotations

from pathlib import Path

from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import LONGEST_SECONDS, GeneratedSite, check_complete, check_refetches, crawl_of


def test_a_second_process_on_a_job_is_turned_away_and_the_first_is_unharmed(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    site = GeneratedSite(web, 120)
    crawl = crawl_of(site, tmp_path, "--timeout", "200")
    with crawl.started() as process:
        # The first is not done before the second has ended.
        assert site.after_hits(10, site.open.clear).wait(LONGEST_SECONDS)
        second = crawl.run()
        site.open.set()
        _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert f"process {process.pid}" in second.stderr
    assert process.returncode == 0, said
    check_complete(crawl)
    check_refetches(crawl, kills=0)


def test_a_killed_process_leaves_no_lock_behind_even_while_its_workers_still_die(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    site = GeneratedSite(web, 120, delay_seconds=0.01)
    crawl = crawl_of(site, tmp_path, "--workers", "2")
    for _ in range(2):
        with crawl.started() as process:
            site.after_hits(20, process.kill)
            process.communicate(timeout=LONGEST_SECONDS)
    crawl.finish()
    check_complete(crawl)
    check_refetches(crawl, kills=2)
