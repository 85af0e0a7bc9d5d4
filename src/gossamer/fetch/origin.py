"""Where a request goes: the part of a URL before its path, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ORIGIN = re.compile(r"(https?)://(?:[^/?#@]*@)?(\[[0-9a-f:.]+\]|[^/?#@:\[\]\s]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request goes. `key` is the URL up to its path."""

    key: str
    tls: bool
    #: A name or an address; IPv6 with brackets.
    host: str
    port: int
    #: Host and port as the Host header has them.
    authority: str

    @property
    def server_name(self) -> str:
        """The name its certificate must be for."""
        return self.host.strip("[]").rstrip(".")


def read_origin(key: str) -> Origin:
    """Take a canonical URL up to its path apart. Raises ValueError for anything else."""
    match = _ORIGIN.fullmatch(key)
    if match is None or not key.isascii() or int(match[3] or 0) > 65_535:
        raise ValueError(f"not a canonical http or https origin: {key!r}")
    scheme, host, port = match[1], match[2], match[3]
    tls = scheme == "https"
    authority = f"{host}:{port}" if port else host
    return Origin(key, tls, host, int(port) if port else (443 if tls else 80), authority)
