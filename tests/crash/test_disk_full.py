"""A disk that fills up ends the run with one clear line; with room again, the same command completes the job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import (
    Crawl,
    GeneratedSite,
    check_complete,
    check_readable,
    check_refetches,
    crawl_of,
    has_begun,
)

PAGES = 150
#: In each page, so that records are several kilobytes: 600 KB in all, which no compression halves twice.
HEADINGS = 40
ENOUGH = "64m"
#: Each ends the run at another place.
MORE_SIZES = [pytest.param(size, marks=pytest.mark.soak) for size in ("40k", "64k", "100k", "200k", "250k")]


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A file system of its own whose size can be changed."""

    path: Path

    def resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True, timeout=10)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ENOUGH}", "gossamer-test", path],
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    if made.returncode:
        reason = f"no file system can be mounted here: {made.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True, timeout=10)


def starve(crawl: Crawl, disk: SmallDisk, size: str) -> None:
    """Run with too little room, look at what is left, make room, and finish."""
    crawl.command()  # writes the file of seeds
    disk.resize(size)
    starved = crawl.run()
    assert starved.returncode == 5, starved.stderr
    assert starved.stderr.count("\n") == 1, starved.stderr
    assert starved.stderr.startswith("gossamer: ")
    assert str(disk.path) in starved.stderr
    disk.resize(ENOUGH)
    if has_begun(crawl):
        check_readable(crawl)
    crawl.finish()
    check_complete(crawl)
    check_refetches(crawl, kills=1)


@pytest.mark.parametrize("size", ["16k", "128k", "400k", *MORE_SIZES])
def test_no_room_for_the_job_folder(web: SyntheticWeb, tmp_path: Path, disk: SmallDisk, size: str) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES, headings=HEADINGS), disk.path)
    starve(replace(crawl, outputs=(tmp_path / "out.jsonl",)), disk, size)


def test_a_report_that_cannot_be_written_is_said_and_loses_nothing(web: SyntheticWeb, tmp_path: Path) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES), tmp_path)
    # In the way of the file it is written to at first; a disk that is full just then does the same.
    (crawl.job / "report.part").mkdir(parents=True)
    done = crawl.run()
    assert done.returncode == 5, done.stderr
    assert "report.json could not be written" in done.stderr.splitlines()[-1]
    check_complete(crawl)


@pytest.mark.parametrize("size", ["4k", "300k", *MORE_SIZES])
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_no_room_for_an_output(
    web: SyntheticWeb, tmp_path: Path, disk: SmallDisk, name: str, size: str
) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES, headings=HEADINGS), tmp_path)
    starve(replace(crawl, outputs=(disk.path / name, tmp_path / "other.jsonl")), disk, size)


def test_no_room_for_anything_with_worker_processes(
    web: SyntheticWeb, tmp_path: Path, disk: SmallDisk
) -> None:
    crawl = crawl_of(GeneratedSite(web, PAGES, headings=HEADINGS), disk.path, "--workers", "2")
    starve(crawl, disk, "500k")
