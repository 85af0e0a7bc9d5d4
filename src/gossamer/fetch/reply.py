"""What comes back over a connection, before it is anybody's response."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gossamer.model.response import FetchProblem

Headers = tuple[tuple[str, str], ...]


class Reply(msgspec.Struct, frozen=True):
    """A complete reply: framing removed, content codings still on."""

    status: int
    headers: Headers
    #: The values of its Content-Encoding headers.
    codings: list[str]
    body: bytes
    #: The body was cut at its cap, which the request allowed.
    cut: bool
    #: When the last byte came, by `time.perf_counter`.
    at: float


class Broken(msgspec.Struct, frozen=True):
    """An exchange without a complete reply. The connection is closed."""

    problem: FetchProblem
    detail: str
    status: int
    wire_bytes: int
    #: Not one byte came back: the server may never have seen the request.
    silent: bool
    at: float

    @property
    def swallowed(self) -> bool:
        """The connection closed without a byte in return, as one does whose server had already let go of it."""
        return self.silent and self.problem is FetchProblem.DISCONNECTED


class _Names(dict[bytes, str]):
    """Header names in lower case. The usual ones cost one lookup and share one string; others are not kept."""

    def __missing__(self, name: bytes) -> str:
        return name.decode("latin-1").lower()


_COMMON_NAMES = (
    "Accept-Ranges Access-Control-Allow-Origin Age Alt-Svc Cache-Control CF-Cache-Status CF-RAY Connection "
    "Content-Disposition Content-Encoding Content-Language Content-Length Content-Security-Policy Content-Type "
    "Date ETag Expires Keep-Alive Last-Modified Link Location NEL P3P Permissions-Policy Pragma Referrer-Policy "
    "Report-To Retry-After Server Set-Cookie Strict-Transport-Security Transfer-Encoding Vary Via X-Cache "
    "X-Content-Type-Options X-Frame-Options X-Powered-By X-Robots-Tag X-XSS-Protection"
)
_NAMES = _Names(
    (form.encode(), name.lower())
    for name in _COMMON_NAMES.split()
    for form in (name, name.lower(), name.title())
)


def read_headers(raw: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Decode raw headers: names in lower case, values without the white space around them, or NUL in them.

    NUL becomes a space (RFC 9110, section 5.5); line breaks cannot occur. So no value can break what it is copied to.
    """
    if b"\0" in b"".join([value for _, value in raw]):
        raw = [(name, value.replace(b"\0", b" ")) for name, value in raw]
    names = _NAMES
    try:
        return tuple([(names[name], value.decode().strip()) for name, value in raw])
    except UnicodeDecodeError:
        return tuple([(names[name], _text(value).strip()) for name, value in raw])


def _text(value: bytes) -> str:
    """Read a header value as UTF-8, which Location often is in the wild, or else as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
