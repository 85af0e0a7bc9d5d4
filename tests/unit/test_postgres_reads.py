"""Questions that come up together are asked together."""

from __future__ import annotations

import asyncio

import pytest

from gossamer.errors import BackendLost
from gossamer.frontier.postgres_pool import Query, Result
from gossamer.frontier.postgres_reads import MAX_STATEMENTS, PostgresReads


class Server:
    """Answers a statement with its own text, and remembers what came together."""

    def __init__(self, *, is_lost: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._is_lost = is_lost

    async def ask(self, *queries: Query) -> list[Result]:
        self.batches.append([query.sql for query in queries])
        await self.may_answer.wait()
        if self._is_lost:
            raise BackendLost("gone")
        return [Result([(query.sql,)], 1) for query in queries]


def answers(results: list[Result]) -> list[str]:
    return [row[0] for result in results for row in result.rows]


def test_what_is_asked_at_the_same_moment_is_one_transaction_and_each_gets_its_own_answers() -> None:
    async def main() -> None:
        server = Server()
        reads = PostgresReads(server.ask)
        got = await asyncio.gather(
            reads.read(Query("a")), reads.read(Query("b"), Query("c")), reads.read(Query("d"))
        )
        assert [answers(each) for each in got] == [["a"], ["b", "c"], ["d"]]
        assert server.batches == [["a", "b", "c", "d"]]

    asyncio.run(main())


def test_what_comes_up_while_others_are_answered_goes_together_afterwards() -> None:
    async def main() -> None:
        server = Server()
        server.may_answer.clear()
        reads = PostgresReads(server.ask)
        asked = []
        for text in "abc":
            asked.append(asyncio.create_task(reads.read(Query(text))))
            while not server.batches:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        server.may_answer.set()
        assert [answers(each) for each in await asyncio.gather(*asked)] == [["a"], ["b"], ["c"]]
        assert server.batches == [["a"], ["b", "c"]]

    asyncio.run(main())


def test_a_transaction_has_a_bounded_number_of_statements() -> None:
    async def main() -> None:
        server = Server()
        reads = PostgresReads(server.ask)
        asked = [str(number) for number in range(2 * MAX_STATEMENTS + 1)]
        got = await asyncio.gather(*(reads.read(Query(text)) for text in asked))
        assert [text for each in got for text in answers(each)] == asked
        assert [len(batch) for batch in server.batches] == [MAX_STATEMENTS, MAX_STATEMENTS, 1]

    asyncio.run(main())


def test_a_caller_that_is_cancelled_waits_and_takes_nothing_from_the_others() -> None:
    async def main() -> None:
        server = Server()
        server.may_answer.clear()
        reads = PostgresReads(server.ask)
        leaving, staying = (asyncio.create_task(reads.read(Query(text))) for text in ("a", "b"))
        while not server.batches:
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        assert not leaving.done()
        server.may_answer.set()
        assert answers(await staying) == ["b"]
        with pytest.raises(asyncio.CancelledError):
            await leaving

    asyncio.run(main())


def test_an_error_is_everybodys_who_asked_and_not_of_those_who_ask_next() -> None:
    async def main() -> None:
        server = Server(is_lost=True)
        reads = PostgresReads(server.ask)
        got = await asyncio.gather(*(reads.read(Query(text)) for text in "ab"), return_exceptions=True)
        assert [type(each) for each in got] == [BackendLost, BackendLost]
        server._is_lost = False
        assert answers(await reads.read(Query("c"))) == ["c"]

    asyncio.run(main())
