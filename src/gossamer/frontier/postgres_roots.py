"""Which roots span the scope of a shared job, where there are more than a worker keeps in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from gossamer.frontier.postgres_arrays import Texts
from gossamer.frontier.postgres_pool import PostgresPool, Query

_ASK = """
    SELECT r.root FROM unnest(%s::text[]) AS w(root)
    CROSS JOIN LATERAL (SELECT root FROM roots WHERE job = %s::integer AND root = w.root OFFSET 0) r
"""
_MAX_REMEMBERED = 100_000
#: Roots in one statement.
_MAX_ASKED = 5_000


def which_span(job: int, roots: Sequence[str]) -> Query:
    """Ask which of these are roots of a job."""
    return Query(_ASK, (Texts(roots), job))


class PostgresRoots:
    """Remembers what the database said of roots. Answers without waiting; what it does not know can be looked up.

    It remembers a bounded number besides those that were looked up last.
    """

    def __init__(self, pool: PostgresPool, job: int) -> None:
        self._pool = pool
        self._job = job
        #: Whether it is a root, the one looked up longest ago first.
        self._known: dict[str, bool] = {}

    def is_root(self, root: str) -> bool | None:
        """Say whether the root spans the scope; None where that is not known."""
        return self._known.get(root)

    async def look_up(self, roots: Collection[str]) -> None:
        """Ask the database, as far as is needed. Until the next call all of these are known, unless they are forgotten."""
        for root in list(islice(self._known, max(len(self._known) - _MAX_REMEMBERED, 0))):
            del self._known[root]
        answers = {root: self._known[root] for root in roots if root in self._known}
        unknown = [root for root in roots if root not in answers]
        for start in range(0, len(unknown), _MAX_ASKED):
            part = unknown[start : start + _MAX_ASKED]
            (found,) = await self._pool.read(which_span(self._job, part))
            answers |= dict.fromkeys(part, False) | {root: True for (root,) in found.rows}
        self._known |= answers

    def forget(self, roots: Iterable[str]) -> None:
        """Let these be asked for again: they may have joined the scope."""
        for root in roots:
            self._known.pop(root, None)

    def forget_strangers(self) -> None:
        """Let whatever was no root be asked for again."""
        self._known = {root: True for root, spans in self._known.items() if spans}
