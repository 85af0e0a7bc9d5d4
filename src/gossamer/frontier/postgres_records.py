"""The records of a PostgreSQL ledger: written as `jsonb`, for people who ask in SQL, and read back as the lines they were.

`jsonb` forgets the order of keys and the spacing. A record has its fields in one order and no spacing, so both are
made again. What `data` holds keeps the order that PostgreSQL gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from gossamer.frontier.postgres_arrays import Bigints, Integers, Jsonbs
from gossamer.frontier.postgres_pool import Query, Session
from gossamer.model.outcome import Batch, Settled, Visit
from gossamer.model.record import FIELDS, storable_line
from gossamer.model.schedule import LogEntry

_PAGES = """
    INSERT INTO pages(job, number, n, fp, attempt, status, record)
    SELECT %s::integer, %s::bigint, w.n, w.fp, w.attempt, w.status, w.record
    FROM unnest(%s::bigint[], %s::integer[], %s::integer[], %s::jsonb[]) WITH ORDINALITY AS w(fp, attempt, status, record, n)
"""
# No text of jsonb has a line end in it.
_LINES = """
    convert_to((SELECT string_agg(record::text, chr(10) ORDER BY n) FROM pages p WHERE p.number = {number}), 'UTF8')
"""
_STORED = f"SELECT {_LINES.format(number='%s::bigint')}"
_LOG = f"""
    SELECT l.position, l.records, {_LINES.format(number="l.number")}
    FROM (
        SELECT position, records, number FROM log WHERE job = %s::integer AND position > %s AND records > 0
        ORDER BY position LIMIT %s
    ) l ORDER BY l.position
"""  # noqa: S608 - constants
#: A record that has this may come back spelled otherwise than it was sent.
_FREE = b',"data":'

# As dicts, not as `PageRecord`: a field that a newer worker has written must not get lost where an older one reads. Numbers
# keep every digit.
_decode = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal).decode_lines
_encode = msgspec.json.Encoder(decimal_format="number").encode_lines


def pages(job: int, number: int, visits: Sequence[Visit]) -> list[Query]:
    """Write the records of a commit, in this order."""
    if not visits:
        return []
    known = [visit.known for visit in visits]
    status = [v.outcome.status if isinstance(v.outcome, Settled) else 0 for v in visits]
    columns = (
        Bigints([each.request.fingerprint for each in known]),
        Integers([each.attempt for each in known]),
        Integers(status),
        Jsonbs([visit.record for visit in visits]),
    )
    return [Query(_PAGES, (job, number, *columns))]


async def lines(session: Session, number: int, visits: Sequence[Visit]) -> bytes:
    """Return the records of a commit as the log will: outputs that run along get the bytes of those that come later."""
    if not visits:
        return b""
    if any(_FREE in visit.record for visit in visits):
        return _lines_of((await session.run(Query(_STORED, (number,))))[0].rows[0][0])
    return b"\n".join([*(visit.record for visit in visits), b""])


def storable(batch: Batch) -> Batch:
    """Return a batch whose records PostgreSQL can hold. Those that workers make are such, but for their `data`."""
    visits = (msgspec.structs.replace(visit, record=storable_line(visit.record)) for visit in batch.visits)
    return msgspec.structs.replace(batch, visits=tuple(visits))


def log(job: int, after: int, limit: int) -> Query:
    """Ask for entries of the record log, for `entry_of`."""
    return Query(_LOG, (job, after, limit))


def entry_of(row: tuple[Any, ...]) -> LogEntry:
    """Return the entry of the record log that a row stands for."""
    position, records, text = row
    return LogEntry(position, records, _lines_of(text))


def _lines_of(text: bytes) -> bytes:
    """Return records as JSON lines: the fields of a record in their order, then those this program does not know."""
    return _encode([_in_order(record) for record in _decode(text)])


def _in_order(record: dict[str, Any]) -> dict[str, Any]:
    fields = {name: record.pop(name) for name in FIELDS if name in record}
    return fields | record if record else fields
