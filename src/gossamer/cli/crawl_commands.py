"""`crawl` and `scrape`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gossamer.cli.crawling import command_line, job_folder, options_from, run_job, spec_from
from gossamer.cli.options import GroupedCommand, setting_options
from gossamer.config.job_file import Mode

_SECTIONS = ("scope", "limits", "politeness", "fetch", "record", "engine", "frontier")


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that concern the run and the job's place."""
    options = [
        click.option(
            "-o",
            "--output",
            "outputs",
            multiple=True,
            metavar="PATH",
            help="write records here; .jsonl, .jsonl.gz, .jsonl.zst, or - (repeatable)",
        ),
        click.option(
            "-i",
            "--input",
            "input_path",
            default="",
            metavar="FILE",
            help="read URLs from a file, one a line",
        ),
        click.option("--job", metavar="NAME", help="name of the job; the same name resumes it"),
        click.option(
            "--jobs-dir",
            type=click.Path(path_type=Path),
            default=Path("gossamer-jobs"),
            envvar="GOSSAMER_JOBS_DIR",
            metavar="DIR",
            help="folder of the jobs [gossamer-jobs]",
        ),
        click.option("--fresh", is_flag=True, help="forget the job's earlier runs and start over"),
        click.option("--config", metavar="FILE", envvar="GOSSAMER_CONFIG", help="settings from a TOML file"),
        click.option(
            "--fail-on",
            multiple=True,
            metavar="EXPR",
            help="exit with 3 if true at the end, e.g. 'failed>5%'",
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
    for option in reversed(options):
        function = option(function)
    return function


def _start(mode: Mode, urls: tuple[str, ...], values: dict[str, Any]) -> None:
    settings, options = options_from(values)
    spec = spec_from(mode, urls, values["input_path"], values["outputs"], settings)
    code = run_job(spec, job_folder(spec, options), options, command_line())
    click.get_current_context().exit(code)


@setting_options(*_SECTIONS)
@click.command(cls=GroupedCommand, short_help="crawl from seeds and follow links")
@click.argument("urls", nargs=-1, metavar="[URL]…")
@run_options
def crawl(urls: tuple[str, ...], **values: Any) -> None:
    """Crawl from one or more URLs and follow their links. The same command again resumes."""
    _start("crawl", urls, values)


@setting_options(*_SECTIONS)
@click.command(cls=GroupedCommand, short_help="fetch just these URLs, follow nothing")
@click.argument("urls", nargs=-1, metavar="[URL]…")
@run_options
def scrape(urls: tuple[str, ...], **values: Any) -> None:
    """Fetch just these URLs and follow no links. Redirects are followed; each input gets its own record."""
    _start("scrape", urls, values)


COMMANDS: list[click.Command] = [crawl, scrape]
