from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from gossamer.testing.postgres_server import PostgresServer, programs
from gossamer.testing.redis_server import RedisServer, is_redis_installed, redis_server
from gossamer.testing.synthetic_web import SyntheticWeb

pytest.register_assert_rewrite("cluster.rig", "cluster.site")

from .rig import Crew, Servers  # noqa: E402 - its assertions are rewritten


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its workers said and what the ledger holds: it may never fail that way again."""
    report = yield
    crew = getattr(item, "funcargs", {}).get("crew")
    if report.when == "call" and report.failed and isinstance(crew, Crew):
        report.sections += crew.evidence()
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if programs() is None or not is_redis_installed():
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs PostgreSQL and redis-server"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of its own: tests stop and freeze it."""
    server = PostgresServer()
    server.start()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def shared_web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread() as web:
        yield web


@pytest.fixture
def web(shared_web: SyntheticWeb) -> SyntheticWeb:
    shared_web.reset()
    return shared_web


@pytest.fixture
def servers(postgres: PostgresServer, redis: RedisServer, tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(postgres, redis, tmp_path)
    yield servers
    postgres.drop(servers.database)


@pytest.fixture
def crew(servers: Servers) -> Iterator[Crew]:
    crew = Crew(servers)
    yield crew
    crew.bury()
