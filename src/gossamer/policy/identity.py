"""Which headers go to which origin: no password, and no cookie the user gave, reaches a server it is not meant for.

`Authorization` and `Cookie` given with -H go to the origins (scheme, host and port) of the URLs that were named, and
to URLs of an input file as long as they have not been redirected away. What the config file has for an origin goes
there alone. All else goes everywhere. Nothing is ever sent because of where a link, a redirect or the redirect of a
robots.txt came from: only where it leads counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle

import msgspec

from gossamer.model.outcome import Found
from gossamer.model.request import Request, Source
from gossamer.model.url import origin_of

Headers = tuple[tuple[str, str], ...]

#: Headers that prove who sends them. Lower case.
SENSITIVE = frozenset({"authorization", "cookie", "proxy-authorization"})
#: Between us and a proxy, and made from the proxy's URL: no server is to see one.
_NEVER = "proxy-authorization"
#: Marks, in the metadata of a request, the target of a redirect of an input within its origin.
_INPUT = "input"


class Identity:
    """Says who we are to each server.

    `given` are the headers of every request with those of -H, `named` the origins of the URLs that were named,
    `hosts` the headers of single origins. With `inputs` every seed is a URL the user gave. With `agents` pages are fetched under these names in turn, in place
    of the `User-Agent` that was given; robots.txt is not.
    """

    def __init__(
        self,
        given: Headers,
        *,
        named: Iterable[str] = (),
        hosts: Mapping[str, Headers] | None = None,
        inputs: bool = False,
        agents: tuple[str, ...] = (),
    ) -> None:
        self._given = tuple(pair for pair in given if pair[0].lower() != _NEVER)
        self._public = tuple(pair for pair in self._given if pair[0].lower() not in SENSITIVE)
        self._trusts_inputs = inputs and self._given != self._public
        self._hosts = dict(hosts or {})
        #: Complete headers of the origins that get more than the others.
        self._by_origin = dict.fromkeys(named, self._given) if self._given != self._public else {}
        for origin, headers in self._hosts.items():
            self._by_origin[origin] = merged(self._by_origin.get(origin, self._public), headers)
        self._agents = cycle(agents) if agents else None

    def for_page(self, request: Request) -> Headers:
        """Return the headers for the next hop of a request, without the cookies that servers have set."""
        headers = self._public
        if self._by_origin:
            headers = self._by_origin.get(origin_of(request.target), headers)
        if self._trusts_inputs and _is_unmoved_input(request):
            headers = merged(self._given, self._hosts.get(origin_of(request.target), ()))
        if self._agents is not None:
            headers = merged(headers, (("User-Agent", next(self._agents)),))
        if request.headers:
            headers = merged(headers, _own_headers(request))
        return headers

    def for_robots(self, url: str) -> Headers:
        """Return the headers for a robots.txt, wherever the redirects of another have led to."""
        return self._by_origin.get(origin_of(url), self._public) if self._by_origin else self._public

    def passed_on(self, request: Request, found: Found) -> Found:
        """Return the target of a redirect, marked if it stands for an input whose origin it has.

        The mark is stored with the URL when it is new. One that was found otherwise before has none: its depth and
        its parent may change, and prove nothing.
        """
        if not self._trusts_inputs or not _is_unmoved_input(request):
            return found
        target = found.request
        if origin_of(target.url) != origin_of(request.target):
            return found
        marked = msgspec.structs.replace(target, metadata={**target.metadata, _INPUT: "yes"})
        return msgspec.structs.replace(found, request=marked)


def _is_unmoved_input(request: Request) -> bool:
    """Whether a request is for a URL the user gave, or for one of its origin that it was redirected to directly."""
    if request.source is not Source.SEED and _INPUT not in request.metadata:
        return False
    origin = origin_of(request.target)
    return all(origin_of(url) == origin for url in (request.url, *request.redirected_from))


def _own_headers(request: Request) -> Headers:
    """Return the request's own headers; those that prove who we are only where they were made for."""
    hidden = {_NEVER} if origin_of(request.target) == origin_of(request.url) else SENSITIVE
    return tuple(pair for pair in request.headers if pair[0].lower() not in hidden)


def merged(headers: Headers, more: Headers) -> Headers:
    """Return headers with `more` of them, which take the place of those with the same names."""
    replaced = {name.lower() for name, _ in more}
    return (*(pair for pair in headers if pair[0].lower() not in replaced), *more)


def with_cookies(headers: Headers, jar: str) -> Headers:
    """Add what the cookie jar has. Of a cookie that was given and has since been set, the one that was set goes out.

    A request has one Cookie header (RFC 6265, 5.4).
    """
    given = [value for name, value in headers if name.lower() == "cookie"]
    if not given:
        return (*headers, ("Cookie", jar))
    pairs = [pair.strip() for value in given for pair in value.split(";") if pair.strip()]
    newer = {pair.partition("=")[0] for pair in jar.split("; ")}
    kept = [pair for pair in pairs if pair.partition("=")[0].strip() not in newer]
    return merged(headers, (("Cookie", "; ".join([*kept, jar])),))
