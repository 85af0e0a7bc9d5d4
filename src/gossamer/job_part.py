"""What one process does of a job that many share: the loop of one machine, over the shared ledger and the shared schedule."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import msgspec

from gossamer.cluster import LOOK_SECONDS, Cluster, MeasuredLedger, job_spec
from gossamer.config.job_file import JobSpec
from gossamer.config.redis import SHARED_FRONTIER
from gossamer.config.settings import FrontierSettings, Settings
from gossamer.engine.crew import LocalCrew
from gossamer.engine.discover import Discoverer
from gossamer.engine.doubts import Doubts
from gossamer.engine.frontier import Frontier
from gossamer.engine.guarded import GuardedCrew
from gossamer.engine.loop import Ending, Loop, Standing
from gossamer.engine.outputs import Outputs
from gossamer.engine.patience import PatientScheduler
from gossamer.engine.processes import ProcessCrew
from gossamer.engine.seeds import Seeds
from gossamer.engine.short_wait import ShortWait
from gossamer.errors import BackendLost
from gossamer.frontier.controls import UNKNOWN, restore_controls
from gossamer.frontier.postgres_jobs import JobRow, open_job
from gossamer.frontier.postgres_roots import PostgresRoots
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.model.outcome import State
from gossamer.model.request import Lease
from gossamer.parts import (
    build_grouping,
    build_worker,
    hiring,
    identity_of,
    open_outputs,
    revive,
    url_policy,
    with_room_to_fetch,
)
from gossamer.policy.cookies import CookieJar
from gossamer.policy.scope import MAX_ROOTS, Scope
from gossamer.scopes import SharedBrief, shared_scope

#: A worker is heard of by the schedule at least this often.
_BEATS_PER_LEASE, _MAX_BEAT_SECONDS = 3, 10.0
#: So often the schedule is told all that operators have decided: it may have been emptied.
_TELL_ALL_SECONDS = 10.0
#: With more roots than this they are asked for less often.
_FEW_ROOTS = 10_000
_FEW_ROOTS_SECONDS, _MANY_ROOTS_SECONDS = 2.0, 60.0


class JobPart:
    """What this process does of one job. `open` puts it together; `run` works until the job is done, or stopped."""

    def __init__(self, cluster: Cluster, job: JobRow, spec: JobSpec, ledger: MeasuredLedger) -> None:
        self._cluster = cluster
        self.job = job
        self.spec = spec
        self.ledger = ledger
        self.outputs = Outputs([])
        self._crew: GuardedCrew
        self._guard: ProcessCrew | None = None
        self._scope: Scope
        self._known_roots: PostgresRoots
        self._discoverer: Discoverer
        self._scheduler: RedisScheduler
        self.loop: Loop
        self.standing = Standing()
        self._roots: set[str] = set()
        self._controls = UNKNOWN
        self._tell_all_at = 0.0
        self._cookies: CookieJar | None = None
        #: Up to which number of the ledger the jar has its cookies.
        self._cookies_up_to = 0
        self._beat_seconds = _MAX_BEAT_SECONDS
        self._run_id = uuid.uuid4().hex[:12]

    @classmethod
    @asynccontextmanager
    async def open(
        cls, cluster: Cluster, job: JobRow, *, outputs: tuple[str, ...] = ()
    ) -> AsyncIterator[JobPart]:
        """Put a part together; `outputs` are files that this process writes, with the records of all."""
        part = cls(cluster, job, job_spec(job), cluster.ledger(job.id))
        async with AsyncExitStack() as stack:
            await part._assemble(stack, outputs=outputs)
            yield part

    async def _assemble(self, stack: AsyncExitStack, *, outputs: tuple[str, ...]) -> None:
        cluster, settings, ledger = self._cluster, self.spec.settings, self.ledger
        roots = await ledger.roots(MAX_ROOTS)
        self._roots = set(roots)
        per_host = settings.limits.max_pages_per_host
        windows, redis = with_room_to_fetch(_shared(settings)), cluster.servers.redis
        self._beat_seconds = min(windows.lease_seconds / _BEATS_PER_LEASE, _MAX_BEAT_SECONDS)
        self._scheduler = RedisScheduler(
            self.job.name,
            # Whoever dies while it fills a window holds up that host for no longer than its leases do.
            replace(redis, refill_seconds=min(redis.refill_seconds, windows.lease_seconds)),
            windows,
            settings.politeness,
            cluster.clock,
            random.random,
            max_pages_per_host=per_host,
        )
        stack.push_async_callback(self._scheduler.close)
        await self._scheduler.open()
        cluster.vitals.answered("redis")
        doubts = await self._hire(roots)
        frontier = Frontier(
            ledger,
            PatientScheduler(self._scheduler, cluster.redis_lost, cluster.redis_back),
            settings.politeness,
            cluster.clock,
            build_grouping(settings),
            max_pages=settings.limits.max_pages,
            max_pages_per_host=per_host,
            failpoint=cluster.failpoint,
            decide=doubts.settle,
        )
        if outputs:
            spec = replace(self.spec, outputs=outputs)
            self.outputs = await open_outputs(spec, ledger, cluster.failpoint)
            stack.push_async_callback(self.outputs.release)
        totals = await ledger.totals()
        self.standing = Standing(totals.get("records", 0), totals.get("wire_bytes", 0), "closed")
        self.loop = Loop(
            settings,
            frontier,
            self._crew,
            Seeds((), "", url_policy(settings.scope), Scope(settings.scope), 1),
            self.outputs,
            self.standing,
            cluster.clock,
            cluster.log,
            f"{cluster.worker}-{self._run_id}",
            poll_seconds=LOOK_SECONDS,
            recount=ledger.count_records,
        )

    async def _hire(self, roots: list[str]) -> Doubts:
        """Put together who visits pages; returns what decides about links that they are unsure of."""
        settings, cluster = self.spec.settings, self._cluster
        cookies = self._cookies = CookieJar(by_port=True) if settings.fetch.cookies else None
        await self._load_cookies()
        self._known_roots = PostgresRoots(cluster.pool, self.job.id)
        self._scope = shared_scope(self.spec, roots, self._known_roots.is_root)
        # So that the fetch still fits into the lease, whichever of the two a URL has waited for.
        seconds = settings.frontier.lease_slack_seconds / 2
        robots = ShortWait(seconds, self.ledger.robots)
        new_roots = ShortWait(seconds, lambda _all: self._join_roots())

        async def prepare(lease: Lease) -> None:
            """Hear of the root that a URL stands in, or all links of its page would seem to lead out of the scope."""
            request = lease.request
            if self._scope.refusal(request.url, request.host) != "scope":
                return
            if self._scope.is_partial:
                # It is asked for with the commit of what is found there.
                self._known_roots.forget(self._scope.roots_over(request.url, request.host))
                discoverer.look_again()
            else:
                await new_roots("all")

        worker, discoverer = build_worker(
            settings,
            self._scope,
            robots,
            cluster.clock,
            follow=self.spec.mode == "crawl",
            cookies=cookies,
            identity=identity_of(self.spec),
        )
        crew = LocalCrew(worker, discoverer, settings.engine.concurrency, prepare)
        brief = SharedBrief(self.job.settings)
        cell = hiring(settings, ["gossamer.child", "-"], workers=0, brief=msgspec.json.encode(brief))
        self._guard = ProcessCrew(cell, robots, cluster.clock, roots, cookies, prepare)
        self._crew = GuardedCrew(crew, self._guard)
        self._discoverer = discoverer
        return Doubts(self._scope, discoverer, self._known_roots.look_up)

    async def _load_cookies(self) -> None:
        """Take in the cookies that others have received, or seen removed, since we last looked."""
        if self._cookies is not None and (rows := await self.ledger.cookies_after(self._cookies_up_to)):
            self._cookies_up_to = rows[-1][0]
            changed = [data for _, data in rows]
            self._cookies.load(changed, self._cluster.clock())
            if self._guard is not None:
                self._guard.stock(changed)

    async def run(self) -> Ending:
        """Work until the ledger says that the job is done, or until it is stopped."""
        return await self.watched(self.loop.run)

    async def watched(self, work: Callable[[], Awaitable[Ending]]) -> Ending:
        """Do `work`, which turns the loop, and meanwhile look what others have changed."""
        await self.ledger.set_meta(f"run:{self._run_id}", "open")
        try:
            async with asyncio.TaskGroup() as group:
                look = group.create_task(self._look(), name=f"look after {self.job.name}")
                beat = group.create_task(self._beat(), name=f"heartbeat for {self.job.name}")
                ending = await work()
                look.cancel()
                beat.cancel()
        finally:
            self._cluster.metrics.forget_job(self.job.name)
        if self.loop.is_whole:
            await self.ledger.set_meta(f"run:{self._run_id}", "whole")
        if ending is Ending.PAGE_LIMIT:
            await self._leave_full()
        elif ending is Ending.DONE:
            await self._clear_schedule()
        return ending

    async def _leave_full(self) -> None:
        """Take off the schedule what is held for the page limit; queue it again where the limit was changed meanwhile."""
        await self._clear_schedule()
        job = await open_job(self._cluster.pool, self.job.name)
        if job.settings != self.job.settings:
            await revive(self.ledger, job_spec(job).settings)

    async def _clear_schedule(self) -> None:
        """Take the job off the schedule. Whatever revives it, what the windows have of it would be stale."""
        with suppress(BackendLost):
            await self._scheduler.clear()

    async def _beat(self) -> None:
        """Be heard of by Redis, whatever else waits for PostgreSQL: what is not committed yet stays ours."""
        while True:
            await asyncio.sleep(self._beat_seconds)
            self._measure_schedule()
            try:
                await self._scheduler.beat()
            except BackendLost as error:
                self._cluster.redis_lost(error)
            else:
                self._cluster.redis_back()

    async def _look(self) -> None:
        """Hear of what other processes do to the job: scope, limits, cookies, a pause."""
        clock, roots_at = self._cluster.clock, 0.0
        while True:
            wants_roots = clock() >= roots_at
            # All at once: they are asked in one transaction.
            totals, *_ = await asyncio.gather(
                self.ledger.totals(),
                self._obey(),
                self._load_cookies(),
                self._measure(),
                *([self._join_roots()] if wants_roots else ()),
            )
            self.loop.heard_of(totals.get("records", 0), totals.get("wire_bytes", 0))
            if wants_roots:
                roots_at = clock() + (
                    _FEW_ROOTS_SECONDS if len(self._roots) < _FEW_ROOTS else _MANY_ROOTS_SECONDS
                )
            await asyncio.sleep(self._cluster.seconds_to_look())

    async def _obey(self) -> None:
        """Do what operators have decided, and let the schedule know, also after it has lost everything."""
        before, clock = self._controls, self._cluster.clock
        if clock() >= self._tell_all_at:
            before, self._tell_all_at = UNKNOWN, clock() + _TELL_ALL_SECONDS
        with suppress(BackendLost):
            self._controls = await restore_controls(
                self._scheduler, self._cluster.pool, self.job.name, before
            )
        if self._controls.standing in {"paused", "stopped"}:
            self.loop.stop(Ending.INTERRUPTED)

    async def _join_roots(self) -> None:
        """Hear of new roots. Where there are more than can be listed, those that were none are asked for again."""
        if self._scope.is_partial:
            self._known_roots.forget_strangers()
            self._discoverer.look_again()
            return
        for root in set(await self.ledger.roots(MAX_ROOTS)) - self._roots:
            self._roots.add(root)
            self._crew.join(root)

    async def _measure(self) -> None:
        counts = await self.ledger.counts()
        self._cluster.metrics.queue_depth(self.job.name, counts[State.QUEUED, ""])
        self._measure_schedule()

    def _measure_schedule(self) -> None:
        self._cluster.metrics.schedule(self.job.name, self.loop.outlook, self.loop.oldest_lease_seconds)


def _shared(settings: Settings) -> Settings:
    """Return settings with the windows of a shared schedule where the user has not chosen others."""
    own, alone, together = settings.frontier, FrontierSettings(), SHARED_FRONTIER
    words = ("window_urls", "scheduled_urls", "active_hosts")
    changed = {word: getattr(together, word) for word in words if getattr(own, word) == getattr(alone, word)}
    return replace(settings, frontier=replace(own, **changed))
