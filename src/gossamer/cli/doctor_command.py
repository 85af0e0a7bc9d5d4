"""`doctor`: whether this machine and the servers will do, and what to change where they will not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import click
import msgspec
import uvloop

from gossamer.cli.backends import postgres_option, redis_option
from gossamer.cli.terminal import escape, escape_json, write_lines
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


@click.command(short_help="check this machine and the servers of shared jobs")
@redis_option
@postgres_option
@click.option("--json", "as_json", is_flag=True, help="as JSON")
@click.option(
    "--jobs-dir",
    type=click.Path(path_type=Path),
    default=Path("gossamer-jobs"),
    envvar="GOSSAMER_JOBS_DIR",
    show_default=True,
    metavar="DIR",
    help="folder of the jobs",
)
def doctor(redis_url: str | None, postgres_url: str | None, as_json: bool, jobs_dir: Path) -> int:
    """Check this machine, and the servers that are named. Exits with 2 if something fails, 6 if a server is away."""
    checks = uvloop.run(_all_checks(redis_url or "", postgres_url or "", jobs_dir))
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


async def _all_checks(redis_url: str, postgres_url: str, jobs_dir: Path) -> list[Check]:
    named = {"redis": redis_url, "postgres": postgres_url}
    checks = list(check_machine(jobs_dir, [name for name, url in named.items() if url]))
    ahead: dict[str, float] = {}
    if postgres_url:
        checks += [check async for check in _postgres(postgres_url, ahead)]
    if redis_url:
        checks += [check async for check in _redis(redis_url, ahead)]
    if ahead:
        checks.append(check_clocks(ahead))
    return checks


async def _postgres(url: str, ahead: dict[str, float]) -> AsyncIterator[Check]:
    try:
        facts = await look_at_postgres(url)
    except GossamerError as error:
        yield check_absence("postgres", error)
        return
    ahead["PostgreSQL"] = facts.clock.ahead
    for check in check_postgres(facts, SCHEMA_VERSION):
        yield check


async def _redis(url: str, ahead: dict[str, float]) -> AsyncIterator[Check]:
    try:
        facts = await look_at_redis(url)
    except GossamerError as error:
        yield check_absence("redis", error)
        return
    ahead["Redis"] = facts.clock.ahead
    for check in check_redis(facts):
        yield check


COMMANDS: list[click.Command] = [doctor]
