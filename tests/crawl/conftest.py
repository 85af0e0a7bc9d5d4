from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.testing.crawl_rig import CrawlRig
from gossamer.testing.stalls import stall_watch
from gossamer.testing.synthetic_web import SyntheticWeb


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    """One web for a module; each test has hosts of its own on it."""
    stall_watch()
    with SyntheticWeb.in_thread(slow_seconds=0.2) as served:
        yield served


@pytest.fixture
def rig(tmp_path: Path) -> CrawlRig:
    return CrawlRig(tmp_path)
