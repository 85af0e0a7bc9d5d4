"""URLs by the WHATWG standard: parse, join, canonicalise, tell apart.

Three spellings of one URL matter here, and each has one purpose:

* the *href*, the standard's serialisation: what a browser would show;
* the *canonical URL*: an http or https href without fragment and without credentials. It is what is
  fetched, stored, logged and exported;
* the *dedup key*: the canonical URL with its query parameters in order of their names. Two URLs with the
  same key are the same work; the key itself is never fetched. Its 64-bit hash is the *fingerprint*.

All functions are pure, accept any `str` (lone surrogates are read as U+FFFD, as in browsers) and either
return a URL or raise `InvalidUrl`.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec

# The C interface behind ada_url: its Python wrapper spends more time on a garbage-collected handle than ada
# spends on the URL (2.8 µs a join against 1.3 µs here).
from ada_url._ada_wrapper import ffi, lib
from xxhash import xxh3_64_intdigest

from gossamer.errors import InvalidUrl

_parse = lib.ada_parse
_parse_with_base = lib.ada_parse_with_base
_get_href = lib.ada_get_href
_free = lib.ada_free
_unpack = ffi.unpack

#: The shortest http URL is `http://h/`: no slash of the path can come before this index.
_AUTHORITY = 8

#: Up to the last @, wherever it stands: a password with a slash in it is what makes many a URL invalid.
#: An address of mail has none.
_USER = re.compile(r"^(?!\s*mailto:)(\s*[a-z][a-z0-9+.-]*:[/\\]*)?.*@", re.IGNORECASE | re.DOTALL)

_TRACKING_PREFIXES = ("utm_", "pk_", "mtm_", "hsa_")
_TRACKING_NAMES = frozenset(
    [
        "_ga",
        "_gl",
        "_hsenc",
        "_hsmi",
        "_openstat",
        "dclid",
        "fbclid",
        "gad_source",
        "gbraid",
        "gclid",
        "gclsrc",
        "igsh",
        "igshid",
        "li_fat_id",
        "mc_cid",
        "mc_eid",
        "mkt_tok",
        "msclkid",
        "oly_anon_id",
        "oly_enc_id",
        "s_cid",
        "srsltid",
        "ttclid",
        "twclid",
        "vero_conv",
        "vero_id",
        "wbraid",
        "wickedid",
        "yclid",
        "ysclid",
    ],
)


class Url(msgspec.Struct, frozen=True):
    """A parsed URL. The parts have no delimiters: `query` is `a=1`, not `?a=1`.

    `href` and `repr` may hold credentials; the canonical form never does.
    """

    href: str
    scheme: str
    username: str
    password: str
    #: The name or address alone, without the port; an IPv6 address keeps its brackets.
    host: str
    #: None where the URL names none, or names its scheme's default.
    port: int | None
    #: The standard's serialised origin; `null` where the scheme has none.
    origin: str
    path: str
    query: str
    fragment: str


def parse(text: str, base: str | None = None) -> Url:
    """Parse a URL of any scheme, relative to `base` if one is given. Raises `InvalidUrl`."""
    handle = _handle(text, base)
    try:
        href = _text(_get_href(handle))
        if not href:
            raise _invalid(text)
        owned = lib.ada_get_origin(handle)
        origin = _text(owned)
        lib.ada_free_owned_string(owned)
        port = _text(lib.ada_get_port(handle))
        return Url(
            href=href,
            scheme=_text(lib.ada_get_protocol(handle))[:-1],
            username=_text(lib.ada_get_username(handle)),
            password=_text(lib.ada_get_password(handle)),
            host=_text(lib.ada_get_hostname(handle)),
            port=int(port) if port else None,
            origin=origin,
            path=_text(lib.ada_get_pathname(handle)),
            query=_text(lib.ada_get_search(handle))[1:],
            fragment=_text(lib.ada_get_hash(handle))[1:],
        )
    finally:
        _free(handle)


def join(base: str, reference: str) -> str:
    """Resolve a reference as a browser does and return its href. Raises `InvalidUrl`."""
    href = _href(reference, base)
    if not href:
        raise _invalid(reference)
    return href


def canonicalise(url: str, base: str | None = None, *, strip_tracking: bool = False) -> str:
    """Return the canonical form of an http or https URL; raises `InvalidUrl` for anything else.

    The fragment and the scheme's default port are dropped, and so are user name and password: a canonical
    URL is logged and exported, and credentials must never be. With `strip_tracking`, parameters that only
    identify a campaign or a click (`utm_*`, `fbclid`, …) go too. Idempotent.
    """
    canonical = canonical_or_empty(url, base, strip_tracking=strip_tracking)
    if not canonical:
        raise _invalid(url)
    return canonical


def canonical_or_empty(url: str, base: str | None = None, *, strip_tracking: bool = False) -> str:
    """Do what `canonicalise` does, but return an empty string for what is no http or https URL."""
    href = _href(url, base)
    if not href.startswith(("https://", "http://")):
        return ""
    if "#" in href:
        href = href[: href.index("#")]
    if "@" in href:
        href = _without_credentials(href)
    if strip_tracking and "?" in href:
        href = _without_tracking(href)
    return href


def dedup_key(canonical: str, *, sort_query: bool = True) -> str:
    """Return what identifies a canonical URL: the same URL with its parameters in order of their names.

    Parameters of one name keep their order, because it can carry meaning. Idempotent.
    """
    if not sort_query or "&" not in canonical:
        return canonical
    path, mark, query = canonical.partition("?")
    return path + mark + "&".join(sorted(query.split("&"), key=_name))


def fingerprint(key: str, method: str = "GET", body: bytes = b"") -> int:
    """Return 64 bits over dedup key, method and body, as a signed integer (an SQLite INTEGER).

    The same in every process and on every machine.
    """
    if method == "GET" and not body:
        digest = xxh3_64_intdigest(key.encode())
    else:
        # A canonical URL holds no NUL and starts with "http", so no GET can collide by construction.
        digest = xxh3_64_intdigest(b"\0".join((method.encode(), key.encode(), body)))
    return digest if digest < 0x8000_0000_0000_0000 else digest - 0x1_0000_0000_0000_0000


def host_of(canonical: str) -> str:
    """Return the host of a canonical URL, without the port; an IPv6 address keeps its brackets."""
    host = canonical[canonical.index("//") + 2 : canonical.index("/", _AUTHORITY)]
    if ":" in host and host[-1] != "]":
        host = host[: host.rindex(":")]
    return host


def origin_of(canonical: str) -> str:
    """Return scheme, host and port of a canonical URL, as in `https://example.com:8443`."""
    return canonical[: canonical.index("/", _AUTHORITY)]


class UrlPolicy(msgspec.Struct, frozen=True):
    """A job's choices about URLs: part of its identity, since they decide which URLs are the same."""

    sort_query: bool = True
    strip_tracking: bool = False
    #: A longer canonical URL is treated as no URL at all.
    max_url_bytes: int = 4096

    def canonicalise(self, url: str, base: str | None = None) -> str:
        """Return the canonical URL; raises `InvalidUrl` for what is not http or https, or too long."""
        canonical = self.canonical_or_empty(url, base)
        if not canonical:
            raise _invalid(url)
        return canonical

    def canonical_or_empty(self, url: str, base: str | None = None) -> str:
        """Return the canonical URL, or an empty string for what is not http or https, or too long."""
        canonical = canonical_or_empty(url, base, strip_tracking=self.strip_tracking)
        return canonical if len(canonical) <= self.max_url_bytes else ""

    def fingerprint(self, canonical: str, method: str = "GET", body: bytes = b"") -> int:
        """Return the fingerprint of a request for a canonical URL."""
        return fingerprint(dedup_key(canonical, sort_query=self.sort_query), method, body)


def _href(text: str, base: str | None) -> str:
    handle = _handle(text, base)
    href = _text(_get_href(handle))
    _free(handle)
    return href


def _handle(text: str, base: str | None) -> object:
    encoded = _encode(text)
    if base is None:
        return _parse(encoded, len(encoded))
    encoded_base = _encode(base)
    return _parse_with_base(encoded, len(encoded), encoded_base, len(encoded_base))


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # The standard's "convert to scalar values": a lone surrogate is U+FFFD, a pair is its character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _text(view: object) -> str:
    length: int = view.length  # type: ignore[attr-defined]  # a C struct of ada's
    # An empty view may have no data to point at. What ada writes is ASCII or UTF-8.
    return _unpack(view.data, length).decode() if length else ""  # type: ignore[attr-defined]


def without_user(text: str) -> str:
    """Return a text that is no URL, but may be meant as one, without what looks like a user name and password."""
    return _USER.sub(r"\1…@", text)


def _invalid(text: str) -> InvalidUrl:
    text = without_user(text)
    shown = text if len(text) <= 200 else text[:200] + "…"
    return InvalidUrl(
        f"not a URL that can be fetched: {shown!r}; expected something like https://example.com/"
    )


def _without_credentials(href: str) -> str:
    start = href.index("//") + 2
    at = href.rfind("@", start, href.index("/", _AUTHORITY))
    return href if at < 0 else href[:start] + href[at + 1 :]


def _without_tracking(href: str) -> str:
    path, _, query = href.partition("?")
    parameters = query.split("&")
    kept = [parameter for parameter in parameters if not _is_tracking(_name(parameter))]
    if len(kept) == len(parameters):
        return href
    return f"{path}?{'&'.join(kept)}" if kept else path


def _is_tracking(name: str) -> bool:
    name = unquote(name).lower() if "%" in name else name.lower()
    return name in _TRACKING_NAMES or name.startswith(_TRACKING_PREFIXES)


def _name(parameter: str) -> str:
    return parameter.partition("=")[0]
