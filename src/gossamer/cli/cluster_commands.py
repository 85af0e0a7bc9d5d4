"""`submit` and `worker`: jobs that many machines share, and those who work on them."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import uvloop

from gossamer.asking import default_job_name
from gossamer.cli.backends import postgres_option, redis_option
from gossamer.cli.crawl_commands import SECTIONS, SEED_OPTIONS, options
from gossamer.cli.crawling import say_bad_lines, spec_from
from gossamer.cli.options import GroupedCommand, given, setting_options
from gossamer.cli.supervision import Supervisor, without_flag
from gossamer.cli.terminal import say
from gossamer.cluster import Servers, open_cluster
from gossamer.config.job_file import JobSpec, Mode
from gossamer.config.load import load_settings
from gossamer.config.redis import RedisSettings
from gossamer.engine.run import one_cause
from gossamer.errors import UsageError
from gossamer.observe.health import HealthServer
from gossamer.observe.wording import counted
from gossamer.observe.worker_log import WorkerLog
from gossamer.parts import failpoint_from_environment, steady_clock
from gossamer.submission import Submitted, make_job, submit
from gossamer.workforce import Workforce

_PROGRESS_SECONDS = 2.0


@setting_options(*SECTIONS)
@click.command("submit", cls=GroupedCommand, short_help="write down a job for workers to do")
@click.argument("urls", nargs=-1, metavar="[URL]…")
@options(*SEED_OPTIONS, redis_option, postgres_option)
@click.option("--scrape", is_flag=True, help="fetch just these URLs, follow nothing")
@click.option("--config", metavar="FILE", envvar="GOSSAMER_CONFIG", help="settings from a TOML file")
@click.option("-q", "--quiet", is_flag=True, help="say nothing but errors")
def submit_command(urls: tuple[str, ...], **values: Any) -> None:
    """Write a job and its seeds into the database. Workers begin at once; the same command again goes on."""
    settings, _ = load_settings(given(values), os.environ, _path(values["config"]))
    mode: Mode = "scrape" if values["scrape"] else "crawl"
    spec = spec_from(mode, urls, values["input_path"], (), settings)
    if values["fresh"]:
        raise UsageError("--fresh is for jobs in a folder; give the job another name")
    refuse_shard(spec)
    name = values["job"] or default_job_name(spec)
    with one_cause():
        uvloop.run(_submit(servers(values), name, spec, quiet=values["quiet"]))


async def _submit(where: Servers, name: str, spec: JobSpec, *, quiet: bool) -> None:
    async with open_cluster(
        where, steady_clock(), failpoint_from_environment(), WorkerLog(), patient=False
    ) as cluster:
        job = await make_job(cluster, name, spec)
        done = await submit(cluster, job, _nobody if quiet else _Ticker(name))
    if not quiet:
        _say_submitted(name, done)


def refuse_shard(spec: JobSpec) -> None:
    """Raise `UsageError` where a shared job is to be a part of a crawl."""
    if spec.settings.scope.shard:
        raise UsageError(
            "--shard is for jobs in a folder; the workers of a shared job divide its hosts anyway"
        )


def servers(values: dict[str, Any]) -> Servers:
    """Return where shared jobs live. Raises `UsageError` where the user has not said so."""
    postgres, redis = values["postgres_url"], values["redis_url"]
    if not postgres or not redis:
        missing = "--postgres (GOSSAMER_POSTGRES)" if not postgres else "--redis (GOSSAMER_REDIS)"
        raise UsageError(f"shared jobs need a database and a Redis: {missing} is not given")
    return Servers(postgres, RedisSettings(url=redis))


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


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


@click.command(cls=GroupedCommand, short_help="work on shared jobs")
@options(redis_option, postgres_option)
@click.option("--job", default="", metavar="NAME", help="work on this job alone")
@click.option("--processes", default=1, metavar="N", type=click.IntRange(1, 256), help="worker processes [1]")
@click.option("--exit-when-done", is_flag=True, help="end when no job has work left")
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    envvar="GOSSAMER_HEALTH_PORT",
    metavar="PORT",
    help="serve /healthz, /readyz and /metrics here; 0 takes a free one",
)
@click.option(
    "--health-host",
    default="127.0.0.1",
    envvar="GOSSAMER_HEALTH_HOST",
    metavar="HOST",
    help="where to listen",
)
@click.option("--grace-seconds", type=float, default=30.0, help="time to finish after SIGTERM [30]")
def worker(**values: Any) -> None:
    """Work on every shared job, or on one, until stopped. SIGTERM finishes what is under way and ends."""
    if values["processes"] > 1:
        servers(values)
        arguments = without_flag(sys.argv[1:], "--processes")
        supervisor = Supervisor(arguments, values["processes"], values["health_port"])
        click.get_current_context().exit(supervisor.run())
    with one_cause():
        code = uvloop.run(_work(servers(values), values))
    click.get_current_context().exit(code)


async def _work(where: Servers, values: dict[str, Any]) -> int:
    log = WorkerLog()
    clock = steady_clock()
    async with open_cluster(where, clock, failpoint_from_environment(), log, patient=True) as cluster:
        force = Workforce(cluster, only=values["job"], exit_when_done=values["exit_when_done"])
        code = _obey_signals(force, values["grace_seconds"])
        if values["health_port"] is None:
            await force.run()
        else:
            async with HealthServer(
                values["health_port"], values["health_host"], cluster.metrics, cluster.vitals
            ) as health:
                log.write("health", port=health.port)
                await force.run()
    return code()


def _obey_signals(force: Workforce, grace_seconds: float) -> Callable[[], int]:
    """Let the first signal drain and the second stop at once; returns what tells the exit code."""
    received: list[int] = []

    def stop(code: int) -> None:
        received.append(code)
        force.stop(grace_seconds=grace_seconds if len(received) == 1 else 0.0)

    loop = asyncio.get_running_loop()
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        loop.add_signal_handler(number, stop, code)
    return lambda: received[0] if received else 0


COMMANDS: list[click.Command] = [submit_command, worker]
