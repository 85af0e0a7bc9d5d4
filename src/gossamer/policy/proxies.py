"""Which proxy a host's requests take, and how long a proxy that failed is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from gossamer.errors import InvalidUrl, UsageError
from gossamer.model.url import parse

_DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080}
#: User name and password travel with a length of one byte each (RFC 1929).
_MAX_SOCKS_TEXT_BYTES = 255
#: So many times in a row without a connection are no longer the targets' doing.
_DOUBTS_TO_REST = 3


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy to send requests through. Neither `label` nor `repr` shows its credentials."""

    scheme: str
    #: A name or an address; IPv6 without brackets.
    host: str
    port: int
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """Its URL without credentials, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_proxy(text: str) -> Proxy:
    """Read the URL of a proxy. Raises `UsageError`, which says what is wrong without repeating credentials."""
    shown = f"--proxy {_without_credentials(text)!r}"
    try:
        url = parse(text)
    except InvalidUrl:
        # The cause would show the text, with its password.
        raise UsageError(f"{shown} is not a URL; write it as http://host:port") from None
    if url.scheme == "socks5h":
        raise UsageError(f"{shown}: write socks5:// and add --proxy-resolves")
    if url.scheme not in _DEFAULT_PORTS:
        raise UsageError(f"{shown} is none of http://, https:// and socks5://host:port")
    host = url.host.strip("[]")
    if not host or "%" in host or url.path not in {"", "/"} or url.query or url.fragment:
        raise UsageError(f"{shown}: a proxy is a scheme, a host and a port, and nothing else")
    username, password = unquote(url.username), unquote(url.password)
    if url.scheme == "socks5":
        _check_socks_credentials(shown, username, password)
    elif ":" in username:
        raise UsageError(f"{shown}: the user name of an HTTP proxy cannot contain a colon")
    port = _DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    return Proxy(url.scheme, host, port, username, password)


def _check_socks_credentials(shown: str, username: str, password: str) -> None:
    if any(len(part.encode()) > _MAX_SOCKS_TEXT_BYTES for part in (username, password)):
        raise UsageError(f"{shown}: SOCKS allows 255 bytes of user name and of password")
    if bool(username) != bool(password):
        raise UsageError(f"{shown}: SOCKS wants both a user name and a password, or neither")


def _without_credentials(text: str) -> str:
    """Cut what may be a password out of text that may be no URL."""
    scheme, colon, rest = text.partition("://") if "://" in text else ("", "", text)
    _, at, place = rest.rpartition("@")
    return f"{scheme}{colon}{'…@' if at else ''}{place}"[:100]


@dataclass(slots=True)
class _Health:
    """What is known of a proxy. Only failures in a row count."""

    failures: int = 0
    doubts: int = 0
    rests_until: float = 0.0


class Rotation:
    """Chooses a proxy for each request.

    * A host keeps its proxy while that one is healthy: sessions and cookies are often bound to an address.
    * A host that has none takes the next healthy one in turn, so hosts are spread evenly.
    * A host that was refused through its proxy, or got no connection, goes on with the one after it.
    * A proxy that failed rests: first for `rest_seconds`, twice as long each time, at most `max_rest_seconds`.
      Failures during a rest do not lengthen it: requests sent at the same time fail at the same time.
    * There is always a choice. While all proxies rest it is the one that wakes first.
    * At most `max_hosts` are remembered; one that was forgotten chooses anew.
    """

    def __init__(
        self,
        proxies: Sequence[Proxy],
        *,
        rest_seconds: float = 5.0,
        max_rest_seconds: float = 300.0,
        max_hosts: int = 20_000,
    ) -> None:
        self._proxies = tuple(dict.fromkeys(proxies))
        self._health = {proxy: _Health() for proxy in self._proxies}
        self._rest_seconds = rest_seconds
        self._max_rest_seconds = max_rest_seconds
        self._max_hosts = max_hosts
        self._hosts: dict[str, Proxy] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._proxies)

    def __repr__(self) -> str:
        states = (
            f"{proxy.label} {health.failures} failures, rests until {health.rests_until:.1f}"
            for proxy, health in self._health.items()
        )
        return f"<Rotation {len(self._hosts)} hosts; {'; '.join(states)}>"

    def choose(self, host: str, now: float) -> Proxy:
        """Return the proxy for a request to `host`."""
        proxy = self._hosts.get(host)
        if proxy is None or self.is_resting(proxy, now):
            proxy = self._healthy_from(self._next, now)
            self._next = (self._proxies.index(proxy) + 1) % len(self._proxies)
            self._assign(host, proxy)
        return proxy

    def is_resting(self, proxy: Proxy, now: float) -> bool:
        """Say whether a proxy is left alone after a failure."""
        return now < self._health[proxy].rests_until

    def move_on(self, host: str, proxy: Proxy, now: float) -> None:
        """Give `host` the healthy proxy after this one, unless it has moved on already."""
        if self._hosts.get(host) == proxy:
            self._assign(host, self._healthy_from(self._proxies.index(proxy) + 1, now))

    def succeeded(self, proxy: Proxy) -> None:
        """Note that a proxy did its work."""
        health = self._health[proxy]
        health.failures = health.doubts = 0
        health.rests_until = 0.0

    def failed(self, proxy: Proxy, now: float) -> None:
        """Let a proxy rest that does not work."""
        health = self._health[proxy]
        if now < health.rests_until:
            return
        rest = min(self._rest_seconds * float(1 << min(health.failures, 30)), self._max_rest_seconds)
        health.failures += 1
        health.doubts = 0
        health.rests_until = now + rest

    def doubted(self, host: str, proxy: Proxy, now: float) -> None:
        """Note a connection that a proxy did not make, be it the target's fault or its own: the host moves on.

        A proxy that does nothing else, for whatever target, rests.
        """
        self._health[proxy].doubts += 1
        if self._health[proxy].doubts >= _DOUBTS_TO_REST:
            self.failed(proxy, now)
        self.move_on(host, proxy, now)

    def _healthy_from(self, start: int, now: float) -> Proxy:
        count = len(self._proxies)
        turn = [self._proxies[(start + step) % count] for step in range(count)]
        for proxy in turn:
            if not self.is_resting(proxy, now):
                return proxy
        return min(turn, key=lambda proxy: self._health[proxy].rests_until)

    def _assign(self, host: str, proxy: Proxy) -> None:
        self._hosts.pop(host, None)
        while len(self._hosts) >= self._max_hosts:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[host] = proxy
