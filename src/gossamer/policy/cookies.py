"""A cookie jar by RFC 6265 and its revision (6265bis), with the Public Suffix List.

Where the two differ: a cookie without a name is ignored, as browsers once did and RFC 6265 says; prefixes,
sizes and the protection of secure cookies follow the revision. SameSite is ignored, as a crawler has no site
of its own, and a lifetime is cut to 400 days. A crawl is stricter than both (`by_port`): a cookie without a Domain goes
back to the port it came from and to no other, because another port may be another's server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from gossamer.errors import GossamerError
from gossamer.model.outcome import StoredCookie
from gossamer.policy.http_date import parse_http_date
from gossamer.policy.public_suffix import is_ip_address, is_public_suffix

MAX_COOKIES = 3000
MAX_COOKIES_PER_DOMAIN = 50
#: Of a name and its value together; characters, which are octets where headers are read as Latin-1.
MAX_COOKIE_BYTES = 4096
MAX_ATTRIBUTE_BYTES = 1024
MAX_AGE_SECONDS = 400 * 86_400.0

_BLANKS = " \t"
_URL = re.compile(r"http(s?)://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^:/?#]*)(?::([0-9]*))?(/[^?#]*)?", re.IGNORECASE)
_LINE_END = re.compile(r"[\0\r\n]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_AGE = re.compile(r"-?[0-9]+")


class Cookie(msgspec.Struct, frozen=True, array_like=True):
    """A cookie as it is kept."""

    name: str
    value: str
    domain: str
    path: str
    #: Sent to `domain` itself only, not to hosts below it.
    host_only: bool
    secure: bool
    http_only: bool
    #: Seconds since the epoch, or None for one that lasts as long as the jar.
    expires: float | None
    #: Rises with every new cookie; one that replaces another takes over its number.
    serial: int = 0
    #: The port a host-only cookie goes back to; empty for the default one, and where ports do not count.
    port: str = ""

    @property
    def key(self) -> str:
        """What a later cookie of the same place has too. None of its parts can hold a line end."""
        scope = f"host:{self.port}" if self.host_only else "domain"
        return f"{self.domain}\n{self.path}\n{self.name}\n{scope}"

    def expired(self, now: float) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= now

    def covers(self, path: str) -> bool:
        """Whether a request path lies at or below the cookie's (RFC 6265, 5.1.4)."""
        if not path.startswith(self.path):
            return False
        return len(path) == len(self.path) or self.path.endswith("/") or path[len(self.path)] == "/"


class _Origin(msgspec.Struct, frozen=True):
    """What of a URL decides about cookies."""

    secure: bool
    host: str
    port: str
    path: str

    def within(self, domain: str) -> bool:
        """Whether the host is `domain` or below it; addresses have nothing below them."""
        return self.host == domain or (self.host.endswith("." + domain) and not is_ip_address(self.host))


#: Cookies of one domain by their keys, the one set longest ago first.
_Shelf = dict[str, Cookie]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Cookie).decode


class CookieJar:
    """Keeps the cookies that servers set and says which to send. Not for use from several threads.

    * A host can set cookies only for itself and the domains above it, never for a public suffix.
    * Counts and sizes are bounded. A full domain drops its expired cookies, then the one set longest ago;
      a full jar takes from the domain that has set none for the longest time.
    * With `by_port` a cookie that is for its host alone is for its port alone.
    """

    def __init__(
        self,
        *,
        by_port: bool = False,
        max_cookies: int = MAX_COOKIES,
        max_cookies_per_domain: int = MAX_COOKIES_PER_DOMAIN,
    ) -> None:
        self._by_port = by_port
        self._max_cookies = max_cookies
        self._max_per_domain = max_cookies_per_domain
        self._shelves: dict[str, _Shelf] = {}
        self._count = 0
        self._serial = 0

    @property
    def count(self) -> int:
        """How many cookies it holds, expired ones among them until they are pushed out."""
        return self._count

    def __repr__(self) -> str:
        return f"<CookieJar: {self._count} cookies of {len(self._shelves)} domains>"

    def store(self, url: str, set_cookie_headers: Sequence[str], now: float) -> tuple[StoredCookie, ...]:
        """Take in the Set-Cookie headers of a response from `url`. Cookies that are not acceptable are ignored.

        Returns what the ledger must hear to have the same cookies: those set, removed, and pushed out by others.
        """
        origin = self._origin(url)
        if origin is None:
            return ()
        changed: dict[str, StoredCookie] = {}
        for header in set_cookie_headers:
            cookie = _parse(header, origin, now)
            if cookie is not None and not self._hides_secure(cookie, origin):
                changed |= self._put(cookie, now)
        return tuple(changed.values())

    def header_for(self, url: str, now: float) -> str:
        """Return the Cookie header for a request to `url`, or an empty string: longest paths first, then oldest."""
        if not self._shelves or (origin := self._origin(url)) is None or not (near := self._near(origin)):
            return ""
        found = [
            cookie
            for cookie in near
            if (origin.secure or not cookie.secure) and cookie.covers(origin.path) and not cookie.expired(now)
        ]
        found.sort(key=lambda cookie: (-len(cookie.path), cookie.serial))
        return "; ".join([f"{cookie.name}={cookie.value}" for cookie in found])

    def dump(self) -> list[bytes]:
        """Return all cookies, each as `store` writes it, in the order `load` should have them."""
        return [_encode(cookie) for shelf in self._shelves.values() for cookie in shelf.values()]

    def load(self, stored: Iterable[bytes], now: float) -> None:
        """Add what `store` or `dump` wrote, save what expired since. Raises GossamerError where it is something else."""
        try:
            cookies = [_decode(data) for data in stored]
        except msgspec.DecodeError as error:
            raise GossamerError(
                f"stored cookies cannot be read ({error}); --no-cookies goes on without them"
            ) from error
        for cookie in cookies:
            self._put(cookie, now)

    def _origin(self, url: str) -> _Origin | None:
        match = _URL.match(url)
        if match is None or not match[2]:
            return None
        port = match[3] or "" if self._by_port else ""
        return _Origin(bool(match[1]), match[2].lower(), port, match[4] or "/")

    def _near(self, origin: _Origin) -> list[Cookie]:
        """Return the cookies whose domain matches. Where there are none it costs a dict miss per label."""
        found: list[Cookie] = []
        domain = origin.host
        while domain:
            shelf = self._shelves.get(domain)
            if shelf is not None:
                own = domain == origin.host
                found += [
                    cookie
                    for cookie in shelf.values()
                    if not cookie.host_only or (own and cookie.port == origin.port)
                ]
            domain = domain.partition(".")[2]
        return found

    def _hides_secure(self, cookie: Cookie, origin: _Origin) -> bool:
        """Whether a plain-text response would overlay a cookie that came over TLS (6265bis, 5.7)."""
        return not origin.secure and any(
            kept.secure and kept.name == cookie.name and kept.covers(cookie.path)
            for kept in self._near(origin)
        )

    def _put(self, cookie: Cookie, now: float) -> dict[str, StoredCookie]:
        """Keep a cookie, or remove it if it is expired; returns what changed by it, by key, for the ledger."""
        key = cookie.key
        # Taken out and put back in, so that both dicts stay in the order of last setting.
        shelf = self._shelves.pop(cookie.domain, {})
        replaced = shelf.pop(key, None)
        self._count -= replaced is not None
        if cookie.expired(now):
            stored = StoredCookie(key, _encode(_expired(cookie)), removed=True)
        else:
            self._serial = max(self._serial, cookie.serial) + 1
            serial = replaced.serial if replaced else cookie.serial or self._serial
            shelf[key] = kept = msgspec.structs.replace(cookie, serial=serial)
            stored = StoredCookie(key, _encode(kept))
            self._count += 1
        if shelf:
            self._shelves[cookie.domain] = shelf
        return {key: stored, **{other: StoredCookie(other, b"") for other in self._keep_bounds(shelf, now)}}

    def _keep_bounds(self, shelf: _Shelf, now: float) -> list[str]:
        """Push out what is too much; returns the keys of that."""
        spent: list[str] = []
        if len(shelf) > self._max_per_domain:
            spent = [key for key, cookie in shelf.items() if cookie.expired(now)] or [next(iter(shelf))]
            for key in spent:
                del shelf[key]
            self._count -= len(spent)
        if self._count > self._max_cookies:
            domain, oldest = next(iter(self._shelves.items()))
            spent.append(next(iter(oldest)))
            del oldest[spent[-1]]
            self._count -= 1
            if not oldest:
                del self._shelves[domain]
        return spent


def _expired(cookie: Cookie) -> Cookie:
    """Return a cookie that removes this one from any jar, whatever the time there."""
    return msgspec.structs.replace(cookie, value="", expires=0.0)


def _parse(header: str, origin: _Origin, now: float) -> Cookie | None:
    """Read one Set-Cookie header into an acceptable cookie, or None (RFC 6265, 5.2 and 5.3)."""
    text = _LINE_END.split(header, maxsplit=1)[0]
    pair, _, rest = text.partition(";")
    name, equals, value = pair.partition("=")
    name, value = name.strip(_BLANKS), value.strip(_BLANKS)
    if not equals or not name or len(name) + len(value) > MAX_COOKIE_BYTES or _CONTROL.search(text):
        return None
    attributes = _attributes(rest)
    domain = _domain(attributes.get("domain", ""), origin)
    if domain is None:
        return None
    cookie = Cookie(
        name=name,
        value=value,
        domain=domain or origin.host,
        path=_path(attributes.get("path", ""), origin),
        host_only=not domain,
        secure="secure" in attributes,
        http_only="httponly" in attributes,
        expires=_expiry(attributes, now),
        port="" if domain else origin.port,
    )
    return cookie if _trustworthy(cookie, origin, attributes) else None


def _attributes(text: str) -> dict[str, str]:
    """Read `; name=value` pairs; the last of a name counts, save those that RFC 6265 says to ignore."""
    found: dict[str, str] = {}
    for pair in text.split(";"):
        name, _, value = pair.partition("=")
        name, value = name.strip(_BLANKS).lower(), value.strip(_BLANKS)
        if len(value) > MAX_ATTRIBUTE_BYTES or (name == "domain" and not value):
            continue
        if name == "max-age" and not _MAX_AGE.fullmatch(value):
            continue
        if name == "expires" and parse_http_date(value) is None:
            continue
        found[name] = value
    return found


def _domain(attribute: str, origin: _Origin) -> str | None:
    """Return the domain a cookie asks for, empty for the host alone, or None where it must not have it."""
    domain = attribute.removeprefix(".").lower()
    if not domain:
        return ""
    if not origin.within(domain):
        return None
    # An address has nothing below it: a cookie for it is its own.
    if is_public_suffix(domain) or is_ip_address(domain):
        return "" if domain == origin.host else None
    return domain


def _path(attribute: str, origin: _Origin) -> str:
    if attribute.startswith("/"):
        return attribute
    return origin.path.rpartition("/")[0] or "/"


def _expiry(attributes: dict[str, str], now: float) -> float | None:
    if "max-age" in attributes:
        return now + min(float(attributes["max-age"]), MAX_AGE_SECONDS)
    instant = parse_http_date(attributes.get("expires", ""))
    return None if instant is None else min(instant, now + MAX_AGE_SECONDS)


def _trustworthy(cookie: Cookie, origin: _Origin, attributes: dict[str, str]) -> bool:
    """Whether it may be secure, and is what the prefix of its name promises (6265bis, 4.1.3)."""
    if cookie.secure and not origin.secure:
        return False
    name = cookie.name.lower()
    if name.startswith("__host-"):
        return cookie.secure and attributes.get("path") == "/" and "domain" not in attributes
    return cookie.secure or not name.startswith("__secure-")
