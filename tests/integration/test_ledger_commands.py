"""The commands that answer from a ledger, on real ledgers and where it matters in real processes."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gossamer.cli.job_lookup import job_is_locked
from gossamer.cli.ledger_commands import COMMANDS
from gossamer.cli.terminal import Table, escape, escape_json
from gossamer.errors import GossamerError, InvalidUrl, JobBusy, LedgerFailed, UsageError
from gossamer.frontier.sqlite_ledger import SqliteLedger
from gossamer.frontier.sqlite_reader import SqliteReader
from gossamer.testing.small_job import EVIL, HOME, found, write_small_job

SITE = click.Group("gossamer", commands={str(command.name): command for command in COMMANDS})


async def write_job(folder: Path, now: float) -> None:
    ledger = SqliteLedger(folder / "ledger.sqlite", lambda: now)
    await write_small_job(ledger, now)
    await ledger.close()


@pytest.fixture
def jobs_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "news"
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text(
        'scope = "host"\nmode = "crawl"\nseeds = ["https://a.example/"]\nfuture_key = 1\n'
    )
    asyncio.run(write_job(folder, time.time()))
    return tmp_path / "jobs"


@contextmanager
def held_lock(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write("4711\n")
        file.flush()
        yield


def run(jobs_dir: Path, *words: str) -> Result:
    return CliRunner().invoke(SITE, [*words, "--jobs-dir", str(jobs_dir)])


def answer(jobs_dir: Path, *words: str) -> str:
    result = run(jobs_dir, *words)
    assert result.exit_code == 0, result.exception
    return result.stdout


def refusal(jobs_dir: Path, *words: str) -> GossamerError:
    error = run(jobs_dir, *words).exception
    assert isinstance(error, GossamerError)
    assert "\n" not in str(error)
    return error


def process(jobs_dir: Path, *words: str) -> list[str]:
    script = (
        "from gossamer.cli.ledger_commands import COMMANDS; import click;"
        "click.Group('gossamer', commands={c.name: c for c in COMMANDS})()"
    )
    return [sys.executable, "-c", script, *words, "--jobs-dir", str(jobs_dir)]


# -- jobs and status -----------------------------------------------------------------------------------


def test_jobs_lists_every_job_and_gives_a_damaged_one_a_row_of_its_own(jobs_dir: Path) -> None:
    for name, content in {"broken": b"not a database, but long enough " * 200, "cut": b""}.items():
        (jobs_dir / name).mkdir()
        (jobs_dir / name / "ledger.sqlite").write_bytes(content)
    (jobs_dir / "no-ledger").mkdir()
    (jobs_dir / "no-ledger" / "job.toml").write_text("")
    (jobs_dir / "something else").mkdir()
    text = answer(jobs_dir, "jobs")
    assert "is damaged (file is not a database)" in text
    rows = [line.split() for line in text.splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        ["broken", "unreadable", "-", "-", "-"],
        ["cut", "unreadable", "-", "-", "-"],
        ["news", "resumable", "2", "2", "1"],
        ["no-ledger", "unreadable", "-", "-", "-"],
    ]


def test_jobs_says_when_there_are_none(tmp_path: Path) -> None:
    result = run(tmp_path / "nothing", "jobs")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no jobs in" in result.stderr


def test_a_job_is_done_when_its_ledger_is_drained(jobs_dir: Path) -> None:
    db = sqlite3.connect(jobs_dir / "news" / "ledger.sqlite")
    db.execute("UPDATE urls SET state = 7 WHERE state = 0")
    db.commit()
    db.close()
    assert answer(jobs_dir, "jobs").splitlines()[1].split()[1] == "done"


def test_status_shows_progress_held_urls_outputs_and_the_pace(jobs_dir: Path) -> None:
    text = answer(jobs_dir, "status", "news")
    assert "resumable, no process works on it" in text
    assert "9, of which 6 settled" in text
    assert "pages    2, 0.1 a second in the last minute" in text
    assert "robots_unreachable" in text
    assert "pages.jsonl" in text


def test_status_names_the_process_that_holds_the_lock(jobs_dir: Path) -> None:
    with held_lock(jobs_dir / "news"):
        assert "running, process 4711 works on it" in answer(jobs_dir, "status", "news")
        assert job_is_locked(jobs_dir / "news") == 4711
    assert job_is_locked(jobs_dir / "news") is None


def test_a_job_may_be_named_by_the_path_of_its_folder(jobs_dir: Path, tmp_path: Path) -> None:
    assert "9, of which" in answer(tmp_path, "status", str(jobs_dir / "news"))


def test_the_jobs_folder_may_come_from_the_environment(jobs_dir: Path) -> None:
    result = CliRunner().invoke(SITE, ["jobs"], env={"GOSSAMER_JOBS_DIR": str(jobs_dir)})
    assert "news" in result.stdout


@pytest.mark.parametrize("command", ["status", "urls", "report", "retry"])
def test_an_unknown_job_is_a_usage_error_that_names_the_nearest(jobs_dir: Path, command: str) -> None:
    error = refusal(jobs_dir, command, "newz")
    assert isinstance(error, UsageError)
    assert "did you mean news?" in str(error)


@pytest.mark.parametrize("words", [["status"], ["urls"], ["report"], ["retry"], ["explain", HOME]])
def test_a_damaged_ledger_is_one_line_and_exit_code_5(jobs_dir: Path, words: list[str]) -> None:
    (jobs_dir / "news" / "ledger.sqlite").write_bytes(b"rubbish " * 1000)
    error = refusal(jobs_dir, words[0], "news", *words[1:])
    assert isinstance(error, LedgerFailed)
    assert error.exit_code == 5


def test_a_state_from_nowhere_is_damage_and_no_crash(jobs_dir: Path) -> None:
    db = sqlite3.connect(jobs_dir / "news" / "ledger.sqlite")
    db.execute("UPDATE urls SET state = 99")
    db.commit()
    db.close()
    assert "unknown state 99" in str(refusal(jobs_dir, "urls", "news"))


# -- urls ----------------------------------------------------------------------------------------------


def test_urls_lists_everything_in_the_order_it_was_found(jobs_dir: Path) -> None:
    lines = [line.split("\t") for line in answer(jobs_dir, "urls", "news").splitlines()]
    assert lines[0] == ["fetched", "ok", "200", "0", HOME]
    assert lines[3] == ["redirected", "redirect", "301", "1", "https://a.example/old"]
    assert lines[-1] == ["queued", "-", "-", "1", "https://a.example/new"]
    assert len(lines) == 9


@pytest.mark.parametrize(
    ("filters", "paths"),
    [
        (["--state", "queued"], ["busy", "new"]),
        (["--reason", "http_404"], ["page?b=2&a=1"]),
        (["--host", "B.Example"], ["later"]),
        (["--state", "fetched", "--host", "b.example"], []),
        (["--limit", "2"], ["", "page?b=2&a=1"]),
        (["--limit", "0"], []),
    ],
)
def test_urls_are_filtered(jobs_dir: Path, filters: list[str], paths: list[str]) -> None:
    lines = answer(jobs_dir, "urls", "news", *filters).splitlines()
    assert [line.split("\t")[4].split("/", 3)[3] for line in lines] == paths


def test_urls_as_json_lines_keep_hostile_text_and_cannot_reach_the_terminal(jobs_dir: Path) -> None:
    (line,) = answer(jobs_dir, "urls", "news", "--state", "failed", "--format", "jsonl").splitlines()
    assert line.isprintable()
    assert json.loads(line)["detail"] == EVIL


def test_a_mistyped_reason_is_an_error_and_not_an_empty_answer(jobs_dir: Path) -> None:
    assert "did you mean timeout?" in str(refusal(jobs_dir, "urls", "news", "--reason", "timeuot"))


def many_urls(folder: Path, number: int) -> None:
    async def write() -> None:
        ledger = SqliteLedger(folder / "ledger.sqlite", time.time)
        await ledger.add([found(f"https://a.example/{i}") for i in range(number)])
        await ledger.close()

    folder.mkdir()
    asyncio.run(write())


def test_urls_streams_page_by_page_and_holds_no_snapshot_in_between(jobs_dir: Path) -> None:
    many_urls(jobs_dir / "big", 2500)
    writer = sqlite3.connect(jobs_dir / "big" / "ledger.sqlite", isolation_level=None)
    with SqliteReader(jobs_dir / "big" / "ledger.sqlite") as reader:
        rows = reader.urls()
        seen = [next(rows).seq]
        writer.execute("UPDATE urls SET reason = 'seen by the next page'")
        # TRUNCATE answers busy = 0 only if no reader still needs the WAL.
        assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        rest = list(rows)
    writer.close()
    assert seen + [row.seq for row in rest] == list(range(1, 2501))
    assert rest[-1].reason == "seen by the next page"


def test_a_limit_larger_than_a_page_is_kept(jobs_dir: Path) -> None:
    many_urls(jobs_dir / "big", 2500)
    assert len(answer(jobs_dir, "urls", "big", "--limit", "2001").splitlines()) == 2001


def test_urls_ends_quietly_when_its_reader_goes_away(jobs_dir: Path) -> None:
    many_urls(jobs_dir / "big", 5000)
    with subprocess.Popen(
        process(jobs_dir, "urls", "big"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


# -- explain -------------------------------------------------------------------------------------------


def test_explain_tells_a_failure_with_its_reason_its_chain_and_its_requests(jobs_dir: Path) -> None:
    text = answer(jobs_dir, "explain", "news", "https://a.example/broken")
    assert "It failed (timeout)" in text
    assert "no complete answer within --timeout" in text
    assert f"found as a link on {HOME}, 1 step from a seed" in text
    assert "no answer in 0.250 s, 1.0 kB, timeout" in text
    assert "`gossamer retry news --url https://a.example/broken`" in text
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    "spelling",
    [
        "https://a.example/page?a=1&b=2",
        "HTTPS://A.example:443/x/../page?b=2&a=1#top",
        " https://a.example/page?b=2&a=1 ",
    ],
)
def test_explain_knows_a_url_in_any_spelling(jobs_dir: Path, spelling: str) -> None:
    text = answer(jobs_dir, "explain", "news", spelling)
    assert text.startswith("https://a.example/page?b=2&a=1\nIt was fetched (http_404)")
    assert "the server answered with status 404" in text


def test_explain_reads_the_jobs_own_url_policy(jobs_dir: Path) -> None:
    (jobs_dir / "news" / "job.toml").write_text("sort_query = false\nstrip_tracking = true\n")
    assert isinstance(refusal(jobs_dir, "explain", "news", "https://a.example/page?b=2&a=1"), UsageError)
    assert "It is a seed." in answer(jobs_dir, "explain", "news", f"{HOME}?utm_source=x")


def test_explain_names_the_rule_the_target_and_the_next_try(jobs_dir: Path) -> None:
    assert "line 2: Disallow: /secret" in answer(jobs_dir, "explain", "news", "https://a.example/secret")
    assert "It leads to https://a.example/new." in answer(
        jobs_dir, "explain", "news", "https://a.example/old"
    )
    assert "what https://a.example/old redirects to" in answer(
        jobs_dir, "explain", "news", "https://a.example/new"
    )
    assert "no earlier than 2" in answer(jobs_dir, "explain", "news", "https://a.example/busy")
    assert "No request went out" in answer(jobs_dir, "explain", "news", "https://a.example/deep")


@pytest.mark.parametrize(
    ("settings", "url", "why"),
    [
        ("", "https://elsewhere.example/", "outside the job's scope (host)"),
        ("", "https://a.example/unheard-of", "no page fetched so far links to it"),
        ('exclude = ["/private/*"]', "https://a.example/private/x", "--exclude rules it out"),
        ('mode = "scrape"', "https://a.example/unheard-of", "just its inputs"),
        ("scope = 5\ninclude = 3\nsort_query = []", "https://elsewhere.example/", "outside"),
    ],
)
def test_explain_says_why_a_url_may_be_unknown(jobs_dir: Path, settings: str, url: str, why: str) -> None:
    (jobs_dir / "news" / "job.toml").write_text(settings)
    error = refusal(jobs_dir, "explain", "news", url)
    assert error.exit_code == 2
    assert why in str(error)


def test_explain_refuses_what_is_no_url(jobs_dir: Path) -> None:
    error = refusal(jobs_dir, "explain", "news", "mailto:a@b.example")
    assert isinstance(error, InvalidUrl)
    assert error.exit_code == 2


def test_a_circle_of_parents_ends(jobs_dir: Path) -> None:
    db = sqlite3.connect(jobs_dir / "news" / "ledger.sqlite")
    db.execute(
        "UPDATE urls SET parent = (SELECT seq FROM urls WHERE url LIKE '%/broken') WHERE url = ?", (HOME,)
    )
    db.commit()
    db.close()
    assert "found as a link" in answer(jobs_dir, "explain", "news", "https://a.example/broken")


# -- report --------------------------------------------------------------------------------------------


def test_report_accounts_for_every_url(jobs_dir: Path) -> None:
    report = json.loads(answer(jobs_dir, "report", "news", "--json"))
    assert (report["urls"], report["pages"], report["requests"], report["wire_bytes"]) == (9, 2, 5, 5000)
    assert sum(outcome["urls"] for outcome in report["outcomes"]) == 9
    assert report["hosts"][0] == {
        "host": "a.example",
        "pages": 2,
        "failed": 1,
        "forbidden": 1,
        "mean_elapsed_ms": 250.0,
    }
    assert report["robots"] == {"files": 1, "forbidden": 1, "unreachable": 1}
    assert report["outputs"] == [{"output": "pages.jsonl", "records": 1, "bytes": 12, "behind": 1}]


def test_report_for_people_has_the_same_numbers(jobs_dir: Path) -> None:
    text = answer(jobs_dir, "report", "news")
    assert "9 on 2 hosts" in text
    assert "1 file read, 1 URL refused, 1 held" in text
    assert "gossamer resume news" in text


def test_an_answer_can_be_had_while_a_crawl_is_writing(jobs_dir: Path) -> None:
    writer = sqlite3.connect(jobs_dir / "news" / "ledger.sqlite", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM urls")
    assert len(answer(jobs_dir, "urls", "news").splitlines()) == 9
    assert json.loads(answer(jobs_dir, "report", "news", "--json"))["urls"] == 9
    writer.execute("ROLLBACK")
    writer.close()


# -- retry ---------------------------------------------------------------------------------------------


def queued(jobs_dir: Path) -> set[str]:
    lines = answer(jobs_dir, "urls", "news", "--state", "queued").splitlines()
    return {line.rsplit("/", 1)[1] for line in lines} - {"busy", "new"}


@pytest.mark.parametrize(
    ("filters", "revived"),
    [
        ([], {"broken", "later"}),
        (["--state", "refused"], {"secret"}),
        (["--state", "held"], {"later"}),
        (["--reason", "robots"], {"secret"}),
        (["--host", "b.example"], {"later"}),
        (["--url", "https://A.example/secret"], {"secret"}),
        (["--url", "https://a.example/deep"], set()),
        (["--url", HOME], set()),
        (["--reason", "http_404"], set()),
        (["--reason", "redirect"], set()),
    ],
)
def test_retry_queues_what_was_asked_for_and_never_a_page(
    jobs_dir: Path, filters: list[str], revived: set[str]
) -> None:
    text = answer(jobs_dir, "retry", "news", *filters)
    assert ("queued again" in text) == bool(revived)
    assert queued(jobs_dir) == revived


def test_retry_says_how_to_go_on(jobs_dir: Path) -> None:
    text = answer(jobs_dir, "retry", "news")
    assert text.startswith("2 URLs are queued again.\n`gossamer resume news`")
    assert json.loads(answer(jobs_dir, "report", "news", "--json"))["outcomes"][0]["urls"] == 4


def test_retry_does_not_undo_what_the_settings_decided(jobs_dir: Path) -> None:
    assert "a higher --depth revives it" in str(refusal(jobs_dir, "retry", "news", "--reason", "depth"))


def test_retry_is_refused_while_another_process_works_on_the_job(jobs_dir: Path) -> None:
    with held_lock(jobs_dir / "news"):
        error = refusal(jobs_dir, "retry", "news")
    assert isinstance(error, JobBusy)
    assert "4711" in str(error)
    assert queued(jobs_dir) == set()


def test_retry_lets_go_of_the_lock(jobs_dir: Path) -> None:
    answer(jobs_dir, "retry", "news")
    assert job_is_locked(jobs_dir / "news") is None


# -- what reaches the terminal -------------------------------------------------------------------------


def test_hostile_text_is_spelled_out() -> None:
    assert escape(EVIL) == "\\x1b[2J\\u202egnp.exe\\x9b31m"
    assert escape("schöne Straße") == "schöne Straße"
    assert json.loads(escape_json(json.dumps(EVIL + "\U000e0001", ensure_ascii=False))) == EVIL + "\U000e0001"


def test_a_plain_table_is_aligned_by_what_is_seen() -> None:
    table = Table(("name", "n"), [("漢字", "1"), ("a\tb", "20")], frozenset({"n"}))
    assert list(table.lines()) == ["name   n", "漢字   1", "a\\tb  20"]


def test_a_table_on_a_terminal_shows_brackets_as_they_are(jobs_dir: Path) -> None:
    (jobs_dir / "news").rename(jobs_dir / "[bold]news")
    terminal, child = pty.openpty()
    subprocess.run(
        process(jobs_dir, "jobs"),
        stdout=child,
        check=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(child)
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert "[bold]news" in shown
