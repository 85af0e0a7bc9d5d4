"""How fast a run goes and when it ends: figures that are steady, and silent where nothing can be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.model.event import Snapshot
from gossamer.observe.pace import PaceMeter
from gossamer.observe.wording import duration_text, harmless, number_text


def snapshot(elapsed: float, *, queued: int = 100, pages: int = 0, seeding: bool = False) -> Snapshot:
    return Snapshot(
        elapsed=elapsed,
        states={"fetched": {"ok": pages}, "queued": {"": queued}},
        pages=pages,
        run_pages=pages,
        fetches=pages,
        wire_bytes=pages * 20_000,
        retries=0,
        in_flight=8,
        hosts=4,
        next_due=None,
        seeding=seeding,
    )


def crawl(seconds: float, queued: Callable[[float], int]) -> Iterator[Snapshot]:
    for i in range(int(seconds * 4) + 1):
        yield snapshot(i / 4, queued=queued(i / 4), pages=int(5 * i))


def eta_of(moments: Iterator[Snapshot], max_pages: int | None = None) -> tuple[float | None, str]:
    meter = PaceMeter(max_pages)
    paces = [meter.take(moment) for moment in moments]
    return paces[-1].eta, paces[-1].eta_unknown


def test_the_eta_is_unknown_while_the_frontier_grows() -> None:
    assert eta_of(crawl(60, lambda t: int(100 + 5 * t))) == (None, "unknown while the frontier grows")


def test_the_eta_is_a_figure_once_the_frontier_shrinks() -> None:
    eta, _ = eta_of(crawl(40, lambda t: int(1000 - abs(t - 20) * 20)))
    assert eta == pytest.approx(600 / 20, rel=0.05)


def test_a_moment_without_growth_is_not_taken_for_the_end_of_it() -> None:
    assert eta_of(crawl(24, lambda t: int(1000 - abs(t - 20) * 20)))[0] is None


def test_a_frontier_that_links_refill_has_no_eta() -> None:
    assert eta_of(crawl(60, lambda t: int(1000 - t / 10)))[0] is None


def test_the_eta_is_unknown_while_seeds_are_read() -> None:
    moments = (snapshot(t, queued=1000 - t, pages=t, seeding=True) for t in range(30))
    assert eta_of(moments) == (None, "unknown while seeds are read")


def test_the_eta_is_unknown_while_nothing_moves() -> None:
    assert eta_of(snapshot(t, pages=50) for t in range(60)) == (None, "unknown while nothing moves")


def test_a_page_limit_within_reach_gives_an_eta_although_the_frontier_grows() -> None:
    eta, _ = eta_of(crawl(20, lambda t: int(1000 + 50 * t)), max_pages=1000)
    assert eta == pytest.approx(600 / 20)


def test_a_page_limit_beyond_the_frontier_gives_none() -> None:
    assert eta_of(crawl(20, lambda t: int(10 + t)), max_pages=1000)[0] is None


def test_a_slow_host_has_a_steady_rate() -> None:
    meter = PaceMeter(None)
    rates = [meter.take(snapshot(t / 4, pages=t // 16)).pages_per_second for t in range(400)]
    assert all(0.2 < rate < 0.3 for rate in rates[200:])


def test_rates_follow_the_last_five_seconds() -> None:
    meter = PaceMeter(None)
    for t in range(20):
        meter.take(snapshot(t, pages=t * 100))
    rates = [meter.take(snapshot(t, pages=2000 + (t - 20) * 10)).pages_per_second for t in range(20, 30)]
    assert rates[-1] == pytest.approx(10)


def test_the_meter_keeps_a_bounded_number_of_samples() -> None:
    meter = PaceMeter(None)
    for i in range(10_000):
        meter.take(snapshot(i / 50, pages=i))
    assert len(meter._samples) <= 151


@settings(deadline=None)
@given(st.text())
def test_harmless_text_is_one_visible_line(text: str) -> None:
    assert harmless(text).isprintable()
    assert harmless(text) == text or not text.isprintable()


def test_long_text_is_cut() -> None:
    assert len(harmless("x" * 5000)) == 1000


def test_numbers_and_durations_stay_short() -> None:
    assert [number_text(n) for n in (0, 12_345, 999_999, 1_234_567, 10**9)] == [
        "0",
        "12,345",
        "999,999",
        "1.23 M",
        "1.00 G",
    ]
    assert [duration_text(s) for s in (0.4, 59.6, 127, 3900, 100_000)] == [
        "0 s",
        "1 min 00 s",
        "2 min 07 s",
        "1 h 05 min",
        "1 d 3 h",
    ]
