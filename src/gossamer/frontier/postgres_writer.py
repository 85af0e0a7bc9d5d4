"""Writes what a batch changes about URLs to a PostgreSQL ledger, whatever other workers are writing meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gossamer.frontier import postgres_urls as urls
from gossamer.frontier.postgres_plan import Plan
from gossamer.frontier.postgres_pool import ConflictLost, PostgresPool, Query, Session
from gossamer.model.request import Known

_MAX_CACHED_HOSTS = 50_000


class UrlWriter:
    """Knows the ids of hosts, and carries out plans."""

    def __init__(self, pool: PostgresPool, job: int) -> None:
        self._pool = pool
        self._job = job
        self._host_ids: dict[str, int] = {}

    async def hosts(self, names: set[str]) -> Mapping[str, int]:
        """Return the ids of hosts; makes those that are missing, in a transaction of its own, which nothing undoes."""
        # A copy: another call may clear the cache while this one waits.
        ids = {name: self._host_ids[name] for name in names if name in self._host_ids}
        missing = [name for name in names if name not in ids]
        if missing:
            query = urls.sources(self._job, missing)
            found = dict((await self._pool.ask(query))[0].rows)
            if len(found) < len(missing):
                made = await self._pool.ask(urls.add_sources(self._job, set(missing) - set(found)), query)
                found = dict(made[1].rows)
            if len(self._host_ids) + len(found) > _MAX_CACHED_HOSTS:
                self._host_ids.clear()
            self._host_ids.update(found)
            ids.update(found)
        return ids

    async def write(
        self,
        session: Session,
        plan: Plan,
        blocks: Sequence[tuple[int, ...]],
        hosts: Mapping[str, int],
        at: float,
        *more: Query,
    ) -> tuple[list[Known], list[Known]]:
        """Write a plan, and in the same round trip what else there is; returns new and old requests that now wait."""
        known = urls.numbered(plan.new, blocks)
        queries = urls.changes(self._job, plan, at, hosts)
        if plan.waiting:
            queries.append(urls.read(self._job, plan.waiting))
        reads = len(queries)
        if known:
            queries.append(urls.insert(self._job, plan.new, known, hosts))
        if queries or more:
            results = await session.run(*queries, *more)
        waiting = [urls.known_of(row) for row in results[reads - 1].rows] if plan.waiting else []
        if known and results[reads].changed < len(known):
            await self._drop_overtaken(session, plan, known)
        plan.added(plan.new)
        kept = {item.found.request.fingerprint for item in plan.new if not item.found.refusal}
        return [item for item in known if item.request.fingerprint in kept], waiting

    async def _drop_overtaken(self, session: Session, plan: Plan, known: Sequence[Known]) -> None:
        """Leave what another transaction has inserted since we looked to it.

        Where our finding is better, all must be done again: to lock these rows now would be out of order.
        """
        (result,) = await session.run(urls.overtaken(self._job, known))
        theirs = {fp: (depth, priority) for fp, depth, priority in result.rows}
        for item in plan.new:
            request = item.found.request
            depth, priority = theirs.get(request.fingerprint, (request.depth, request.priority))
            if request.depth < depth or request.priority < priority:
                raise ConflictLost("other workers keep finding the same URLs first: use fewer workers")
        plan.new = [item for item in plan.new if item.found.request.fingerprint not in theirs]
