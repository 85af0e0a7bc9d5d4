"""What a fetch gives back: an HTTP response, or the reason why there is none."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FetchProblem(StrEnum):
    """Why a fetch brought no response. The value is the reason the ledger records."""

    DNS = "dns_error"
    CONNECT = "connect_error"
    TLS = "tls_error"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    PROTOCOL = "protocol_error"
    TOO_LARGE = "too_large"
    TOO_MANY_HEADERS = "headers_too_large"
    BAD_ENCODING = "bad_content_encoding"
    PRIVATE_ADDRESS = "private_address"


class Response(msgspec.Struct, frozen=True, gc=False):
    """A complete HTTP response with its content codings already removed.

    Header names are lower case; repeated headers stay separate, in the order received.
    """

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    #: When the first byte of the request went out (seconds since the epoch).
    started_at: float
    #: From that moment to the last byte of the body.
    elapsed: float
    #: Bytes of the body as they came over the wire, before decoding.
    wire_bytes: int

    def header(self, name: str) -> str:
        """Return the first value of a header by its lower-case name, or an empty string."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""

    def header_all(self, name: str) -> list[str]:
        """Return every value of a header by its lower-case name."""
        return [value for key, value in self.headers if key == name]


class FetchFailure(msgspec.Struct, frozen=True, gc=False):
    """A fetch that brought no usable response. `detail` is one line for people."""

    problem: FetchProblem
    detail: str
    #: When the first byte went out, or 0.0 if none did (then no start counts against the host).
    started_at: float = 0.0
    elapsed: float = 0.0
    wire_bytes: int = 0
    #: The status, where one had been received before it went wrong.
    status: int = 0
