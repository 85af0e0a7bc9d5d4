"""The `hosts` tables of a config file: headers and a password for one origin each.

    [hosts."https://intranet.example:8443"]
    headers = { "X-Api-Key" = "…" }
    username = "me"
    password_env = "INTRANET_PASSWORD"

No message and no `repr` made here holds a value of theirs: only origins and the names of keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gossamer.config.nearest import suggestion
from gossamer.errors import UsageError

WORD = "hosts"
_KEYS = ("headers", "username", "password", "password_env")
_ORIGIN = re.compile(r"(?i:https?)://[^\s/?#@\\]+")


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What is sent to one origin and to no other."""

    #: Scheme, host and port, as in `https://intranet.example:8443`.
    origin: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    #: The environment variable that holds the password, in place of the password itself.
    password_env: str = ""


def read_hosts(value: object, source: str) -> tuple[HostSettings, ...]:
    """Read tables by origin. Raises `UsageError` for what is no origin, an unknown key or a value that does not fit."""
    if not isinstance(value, Mapping):
        raise UsageError(
            f'hosts ({source}) is not a table by origin; write it in the config file as [hosts."https://…"]'
        )
    return tuple(_read_host(str(origin), entry, source) for origin, entry in value.items())


def merged_hosts(
    weaker: Iterable[HostSettings], stronger: Iterable[HostSettings]
) -> tuple[HostSettings, ...]:
    """Return all hosts; where both have an origin, the stronger one's."""
    by_origin = {host.origin: host for host in weaker}
    by_origin.update((host.origin, host) for host in stronger)
    return tuple(by_origin.values())


def hosts_table(hosts: Iterable[HostSettings]) -> dict[str, Any]:
    """Return hosts as the TOML tables that `read_hosts` reads: a password from the environment by its name alone."""
    return {
        host.origin: {
            key: dict(value) if key == "headers" else value
            for key in _KEYS
            if (value := getattr(host, key)) or (key == "username" and host.password)
        }
        for host in hosts
    }


def _read_host(key: str, entry: object, source: str) -> HostSettings:
    origin = key.removesuffix("/")
    shown = key.rpartition("@")[2]
    if _ORIGIN.fullmatch(origin) is None:
        raise UsageError(_no_origin(shown, has_user="@" in key))
    place = f"[hosts.{shown!r}] ({source})"
    if not isinstance(entry, Mapping):
        raise UsageError(f"{place} is not a table; it may have {', '.join(_KEYS)}")
    for word in entry:
        if word not in _KEYS:
            raise UsageError(f"{place}: unknown key {word!r}{suggestion(str(word), _KEYS)}")
    texts = {word: _text(entry.get(word, ""), f"{place}: {word}") for word in _KEYS[1:]}
    host = HostSettings(origin, _headers(entry.get("headers", {}), place), **texts)
    _check(host, place)
    return host


def _no_origin(shown: str, *, has_user: bool) -> str:
    if has_user:
        return (
            f"[hosts.{shown!r}] names a user; write username and password below it, and only the origin here"
        )
    name = shown.partition("://")[2] or shown
    name = re.split(r"[\s/?#\\]", name, maxsplit=1)[0] or "intranet.example"
    return f'[hosts.{shown!r}] is not an origin; write it as [hosts."https://{name}"], with the port if it has one'


def _headers(value: object, place: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise UsageError(f'{place}: headers is not a table; write headers = {{ "Name" = "value" }}')
    return tuple((str(name), _text(text, f"{place}: the header {name}")) for name, text in value.items())


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{place} is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{place} is not UTF-8") from None
    return value


def _check(host: HostSettings, place: str) -> None:
    if host.password and host.password_env:
        raise UsageError(f"{place} has both password and password_env; keep one")
    if (host.password or host.password_env) and not host.username:
        raise UsageError(f"{place} has a password without a username")
    if ":" in host.username:
        raise UsageError(f"{place}: a username for basic authentication cannot hold a colon")
    if host.username and any(name.lower() == "authorization" for name, _ in host.headers):
        raise UsageError(f"{place} has both a username and an Authorization header; keep one")
