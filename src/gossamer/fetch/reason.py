"""Errors of the network as one line for people."""

from __future__ import annotations

import os
import ssl


def tls_reason(error: ssl.SSLError) -> str:
    """Say why an encrypted connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


def os_reason(error: OSError) -> str:
    """Say why a connection failed."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def one_line(text: str) -> str:
    """Return text of any origin as a line of bounded length."""
    return " ".join(text.split())[:300]
