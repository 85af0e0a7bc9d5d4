from __future__ import annotations

from collections.abc import Iterator

import pytest

from gossamer.testing.synthetic_web import SyntheticWeb

pytest.register_assert_rewrite("crash.killing")


@pytest.fixture(scope="session")
def shared_web() -> Iterator[SyntheticWeb]:
    """One server for all, so that a page has the same URL in every test and records can be compared."""
    with SyntheticWeb.in_thread() as web:
        yield web


@pytest.fixture
def web(shared_web: SyntheticWeb) -> SyntheticWeb:
    shared_web.reset()
    return shared_web
