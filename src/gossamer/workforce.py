"""A worker process of shared jobs: it has a part in every job that has work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from gossamer.cluster import Cluster
from gossamer.engine.loop import Ending
from gossamer.engine.run import one_cause
from gossamer.errors import BackendLost, GossamerError, UsageError
from gossamer.frontier.postgres_jobs import DEAD_SUBMIT_SECONDS, JobRow, list_jobs
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.redis_link import RedisLink
from gossamer.job_part import JobPart
from gossamer.model.outcome import State

#: A job that could not be worked on is left alone for a while.
_SULK_SECONDS = 30.0


class Workforce:
    """A worker process: has a part in every job that has work, or in one job, until it is stopped.

    It does not begin without a Redis that will do: `BackendUnreachable`, `UsageError`. Later it waits for one that
    goes away. With `exit_when_done` it ends when the ledgers say that nothing is left, whatever the schedule looks like.
    """

    def __init__(self, cluster: Cluster, *, only: str = "", exit_when_done: bool = False) -> None:
        self._cluster = cluster
        #: For a worker without a job: the parts have links of their own.
        self._redis = RedisLink(cluster.servers.redis, random.random)
        self._only = only
        self._exit_when_done = exit_when_done
        self._parts: dict[int, JobPart | None] = {}
        #: Jobs not to be tried again before an instant.
        self._sulking: dict[int, float] = {}
        #: Jobs that this worker cannot work on until somebody changes something, and why.
        self._unfit: dict[int, UsageError] = {}
        #: Jobs that are done but for a submit that died, and what is to be said about it.
        self._orphaned: dict[int, UsageError] = {}
        #: Jobs whose time or size is used up, and the settings that said so.
        self._finished: dict[int, str] = {}
        self._stopping = False
        self._wake = asyncio.Event()

    def stop(self, *, grace_seconds: float | None = None) -> None:
        """Finish the requests under way, give back the rest, and end."""
        self._stopping = True
        self._cluster.vitals.drain()
        for part in self._parts.values():
            if part is not None:
                part.loop.stop(Ending.INTERRUPTED, grace_seconds=grace_seconds)
        self._wake.set()

    async def run(self) -> None:
        """Work."""
        await self._redis.open()
        try:
            self._cluster.vitals.answered("redis")
            async with asyncio.TaskGroup() as group:
                pulse = group.create_task(self._pulse(), name="pulse")
                await self._work()
                pulse.cancel()
        finally:
            await self._redis.close()

    async def _pulse(self) -> None:
        """Note that the loop turns and, while no part asks it anything, whether Redis is there.

        A task of its own: the one that looks for jobs may wait for PostgreSQL for long.
        """
        while True:
            self._cluster.vitals.tick()
            if not any(self._parts.values()):
                await self._ping()
            await asyncio.sleep(self._cluster.seconds_to_look())

    async def _ping(self) -> None:
        try:
            await self._redis.ping()
        except BackendLost as error:
            self._cluster.redis_lost(error)
        else:
            self._cluster.redis_back()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            while not self._stopping:
                jobs = await self._jobs()
                self._hand_back_changed(jobs)
                # All at once: they are asked about in one transaction.
                asked = await asyncio.gather(*map(self._has_work, jobs))
                waiting = [job for job, has_work in zip(jobs, asked, strict=True) if has_work]
                for job in waiting:
                    if self._may_begin(job):
                        self._parts[job.id] = None
                        group.create_task(self._take_part(job), name=f"job {job.name}")
                if self._exit_when_done and not self._parts:
                    self._check_fit(waiting)
                    if not waiting:
                        return
                await self._rest()

    def _may_begin(self, job: JobRow) -> bool:
        is_free = job.id not in self._parts and job.id not in self._orphaned
        return is_free and not job.paused and self._sulking.get(job.id, 0.0) <= self._cluster.clock()

    def _check_fit(self, waiting: Sequence[JobRow]) -> None:
        """Raise why, where nothing is left but jobs that this worker cannot do: waiting for them would be for ever."""
        why = self._unfit | self._orphaned
        unfit = [why[job.id] for job in waiting if job.id in why]
        if unfit and len(unfit) == len(waiting):
            raise unfit[0]

    def _hand_back_changed(self, jobs: Sequence[JobRow]) -> None:
        """Finish what is under way of jobs that are now to be done with other settings: they are opened again with these."""
        for job in jobs:
            part = self._parts.get(job.id)
            if part is not None and part.job.settings != job.settings:
                part.loop.stop(Ending.INTERRUPTED)

    async def _jobs(self) -> list[JobRow]:
        jobs = await list_jobs(self._cluster.pool, self._only)
        if self._only and not jobs:
            raise UsageError(f"there is no job {self._only} at {self._cluster.pool.place}: submit it first")
        return [job for job in jobs if not job.stopped and self._finished.get(job.id) != job.settings]

    async def _has_work(self, job: JobRow) -> bool:
        self._orphaned.pop(job.id, None)
        if job.paused and not self._exit_when_done:
            return False
        ledger = self._cluster.ledger(job.id)
        if job.id not in self._parts and await ledger.is_drained():
            return False
        if job.seeding != "closed" and self._exit_when_done:
            await self._check_submit(job, ledger)
        # Whoever waits for the end of a paused job waits for its resumption.
        return True

    async def _check_submit(self, job: JobRow, ledger: PostgresLedger) -> None:
        """Leave a job alone that is done but for a submit that died: waiting for it would be for ever."""
        heard_at = float(await ledger.get_meta("seeding_at") or job.created_at)
        is_dead = self._cluster.clock() - heard_at > DEAD_SUBMIT_SECONDS
        if not is_dead or (await ledger.counts())[State.QUEUED, ""]:
            return
        self._orphaned[job.id] = UsageError(
            f"the submit of job {job.name} stopped half-way: run it again, and it goes on from there"
        )
        part = self._parts.get(job.id)
        if part is not None:
            part.loop.stop(Ending.INTERRUPTED)

    async def _take_part(self, job: JobRow) -> None:
        try:
            with one_cause():
                await self._work_on(job)
        except BackendLost:
            raise
        except GossamerError as error:
            # The job cannot be worked on; the others can.
            self._cluster.log.write("job_failed", job=job.name, detail=str(error))
            if isinstance(error, UsageError):
                self._unfit[job.id] = error
            self._sulking[job.id] = self._cluster.clock() + _SULK_SECONDS
        finally:
            self._parts.pop(job.id, None)
            self._wake.set()

    async def _work_on(self, job: JobRow) -> None:
        log = self._cluster.log
        async with JobPart.open(self._cluster, job) as part:
            self._parts[job.id] = part
            if self._stopping:
                return
            self._unfit.pop(job.id, None)
            log.write("job_started", job=job.name)
            ending = await part.run()
            log.write("job_ended", job=job.name, ending=str(ending), pages=part.loop.tally.pages)
            if ending in {Ending.TIME_LIMIT, Ending.SIZE_LIMIT}:
                self._finished[job.id] = job.settings

    async def _rest(self) -> None:
        handle = asyncio.get_running_loop().call_later(self._cluster.seconds_to_look(), self._wake.set)
        await self._wake.wait()
        handle.cancel()
        self._wake.clear()
