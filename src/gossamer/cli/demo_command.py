"""`demo`: serve the built-in site on loopback and crawl it with the live display."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import click

from gossamer.cli.crawling import ProgressKind, RunOptions, run_job
from gossamer.cli.seeding import spec_from
from gossamer.cli.terminal import say
from gossamer.config.settings import (
    EngineSettings,
    FetchSettings,
    LimitSettings,
    PolitenessSettings,
    Settings,
)
from gossamer.frontier.job_folder import JobFolder
from gossamer.testing.synthetic_web import SyntheticWeb

_SETTINGS = Settings(
    # The site has a trap that never ends: depth is what a user would bound it with.
    limits=LimitSettings(depth=5),
    politeness=PolitenessSettings(delay=0.15, retries=2, backoff_seconds=0.5),
    fetch=FetchSettings(allow_private=True),
    engine=EngineSettings(concurrency=16),
)
_NEXT = """
Try next:
  head -n 1 {output}
  {program} urls demo --jobs-dir {jobs} --state refused
  {program} explain demo {example} --jobs-dir {jobs}
  {program} crawl https://example.org/ -o pages.jsonl -n 50
"""


@click.command
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("gossamer-demo"),
    metavar="DIR",
    help="where to put the job and its output [gossamer-demo]",
)
@click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "json", "none"]),
    default="auto",
    help="how progress is shown",
)
@click.option("--workers", type=click.IntRange(1, 64), default=1, help="processes that fetch and extract [1]")
def demo(folder: Path, progress: ProgressKind, workers: int) -> None:
    """Serve a built-in site of several hosts on loopback and crawl it with a live display.

    It has robots rules, duplicates, redirects, a login wall, wrong charsets, a dead host, a trap, slow and
    failing pages.
    """
    output = folder / "pages.jsonl"
    settings = replace(_SETTINGS, engine=replace(_SETTINGS.engine, workers=workers))
    with SyntheticWeb.in_thread() as web:
        say(f"Serving {len(web.seeds)} hosts on 127.0.0.1:{web.port} and crawling them politely.")
        spec = spec_from("crawl", tuple(web.seeds), "", (str(output),), settings)
        options = RunOptions(folder, "demo", fresh=True, progress=progress)
        code = run_job(spec, JobFolder(folder / "demo"), options, "")
        example = web.url("docs", "/private/plan.html")
    for line in _NEXT.format(program=_program(), output=output, jobs=folder, example=example).split("\n")[
        :-1
    ]:
        say(line)
    click.get_current_context().exit(code)


def _program() -> str:
    """Return what to type for this program: its name, or its path where it is not on the PATH."""
    if shutil.which("gossamer"):
        return "gossamer"
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m gossamer"
    return shlex.quote(os.path.relpath(sys.argv[0]))


COMMANDS: list[click.Command] = [demo]
