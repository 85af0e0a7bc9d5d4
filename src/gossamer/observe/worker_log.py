"""What a worker says of itself: one JSON line on stderr for what operators should see, and nothing of single pages."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from gossamer.observe.json_line import json_line

#: Pages that failed are in the ledger with their reasons.
_OF_PAGES = frozenset({"failed", "held", "refused", "retry", "note"})


class WorkerLog:
    """Implements `EventLog` on stderr."""

    def write(self, event: str, /, **fields: object) -> None:
        """Write a line, unless it is about a page."""
        if event in _OF_PAGES:
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        sys.stderr.write(json_line({"at": at, "event": event, **fields}) + "\n")
        sys.stderr.flush()
