"""Variables from a `.env` file in the working folder: ours alone, and only those that the environment does not have."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from gossamer.config.load import NOT_SETTINGS, PREFIX
from gossamer.config.nearest import suggestion
from gossamer.config.servers import every_server_setting
from gossamer.config.settings import every_setting
from gossamer.errors import UsageError

MAX_BYTES = 65_536
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)\Z")
_COMMENT = re.compile(r"(?:\A|\s)#.*\Z")
_ESCAPED = re.compile(r'\\([nrt"\\$])')
_MEANINGS = {"n": "\n", "r": "\r", "t": "\t"}


def use_dotenv(path: Path, environment: MutableMapping[str, str]) -> None:
    """Add the variables of a file to an environment, whose own values win. No file, or a folder, means nothing.

    Raises `UsageError` for a file that cannot be read and for a variable of ours that does not exist.
    """
    if text := _read(path):
        for name, value in parse_dotenv(text, str(path)).items():
            environment.setdefault(name, value)


def parse_dotenv(text: str, place: str) -> dict[str, str]:
    r"""Return our variables in a text of `KEY=VALUE` lines; those of other programs are passed over.

    A value may stand in quotes: in single ones all is meant as it is written, in double ones `\n`, `\"` and the like
    are read. Nothing is put in for `$NAME`.
    """
    words = [setting.word for setting in (*every_setting(), *every_server_setting())]
    known = {word.upper() for word in words} | NOT_SETTINGS
    found: dict[str, str] = {}
    for number, name, value in _assignments(text, place):
        if not name.startswith(PREFIX):
            continue
        if name.removeprefix(PREFIX) not in known:
            near = suggestion(name, (f"{PREFIX}{word}" for word in known))
            raise UsageError(f"unknown variable {name!r} in {place}, line {number}{near}")
        found[name] = _value(value, f"{place}, line {number}")
    return found


def _assignments(text: str, place: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, name and raw value of each assignment."""
    lines = enumerate(text.lstrip("\ufeff").splitlines(), 1)
    for number, line in lines:
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _ASSIGNMENT.match(stripped)
        if match is None:
            raise UsageError(f"{place}, line {number} is not KEY=VALUE: correct it, or put a # before it")
        name, value = match.groups()
        if not name.startswith(PREFIX) and value[:1] in {'"', "'"} and value[0] not in value[1:]:
            # Another program's text over several lines.
            for _, more in lines:
                if value[0] in more:
                    break
        yield number, name, value


def _value(raw: str, place: str) -> str:
    quote = raw[:1]
    if quote not in {'"', "'"}:
        return _COMMENT.sub("", raw).strip()
    pattern = r"'([^']*)'" if quote == "'" else r'"((?:[^"\\]|\\.)*)"'
    match = re.match(pattern, raw)
    if match is None:
        raise UsageError(f"{place}: there is no closing {quote}")
    if _COMMENT.sub("", raw[match.end() :]).strip():
        raise UsageError(f"{place}: there is something behind the closing {quote}")
    inside = match.group(1)
    return inside if quote == "'" else _ESCAPED.sub(lambda m: _MEANINGS.get(m[1], m[1]), inside)


def _read(path: Path) -> str:
    try:
        # Not blocking: a pipe of that name would never end.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): change its permissions, or move it"
        ) from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        with os.fdopen(handle, "rb") as stream:
            return _text(stream.read(MAX_BYTES + 1), path)
    os.close(handle)
    if stat.S_ISDIR(mode):
        # Some call their virtual environment so.
        return ""
    raise UsageError(f"{path} is not a regular file: move it, or set its variables in the environment")


def _text(data: bytes, path: Path) -> str:
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} is longer than {MAX_BYTES:,} bytes: it is no file of settings")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: correct it, or move it") from error
    if "\0" in text:
        raise UsageError(f"{path} is not text: correct it, or move it")
    return text
