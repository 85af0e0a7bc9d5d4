"""Names that change their minds, or answer with good and bad addresses at once, gain nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gossamer.config.settings import FetchSettings
from gossamer.fetch.http import HttpFetcher
from gossamer.fetch.resolver import Resolver
from gossamer.model.response import FetchFailure, FetchProblem

from .world import PUBLIC, PUBLIC_V6, World, page, states

FAST = (
    "--delay",
    "0",
    "--backoff-seconds",
    "0.02",
    "--progress",
    "none",
    "--jobs-dir",
    "jobs",
    "--job",
    "job",
)
INSIDE = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"]


@pytest.mark.parametrize("private", INSIDE)
def test_a_name_that_turns_private_during_a_crawl_is_not_followed_there(
    world: World, tmp_path: Path, private: str
) -> None:
    zone = {"rebind.example": [[PUBLIC], [private]]}
    pages = {"/": page("/a", "/b"), "/a": page("/c"), "/b": page(), "/c": page()}
    ran = world.run(tmp_path, "crawl", "http://rebind.example/", *FAST, zone=zone, pages=pages)
    # Each reply closes its connection, so each page needs a new one.
    assert ran.connections == {PUBLIC: 5}
    assert set(states(tmp_path).values()) == {"fetched ok"}


@pytest.mark.parametrize("private", INSIDE)
def test_a_name_that_has_turned_private_is_refused_by_the_next_run(
    world: World, tmp_path: Path, private: str
) -> None:
    zone = {"rebind.example": [[private]]}
    ran = world.run(tmp_path, "scrape", "http://rebind.example/", *FAST, zone=zone, pages={"/": page()})
    assert ran.connections == {}
    assert states(tmp_path) == {"http://rebind.example/": "refused private_address"}
    assert ran.asked


@pytest.mark.parametrize(
    ("answer", "reached"),
    [
        ([PUBLIC, "127.0.0.1", "10.0.0.1"], PUBLIC),
        (["10.0.0.1", "127.0.0.1", PUBLIC], PUBLIC),
        ([PUBLIC, "::1", "fd00::1"], PUBLIC),
        (["127.0.0.1", "169.254.169.254", PUBLIC_V6], PUBLIC_V6),
        (["::ffff:127.0.0.1", "64:ff9b::a00:1", PUBLIC], PUBLIC),
    ],
)
def test_of_mixed_answers_only_the_public_address_is_connected_to(
    world: World, tmp_path: Path, answer: list[str], reached: str
) -> None:
    zone = {"mixed.example": [answer]}
    ran = world.run(tmp_path, "scrape", "http://mixed.example/", *FAST, zone=zone, pages={"/": page()})
    assert ran.connections == {reached: 2}


def test_a_public_address_that_refuses_does_not_make_room_for_a_private_one(
    world: World, tmp_path: Path
) -> None:
    # Only loopback listens on port 81.
    zone = {"mixed.example": [[PUBLIC, "127.0.0.1", "::1"]]}
    given = ("--no-robots", "--retries", "1")
    url = "http://mixed.example:81/"
    ran = world.run(tmp_path, "scrape", url, *FAST, *given, zone=zone, pages={"/": page()})
    assert ran.connections == {}
    assert states(tmp_path) == {url: "failed connect_error"}
    allowed = (*given, "--allow-private", "--job", "allowed")
    ran = world.run(tmp_path, "scrape", url, *FAST, *allowed, zone=zone, pages={"/": page()})
    assert sum(ran.connections.values()) == 1


def test_the_address_that_was_checked_is_the_one_connected_to() -> None:
    async def scenario() -> None:
        connections = 0
        asked = 0

        async def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            writer.close()

        async def lookup(_name: str) -> Sequence[str]:
            nonlocal asked
            asked += 1
            # A public address where nobody listens on this port. Every later answer is the server's own.
            return ["2606:2800:220:1::1"] if asked == 1 else ["127.0.0.1"]

        server = await asyncio.start_server(count, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = FetchSettings(connect_timeout_seconds=0.3)
        fetcher = HttpFetcher(
            settings,
            Resolver(allow_private=False, ttl_seconds=0.0, failure_ttl_seconds=0.0, lookup=lookup),
            time.time,
        )
        outcomes = [await fetcher.fetch(f"http://rebind.example:{port}/") for _ in range(3)]
        await fetcher.close()
        server.close()
        await server.wait_closed()
        problems = [outcome.problem for outcome in outcomes if isinstance(outcome, FetchFailure)]
        assert problems[0] in {FetchProblem.CONNECT, FetchProblem.TIMEOUT}
        assert problems[1:] == [FetchProblem.PRIVATE_ADDRESS, FetchProblem.PRIVATE_ADDRESS]
        assert (asked, connections) == (3, 0)

    asyncio.run(scenario())
