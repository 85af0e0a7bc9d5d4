"""A job on one machine: from its settings and its folder to running objects."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass

from gossamer.config.job_file import JobSpec
from gossamer.contracts import Clock, Failpoint
from gossamer.engine.crew import Crew, LocalCrew
from gossamer.engine.frontier import Frontier
from gossamer.engine.loop import Loop, Standing
from gossamer.engine.outputs import Outputs
from gossamer.engine.processes import ProcessCrew
from gossamer.engine.seeds import Seeds
from gossamer.errors import OutputFailed
from gossamer.frontier.host_clocks import HostClocks
from gossamer.frontier.job_folder import JobFolder
from gossamer.frontier.memory_scheduler import MemoryScheduler
from gossamer.frontier.sqlite_bloom import plan_for
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.observe.logs import JsonLog
from gossamer.observe.report import build_report, encode_report
from gossamer.parts import (
    build_grouping,
    build_worker,
    failpoint_from_environment,
    hiring,
    identity_of,
    open_outputs,
    revive,
    steady_clock,
    url_policy,
    with_room_to_fetch,
)
from gossamer.policy.cookies import CookieJar
from gossamer.policy.scope import MAX_ROOTS, Scope
from gossamer.scopes import folder_scope


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
    await revive(ledger, settings)
    scope = folder_scope(spec, folder, await ledger.roots(MAX_ROOTS))
    totals = await ledger.totals()
    seeding = "" if spec.input == "-" else await ledger.get_meta("seeding")
    standing = Standing(totals.get("records", 0), totals.get("wire_bytes", 0), seeding)
    per_host = settings.limits.max_pages_per_host
    scheduler = MemoryScheduler(
        with_room_to_fetch(settings),
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
        max_pages=settings.limits.max_pages,
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
    outputs = await open_outputs(spec, ledger, failpoint)
    run_id = uuid.uuid4().hex[:12]
    loop = Loop(settings, frontier, crew, seeds, outputs, standing, clock, log, run_id)
    return Job(spec, folder, ledger, loop, seeds, outputs, standing, resumed, run_id)


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
        command = ["gossamer.child", str(folder.job_file.absolute())]
        children = hiring(spec.settings, command, workers=engine.workers)
        return ProcessCrew(children, ledger.robots, clock, scope.roots, cookies)
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
