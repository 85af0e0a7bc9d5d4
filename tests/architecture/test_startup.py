"""A command loads what it uses and no more: most of what is installed is slow to load."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer.cli
from gossamer.cli.lineup import LINEUP
from gossamer.cli.main import cli
from gossamer.testing.crawl_rig import serve
from gossamer.testing.synthetic_web import SyntheticWeb

#: What only some commands need.
SERVERS = {"psycopg", "redis", "alembic", "sqlalchemy"}
#: Besides, what no command needs that only says something.
HEAVY = {
    *SERVERS,
    "rich",
    "importlib.metadata",
    "email",
    "asyncio",
    "uvloop",
    "selectolax",
    "gossamer.testing",
}
_SHOW = """
import json, sys
from gossamer.cli.main import main
sys.argv[0] = "gossamer"
try:
    main(sys.argv[1:])
finally:
    print("\\n" + json.dumps(sorted(sys.modules)))
"""


def loaded_by(folder: Path, *arguments: str) -> set[str]:
    """Run a command and return the modules it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", _SHOW, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """A folder with a job of one page, and what its crawl has loaded."""
    folder = tmp_path_factory.mktemp("startup")
    with SyntheticWeb.in_thread() as web:
        seed = serve(web, "one", {"/": []})
        return folder, loaded_by(folder, "crawl", seed, "--job", "job", "--allow-private", "--delay", "0")


@pytest.mark.parametrize(
    "command",
    [
        ("--version",),
        ("--help",),
        ("crwl",),
        ("crawl", "--help"),
        ("worker", "--help"),
        ("submit", "--help"),
        ("jobs",),
        ("status", "job"),
        ("urls", "job"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_says_something_loads_nothing_heavy(
    crawled: tuple[Path, set[str]], command: tuple[str, ...]
) -> None:
    folder, _ = crawled
    assert loaded_by(folder, *command) & HEAVY == set()


def test_help_loads_no_command(tmp_path: Path) -> None:
    modules = {f"gossamer.cli.{place.module}" for place in LINEUP.values()}
    assert loaded_by(tmp_path, "--help") & {*modules, "gossamer.config.settings", "msgspec"} == set()


def test_a_crawl_on_one_machine_without_a_terminal_loads_neither_servers_nor_rich(
    crawled: tuple[Path, set[str]],
) -> None:
    _, loaded = crawled
    assert "selectolax" in loaded, "a page was parsed"
    assert loaded & {*SERVERS, "rich", "importlib.metadata", "gossamer.testing", "gossamer.cluster"} == set()


def test_every_command_stands_in_the_lineup_where_it_is_defined() -> None:
    defined = {
        str(command.name): name
        for _, name, _ in pkgutil.iter_modules(gossamer.cli.__path__)
        for command in getattr(importlib.import_module(f"gossamer.cli.{name}"), "COMMANDS", ())
    }
    assert defined == {name: place.module for name, place in LINEUP.items()}
    assert {name: command.name for name, command in cli.commands.items()} == {name: name for name in LINEUP}
