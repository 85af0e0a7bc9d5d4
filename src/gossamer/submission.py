"""Shared jobs are submitted: a job and its seeds are written into the database, where workers find them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gossamer.cluster import Cluster, job_spec
from gossamer.config.job_file import JobSpec
from gossamer.contracts import Clock
from gossamer.engine.seeds import BadLines, Seeds
from gossamer.frontier.postgres_jobs import JobRow, change_settings, create_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.model.outcome import Found
from gossamer.model.schedule import Added
from gossamer.parts import revive, url_policy
from gossamer.policy.scope import MAX_ROOTS
from gossamer.scopes import shared_scope

#: A submit is heard of this often.
_BEAT_SECONDS = 10.0
#: How far the seeding of a job has come whose standard input is read once more.
_AGAIN = "again"


class Submitted(msgspec.Struct, frozen=True):
    """What a submit did: the seeds it added, and the lines that were none."""

    job: JobRow
    accepted: int
    bad_lines: BadLines


async def make_job(cluster: Cluster, name: str, spec: JobSpec) -> JobRow:
    """Write a job down, or go on with it: what may change is changed, and what was held is queued again.

    Raises `UsageError` where another job has the name.
    """
    identity = msgspec.json.encode(spec.identity(), order="sorted").decode()
    job = await create_job(cluster.pool, name, identity, _settings_text(spec), cluster.clock())
    ledger = cluster.ledger(job.id)
    if job.seeding == "closed" and spec.input == "-":
        # There may be more to read this time. Heard of first: nobody must take it for a submit that died.
        await _beat(ledger, cluster.clock)
        await ledger.set_meta("seeding", _AGAIN)
        job = msgspec.structs.replace(job, seeding=_AGAIN)
    return await change_job(cluster.pool, ledger, job, spec)


async def change_job(pool: PostgresPool, ledger: PostgresLedger, job: JobRow, spec: JobSpec) -> JobRow:
    """Let a job go on with the limits and rates that it is to have now, and with what they held up."""
    settings = _settings_text(spec)
    if job.settings != settings:
        await change_settings(pool, job.id, settings)
        job = msgspec.structs.replace(job, settings=settings)
    if job.seeding:
        await revive(ledger, spec.settings)
    return job


def _settings_text(spec: JobSpec) -> str:
    return msgspec.json.encode(spec.to_toml(), order="sorted").decode()


async def submit(cluster: Cluster, job: JobRow, told: Callable[[int], None]) -> Submitted:
    """Add the seeds of a job, from where an earlier submit was cut off. `told` hears how many there are by now."""
    spec = job_spec(job)
    ledger = cluster.ledger(job.id)
    scope = shared_scope(spec, await ledger.roots(MAX_ROOTS))
    batch_urls = spec.settings.frontier.seed_batch_urls
    seeds = Seeds(spec.seeds, spec.input, url_policy(spec.settings.scope), scope, batch_urls)
    if job.seeding == "closed" and spec.input != "-":
        return Submitted(job, 0, seeds.bad_lines)

    async def add(found: list[Found], roots: set[str], progress: str) -> Added:
        added = await ledger.add(found, roots=roots, progress=progress)
        told(seeds.accepted + len(found))
        return added

    async with asyncio.TaskGroup() as group:
        await _beat(ledger, cluster.clock)
        beat = group.create_task(_keep_beating(ledger, cluster.clock), name="heartbeat")
        await seeds.add_all(add, "" if spec.input == "-" else job.seeding)
        await ledger.close_seeding()
        beat.cancel()
    return Submitted(job, seeds.accepted, seeds.bad_lines)


async def _keep_beating(ledger: PostgresLedger, clock: Clock) -> None:
    while True:
        await asyncio.sleep(_BEAT_SECONDS)
        await _beat(ledger, clock)


async def _beat(ledger: PostgresLedger, clock: Clock) -> None:
    await ledger.set_meta("seeding_at", str(clock()))
