"""From what a user writes after `-o` to a sink."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Literal

from gossamer.contracts import Failpoint, Sink, no_failpoint
from gossamer.errors import UsageError
from gossamer.sinks.codec import CODECS, PLAIN, Codec
from gossamer.sinks.csv import CsvRows, CsvSink
from gossamer.sinks.jsonl import JsonLines, JsonlSink
from gossamer.sinks.stream import StdoutSink, StreamSink

_STDOUT_NAMES = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")

FormName = Literal["jsonl", "csv"]
_FORMS: dict[str, FormName] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
#: How an output's name may end, and what that asks for.
SUFFIXES: dict[str, tuple[FormName, Codec]] = {
    form + packed: (_FORMS[form], codec) for packed, codec in CODECS.items() for form in _FORMS
}


def open_sink(
    spec: str,
    *,
    fields: tuple[str, ...] = (),
    csv_escape: bool = True,
    failpoint: Failpoint = no_failpoint,
) -> Sink:
    """Return the sink for an output, not yet opened. Nothing is touched, and an unknown suffix is a `UsageError`."""
    if not spec or "\0" in spec:
        raise UsageError(f"{spec!r} is not a name for an output")
    if spec in _STDOUT_NAMES:
        return StdoutSink(fields=fields)
    if _is_stream(spec):
        # A pipe or a device may have any name, and then it gets plain JSON lines.
        form, codec = _asked_for(spec) or ("jsonl", PLAIN)
        rows = CsvRows(fields, escape=csv_escape) if form == "csv" else JsonLines(fields)
        return StreamSink(spec, rows, codec)
    match _asked_for(spec):
        case ("csv", _):
            return CsvSink(spec, fields=fields, escape=csv_escape, failpoint=failpoint)
        case ("jsonl", _):
            return JsonlSink(spec, fields=fields, failpoint=failpoint)
    raise UsageError(
        f"unknown kind of output {spec!r}: its name must end in one of {', '.join(SUFFIXES)}, or be - for stdout"
    )


def _asked_for(name: str) -> tuple[FormName, Codec] | None:
    """Return the form and the compression a name asks for, if it does."""
    return next((SUFFIXES[suffix] for suffix in SUFFIXES if name.lower().endswith(suffix)), None)


def _is_stream(path: str) -> bool:
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
