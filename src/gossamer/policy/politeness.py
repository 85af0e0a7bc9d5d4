"""What an answer means for the host it came from: how long to leave it alone."""

from __future__ import annotations

from gossamer.config.settings import PolitenessSettings
from gossamer.model.outcome import Pause
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy.retry_after import parse_retry_after

#: Answers by which a server asks for rest.
OVERLOADED = frozenset({429, 503})
#: Failures that say something about the host, not about one page.
_HOST_TROUBLE = frozenset(
    {FetchProblem.DNS, FetchProblem.CONNECT, FetchProblem.TIMEOUT, FetchProblem.DISCONNECTED}
)


def backoff(failures: int, settings: PolitenessSettings, random: float) -> float:
    """Return the wait before the next try after `failures` in a row: exponential, with jitter that only adds."""
    base = settings.backoff_seconds * float(1 << min(max(failures, 1) - 1, 30))
    return min(base, settings.max_backoff_seconds) * (1.0 + settings.jitter * random)


def retry_after(answer: Response | FetchFailure, now: float) -> float:
    """Return the seconds a server asked us to wait, or 0."""
    if isinstance(answer, FetchFailure):
        return 0.0
    return parse_retry_after(answer.header("retry-after"), now) or 0.0


def group_delay(crawl_delay: float | None, settings: PolitenessSettings) -> float:
    """Return the delay of a group: the configured one, or a longer Crawl-delay up to the bound."""
    return max(settings.delay, min(crawl_delay or 0.0, settings.max_crawl_delay_seconds))


def pause_after(
    answer: Response | FetchFailure,
    delay: float,
    failures: int,
    settings: PolitenessSettings,
    now: float,
    random: float,
) -> Pause:
    """Return when the group of a host may be asked again after this answer."""
    if isinstance(answer, FetchFailure):
        trouble = answer.problem in _HOST_TROUBLE
        until = now + backoff(failures + 1, settings, random) if trouble else 0.0
        return Pause(answer.started_at, delay, until, failed=True if trouble else None)
    if answer.status in OVERLOADED:
        wait = retry_after(answer, now) or backoff(failures + 1, settings, random)
        return Pause(answer.started_at, delay, now + wait, failed=True)
    return Pause(answer.started_at, delay, failed=False)
