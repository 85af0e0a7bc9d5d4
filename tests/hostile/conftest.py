from __future__ import annotations

from collections.abc import Iterator

import pytest

from .world import World, open_world


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as opened:
        yield opened
