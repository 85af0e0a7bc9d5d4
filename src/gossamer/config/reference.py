"""The reference of all settings as a Markdown page, made from their declarations.

`python -m gossamer.config.reference` writes it to standard output; a test holds `docs/settings.md` to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import cleandoc

from gossamer.config.servers import SECTIONS
from gossamer.config.settings import Setting, every_section, settings_of

_INTRODUCTION = """\
# Settings

<!-- Made by `python -m gossamer.config.reference` from src/gossamer/config/settings.py: change it there. -->

Every setting is one word, spelled the same in three places:

| where | spelling | example |
|---|---|---|
| command line | `--per-host` | `gossamer crawl … --per-host 2` |
| TOML file, given with `--config FILE` | `per_host` | `per_host = 2` |
| environment | `GOSSAMER_PER_HOST` | `GOSSAMER_PER_HOST=2 gossamer crawl …` |

A flag beats the environment, the environment beats the file, the file beats the default. All keys stand at the top
of the file; its only tables are `[hosts."ORIGIN"]`, which say what one origin alone is sent ([identity.md](identity.md)).
A word that does not exist is an error that suggests the nearest one.

A file `.env` in the working folder may hold variables that begin with `GOSSAMER_`, one `NAME=VALUE` a line, with `#` for
comments, quotes where they are needed, and `export` before the name if you like. The real environment wins. Variables
of other programs are passed over, nothing is put in for `$NAME`, and the file may have 64 KiB.

- Sizes are bytes; `10MB` and `512KiB` work too. Times are seconds, and may have a fraction.
- Lists are repeated flags (`--exclude A --exclude B`), arrays in TOML, and commas in the environment.
  `--fields` also takes commas on the command line.
- A switch that is on by default is turned off with `--no-…` on the command line, and with `false` elsewhere.
- **Fixed** settings are part of what a job is. They cannot change when it is resumed; all others can.
- *Tuning* settings are listed by `--help-all` and left out of `--help`.
- The sections Redis and Postgres at the end belong to a process and not to a job: `crawl`, `scrape`, `submit`,
  `worker`, `doctor` and the commands that steer shared jobs take them, and no job keeps them. The same file may hold
  both kinds.
- The default `none` means that there is no limit, or nothing given. Without a `user_agent` servers see
  `Gossamer/` and its version.
"""


def settings_page() -> str:
    """Return the whole page, with its final line end."""
    return "\n".join([_INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    for name, section in (*every_section(), *SECTIONS):
        yield f"## {name.capitalize()}\n"
        yield f"{cleandoc(section.__doc__ or '')}\n"
        yield "| setting | flag | default | what it does |"
        yield "|---|---|---|---|"
        yield from map(_row, settings_of(name, section))
        yield ""


def _row(setting: Setting) -> str:
    return f"| `{setting.word}` | {_flag(setting)} | {_default(setting.default)} | {_meaning(setting)} |"


def _flag(setting: Setting) -> str:
    flag = setting.word.replace("_", "-")
    if setting.type == "bool":
        return f"`--{flag}`, `--no-{flag}`"
    short = f"`{setting.option.short}`, " if setting.option.short else ""
    return f"{short}`--{flag}`"


def _default(value: object) -> str:
    """Show a default as it could be typed."""
    match value:
        case None | "" | ():
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case float() if value.is_integer():
            return f"`{value:.0f}`"
        case _:
            return f"`{value}`"


def _meaning(setting: Setting) -> str:
    text = setting.option.help.replace("|", r"\|")
    notes = [
        note
        for note, holds in (("**fixed**", setting.option.identity), ("*tuning*", setting.option.advanced))
        if holds
    ]
    return "; ".join([text, *notes])


if __name__ == "__main__":
    sys.stdout.write(settings_page())
