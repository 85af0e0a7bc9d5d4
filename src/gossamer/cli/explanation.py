"""What became of a URL, in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gossamer.cli.job_lookup import JobSettings
from gossamer.cli.terminal import escape
from gossamer.frontier.answers import Explanation, FetchRow, Forgotten, UrlRow
from gossamer.model.outcome import SWITCHED_OFF, State
from gossamer.model.url import host_of
from gossamer.observe.report import instant_text, reason_text
from gossamer.observe.wording import bytes_text, counted
from gossamer.policy.scope import Scope

_SHOWN_PARENTS = 20
_STATE_SENTENCE = {
    State.QUEUED: "It is queued",
    State.HELD: "It is held",
    State.FETCHED: "It was fetched",
    State.REDIRECTED: "It was redirected",
    State.UNCHANGED: "It was fetched and had not changed",
    State.DUPLICATE: "It is a duplicate",
    State.REFUSED: "It was refused",
    State.FAILED: "It failed",
}
_SOURCE_SENTENCE = {
    "seed": "It is a seed.",
    "link": "It was found as a link on {parent}",
    "redirect": "It is what {parent} redirects to",
    "sitemap": "It was found in a sitemap",
}


def explain_lines(explained: Explanation, job: str, now: float) -> Iterator[str]:
    """Yield what is known about a URL as lines that are safe to show."""
    row = explained.row
    yield escape(row.url)
    yield _state(row)
    if explained.redirects_to:
        yield f"It leads to {escape(explained.redirects_to)}."
    elif row.detail:
        yield f"Detail: {escape(row.detail)}"
    yield from _origin(explained)
    yield from _attempts(explained)
    yield _next(explained, job, now)


def forgotten_lines(url: str, left: Forgotten) -> Iterator[str]:
    """Yield what is left of a URL whose row is gone, as lines that are safe to show."""
    yield escape(url)
    if left.fetches:
        yield "It is settled. The job keeps no row of a finished URL (--dedup bloom), only its requests:"
        yield from map(_fetch, left.fetches)
        return
    yield (
        "It was probably seen and is finished; no request for it is on record. The job keeps no row of a finished URL"
        f" (--dedup bloom), and says this of {left.error_rate:.4%} of URLs it never saw, at most."
    )


def why_unknown(canonical: str, settings: JobSettings, roots: list[str]) -> str:
    """Return the likeliest reason why a job has never heard of a URL."""
    scope, host = Scope(settings.scope, roots), host_of(canonical)
    if owner := scope.owner(host):
        return f"its host belongs to shard {owner}, and this job is shard {settings.scope.shard}"
    if not settings.follows_links:
        return "the job fetches just its inputs, and this is none of them"
    match scope.refusal(canonical, host):
        case "scope":
            return f"it is outside the job's scope ({settings.scope.scope}), and such links are not recorded"
        case "excluded":
            return "--include or --exclude rules it out, and such links are not recorded"
        case _:
            return "it is in scope, but no page fetched so far links to it"


def _state(row: UrlRow) -> str:
    meaning = reason_text(row.reason)
    known = f" ({escape(row.reason)})" if row.reason else ""
    status = f" Its last HTTP status was {row.status}." if row.status else ""
    when = f" on {instant_text(row.settled_at)}" if row.settled_at else ""
    return f"{_STATE_SENTENCE[row.state]}{known}{when}{': ' + meaning if meaning else ''}.{status}"


def _origin(explained: Explanation) -> Iterator[str]:
    row, chain = explained.row, explained.chain
    parent = escape(chain[0].url if chain else row.parent_url or "a page that is no longer known")
    sentence = _SOURCE_SENTENCE.get(row.source, "Where it was found is not known").format_map(
        {"parent": parent}
    )
    if row.source == "seed":
        yield sentence
        return
    yield f"{sentence}, {counted(row.depth, 'step')} from a seed{':' if chain else '.'}"
    if len(chain) > _SHOWN_PARENTS:
        yield f"  … {counted(len(chain) - _SHOWN_PARENTS, 'page')} between a seed and these:"
    for step in (*reversed(chain[:_SHOWN_PARENTS]), row) if chain else ():
        yield f"  {escape(step.source):<8}  {escape(step.url)}"


def _attempts(explained: Explanation) -> Iterator[str]:
    row, fetches = explained.row, explained.fetches
    crashes = f" A worker died {counted(row.crashes, 'time')} while it held this URL." if row.crashes else ""
    if not fetches:
        yield f"No request went out for it.{crashes}"
        return
    yield f"{counted(len(fetches), 'request')} went out for it:{crashes}"
    yield from map(_fetch, fetches)


def _fetch(fetch: FetchRow) -> str:
    result = f"status {fetch.status}" if fetch.status else "no answer"
    problem = f", {fetch.problem}: {reason_text(fetch.problem)}" if fetch.problem else ""
    target = f", at {fetch.url}" if fetch.url else ""
    size = bytes_text(fetch.wire_bytes)
    return "  " + escape(
        f"{instant_text(fetch.started_at)}  {result} in {fetch.elapsed:.3f} s, {size}{problem}{target}"
    )


def _next(explained: Explanation, job: str, now: float) -> str:
    row, group = explained.row, explained.group
    again = f"`gossamer retry {shlex.quote(job)} --url {shlex.quote(row.url)}`"
    match row.state:
        case State.QUEUED:
            due = max(row.not_before, group.until, group.last_start + group.delay)
            if due > now:
                return f"It will be tried no earlier than {instant_text(due)}."
            return "It is due, and waits for its turn among the URLs of its host."
        case State.HELD if row.reason == SWITCHED_OFF:
            on = f"`gossamer sources {shlex.quote(job)} --on {shlex.quote(row.host)}`"
            return escape(f"It is not tried again by itself; {on} queues it once more.")
        case State.HELD | State.FAILED:
            return escape(f"It is not tried again by itself; {again} queues it once more.")
        case State.REFUSED if row.reason in {"robots", "private_address"}:
            return escape(f"It is not tried again by itself; {again} asks once more.")
        case _:
            return "It is settled: it will not be fetched again by this job."
