"""`submit` and `worker`: jobs that many machines share, and those who work on them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.backends import backends_from, config_option, postgres_option, redis_option
from gossamer.cli.crawl_commands import SECTIONS, SEED_OPTIONS, SERVERS
from gossamer.cli.options import GroupedCommand, given, options, setting_options
from gossamer.errors import UsageError

if TYPE_CHECKING:
    from gossamer.config.job_file import Mode

# What does the work is loaded by the commands that run: help, mistakes and completion are quick.


@setting_options(*SECTIONS)
@click.command("submit", cls=GroupedCommand)
@click.argument("urls", nargs=-1, metavar="[URL]…")
@options(*SEED_OPTIONS, redis_option, postgres_option)
@click.option("--scrape", is_flag=True, help="fetch just these URLs, follow nothing")
@config_option
@click.option("-q", "--quiet", is_flag=True, help="say nothing but errors")
def submit_command(urls: tuple[str, ...], **values: Any) -> None:
    """Write a job and its seeds into the database. Workers begin at once; the same command again goes on."""
    from gossamer.asking import shared_job_name  # noqa: PLC0415
    from gossamer.cli.seeding import spec_from  # noqa: PLC0415
    from gossamer.cli.sharing import check_shared, run_submit  # noqa: PLC0415
    from gossamer.config.load import load_settings  # noqa: PLC0415

    config = values["config"]
    settings, _ = load_settings(given(values), os.environ, Path(config) if config else None)
    mode: Mode = "scrape" if values["scrape"] else "crawl"
    spec = spec_from(mode, urls, values["input_path"], (), settings)
    if values["fresh"]:
        raise UsageError("--fresh is for jobs in a folder; give the job another name")
    check_shared(spec, quiet=values["quiet"])
    name = shared_job_name(values["job"], spec)
    run_submit(backends_from(values), name, spec, quiet=values["quiet"])


@setting_options(*SERVERS)
@click.command(cls=GroupedCommand)
@options(redis_option, postgres_option, config_option)
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
@click.option(
    "--grace-seconds",
    type=float,
    default=30.0,
    envvar="GOSSAMER_GRACE_SECONDS",
    help="time to finish after SIGTERM [30]",
)
def worker(**values: Any) -> None:
    """Work on every shared job, or on one, until stopped. SIGTERM finishes what is under way and ends."""
    backends = backends_from(values)
    backends.both()
    if values["processes"] > 1:
        from gossamer.cli.supervision import Supervisor, without_flag  # noqa: PLC0415

        command = [sys.executable, "-m", "gossamer", *without_flag(sys.argv[1:], "--processes")]
        supervisor = Supervisor(command, values["processes"], values["health_port"])
        click.get_current_context().exit(supervisor.run())
    from gossamer.cli.sharing import Duty, run_worker  # noqa: PLC0415

    duty = Duty(
        values["job"],
        values["exit_when_done"],
        values["health_port"],
        values["health_host"],
        values["grace_seconds"],
    )
    click.get_current_context().exit(run_worker(backends, duty))


COMMANDS: list[click.Command] = [submit_command, worker]
