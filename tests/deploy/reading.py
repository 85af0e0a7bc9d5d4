"""Reads what is in `deploy`, and makes copies in which one thing is wrong."""

from __future__ import annotations

import copy
import enum
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import click
from ruamel.yaml import YAML

from gossamer.cli.main import cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: Variables that hold passwords.
BACKENDS = frozenset({"GOSSAMER_REDIS", "GOSSAMER_POSTGRES"})

#: A document as YAML gives it: its shape is what the rules are about.
Document = Any
#: Says what is wrong with a document; nothing, if it is right.
Rule = Callable[[Document], Iterator[str]]


class Removed(enum.Enum):
    """Stands for a value that is taken away."""

    REMOVED = "removed"


REMOVED: Final = Removed.REMOVED


def read_yaml(text: str) -> list[Document]:
    """Read every document of a text. A key that stands twice is an error."""
    return [document for document in YAML(typ="safe", pure=True).load_all(text) if document is not None]


def read_env(path: Path) -> dict[str, str]:
    """Read a file of `NAME=value` lines."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value for name, _, value in pairs}


def understood(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the program makes of a command line and of an environment, which is all it has. Nothing is run."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"there is no command {name}"
        command = found
    with patch.dict(os.environ, environment, clear=True):
        return command.make_context(command.name, rest).params


def changed(document: Document, path: tuple[str | int, ...], value: Any) -> Document:
    """Return a copy with another value at `path`, or with none if it is `REMOVED`."""
    altered = copy.deepcopy(document)
    place = altered
    for step in path[:-1]:
        place = place[step]
    if value is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    assert altered != document, f"nothing changed at {path}"
    return altered


def tagged(image: str) -> bool:
    """Tell whether an image is named with a tag that does not move to the next major version by itself."""
    _, _, tag = image.rpartition("/")[2].partition(":")
    return tag not in {"", "latest"}


def seconds(text: str) -> float:
    """Read a duration such as `45s` or `2m`."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]
