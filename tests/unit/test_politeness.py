from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.settings import PolitenessSettings
from gossamer.contracts import Ruling, Unknown, Unreachable
from gossamer.fetch.robots_cache import OriginRobots
from gossamer.model.outcome import ROBOTS_UNREACHABLE, Pause, RobotsFile, StoredRobots
from gossamer.model.request import Known, Lease, Request
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy.politeness import (
    backoff,
    group_delay,
    is_given_up,
    is_parked,
    pause_after,
    retry_after,
)
from gossamer.testing.clock import FakeClock

NOW = 1_700_000_000.0
ORIGIN = "https://a.example"
SETTINGS = PolitenessSettings()


def response(status: int = 200, body: bytes = b"", elapsed: float = 1.0, **headers: str) -> Response:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response("https://a.example/", status, pairs, body, NOW - 1, elapsed, len(body))


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


def lease(delay: float = 1.0, failures: int = 0, slowness: float = 0.0) -> Lease:
    request = Request("https://a.example/", 1, "a.example")
    return Lease(Known(request, 1), 1, NOW + 60, delay, failures, "a.example", slowness)


def after(
    answer: Response | FetchFailure,
    failures: int = 0,
    slowness: float = 0.0,
    floor: float = 1.0,
    settings: PolitenessSettings = SETTINGS,
    blocked: str = "",
) -> Pause:
    given = lease(max(floor, slowness), failures, slowness)
    return pause_after(answer, given, ORIGIN, floor, settings, NOW, 0.0, blocked)


@pytest.mark.parametrize("status", [200, 204, 301, 404, 410, 500, 502])
def test_an_answer_that_is_no_complaint_ends_the_back_off(status: int) -> None:
    pause = after(response(status, elapsed=0.1), failures=3)
    assert (pause.started_at, pause.delay, pause.until, pause.failed) == (NOW - 1, 1.0, 0.0, False)


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_host_is_left_alone_as_long_as_it_asks_for(status: int) -> None:
    pause = after(response(status, retry_after="30"))
    assert (pause.until, pause.failed) == (NOW + 30, True)


@pytest.mark.parametrize(("failures", "wait"), [(0, 1.0), (1, 2.0), (4, 16.0)])
def test_an_overloaded_host_that_names_no_time_is_left_alone_longer_each_time(
    failures: int, wait: float
) -> None:
    assert after(response(503), failures).until == NOW + wait


@pytest.mark.parametrize(
    "problem", [FetchProblem.DNS, FetchProblem.CONNECT, FetchProblem.TIMEOUT, FetchProblem.DISCONNECTED]
)
def test_trouble_with_the_host_makes_it_rest(problem: FetchProblem) -> None:
    pause = after(failure(problem))
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
    pause = after(failure(problem), failures=2)
    assert (pause.until, pause.failed) == (0.0, None)


# -- how fast from now on --------------------------------------------------------------------------------


@pytest.mark.parametrize(("elapsed", "delay"), [(0.1, 1.0), (0.5, 1.0), (2.0, 4.0), (100.0, 60.0)])
def test_a_host_rests_in_proportion_to_the_work_it_had(elapsed: float, delay: float) -> None:
    assert after(response(elapsed=elapsed)).delay == delay


def test_several_requests_at_a_time_share_the_rest() -> None:
    settings = PolitenessSettings(per_host=4)
    assert after(response(elapsed=4.0), settings=settings).delay == 2.0


def test_who_asks_for_no_delay_gets_none_for_slow_answers() -> None:
    settings = PolitenessSettings(delay=0.0)
    assert after(response(elapsed=4.0), floor=0.0, settings=settings).delay == 0.0


def test_the_longest_of_the_three_delays_counts() -> None:
    assert after(response(elapsed=3.0), floor=10.0).delay == 10.0
    assert after(response(elapsed=6.0), floor=10.0).delay == 12.0


def test_each_complaint_doubles_the_delay_up_to_its_bound() -> None:
    slowness, delays = 0.0, []
    for _ in range(8):
        pause = after(response(429, elapsed=0.0), slowness=slowness)
        assert pause.slowness is not None
        slowness = pause.slowness
        delays.append(pause.delay)
    assert delays == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_complaint_slows_down_even_where_there_was_no_delay() -> None:
    settings = PolitenessSettings(delay=0.0)
    assert after(response(503), floor=0.0, settings=settings).delay == 0.5


def test_good_answers_make_it_faster_again_step_by_step() -> None:
    slowness, delays = 16.0, []
    while slowness:
        pause = after(response(elapsed=0.0), slowness=slowness)
        assert pause.slowness is not None
        assert pause.delay is not None
        slowness = pause.slowness
        delays.append(pause.delay)
    assert delays == sorted(delays, reverse=True)
    assert delays[0] > 13
    assert delays[-1] == 1.0
    assert 10 < len(delays) < 30


def test_without_adaption_only_what_was_asked_for_counts() -> None:
    settings = PolitenessSettings(adaptive=False)
    assert after(response(429, elapsed=9.0), settings=settings).delay == 1.0


@given(
    st.sampled_from([200, 301, 404, 429, 500, 503]),
    st.floats(0, 1000),
    st.floats(0, 60),
    st.floats(1, 60),
    st.integers(0, 20),
)
def test_no_answer_makes_the_delay_shorter_than_its_floor_or_longer_than_its_bounds(
    status: int, elapsed: float, slowness: float, floor: float, failures: int
) -> None:
    delay = after(response(status, elapsed=elapsed), failures, slowness, floor).delay
    assert delay is not None
    assert floor <= delay <= max(floor, 60.0)


def test_a_block_page_counts_as_trouble_and_says_so() -> None:
    pause = after(response(200), blocked="a challenge")
    assert (pause.failed, pause.trouble, pause.until) == (True, "blocked", NOW + 1)


def test_a_host_is_parked_and_then_given_up_and_neither_if_the_user_says_so() -> None:
    assert [is_parked(failures, SETTINGS) for failures in (4, 5)] == [False, True]
    assert [is_given_up(failures, SETTINGS) for failures in (7, 8)] == [False, True]
    never = PolitenessSettings(park_after_failures=0)
    assert not is_parked(100, never)
    assert not is_given_up(100, never)


# -- what robots.txt allows ------------------------------------------------------------------------------


class Kept:
    """Whoever keeps robots.txt files across restarts."""

    def __init__(self) -> None:
        self.files: dict[str, RobotsFile] = {}

    async def load(self, origin: str) -> StoredRobots:
        return StoredRobots(self.files.get(origin))


def cache(clock: FakeClock, kept: Kept | None = None, **settings: float) -> OriginRobots:
    politeness = PolitenessSettings(**settings)  # type: ignore[arg-type]  # numbers for number settings
    return OriginRobots(politeness, "Gossamer/1", clock, (kept or Kept()).load, lambda: 0.0)


def test_an_origin_nobody_has_asked_yet_is_unknown() -> None:
    assert isinstance(cache(FakeClock()).rule(ORIGIN, ORIGIN + "/"), Unknown)


def test_rules_allow_and_forbid_and_carry_their_version() -> None:
    clock = FakeClock()
    robots = cache(clock)
    file = robots.learn(
        ORIGIN, response(200, b"User-agent: *\nDisallow: /no\nCrawl-delay: 3\n"), clock()
    ).file
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
    assert robots.learn(ORIGIN, answer, clock()).file.status == ROBOTS_UNREACHABLE
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
