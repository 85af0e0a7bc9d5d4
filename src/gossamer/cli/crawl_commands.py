"""`crawl` and `scrape`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.backends import backends_from, config_option, postgres_option, redis_option
from gossamer.cli.options import GroupedCommand, options, setting_options

if TYPE_CHECKING:
    from gossamer.config.job_file import Mode

# What does the work is loaded by the commands that run: help, mistakes and completion are quick.

SERVERS = ("redis", "postgres")
SECTIONS = ("scope", "traps", "limits", "politeness", "fetch", "record", "engine", "frontier", *SERVERS)


SEED_OPTIONS = [
    click.option(
        "-i", "--input", "input_path", default="", metavar="FILE", help="read URLs from a file, one a line"
    ),
    click.option("--job", metavar="NAME", help="name of the job; the same name resumes it"),
    click.option("--fresh", is_flag=True, help="forget the job's earlier runs and start over"),
]
_RUN_OPTIONS = [
    click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        metavar="PATH",
        help="write records here: .jsonl or .csv, also with .gz or .zst, or - (repeatable)",
    ),
    click.option(
        "--jobs-dir",
        type=click.Path(path_type=Path),
        default=Path("gossamer-jobs"),
        envvar="GOSSAMER_JOBS_DIR",
        metavar="DIR",
        help="folder of the jobs [gossamer-jobs]",
    ),
    config_option,
    click.option(
        "--fail-on", multiple=True, metavar="EXPR", help="exit with 3 if true at the end, e.g. 'failed>5%'"
    ),
    click.option(
        "--progress",
        type=click.Choice(["auto", "plain", "json", "none"]),
        default="auto",
        envvar="GOSSAMER_PROGRESS",
        help="how progress is shown on stderr",
    ),
    click.option("-q", "--quiet", is_flag=True, help="say nothing but errors"),
    click.option("-v", "--verbose", count=True, help="say more"),
]


def _start(mode: Mode, urls: tuple[str, ...], values: dict[str, Any]) -> None:
    from gossamer.cli.crawling import command_line, folder_of, options_from, run_job  # noqa: PLC0415
    from gossamer.cli.seeding import spec_from  # noqa: PLC0415

    settings, run = options_from(values)
    spec = spec_from(mode, urls, values["input_path"], values["outputs"], settings)
    if values["redis_url"] or values["postgres_url"]:
        from gossamer.cli.shared_crawl import run_shared  # noqa: PLC0415 - only those who share a job pay for it

        click.get_current_context().exit(run_shared(backends_from(values), spec, run))
    folder = folder_of(spec, run)
    code = run_job(spec, folder, run, command_line(folder))
    click.get_current_context().exit(code)


@setting_options(*SECTIONS)
@click.command(cls=GroupedCommand)
@click.argument("urls", nargs=-1, metavar="[URL]…")
@options(*SEED_OPTIONS, *_RUN_OPTIONS, redis_option, postgres_option)
def crawl(urls: tuple[str, ...], **values: Any) -> None:
    """Crawl from one or more URLs and follow their links. The same command again resumes."""
    _start("crawl", urls, values)


@setting_options(*SECTIONS)
@click.command(cls=GroupedCommand)
@click.argument("urls", nargs=-1, metavar="[URL]…")
@options(*SEED_OPTIONS, *_RUN_OPTIONS, redis_option, postgres_option)
def scrape(urls: tuple[str, ...], **values: Any) -> None:
    """Fetch just these URLs and follow no links. Redirects are followed; each input gets its own record."""
    _start("scrape", urls, values)


@setting_options("limits", "politeness", "fetch", "record", "engine", "frontier", *SERVERS)
@click.command(cls=GroupedCommand)
@click.argument("job")
@options(*_RUN_OPTIONS, redis_option, postgres_option)
def resume(job: str, **values: Any) -> None:
    """Go on with a job by its name, with the settings it has; flags given here change them.

    A shared job (--postgres) is given back to its workers.
    """
    if values["postgres_url"]:
        from gossamer.cli.crawling import options_from  # noqa: PLC0415
        from gossamer.cli.shared_resume import resume_shared  # noqa: PLC0415

        own = {**values, "job": job, "fresh": False}
        resume_shared(
            job, backends_from(values), values["outputs"], lambda stored: options_from(own, stored)[0]
        )
        return
    _resume_local(job, values)


def _resume_local(job: str, values: dict[str, Any]) -> None:
    from gossamer.asking import absolute, check_fields  # noqa: PLC0415
    from gossamer.cli.crawling import command_line, options_from, run_job  # noqa: PLC0415
    from gossamer.cli.job_lookup import find_job  # noqa: PLC0415
    from gossamer.config.job_file import JobSpec, spec_of  # noqa: PLC0415

    folder = find_job(values["jobs_dir"], job).folder
    stored = spec_of(folder.job_file)
    settings, run = options_from({**values, "job": job, "fresh": False}, stored.settings_words())
    check_fields(settings.record.fields)
    outputs = absolute([*stored.outputs, *values["outputs"]])
    spec = JobSpec(stored.mode, stored.seeds, stored.input, outputs, settings)
    if spec.input == "-":
        # What standard input held is in the ledger, as far as it was read; there is nothing to read now.
        sys.stdin = Path(os.devnull).open("r", encoding="utf-8")  # noqa: SIM115 - for as long as this process lives
    code = run_job(spec, folder, run, command_line(folder))
    click.get_current_context().exit(code)


COMMANDS: list[click.Command] = [crawl, scrape, resume]
