from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.settings import PolitenessSettings
from gossamer.model.outcome import Retry, Settled, State
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy.retry import TRANSIENT_STATUSES, decide

NOW = 1_700_000_000.0
SETTINGS = PolitenessSettings(retries=2, backoff_seconds=1.0)


def answer(status: int, retry_after: str = "") -> Response:
    headers = (("retry-after", retry_after),) if retry_after else ()
    return Response("https://a.example/", status, headers, b"", NOW, 0.1, 0)


@pytest.mark.parametrize("tries", [1, 2])
def test_a_transient_status_is_tried_again_while_there_are_tries_left(tries: int) -> None:
    decision = decide(answer(503), tries, SETTINGS, NOW, 0.0)
    assert decision == Retry("http_503", NOW + 2.0 ** (tries - 1), "", 503)


def test_the_last_try_settles_it_as_failed_with_its_status() -> None:
    assert decide(answer(500), 3, SETTINGS, NOW, 0.0) == Settled(State.FAILED, "http_500", "", 500)


def test_without_retries_the_first_failure_is_the_last() -> None:
    settings = PolitenessSettings(retries=0)
    assert isinstance(decide(answer(500), 1, settings, NOW, 0.0), Settled)


@pytest.mark.parametrize(
    "problem", [FetchProblem.DNS, FetchProblem.CONNECT, FetchProblem.TIMEOUT, FetchProblem.DISCONNECTED]
)
def test_a_transient_problem_is_tried_again(problem: FetchProblem) -> None:
    decision = decide(FetchFailure(problem, "why"), 1, SETTINGS, NOW, 0.0)
    assert decision == Retry(problem, NOW + 1.0, "why")


@pytest.mark.parametrize(
    "problem",
    [
        FetchProblem.TLS,
        FetchProblem.PROTOCOL,
        FetchProblem.TOO_LARGE,
        FetchProblem.TOO_MANY_HEADERS,
        FetchProblem.BAD_ENCODING,
    ],
)
def test_a_problem_that_will_be_the_same_next_time_fails_at_once(problem: FetchProblem) -> None:
    decision = decide(FetchFailure(problem, "why", status=200), 1, SETTINGS, NOW, 0.0)
    assert decision == Settled(State.FAILED, problem, "why", 200)


def test_a_private_address_is_refused_and_not_failed() -> None:
    decision = decide(FetchFailure(FetchProblem.PRIVATE_ADDRESS, "10.0.0.1"), 1, SETTINGS, NOW, 0.0)
    assert decision == Settled(State.REFUSED, "private_address", "10.0.0.1")


def test_retry_after_is_waited_for_where_it_is_longer_than_the_back_off() -> None:
    assert decide(answer(429, "60"), 1, SETTINGS, NOW, 0.0) == Retry("http_429", NOW + 60, "", 429)
    assert decide(answer(429, "0"), 2, SETTINGS, NOW, 0.0) == Retry("http_429", NOW + 2, "", 429)


def test_a_longer_wait_than_we_are_willing_to_holds_the_url_even_at_its_last_try() -> None:
    for tries in (1, 3):
        decision = decide(answer(503, "3600"), tries, SETTINGS, NOW, 0.0)
        assert isinstance(decision, Settled)
        assert (decision.state, decision.reason) == (State.HELD, "wait_too_long")
        assert "3600" in decision.detail


@given(
    st.sampled_from(sorted(TRANSIENT_STATUSES)),
    st.integers(1, 50),
    st.integers(0, 50),
    st.floats(0, 1),
    st.text(),
)
def test_a_url_is_tried_a_bounded_number_of_times_and_never_in_the_past(
    status: int, tries: int, retries: int, random: float, header: str
) -> None:
    settings = PolitenessSettings(retries=retries)
    match decide(answer(status, header), tries, settings, NOW, random):
        case Retry(not_before=not_before):
            assert tries <= retries
            assert NOW < not_before <= NOW + settings.max_wait_seconds
        case Settled(state=state):
            assert state in {State.FAILED, State.HELD}
