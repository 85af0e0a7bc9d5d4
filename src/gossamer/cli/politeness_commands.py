"""`audit`, which proves from the ledger that a job was polite, and `robots`, which says what a robots.txt allows."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop
from msgspec.structs import replace as replace_struct

from gossamer.asking import with_scheme
from gossamer.cli.backends import config_option, jobs_dir_option, place_from, place_options, postgres_option
from gossamer.cli.job_lookup import Job, Place
from gossamer.cli.options import GroupedCommand, given, options, setting_options
from gossamer.cli.terminal import Table, escape, escape_json, write_lines
from gossamer.config.load import load_settings
from gossamer.config.settings import Settings
from gossamer.errors import NothingFetched, ThresholdCrossed
from gossamer.fetch.identity import build_identity, user_agent, with_credentials
from gossamer.model.outcome import (
    ROBOTS_ASSUMED,
    ROBOTS_UNREACHABLE,
    Hop,
    RobotsFile,
    Settled,
    StoredRobots,
)
from gossamer.model.page import link_to
from gossamer.model.request import Known, Lease, Request, Source
from gossamer.model.url import origin_of
from gossamer.observe.audit import Audit, Auditor, AuditTerms, Unrecorded, Violation, encode_audit
from gossamer.observe.report import instant_text
from gossamer.observe.wording import counted, duration_text
from gossamer.parts import build_worker, steady_clock, url_policy
from gossamer.policy import politeness
from gossamer.policy.robots_file import read_robots, robots_ttl
from gossamer.policy.robots_pace import Ignored, RequestRate
from gossamer.policy.scope import Scope

_NO_LEASE_ENDS = math.inf

_as_json = click.option("--json", "as_json", is_flag=True, help="as JSON")


def _write_json(encoded: bytes) -> None:
    write_lines(escape_json(line) for line in encoded.decode().rstrip("\n").split("\n"))


# -- audit ---------------------------------------------------------------------------------------------


@click.command(cls=GroupedCommand)
@click.argument("job")
@_as_json
@place_options
def audit(job: str, as_json: bool, place: Place) -> int:
    """Replay a job's requests against the robots.txt and the delays in force. Exits with 3 on a violation."""
    found = place.find(job)
    terms = _terms(found.spec().settings)
    with found.audit_reader() as reader, reader.snapshot():
        result = Auditor(reader, terms).run(found.word)
    if as_json:
        _write_json(encode_audit(result))
    else:
        _show_audit(result, among_others=found.is_shared)
    return 0 if result.polite else ThresholdCrossed.exit_code


def _terms(settings: Settings) -> AuditTerms:
    engine = settings.engine
    slots = -(-engine.concurrency // engine.workers) * engine.workers
    return AuditTerms(
        user_agent=user_agent(settings.fetch),
        politeness=settings.politeness,
        grace_seconds=settings.fetch.timeout_seconds,
        visits_at_once=slots + engine.max_uncommitted_pages,
    )


def _show_audit(result: Audit, *, among_others: bool) -> None:
    write_lines(_audit_lines(result, among_others=among_others))
    if result.tightest:
        gaps = [
            (t.group, f"{t.starts:,}", f"{t.gap_seconds:.3f} s", f"{t.delay_seconds:g} s", f"{t.ratio:.2f}")
            for t in result.tightest
        ]
        columns = ("smallest gaps", "requests", "gap", "delay", "ratio")
        write_lines([""])
        Table(columns, gaps, frozenset(columns[1:])).show()
    if result.violations:
        write_lines(["", *map(_violation_line, result.violations)])
        hidden = result.violation_count - len(result.violations)
        write_lines([f"… and {hidden:,} more"] if hidden else [])


def _violation_line(violation: Violation) -> str:
    return f"{violation.time}  {violation.kind}  {escape(violation.url)}: {escape(violation.detail)}"


def _audit_lines(result: Audit, *, among_others: bool) -> Iterator[str]:
    verdict = "polite" if result.polite else f"NOT polite, {counted(result.violation_count, 'violation')}"
    yield f"job         {escape(result.job)}: {verdict}"
    yield (
        f"checked     {counted(result.requests, 'request')} to {counted(result.groups, 'host')}:"
        f" {counted(result.pages, 'page')}, {result.robots_files:,} for robots.txt"
    )
    if among_others:
        others = counted(result.other_requests, "request")
        yield f"other jobs  {others} to the same hosts, which the gaps were held to as well"
    if result.robots_checked:
        age = duration_text(result.oldest_robots_seconds)
        yield f"robots      every page, as {escape(result.user_agent)}; the oldest robots.txt in use was {age} old"
    else:
        yield "robots      NOT checked: the job does not ask robots.txt (--no-robots)"
    if result.assumed_pages:
        pages = counted(result.assumed_pages, "page")
        yield f"assumed     {pages}, whose robots.txt was given up as unreachable (--robots-unreachable-days)"
    yield f"unrecorded  {_unrecorded_text(result.unrecorded)}"


def _unrecorded_text(missing: Unrecorded) -> str:
    causes = []
    if missing.runs:
        causes.append(f"{counted(missing.runs, 'run')} may have ended with requests under way")
    if missing.crashes:
        causes.append(f"{counted(missing.crashes, 'visit')} ended with a worker process")
    if not causes:
        return "none"
    return f"at most {counted(missing.visits_at_most, 'visit')}: {' and '.join(causes)}"


# -- robots --------------------------------------------------------------------------------------------


class RobotsAnswer(msgspec.Struct, frozen=True):
    """What a robots.txt says about a URL, and what follows from it."""

    url: str
    user_agent: str
    allowed: bool
    #: False with --no-robots: then the answer is only for information.
    obeyed: bool
    #: The deciding line as `Disallow: /path`, its number, and the user-agent lines of its group; empty where none applies.
    rule: str
    line: int
    group: tuple[str, ...]
    #: What the file asks for: seconds; requests and seconds. And the seconds between two requests that we would keep.
    crawl_delay: float | None
    request_rate: RequestRate | None
    delay: float
    #: Crawl-delay and Request-rate lines for this agent that nobody can mean.
    ignored: tuple[Ignored, ...]
    sitemaps: tuple[str, ...]
    robots_url: str
    #: Where it redirected to; empty where it did not.
    redirected_to: str
    #: -1 where it was unreachable for so long that its last copy is used, or its absence assumed.
    status: int
    #: Since when it has not answered, as far as the job knows; empty where it has.
    unreachable_since: str
    fetched_at: str
    age_seconds: float
    ttl_seconds: float


class _Reading(msgspec.Struct, frozen=True):
    """A robots.txt, and where it was found in the end."""

    file: RobotsFile
    final_url: str = ""
    unreachable_since: float = 0.0


@setting_options("fetch", "politeness", "postgres")
@click.command(cls=GroupedCommand)
@click.argument("url")
@_as_json
@click.option("--job", metavar="JOB", help="answer from the ledger of this job, without a request")
@options(jobs_dir_option, postgres_option, config_option)
def robots(url: str, as_json: bool, job: str | None, **values: Any) -> None:
    """Say whether a URL may be fetched, and which line of robots.txt decides that. Fetches only robots.txt."""
    with_scheme(url)
    if job is None:
        file = Path(values["config"]) if values["config"] else None
        settings = with_credentials(load_settings(given(values), os.environ, file)[0], [url])
        canonical = link_to(url, None, url_policy(settings.scope)).url
        reading = uvloop.run(_fetch_robots(canonical, settings))
    else:
        found = place_from(values).find(job)
        settings, _ = load_settings({**found.spec().settings_words(), **given(values)}, {}, None)
        canonical = link_to(url, None, url_policy(settings.scope)).url
        reading = _recall_robots(canonical, found)
    answer = _answer(canonical, reading, settings, time.time())
    if as_json:
        _write_json(msgspec.json.format(msgspec.json.encode(answer), indent=2))
    else:
        write_lines(_answer_lines(answer))


async def _fetch_robots(url: str, settings: Settings) -> _Reading:
    """Fetch robots.txt as a crawl does: a worker spends its first visit on it. Raises `NothingFetched`."""
    # Asked for here whatever the settings say about obeying it, and one failure is answer enough.
    patient = replace(settings, politeness=replace(settings.politeness, robots=True, robots_probes=1))
    clock = steady_clock()
    worker, _ = build_worker(
        patient,
        Scope(settings.scope),
        _nothing_stored,
        clock,
        follow=False,
        cookies=None,
        identity=build_identity(settings, [url]),
    )
    link = link_to(url, None, url_policy(settings.scope))
    known = Known(Request(link.url, link.fingerprint, link.host, source=Source.SEED), 1)
    lease = Lease(known, 1, _NO_LEASE_ENDS, settings.politeness.delay)
    try:
        visit = (await worker.visit(lease, lambda _at: None)).visit
        while isinstance(visit.outcome, Hop) and not visit.robots:
            lease = replace_struct(lease, known=replace_struct(known, request=visit.outcome.request))
            visit = (await worker.visit(lease, lambda _at: None)).visit
        if visit.robots and visit.robots[0].status != ROBOTS_UNREACHABLE:
            return _Reading(visit.robots[0], visit.fetches[-1].url if visit.fetches else "")
        if not isinstance(visit.outcome, Settled):
            # The answer to a second question is why there is no answer; no request goes out for it.
            visit = (await worker.visit(lease, lambda _at: None)).visit
    finally:
        await worker.close()
    detail = visit.outcome.detail if isinstance(visit.outcome, Settled) else "robots.txt: no answer"
    raise NothingFetched(
        f"{origin_of(url)}/robots.txt is unreachable, so nothing of this origin may be fetched (RFC 9309): {detail}"
    )


async def _nothing_stored(_origin: str) -> StoredRobots:
    return StoredRobots()


def _recall_robots(url: str, job: Job) -> _Reading:
    with job.audit_reader() as reader:
        file = reader.robots_file(origin_of(url), math.inf)
        since = reader.robots_unreachable_since(origin_of(url))
    if file is None:
        why = f"it is unreachable since {instant_text(since)}" if since else "it was not asked for yet"
        raise NothingFetched(
            f"job {job.word} has no robots.txt of {origin_of(url)}: {why},"
            " and until it was read nothing of this origin may be fetched"
        )
    return _Reading(file, unreachable_since=since)


def _answer(url: str, reading: _Reading, settings: Settings, now: float) -> RobotsAnswer:
    file, agent = reading.file, user_agent(settings.fetch)
    rules = read_robots(file.body, settings.politeness)
    decision, pace = rules.decide(agent, url), rules.pace(agent)
    robots_url = f"{file.origin}/robots.txt"
    return RobotsAnswer(
        url=url,
        user_agent=agent,
        allowed=decision.allowed,
        obeyed=settings.politeness.robots,
        rule=f"{'Allow' if decision.allowed else 'Disallow'}: {decision.rule}" if decision.line else "",
        line=decision.line,
        group=decision.user_agents,
        crawl_delay=pace.crawl_delay,
        request_rate=pace.request_rate,
        delay=politeness.group_delay(pace.delay, settings.politeness),
        ignored=pace.ignored,
        sitemaps=rules.sitemaps,
        robots_url=robots_url,
        redirected_to=reading.final_url if reading.final_url != robots_url else "",
        status=file.status,
        unreachable_since=instant_text(reading.unreachable_since) if reading.unreachable_since else "",
        fetched_at=instant_text(file.fetched_at),
        age_seconds=round(max(now - file.fetched_at, 0.0), 3),
        ttl_seconds=robots_ttl(settings.politeness),
    )


def _answer_lines(answer: RobotsAnswer) -> Iterator[str]:
    yield f"{'allowed' if answer.allowed else 'forbidden':<12}{escape(answer.url)}"
    yield f"user agent  {escape(answer.user_agent)}"
    yield f"rule        {_rule_text(answer)}"
    if not answer.obeyed:
        yield "obeyed      no: --no-robots"
    yield f"delay       {answer.delay:g} s between requests{_asked_text(answer)}"
    for each in answer.ignored:
        yield f"ignored     {each.directive}: {escape(each.value)} (line {each.line}): {each.why}"
    for sitemap in answer.sitemaps:
        yield f"sitemap     {escape(sitemap)}"
    yield f"robots.txt  {escape(answer.robots_url)}: {_status_text(answer)}"
    fresh = "used for" if answer.age_seconds < answer.ttl_seconds else "out of date after"
    yield (
        f"read        {answer.fetched_at}, {duration_text(answer.age_seconds)} ago;"
        f" {fresh} {duration_text(answer.ttl_seconds)}"
    )


def _asked_text(answer: RobotsAnswer) -> str:
    asked = [] if answer.crawl_delay is None else [f"Crawl-delay: {answer.crawl_delay:.15g}"]
    if answer.request_rate is not None:
        rate = answer.request_rate
        asked.append(f"Request-rate: {counted(rate.requests, 'request')} in {rate.seconds:,} s")
    return f" ({', '.join(asked)})" if asked else ""


def _status_text(answer: RobotsAnswer) -> str:
    since = f"unreachable since {answer.unreachable_since}"
    if answer.status == ROBOTS_ASSUMED:
        return f"{since} and no longer waited for (--robots-unreachable-days)"
    moved = f", redirected to {escape(answer.redirected_to)}" if answer.redirected_to else ""
    lost = f"; {since}, so nothing may be fetched" if answer.unreachable_since else ""
    return f"status {answer.status}{moved}{lost}"


def _rule_text(answer: RobotsAnswer) -> str:
    if answer.line:
        group = ", ".join(answer.group)
        return escape(f"{answer.rule} (line {answer.line}, in the group for {group})")
    if answer.status == ROBOTS_ASSUMED:
        return "none applies in what is assumed of robots.txt, so it is allowed"
    if not 200 <= answer.status < 300:
        return "none: there is no robots.txt, so all is allowed"
    return "none applies, so it is allowed"


COMMANDS: list[click.Command] = [audit, robots]
