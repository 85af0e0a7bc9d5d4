"""The settings of a process that shares jobs, and of no job: how it reaches Redis and PostgreSQL.

They are spelled as all settings are: `--redis-timeout`, `redis_timeout`, `GOSSAMER_REDIS_TIMEOUT`. A job does not keep
them: each process that works on it, and each command that steers it, has its own.
"""

from __future__ import annotations

from functools import cache

from gossamer.config.postgres import PostgresLimits
from gossamer.config.redis import RedisSettings
from gossamer.config.settings import Setting, settings_of

SECTIONS: tuple[tuple[str, type[RedisSettings | PostgresLimits]], ...] = (
    ("redis", RedisSettings),
    ("postgres", PostgresLimits),
)


@cache
def every_server_setting() -> tuple[Setting, ...]:
    """List all settings of processes in the order they are declared."""
    return tuple(setting for name, section in SECTIONS for setting in settings_of(name, section))
