"""From what a user writes after `-o` to a sink."""

from __future__ import annotations

import stat
from pathlib import Path

from gossamer.contracts import Failpoint, Sink, no_failpoint
from gossamer.errors import UsageError
from gossamer.sinks.jsonl import JsonlSink
from gossamer.sinks.stream import StdoutSink, StreamSink

_STDOUT_NAMES = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def open_sink(spec: str, *, fields: tuple[str, ...] = (), failpoint: Failpoint = no_failpoint) -> Sink:
    """Return the sink for an output, not yet opened. Nothing is touched, and an unknown suffix is a `UsageError`."""
    if not spec or "\0" in spec:
        raise UsageError(f"{spec!r} is not a name for an output")
    if spec in _STDOUT_NAMES:
        return StdoutSink(fields=fields)
    if _is_stream(spec):
        return StreamSink(spec, fields=fields)
    return JsonlSink(spec, fields=fields, failpoint=failpoint)


def _is_stream(path: str) -> bool:
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
