"""Outputs that come late, vanish, or are asked for again are made from the record log, without a request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import KILLED, SMALL_COMMITS, Crawl, GeneratedSite, check_complete, crawl_of, read_records

PAGES = 60


@pytest.fixture
def finished(web: SyntheticWeb, tmp_path: Path) -> Crawl:
    """A job that is done, and a server that has forgotten it."""
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path)
    crawl.finish()
    check_complete(crawl)
    web.reset()
    return crawl


def test_the_same_command_on_a_finished_job_says_so_and_asks_for_nothing(
    web: SyntheticWeb, finished: Crawl
) -> None:
    said = finished.finish()
    assert "is finished" in said
    assert said.count("\n") == 1
    assert not web.hits
    check_complete(finished)


def test_a_finished_job_fills_another_output_without_a_request(web: SyntheticWeb, finished: Crawl) -> None:
    late = replace(finished, outputs=(finished.folder / "late.jsonl.gz",))
    late.finish()
    assert not web.hits
    check_complete(late)
    assert read_records(late.outputs[0]) == read_records(finished.outputs[0])


def test_an_output_that_was_deleted_is_written_anew_without_a_request(
    web: SyntheticWeb, finished: Crawl
) -> None:
    before = read_records(finished.outputs[0])
    finished.outputs[0].unlink()
    finished.finish()
    assert not web.hits
    check_complete(finished)
    assert read_records(finished.outputs[0]) == before


def test_an_output_that_lost_its_end_is_written_anew(web: SyntheticWeb, finished: Crawl) -> None:
    before = read_records(finished.outputs[0])
    with finished.outputs[0].open("r+b") as file:
        file.truncate(1000)
    finished.finish()
    assert not web.hits
    assert read_records(finished.outputs[0]) == before


@pytest.mark.parametrize("name", ["late.jsonl", "late.csv"])
@pytest.mark.parametrize("boundary", ["sink:before", "sink:torn", "sink:synced", "cursor:written"])
def test_killed_while_a_late_output_is_filled_it_is_still_filled_once(
    web: SyntheticWeb, finished: Crawl, boundary: str, name: str
) -> None:
    late = replace(finished, outputs=(finished.folder / name,))
    assert late.run(f"{boundary}@1").returncode == KILLED
    late.finish()
    assert not web.hits
    check_complete(late)


@pytest.mark.parametrize("boundary", ["", "sink:torn@1", "cursor:written@1"])
def test_a_csv_with_other_fields_is_made_anew_with_all_pages_and_without_a_request(
    web: SyntheticWeb, finished: Crawl, boundary: str
) -> None:
    late = replace(finished, outputs=(finished.folder / "late.csv",))
    late.finish()
    other = late.with_flags("--fields", "title,url,status")
    assert other.run(boundary).returncode == (KILLED if boundary else 0)
    other.finish()
    assert not web.hits
    check_complete(other)
    assert late.outputs[0].read_bytes().startswith(b"title,url,status\n")


def test_an_output_deleted_while_the_job_is_half_done_is_complete_in_the_end(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path, *SMALL_COMMITS)
    assert crawl.run("commit:done@6").returncode == KILLED
    crawl.outputs[1].unlink()
    crawl.finish()
    check_complete(crawl)
