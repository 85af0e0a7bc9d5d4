"""A robots.txt that does not answer, across restarts: the cache, with the ledger behind it and a clock that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from gossamer.config.settings import PolitenessSettings
from gossamer.contracts import Lesson, Ruling, Unreachable
from gossamer.fetch.robots_cache import OriginRobots
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import ROBOTS_ASSUMED, ROBOTS_UNREACHABLE, Batch, Deferred, Visit
from gossamer.model.request import Known, Request
from gossamer.model.response import FetchFailure, FetchProblem, Response
from gossamer.policy.robots_file import robots_version
from gossamer.testing.clock import FakeClock

ORIGIN = "http://a.test"
PAGE = f"{ORIGIN}/page"
DAY = 86_400.0
RULES = b"User-agent: *\nDisallow: /secret\nRequest-rate: 1/9\n"
REQUEST = Request(PAGE, 7, "a.test")


def response(status: int, body: bytes = b"") -> Response:
    return Response(f"{ORIGIN}/robots.txt", status, (), body, 1.0, 0.1, 10)


def failure(problem: FetchProblem = FetchProblem.CONNECT) -> FetchFailure:
    return FetchFailure(problem, "no")


class Runs:
    """One job, run again and again: each probe is by a new process, with nothing but the ledger to go by."""

    def __init__(self, ledger: Path, clock: FakeClock, days: float = 30.0) -> None:
        self.clock = clock
        self._path = ledger
        self._settings = PolitenessSettings(robots_unreachable_days=days)
        self._commits = 0

    async def probe(self, answer: Response | FetchFailure) -> tuple[Lesson, OriginRobots]:
        ledger = SqliteLedger(self._path, self.clock)
        cache = OriginRobots(self._settings, "Gossamer/1", self.clock, ledger.robots, lambda: 0.0)
        assert not await cache.recall(ORIGIN), "it must be asked for"
        lesson = cache.learn(ORIGIN, answer, self.clock())
        self._commits += 1
        visit = Visit(Known(REQUEST, 1), Deferred(), robots=(lesson.file,))
        await ledger.commit(Batch(str(self._commits), (visit,), at=self.clock()))
        await ledger.close()
        return lesson, cache

    async def recalls(self) -> bool:
        ledger = SqliteLedger(self._path, self.clock)
        cache = OriginRobots(self._settings, "Gossamer/1", self.clock, ledger.robots, lambda: 0.0)
        fresh = await cache.recall(ORIGIN)
        await ledger.close()
        return fresh


def on_runs(test: Callable[[Runs], Awaitable[None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(test(Runs(tmp_path / "ledger.sqlite", FakeClock())))  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


def allows(cache: OriginRobots, url: str = PAGE) -> bool:
    ruling = cache.rule(ORIGIN, url)
    return isinstance(ruling, Ruling) and ruling.allowed


@on_runs
async def test_after_thirty_days_of_failures_absence_is_assumed_for_as_long_as_a_robots_txt_is_used(
    runs: Runs,
) -> None:
    for answer in (response(503), response(429), failure(), failure(FetchProblem.DNS)):
        lesson, cache = await runs.probe(answer)
        assert (lesson.file.status, lesson.notes) == (ROBOTS_UNREACHABLE, ())
        assert isinstance(cache.rule(ORIGIN, PAGE), Unreachable)
        runs.clock.advance(7.4 * DAY)
    assert not allows((await runs.probe(response(500)))[1]), "29.6 days are not 30"
    runs.clock.advance(0.4 * DAY)
    lesson, cache = await runs.probe(response(500))
    assert lesson.file == msgspec.structs.replace(
        lesson.file, status=ROBOTS_ASSUMED, body=b"", version=robots_version(b"")
    )
    assert lesson.notes == (
        f"robots.txt of {ORIGIN}: unreachable for 30.0 days: its absence is assumed, so all is allowed",
    )
    assert allows(cache)
    runs.clock.advance(DAY - 1)
    assert allows(cache)
    assert await runs.recalls()
    runs.clock.advance(1)
    assert not allows(cache)
    lesson, cache = await runs.probe(failure())
    assert lesson.file.status == ROBOTS_ASSUMED, "it has not answered since"
    assert allows(cache)


@on_runs
async def test_the_last_copy_is_preferred_to_absence_and_kept_each_time(runs: Runs) -> None:
    await runs.probe(response(200, RULES))
    runs.clock.advance(2 * DAY)
    await runs.probe(failure())
    runs.clock.advance(30 * DAY)
    for _ in range(2):
        lesson, cache = await runs.probe(failure())
        assert (lesson.file.status, lesson.file.body) == (ROBOTS_ASSUMED, RULES)
        assert lesson.notes[0].endswith("the last copy is used")
        ruling = cache.rule(ORIGIN, PAGE)
        assert isinstance(ruling, Ruling)
        assert (ruling.allowed, ruling.crawl_delay, ruling.version) == (True, 9.0, robots_version(RULES))
        assert not allows(cache, f"{ORIGIN}/secret")
        runs.clock.advance(2 * DAY)


@on_runs
async def test_an_answer_ends_the_count(runs: Runs) -> None:
    await runs.probe(failure())
    runs.clock.advance(29 * DAY)
    await runs.probe(response(404))
    runs.clock.advance(2 * DAY)
    lesson, _ = await runs.probe(failure())
    assert lesson.file.status == ROBOTS_UNREACHABLE
    runs.clock.advance(29 * DAY)
    assert (await runs.probe(failure()))[0].file.status == ROBOTS_UNREACHABLE
    runs.clock.advance(1 * DAY)
    assert (await runs.probe(failure()))[0].file.status == ROBOTS_ASSUMED


@on_runs
async def test_one_that_answers_at_last_is_obeyed_at_once(runs: Runs) -> None:
    await runs.probe(failure())
    runs.clock.advance(40 * DAY)
    lesson, cache = await runs.probe(response(200, b"User-agent: *\nDisallow: /\n"))
    assert (lesson.file.status, lesson.notes) == (200, ())
    assert not allows(cache)


@on_runs
async def test_an_address_that_is_not_asked_is_never_assumed_to_allow_anything(runs: Runs) -> None:
    await runs.probe(failure())
    runs.clock.advance(40 * DAY)
    lesson, cache = await runs.probe(failure(FetchProblem.PRIVATE_ADDRESS))
    assert lesson.file.status == ROBOTS_UNREACHABLE
    assert not allows(cache)


def test_without_the_setting_it_is_waited_for_without_end(tmp_path: Path) -> None:
    async def main() -> None:
        runs = Runs(tmp_path / "ledger.sqlite", FakeClock(), days=0.0)
        for _ in range(3):
            lesson, cache = await runs.probe(failure())
            assert lesson.file.status == ROBOTS_UNREACHABLE
            assert not allows(cache)
            runs.clock.advance(1000 * DAY)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("line", "delay", "note"),
    [
        ("Crawl-delay: 99999999", None, "Crawl-delay 99999999 ignored: it is longer than 86,400 s (line 2)"),
        ("Crawl-delay: 120", 120.0, "Crawl-delay 120 cut to 60 s"),
        ("Request-rate: 1/300", 300.0, "Request-rate 1/300 cut to one in 60 s"),
    ],
)
def test_a_pace_that_is_not_followed_as_written_is_said_when_it_is_learnt(
    line: str, delay: float | None, note: str
) -> None:
    async def nothing(_origin: str) -> None:
        raise AssertionError

    cache = OriginRobots(PolitenessSettings(), "Gossamer/1", FakeClock(), nothing, lambda: 0.0)  # type: ignore[arg-type]
    lesson = cache.learn(ORIGIN, response(200, f"User-agent: *\n{line}\n".encode()), 1_000_000.0)
    assert lesson.notes == (f"robots.txt of {ORIGIN}: {note}",)
    assert lesson.file.crawl_delay == (delay or 0.0)
    ruling = cache.rule(ORIGIN, PAGE)
    assert isinstance(ruling, Ruling)
    assert ruling.crawl_delay == delay
