"""The parts of a running job that are the same wherever it runs: on one machine or on many."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from gossamer import contracts
from gossamer.config.job_file import JobSpec
from gossamer.config.settings import FetchSettings, FrontierSettings, ScopeSettings, Settings
from gossamer.contracts import Clock, Failpoint, no_failpoint
from gossamer.engine.discover import Discoverer, SeenCache
from gossamer.engine.outputs import Outputs
from gossamer.engine.processes import Hiring
from gossamer.engine.worker import Worker
from gossamer.extract.html import HtmlExtractor
from gossamer.extract.xml import XmlExtractor
from gossamer.fetch.grouping import ByAddress, ByDomain, ByHost
from gossamer.fetch.http import HttpFetcher
from gossamer.fetch.identity import build_identity, user_agent
from gossamer.fetch.resolver import Resolver
from gossamer.fetch.robots_cache import OriginRobots
from gossamer.model.outcome import Revival, State, StoredRobots
from gossamer.model.url import UrlPolicy
from gossamer.policy.address import parse_networks
from gossamer.policy.identity import Identity
from gossamer.policy.scope import Scope
from gossamer.sinks.consumer import OutputConsumer
from gossamer.sinks.spec import open_sink


def steady_clock() -> Clock:
    """Return a clock that shows the time of day now and then only runs forward, whatever is done to the system's."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


def failpoint_from_environment() -> Failpoint:
    """Return a failpoint that kills this process at `GOSSAMER_FAILPOINT=name[@count]`; used by crash tests."""
    wanted, _, count = os.environ.get("GOSSAMER_FAILPOINT", "").partition("@")
    if not wanted:
        return no_failpoint
    left = int(count or 1)

    def failpoint(name: str) -> None:
        nonlocal left
        if name == wanted:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return failpoint


def url_policy(settings: ScopeSettings) -> UrlPolicy:
    """Return the job's choices about URLs."""
    return UrlPolicy(settings.sort_query, settings.strip_tracking, settings.max_url_bytes)


def build_fetcher(settings: FetchSettings, clock: Clock) -> HttpFetcher:
    """Return the HTTP client. Raises `UsageError` for a network or a proxy that is none."""
    return HttpFetcher(settings, build_resolver(settings), clock)


def build_resolver(settings: FetchSettings) -> Resolver:
    """Return what turns host names into addresses that may be connected to."""
    return Resolver(settings.allow_private, allow_networks=parse_networks(settings.allow_network))


def build_grouping(settings: Settings) -> contracts.Grouping:
    """Return what names the politeness group of a host."""
    match settings.politeness.group_by:
        case "host":
            return ByHost()
        case "domain":
            return ByDomain()
        case "ip":
            return ByAddress(build_resolver(settings.fetch))


def build_worker(
    settings: Settings,
    scope: Scope,
    load_robots: Callable[[str], Awaitable[StoredRobots]],
    clock: Clock,
    *,
    follow: bool,
    cookies: contracts.CookieJar | None,
    identity: Identity,
    fetcher: contracts.Fetcher | None = None,
) -> tuple[Worker, Discoverer]:
    """Return a worker with everything it needs, for this process."""
    # Freeing one large block tells glibc to keep memory between pages instead of returning it after each:
    # 15 of 36 µs a request were page faults.
    bytes(16 << 20)
    agent = user_agent(settings.fetch)
    policy = url_policy(settings.scope)
    discoverer = Discoverer(settings, scope, SeenCache(settings.frontier.seen_cache_urls))
    worker = Worker(
        settings,
        fetcher or build_fetcher(settings.fetch, clock),
        OriginRobots(settings.politeness, agent, clock, load_robots, random.random),
        HtmlExtractor(
            policy,
            user_agent=agent,
            max_links=settings.scope.max_links_per_page,
            max_remembered_links=20_000,
        ),
        XmlExtractor(
            policy,
            user_agent=agent,
            max_links=settings.scope.max_links_per_page,
            max_depth=settings.fetch.max_xml_depth,
            max_elements=settings.fetch.max_xml_elements,
        ),
        discoverer,
        cookies,
        identity,
        policy,
        clock,
        random.random,
        follow=follow,
    )
    return worker, discoverer


def identity_of(spec: JobSpec) -> Identity:
    """Return who a job is to each server. Raises `UsageError` for what cannot be sent."""
    return build_identity(spec.settings, spec.seeds, inputs=bool(spec.input))


def with_room_to_fetch(settings: Settings) -> FrontierSettings:
    """Return the scheduler's settings with leases that outlast every fetch.

    With shorter ones a slow page would be fetched for ever: each answer would come too late to change anything.
    """
    # One fetch, or the wait for somebody else's fetch of the same robots.txt: never both.
    longest = settings.fetch.timeout_seconds + settings.engine.commit_seconds
    # Besides, a lease may wait for the ledger, and for its turn in the loop.
    lease_seconds = max(settings.frontier.lease_seconds, longest + settings.frontier.lease_slack_seconds)
    return replace(settings.frontier, lease_seconds=lease_seconds)


def hiring(settings: Settings, command: Sequence[str], *, workers: int, brief: bytes = b"") -> Hiring:
    """Return how the worker processes of a job are started; with no `workers`, for suspects alone."""
    return Hiring(
        [sys.executable, "-m", *command],
        workers,
        settings.engine.concurrency,
        settings.fetch.timeout_seconds,
        settings.frontier.lease_slack_seconds,
        brief,
    )


async def open_outputs(spec: JobSpec, ledger: contracts.Ledger, failpoint: Failpoint) -> Outputs:
    """Return the job's outputs, each at its cursor and agreeing with it."""
    known = {cursor.output: cursor for cursor in await ledger.cursors()}
    consumers: list[OutputConsumer] = []
    try:
        for path in spec.outputs:
            record = spec.settings.record
            sink = open_sink(path, fields=record.fields, csv_escape=record.csv_escape, failpoint=failpoint)
            consumers.append(OutputConsumer(sink, ledger.log, known.get(sink.output)))
            await consumers[-1].open(ledger.save_cursors)
    except BaseException:
        await Outputs(consumers).release()
        raise
    return Outputs(consumers)


async def revive(ledger: contracts.JobLedger, settings: Settings) -> None:
    """Queue again what a resume, a raised limit or a changed mind makes possible."""
    limits = settings.limits
    pages = (await ledger.totals()).get("records", 0)
    networks = set(settings.fetch.allow_network)
    known_networks = set((await ledger.get_meta("allow_network")).split())
    held = ["robots_unreachable", "wait_too_long", "host_failing", "blocked"]
    refused = []
    if limits.max_pages is None or limits.max_pages > pages:
        held.append("page_limit")
    if settings.fetch.allow_private or networks - known_networks:
        refused.append("private_address")
    if not settings.politeness.robots:
        refused.append("robots")
    if not settings.traps.traps:
        refused.append("trap")
    possible = [
        *(Revival((State.HELD,), reason) for reason in held),
        Revival((State.HELD,), "host_limit", pages_below=limits.max_pages_per_host),
        *(Revival((State.REFUSED,), reason) for reason in refused),
        Revival((State.REFUSED,), "depth", max_depth=limits.depth),
    ]
    counts = await ledger.counts()
    for which in possible:
        # Reviving reads the whole table: only where the counts say that there is something.
        if counts[which.states[0], which.reason]:
            await ledger.revive(which)
    if networks != known_networks:
        # Afterwards: a crash in between revives once more, which costs no request.
        await ledger.set_meta("allow_network", " ".join(sorted(networks)))
