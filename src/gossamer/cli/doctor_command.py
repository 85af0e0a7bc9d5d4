"""`doctor`: whether this machine and the servers will do, and what to change where they will not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import click
import msgspec
import uvloop

from gossamer.cli.backends import Backends, jobs_dir_option, server_options
from gossamer.cli.options import GroupedCommand
from gossamer.cli.terminal import escape, escape_json, write_lines
from gossamer.config.postgres import PostgresLimits
from gossamer.config.redis import RedisSettings
from gossamer.errors import GossamerError
from gossamer.frontier.postgres_facts import look_at_postgres
from gossamer.frontier.postgres_schema import VERSION as SCHEMA_VERSION
from gossamer.frontier.redis_facts import look_at_redis
from gossamer.observe.doctor import (
    Check,
    check_absence,
    check_clocks,
    check_machine,
    check_postgres,
    check_redis,
    exit_code,
)


@click.command(cls=GroupedCommand)
@click.option("--json", "as_json", is_flag=True, help="as JSON")
@jobs_dir_option
@server_options
def doctor(as_json: bool, jobs_dir: Path, backends: Backends) -> int:
    """Check this machine, and the servers that are named. Exits with 2 if something fails, 6 if a server is away."""
    checks = uvloop.run(_all_checks(backends, jobs_dir))
    if as_json:
        encoded = msgspec.json.format(msgspec.json.encode(checks), indent=2).decode()
        write_lines(escape_json(line) for line in encoded.split("\n"))
    else:
        width = max(len(check.name) for check in checks)
        write_lines(_line(check, width) for check in checks)
    return exit_code(checks)


def _line(check: Check, width: int) -> str:
    remedy = f"; remedy: {escape(check.remedy)}" if check.remedy else ""
    return f"{check.verdict:<4}  {check.name:<{width}}  {escape(check.found)}{remedy}"


async def _all_checks(backends: Backends, jobs_dir: Path) -> list[Check]:
    named = {"redis": backends.redis, "postgres": backends.postgres}
    checks = list(check_machine(jobs_dir, [name for name, server in named.items() if server]))
    ahead: dict[str, float] = {}
    if backends.postgres:
        checks += [check async for check in _postgres(backends.postgres, backends.limits, ahead)]
    if backends.redis:
        checks += [check async for check in _redis(backends.redis, ahead)]
    if ahead:
        checks.append(check_clocks(ahead))
    return checks


async def _postgres(url: str, limits: PostgresLimits, ahead: dict[str, float]) -> AsyncIterator[Check]:
    try:
        facts = await look_at_postgres(url, limits.connect_seconds)
    except GossamerError as error:
        yield check_absence("postgres", error)
        return
    ahead["PostgreSQL"] = facts.clock.ahead
    for check in check_postgres(facts, SCHEMA_VERSION):
        yield check


async def _redis(redis: RedisSettings, ahead: dict[str, float]) -> AsyncIterator[Check]:
    try:
        facts = await look_at_redis(redis.url, redis.timeout_seconds)
    except GossamerError as error:
        yield check_absence("redis", error)
        return
    ahead["Redis"] = facts.clock.ahead
    for check in check_redis(facts):
        yield check


COMMANDS: list[click.Command] = [doctor]
