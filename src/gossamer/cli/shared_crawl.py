"""`crawl` and `scrape` of a shared job: submit it, work on it in the foreground, and write its outputs here."""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import sys

import uvloop

from gossamer.asking import shared_job_name
from gossamer.cli.backends import Backends
from gossamer.cli.crawling import RunOptions, check_outcome, command_line_of
from gossamer.cli.seeding import say_bad_lines
from gossamer.cli.sharing import check_shared, servers
from gossamer.cli.terminal import say_rendered
from gossamer.cluster import Cluster, Servers, open_cluster
from gossamer.config.job_file import JobSpec
from gossamer.engine.loop import Ending
from gossamer.engine.run import Run, one_cause
from gossamer.engine.seeds import BadLines
from gossamer.errors import UsageError
from gossamer.frontier.postgres_jobs import list_jobs
from gossamer.frontier.redis_link import RedisLink
from gossamer.job_part import JobPart
from gossamer.observe.progress import Progress, make_progress
from gossamer.observe.summary import render_summary
from gossamer.parts import failpoint_from_environment, steady_clock
from gossamer.submission import make_job, submit


def run_shared(backends: Backends, spec: JobSpec, options: RunOptions) -> int:
    """Run a shared job to its end, with whoever else works on it, and return the exit code."""
    if options.fresh:
        raise UsageError("--fresh is for jobs in a folder; give the job another name")
    check_shared(spec, quiet=options.quiet)
    name = shared_job_name(options.job, spec)
    with one_cause():
        return uvloop.run(_run(servers(backends), name, spec, options))


#: What a person at the terminal should hear of, besides the progress.
_SAID = {
    f"{server}_{event}": f"{name} {text}"
    for server, name in (("postgres", "PostgreSQL"), ("redis", "Redis"))
    for event, text in (("lost", "does not answer; waiting for it"), ("back", "answers again"))
}
#: What a crawl that was told twice to stop has for it, should a server not answer.
_LAST_SECONDS = 5.0


class _Notes:
    """An event log for the progress display: what the servers do. What becomes of pages is in the ledger."""

    def __init__(self) -> None:
        self.progress: Progress | None = None

    def write(self, event: str, /, **fields: object) -> None:
        """Show what is worth a note."""
        del fields
        if event in _SAID and self.progress is not None:
            self.progress.note(_SAID[event], "warning")


async def _check(cluster: Cluster, name: str) -> None:
    """Raise before a job is made or changed that could not be worked on now, and why."""
    for job in await list_jobs(cluster.pool, name):
        if job.paused or job.stopped:
            state = "stopped" if job.stopped else "paused"
            raise UsageError(f"job {name} is {state}: `gossamer resume {shlex.quote(name)}` lets it go on")
    link = RedisLink(cluster.servers.redis, random.random)
    await link.open()
    await link.close()


async def _run(where: Servers, name: str, spec: JobSpec, options: RunOptions) -> int:
    clock, notes = steady_clock(), _Notes()
    async with open_cluster(where, clock, failpoint_from_environment(), notes, patient=True) as cluster:
        await _check(cluster, name)
        job = await make_job(cluster, name, spec)
        async with JobPart.open(cluster, job, outputs=spec.outputs) as part:
            progress = make_progress(
                options.progress,
                job=name,
                max_pages=spec.settings.limits.max_pages,
                quiet=options.quiet,
                verbose=options.verbose,
            )
            notes.progress = progress
            resume_command = command_line_of(f"gossamer resume {shlex.quote(name)}")

            def leave() -> None:
                progress.note(f"stopped without the servers; go on with: {resume_command}", "warning")
                progress.__exit__(None, None, None)
                os._exit(run.signal_code)

            run = Run(
                part.loop,
                part.ledger.counts,
                part.standing.pages,
                clock,
                lambda: asyncio.get_running_loop().call_later(_LAST_SECONDS, leave),
            )
            with progress:
                ending, bad_lines = await _work(cluster, part, run, progress)
                snapshot = await run.snapshot()
                progress.update(snapshot)
            say_bad_lines(bad_lines)
            if not options.quiet and options.progress != "json":
                say_rendered(
                    render_summary(
                        snapshot,
                        job=name,
                        ending=str(ending),
                        outputs=part.outputs.written(),
                        resume_command=resume_command,
                        place="",
                        stream=sys.stderr,
                    )
                )
        if ending is Ending.INTERRUPTED:
            return run.signal_code or 130
        listing = f"gossamer urls {shlex.quote(name)}"
        check_outcome(
            snapshot.states,
            options,
            lambda label, _reason: ("", f"{listing} --state {label}"),
            done=ending is Ending.DONE,
        )
        return 0


async def _work(cluster: Cluster, part: JobPart, run: Run, progress: Progress) -> tuple[Ending, BadLines]:
    """Work while the seeds are still being added: others may begin with them too. Returns what of the input was none."""
    async with asyncio.TaskGroup() as group:
        seeding = group.create_task(submit(cluster, part.job, lambda _count: None), name="submit")
        ending = await part.watched(lambda: run.watched(progress))
        seeding.cancel()
    return ending, BadLines() if seeding.cancelled() else seeding.result().bad_lines
