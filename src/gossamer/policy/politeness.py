"""What an answer means for the host it came from: how long to leave it alone."""

from __future__ import annotations

from gossamer.config.settings import PolitenessSettings
from gossamer.model.outcome import Pause
from gossamer.model.request import Lease
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy.retry_after import parse_retry_after

#: Answers by which a server asks for rest.
OVERLOADED = frozenset({429, 503})
#: Failures that say something about the host, not about one page.
_HOST_TROUBLE = frozenset(
    {FetchProblem.DNS, FetchProblem.CONNECT, FetchProblem.TIMEOUT, FetchProblem.DISCONNECTED}
)
#: A host in trouble is slowed to at least this, also where it was asked without any delay.
_FIRST_SLOWNESS_SECONDS = 0.5
#: What is left of the slowness after an answer: about fifteen good answers undo one doubling of ten.
_RECOVERY = 0.85


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
    """Return the least delay of an origin: the configured one, or a longer Crawl-delay up to the bound."""
    return max(settings.delay, min(crawl_delay or 0.0, settings.max_crawl_delay_seconds))


def is_parked(failures: int, settings: PolitenessSettings) -> bool:
    """Say whether a group has failed so often that it is only probed: no URL is charged for what comes of it."""
    return bool(settings.park_after_failures) and failures >= settings.park_after_failures


def is_given_up(failures: int, settings: PolitenessSettings) -> bool:
    """Say whether a parked group has failed its probes too, so that its URLs are held."""
    return is_parked(failures, settings) and failures >= settings.park_after_failures + settings.park_probes


def slots_of(failures: int, settings: PolitenessSettings) -> int:
    """Return how many requests a group may have under way: one probe while it is parked, none when it is given up."""
    if not is_parked(failures, settings):
        return settings.per_host
    return 0 if is_given_up(failures, settings) else 1


def too_early(lease: Lease, floor: float) -> bool:
    """Say whether a lease was given by a shorter delay than its origin asks for: nothing may go out under it."""
    return floor > lease.delay


def pause_after(
    answer: Response | FetchFailure,
    lease: Lease,
    origin: str,
    floor: float,
    settings: PolitenessSettings,
    now: float,
    random: float,
    blocked: str = "",
) -> Pause:
    """Return when the group of a host may be asked again after this answer, and how fast from then on.

    `floor` is the least delay the origin may have (`group_delay`); `blocked` names the block page, if it is one.
    """
    trouble = bool(blocked) or _is_trouble(answer)
    slowness = _slowness(lease, floor, settings, trouble=trouble)
    until = 0.0
    if trouble:
        until = now + (retry_after(answer, now) or backoff(lease.failures + 1, settings, random))
    return Pause(
        answer.started_at,
        max(floor, slowness, _response_delay(answer, settings)),
        until,
        failed=True if trouble else None if isinstance(answer, FetchFailure) else False,
        trouble="blocked" if blocked else "host_failing",
        slowness=slowness,
        origin=origin,
        floor=floor,
    )


def _is_trouble(answer: Response | FetchFailure) -> bool:
    if isinstance(answer, FetchFailure):
        return answer.problem in _HOST_TROUBLE
    return answer.status in OVERLOADED


def _slowness(lease: Lease, floor: float, settings: PolitenessSettings, *, trouble: bool) -> float:
    """Double the delay of a host in trouble; let that wear off, answer by answer, until it is back at its floor."""
    if not settings.adaptive:
        return 0.0
    if trouble:
        slower = max(2 * lease.slowness, 2 * floor, _FIRST_SLOWNESS_SECONDS)
        return min(slower, settings.max_adaptive_delay_seconds)
    recovered = lease.slowness * _RECOVERY
    return recovered if recovered > max(floor, _FIRST_SLOWNESS_SECONDS / 2) else 0.0


def _response_delay(answer: Response | FetchFailure, settings: PolitenessSettings) -> float:
    """Return the rest that is in proportion to the work the last request made. Who asks for no delay wants none."""
    if not settings.adaptive or not settings.delay:
        return 0.0
    share = settings.response_factor * answer.elapsed / settings.per_host
    return min(share, settings.max_adaptive_delay_seconds)
