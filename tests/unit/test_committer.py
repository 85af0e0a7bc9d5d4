"""Finished visits become batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gossamer.config.settings import EngineSettings
from gossamer.engine.committer import Committer, Done
from gossamer.model.outcome import Committed, Crashed, Cursor, Deferred, Visit
from gossamer.model.request import Lease
from gossamer.testing.frontier_cases import known, visit


def done(name: str, token: int, *, crashed: bool = False, deferred: bool = False) -> Done:
    item = known(name, 1)
    lease = Lease(item, token, 0.0)
    if crashed:
        return lease, Visit(item, Crashed(alone=False))
    return lease, Visit(item, Deferred()) if deferred else visit(item)


def batches_of(*put: Done) -> list[list[int]]:
    """Return the tokens of each batch that visits are committed in."""
    batches: list[list[int]] = []

    async def commit(_batch: str, items: Sequence[Done], _cursors: Sequence[Cursor]) -> Committed:
        batches.append([lease.token for lease, _ in items])
        return Committed(len(batches), frozenset(), [])

    async def main() -> None:
        settings = EngineSettings(commit_pages=len(put), commit_seconds=60.0)
        committer = Committer(settings, commit, list, lambda _items, _committed: None, "run")
        running = asyncio.create_task(committer.run())
        for item in put:
            committer.put(item)
        async with asyncio.timeout(5):
            while committer.uncommitted:
                await asyncio.sleep(0)
        committer.close()
        await running

    asyncio.run(main())
    return batches


def test_two_visits_of_one_url_are_not_committed_together() -> None:
    late, crash, other = done("a.test/1", 1), done("a.test/1", 1, crashed=True), done("a.test/2", 2)
    again = done("a.test/1", 3)
    assert batches_of(late, crash, other, again) == [[1, 2], [1], [3]]


def test_a_visit_that_only_fetched_the_robots_txt_goes_with_the_one_that_follows_it() -> None:
    assert batches_of(done("a.test/1", 1, deferred=True), done("a.test/1", 2)) == [[1, 2]]
