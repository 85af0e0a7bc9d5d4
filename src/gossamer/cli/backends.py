"""Where a command finds its job: in a folder, or on the servers that `--redis` and `--postgres` name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gossamer.cli.options import given_servers, server_flags
from gossamer.config.load import load_servers
from gossamer.config.postgres import PostgresLimits
from gossamer.config.redis import RedisSettings
from gossamer.config.servers import every_server_setting
from gossamer.errors import UsageError

if TYPE_CHECKING:
    from gossamer.cli.job_lookup import Place

redis_option = click.option(
    "--redis",
    "redis_url",
    envvar="GOSSAMER_REDIS",
    metavar="URL",
    help="the Redis that shared jobs are scheduled by (redis://HOST:PORT/DB, or any node of a cluster)",
)
postgres_option = click.option(
    "--postgres",
    "postgres_url",
    envvar="GOSSAMER_POSTGRES",
    metavar="URL",
    help="the database that holds shared jobs (postgresql://USER@HOST/NAME)",
)
config_option = click.option(
    "--config", metavar="FILE", envvar="GOSSAMER_CONFIG", help="settings from a TOML file"
)
jobs_dir_option = click.option(
    "--jobs-dir",
    type=click.Path(path_type=Path),
    default=Path("gossamer-jobs"),
    envvar="GOSSAMER_JOBS_DIR",
    show_default=True,
    metavar="DIR",
    help="folder of the jobs",
)


@dataclass(frozen=True, slots=True)
class Backends:
    """The servers that a command was told of, and how it reaches them."""

    #: The address of the database; empty where none was named.
    postgres: str
    #: None where no Redis was named.
    redis: RedisSettings | None
    limits: PostgresLimits

    def database(self) -> str:
        """Return the address of the database. Raises `UsageError` where none was named."""
        return named_database(self.postgres)

    def both(self) -> tuple[str, RedisSettings]:
        """Return the database and the Redis of shared jobs. Raises `UsageError` where one was not named."""
        if not self.postgres or self.redis is None:
            missing = "--redis (GOSSAMER_REDIS)" if self.postgres else "--postgres (GOSSAMER_POSTGRES)"
            raise UsageError(f"shared jobs need a database and a Redis: {missing} is not given")
        return self.postgres, self.redis


def named_database(postgres_url: str | None) -> str:
    """Return the address of a database. Raises `UsageError` where there is none."""
    if not postgres_url:
        raise UsageError("which database? name it with --postgres URL, or in GOSSAMER_POSTGRES")
    return postgres_url


def backends_from(values: dict[str, Any]) -> Backends:
    """Return the servers that a command line names. Raises `UsageError` for settings that do not fit."""
    config = values["config"]
    redis, limits = load_servers(given_servers(values), os.environ, Path(config) if config else None)
    url = values["redis_url"]
    return Backends(values["postgres_url"] or "", replace(redis, url=url) if url else None, limits)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--redis`, `--postgres` and how they are reached, and call it with the `backends` they name."""

    @redis_option
    @postgres_option
    @config_option
    @server_flags("redis", "postgres")
    @wraps(command)
    def reached(**values: Any) -> Any:
        return command(**_own(values), backends=backends_from(values))

    return reached


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--jobs-dir` and `--postgres`, and call it with the `place` they name.

    A database wins over a folder, but not where it is only in the environment and the folder is on the command line.
    """

    @jobs_dir_option
    @postgres_option
    @config_option
    @server_flags("postgres", advanced=True)
    @wraps(command)
    def placed(**values: Any) -> Any:
        place = place_from(values)
        del values["jobs_dir"]
        return command(**_own(values), place=place)

    return placed


def _own(values: dict[str, Any]) -> dict[str, Any]:
    """Return what is the command's own business."""
    shared = {
        "redis_url",
        "postgres_url",
        "config",
        *(setting.word for setting in every_server_setting()),
    }
    return {name: value for name, value in values.items() if name not in shared}


def place_from(values: dict[str, Any]) -> Place:
    """Return the place that `--jobs-dir` and `--postgres` name; a database is connected to until the command ends."""
    # Each is loaded by those alone who have such jobs.
    from gossamer.cli.job_lookup import FolderPlace  # noqa: PLC0415

    context, jobs_dir = click.get_current_context(), values["jobs_dir"]
    if not values["postgres_url"]:
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
    from gossamer.cli.shared_jobs import DatabasePlace  # noqa: PLC0415

    backends = backends_from({**values, "redis_url": None})
    place = DatabasePlace(backends.postgres, backends.limits)
    context.call_on_close(place.close)
    return place
