"""The figures of a worker: what is counted, how many series there can be, and whether Prometheus can read them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gossamer.model.outcome import Committed, Crashed, Deferred, Fetch, Outcome, Retry, Settled, State, Visit
from gossamer.model.schedule import Outlook
from gossamer.observe.metrics import (
    FETCH_BUCKETS,
    MAX_JOBS,
    MAX_STATUS_REASONS,
    METRICS,
    Histogram,
    Metrics,
    ProcessFigures,
)
from gossamer.testing.frontier_cases import FETCHED, fingerprint_of, known, visit
from gossamer.version import VERSION

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
PROCESS = ProcessFigures(cpu_seconds=1.5, resident_bytes=4096)
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(metrics: Metrics, process: ProcessFigures = PROCESS) -> Series:
    """Return every sample as Prometheus' own parser reads it."""
    families = list(text_string_to_metric_families(metrics.text(process)))
    assert {family.type for family in families} <= {"counter", "gauge", "histogram"}
    samples = [
        ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
        for family in families
        for sample in family.samples
    ]
    assert len(dict(samples)) == len(samples), "a series was written twice"
    return dict(samples)


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return read(metrics)[name, tuple(sorted(labels.items()))]


def outcomes(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (dict(labels)["state"], dict(labels)["reason"]): count
        for (name, labels), count in read(metrics).items()
        if name == "gossamer_outcomes_total"
    }


def taken(*visits: Visit, lost: tuple[str, ...] = (), duplicates: tuple[str, ...] = ()) -> Metrics:
    """Return the metrics after one commit."""
    metrics = Metrics()
    metrics.take(visits, committed(lost, duplicates), 0.004)
    return metrics


def committed(lost: tuple[str, ...] = (), duplicates: tuple[str, ...] = ()) -> Committed:
    return Committed(
        1, frozenset(map(fingerprint_of, lost)), [], duplicates=frozenset(map(fingerprint_of, duplicates))
    )


def answered(name: str, status: int, elapsed: float = 0.1) -> Visit:
    fetch = Fetch(f"http://{name}", "a", 1.0, delay=1.0, elapsed=elapsed, status=status, wire_bytes=500)
    return msgspec.structs.replace(visit(known(name)), fetches=(fetch,))


# -- what is counted -------------------------------------------------------------------------------------


def test_a_committed_page_counts_as_fetch_outcome_record_and_commit() -> None:
    metrics = taken(visit(known("a/1")), visit(known("a/2")))
    assert value(metrics, "gossamer_fetches_total", status_class="2xx") == 2
    assert value(metrics, "gossamer_received_bytes_total") == 2000
    assert value(metrics, "gossamer_fetch_seconds_count") == 2
    assert value(metrics, "gossamer_fetch_seconds_sum") == pytest.approx(0.2)
    assert value(metrics, "gossamer_records_total") == 2
    assert value(metrics, "gossamer_commits_total") == 1
    assert value(metrics, "gossamer_commit_seconds_bucket", le="0.005") == 1
    assert value(metrics, "gossamer_commit_seconds_bucket", le="0.0025") == 0
    assert outcomes(metrics) == {("fetched", "ok"): 2}


@pytest.mark.parametrize(
    ("outcome", "counter"),
    [(Retry("timeout", 5.0), "gossamer_retries_total"), (Crashed(alone=False), "gossamer_crashes_total")],
)
def test_a_visit_that_will_be_tried_again_is_no_outcome_yet(outcome: Outcome, counter: str) -> None:
    metrics = taken(visit(known("a/1"), outcome))
    assert value(metrics, counter) == 1
    assert value(metrics, "gossamer_retries_total") + value(metrics, "gossamer_crashes_total") == 1
    assert outcomes(metrics) == {}


def test_a_url_that_is_given_up_as_poison_is_a_crash_and_a_failure() -> None:
    metrics = taken(visit(known("a/1"), Crashed(alone=True, poison=True)))
    assert value(metrics, "gossamer_crashes_total") == 1
    assert outcomes(metrics) == {("failed", "poison"): 1}


def test_a_visit_that_was_spent_on_robots_counts_its_fetch_and_nothing_else() -> None:
    metrics = taken(visit(known("a/1"), Deferred()))
    assert value(metrics, "gossamer_fetches_total", status_class="2xx") == 1
    assert outcomes(metrics) == {}


def test_a_lost_visit_counts_its_fetch_but_neither_outcome_nor_record() -> None:
    metrics = taken(visit(known("a/1")), visit(known("a/2")), lost=("a/1",))
    assert value(metrics, "gossamer_stale_leases_total") == 1
    assert value(metrics, "gossamer_fetches_total", status_class="2xx") == 2
    assert value(metrics, "gossamer_records_total") == 1
    assert outcomes(metrics) == {("fetched", "ok"): 1}


def test_a_duplicate_is_an_outcome_without_a_record() -> None:
    metrics = taken(visit(known("a/1")), visit(known("a/2")), duplicates=("a/2",))
    assert value(metrics, "gossamer_records_total") == 1
    assert outcomes(metrics) == {("fetched", "ok"): 1, ("duplicate", "duplicate"): 1}


def test_a_batch_whose_commit_had_to_be_repeated_is_counted_like_any_other() -> None:
    metrics = Metrics()
    metrics.take([visit(known("a/1"))], msgspec.structs.replace(committed(), repeated=True), 0.1)
    assert value(metrics, "gossamer_records_total") == 1


@pytest.mark.parametrize(
    ("status", "status_class"),
    [(0, "none"), (101, "1xx"), (200, "2xx"), (308, "3xx"), (404, "4xx"), (599, "5xx"), (600, "other"),
     (999, "other"), (-1000, "other")],
)  # fmt: skip
def test_a_fetch_is_counted_by_the_class_of_its_status(status: int, status_class: str) -> None:
    metrics = taken(answered("a/1", status))
    assert value(metrics, "gossamer_fetches_total", status_class=status_class) == 1


def test_a_bucket_holds_what_is_no_larger_than_its_bound() -> None:
    metrics = taken(answered("a/1", 200, 0.05), answered("a/2", 200, 0.0501), answered("a/3", 200, 1000.0))
    held = [value(metrics, "gossamer_fetch_seconds_bucket", le=f"{bound:g}") for bound in FETCH_BUCKETS]
    assert held == [1.0] + [2.0] * (len(FETCH_BUCKETS) - 1)
    assert value(metrics, "gossamer_fetch_seconds_bucket", le="+Inf") == 3


@given(st.lists(st.floats(min_value=0, max_value=1e6)))
def test_every_value_is_in_exactly_one_bucket(values: list[float]) -> None:
    histogram = Histogram(FETCH_BUCKETS)
    for each in values:
        histogram.observe(each)
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values))


def test_the_schedule_and_the_queues_are_as_last_told() -> None:
    metrics = Metrics()
    metrics.schedule("news", Outlook(1, 1, 1, None), 90.0)
    metrics.schedule("news", Outlook(queued=70, in_flight=8, hosts=3, next_due=None), 2.5)
    metrics.queue_depth("news", 9)
    metrics.queue_depth("news", 1_000_000)
    assert value(metrics, "gossamer_scheduled_urls") == 70
    assert value(metrics, "gossamer_leases") == 8
    assert value(metrics, "gossamer_oldest_lease_seconds") == 2.5
    assert value(metrics, "gossamer_queue_depth", job="news") == 1_000_000
    metrics.schedule("shop", Outlook(queued=5, in_flight=2, hosts=1, next_due=None), 4.0)
    assert value(metrics, "gossamer_scheduled_urls") == 75
    assert value(metrics, "gossamer_leases") == 10
    assert value(metrics, "gossamer_oldest_lease_seconds") == 4.0
    metrics.forget_job("news")
    assert ("gossamer_queue_depth", (("job", "news"),)) not in read(metrics)
    assert value(metrics, "gossamer_scheduled_urls") == 5


def test_a_backend_is_down_from_an_error_to_its_next_answer() -> None:
    metrics = Metrics()
    metrics.backend_answered("redis")
    metrics.backend_failed("postgres")
    metrics.backend_failed("postgres")
    assert value(metrics, "gossamer_backend_up", backend="redis") == 1
    assert value(metrics, "gossamer_backend_errors_total", backend="redis") == 0
    assert value(metrics, "gossamer_backend_up", backend="postgres") == 0
    metrics.backend_answered("postgres")
    assert value(metrics, "gossamer_backend_up", backend="postgres") == 1
    assert value(metrics, "gossamer_backend_errors_total", backend="postgres") == 2


# -- how many series there can be ------------------------------------------------------------------------


def test_a_server_that_makes_up_statuses_gets_a_bounded_number_of_series() -> None:
    metrics = Metrics()
    odd = [Settled(State.FETCHED, f"http_{status}", status=status) for status in range(100, 1000)]
    for _ in range(2):
        metrics.take([visit(known(f"a/{each.status}"), each) for each in odd], committed(), 0.1)
    counted = outcomes(metrics)
    folded = {
        ("fetched", reason)
        for reason in ("http_1xx", "http_2xx", "http_3xx", "http_4xx", "http_5xx", "other")
    }
    assert len(set(counted) - folded) == MAX_STATUS_REASONS
    assert folded <= set(counted)
    assert sum(counted.values()) == 2 * len(odd)
    assert counted["fetched", "http_100"] == 2, "what has a series of its own keeps it"
    assert counted["fetched", "http_5xx"] == 200


def test_a_known_reason_keeps_its_name_and_an_unknown_one_is_other() -> None:
    metrics = taken(
        visit(known("a/1"), Settled(State.FAILED, "timeout")),
        visit(known("a/2"), Settled(State.FAILED, "made_up_1")),
        visit(known("a/3"), Settled(State.FAILED, "made_up_2")),
    )
    assert outcomes(metrics) == {("failed", "timeout"): 1, ("failed", "other"): 2}


def test_the_jobs_asked_about_last_keep_their_series() -> None:
    metrics = Metrics()
    for job in ("kept", *map(str, range(MAX_JOBS - 1)), "kept", "last"):
        metrics.queue_depth(job, 1)
    jobs = {dict(labels)["job"] for name, labels in read(metrics) if name == "gossamer_queue_depth"}
    assert jobs == {"kept", *map(str, range(1, MAX_JOBS - 1)), "last"}


# -- what Prometheus reads -------------------------------------------------------------------------------


@given(st.text())
def test_the_name_of_a_job_comes_out_as_it_went_in(job: str) -> None:
    metrics = Metrics()
    metrics.queue_depth(job, 7)
    assert value(metrics, "gossamer_queue_depth", job=job) == 7


def test_every_metric_is_announced_with_its_type_and_meaning() -> None:
    families = {
        family.name: (family.type, family.documentation)
        for family in text_string_to_metric_families(taken(visit(known("a/1"), FETCHED)).text(PROCESS))
    }
    announced = {name.removesuffix("_total"): (each.kind, each.meaning) for name, each in METRICS.items()}
    assert families == announced


def test_every_sample_has_the_labels_that_its_metric_declares() -> None:
    metrics = taken(visit(known("a/1")))
    metrics.queue_depth("news", 1)
    metrics.backend_failed("redis")
    seen = {}
    for name, labels in read(metrics):
        metric = re.sub("_(bucket|sum|count)$", "", name)
        seen[metric] = tuple(label for label, _ in labels if label != "le")
    assert seen == {name: tuple(sorted(metric.labels)) for name, metric in METRICS.items()}


def test_the_process_and_the_version_are_told() -> None:
    metrics = Metrics()
    assert value(metrics, "process_cpu_seconds_total") == 1.5
    assert value(metrics, "process_resident_memory_bytes") == 4096
    assert value(metrics, "gossamer_build_info", version=VERSION) == 1


def test_memory_that_cannot_be_read_is_left_out_and_not_told_as_nothing() -> None:
    assert ("process_resident_memory_bytes", ()) not in read(Metrics(), ProcessFigures(1.0, 0))


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert rows == [
        (name, each.kind, each.unit, ", ".join(f"`{label}`" for label in each.labels) or "-", each.meaning)
        for name, each in METRICS.items()
    ]
