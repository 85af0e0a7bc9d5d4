"""The coverage receipt for people: a few lines, then a table for each of its parts."""

from __future__ import annotations

from collections.abc import Iterator

from gossamer.cli.terminal import Table, escape, write_lines
from gossamer.observe.report import Report
from gossamer.observe.wording import bytes_text, counted, duration_text

_NUMBERS = frozenset(
    {"URLs", "pages", "failed", "forbidden", "mean ms", "longest ms", "requests", "records", "size", "behind"}
)


def show_report(report: Report) -> None:
    """Write a report to stdout; parts that have nothing to say are left out."""
    write_lines(_report_lines(report))
    outcomes = [(o.state, o.reason or "-", f"{o.urls:,}", o.meaning) for o in report.outcomes]
    hosts = [
        (h.host, f"{h.pages:,}", f"{h.failed:,}", f"{h.forbidden:,}", f"{h.mean_elapsed_ms:,.0f}")
        for h in report.hosts
    ]
    slow = [
        (s.group, f"{s.fetches:,}", f"{s.mean_elapsed_ms:,.0f}", f"{s.longest_ms:,.0f}")
        for s in report.slowest
    ]
    held = [(h.reason, f"{h.urls:,}", h.remedy) for h in report.held]
    outputs = [(o.output, f"{o.records:,}", bytes_text(o.bytes), f"{o.behind:,}") for o in report.outputs]
    for columns, rows in (
        (("state", "reason", "URLs", "meaning"), outcomes),
        (("host", "pages", "failed", "forbidden", "mean ms"), hosts),
        (("slowest", "requests", "mean ms", "longest ms"), slow),
        (("held", "URLs", "revived by"), held),
        (("output", "records", "size", "behind"), outputs),
    ):
        if rows:
            write_lines([""])
            Table(columns, rows, _NUMBERS).show()


def _report_lines(report: Report) -> Iterator[str]:
    yield f"job       {escape(report.job)}: {'complete' if report.complete else 'not complete'}"
    yield f"URLs      {report.urls:,} on {counted(report.host_count, 'host')}"
    yield f"pages     {report.pages:,}"
    yield f"requests  {report.requests:,}, {bytes_text(report.wire_bytes)} received"
    if report.first_request:
        yield f"time      {report.first_request} to {report.last_answer} ({duration_text(report.seconds)})"
    robots = report.robots
    yield (
        f"robots    {counted(robots.files, 'file')} read, {counted(robots.forbidden, 'URL')} refused,"
        f" {robots.unreachable:,} held"
    )
