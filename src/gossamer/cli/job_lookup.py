"""Finding a job in a folder by name or path, what its frozen settings say about URLs, and who works on it."""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, get_args

from gossamer.cli.terminal import escape
from gossamer.config.job_file import JobSpec, read_job_file, spec_of
from gossamer.config.settings import ScopeName, ScopeSettings
from gossamer.errors import UsageError
from gossamer.frontier.answers import AuditReader, JobReader
from gossamer.frontier.job_folder import JobFolder
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.model.outcome import Revival
from gossamer.model.url import UrlPolicy

if TYPE_CHECKING:
    from gossamer.frontier.sqlite_audit import SqliteAuditReader


class Job(Protocol):
    """A job that a command was asked about, wherever it is kept."""

    @property
    def word(self) -> str:
        """How the user named it, for commands we suggest."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other jobs are in the same ledger."""
        ...

    def reader(self) -> JobReader:
        """Open the ledger for questions. Raises `LedgerFailed`."""
        ...

    def audit_reader(self) -> AuditReader:
        """Open the ledger for an audit. Raises `LedgerFailed`."""
        ...

    def words(self) -> Mapping[str, object]:
        """Return its frozen settings as they are written down, by the words of the command line."""
        ...

    def spec(self) -> JobSpec:
        """Return the job as it was asked for. Raises `UsageError`."""
        ...

    def standing(self, reader: JobReader) -> str:
        """Say in a word where it stands."""
        ...

    def workers(self) -> str:
        """Say who works on it."""
        ...

    def seeding(self, reader: JobReader) -> str:
        """Say how far seeding has come, and what to do where it was cut off."""
        ...

    def facts(self) -> tuple[str, ...]:
        """Return what a list of jobs shows of it besides its numbers: for `Place.columns`."""
        ...

    def revive(self, which: Revival) -> int:
        """Queue URLs again; returns how many. Raises `JobBusy` where that must not be now."""
        ...

    def continuation(self) -> str:
        """Say how URLs that were queued again come to be fetched."""
        ...


class Place(Protocol):
    """Where jobs are kept: a folder, or a database."""

    @property
    def name(self) -> str:
        """What people call it; it may hold anything."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """What `Job.facts` are called."""
        ...

    def jobs(self) -> Sequence[Job]:
        """Return every job, by name."""
        ...

    def find(self, word: str) -> Job:
        """Return the job of that name. Raises `UsageError` naming the nearest."""
        ...


@dataclass(frozen=True, slots=True)
class NamedJob:
    """Implements `Job` for one that exists on disk."""

    folder: JobFolder
    word: str
    is_shared: bool = False

    def reader(self) -> SqliteReader:
        """Open the ledger for questions. Raises `LedgerFailed`."""
        return SqliteReader(self.folder.ledger)

    def audit_reader(self) -> SqliteAuditReader:
        """Open the ledger for an audit. Raises `LedgerFailed`."""
        from gossamer.frontier.sqlite_audit import SqliteAuditReader  # noqa: PLC0415 - most commands ask less

        return SqliteAuditReader(self.folder.ledger)

    def words(self) -> Mapping[str, object]:
        """Return what `job.toml` says; nothing where there is none."""
        path = self.folder.job_file
        return read_job_file(path) if path.exists() else {}

    def spec(self) -> JobSpec:
        """Return the job that `job.toml` describes."""
        return spec_of(self.folder.job_file)

    def standing(self, reader: JobReader) -> str:
        """Say in a word where it stands."""
        paused = bool(reader.meta().get("paused"))
        if job_is_locked(self.folder.path) is not None:
            return "paused" if paused else "running"
        if reader.is_drained():
            return "done"
        return "paused" if paused else "resumable"

    def workers(self) -> str:
        """Name the process that holds the lock."""
        holder = job_is_locked(self.folder.path)
        return "no process works on it" if holder is None else f"process {holder or 'unknown'} works on it"

    def seeding(self, reader: JobReader) -> str:
        """Say how far seeding has come; a resume goes on with it."""
        return seeding_text(reader.meta())

    def facts(self) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def revive(self, which: Revival) -> int:
        """Queue URLs again, under the lock of the job."""
        from gossamer.cli.reviving import revive_local  # noqa: PLC0415 - most commands change nothing

        with self.folder.locked():
            return revive_local(self.folder, which)

    def continuation(self) -> str:
        """Name the commands that go on."""
        name = shlex.quote(self.word)
        return f"`gossamer resume {name}`, or the same `gossamer crawl --job {name} …`, continues."


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """Implements `Place` for a folder of jobs."""

    jobs_dir: Path
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The path of the folder."""
        return str(self.jobs_dir)

    def jobs(self) -> Sequence[Job]:
        """Return every job, by name."""
        return list_jobs(self.jobs_dir)

    def find(self, word: str) -> Job:
        """Return the job of that name, or else in the folder of that path."""
        return find_job(self.jobs_dir, word)


def seeding_text(meta: Mapping[str, str]) -> str:
    """Say how far seeding has come, as text that is safe to show."""
    progress = meta.get("seeding", "")
    return "all added" if progress == "closed" else f"not all added yet {escape(progress)}".rstrip()


def no_job(word: str, place: str, names: Iterable[str], elsewhere: str) -> UsageError:
    """Return the error for a name that no job has: it names the nearest, or else where to look."""
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone

    known = list(names)
    near = get_close_matches(word, known, 1, cutoff=0.5)
    if near:
        advice = f"did you mean {escape(near[0])}?"
    elif known:
        advice = "`gossamer jobs` lists those there are"
    else:
        advice = f"there are none; {elsewhere}"
    return UsageError(f"no job {escape(word)!r} in {escape(place)}: {advice}")


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What of a job's frozen settings decides which URLs are its own. Missing keys have their defaults."""

    scope: ScopeSettings
    urls: UrlPolicy
    follows_links: bool


def list_jobs(jobs_dir: Path) -> list[NamedJob]:
    """Return every job below a folder, by name; none where the folder does not exist."""
    try:
        paths = sorted(jobs_dir.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(
            f"the jobs folder {escape(str(jobs_dir))} cannot be read: {error.strerror}"
        ) from error
    return [NamedJob(JobFolder(path), path.name) for path in paths if _is_job(path)]


def find_job(jobs_dir: Path, word: str) -> NamedJob:
    """Return the job of that name, or else in the folder of that path. Raises `UsageError` naming the nearest."""
    for path in (jobs_dir / word, Path(word)):
        if word and _is_job(path):
            return NamedJob(JobFolder(path), word)
    names = [job.word for job in list_jobs(jobs_dir)]
    raise no_job(word, str(jobs_dir), names, "--jobs-dir names another folder")


def _is_job(path: Path) -> bool:
    folder = JobFolder(path)
    # os.path, not Path: a folder we may not look into is no job, and no error.
    return any(os.path.exists(file) for file in (folder.ledger, folder.job_file))  # noqa: PTH110


def read_settings(job: Job) -> JobSettings:
    """Return what a job's settings say about URLs. A missing key means the default; other keys are ignored."""
    values = job.words()
    scope = ScopeSettings(
        scope="page" if values.get("mode") == "scrape" else _scope_name(values.get("scope")),
        include=_texts(values.get("include")),
        exclude=_texts(values.get("exclude")),
        shard=str(values.get("shard", "")),
    )
    urls = UrlPolicy(
        sort_query=values.get("sort_query", scope.sort_query) is True,
        strip_tracking=values.get("strip_tracking", scope.strip_tracking) is True,
        max_url_bytes=_count(values.get("max_url_bytes"), scope.max_url_bytes),
    )
    return JobSettings(scope, urls, follows_links=values.get("mode") != "scrape")


def _scope_name(value: object) -> ScopeName:
    for name in get_args(ScopeName):
        if name == value:
            return cast("ScopeName", name)
    return "host"


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def job_is_locked(folder: Path) -> int | None:
    """Return the process id of whoever works on the job, 0 where it left none, or None where nobody does.

    The probe takes a shared lock for an instant: probes do not disturb each other.
    """
    try:
        handle = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _pid(os.read(handle, 32))
    else:
        return None
    finally:
        os.close(handle)


def _pid(text: bytes) -> int:
    text = text.strip()
    return int(text) if text.isdigit() else 0
