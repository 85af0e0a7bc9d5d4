"""`resume` of a shared job: it goes on with its workers, and with other limits and rates where flags give them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gossamer.cli.backends import Backends
from gossamer.cli.control_commands import steer_shared
from gossamer.cluster import job_spec
from gossamer.config.settings import Settings
from gossamer.errors import UsageError
from gossamer.frontier.postgres_jobs import open_job
from gossamer.frontier.postgres_ledger import PostgresLedger
from gossamer.frontier.postgres_pool import PostgresPool
from gossamer.submission import change_job


def resume_shared(
    job: str, backends: Backends, outputs: tuple[str, ...], changed: Callable[[dict[str, Any]], Settings]
) -> None:
    """Give a job back to its workers. `changed` makes its new settings of those it has, by their words."""
    if outputs:
        raise UsageError(
            f"workers write no files: `gossamer export {shlex.quote(job)} -o {shlex.quote(outputs[0])}` does, at any time"
        )

    async def change(pool: PostgresPool) -> None:
        row = await open_job(pool, job)
        before = job_spec(row)
        spec = replace(before, settings=changed(before.settings_words()))
        if differences := spec.differences(before.to_toml()):
            raise UsageError(f"this cannot change when a job is resumed: {'; '.join(differences)}")
        await change_job(pool, PostgresLedger(pool, row.id, time.time), row, spec)

    steer_shared(job, "resume", backends, change)
