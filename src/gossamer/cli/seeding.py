"""What a command line says about seeds, and what is said about those that were none."""

from __future__ import annotations

import sys

from gossamer.asking import job_spec
from gossamer.cli.terminal import say
from gossamer.config.job_file import JobSpec, Mode
from gossamer.config.settings import Settings
from gossamer.engine.seeds import BadLines
from gossamer.errors import UsageError


def spec_from(
    mode: Mode, urls: tuple[str, ...], input_path: str, outputs: tuple[str, ...], settings: Settings
) -> JobSpec:
    """Return what the command line asks for as a job; `-` among the URLs is standard input. Raises `UsageError`."""
    named = tuple(url for url in urls if url != "-")
    spec = job_spec(mode, named, input_path or ("-" if "-" in urls else ""), outputs, settings)
    if spec.input == "-" and sys.stdin is None:
        raise UsageError("standard input is closed: name a file with -i FILE, or send URLs to it")
    return spec


def say_bad_lines(bad: BadLines) -> None:
    """Mention the lines of an input that were no URLs."""
    if bad.count:
        what = (
            "line of the input is not a URL and was"
            if bad.count == 1
            else "lines of the input are not URLs and were"
        )
        say(f"gossamer: {bad.count:,} {what} passed over; {bad.first}")
