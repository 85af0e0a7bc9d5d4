"""What a user can get wrong: one clear line, the right exit code, and nothing lost."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.testing.crawl_rig import CrawlRig, Ended, html, paths_of, read_jsonl, serve
from gossamer.testing.synthetic_reply import Hit, Reply, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

USAGE, CROSSED, NOTHING, OUTPUT = 2, 3, 4, 5
URL = "http://127.0.0.1:9/"


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread(slow_seconds=0.1) as served:
        yield served


@pytest.fixture
def rig(tmp_path: Path) -> CrawlRig:
    return CrawlRig(tmp_path)


def said(ended: Ended) -> str:
    """Return the one line an error has; anything more, or a traceback, fails the test."""
    (line,) = ended.err.splitlines()
    assert line.startswith("gossamer: "), line
    assert "internal error" not in line
    return line.removeprefix("gossamer: ")


def quiet(rig: CrawlRig, *given: str, output: str = "pages.jsonl") -> Ended:
    return rig.run(*rig.arguments("crawl", "-q", *given, output=output))


# -- URLs and hosts --------------------------------------------------------------------------------------


def test_a_host_that_refuses_connections_is_named_with_the_reason(web: SyntheticWeb, rig: CrawlRig) -> None:
    ended = quiet(rig, web.url("dead"))
    assert ended.code == NOTHING
    assert "Connection refused" in said(ended)


def test_a_host_that_does_not_exist_is_named_with_the_reason(rig: CrawlRig) -> None:
    ended = quiet(rig, "http://no-such-host.invalid/")
    assert ended.code == NOTHING
    assert "no-such-host.invalid does not resolve" in said(ended)


@pytest.mark.parametrize(
    "url", ["http://[", "http://", "http://a b/", "ftp://example.org/", "http://x:99999/"]
)
def test_what_is_no_url_is_refused(rig: CrawlRig, url: str) -> None:
    ended = quiet(rig, url)
    assert (ended.code, rig.rows()) == (USAGE, {})
    assert repr(url) in said(ended)


@pytest.mark.parametrize("url", ["example.org", "example.org/path", "www.example.org:8080", "localhost"])
def test_a_url_without_its_scheme_gets_a_suggestion(rig: CrawlRig, url: str) -> None:
    ended = quiet(rig, url)
    assert ended.code == USAGE
    assert f"did you mean https://{url}" in said(ended)


def test_a_private_address_is_refused_and_the_flag_that_allows_it_named(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "private", {"/": []})
    ended = quiet(rig, url, "--no-allow-private")
    assert ended.code == NOTHING
    assert "--allow-private" in said(ended)
    assert not [hit for hit in web.hits if hit.host == "private"]


def test_the_same_command_with_the_flag_then_fetches_what_was_refused(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "allowed", {"/": []})
    quiet(rig, url, "--no-allow-private")
    assert quiet(rig, url).code == 0
    assert paths_of(web, "allowed") == ["/"]


def test_the_same_command_without_robots_then_fetches_what_robots_forbade(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "forbidden", {"/": []})
    web.add("forbidden", "/robots.txt", text_reply("User-agent: *\nDisallow: /\n"))
    ended = quiet(rig, url)
    assert (ended.code, paths_of(web, "forbidden")) == (NOTHING, [])
    assert "robots" in said(ended)
    assert quiet(rig, url, "--no-robots").code == 0


def test_no_url_at_all_is_said(rig: CrawlRig) -> None:
    ended = quiet(rig)
    assert ended.code == USAGE
    assert "no URL given" in said(ended)


# -- hostile servers -------------------------------------------------------------------------------------


def test_a_page_of_50_mb_fails_as_too_large_and_is_not_read_to_its_end(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    web.add("huge", "/", Reply(body=b"<p>" * 17_000_000))
    ended = quiet(rig, web.url("huge"))
    assert ended.code == NOTHING
    assert "too_large" in said(ended)


def test_a_large_page_that_is_not_alone_does_not_fail_the_crawl(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "half", {"/": ["/huge"]})
    web.add("half", "/huge", Reply(body=b"x" * 20_000_000))
    ended = quiet(rig, url)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    "body",
    [bytes(range(256)) * 400, b"\x89PNG\r\n\x1a\n" + b"\0" * 1000, os.urandom(50_000), b"\x1f\x8b\x08" * 999],
    ids=["all bytes", "png", "random", "gzip"],
)
def test_a_binary_body_that_says_it_is_html_has_a_record_without_links(
    web: SyntheticWeb, rig: CrawlRig, body: bytes
) -> None:
    web.add("binary", "/", Reply(body=body))
    crawled = rig.crawl(web.url("binary"))
    assert crawled.code == 0
    assert [(record["links"], record["bytes"]) for record in crawled.records] == [([], len(body))]


@pytest.mark.parametrize(
    "body",
    [b"<div>" * 100_000, b"<a href='" + b"x" * 500_000, b"&#" * 200_000, b"<!--" * 100_000, b"\0" * 99],
    ids=["nested", "open attribute", "entities", "open comment", "nothing but nul"],
)
def test_html_made_to_hurt_has_a_record_and_ends(web: SyntheticWeb, rig: CrawlRig, body: bytes) -> None:
    web.add("hurt", "/", Reply(body=body))
    assert [record["status"] for record in rig.crawl(web.url("hurt")).records] == [200]


def test_a_page_with_control_characters_in_its_title_cannot_write_to_the_terminal(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    web.add("evil", "/\x1b", html())
    web.add("evil", "/", text_reply("", status=302).with_headers(("Location", "http://[\x1b]0;owned\x07")))
    ended = rig.run(*rig.arguments("crawl", web.url("evil")))
    assert ended.code == NOTHING
    assert "\x1b" not in ended.err
    assert "\x07" not in ended.err


# -- input files -----------------------------------------------------------------------------------------


def test_a_missing_input_file_is_named(rig: CrawlRig) -> None:
    ended = quiet(rig, "-i", "nowhere.txt")
    assert ended.code == USAGE
    assert "nowhere.txt" in said(ended)


def test_a_folder_as_input_is_called_a_folder(rig: CrawlRig) -> None:
    ended = quiet(rig, "-i", str(rig.folder))
    assert ended.code == USAGE
    assert "is a folder" in said(ended)


def test_a_pipe_as_input_file_is_pointed_to_standard_input(rig: CrawlRig) -> None:
    os.mkfifo(rig.folder / "pipe")
    ended = quiet(rig, "-i", str(rig.folder / "pipe"))
    assert ended.code == USAGE
    assert "-i -" in said(ended)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "nonsense\n"])
def test_an_input_without_a_single_url_is_said(rig: CrawlRig, text: str) -> None:
    (rig.folder / "urls.txt").write_text(text)
    ended = quiet(rig, "-i", str(rig.folder / "urls.txt"))
    assert ended.code == NOTHING
    assert "the input holds no URL" in ended.err.splitlines()[-1]


def test_an_empty_standard_input_is_said(rig: CrawlRig) -> None:
    ended = rig.spawn(*rig.arguments("crawl", "-q", "-"))
    assert ended.code == NOTHING
    assert "the input holds no URL" in said(ended)


def without_stdin(*arguments: str) -> Ended:
    command = [sys.executable, "-m", "gossamer", *arguments]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, check=False)
    return Ended(done.returncode, "", done.stderr.decode())


@pytest.mark.parametrize(
    "servers", [(), ("--redis", "redis://127.0.0.1:1", "--postgres", "postgresql://127.0.0.1:1/x")]
)
def test_a_closed_standard_input_is_said(rig: CrawlRig, servers: tuple[str, ...]) -> None:
    ended = without_stdin(*rig.arguments("crawl", "-q", "-", *servers))
    assert ended.code == USAGE
    assert "standard input is closed" in said(ended)


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_an_error_that_cannot_be_said_still_has_its_exit_code(rig: CrawlRig, stderr: str) -> None:
    command = [sys.executable, "-m", "gossamer", "status", "nowhere", "--jobs-dir", str(rig.jobs)]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {stderr}', "sh", *command], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (USAGE, b"")


def test_a_job_from_standard_input_is_resumed_without_one(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "piped", {"/": ["/a", "/b"], "/a": [], "/b": []})
    begun = rig.spawn(*rig.arguments("crawl", "-q", "-n", "1", "-"), stdin=url.encode())
    assert begun.code == 0, begun.err
    ended = without_stdin("resume", "job", "--jobs-dir", str(rig.jobs), "-q", "-n", "9")
    assert (ended.code, ended.err) == (0, "")
    assert sorted(paths_of(web, "piped")) == ["/", "/a", "/b"]


def test_an_input_file_with_an_odd_name_is_read(web: SyntheticWeb, rig: CrawlRig) -> None:
    odd = rig.folder / "wörter \n\x1b[1m'\"$(x)*.txt"
    odd.write_text(serve(web, "odd", {"/": []}))
    output = "ä \n*.jsonl"
    ended = quiet(rig, "-i", str(odd), output=output)
    assert (ended.code, ended.err) == (0, "")
    assert len(list(read_jsonl(rig.folder / output))) == 1


def test_a_name_that_is_no_utf_8_is_refused_before_anything_is_made(rig: CrawlRig) -> None:
    odd = os.fsdecode(os.fsencode(rig.folder) + b"/\xff\xfe")
    for given in (["-o", f"{odd}.jsonl"], ["--user-agent", odd], ["--job", "\udcff"]):
        ended = rig.spawn(*rig.arguments("crawl", "-q", URL, output=""), *given)
        assert ended.code == USAGE
        assert r"\udcff" in said(ended)
    assert list(rig.folder.iterdir()) == []


# -- outputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["xyz", "json", "txt", ""])
def test_an_output_with_an_unknown_suffix_is_refused_before_anything_is_made(
    rig: CrawlRig, suffix: str
) -> None:
    ended = quiet(rig, URL, output=f"pages.{suffix}")
    assert ended.code == USAGE
    assert ".jsonl" in said(ended)
    assert list(rig.folder.iterdir()) == []


def test_an_output_that_cannot_be_made_is_said(web: SyntheticWeb, rig: CrawlRig) -> None:
    (rig.folder / "file").write_text("")
    url = serve(web, "unwritable", {"/": []})
    for output in ("file/pages.jsonl", "/proc/pages.jsonl", "/dev/full/x.jsonl"):
        ended = quiet(rig, url, output=output)
        assert ended.code == OUTPUT
        assert output in said(ended)
    assert paths_of(web, "unwritable") == []


def test_an_output_that_fills_its_disk_ends_with_its_code_and_the_job_goes_on_elsewhere(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "full", {"/": ["/a", "/b"], "/a": [], "/b": []})
    ended = quiet(rig, url, output="/dev/full")
    assert ended.code == OUTPUT
    assert "/dev/full" in said(ended)
    assert quiet(rig, url, output="pages.jsonl").code == 0
    assert len(list(read_jsonl(rig.folder / "pages.jsonl"))) == 3


def test_a_job_folder_that_cannot_be_written_is_said(rig: CrawlRig) -> None:
    (rig.folder / "file").write_text("")
    for place in (str(rig.folder / "file" / "jobs"), "/proc/jobs"):
        ended = quiet(rig, URL, "--jobs-dir", place)
        assert ended.code == OUTPUT
        assert "job folder" in said(ended)


def test_a_folder_as_output_is_called_a_folder(rig: CrawlRig) -> None:
    (rig.folder / "out.jsonl").mkdir()
    ended = quiet(rig, URL, output="out.jsonl")
    assert ended.code == OUTPUT
    assert "is a folder" in said(ended)


def test_a_file_that_is_not_the_jobs_own_is_left_as_it_is(rig: CrawlRig) -> None:
    (rig.folder / "pages.jsonl").write_text("precious\n")
    ended = quiet(rig, URL)
    assert ended.code == USAGE
    assert "exists already" in said(ended)
    assert (rig.folder / "pages.jsonl").read_text() == "precious\n"


def test_the_same_output_twice_is_written_once(web: SyntheticWeb, rig: CrawlRig) -> None:
    crawled = rig.crawl(serve(web, "doubled", {"/": []}), "-o", str(rig.folder / "pages.jsonl"))
    assert (crawled.code, len(crawled.records)) == (0, 1)


def test_a_reader_that_leaves_ends_the_crawl_quietly(web: SyntheticWeb, rig: CrawlRig) -> None:
    pages = {"/": [f"/{n}" for n in range(200)]}
    arguments = rig.arguments("crawl", "-q", serve(web, "head", pages), output="")
    command = [sys.executable, "-m", "gossamer", *arguments, "-o", "-", "--commit-pages", "1"]
    script = '"$@" | head -1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(["bash", "-c", script, "sh", *command], capture_output=True, check=False)
    first, code = done.stdout.decode().splitlines()
    assert first.startswith('{"url":')
    assert (code, done.stderr) == ("0", b"")


def test_records_on_stdout_are_not_mixed_with_anything_else(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "stdout", {"/": ["/a"], "/a": []})
    ended = rig.spawn(*rig.arguments("crawl", url, output=""), "-o", "-")
    assert ended.code == 0
    assert [line[:7] for line in ended.out.splitlines()] == ['{"url":'] * 2
    assert "done" in ended.err


# -- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (["--max-page", "3"], "--max-pages"),
        (["--no-such-flag"], "no-such-flag"),
        (["--delay", "fast"], "'fast' is not a number"),
        (["--delay", "-1"], "at least 0"),
        (["--delay", "nan"], "delay"),
        (["--delay", "inf"], "delay"),
        (["-n", "0"], "at least 1"),
        (["-n", "-5"], "at least 1"),
        (["-n", "1.5"], "whole number"),
        (["-n", "9" * 30], "max_pages"),
        (["-d", "many"], "whole number"),
        (["--workers", "0"], "at least 1"),
        (["--max-size", "ten"], "10MB"),
        (["--scope", "hots"], "'host'"),
        (["--progress", "fancy"], "plain"),
        (["--fields", "url,titel"], "titel"),
        (["-H", "no colon"], "Name: value"),
        (["-H", "X: a\r\nEvil: b"], "header"),
        (["--fail-on", "fialed>3"], "fialed"),
        (["--fail-on", "failed"], "failed>5%"),
        (["--job", "../elsewhere"], "--job"),
        (["--job", "."], "--job"),
    ],
)
def test_a_wrong_flag_or_value_is_one_line_that_says_what_to_change(
    rig: CrawlRig, given: list[str], hint: str
) -> None:
    ended = quiet(rig, URL, *given)
    assert ended.code == USAGE
    assert hint in said(ended)
    assert list(rig.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("max_page = 3", "'max_pages'"),
        ("max_pages = ", "not valid TOML"),
        ('max_pages = "many"', "whole number"),
        ("max_pages = true", "whole number"),
        ("delay = -3", "at least 0"),
        ("[limits]\nmax_pages = 3", "top level"),
        ('robots = "maybe"', "true or false"),
        ("include = [1]", "list of texts"),
        ('scope = "galaxy"', "prefix"),
        ("user_agent = 3", "text"),
        ("\x00", "not valid TOML"),
    ],
)
def test_a_wrong_config_file_is_one_line_that_says_what_to_change(
    rig: CrawlRig, text: str, hint: str
) -> None:
    (rig.folder / "gossamer.toml").write_text(text)
    ended = quiet(rig, URL, "--config", str(rig.folder / "gossamer.toml"))
    assert ended.code == USAGE
    assert hint in said(ended)


def test_a_missing_config_file_is_named(rig: CrawlRig) -> None:
    ended = quiet(rig, URL, "--config", "nowhere.toml")
    assert ended.code == USAGE
    assert "nowhere.toml" in said(ended)


def test_a_wrong_variable_is_named(rig: CrawlRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DELYA", "3")
    ended = quiet(rig, URL)
    assert ended.code == USAGE
    assert "did you mean 'delay'" in said(ended)


# -- jobs ------------------------------------------------------------------------------------------------


def test_a_damaged_ledger_is_said_and_fresh_starts_over(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "damaged", {"/": []})
    rig.crawl(url)
    for damage in (b"garbage" * 1000, (rig.jobs / "job" / "ledger.sqlite").read_bytes()[:5000]):
        for leftover in (rig.jobs / "job").glob("ledger.sqlite-*"):
            leftover.unlink()
        (rig.jobs / "job" / "ledger.sqlite").write_bytes(damage)
        ended = quiet(rig, url)
        assert ended.code == OUTPUT
        assert "ledger" in said(ended)
        assert (rig.jobs / "job" / "ledger.sqlite").read_bytes() == damage, "what is left may be worth saving"
    assert quiet(rig, url, "--fresh", output="anew.jsonl").code == 0


def test_a_damaged_job_file_is_said(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "job-file", {"/": []})
    rig.crawl(url)
    (rig.jobs / "job" / "job.toml").write_text("= = =")
    ended = quiet(rig, url)
    assert ended.code == USAGE
    assert "--fresh" in said(ended)


def test_a_job_made_with_other_settings_names_what_differs_and_fresh_starts_over(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url, other = serve(web, "first", {"/": []}), serve(web, "second", {"/": []})
    rig.crawl(url)
    ended = quiet(rig, other, "--scope", "domain")
    assert ended.code == USAGE
    assert "scope was host, now domain" in said(ended)
    assert other in said(ended)
    assert paths_of(web, "second") == []
    crawled = rig.crawl(other, "--scope", "domain", "--fresh")
    assert (crawled.code, crawled.urls) == (0, [other])


def test_limits_rates_and_outputs_may_change_when_a_job_resumes(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "changing", {"/": ["/a"], "/a": []})
    rig.crawl(url, "-n", "1")
    crawled = rig.crawl(url, "-n", "9", "--delay", "0.01", "-c", "3", "--timeout", "9", output="late.jsonl")
    assert (crawled.code, len(crawled.records)) == (0, 2), "a late output holds the earlier pages too"


def test_a_job_in_use_is_left_alone(web: SyntheticWeb, rig: CrawlRig) -> None:
    codes: list[Ended] = []

    def second_run(_hit: Hit) -> Reply:
        codes.append(rig.spawn(*rig.arguments("crawl", "-q", web.url("used"), output="")))
        return html()

    web.add("used", "/", second_run)
    assert rig.crawl(web.url("used")).code == 0
    assert codes[0].code == USAGE
    assert "being worked on by process" in said(codes[0])


def test_a_crossed_threshold_is_its_own_code_and_the_records_are_kept(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    url = serve(web, "crossed", {"/": ["/missing"]})
    web.add("crossed", "/missing", html().with_status(404))
    ended = quiet(rig, url, "--fail-on", "http_404>0")
    assert ended.code == CROSSED
    assert "http_404>0" in said(ended)
    assert len(list(read_jsonl(rig.folder / "pages.jsonl"))) == 2
    assert quiet(rig, url, "--fail-on", "http_404>0").code == CROSSED, "also when there is nothing left to do"
    assert quiet(rig, url, "--fail-on", "failed>5%").code == 0


# -- the world around ------------------------------------------------------------------------------------


def test_neither_a_home_nor_a_utf_8_locale_is_needed(web: SyntheticWeb, rig: CrawlRig) -> None:
    title = "Fäden 蜘蛛"
    web.add("poor", "/", Reply(body=f"<title>{title}</title>".encode()))
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = rig.spawn(*rig.arguments("crawl", web.url("poor"), output=""), "-o", "-", environment=environment)
    assert ended.code == 0
    assert title in ended.out


def test_a_bug_is_one_line_with_its_own_code(rig: CrawlRig) -> None:
    """A jobs folder whose name no system call takes is as near to a bug as a user gets."""
    ended = quiet(rig, URL, "--jobs-dir", "a\0b")
    assert ended.code in {1, USAGE, OUTPUT}
    assert ended.err.count("\n") == 1


def test_the_synthetic_web_listens_on_loopback_alone(web: SyntheticWeb) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=5) as connection:
        assert connection.getpeername()[0] == "127.0.0.1"


def test_an_output_readable_by_its_owner_keeps_its_mode(web: SyntheticWeb, rig: CrawlRig) -> None:
    before = os.umask(0o077)
    try:
        rig.crawl(serve(web, "modes", {"/": []}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((rig.folder / "pages.jsonl").stat().st_mode) == 0o600
