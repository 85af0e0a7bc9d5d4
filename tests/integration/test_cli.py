"""The command line as such: help, versions, exit codes, what goes to which stream, and how a run is shown."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer import __version__
from gossamer.cli.main import cli
from gossamer.config.settings import every_setting
from gossamer.testing.crawl_rig import CrawlRig, Ended, html, paths_of, serve
from gossamer.testing.stalls import quiet_gaps, stall_watch
from gossamer.testing.synthetic_reply import Hit, Reply, redirect, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

COMMANDS = sorted(cli.commands)


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    stall_watch()
    with SyntheticWeb.in_thread(slow_seconds=0.1) as served:
        yield served


@pytest.fixture
def rig(tmp_path: Path) -> CrawlRig:
    return CrawlRig(tmp_path)


# -- help ------------------------------------------------------------------------------------------------


def test_help_lists_every_command_with_a_line(rig: CrawlRig) -> None:
    ended = rig.run("--help")
    assert (ended.code, ended.err) == (0, "")
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +\S", ended.out, re.MULTILINE), name


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_fits_a_terminal_and_says_what_it_does(rig: CrawlRig, command: str) -> None:
    ended = rig.run(command, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: gossamer {command}")
    assert max(map(len, ended.out.splitlines())) <= 100
    assert cli.commands[command].help


def test_help_groups_the_flags_and_keeps_the_ones_for_tuning_back(rig: CrawlRig) -> None:
    shown = rig.run("crawl", "--help").out
    titles = re.findall(r"^(\w+):$", shown, re.MULTILINE)
    assert titles == [
        "Job",
        "Scope",
        "Traps",
        "Limits",
        "Politeness",
        "Fetching",
        "Records",
        "Speed",
        "Servers",
    ]
    assert "--lease-seconds" not in shown
    assert "--help-all" in shown


@pytest.mark.parametrize("command", ["crawl", "scrape"])
def test_help_all_shows_every_setting(rig: CrawlRig, command: str) -> None:
    shown = rig.run(command, "--help-all").out
    for setting in every_setting():
        flag = setting.word.replace("_", "-")
        assert re.search(rf"--(no-)?{flag}\b", shown), flag
    assert "e+0" not in shown, "numbers are written out"


def test_no_command_at_all_shows_the_help_as_help(rig: CrawlRig) -> None:
    ended = rig.run()
    assert ended.code == 2
    assert ended.err.startswith("Usage: gossamer")
    assert ended.err.count("\n") > 10


def test_the_version_is_the_packages_version(rig: CrawlRig) -> None:
    assert rig.run("--version").out.strip().endswith(__version__)


def test_the_commands_are_listed_in_the_order_a_user_meets_them(rig: CrawlRig) -> None:
    listed = re.findall(r"^  (\w+)  +\S", rig.run("--help").out.split("Commands:")[1], re.MULTILINE)
    assert listed == list(cli.commands)
    assert (listed[0], listed[-1]) == ("crawl", "demo")


def test_a_shell_completes_commands_and_their_flags(rig: CrawlRig) -> None:
    def completed(words: str, number: int) -> list[str]:
        asked = {"_GOSSAMER_COMPLETE": "zsh_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        lines = rig.spawn(environment={**os.environ, **asked}).out.splitlines()
        return lines[1::3] if "--" not in words else [line for line in lines if line.startswith("--")]

    assert completed("gossamer st", 1) == ["status", "stop"]
    assert "--redis-prefix" in completed("gossamer worker --redis-", 2)


def test_a_misspelt_command_gets_a_suggestion(rig: CrawlRig) -> None:
    ended = rig.run("crwal")
    assert ended.code == 2
    assert "'crawl'" in ended.err


# -- streams and progress --------------------------------------------------------------------------------


def test_quiet_says_nothing_where_nothing_is_wrong(web: SyntheticWeb, rig: CrawlRig) -> None:
    ended = rig.spawn(*rig.arguments("crawl", serve(web, "quiet", {"/": []}), "-q", "--progress", "auto"))
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_without_an_output_nothing_goes_to_stdout_and_the_records_are_kept(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "kept", {"/": ["/a"], "/a": []})
    ended = rig.run(*rig.arguments("crawl", url, output=""))
    assert (ended.code, ended.out) == (0, "")
    assert len(rig.crawl(url, output="late.jsonl").records) == 2
    assert sorted(paths_of(web, "kept")) == ["/", "/a"], "a late output needs no fetch"


def test_progress_for_programs_is_json_lines_with_an_end(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "events", {"/": ["/a", "/b"], "/a": [], "/b": []})
    ended = rig.spawn(*rig.arguments("crawl", url, "--progress", "json"))
    events = [json.loads(line) for line in ended.err.splitlines()]
    assert ended.code == 0
    assert {event["job"] for event in events} == {"job"}
    assert events[-1]["event"] == "end"
    assert (events[-1]["pages"], events[-1]["queued"], events[-1]["done"]) == (3, 0, 3)


def test_plain_progress_has_no_control_characters(web: SyntheticWeb, rig: CrawlRig) -> None:
    ended = rig.spawn(*rig.arguments("crawl", serve(web, "plain", {"/": []}), "--progress", "plain"))
    assert "job: started" in ended.err
    assert not [c for c in ended.err if ord(c) < 32 and c != "\n"]


@pytest.mark.parametrize(("redirection", "code"), [("<&-", 0), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_closed_standard_streams_are_no_obstacle_to_a_crawl_into_a_file(
    web: SyntheticWeb, rig: CrawlRig, redirection: str, code: int
) -> None:
    url = serve(web, "streams", {"/": []})
    command = [sys.executable, "-m", "gossamer", *rig.arguments("crawl", url)]
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirection}', "bash", *command], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, b"")
    assert len(rig.inspect(rig.run("jobs", "--jobs-dir", str(rig.jobs))).records) == 1


# -- one page --------------------------------------------------------------------------------------------


def fetch(rig: CrawlRig, *given: str) -> Ended:
    return rig.spawn("fetch", "--allow-private", "--delay", "0.01", "--backoff-seconds", "0.02", *given)


def test_fetch_prints_the_record_of_a_page(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("one", "/old", redirect("/new"))
    web.add("one", "/new", html("/x", body="<h1>Hello</h1><p>w\u00f6rld</p>"))
    ended = fetch(rig, web.url("one", "/old"))
    record = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert (record["url"], record["final_url"]) == (web.url("one", "/old"), web.url("one", "/new"))
    assert list(rig.folder.iterdir()) == [], "it keeps nothing"


def test_fetch_keeps_the_delay_between_its_requests_too(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("spaced", "/old", redirect("/new"))
    web.add("spaced", "/new", html())
    assert fetch(rig, web.url("spaced", "/old"), "--delay", "0.3").code == 0
    moments = [hit.at for hit in web.hits if hit.host == "spaced"]
    assert len(moments) == 3
    assert min(quiet_gaps(moments), default=0.3) >= 0.25


@pytest.mark.parametrize(
    ("form", "expected"),
    [("text", "Hello"), ("html", "<h1>Hello</h1>"), ("headers", "content-type: text/html; charset=utf-8")],
)
def test_fetch_prints_a_page_in_other_forms(
    web: SyntheticWeb, rig: CrawlRig, form: str, expected: str
) -> None:
    web.add("forms", "/", html(body="<h1>Hello</h1><script>no()</script>"))
    ended = fetch(rig, web.url("forms"), "--as", form)
    assert ended.code == 0
    assert expected in ended.out
    assert ("no()" in ended.out) == (form == "html")


@pytest.mark.parametrize(
    ("robots", "page", "hint"),
    [
        (text_reply("User-agent: *\nDisallow: /\n"), html(), "robots"),
        (text_reply("", status=503).with_headers(("Retry-After", "86400")), html(), "wait 86400 s"),
        (text_reply("", status=404), Reply(raw=b"nonsense\r\n\r\n"), "protocol_error"),
        (text_reply("", status=404), redirect("/"), "redirect_loop"),
    ],
    ids=["forbidden", "long wait", "nonsense", "loop"],
)
def test_fetch_says_in_one_line_why_there_is_no_page(
    web: SyntheticWeb, rig: CrawlRig, robots: Reply, page: Reply, hint: str
) -> None:
    web.add("none", "/robots.txt", robots)
    web.add("none", "/", page)
    ended = fetch(rig, web.url("none"))
    assert (ended.code, ended.out) == (4, "")
    (line,) = ended.err.splitlines()
    assert hint in line


def test_fetch_suggests_a_scheme_and_refuses_private_addresses(web: SyntheticWeb, rig: CrawlRig) -> None:
    assert "https://example.org" in rig.run("fetch", "example.org").err
    ended = rig.run("fetch", web.url("one"))
    assert ended.code == 4
    assert "--allow-private" in ended.err


def test_a_page_cannot_write_control_characters_to_a_terminal(web: SyntheticWeb, rig: CrawlRig) -> None:
    web.add("tty", "/", Reply(body="<p>\x1b]0;owned\x07 \u202eback</p>".encode()))
    near, far = pty.openpty()
    command = [sys.executable, "-m", "gossamer", "fetch", "--allow-private", web.url("tty"), "--as", "html"]
    subprocess.run(command, stdout=far, check=True)
    shown = os.read(near, 10_000).decode()
    os.close(near)
    os.close(far)
    assert "owned" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


# -- resuming --------------------------------------------------------------------------------------------


def test_the_same_command_without_a_job_name_resumes(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "nameless", {"/": ["/a"], "/a": []})
    given = ["crawl", url, "--allow-private", "--delay", "0", "--jobs-dir", str(rig.jobs), "-q"]
    assert rig.run(*given, "-n", "1").code == 0
    assert rig.run(*given).code == 0
    assert sorted(paths_of(web, "nameless")) == ["/", "/a"]
    (job,) = rig.jobs.glob("[!.]*")
    assert job.name.startswith("nameless.localhost-")


def test_another_scope_without_a_job_name_is_another_job(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "two-jobs", {"/": []})
    given = ["crawl", url, "--allow-private", "--delay", "0", "--jobs-dir", str(rig.jobs), "-q"]
    rig.run(*given)
    rig.run(*given, "--scope", "page")
    assert len(list(rig.jobs.glob("[!.]*"))) == 2


def test_a_finished_job_says_so_and_fetches_nothing(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "finished", {"/": []})
    rig.crawl(url)
    ended = rig.crawl(url)
    assert (ended.code, len(ended.records)) == (0, 1)
    assert "nothing left to fetch" in ended.err
    assert paths_of(web, "finished") == ["/"]


def test_resume_goes_on_with_a_job_by_its_name_alone(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "by-name", {"/": ["/a", "/b"], "/a": [], "/b": []})
    assert len(rig.crawl(url, "-n", "1").records) == 1
    ended = rig.run("resume", "job", "--jobs-dir", str(rig.jobs), "-q", "-n", "9")
    assert (ended.code, ended.err) == (0, "")
    assert len(rig.inspect(ended).records) == 3


def test_resume_of_a_job_that_is_not_there_is_said(rig: CrawlRig) -> None:
    ended = rig.run("resume", "nowhere", "--jobs-dir", str(rig.jobs))
    assert ended.code == 2
    assert "nowhere" in ended.err


def test_fresh_begins_the_job_and_its_output_anew(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "anew", {"/": []})
    rig.crawl(url)
    crawled = rig.crawl(url, "--fresh")
    assert (crawled.code, len(crawled.records)) == (0, 1)
    assert paths_of(web, "anew") == ["/", "/"]


def test_an_output_that_was_deleted_is_written_anew_from_the_log(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "deleted", {"/": ["/a"], "/a": []})
    before = rig.crawl(url)
    (rig.folder / "pages.jsonl").unlink()
    assert rig.crawl(url).records == before.records
    assert len(paths_of(web, "deleted")) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_crawl_has_the_code_of_its_signal_and_says_how_to_resume(
    web: SyntheticWeb, rig: CrawlRig, number: signal.Signals, code: int
) -> None:
    host = f"signal-{code}"
    url = serve(web, host, {"/": [f"/{n}" for n in range(50)]})
    arguments = rig.arguments("crawl", url, "--delay", "0.05")
    process = subprocess.Popen(
        [sys.executable, "-m", "gossamer", *arguments], stderr=subprocess.PIPE, cwd=rig.folder
    )

    def interrupt(_hit: Hit) -> Reply:
        os.kill(process.pid, number)
        return html()

    web.add(host, "/3", interrupt)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"interrupted" in err
    assert re.search(rf"next +gossamer crawl .*{re.escape(url)}".encode(), err)
    left = len(rig.inspect(rig.run("jobs", "--jobs-dir", str(rig.jobs))).records)
    assert 1 <= left < 51
    assert len(rig.crawl(url).records) == 51
    assert len(paths_of(web, host)) == 51


# -- settings from everywhere ----------------------------------------------------------------------------


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    web: SyntheticWeb, rig: CrawlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(web, "layers", {"/": []})
    config = rig.folder / "gossamer.toml"
    config.write_text('user_agent = "file/1"\ncontact = "file@example.org"\nheader = ["X-From: file"]\n')
    monkeypatch.setenv("GOSSAMER_USER_AGENT", "environment/1")
    monkeypatch.setenv("GOSSAMER_CONTACT", "environment@example.org")
    rig.crawl(url, "--config", str(config), "--contact", "flag@example.org")
    (sent,) = [hit.headers for hit in web.hits if hit.host == "layers" and hit.path == "/"]
    assert sent["user-agent"] == "environment/1 (+flag@example.org)"
    assert sent["x-from"] == "file"


def test_the_jobs_folder_may_come_from_the_environment(
    web: SyntheticWeb, rig: CrawlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_JOBS_DIR", str(rig.folder / "elsewhere"))
    url = serve(web, "place", {"/": []})
    assert rig.run("crawl", url, "--allow-private", "--job", "j", "-q").code == 0
    assert (rig.folder / "elsewhere" / "j" / "ledger.sqlite").exists()


def test_a_job_leaves_its_four_files(web: SyntheticWeb, rig: CrawlRig) -> None:
    rig.crawl(serve(web, "files", {"/": []}))
    names = {path.name for path in (rig.jobs / "job").iterdir()}
    assert names >= {"job.toml", "ledger.sqlite", "log.jsonl", "report.json"}
    report = json.loads((rig.jobs / "job" / "report.json").read_text())
    assert report["job"] == "job"
    for line in (rig.jobs / "job" / "log.jsonl").read_text().splitlines():
        assert json.loads(line)["event"]


def test_several_outputs_are_written_side_by_side(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "several", {"/": ["/a"], "/a": []})
    others = [str(rig.folder / name) for name in ("b.jsonl.gz", "c.jsonl.zst", "d.ndjson")]
    crawled = rig.crawl(url, *(part for path in others for part in ("-o", path)))
    assert len(crawled.records) == 2
    assert (rig.folder / "d.ndjson").read_bytes() == (rig.folder / "pages.jsonl").read_bytes()
    assert all(Path(path).stat().st_size for path in others)


# -- the demo --------------------------------------------------------------------------------------------


def test_the_demo_crawls_its_site_and_its_hints_work_as_typed(rig: CrawlRig) -> None:
    ended = rig.spawn("demo", "--progress", "none")
    assert (ended.code, ended.out) == (0, "")
    for word in ("robots_unreachable", "redirect_loop", "http_404", "trap", "221 records"):
        assert word in ended.err
    typed = [
        shlex.split(hint) for hint in re.findall(r"gossamer ((?:urls|explain|report) demo .*)", ended.err)
    ]
    assert len(typed) >= 3
    for arguments in typed:
        answer = rig.spawn(*arguments)
        assert (answer.code, bool(answer.out)) == (0, True), (arguments, answer.err)
