"""Whether this machine and the servers will do: facts in, checks out, each with its verdict and its remedy."""

from __future__ import annotations

import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Literal

import msgspec

from gossamer.errors import BackendUnreachable, GossamerError
from gossamer.model.server import ClockReading, PostgresFacts, RedisFacts, evicts
from gossamer.observe.wording import bytes_text
from gossamer.version import VERSION

Verdict = Literal["ok", "warn", "fail"]

_OLDEST_PYTHON = (3, 11)
_OLDEST_POSTGRES = 150_000
_OLDEST_REDIS = 7
_MAX_SKEW_SECONDS = 1.0
#: A commit takes a few round trips, a lease takes one.
_MAX_ROUND_TRIP_SECONDS = 0.02
_MAX_MEMORY_SHARE = 0.8
_MIN_FILES = 1024
_MIN_FREE_BYTES = 1_000_000_000
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)\Z")
_WRITABLE = "name the primary, and a user who may write"
#: What helps against a Redis that refuses writes for a while, by the first word of what it says.
_REFUSALS = {
    "MISCONF": "make room on its disk, then redis-cli BGSAVE",
    "NOREPLICAS": "start its replicas, or lower min-replicas-to-write",
}
#: What must be there for each extra.
EXTRAS = {"redis": ("redis", "hiredis"), "postgres": ("psycopg", "sqlalchemy", "alembic")}


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    #: What was seen.
    found: str
    #: What to do; empty where all is well.
    remedy: str = ""
    #: It is a server that did not answer.
    unreachable: bool = False


def exit_code(checks: Sequence[Check]) -> int:
    """Return 0 if nothing failed, 6 if a server did not answer, else 2."""
    if any(check.unreachable for check in checks):
        return BackendUnreachable.exit_code
    return 2 if any(check.verdict == "fail" for check in checks) else 0


# -- this machine --------------------------------------------------------------------------------------


def check_machine(jobs_dir: Path, needed: Sequence[str]) -> Iterator[Check]:
    """Look at Python, packages, limits and the jobs folder. `needed` names the extras that must be there."""
    yield check_python(sys.version_info[:3])
    yield check_packages()
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if util.find_spec(module) is None]
        yield check_extra(extra, missing, is_needed=extra in needed)
    yield check_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield check_jobs_dir(jobs_dir)


def check_python(version: tuple[int, ...]) -> Check:
    """Judge the version of Python."""
    found = f"{'.'.join(map(str, version))}, Gossamer {VERSION}"
    if version[:2] < _OLDEST_PYTHON:
        return Check("python", "fail", found, "install Python 3.11 or newer")
    return Check("python", "ok", found)


def check_packages() -> Check:
    """Compare what is installed with what this version asks for."""
    try:
        wanted = metadata.requires("gossamer") or []
    except metadata.PackageNotFoundError:
        return Check("packages", "warn", "Gossamer is not installed as a package", "pip install gossamer")
    old = [problem for requirement in wanted if (problem := _too_old(requirement))]
    if old:
        return Check("packages", "fail", ", ".join(old), "pip install --upgrade gossamer")
    return Check("packages", "ok", "all there, none too old")


def _too_old(requirement: str) -> str:
    """Say what is wrong with a package; empty for one that will do, and for those of extras."""
    match = _REQUIREMENT.match(requirement.strip())
    if match is None:
        return ""
    name, least = match.groups()
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is missing"
    return f"{name} {version} is older than {least}" if _numbers(version) < _numbers(least) else ""


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def check_extra(extra: str, missing: Sequence[str], *, is_needed: bool) -> Check:
    """Judge whether an extra is installed; one that nobody needs may be missing."""
    name = f"extra {extra}"
    if not missing:
        return Check(name, "ok", "installed")
    remedy = f"pip install 'gossamer[{extra}]'"
    return Check(name, "fail" if is_needed else "warn", f"without {', '.join(missing)}", remedy)


def check_files(limit: int) -> Check:
    """Judge how many files and connections a process may have open."""
    if limit == resource.RLIM_INFINITY:
        return Check("open files", "ok", "without limit")
    if limit < _MIN_FILES:
        return Check("open files", "warn", f"at most {limit:,}", f"ulimit -n {4 * _MIN_FILES}")
    return Check("open files", "ok", f"at most {limit:,}")


def check_jobs_dir(jobs_dir: Path) -> Check:
    """Judge whether jobs can be made in a folder, by writing a file and taking it back."""
    place = jobs_dir.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place, prefix=".doctor-") as trial:
            trial.write(b"trial")
            trial.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        why = f"{jobs_dir} cannot be written: {error.strerror}"
        return Check("jobs folder", "fail", why, "name another with --jobs-dir, or change its permissions")
    found = f"{jobs_dir} can be written, {bytes_text(free)} free"
    if free < _MIN_FREE_BYTES:
        return Check("jobs folder", "warn", found, "make room")
    return Check("jobs folder", "ok", found)


# -- servers -------------------------------------------------------------------------------------------


def check_absence(name: str, error: GossamerError) -> Check:
    """Report a server that could not be looked at."""
    unreachable = isinstance(error, BackendUnreachable)
    # Our errors say what happened and, behind the last colon, what to do.
    found, _, remedy = str(error).rpartition(": ")
    return Check(name, "fail", found or remedy, remedy if found else "", unreachable)


def check_postgres(facts: PostgresFacts, version: str) -> Iterator[Check]:
    """Judge a PostgreSQL. `version` is that of the tables this program works with."""
    name = "postgres"
    if facts.version_number < _OLDEST_POSTGRES:
        yield Check(name, "fail", f"version {facts.version}", "use PostgreSQL 15 or newer")
    else:
        yield Check(name, "ok", f"version {facts.version}")
    yield _schema(facts.schema_version, version)
    if facts.unwritable:
        yield Check(f"{name} writes", "fail", facts.unwritable, _WRITABLE)
    else:
        yield Check(f"{name} writes", "ok", "this user may write")
    yield _distance(name, facts.clock)


def _schema(found: str, wanted: str) -> Check:
    name = "postgres tables"
    if found == wanted:
        return Check(name, "ok", f"version {found}")
    if not found or found < wanted:
        seen = f"version {found}, wanted {wanted}" if found else "none yet"
        return Check(name, "fail", seen, "gossamer db upgrade")
    return Check(name, "fail", f"version {found}, newer than {wanted}", "upgrade Gossamer on this machine")


def check_redis(facts: RedisFacts) -> Iterator[Check]:
    """Judge a Redis or a Valkey."""
    name, seen = "redis", f"{facts.product} {facts.version}"
    if int(facts.version.partition(".")[0] or 0) < _OLDEST_REDIS:
        yield Check(name, "fail", seen, f"use version {_OLDEST_REDIS}.0 or newer, or Valkey")
    else:
        yield Check(name, "ok", seen)
    yield _eviction(facts)
    if facts.appends_to_file:
        yield Check("redis persistence", "ok", "appendonly is on")
    else:
        yield Check(
            "redis persistence",
            "warn",
            "appendonly is off: after a restart the schedule is built anew, and every host waits a delay",
            "redis-cli CONFIG SET appendonly yes",
        )
    yield _memory(facts)
    yield _cluster(facts.cluster)
    if not facts.cluster:
        yield _redis_writes(facts)
    yield _distance(name, facts.clock)


def _redis_writes(facts: RedisFacts) -> Check:
    name = "redis writes"
    if facts.is_full:
        why = "it is full: what it has is worked on, new hosts and URLs have to wait"
        remedy = (
            f"redis-cli CONFIG SET maxmemory {2 * facts.max_memory_bytes}, or wait until workers made room"
        )
        return Check(name, "fail", why, remedy)
    if facts.unwritable:
        return Check(name, "fail", facts.unwritable, _REFUSALS.get(facts.unwritable.split()[0], _WRITABLE))
    return Check(name, "ok", "this user may write and run scripts")


def _eviction(facts: RedisFacts) -> Check:
    name, found = "redis eviction", f"maxmemory-policy is {facts.policy}"
    if evicts(facts.policy, facts.max_memory_bytes):
        why = f"{found}: it would forget who was asked when"
        return Check(name, "fail", why, "redis-cli CONFIG SET maxmemory-policy noeviction")
    return Check(name, "ok", found)


def _memory(facts: RedisFacts) -> Check:
    name, used, limit = "redis memory", facts.used_memory_bytes, facts.max_memory_bytes
    if not limit:
        return Check(name, "ok", f"{bytes_text(used)} used, no limit")
    found = f"{bytes_text(used)} of {bytes_text(limit)} used"
    if used > _MAX_MEMORY_SHARE * limit:
        return Check(name, "warn", found, f"redis-cli CONFIG SET maxmemory {2 * limit}")
    return Check(name, "ok", found)


def _cluster(state: str) -> Check:
    name = "redis cluster"
    if not state:
        return Check(name, "ok", "a single server")
    if state != "ok":
        return Check(name, "fail", f"cluster mode, state {state}", "redis-cli --cluster fix HOST:PORT")
    return Check(name, "ok", "cluster mode, state ok; the other lines are about this node alone")


def _distance(name: str, clock: ClockReading) -> Check:
    found = f"{clock.round_trip * 1000:.2f} ms, the median of a round trip"
    if clock.round_trip > _MAX_ROUND_TRIP_SECONDS:
        return Check(f"{name} distance", "warn", found, "run workers nearer to it")
    return Check(f"{name} distance", "ok", found)


def check_clocks(ahead: dict[str, float]) -> Check:
    """Compare clocks: how far each server's is ahead of ours, in seconds."""
    found = ", ".join(f"{name} {seconds:+.3f} s" for name, seconds in ahead.items())
    all_clocks = [0.0, *ahead.values()]
    if max(all_clocks) - min(all_clocks) > _MAX_SKEW_SECONDS:
        return Check("clocks", "warn", f"{found} against this machine", "let all of them use NTP")
    return Check("clocks", "ok", f"{found} against this machine")
