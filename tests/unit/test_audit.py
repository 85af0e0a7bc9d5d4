"""The politeness audit, on ledgers that were written as a crawl writes them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from gossamer.config.settings import PolitenessSettings
from gossamer.errors import LedgerFailed
from gossamer.fetch.robots_cache import OriginRobots
from gossamer.frontier.sqlite_audit import SqliteAuditReader
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.model.outcome import (
    ROBOTS_ASSUMED,
    Batch,
    Deferred,
    Fetch,
    Found,
    RobotsFile,
    Settled,
    State,
    StoredRobots,
    Visit,
)
from gossamer.model.request import Known, Request
from gossamer.model.response import Response
from gossamer.model.url import canonicalise, dedup_key, fingerprint, host_of
from gossamer.observe.audit import MAX_VIOLATIONS, Audit, Auditor, AuditTerms
from gossamer.policy.robots_file import robots_version

T = 1_800_000_000.0
ORIGIN = "https://a.example"
RULES = b"User-agent: *\nDisallow: /private/\n"
TERMS = AuditTerms(
    user_agent="Gossamer/1",
    politeness=PolitenessSettings(),
    grace_seconds=30.0,
    visits_at_once=100,
)


def page(
    path: str, at: float, *, delay: float = 1.0, robots: int | bytes = RULES, origin: str = ORIGIN
) -> Fetch:
    version = robots if isinstance(robots, int) else robots_version(robots)
    url = origin + path
    return Fetch(url, host_of(url), T + at, delay, 0.1, 200, 10, robots=version)


def robots_fetch(at: float, url: str = f"{ORIGIN}/robots.txt", group: str = "a.example") -> Fetch:
    return Fetch(url, group, T + at, 1.0, 0.1, 200, 10, kind="robots")


def robots_file(at: float, body: bytes = RULES, origin: str = ORIGIN) -> RobotsFile:
    return RobotsFile(origin, T + at, 200, body, robots_version(body))


def assumed_file(at: float) -> RobotsFile:
    return RobotsFile(ORIGIN, T + at, ROBOTS_ASSUMED, RULES, robots_version(RULES))


def request(url: str) -> Request:
    canonical = canonicalise(url)
    return Request(canonical, fingerprint(dedup_key(canonical)), host_of(canonical))


async def write(
    path: Path,
    fetches: Sequence[Fetch],
    files: Sequence[RobotsFile],
    batch: str = "run-1",
    *,
    done: bool = True,
) -> None:
    """Commit a job: a visit for each fetch, in the order given, which need not be that of their starts."""
    ledger = SqliteLedger(path, lambda: T)
    urls = dict.fromkeys(fetch.url for fetch in fetches if fetch.kind == "page")
    added = await ledger.add([Found(request(url)) for url in urls])
    by_url = {known.request.url: known for known in added.live}
    visits = [_visit(by_url.get(fetch.url) or _anyone(), fetch, done=done) for fetch in fetches]
    await ledger.commit(Batch(batch, (*visits, Visit(_anyone(), Deferred(), robots=tuple(files))), at=T))
    await ledger.close()


def _anyone() -> Known:
    return Known(request(f"{ORIGIN}/anyone"), 999)


def _visit(known: Known, fetch: Fetch, *, done: bool) -> Visit:
    outcome = Settled(State.FETCHED, "ok", status=200) if done and fetch.kind == "page" else Deferred()
    return Visit(known, outcome, fetches=(fetch,))


def audited(
    folder: Path, fetches: Sequence[Fetch], files: Sequence[RobotsFile] = (), terms: AuditTerms = TERMS
) -> Audit:
    path = folder / "ledger.sqlite"
    asyncio.run(write(path, fetches, files))
    return audit(path, terms)


def audit(path: Path, terms: AuditTerms = TERMS) -> Audit:
    with SqliteAuditReader(path) as reader, reader.snapshot():
        return Auditor(reader, terms).run("job")


def kinds(result: Audit) -> list[str]:
    return [violation.kind for violation in result.violations]


def change(path: Path, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as ledger, ledger:
        assert ledger.execute(sql, parameters).rowcount > 0


# -- gaps ------------------------------------------------------------------------------------------------


def test_a_polite_job_has_no_violations(tmp_path: Path) -> None:
    result = audited(
        tmp_path, [robots_fetch(0), page("/", 1.0), page("/a", 2.1), page("/b", 3.4)], [robots_file(0.1)]
    )
    assert (result.polite, result.violation_count, result.violations) == (True, 0, ())
    assert (result.requests, result.pages, result.robots_files, result.groups) == (4, 3, 1, 1)
    assert result.oldest_robots_seconds == pytest.approx(3.3)
    (tightest,) = result.tightest
    assert (tightest.group, tightest.starts, tightest.gap_seconds) == ("a.example", 4, 1.0)


def test_a_gap_that_is_too_short_is_found_whatever_the_order_of_the_log(tmp_path: Path) -> None:
    fetches = [page("/late", 4.5), robots_fetch(0), page("/early", 4.0), page("/first", 2.0)]
    result = audited(tmp_path, fetches, [robots_file(0.1)])
    (violation,) = result.violations
    assert (violation.kind, violation.url) == ("gap", f"{ORIGIN}/late")
    assert violation.detail == "0.5000 s after the request before it; the delay was 1 s"
    assert violation.time == "2027-01-15T08:00:04.500Z"


@pytest.mark.parametrize(("gap", "found"), [(0.9995, []), (0.998, ["gap"])])
def test_a_millisecond_is_forgiven_and_no_more(tmp_path: Path, gap: float, found: list[str]) -> None:
    result = audited(tmp_path, [page("/", 5.0), page("/a", 5.0 + gap)], [robots_file(0)])
    assert kinds(result) == found


def test_the_delay_of_the_later_request_counts(tmp_path: Path) -> None:
    fetches = [page("/", 1.0, delay=5.0), page("/a", 2.0, delay=1.0), page("/b", 4.0, delay=3.0)]
    result = audited(tmp_path, fetches, [robots_file(0)])
    assert [violation.url for violation in result.violations] == [f"{ORIGIN}/b"]


def test_robots_txt_is_a_start_like_any_other(tmp_path: Path) -> None:
    result = audited(tmp_path, [robots_fetch(0), page("/", 0.4)], [robots_file(0.1)])
    assert kinds(result) == ["gap"]


def test_groups_do_not_wait_for_each_other(tmp_path: Path) -> None:
    other = "https://b.example"
    fetches = [page("/", 1.0), page("/", 1.1, origin=other), page("/a", 2.0), page("/a", 2.1, origin=other)]
    result = audited(tmp_path, fetches, [robots_file(0), robots_file(0, origin=other)])
    assert (result.polite, result.groups, len(result.tightest)) == (True, 2, 2)


def test_a_redirected_robots_txt_is_a_start_of_the_host_it_reached(tmp_path: Path) -> None:
    hop = robots_fetch(0.05, "https://b.example/robots.txt")
    files = [robots_file(0.1), robots_file(-9, origin="https://b.example")]
    apart = page("/", 2.0, origin="https://b.example")
    assert audited(tmp_path, [robots_fetch(0), hop, page("/", 1.0), apart], files).polite
    close = page("/x", 0.5, origin="https://b.example")
    (tmp_path / "ledger.sqlite").unlink()
    result = audited(tmp_path, [robots_fetch(0), hop, page("/", 1.0), close], files)
    assert [(v.kind, v.group, v.url) for v in result.violations] == [
        ("gap", "b.example", "https://b.example/x")
    ]


def test_only_the_ten_tightest_groups_are_named_the_tightest_first(tmp_path: Path) -> None:
    fetches, files = [], []
    for number in range(15):
        origin = f"https://h{number:02}.example"
        fetches += [page("/", 1.0, origin=origin), page("/a", 3.0 - number / 20, origin=origin)]
        files.append(robots_file(0, origin=origin))
    result = audited(tmp_path, fetches, files)
    assert [line.group for line in result.tightest] == [
        f"h{number:02}.example" for number in range(14, 4, -1)
    ]


def test_a_job_without_a_delay_has_no_gap_to_show(tmp_path: Path) -> None:
    result = audited(tmp_path, [page("/", 1, delay=0), page("/a", 1, delay=0)], [robots_file(0)])
    assert (result.polite, result.tightest) == (True, ())


# -- robots ----------------------------------------------------------------------------------------------


def test_a_forbidden_page_is_found_with_the_line_that_forbids_it(tmp_path: Path) -> None:
    result = audited(tmp_path, [page("/private/x", 1.0)], [robots_file(0)])
    (violation,) = result.violations
    assert (violation.kind, violation.url) == ("forbidden", f"{ORIGIN}/private/x")
    assert violation.detail == "Disallow: /private/ (line 2 of robots.txt)"


def test_each_page_is_judged_by_the_robots_txt_of_its_time(tmp_path: Path) -> None:
    newer = b"User-agent: *\nDisallow: /a\n"
    files = [robots_file(0), robots_file(100, newer)]
    fetches = [page("/a", 50), page("/private/b", 150, robots=newer), page("/a", 200, robots=newer)]
    result = audited(tmp_path, fetches, files)
    assert [(v.kind, v.url) for v in result.violations] == [("forbidden", f"{ORIGIN}/a")]


def test_a_page_without_a_version_was_fetched_without_asking(tmp_path: Path) -> None:
    assert kinds(audited(tmp_path, [page("/", 1.0, robots=0)], [robots_file(0)])) == ["no_robots"]


def test_a_version_that_is_not_stored_is_a_violation(tmp_path: Path) -> None:
    assert kinds(audited(tmp_path, [page("/", 1.0, robots=b"else")], [robots_file(0)])) == ["unknown_robots"]


def test_another_origins_robots_txt_does_not_count(tmp_path: Path) -> None:
    result = audited(tmp_path, [page("/", 1.0)], [robots_file(0, origin="http://a.example")])
    assert kinds(result) == ["unknown_robots"]


def test_a_page_before_the_first_robots_txt_is_a_violation(tmp_path: Path) -> None:
    assert kinds(audited(tmp_path, [page("/", 1.0)], [robots_file(2.0)])) == ["before_robots"]


def test_a_robots_txt_that_was_replaced_is_not_in_force(tmp_path: Path) -> None:
    files = [robots_file(0), robots_file(100, b"User-agent: *\nDisallow: /\n")]
    assert kinds(audited(tmp_path, [page("/", 200)], files)) == ["old_robots"]


def test_a_page_that_was_allowed_just_before_a_new_robots_txt_came_is_judged_by_the_old(
    tmp_path: Path,
) -> None:
    files = [robots_file(0), robots_file(100, b"User-agent: *\nDisallow: /\n")]
    assert audited(tmp_path, [page("/", 110)], files).polite


def test_a_robots_txt_whose_text_was_altered_proves_nothing(tmp_path: Path) -> None:
    forged = RobotsFile(ORIGIN, T, 200, b"User-agent: *\nAllow: /\n", robots_version(RULES))
    assert kinds(audited(tmp_path, [page("/", 1.0)], [forged])) == ["altered_robots"]


def test_crawl_delay_binds_the_requests_to_its_origin(tmp_path: Path) -> None:
    slow = b"User-agent: *\nCrawl-delay: 5\n"
    fetches = [page("/", 10, robots=slow), page("/a", 15, robots=slow), page("/b", 16.5, robots=slow)]
    result = audited(tmp_path, fetches, [robots_file(0, slow)])
    assert [(v.kind, v.url) for v in result.violations] == [("crawl_delay", f"{ORIGIN}/b")]


def test_a_crawl_delay_beyond_the_bound_is_held_to_the_bound(tmp_path: Path) -> None:
    slow = b"User-agent: *\nCrawl-delay: 9999\n"
    fetches = [page("/", 100, robots=slow), page("/a", 160, robots=slow)]
    assert audited(tmp_path, fetches, [robots_file(0, slow)]).polite


def test_a_request_rate_binds_as_a_crawl_delay_does_and_an_absurd_one_does_not(tmp_path: Path) -> None:
    slow = b"User-agent: *\nRequest-rate: 1/5\nCrawl-delay: 99999999\n"
    fetches = [page("/", 10, robots=slow), page("/a", 15, robots=slow), page("/b", 16.5, robots=slow)]
    result = audited(tmp_path, fetches, [robots_file(0, slow)])
    assert [(v.kind, v.url) for v in result.violations] == [("crawl_delay", f"{ORIGIN}/b")]


@pytest.mark.parametrize(
    ("answered_days", "days", "found"),
    [((), 30.0, []), ((-30.1,), 30.0, []), ((-29.9,), 30.0, ["assumed_robots"]), ((-29.9,), 0.0, [])],
)
def test_a_robots_txt_is_given_up_only_after_the_days_without_an_answer(
    tmp_path: Path, answered_days: tuple[float, ...], days: float, found: list[str]
) -> None:
    files = [robots_file(day * 86_400) for day in answered_days]
    files += [assumed_file(-86_400), assumed_file(0)]
    terms = msgspec.structs.replace(TERMS, politeness=PolitenessSettings(robots_unreachable_days=days))
    result = audited(tmp_path, [page("/", 1.0)], files, terms)
    assert (kinds(result), result.assumed_pages) == (found, 1)


def test_the_copy_that_stands_in_for_a_robots_txt_is_still_obeyed(tmp_path: Path) -> None:
    result = audited(tmp_path, [page("/private/", 1.0), page("/", 2.0)], [assumed_file(0)])
    assert (kinds(result), result.assumed_pages) == (["forbidden"], 2)


def test_with_robots_off_only_the_gaps_are_checked(tmp_path: Path) -> None:
    terms = msgspec.structs.replace(TERMS, politeness=PolitenessSettings(robots=False))
    result = audited(tmp_path, [page("/private/", 1.0, robots=0), page("/a", 1.5, robots=0)], (), terms)
    assert (result.robots_checked, kinds(result)) == (False, ["gap"])


def test_a_version_is_what_the_crawler_calls_it() -> None:
    async def nothing(_origin: str) -> StoredRobots:
        return StoredRobots()

    cache = OriginRobots(PolitenessSettings(), "Gossamer", lambda: T, nothing, lambda: 0.0)
    learnt = cache.learn(ORIGIN, Response(f"{ORIGIN}/robots.txt", 200, (), RULES, T, 0.1, 10), T)
    assert learnt.file.version == robots_version(RULES)


def test_urls_are_found_whether_their_fingerprints_are_merged_or_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    asyncio.run(write(path, [page("/private/old", 1.0)], [robots_file(0)], "run-1"))
    change(path, "INSERT INTO fingerprints SELECT fp, seq FROM urls")
    change(path, "INSERT INTO meta SELECT 'merged_seq', max(seq) FROM urls")
    asyncio.run(write(path, [page("/private/new", 2.0)], [], "run-2"))
    urls = [violation.url for violation in audit(path).violations]
    assert urls == [f"{ORIGIN}/private/old", f"{ORIGIN}/private/new"]


# -- bounds and damage -----------------------------------------------------------------------------------


def test_violations_beyond_a_hundred_are_counted_and_not_kept(tmp_path: Path) -> None:
    result = audited(tmp_path, [page(f"/{n}", 1 + n / 10) for n in range(200)], [robots_file(0)])
    assert (result.violation_count, len(result.violations)) == (199, MAX_VIOLATIONS)


def test_a_request_for_a_url_that_is_not_in_the_ledger_is_damage(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path / "ledger.sqlite", [page("/", 1.0)], [robots_file(0)]))
    change(tmp_path / "ledger.sqlite", "DELETE FROM urls")
    with pytest.raises(LedgerFailed, match="damaged"):
        audit(tmp_path / "ledger.sqlite")


def test_a_robots_txt_that_cannot_be_unpacked_is_damage(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path / "ledger.sqlite", [page("/", 1.0)], [robots_file(0)]))
    change(tmp_path / "ledger.sqlite", "UPDATE robots SET body = x'00'")
    with pytest.raises(LedgerFailed, match="unpacked"):
        audit(tmp_path / "ledger.sqlite")


def test_text_where_a_number_belongs_does_not_stop_the_audit(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path / "ledger.sqlite", [page("/", 1.0)], [robots_file(0)]))
    change(tmp_path / "ledger.sqlite", "UPDATE fetches SET started_at = 'soon', robots = 'none'")
    assert kinds(audit(tmp_path / "ledger.sqlite")) == ["no_robots"]


# -- what may be missing ---------------------------------------------------------------------------------


def test_a_run_that_left_no_url_live_has_recorded_every_start(tmp_path: Path) -> None:
    result = audited(tmp_path, [page("/", 1.0)], [robots_file(0)])
    assert (result.unrecorded.runs, result.unrecorded.visits_at_most) == (0, 0)


def test_a_run_that_left_urls_live_may_have_lost_what_was_under_way(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path / "ledger.sqlite", [page("/", 1.0)], [robots_file(0)], done=False))
    unrecorded = audit(tmp_path / "ledger.sqlite").unrecorded
    assert (unrecorded.runs, unrecorded.crashes, unrecorded.visits_at_most) == (1, 0, 100)


def test_runs_that_ended_whole_are_beyond_doubt(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    for run in ("one-1", "one-2", "two-1", "three-1"):
        asyncio.run(write(path, [page(f"/{run}", 1.0)], [robots_file(0)], run, done=False))
    change(path, "INSERT INTO meta VALUES ('run:one', 'whole'), ('run:two', 'open'), ('run:four', 'open')")
    assert audit(path).unrecorded.runs == 3


def test_visits_that_died_with_their_worker_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    asyncio.run(write(path, [page("/", 1.0), page("/a", 2.0)], [robots_file(0)]))
    change(path, "UPDATE urls SET crashes = 3, reason = 'poison' WHERE url LIKE '%/a'")
    change(path, "UPDATE urls SET crashes = 1 WHERE url NOT LIKE '%/a'")
    unrecorded = audit(path).unrecorded
    assert (unrecorded.crashes, unrecorded.visits_at_most) == (5, 5)
