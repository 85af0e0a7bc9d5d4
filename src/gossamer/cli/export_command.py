"""`export`: the records of jobs in another form, without a request."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop

from gossamer.asking import check_fields
from gossamer.cli.backends import (
    Backends,
    backends_from,
    config_option,
    jobs_dir_option,
    postgres_option,
)
from gossamer.cli.job_lookup import find_job
from gossamer.cli.options import GroupedCommand, SettingOption, given, options, server_flags
from gossamer.cli.terminal import escape, say, say_over
from gossamer.config.load import load_settings
from gossamer.config.settings import every_setting
from gossamer.errors import UsageError
from gossamer.frontier.postgres_jobs import open_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.frontier.postgres_schema import check_version
from gossamer.frontier.sqlite_log import SqliteLog
from gossamer.observe.wording import counted
from gossamer.sinks.consumer import ReadLog
from gossamer.sinks.export import export as write_out
from gossamer.sinks.export import export_target

#: The settings of records that still matter when they are written.
_WORDS = frozenset({"fields", "csv_escape"})
_FIRST_WORD_SECONDS = 2.0
#: Between two lines about progress, where they stay in a log.
_LOGGED_SECONDS = 10.0


@click.command(cls=GroupedCommand)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB…")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    required=True,
    metavar="PATH",
    help="write records here: .jsonl or .csv, also with .gz or .zst, or - (repeatable)",
)
@options(postgres_option, jobs_dir_option, config_option)
@click.option("-q", "--quiet", is_flag=True, help="say nothing but errors")
@server_flags("postgres", advanced=True)
def export(
    jobs: tuple[str, ...],
    outputs: tuple[str, ...],
    jobs_dir: Path,
    quiet: bool,
    **values: Any,
) -> None:
    """Write the records of a job to new files. Of several jobs, each URL is written once."""
    config = values["config"]
    record = load_settings(given(values), os.environ, Path(config) if config else None)[0].record
    backends = backends_from({**values, "redis_url": None})
    check_fields(record.fields)
    if len({*jobs}) < len(jobs):
        raise UsageError("a job is named twice: name each once")
    targets = [
        export_target(path, fields=record.fields, csv_escape=record.csv_escape)
        for path in dict.fromkeys(outputs)
    ]
    progress = _Progress(quiet=quiet)

    async def run() -> int:
        async with _logs(jobs, backends, jobs_dir) as logs:
            return await write_out(logs, targets, progress)

    written = uvloop.run(run())
    progress.end()
    if not quiet:
        names = ", ".join(escape(target.output) for target in targets)
        say(f"{counted(written, 'record')} written to {names}")


export.params += [SettingOption(setting=setting) for setting in every_setting() if setting.word in _WORDS]


@asynccontextmanager
async def _logs(jobs: tuple[str, ...], backends: Backends, jobs_dir: Path) -> AsyncIterator[list[ReadLog]]:
    if backends.postgres:
        await asyncio.to_thread(check_version, backends.postgres)
        pool = PostgresPool(backends.postgres, replace(backends.limits, connections=1))
        try:
            rows = [await open_job(pool, name) for name in jobs]
            yield [PostgresLedger(pool, row.id, time.time).log for row in rows]
        finally:
            await pool.close()
        return
    async with AsyncExitStack() as stack:
        logs: list[ReadLog] = []
        for word in jobs:
            log = SqliteLog(find_job(jobs_dir, word).folder.ledger)
            stack.push_async_callback(log.close)
            logs.append(log.log)
        yield logs


class _Progress:
    """Says how far it is when it takes long: on a terminal in one line, elsewhere now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._on_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._due = time.monotonic() + _FIRST_WORD_SECONDS
        self._shown = False

    def __call__(self, records: int) -> None:
        if self._quiet or time.monotonic() < self._due:
            return
        text = f"{counted(records, 'record')} written so far"
        if self._on_terminal:
            self._shown = True
            say_over(text)
        else:
            say(text)
        self._due = time.monotonic() + (0.5 if self._on_terminal else _LOGGED_SECONDS)

    def end(self) -> None:
        """Take back what stands on the terminal."""
        if self._shown:
            say_over("")


COMMANDS: list[click.Command] = [export]
