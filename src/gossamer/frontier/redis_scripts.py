"""The Lua scripts of the shared schedule, as the server gets them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

#: Scripts that put something into the schedule. When Redis is full they are refused as a whole, before they have
#: changed anything; all others free memory in the end, and must run.
_GROWING = frozenset({"activate", "offer", "hungry", "push"})
_NAMES = (
    "activate",
    "control",
    "crowd",
    "expire",
    "find",
    "hunger",
    "hungry",
    "lease",
    "offer",
    "open",
    "outlook",
    "peek",
    "push",
    "report",
    "retire",
    "stalled",
    "states",
)


class Script(msgspec.Struct, frozen=True):
    """A script and the name the server knows it by."""

    text: bytes
    sha: str


def load_scripts() -> dict[str, Script]:
    """Read all scripts. Each begins with the same prelude."""
    folder = Path(__file__).parent / "lua"
    prelude = (folder / "prelude.lua").read_bytes()
    return {name: _script(name, prelude + (folder / f"{name}.lua").read_bytes()) for name in _NAMES}


def _script(name: str, body: bytes) -> Script:
    text = (b"#!lua\n" if name in _GROWING else b"#!lua flags=allow-oom\n") + body
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())
