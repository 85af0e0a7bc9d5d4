"""What `crawl`, `scrape` and `demo` share: from the command line to a finished run and its exit code."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import uvloop

from gossamer.asking import default_job_name, job_folder
from gossamer.assembly import Job, open_job
from gossamer.cli.seeding import say_bad_lines
from gossamer.cli.terminal import say, say_rendered
from gossamer.config.job_file import JobSpec
from gossamer.config.load import load_settings
from gossamer.config.settings import Settings
from gossamer.engine.loop import Ending
from gossamer.engine.run import Run, by_label
from gossamer.errors import NothingFetched, ThresholdCrossed, UsageError
from gossamer.frontier.job_folder import JobFolder
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.model.event import Snapshot
from gossamer.model.outcome import State
from gossamer.observe.progress import make_progress
from gossamer.observe.summary import render_summary
from gossamer.parts import steady_clock
from gossamer.policy.threshold import Threshold, parse_threshold

ProgressKind = Literal["auto", "plain", "json", "none"]
#: A user name in a URL, of a page or a proxy.
_USER = re.compile(r"//[^/?#]*@")
#: Tells, of a state and a reason, what one URL was told, and which command lists them all.
Example = Callable[[str, str], tuple[str, str]]
#: How many URLs there are, by the label of the state, then by reason.
States = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What of a command line concerns the run and not the job."""

    jobs_dir: Path
    job: str = ""
    fresh: bool = False
    progress: ProgressKind = "auto"
    quiet: bool = False
    verbose: int = 0
    fail_on: tuple[Threshold, ...] = ()


def options_from(values: dict[str, Any], stored: dict[str, Any] | None = None) -> tuple[Settings, RunOptions]:
    """Split a command's values into settings and run options. `stored` settings stand where no flag was given."""
    from gossamer.cli.options import given  # noqa: PLC0415 - options imports click, which this module need not

    if values["job"] == "":
        raise UsageError(
            "--job: the name is empty (a variable without a value?); leave the flag out, or name the job"
        )
    config = values["config"]
    settings, _ = load_settings(
        {**(stored or {}), **given(values)}, os.environ, Path(config) if config else None
    )
    return settings, RunOptions(
        jobs_dir=values["jobs_dir"],
        job=values["job"] or "",
        fresh=values["fresh"],
        progress=values["progress"],
        quiet=values["quiet"],
        verbose=values["verbose"],
        fail_on=tuple(parse_threshold(text) for text in values["fail_on"]),
    )


def folder_of(spec: JobSpec, options: RunOptions) -> JobFolder:
    """Return where the job lives."""
    return job_folder(options.jobs_dir, options.job or default_job_name(spec))


def run_job(spec: JobSpec, folder: JobFolder, options: RunOptions, resume_command: str) -> int:
    """Run a job to its end and return the exit code."""
    return uvloop.run(_run(spec, folder, options, resume_command))


async def _run(spec: JobSpec, folder: JobFolder, options: RunOptions, resume_command: str) -> int:
    async with open_job(spec, folder, fresh=options.fresh) as job:
        if job.resumed and await job.is_finished():
            return await _already_finished(job, options)
        progress = make_progress(
            options.progress,
            job=folder.name,
            max_pages=spec.settings.limits.max_pages,
            quiet=options.quiet,
            verbose=options.verbose,
        )
        run = Run(job.loop, job.ledger.counts, job.standing.pages, steady_clock())
        with progress:
            ending = await run.watched(progress)
            snapshot = await run.snapshot()
            progress.update(snapshot)
        job.write_report()
        say_bad_lines(job.seeds.bad_lines)
        if not options.quiet and options.progress != "json":
            _summarise(job, snapshot, ending, resume_command)
        if ending is Ending.INTERRUPTED:
            return run.signal_code or 130
        _check_job(job, snapshot.states, options, done=ending is Ending.DONE)
        return 0


async def _already_finished(job: Job, options: RunOptions) -> int:
    """Fetch nothing; a late output is still filled from the record log."""
    await job.fill_outputs()
    if not options.quiet:
        say(
            f"gossamer: job {job.folder.name} is finished: {job.standing.pages:,} pages, nothing left to fetch"
            f" (outputs are complete; --fresh starts over)"
        )
    _check_job(job, by_label(await job.ledger.counts()), options, done=True)
    return 0


def _check_job(job: Job, states: States, options: RunOptions, *, done: bool) -> None:
    shard = job.spec.settings.scope.shard
    if shard and not states:
        # Others have them all: that is how a few hosts are divided, and no failure.
        say(f"gossamer: none of the given URLs belongs to shard {shard}")
        return
    check_outcome(states, options, partial(_example, job), done=done)


def _place_flag(folder: JobFolder) -> str:
    """Return the flag that other commands need to find the job."""
    jobs_dir = folder.path.parent
    return "" if jobs_dir == Path("gossamer-jobs") else f" --jobs-dir {shlex.quote(str(jobs_dir))}"


def _summarise(job: Job, snapshot: Snapshot, ending: Ending, resume_command: str) -> None:
    outputs = [(path, records) for path, records in job.outputs.written()]
    text = render_summary(
        snapshot,
        job=job.folder.name,
        ending=str(ending),
        outputs=outputs,
        resume_command=resume_command,
        place=_place_flag(job.folder),
        stream=sys.stderr,
    )
    say_rendered(text)


def check_outcome(states: States, options: RunOptions, example: Example, *, done: bool) -> None:
    """Raise `ThresholdCrossed` or `NothingFetched` where the states of all URLs call for it."""
    for threshold in options.fail_on:
        if threshold.crossed(states):
            raise ThresholdCrossed(f"--fail-on {threshold.text}: the threshold is crossed")
    if done and not states.get("fetched"):
        raise NothingFetched(f"nothing could be fetched{_most_common(states, example)}")


def _most_common(states: States, example: Example) -> str:
    if not states:
        return ": the input holds no URL"
    settled = [
        (n, state, reason) for state in states if state != "queued" for reason, n in states[state].items()
    ]
    if not settled:
        return ""
    n, label, reason = max(settled)
    why, command = example(label, reason)
    return f": {n:,} {label} ({reason}{why}); `{command}` lists them"


def _example(job: Job, label: str, reason: str) -> tuple[str, str]:
    """Return the detail of a URL that came to this end, and the command that lists all of them."""
    with SqliteReader(job.folder.ledger) as reader:
        example = next(reader.urls(state=State[label.upper()], reason=reason, limit=1), None)
    why = f": {example.detail}" if example is not None and example.detail else ""
    return (
        why,
        f"gossamer urls {shlex.quote(job.folder.name)} --state {label}{_place_flag(job.folder)}",
    )


def command_line(folder: JobFolder) -> str:
    """Return what the user could type to go on with a job in a folder."""
    return command_line_of(f"gossamer resume {shlex.quote(folder.name)}{_place_flag(folder)}")


def command_line_of(resume: str) -> str:
    """Return the same command, or `resume` where that might show a password."""
    if any(word.startswith(("-H", "--header")) or _USER.search(word) for word in sys.argv[1:]):
        return resume
    return shlex.join(["gossamer", *sys.argv[1:]])
