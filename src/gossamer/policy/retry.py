"""Whether a failure is worth another try. The decision is data."""

from __future__ import annotations

from gossamer.config.settings import PolitenessSettings
from gossamer.model.outcome import Retry, Settled, State
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy.politeness import backoff, retry_after

#: Statuses that may be different next time. 501 and 505 will not be.
TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524})
_TRANSIENT_PROBLEMS = frozenset(
    {FetchProblem.DNS, FetchProblem.CONNECT, FetchProblem.TIMEOUT, FetchProblem.DISCONNECTED}
)


def decide(
    answer: Response | FetchFailure, tries: int, settings: PolitenessSettings, now: float, random: float
) -> Retry | Settled:
    """Decide what becomes of a URL whose fetch number `tries` (from 1) brought no usable page."""
    if isinstance(answer, FetchFailure):
        if answer.problem is FetchProblem.PRIVATE_ADDRESS:
            return Settled(State.REFUSED, answer.problem, answer.detail)
        reason, detail, status = str(answer.problem), answer.detail, answer.status
        transient = answer.problem in _TRANSIENT_PROBLEMS
    else:
        reason, detail, status = f"http_{answer.status}", "", answer.status
        transient = True
    wait = retry_after(answer, now)
    if wait > settings.max_wait_seconds:
        return Settled(State.HELD, "wait_too_long", f"the host asked to wait {wait:.0f} s", status)
    if not transient or tries > settings.retries:
        return Settled(State.FAILED, reason, detail, status)
    return Retry(reason, now + max(wait, backoff(tries, settings, random)), detail, status)
