"""What may be visited for a job, wherever its roots are kept: in a file of its folder, or in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from gossamer.config.job_file import JobSpec, spec_from, spec_of
from gossamer.frontier.job_folder import JobFolder
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.policy.scope import Scope


def folder_scope(spec: JobSpec, folder: JobFolder, roots: Iterable[str] = ()) -> Scope:
    """Return the scope of a job in a folder. `scrape` follows nothing, so it needs no roots."""
    if spec.mode == "scrape":
        return Scope(replace(spec.settings.scope, scope="page"))
    return Scope(spec.settings.scope, roots, LazyRoots(folder.ledger).is_root)


class LazyRoots:
    """Asks the ledger for roots; opens it at the first question, which few jobs ever ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: SqliteReader | None = None

    def is_root(self, root: str) -> bool:
        """Say whether the root spans the scope."""
        if self._reader is None:
            self._reader = SqliteReader(self._path)
        return self._reader.is_root(root)


def shared_scope(
    spec: JobSpec, roots: Iterable[str] = (), is_root: Callable[[str], bool | None] | None = None
) -> Scope:
    """Return the scope of a shared job. `scrape` follows nothing: anything is within it."""
    if spec.mode == "scrape":
        return Scope(replace(spec.settings.scope, scope="any"))
    return Scope(spec.settings.scope, roots, is_root)


class SharedBrief(msgspec.Struct, frozen=True):
    """What a process must know to visit pages of a shared job: what was asked for. It talks to its parent alone."""

    settings: str


def folder_job(job_file: Path) -> tuple[JobSpec, Scope]:
    """Return the job of a folder, and its scope without roots."""
    spec = spec_of(job_file)
    return spec, folder_scope(spec, JobFolder(job_file.parent))


def shared_job(brief: SharedBrief) -> tuple[JobSpec, Scope]:
    """Return a shared job, and its scope without roots. Of those it is not told it is unsure: its parent decides."""
    spec = spec_from(msgspec.json.decode(brief.settings, type=dict))
    return spec, shared_scope(spec, (), lambda _root: None)
