"""The last words of a run add up, fit a terminal, and name only commands that have something to do."""

from __future__ import annotations

import io
import re

import pytest

from gossamer.model.event import Snapshot
from gossamer.observe.summary import render_summary


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


STATES = {
    "fetched": {"ok": 3011, "http_404": 109},
    "redirected": {"redirect": 45},
    "refused": {"robots": 210, "depth": 100},
    "failed": {"timeout": 10, "dns_error": 2},
    "held": {"page_limit": 15_012, "robots_unreachable": 4},
    "queued": {"": 310},
}


def snapshot(
    states: dict[str, dict[str, int]], *, elapsed: float = 127.0, pages: int = 3120, seeding: bool = False
) -> Snapshot:
    return Snapshot(
        elapsed=elapsed,
        states=states,
        pages=pages,
        run_pages=1120,
        fetches=1230,
        wire_bytes=58_200_000,
        retries=1,
        in_flight=0,
        hosts=3,
        next_due=None,
        seeding=seeding,
    )


def summary(
    shot: Snapshot,
    *,
    job: str = "docs",
    outputs: list[tuple[str, int]] | None = None,
    stream: io.StringIO | None = None,
) -> str:
    return render_summary(
        shot,
        job=job,
        ending="interrupted",
        outputs=outputs or [],
        resume_command="gossamer resume docs",
        stream=stream,
    )


def test_the_whole_summary_reads_like_this() -> None:
    text = summary(snapshot(STATES), outputs=[("pages.jsonl", 3120), ("out/pages.csv", 1)])
    assert text == (
        "docs: interrupted after 2 min 07 s\n"
        "\n"
        "  fetched     ok                   3,011\n"
        "              http_404               109\n"
        "  redirected  redirect                45\n"
        "  refused     robots                 210  robots.txt forbids it (see `explain`\n"
        "                                          for the rule)\n"
        "              depth                  100  further from the seeds than --depth\n"
        "                                          allows; a higher --depth revives it\n"
        "  failed      timeout                 10  no complete answer within --timeout\n"
        "              dns_error                2  the host name could not be resolved\n"
        "  held        page_limit          15,012  --max-pages was reached; a higher\n"
        "                                          limit revives it\n"
        "              robots_unreachable       4  robots.txt could not be fetched, so\n"
        "                                          nothing may be; a resume tries again\n"
        "  queued      -                      310  waiting for its turn\n"
        "\n"
        "  pages       3,120 (1,120 in this run), 8.8 pages/s\n"
        "  traffic     1,230 requests, 1 retry, 58.2 MB received, 458.3 kB/s\n"
        "  output      pages.jsonl    3,120 records\n"
        "              out/pages.csv  1 record\n"
        "\n"
        "  next        gossamer resume docs               go on from here\n"
        "              gossamer report docs               the whole receipt\n"
        "              gossamer urls docs --state failed  what failed\n"
    )


def test_colour_changes_nothing_but_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    outputs = [("a/long/path/" * 20 + "pages.jsonl", 1)]
    plain = summary(snapshot(STATES), outputs=outputs)
    coloured = summary(snapshot(STATES), outputs=outputs, stream=Terminal())
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert summary(snapshot(STATES), outputs=outputs, stream=io.StringIO()) == plain


def test_every_line_fits_eighty_columns() -> None:
    text = summary(snapshot({**STATES, "queued": {"": 10**12}}), job="a-rather-long-name.example.org")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_job_that_is_done_is_not_told_to_resume() -> None:
    text = summary(snapshot({"fetched": {"ok": 5}, "held": {"page_limit": 9}}))
    assert "gossamer resume" not in text
    assert "--state failed" not in text
    assert "gossamer report docs" in text


@pytest.mark.parametrize("reason", ["robots_unreachable", "wait_too_long"])
def test_what_a_resume_would_try_again_is_told_to_resume(reason: str) -> None:
    assert "gossamer resume docs" in summary(snapshot({"held": {reason: 1}}))


def test_a_run_that_ended_while_reading_seeds_is_told_to_resume() -> None:
    assert "gossamer resume docs" in summary(snapshot({}, seeding=True))


def test_the_numbers_of_a_state_with_many_reasons_still_add_up() -> None:
    states = {"fetched": {f"http_{status}": status for status in range(400, 430)}}
    text = summary(snapshot(states))
    counts = re.findall(r"(?:http_\d+|other reasons)\s+([\d,]+)$", text, re.MULTILINE)
    assert len(counts) == 9
    assert sum(int(count.replace(",", "")) for count in counts) == sum(range(400, 430))


def test_an_empty_run_has_a_summary_too() -> None:
    text = summary(snapshot({}, elapsed=0.0))
    assert "no URL was added" in text


def test_hostile_text_stays_text_and_commands_stay_safe_to_paste() -> None:
    evil = "x; rm -rf /\x1b[2J[red]\n"
    text = summary(snapshot({"failed": {evil: 1}}), job=evil, outputs=[(evil, 1)], stream=Terminal())
    assert "\x1b[2J" not in text
    assert "[red]" in text
    assert "gossamer report 'x; rm -rf /" in text
