"""Finding a job in a database by its name, where it stands, and who works on it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from gossamer.cli.job_lookup import Job, no_job, seeding_text
from gossamer.config.job_file import JobSpec, spec_from
from gossamer.config.postgres import PostgresLimits
from gossamer.errors import LedgerFailed
from gossamer.frontier.answers import JobReader
from gossamer.frontier.postgres_jobs import DEAD_SUBMIT_SECONDS, JobRow
from gossamer.frontier.postgres_moment import PostgresMoment, ReadLimits
from gossamer.frontier.postgres_reader import PostgresReader, read_jobs
from gossamer.model.outcome import Revival
from gossamer.observe.report import instant_text
from gossamer.observe.wording import counted

if TYPE_CHECKING:
    from gossamer.frontier.postgres_audit import PostgresAuditReader

#: A worker that has committed nothing for so long is not said to be at work.
_AT_WORK_SECONDS = 60.0
#: How long a command waits for a server that goes away while it changes something.
_PATIENCE_SECONDS = 10.0


class DatabasePlace:
    """Implements `Place` for a database. What it says is of one moment, until it is closed."""

    columns = ("created",)

    def __init__(self, dsn: str, limits: PostgresLimits) -> None:
        self._dsn = dsn
        self._limits = limits
        asking = ReadLimits(connect_seconds=limits.connect_seconds, grace_seconds=limits.grace_seconds)
        longest = max(asking.question_seconds, limits.statement_seconds)
        self._moment = PostgresMoment(dsn, replace(asking, question_seconds=longest))
        #: The server and database, without the password.
        self.name = self._moment.place

    def close(self) -> None:
        """Let go of the database."""
        self._moment.close()

    def jobs(self) -> Sequence[Job]:
        """Return every job, by name."""
        return [SharedJob(self._dsn, self._moment, row, self._limits) for row in read_jobs(self._moment)]

    def find(self, word: str) -> Job:
        """Return the job of that name."""
        found = self.jobs()
        for job in found:
            if job.word == word:
                return job
        raise no_job(word, self.name, (job.word for job in found), "--postgres names another database")


@dataclass(frozen=True, slots=True)
class SharedJob:
    """Implements `Job` for one in a database."""

    dsn: str
    moment: PostgresMoment
    row: JobRow
    limits: PostgresLimits
    is_shared: bool = True

    @property
    def word(self) -> str:
        """Its name."""
        return self.row.name

    def reader(self) -> PostgresReader:
        """Return answers of this moment."""
        return PostgresReader(self.moment, self.row.id)

    def audit_reader(self) -> PostgresAuditReader:
        """Return what an audit asks, of this moment."""
        from gossamer.frontier.postgres_audit import PostgresAuditReader  # noqa: PLC0415 - most commands ask less

        # A robots.txt may ask for a longer delay than the one that was kept.
        longest = self.spec().settings.politeness.max_crawl_delay_seconds
        return PostgresAuditReader(self.moment, self.row.id, reach_seconds=longest)

    def words(self) -> Mapping[str, object]:
        """Return its settings as they were submitted."""
        return self._settings()

    def spec(self) -> JobSpec:
        """Return the job as it was submitted."""
        return spec_from(self._settings())

    def _settings(self) -> dict[str, object]:
        try:
            return msgspec.json.decode(self.row.settings, type=dict[str, object])
        except msgspec.MsgspecError as error:
            raise LedgerFailed(
                f"the settings of job {self.row.name} at {self.moment.place} cannot be read ({error}): submit it again"
            ) from error

    def standing(self, reader: JobReader) -> str:
        """Say in a word where it stands."""
        if reader.is_drained():
            return "done"
        if self.row.stopped:
            return "stopped"
        if self.row.paused:
            return "paused"
        return "running" if self.row.seeding == "closed" else "seeding"

    def workers(self) -> str:
        """Count those that have committed something lately: of the others nobody knows whether they are there."""
        workers = self.reader().workers_since(time.time() - _AT_WORK_SECONDS)
        return f"{counted(workers, 'worker') if workers else 'no worker'} committed in the last minute"

    def seeding(self, reader: JobReader) -> str:
        """Say how far seeding has come, and whether whoever submits the job is still heard of."""
        meta = reader.meta()
        heard_at = _number(meta.get("seeding_at", ""), self.row.created_at)
        if self.row.seeding == "closed" or time.time() - heard_at <= DEAD_SUBMIT_SECONDS:
            return seeding_text(meta)
        return f"{seeding_text(meta)}: submit stopped half-way: submit it again to go on"

    def facts(self) -> tuple[str, ...]:
        """Return when it was submitted."""
        return (instant_text(self.row.created_at),)

    def revive(self, which: Revival) -> int:
        """Queue URLs again, whoever works on the job meanwhile."""
        from gossamer.cli.reviving import revive_shared  # noqa: PLC0415 - most commands change nothing

        limits = replace(self.limits, connections=1, patience_seconds=_PATIENCE_SECONDS)
        return revive_shared(self.dsn, limits, self.row.id, which)

    def continuation(self) -> str:
        """Say whether workers may take the URLs up."""
        if self.row.stopped or self.row.paused:
            return f"The job is {'stopped' if self.row.stopped else 'paused'}: no worker takes them up before it is resumed."
        return "Workers take them up by themselves; `gossamer worker` starts one."


def _number(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise
