"""Finding a job by name or path, what its frozen settings say about URLs, and who works on it."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import cast, get_args

from gossamer.cli.terminal import escape
from gossamer.config.job_file import read_job_file
from gossamer.config.settings import ScopeName, ScopeSettings
from gossamer.errors import UsageError
from gossamer.frontier.job_folder import JobFolder
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.model.url import UrlPolicy


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job that exists on disk. `word` is how the user named it, for commands we suggest."""

    folder: JobFolder
    word: str

    def reader(self) -> SqliteReader:
        """Open the ledger for questions. Raises `LedgerFailed`."""
        return SqliteReader(self.folder.ledger)


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
    near = get_close_matches(word, names, 1, cutoff=0.5)
    if near:
        advice = f"did you mean {escape(near[0])}?"
    elif names:
        advice = "`gossamer jobs` lists those there are"
    else:
        advice = "there are none; --jobs-dir names another folder"
    raise UsageError(f"no job {escape(word)!r} in {escape(str(jobs_dir))}: {advice}")


def _is_job(path: Path) -> bool:
    folder = JobFolder(path)
    # os.path, not Path: a folder we may not look into is no job, and no error.
    return any(os.path.exists(file) for file in (folder.ledger, folder.job_file))  # noqa: PTH110


def read_settings(job: NamedJob) -> JobSettings:
    """Read what `job.toml` says about URLs. A missing file or key means the default; other keys are ignored."""
    path = job.folder.job_file
    values = read_job_file(path) if path.exists() else {}
    scope = ScopeSettings(
        scope=_scope_name(values.get("scope")),
        include=_texts(values.get("include")),
        exclude=_texts(values.get("exclude")),
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
