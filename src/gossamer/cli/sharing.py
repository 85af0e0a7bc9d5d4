"""What `submit`, `worker` and `crawl` of a shared job have in common, and what the first two do."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import uvloop

from gossamer.cli.backends import Backends
from gossamer.cli.seeding import say_bad_lines
from gossamer.cli.terminal import say
from gossamer.cluster import Servers, open_cluster
from gossamer.config.job_file import JobSpec
from gossamer.engine.run import one_cause
from gossamer.errors import NothingFetched, UsageError
from gossamer.observe.health import HealthServer
from gossamer.observe.wording import counted
from gossamer.observe.worker_log import WorkerLog
from gossamer.parts import failpoint_from_environment, steady_clock
from gossamer.submission import Submitted, make_job, submit
from gossamer.workforce import Workforce

_PROGRESS_SECONDS = 2.0
#: What a worker has after its grace period to write down what is finished.
_LAST_SECONDS = 5.0


def servers(backends: Backends) -> Servers:
    """Return where shared jobs live. Raises `UsageError` where the user has not said so."""
    postgres, redis = backends.both()
    return Servers(postgres, redis, backends.limits)


def check_shared(spec: JobSpec, *, quiet: bool) -> None:
    """Mention what means nothing to a shared job. Raises `UsageError` where it is to be a part of a crawl."""
    settings = spec.settings
    if settings.scope.shard:
        raise UsageError(
            "--shard is for jobs in a folder; the workers of a shared job divide its hosts anyway"
        )
    if quiet:
        return
    if settings.scope.dedup == "bloom":
        say("gossamer: --dedup bloom is for jobs in a folder: PostgreSQL knows every URL of this one exactly")
    if settings.engine.workers > 1:
        say(
            f"gossamer: --workers is for jobs in a folder: `gossamer worker --processes {settings.engine.workers}`"
            " works on shared ones"
        )


# -- submit --------------------------------------------------------------------------------------------


def run_submit(backends: Backends, name: str, spec: JobSpec, *, quiet: bool) -> None:
    """Write a job and its seeds into the database, and say so."""
    where = servers(backends)
    with one_cause():
        uvloop.run(_submit(where, name, spec, quiet=quiet))


async def _submit(where: Servers, name: str, spec: JobSpec, *, quiet: bool) -> None:
    async with open_cluster(
        where, steady_clock(), failpoint_from_environment(), WorkerLog(), patient=False
    ) as cluster:
        job = await make_job(cluster, name, spec)
        done = await submit(cluster, job, _nobody if quiet else _Ticker(name))
    if not done.accepted and not job.seeding:
        raise NothingFetched(f"no URL was submitted: the input of job {name} has none")
    if not quiet:
        _say_submitted(name, done)


def _nobody(_count: int) -> None:
    """Hear of nothing."""


class _Ticker:
    """Says now and then how many seeds were added."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said_at = time.monotonic()

    def __call__(self, count: int) -> None:
        if time.monotonic() - self._said_at >= _PROGRESS_SECONDS:
            self._said_at = time.monotonic()
            say(f"{self._name}: {counted(count, 'URL')} submitted so far")


def _say_submitted(name: str, done: Submitted) -> None:
    say_bad_lines(done.bad_lines)
    say(
        f"{name}: {counted(done.accepted, 'URL')} submitted; `gossamer status {shlex.quote(name)}` shows how far it has come"
        if done.accepted
        else f"{name}: it was submitted before, and all its seeds are in"
    )
    if done.job.paused or done.job.stopped:
        state = "stopped" if done.job.stopped else "paused"
        say(f"{name}: it is {state}; `gossamer resume {shlex.quote(name)}` lets it go on")


# -- worker --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Duty:
    """What a worker was asked to do."""

    #: One job alone; empty for all.
    job: str
    exit_when_done: bool
    #: None for no health server.
    health_port: int | None
    health_host: str
    grace_seconds: float


def run_worker(backends: Backends, duty: Duty) -> int:
    """Work until the end, or until a signal, and return the exit code."""
    where = servers(backends)
    with one_cause():
        return uvloop.run(_work(where, duty))


async def _work(where: Servers, duty: Duty) -> int:
    log = WorkerLog()
    clock = steady_clock()
    async with open_cluster(where, clock, failpoint_from_environment(), log, patient=True) as cluster:
        force = Workforce(cluster, only=duty.job, exit_when_done=duty.exit_when_done)
        code = _obey_signals(force, duty.grace_seconds, log)
        if duty.health_port is None:
            await force.run()
        else:
            async with HealthServer(
                duty.health_port, duty.health_host, cluster.metrics, cluster.vitals
            ) as health:
                log.write("health", port=health.port)
                await force.run()
    return code()


def _obey_signals(force: Workforce, grace_seconds: float, log: WorkerLog) -> Callable[[], int]:
    """Let the first signal drain, and a Ctrl-C after it stop at once; returns what tells the exit code.

    More SIGTERMs change nothing: hooks, supervisors and the system may each send theirs. A server that does not answer
    cannot hold a worker that was told to leave: what it has not written down, others do again.
    """
    received: list[int] = []
    loop = asyncio.get_running_loop()

    def leave() -> None:
        log.write("abandoned", detail="a server did not answer within the grace period: leases run out")
        os._exit(received[0])

    def stop(number: signal.Signals) -> None:
        if received and number is not signal.SIGINT:
            return
        seconds = 0.0 if received else grace_seconds
        received.append(128 + number)
        force.stop(grace_seconds=seconds)
        loop.call_later(seconds + _LAST_SECONDS, leave)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return lambda: received[0] if received else 0
