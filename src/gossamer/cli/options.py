"""Flags made from the settings, and help that groups them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from gossamer.config.load import choices
from gossamer.config.servers import every_server_setting
from gossamer.config.settings import Setting, every_setting

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_TITLES = {
    "scope": "Scope",
    "traps": "Traps",
    "limits": "Limits",
    "politeness": "Politeness",
    "fetch": "Fetching",
    "record": "Records",
    "engine": "Speed",
    "frontier": "Scheduling",
    "redis": "Servers",
    "postgres": "Servers",
}


class SettingOption(click.Option):
    """A flag that stands for a setting; only what was given counts, defaults live in the settings."""

    def __init__(
        self, _declarations: Sequence[str] = (), *, setting: Setting, advanced: bool | None = None
    ) -> None:
        self.setting = setting
        self.title = _TITLES[setting.section]
        self.advanced = setting.option.advanced if advanced is None else advanced
        super().__init__(**_arguments(setting))

    def help_flags(self) -> str:
        """Return the flag as help shows it: a switch in the direction that changes something."""
        flag = "--" + self.setting.word.replace("_", "-")
        if self.is_flag:
            return flag.replace("--", "--no-", 1) if self.setting.default else flag
        short = f"{self.setting.option.short}, " if self.setting.option.short else ""
        return f"{short}{flag} {self.setting.option.metavar or _metavar(self.setting)}"

    def help_text(self) -> str:
        """Return the help with the default where it says something."""
        text, default = self.setting.option.help, self.setting.default
        if self.is_flag:
            return f"do not {text}" if default else text
        return f"{text} [{_shown(default)}]" if default not in {None, "", ()} else text


def _shown(value: object) -> str:
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _metavar(setting: Setting) -> str:
    if names := choices(setting):
        return "|".join(names)
    return {"int": "N", "float": "SECONDS" if "seconds" in setting.field else "NUMBER"}.get(
        setting.type, "TEXT"
    )


def _arguments(setting: Setting) -> dict[str, Any]:
    flag = "--" + setting.word.replace("_", "-")
    flags = [setting.option.short] if setting.option.short else []
    base: dict[str, Any] = {"default": None, "expose_value": True}
    if setting.type == "bool":
        return {**base, "param_decls": [setting.word, f"{flag}/--no-{flag[2:]}"]}
    if "tuple" in setting.type:
        return {**base, "param_decls": [setting.word, *flags, flag], "multiple": True}
    kind = click.Choice(choices(setting)) if choices(setting) else str
    return {**base, "param_decls": [setting.word, *flags, flag], "type": kind}


class GroupedCommand(click.Command):
    """A command whose help groups its flags and keeps the ones for tuning to `--help-all`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups, the command's own flags first."""
        everything = bool(ctx.meta.get("help_all"))
        groups: dict[str, list[tuple[str, str]]] = {"Job": []}
        hidden = 0
        for parameter in self.get_params(ctx):
            if isinstance(parameter, SettingOption):
                if parameter.advanced and not everything:
                    hidden += 1
                    continue
                row = parameter.help_flags(), parameter.help_text()
                groups.setdefault(parameter.title, []).append(row)
            elif (
                isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None
            ):
                groups["Job"].append(record)
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=34)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more flags for tuning: --help-all")


def _help_all(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["help_all"] = True
        click.echo(ctx.get_help())
        ctx.exit()


_help_all_option = click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_help_all,
    help="show every flag",
)


def setting_options(*sections: str) -> Callable[[click.Command], click.Command]:
    """Give a command the flags of these sections of the settings."""

    def add(command: click.Command) -> click.Command:
        settings = (*every_setting(), *every_server_setting())
        command.params += [SettingOption(setting=s) for s in settings if s.section in sections]
        _help_all_option(command)
        return command

    return add


def server_flags(*sections: str, advanced: bool | None = None) -> Decorator:
    """Give a function, before it is a command, the flags of sections about servers; `advanced` tells them from help."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function = _help_all_option(function)
        for setting in reversed(every_server_setting()):
            if setting.section in sections:
                flag = click.option(setting.word, cls=SettingOption, setting=setting, advanced=advanced)
                function = flag(function)
        return function

    return add


def options(*decorators: Decorator) -> Decorator:
    """Add flags in the order they are listed."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the job that were given as flags, by their words."""
    return _given(values, every_setting())


def given_servers(values: dict[str, Any]) -> dict[str, Any]:
    """Return what was given as flags about servers, by its words."""
    return _given(values, every_server_setting())


def _given(values: dict[str, Any], settings: Iterable[Setting]) -> dict[str, Any]:
    words = {setting.word for setting in settings}
    flags: dict[str, Any] = {}
    for word, value in values.items():
        if word in words and value is not None and value != ():
            listed = isinstance(value, tuple)
            flags[word] = (
                [p for v in value for p in v.split(",") if p]
                if word == "fields"
                else list(value)
                if listed
                else value
            )
    return flags
