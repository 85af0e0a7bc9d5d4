"""Settings from flags, environment and a TOML file, in that order of precedence, with the source of each value."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gossamer.config import hosts as host_tables
from gossamer.config import servers
from gossamer.config import settings as sections
from gossamer.config.nearest import suggestion
from gossamer.config.postgres import PostgresLimits
from gossamer.config.redis import MAX_PARTITIONS, RedisSettings
from gossamer.config.servers import every_server_setting
from gossamer.config.settings import Setting, Settings, every_setting
from gossamer.errors import UsageError

PREFIX = "GOSSAMER_"
#: Variables with our prefix that are no settings.
NOT_SETTINGS = frozenset(
    {
        "JOBS_DIR",
        "JOB",
        "CONFIG",
        "PROGRESS",
        "FAILPOINT",
        "CONFORMANCE",
        "FAIL_ON",
        "REDIS",
        "POSTGRES",
        "HEALTH_PORT",
        "HEALTH_HOST",
    }
)
#: What the ledger can store. Nobody needs more of anything.
_MAX_NUMBER = 2**63 - 1
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30, "": 1}


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> tuple[Settings, dict[str, str]]:
    """Return the effective settings of a job, and for each word where its value came from.

    `flags` holds only what was given on the command line. A file and the environment may also hold the words of
    `load_servers`. Raises `UsageError` for an unknown key or a value that does not fit.
    """
    by_word = {setting.word: setting for setting in every_setting()}
    elsewhere = {setting.word for setting in every_server_setting()}
    values: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    hosts: tuple[host_tables.HostSettings, ...] = ()
    for source, layer in _layers(flags, environment, file):
        if host_tables.WORD in layer:
            # A file's entry wins over one that a job has kept: a password that changed is changed there.
            hosts = host_tables.merged_hosts(
                host_tables.read_hosts(layer.pop(host_tables.WORD), source), hosts
            )
            sources[host_tables.WORD] = source
        for word, value in layer.items():
            setting = by_word.get(word)
            if setting is None and word in elsewhere and source != "flag":
                continue
            if setting is None:
                known = [*by_word, *(elsewhere if source != "flag" else ())]
                raise _unknown(word, value, source, known)
            values.setdefault(setting.section, {})[setting.field] = convert(setting, value, source)
            sources[word] = source
    made = {name: _SECTIONS[name](**fields) for name, fields in values.items()}
    return Settings(**made, hosts=hosts), sources


def load_servers(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> tuple[RedisSettings, PostgresLimits]:
    """Return how this process reaches its servers, whose addresses are no settings.

    A file may also hold the settings of jobs: one file serves all commands. Raises `UsageError` as `load_settings`
    does, but for unknown variables: an orchestrator sets some of its own that begin as ours do.
    """
    by_word = {setting.word: setting for setting in every_server_setting()}
    elsewhere = {host_tables.WORD, *(setting.word for setting in every_setting())}
    values: dict[str, dict[str, Any]] = {name: {} for name, _ in servers.SECTIONS}
    for source, layer in _layers(flags, environment, file):
        for word, value in layer.items():
            setting = by_word.get(word)
            if setting is not None:
                values[setting.section][setting.field] = convert(setting, value, source)
            elif word not in elsewhere and source != "environment":
                raise _unknown(word, value, source, [*by_word, *elsewhere])
    redis = RedisSettings(**values["redis"])
    _check_schedule(redis)
    return redis, PostgresLimits(**values["postgres"])


def _layers(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> list[tuple[str, dict[str, Any]]]:
    """Return where values may come from, the weakest first."""
    return [
        ("file", _from_file(file) if file else {}),
        ("environment", _from_environment(environment)),
        ("flag", dict(flags)),
    ]


def _unknown(word: str, value: object, source: str, known: list[str]) -> UsageError:
    if isinstance(value, dict):
        return UsageError(
            f"[{word}] in the {source}: settings stand at the top level, without sections"
            f"{suggestion(word, [host_tables.WORD])}"
        )
    return UsageError(f"unknown setting {word!r} in the {source}{suggestion(word, known)}")


def _check_schedule(redis: RedisSettings) -> None:
    prefix, partitions = redis.prefix, redis.partitions
    if partitions > MAX_PARTITIONS:
        raise UsageError(f"redis_partitions must be at most {MAX_PARTITIONS}, not {partitions}")
    # Braces say which node of a cluster a key is kept on: those of the prefix would overrule ours.
    if not prefix or not prefix.isprintable() or set(prefix) & set("{} "):
        raise UsageError(
            f"redis_prefix: {prefix!r} cannot begin a key: use letters, digits, `.`, `-` and `_`"
        )


def convert(setting: Setting, value: Any, source: str) -> Any:
    """Fit a raw value to the setting's type and check that it makes sense."""
    wanted = _types(setting.section)[setting.field]
    if isinstance(value, str) and "tuple" in setting.type:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, str) and setting.field.endswith("_bytes"):
        value = parse_size(value, setting.word)
    try:
        # Text from a flag or a variable is read as what it stands for; a value from TOML has its type already.
        fitted = msgspec.convert(value, wanted, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise UsageError(f"{setting.word} ({source}): {value!r} is not {_expected(setting)}") from error
    if isinstance(fitted, int | float) and not isinstance(fitted, bool):
        _check_bounds(setting, fitted, source)
    return fitted


def choices(setting: Setting) -> tuple[str, ...]:
    """Return the words a setting may have, where there are only so many."""
    kind = _types(setting.section)[setting.field]
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _expected(setting: Setting) -> str:
    """Say in words what a value must be."""
    kind = setting.type.removesuffix(" | None")
    if names := choices(setting):
        return f"one of {', '.join(names)}"
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
    return words.get(kind, "a list of texts")


def _check_bounds(setting: Setting, number: float, source: str) -> None:
    least = _minimum(setting)
    if number < least:
        raise UsageError(f"{setting.word} ({source}) must be at least {least}, not {number}")
    if not number <= _MAX_NUMBER:  # not a number at all is neither
        raise UsageError(f"{setting.word} ({source}) must be a number below 2^63, not {str(number)[:30]}")


def parse_size(text: str, word: str) -> int:
    """Read a number of bytes: `1000000`, `10MB`, `512KiB`."""
    digits = text.strip().rstrip("bB")
    number = digits.rstrip("kKmMgGiI")
    unit = digits[len(number) :].lower()
    try:
        return int(float(number.replace("_", "")) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError) as error:
        raise UsageError(f"{word}: {text!r} is not a size; write 1000000, 10MB or 512KiB") from error


def _minimum(setting: Setting) -> float:
    if setting.word in _NEVER_NOTHING:
        return 0.1
    return 1 if setting.field in _AT_LEAST_ONE else 0


def _from_file(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - most commands read no file

    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise UsageError(f"cannot read the config file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the config file {path} is not valid TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in NOT_SETTINGS
    }


@cache
def _types(section: str) -> dict[str, Any]:
    return typing.get_type_hints(_SECTIONS[section])


_SECTIONS: dict[str, type[Any]] = {
    "scope": sections.ScopeSettings,
    "traps": sections.TrapSettings,
    "limits": sections.LimitSettings,
    "politeness": sections.PolitenessSettings,
    "fetch": sections.FetchSettings,
    "record": sections.RecordSettings,
    "engine": sections.EngineSettings,
    "frontier": sections.FrontierSettings,
    **dict(servers.SECTIONS),
}
#: Seconds of which none would mean that nothing ever succeeds, or that nothing is bounded.
_NEVER_NOTHING = frozenset(
    ("redis_timeout", "postgres_statement_seconds", "postgres_connect_seconds", "postgres_lock_seconds")
)
_AT_LEAST_ONE = frozenset(
    (
        "per_host",
        "concurrency",
        "workers",
        "commit_pages",
        "max_uncommitted_pages",
        "window_urls",
        "scheduled_urls",
        "active_hosts",
        "seen_cache_urls",
        "max_body_bytes",
        "max_header_bytes",
        "max_header_count",
        "max_pages",
        "max_pages_per_host",
        "seed_batch_urls",
        "robots_probes",
        "max_url_bytes",
        "max_links_per_page",
        "bloom_urls",
        "suspects_per_halving",
        "compare_every_pages",
        "remembered_pages",
        "remembered_urls",
        "remembered_prefixes",
        "connections",
        "batch_reports",
        "batch_entries",
    )
)
