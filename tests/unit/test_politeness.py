from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.settings import PolitenessSettings
from gossamer.contracts import Ruling, Unknown, Unreachable
from gossamer.fetch.robots_cache import OriginRobots
from gossamer.model.outcome import RobotsFile
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy.politeness import backoff, group_delay, pause_after, retry_after
from gossamer.testing.clock import FakeClock

NOW = 1_700_000_000.0
ORIGIN = "https://a.example"
SETTINGS = PolitenessSettings()


def response(status: int = 200, body: bytes = b"", **headers: str) -> Response:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response("https://a.example/", status, pairs, body, NOW - 1, 1.0, len(body))


def failure(problem: FetchProblem) -> FetchFailure:
    return FetchFailure(problem, "detail", started_at=NOW - 1)


# -- waits -----------------------------------------------------------------------------------------------


def test_the_back_off_doubles_up_to_its_bound() -> None:
    waits = [backoff(failures, SETTINGS, 0.0) for failures in range(1, 9)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@given(st.integers(-5, 10**9), st.floats(0, 1))
def test_the_back_off_is_finite_and_its_jitter_only_adds(failures: int, random: float) -> None:
    least = backoff(failures, SETTINGS, 0.0)
    assert 1.0 <= least <= backoff(failures, SETTINGS, random) <= least * 1.1 <= 66.0


@pytest.mark.parametrize(
    ("crawl_delay", "expected"), [(None, 1.0), (0.2, 1.0), (5.0, 5.0), (9999.0, 60.0), (0.0, 1.0)]
)
def test_the_delay_of_a_group_is_the_longer_of_ours_and_theirs_within_the_bound(
    crawl_delay: float | None, expected: float
) -> None:
    assert group_delay(crawl_delay, SETTINGS) == expected


def test_our_own_delay_may_be_longer_than_the_bound_on_theirs() -> None:
    assert group_delay(10.0, PolitenessSettings(delay=120.0)) == 120.0


def test_retry_after_is_read_from_an_answer_and_never_from_a_failure() -> None:
    assert retry_after(response(503, retry_after="7"), NOW) == 7.0
    assert retry_after(response(503), NOW) == 0.0
    assert retry_after(failure(FetchProblem.TIMEOUT), NOW) == 0.0


# -- what an answer means for the host -------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 301, 404, 410, 500, 502])
def test_an_answer_that_is_no_complaint_ends_the_back_off(status: int) -> None:
    pause = pause_after(response(status), 1.0, 3, SETTINGS, NOW, 0.0)
    assert (pause.started_at, pause.delay, pause.until, pause.failed) == (NOW - 1, 1.0, 0.0, False)


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_host_is_left_alone_as_long_as_it_asks_for(status: int) -> None:
    pause = pause_after(response(status, retry_after="30"), 1.0, 0, SETTINGS, NOW, 0.0)
    assert (pause.until, pause.failed) == (NOW + 30, True)


@pytest.mark.parametrize(("failures", "wait"), [(0, 1.0), (1, 2.0), (4, 16.0)])
def test_an_overloaded_host_that_names_no_time_is_left_alone_longer_each_time(
    failures: int, wait: float
) -> None:
    assert pause_after(response(503), 1.0, failures, SETTINGS, NOW, 0.0).until == NOW + wait


@pytest.mark.parametrize(
    "problem", [FetchProblem.DNS, FetchProblem.CONNECT, FetchProblem.TIMEOUT, FetchProblem.DISCONNECTED]
)
def test_trouble_with_the_host_makes_it_rest(problem: FetchProblem) -> None:
    pause = pause_after(failure(problem), 1.0, 0, SETTINGS, NOW, 0.0)
    assert (pause.until, pause.failed) == (NOW + 1, True)


@pytest.mark.parametrize(
    "problem",
    [
        FetchProblem.TOO_LARGE,
        FetchProblem.PROTOCOL,
        FetchProblem.BAD_ENCODING,
        FetchProblem.TLS,
        FetchProblem.PRIVATE_ADDRESS,
    ],
)
def test_trouble_with_a_page_says_nothing_about_its_host(problem: FetchProblem) -> None:
    pause = pause_after(failure(problem), 1.0, 2, SETTINGS, NOW, 0.0)
    assert (pause.until, pause.failed) == (0.0, None)


# -- what robots.txt allows ------------------------------------------------------------------------------


class Kept:
    """Whoever keeps robots.txt files across restarts."""

    def __init__(self) -> None:
        self.files: dict[str, RobotsFile] = {}

    async def load(self, origin: str) -> RobotsFile | None:
        return self.files.get(origin)


def cache(clock: FakeClock, kept: Kept | None = None, **settings: float) -> OriginRobots:
    politeness = PolitenessSettings(**settings)  # type: ignore[arg-type]  # numbers for number settings
    return OriginRobots(politeness, "Gossamer/1", clock, (kept or Kept()).load, lambda: 0.0)


def test_an_origin_nobody_has_asked_yet_is_unknown() -> None:
    assert isinstance(cache(FakeClock()).rule(ORIGIN, ORIGIN + "/"), Unknown)


def test_rules_allow_and_forbid_and_carry_their_version() -> None:
    clock = FakeClock()
    robots = cache(clock)
    file = robots.learn(ORIGIN, response(200, b"User-agent: *\nDisallow: /no\nCrawl-delay: 3\n"), clock())
    assert file is not None
    shut, open_ = robots.rule(ORIGIN, ORIGIN + "/no"), robots.rule(ORIGIN, ORIGIN + "/yes")
    assert isinstance(shut, Ruling)
    assert isinstance(open_, Ruling)
    assert (shut.allowed, open_.allowed) == (False, True)
    assert (open_.crawl_delay, open_.version) == (3.0, file.version)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_4xx_means_there_are_no_rules(status: int) -> None:
    clock = FakeClock()
    robots = cache(clock)
    robots.learn(ORIGIN, response(status, b"User-agent: *\nDisallow: /\n"), clock())
    ruling = robots.rule(ORIGIN, ORIGIN + "/x")
    assert isinstance(ruling, Ruling)
    assert ruling.allowed


@pytest.mark.parametrize(
    "answer", [response(500), response(503), response(429), failure(FetchProblem.TIMEOUT)]
)
def test_a_5xx_a_429_or_a_failure_allows_nothing_until_it_answers(answer: Response | FetchFailure) -> None:
    clock = FakeClock()
    robots = cache(clock, robots_probes=2)
    assert robots.learn(ORIGIN, answer, clock()) is None
    first = robots.rule(ORIGIN, ORIGIN + "/")
    assert isinstance(first, Unreachable)
    assert not first.exhausted
    clock.advance(first.until - clock())
    assert isinstance(robots.rule(ORIGIN, ORIGIN + "/"), Unknown), "time to try again"
    robots.learn(ORIGIN, answer, clock())
    second = robots.rule(ORIGIN, ORIGIN + "/")
    assert isinstance(second, Unreachable)
    assert second.exhausted
    robots.learn(ORIGIN, response(404), clock())
    assert isinstance(robots.rule(ORIGIN, ORIGIN + "/"), Ruling)


def test_a_busy_host_is_probed_again_when_it_asked_for() -> None:
    clock = FakeClock()
    robots = cache(clock)
    robots.learn(ORIGIN, response(503, retry_after="45"), clock())
    ruling = robots.rule(ORIGIN, ORIGIN + "/")
    assert isinstance(ruling, Unreachable)
    assert ruling.until == clock() + 45


def test_rules_are_used_for_a_day_and_then_asked_for_again() -> None:
    clock = FakeClock()
    robots = cache(clock)
    robots.learn(ORIGIN, response(404), clock())
    clock.advance(86_399)
    assert isinstance(robots.rule(ORIGIN, ORIGIN + "/"), Ruling)
    clock.advance(1)
    assert isinstance(robots.rule(ORIGIN, ORIGIN + "/"), Unknown)


def test_a_kept_file_is_recalled_while_it_is_fresh() -> None:
    clock, kept = FakeClock(), Kept()
    kept.files[ORIGIN] = RobotsFile(ORIGIN, clock(), 200, b"User-agent: *\nDisallow: /no\n", 7)
    robots = cache(clock, kept)
    assert asyncio.run(robots.recall(ORIGIN))
    ruling = robots.rule(ORIGIN, ORIGIN + "/no")
    assert isinstance(ruling, Ruling)
    assert (ruling.allowed, ruling.version) == (False, 7)
    clock.advance(86_400)
    assert not asyncio.run(cache(clock, kept).recall(ORIGIN))


@pytest.mark.parametrize("delay", [0.0, 0.5, 90.0])
def test_rules_outlast_the_wait_of_the_page_they_were_fetched_for(delay: float) -> None:
    """Stale by the time the page is due, robots.txt would be fetched for ever and the page never."""
    clock = FakeClock()
    robots = cache(clock, robots_ttl_seconds=0.0, delay=delay, max_crawl_delay_seconds=30.0)
    robots.learn(ORIGIN, response(404), clock())
    clock.advance(max(delay, 30.0))
    assert isinstance(robots.rule(ORIGIN, ORIGIN + "/"), Ruling)
