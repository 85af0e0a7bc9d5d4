"""job.toml: the effective configuration of a job, and what of it is its identity."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomli_w

from gossamer.config.hosts import WORD as HOSTS
from gossamer.config.hosts import hosts_table
from gossamer.config.load import load_settings
from gossamer.config.settings import Settings, every_setting
from gossamer.errors import UsageError

Mode = Literal["crawl", "scrape"]
#: Parts of the identity that the first version did not have. At their defaults they do not count, so that jobs made
#: without them keep their names and go on.
_LATER = frozenset({"skip_duplicates", "dedup", "bloom_error_rate", "bloom_urls", "shard"})


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a job is: its seeds, how it treats them, and where its records go."""

    mode: Mode
    seeds: tuple[str, ...]
    #: File with more seeds, `-` for standard input, empty for none.
    input: str = ""
    outputs: tuple[str, ...] = ()
    settings: Settings = dataclasses.field(default_factory=Settings)

    def to_toml(self) -> dict[str, Any]:
        """Return the job as flat TOML keys, the words of the command line. Unset settings are left out."""
        plain: dict[str, Any] = {
            "mode": self.mode,
            "seeds": list(self.seeds),
            "input": self.input,
            "outputs": list(self.outputs),
        }
        for setting in every_setting():
            value = getattr(getattr(self.settings, setting.section), setting.field)
            if value is not None:
                plain[setting.word] = list(value) if isinstance(value, tuple) else value
        if self.settings.hosts:
            plain[HOSTS] = hosts_table(self.settings.hosts)
        return plain

    def settings_words(self) -> dict[str, Any]:
        """Return the settings alone, by the words of the command line."""
        own = {"mode", "seeds", "input", "outputs"}
        return {key: value for key, value in self.to_toml().items() if key not in own}

    def identity(self) -> dict[str, Any]:
        """Return what may not change when the job is resumed."""
        fixed = _fixed()
        return {
            key: value
            for key, value in self.to_toml().items()
            if key in fixed and not (key in _LATER and value == fixed[key])
        }

    def differences(self, stored: dict[str, Any]) -> list[str]:
        """Name what of the identity differs from a stored job.toml."""
        mine = self.to_toml()
        return [
            f"{key} was {_shown(before)}, now {_shown(mine[key])}"
            for key, default in _fixed().items()
            if (before := stored.get(key, default)) != mine[key]
        ]


def _fixed() -> dict[str, Any]:
    """Return what belongs to a job's identity, and what stands for it in a job.toml without it."""
    later = {setting.word: setting.default for setting in every_setting() if setting.option.identity}
    given = dict.fromkeys(("mode", "seeds", "input"))
    return given | {word: default if word in _LATER else None for word, default in later.items()}


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{text[:77]}…" if len(text) > 78 else text or "empty"


def read_job_file(path: Path) -> dict[str, Any]:
    """Read a job.toml."""
    import tomllib  # noqa: PLC0415 - a new job reads none

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}); --fresh starts the job over") from error


def spec_of(job_file: Path) -> JobSpec:
    """Return the job that a job.toml describes."""
    return spec_from(read_job_file(job_file))


def spec_from(plain: dict[str, Any]) -> JobSpec:
    """Return the job that `JobSpec.to_toml` has written down."""
    mode, seeds, given, outputs = (plain.pop(key) for key in ("mode", "seeds", "input", "outputs"))
    settings, _ = load_settings(plain, {}, None)
    return JobSpec(mode, tuple(seeds), given, tuple(outputs), settings)


def write_job_file(path: Path, spec: JobSpec) -> None:
    """Write job.toml so that a crash leaves the old one or the new one. Only its owner may read it.

    Headers and proxies may hold passwords, and worker processes read them from here.
    """
    part = path.with_suffix(".part")
    part.touch(mode=0o600)
    part.chmod(0o600)
    part.write_text(tomli_w.dumps(spec.to_toml()), "utf-8")
    part.replace(path)
