"""From settings to running objects: the only place that knows which backends there are."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path

from gossamer import contracts
from gossamer.config.job_file import JobSpec, read_job_file
from gossamer.config.load import load_settings
from gossamer.config.settings import FetchSettings, FrontierSettings, ScopeSettings, Settings
from gossamer.contracts import Clock, Failpoint, no_failpoint
from gossamer.engine.crew import Crew, LocalCrew
from gossamer.engine.discover import Discoverer, SeenCache
from gossamer.engine.frontier import Frontier
from gossamer.engine.loop import Loop, Standing
from gossamer.engine.outputs import Outputs
from gossamer.engine.processes import ProcessCrew
from gossamer.engine.seeds import Seeds
from gossamer.engine.worker import Worker
from gossamer.errors import OutputFailed
from gossamer.extract.html import HtmlExtractor
from gossamer.extract.xml import XmlExtractor
from gossamer.fetch.grouping import ByAddress, ByDomain, ByHost
from gossamer.fetch.http import HttpFetcher
from gossamer.fetch.identity import build_identity, user_agent
from gossamer.fetch.resolver import Resolver
from gossamer.fetch.robots_cache import OriginRobots
from gossamer.frontier.host_clocks import HostClocks
from gossamer.frontier.job_folder import JobFolder
from gossamer.frontier.memory_scheduler import MemoryScheduler
from gossamer.frontier.sqlite_bloom import plan_for
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.model.outcome import State, StoredRobots
from gossamer.model.url import UrlPolicy
from gossamer.observe.logs import JsonLog
from gossamer.observe.report import build_report, encode_report
from gossamer.policy.address import parse_networks
from gossamer.policy.cookies import CookieJar
from gossamer.policy.identity import Identity
from gossamer.policy.scope import MAX_ROOTS, Scope
from gossamer.sinks.consumer import OutputConsumer
from gossamer.sinks.spec import open_sink

#: A robots.txt may take five redirects, and others wait for it under leases of their own.
_FETCHES_PER_LEASE = 6
_LEASE_SLACK_SECONDS = 10.0


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


@dataclass(frozen=True, slots=True)
class Job:
    """A job opened for work: its loop, and the ledger to ask about it."""

    spec: JobSpec
    folder: JobFolder
    ledger: SqliteLedger
    loop: Loop
    seeds: Seeds
    outputs: Outputs
    standing: Standing
    #: Whether it existed before.
    resumed: bool
    run_id: str

    async def is_finished(self) -> bool:
        """Say whether there is nothing to do. Standard input is read again: it may hold something new."""
        return self.spec.input != "-" and await self.ledger.is_drained()

    def write_report(self) -> None:
        """Write report.json, the coverage receipt, so that a crash leaves the old one or the new one."""
        part = self.folder.report.with_suffix(".part")
        with SqliteReader(self.folder.ledger) as reader:
            report = encode_report(build_report(reader, job=self.folder.name))
        try:
            part.write_bytes(report)
            part.replace(self.folder.report)
        except OSError as error:
            raise OutputFailed(
                f"{self.folder.report} could not be written ({error.strerror}); all else is safe, and `gossamer report` shows the same"
            ) from error

    async def fill_outputs(self) -> None:
        """Bring every output up to the end of the record log, without fetching anything."""
        await self.outputs.fill()
        await self.ledger.save_cursors(self.outputs.cursors())


@asynccontextmanager
async def open_job(spec: JobSpec, folder: JobFolder, *, fresh: bool = False) -> AsyncIterator[Job]:
    """Lock, make or resume a job, and put it together. Leaves the ledger closed and the lock free."""
    clock = steady_clock()
    failpoint = failpoint_from_environment()
    plan = plan_for(spec.settings.scope)
    with folder.locked(), closing(HostClocks(folder.host_clocks)) as clocks:
        resumed = folder.prepare(spec, fresh=fresh)
        ledger = SqliteLedger(folder.ledger, clock, failpoint, plan)
        log = JsonLog(folder.log)
        try:
            job = await _assemble(spec, folder, ledger, clock, failpoint, log, clocks, resumed=resumed)
            log.write("run_started", mode=spec.mode, resumed=resumed, seeds=len(spec.seeds), pid=os.getpid())
            await ledger.set_meta(f"run:{job.run_id}", "open")
            try:
                yield job
            finally:
                await job.outputs.release()
            if job.loop.is_whole:
                await ledger.set_meta(f"run:{job.run_id}", "whole")
        finally:
            log.write("run_ended")
            log.close()
            await ledger.close()


async def _assemble(
    spec: JobSpec,
    folder: JobFolder,
    ledger: SqliteLedger,
    clock: Clock,
    failpoint: Failpoint,
    log: JsonLog,
    clocks: HostClocks,
    *,
    resumed: bool,
) -> Job:
    settings = spec.settings
    await _revive(ledger, settings)
    scope = await _scope(spec, folder, ledger)
    totals = await ledger.totals()
    seeding = "" if spec.input == "-" else await ledger.get_meta("seeding")
    standing = Standing(totals.get("records", 0), totals.get("wire_bytes", 0), seeding)
    per_host = settings.limits.max_pages_per_host
    scheduler = MemoryScheduler(
        _with_room_to_fetch(settings),
        settings.politeness,
        clock,
        random.random,
        max_pages_per_host=per_host,
        resumed_at=clock() if resumed else 0.0,
        clocks=clocks,
    )
    frontier = Frontier(
        ledger,
        scheduler,
        settings.politeness,
        clock,
        build_grouping(settings),
        max_pages_per_host=per_host,
        failpoint=failpoint,
    )
    cookies = CookieJar(by_port=True) if settings.fetch.cookies else None
    if cookies is not None:
        cookies.load(await ledger.cookies(), clock())
    crew = _build_crew(spec, folder, scope, ledger, clock, cookies)
    seeds = Seeds(
        spec.seeds, spec.input, url_policy(settings.scope), scope, settings.frontier.seed_batch_urls
    )
    outputs = await _open_outputs(spec, ledger, failpoint)
    run_id = uuid.uuid4().hex[:12]
    loop = Loop(settings, frontier, crew, seeds, outputs, standing, clock, log, run_id)
    return Job(spec, folder, ledger, loop, seeds, outputs, standing, resumed, run_id)


def _with_room_to_fetch(settings: Settings) -> FrontierSettings:
    """Return the scheduler's settings with leases that outlast every fetch.

    With shorter ones a slow page would be fetched for ever: each answer would come too late to change anything.
    """
    longest = _FETCHES_PER_LEASE * settings.fetch.timeout_seconds + settings.engine.commit_seconds
    lease_seconds = max(settings.frontier.lease_seconds, longest + _LEASE_SLACK_SECONDS)
    return replace(settings.frontier, lease_seconds=lease_seconds)


def _build_crew(
    spec: JobSpec,
    folder: JobFolder,
    scope: Scope,
    ledger: SqliteLedger,
    clock: Clock,
    cookies: CookieJar | None,
) -> Crew:
    engine = spec.settings.engine
    # Also where children have their own: what is wrong with it is said before the first of them starts.
    identity = identity_of(spec)
    if engine.workers > 1:
        command = [sys.executable, "-m", "gossamer.child", str(folder.job_file.absolute())]
        return ProcessCrew(
            command, engine.workers, engine.concurrency, ledger.robots, clock, scope.roots, cookies
        )
    worker, discoverer = build_worker(
        spec.settings,
        scope,
        ledger.robots,
        clock,
        follow=spec.mode == "crawl",
        cookies=cookies,
        identity=identity,
    )
    return LocalCrew(worker, discoverer, engine.concurrency)


def identity_of(spec: JobSpec) -> Identity:
    """Return who a job is to each server. Raises `UsageError` for what cannot be sent."""
    return build_identity(spec.settings, spec.seeds, inputs=bool(spec.input))


def spec_of(job_file: Path) -> JobSpec:
    """Return the job that a job.toml describes."""
    plain = read_job_file(job_file)
    mode, seeds, given, outputs = (plain.pop(key) for key in ("mode", "seeds", "input", "outputs"))
    settings, _ = load_settings(plain, {}, None)
    return JobSpec(mode, tuple(seeds), given, tuple(outputs), settings)


async def _scope(spec: JobSpec, folder: JobFolder, ledger: SqliteLedger) -> Scope:
    return build_scope(spec, folder, await ledger.roots(MAX_ROOTS))


def build_scope(spec: JobSpec, folder: JobFolder, roots: Iterable[str] = ()) -> Scope:
    """Return the scope of a job. `scrape` follows nothing, so it needs no roots."""
    if spec.mode == "scrape":
        return Scope(replace(spec.settings.scope, scope="page"))
    return Scope(spec.settings.scope, roots, LazyRoots(folder.ledger).is_root)


class LazyRoots:
    """Asks the ledger for roots; opens it at the first question, which few jobs ever ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: SqliteReader | None = None

    def is_root(self, root: str) -> bool:
        """Say whether the root spans the scope."""
        if self._reader is None:
            self._reader = SqliteReader(self._path)
        return self._reader.is_root(root)


async def _open_outputs(spec: JobSpec, ledger: SqliteLedger, failpoint: Failpoint) -> Outputs:
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


async def _revive(ledger: SqliteLedger, settings: Settings) -> None:
    """Queue again what a resume, a raised limit or a changed mind makes possible."""
    limits = settings.limits
    pages = (await ledger.totals()).get("records", 0)
    networks = set(settings.fetch.allow_network)
    known_networks = set((await ledger.get_meta("allow_network")).split())
    possible: list[tuple[State, str, str, list[object]]] = [
        (State.HELD, "robots_unreachable", "", []),
        (State.HELD, "wait_too_long", "", []),
        (State.HELD, "host_failing", "", []),
        (State.HELD, "blocked", "", []),
    ]
    if limits.max_pages is None or limits.max_pages > pages:
        possible.append((State.HELD, "page_limit", "", []))
    if limits.max_pages_per_host is None:
        possible.append((State.HELD, "host_limit", "", []))
    else:
        below = " AND host IN (SELECT id FROM hosts WHERE pages < ?)"
        possible.append((State.HELD, "host_limit", below, [limits.max_pages_per_host]))
    if settings.fetch.allow_private or networks - known_networks:
        possible.append((State.REFUSED, "private_address", "", []))
    if not settings.politeness.robots:
        possible.append((State.REFUSED, "robots", "", []))
    if not settings.traps.traps:
        possible.append((State.REFUSED, "trap", "", []))
    near = " AND depth <= ?" if limits.depth is not None else ""
    possible.append((State.REFUSED, "depth", near, [limits.depth] if near else []))
    counts = await ledger.counts()
    for state, reason, condition, parameters in possible:
        # Reviving reads the whole table: only where the counts say that there is something.
        if counts[state, reason]:
            await ledger.revive(f"state = ? AND reason = ?{condition}", [int(state), reason, *parameters])
    if networks != known_networks:
        # Afterwards: a crash in between revives once more, which costs no request.
        await ledger.set_meta("allow_network", " ".join(sorted(networks)))
