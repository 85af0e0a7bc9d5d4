"""A job on disk: its folder, its lock, its files."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from gossamer.config.job_file import JobSpec, read_job_file, write_job_file
from gossamer.errors import JobBusy, LedgerFailed, OutputFailed, UsageError
from gossamer.frontier.sqlite_schema import connect_readonly


class JobFolder:
    """`gossamer-jobs/<job>/` and what lies in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = path / "ledger.sqlite"
        self.job_file = path / "job.toml"
        self.report = path / "report.json"
        self.log = path / "log.jsonl"
        #: Shared with the jobs beside it.
        self.host_clocks = path.parent / ".host-clocks"

    @property
    def name(self) -> str:
        """The job's name."""
        return self.path.name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the job alone. Raises `JobBusy` while another process does; the lock dies with its holder."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OutputFailed(f"the job folder {self.path} cannot be written: {error.strerror}") from error
        try:
            try:
                _lock(handle)
            except OSError as error:
                holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
                raise JobBusy(
                    f"job {self.name} is being worked on by process {holder}; wait for it or stop it"
                ) from error
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def prepare(self, spec: JobSpec, *, fresh: bool) -> bool:
        """Make the job, or check that it is the same one; returns whether it existed. Call under the lock."""
        try:
            if fresh:
                self._clear(set(spec.outputs) & self._owned_outputs())
            existed = self.job_file.exists()
            if existed:
                self._check_same(spec)
            write_job_file(self.job_file, spec)
        except OSError as error:
            raise OutputFailed(f"the job folder {self.path} cannot be written: {error.strerror}") from error
        return existed

    def _check_same(self, spec: JobSpec) -> None:
        differences = spec.differences(read_job_file(self.job_file))
        if differences:
            raise UsageError(
                f"job {self.name} was made with other settings ({'; '.join(differences)}):"
                " use the same ones to resume it, another --job name, or --fresh to start over"
            )

    def _owned_outputs(self) -> set[str]:
        """Return the output files this job has written, by its ledger; none where that cannot be read."""
        with suppress(LedgerFailed, sqlite3.Error), closing(connect_readonly(self.ledger)) as db:
            return {row[0] for row in db.execute("SELECT output FROM cursors")}
        return set()

    def _clear(self, outputs: set[str]) -> None:
        """Remove the job's own files and the outputs it is to write anew, and nothing a user put beside them."""
        for output in outputs:
            if Path(output).is_file():
                Path(output).unlink()
        for name in (
            "ledger.sqlite",
            "ledger.sqlite-wal",
            "ledger.sqlite-shm",
            "job.toml",
            "report.json",
            "log.jsonl",
        ):
            (self.path / name).unlink(missing_ok=True)


def _lock(handle: int) -> None:
    """Take the lock; tries twice, because `status` holds it for an instant to see whether somebody works."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        time.sleep(0.05)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
