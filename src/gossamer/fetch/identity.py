"""From settings to an `Identity`: the names we go by, the headers that were given, the passwords of single origins."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import unquote

from gossamer.config.hosts import HostSettings
from gossamer.config.settings import FetchSettings, Settings
from gossamer.errors import InvalidUrl, UsageError
from gossamer.fetch.http import check_headers
from gossamer.model.url import canonicalise, origin_of, parse
from gossamer.policy.identity import Headers, Identity, merged
from gossamer.version import VERSION

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
_USER_AGENT = "user-agent"
_PROXY_PASSWORD = "proxy-authorization"  # noqa: S105 - the name of a header


def user_agent(settings: FetchSettings) -> str:
    """Return the name servers see, and robots.txt is matched by."""
    name = settings.user_agent or f"Gossamer/{VERSION}"
    return f"{name} (+{settings.contact})" if settings.contact else name


def build_identity(
    settings: Settings,
    urls: Iterable[str],
    *,
    inputs: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Identity:
    """Return who we are to each server. `urls` were named by the user; with `inputs` an input file names more.

    Raises `UsageError` for a header that cannot be sent, and for a password that the environment does not have. Its
    messages hold no values.
    """
    hosts = {host.origin: _host_headers(host, environment) for host in canonical_hosts(settings.hosts)}
    return Identity(
        _given_headers(settings.fetch),
        named=[origin_of(canonicalise(url)) for url in urls],
        hosts=hosts,
        inputs=inputs,
        agents=_agents(settings.fetch),
    )


def _given_headers(settings: FetchSettings) -> Headers:
    headers: Headers = (("User-Agent", user_agent(settings)), ("Accept", ACCEPT))
    for line in settings.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or any(c in line for c in "\r\n\0"):
            # Only its first word: the rest may be a password whose colon was forgotten.
            shown = (name.split() or [""])[0][:40]
            raise UsageError(f"-H {shown!r}… is not a header; write it as 'Name: value'")
        if name.strip().lower() == _PROXY_PASSWORD:
            raise UsageError(
                "-H Proxy-Authorization cannot be given: write the proxy as --proxy http://user:password@host:port"
            )
        headers = merged(headers, ((name.strip(), value.strip()),))
    return _checked(headers, "-H")


def _agents(settings: FetchSettings) -> tuple[str, ...]:
    if settings.rotate_user_agent and any(
        line.partition(":")[0].strip().lower() == _USER_AGENT for line in settings.header
    ):
        raise UsageError(
            "-H User-Agent and --rotate-user-agent cannot both be given: name it with the latter"
        )
    _checked(tuple(("User-Agent", agent) for agent in settings.rotate_user_agent), "--rotate-user-agent")
    return settings.rotate_user_agent


def _host_headers(host: HostSettings, environment: Mapping[str, str]) -> Headers:
    place = f"[hosts.{host.origin!r}]"
    for name, _ in host.headers:
        if name.lower() == _USER_AGENT:
            raise UsageError(f"{place}: robots.txt must know us by one name: set user_agent in its place")
    headers = _checked(host.headers, place)
    if not host.username:
        return headers
    password = host.password
    if host.password_env:
        if host.password_env not in environment:
            raise UsageError(f"{place}: the environment has no {host.password_env}; set it to the password")
        password = environment[host.password_env]
    basic = b64encode(f"{host.username}:{password}".encode("utf-8", "surrogateescape")).decode()
    return (*headers, ("Authorization", f"Basic {basic}"))


def _checked(headers: Headers, place: str) -> Headers:
    try:
        check_headers(headers)
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from error
    return headers


# -- which origins have an entry -----------------------------------------------------------------------


def canonical_hosts(hosts: Iterable[HostSettings]) -> tuple[HostSettings, ...]:
    """Return hosts by their canonical origins: lower case, without the default port. The last of one counts."""
    found: dict[str, HostSettings] = {}
    for host in hosts:
        try:
            origin = origin_of(canonicalise(f"{host.origin}/"))
        except InvalidUrl as error:
            raise UsageError(f"[hosts.{host.origin!r}] is not an origin that can be asked") from error
        found[origin] = replace(host, origin=origin)
    return tuple(found.values())


def with_credentials(settings: Settings, urls: Iterable[str]) -> Settings:
    """Return settings in which user names and passwords of URLs are entries of `hosts` for their origins.

    They beat what the file has. Raises `InvalidUrl`, and `UsageError` where two URLs of an origin name other users.
    """
    hosts = {host.origin: host for host in canonical_hosts(settings.hosts)}
    seen: dict[str, tuple[str, str]] = {}
    for text in urls:
        url = parse(text)
        if not url.username and not url.password:
            continue
        origin = origin_of(canonicalise(text))
        user, password = unquote(url.username), unquote(url.password)
        if seen.setdefault(origin, (user, password)) != (user, password):
            raise UsageError(f"two URLs of {origin} have different users: give each a job of its own")
        if ":" in user or not user:
            raise UsageError(f"a URL of {origin} has a user name that is empty or holds a colon")
        kept = hosts.get(origin, HostSettings(origin))
        headers = tuple(pair for pair in kept.headers if pair[0].lower() != "authorization")
        hosts[origin] = HostSettings(origin, headers, user, password)
    return replace(settings, hosts=tuple(hosts.values()))
