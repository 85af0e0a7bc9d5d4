"""The commands in the order a user meets them. Each is loaded when it is asked for: none pays for the others."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Place(NamedTuple):
    """Where a command is defined, and the line that lists it."""

    module: str
    line: str


LINEUP = {
    "crawl": Place("crawl_commands", "crawl from seeds and follow links"),
    "scrape": Place("crawl_commands", "fetch just these URLs, follow nothing"),
    "resume": Place("crawl_commands", "go on with a job as it was started"),
    "fetch": Place("fetch_command", "print one page: its record, text, HTML or headers"),
    "jobs": Place("ledger_commands", "list the jobs and where each stands"),
    "status": Place("ledger_commands", "how far a job has come, and what it waits for"),
    "urls": Place("ledger_commands", "list URLs by state, reason or host"),
    "explain": Place("ledger_commands", "what became of a URL, and why"),
    "report": Place("ledger_commands", "the coverage receipt: every URL accounted for"),
    "retry": Place("ledger_commands", "queue failed and held URLs again"),
    "audit": Place("politeness_commands", "prove from the ledger that a job was polite"),
    "robots": Place("politeness_commands", "what a robots.txt says about a URL, and by which line"),
    "export": Place("export_command", "write the records of jobs to new files, without fetching"),
    "submit": Place("cluster_commands", "write down a job for workers to do"),
    "worker": Place("cluster_commands", "work on shared jobs"),
    "pause": Place("control_commands", "let a job rest until it is resumed"),
    "stop": Place("control_commands", "end the work on a job; it can be resumed"),
    "sources": Place("control_commands", "list the hosts of a shared job, and switch them"),
    "db": Place("db_commands", "prepare the database of shared jobs, and delete jobs from it"),
    "doctor": Place("doctor_command", "check this machine and the servers of shared jobs"),
    "demo": Place("demo_command", "serve a built-in site on loopback and crawl it"),
}


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name. Going through the names loads nothing; a command loads the module that defines it."""

    def __init__(self, lineup: dict[str, Place]) -> None:
        self._lineup = lineup
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = import_module(f"gossamer.cli.{self._lineup[name].module}")
            self._loaded |= {str(command.name): command for command in module.COMMANDS}
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._lineup

    def __iter__(self) -> Iterator[str]:
        return iter(self._lineup)

    def __len__(self) -> int:
        return len(self._lineup)

    def __setitem__(self, name: str, command: click.Command) -> None:
        raise TypeError(f"{name} cannot be added: commands are listed in the line-up")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} cannot be taken away: commands are listed in the line-up")


class LazyGroup(click.Group):
    """The program itself: lists, suggests and completes its commands without loading them."""

    def __init__(self, **details: object) -> None:
        super().__init__(commands=LazyCommands(LINEUP), **details)  # type: ignore[arg-type]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order a user meets them."""
        del ctx
        return list(LINEUP)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names, and a line about each."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.line) for name, place in LINEUP.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names, and then the flags, that begin so."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only shells ask

        names = [
            CompletionItem(name, help=place.line)
            for name, place in LINEUP.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]
