"""Where a command finds its job: in a folder, or on the servers that `--redis` and `--postgres` name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gossamer.cli.job_lookup import FolderPlace, Place
from gossamer.errors import UsageError

redis_option = click.option(
    "--redis",
    "redis_url",
    envvar="GOSSAMER_REDIS",
    metavar="URL",
    help="the Redis that shared jobs are scheduled by (redis://HOST:PORT/DB)",
)
postgres_option = click.option(
    "--postgres",
    "postgres_url",
    envvar="GOSSAMER_POSTGRES",
    metavar="URL",
    help="the database that holds shared jobs (postgresql://USER@HOST/NAME)",
)
_jobs_dir_option = click.option(
    "--jobs-dir",
    type=click.Path(path_type=Path),
    default=Path("gossamer-jobs"),
    envvar="GOSSAMER_JOBS_DIR",
    show_default=True,
    metavar="DIR",
    help="folder of the jobs",
)


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--jobs-dir` and `--postgres`, and call it with the `place` they name.

    A database wins over a folder, but not where it is only in the environment and the folder is on the command line.
    """

    @_jobs_dir_option
    @postgres_option
    @wraps(command)
    def placed(jobs_dir: Path, postgres_url: str | None, **values: Any) -> Any:
        return command(**values, place=_chosen(click.get_current_context(), jobs_dir, postgres_url))

    return placed


def _chosen(context: click.Context, jobs_dir: Path, postgres_url: str | None) -> Place:
    if not postgres_url:
        return FolderPlace(jobs_dir)
    on_line = {
        name
        for name in ("jobs_dir", "postgres_url")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if len(on_line) > 1:
        raise UsageError("--jobs-dir and --postgres name two places: a job is in one of them")
    if "jobs_dir" in on_line:
        return FolderPlace(jobs_dir)
    from gossamer.cli.shared_jobs import DatabasePlace  # noqa: PLC0415 - only those who share jobs pay for it

    place = DatabasePlace(postgres_url)
    context.call_on_close(place.close)
    return place
