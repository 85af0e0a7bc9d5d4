"""How many records a job in PostgreSQL may still have, exactly, whoever commits at the same time.

A commit is tried as if there were room. Its last statement, under the lock of the log's head, counts all records of the
job and fails where they are too many: only then it is done again, with as many as fit. So there is nothing to wait for
until the limit is reached.
"""

from __future__ import annotations

from gossamer.frontier.postgres_pool import Query

#: First half of the key of a job's lock on what room is left.
_ROOM = 0x676F7372

_RECORDS = """
    SELECT coalesce(sum(n), 0)::bigint AS total FROM totals WHERE job = %s::integer AND name = 'records'
"""
# A division by zero is what ends the transaction: a statement that only said so would be heard after the COMMIT, which
# is sent with it.
_CHECK = f"SELECT total, 1 / (total <= %s::bigint)::integer FROM ({_RECORDS}) t"  # noqa: S608 - a constant


def check_limit(job: int, limit: int) -> Query:
    """Count the records of a job; raises `LimitPassed` with more than `limit`. Only under the lock of the log's head."""
    return Query(_CHECK, (limit, job))


def count_under_lock(job: int) -> tuple[Query, Query]:
    """Be the only one who divides what is left, until the commit, and count the records of the job.

    To be asked before any row is locked. Whoever still believes that there is room does not wait for this lock: so what is
    written must be checked all the same.
    """
    lock = Query("SELECT pg_advisory_xact_lock(%s::integer, %s::integer)", (_ROOM, job))
    # Each statement sees what was committed before it began: the lock must be one of its own.
    return lock, Query(_RECORDS, (job,))
