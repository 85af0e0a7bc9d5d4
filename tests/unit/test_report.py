"""The coverage receipt, built from plain data and from the text of reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from gossamer.model.outcome import REASONS, Cursor, State
from gossamer.observe.report import Report, build_report, encode_report, instant_text, reason_text


@dataclass(frozen=True, slots=True)
class HostNumbers:
    host: str
    pages: int
    failed: int
    forbidden: int
    mean_elapsed: float


@dataclass(frozen=True, slots=True)
class Timing:
    group: str
    fetches: int
    mean_elapsed: float
    longest: float


@dataclass(slots=True)
class Answers:
    """A ledger's answers as plain data. They are only given inside a snapshot."""

    numbers: dict[tuple[State, str], int] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    ends: tuple[float, float] | None = None
    written: list[Cursor] = field(default_factory=list)
    held: bool = False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self.held = True
        yield
        self.held = False

    def counts(self) -> dict[tuple[State, str], int]:
        assert self.held
        return self.numbers

    def totals(self) -> dict[str, int]:
        assert self.held
        return self.sums

    def meta(self) -> dict[str, str]:
        assert self.held
        return self.notes

    def span(self) -> tuple[float, float] | None:
        assert self.held
        return self.ends

    def host_count(self) -> int:
        return 2

    def robots_files(self) -> int:
        return 1

    def top_hosts(self, limit: int) -> list[HostNumbers]:
        return [HostNumbers("a.example", 3, 1, 2, 0.12345)][:limit]

    def slowest(self, limit: int) -> list[Timing]:
        return [Timing("a.example", 4, 0.5, 1.0)][:limit]

    def cursors(self) -> list[Cursor]:
        return self.written


def receipt(**changes: object) -> Report:
    return build_report(Answers(**changes), job="news")  # type: ignore[arg-type]


def test_the_outcomes_add_up_to_all_urls() -> None:
    report = receipt(
        numbers={
            (State.FETCHED, "ok"): 3,
            (State.FAILED, "timeout"): 1,
            (State.REFUSED, "robots"): 2,
            (State.QUEUED, ""): 4,
        }
    )
    assert report.urls == 10 == sum(outcome.urls for outcome in report.outcomes)
    assert report.by_state() == {"queued": 4, "fetched": 3, "refused": 2, "failed": 1}
    assert report.robots.forbidden == 2


def test_a_job_is_complete_only_when_seeding_is_closed_and_nothing_is_queued() -> None:
    closed = {"seeding": "closed"}
    assert receipt(notes=closed, numbers={(State.HELD, "page_limit"): 5}).complete
    assert not receipt(notes=closed, numbers={(State.QUEUED, ""): 1}).complete
    assert not receipt(notes={"seeding": "12 of 40"}, numbers={(State.FETCHED, "ok"): 1}).complete


def test_held_urls_come_with_the_command_that_revives_them() -> None:
    held = receipt(
        numbers={(State.HELD, "page_limit"): 5, (State.HELD, "wait_too_long"): 1, (State.HELD, "new"): 1}
    ).held
    assert {item.reason: item.remedy for item in held} == {
        "page_limit": "gossamer resume news --max-pages N",
        "wait_too_long": "gossamer resume news",
        "new": "gossamer retry news --reason new",
    }


def test_a_hostile_job_name_or_reason_cannot_smuggle_a_command_into_a_remedy() -> None:
    report = build_report(Answers(numbers={(State.HELD, "{0}; reboot"): 1}), job="x; rm -r ~")
    assert report.held[0].remedy == "gossamer retry 'x; rm -r ~' --reason '{0}; reboot'"


def test_an_output_is_behind_by_the_records_it_has_not_written() -> None:
    report = receipt(
        sums={"records": 10}, written=[Cursor("a.jsonl", 2, 700, 7), Cursor("b.csv", 3, 900, 10)]
    )
    assert [(output.output, output.behind) for output in report.outputs] == [("a.jsonl", 3), ("b.csv", 0)]


def test_a_job_that_never_fetched_has_a_receipt_too() -> None:
    report = receipt()
    assert (report.urls, report.pages, report.first_request, report.seconds) == (0, 0, "", 0.0)


def test_the_time_span_is_written_in_utc() -> None:
    report = receipt(ends=(1_700_000_000.0, 1_700_000_061.5))
    assert (report.first_request, report.last_answer) == ("2023-11-14T22:13:20Z", "2023-11-14T22:14:21Z")
    assert report.seconds == 61.5


def test_report_json_reads_back_as_the_same_report() -> None:
    report = receipt(numbers={(State.FAILED, "http_503"): 1}, written=[Cursor("a.jsonl")])
    encoded = encode_report(report)
    assert msgspec.json.decode(encoded, type=Report) == report
    assert json.loads(encoded)["hosts"][0]["mean_elapsed_ms"] == 123.5
    assert encoded.endswith(b"}\n")


def test_every_reason_has_a_text_and_a_status_is_named_in_it() -> None:
    assert all(reason_text(reason) for reason in REASONS)
    assert reason_text("http_404").startswith("the server answered with status 404")
    assert reason_text("http_4044") == reason_text("never heard of") == ""


def test_a_moment_no_calendar_has_is_shown_as_it_is() -> None:
    assert instant_text(1e300) == "1e+300"
    assert instant_text(float("nan")) == "nan"
