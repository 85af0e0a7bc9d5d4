"""What did not go well with pages, for the job's log."""

from __future__ import annotations

from collections.abc import Iterable

from gossamer.contracts import EventLog
from gossamer.model.outcome import Crashed, Retry, Settled, State, Visit


def log_problems(log: EventLog, visits: Iterable[Visit]) -> None:
    """Write a line for what did not go well; ordinary pages are in the ledger."""
    for visit in visits:
        url = visit.known.request.url
        for note in visit.notes:
            log.write("note", url=url, text=note)
        match visit.outcome:
            case Settled(State.FAILED | State.HELD | State.REFUSED as state, reason, detail):
                log.write(state.label, url=url, reason=reason, detail=detail)
            case Retry(reason, not_before, detail):
                log.write("retry", url=url, reason=reason, detail=detail, not_before=not_before)
            case Crashed(alone, poison):
                log.write("crashed", url=url, alone=alone, poison=poison)
