"""What a worker says of itself: one JSON line on stderr for what operators should see, and nothing of single pages."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime

from gossamer.observe.json_line import json_line

#: Pages that failed are in the ledger with their reasons.
_OF_PAGES = frozenset({"failed", "held", "refused", "retry", "note"})


class WorkerLog:
    """Implements `EventLog` on stderr. Where that is closed, full or without a reader, the line is lost and the work goes on."""

    def write(self, event: str, /, **fields: object) -> None:
        """Write a line, unless it is about a page."""
        if event in _OF_PAGES or sys.stderr is None:
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with suppress(OSError, ValueError):
            sys.stderr.write(json_line({"at": at, "event": event, **fields}) + "\n")
            sys.stderr.flush()
