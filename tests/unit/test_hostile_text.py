"""No text from the web can forge a line of a log or of a terminal, and no name leads out of its folder."""

from __future__ import annotations

import ast
import csv
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.asking import default_job_name, job_folder, job_spec
from gossamer.cli import terminal
from gossamer.cli.main import cli
from gossamer.config.settings import Settings
from gossamer.errors import InvalidUrl, UsageError
from gossamer.frontier.job_folder import JobFolder
from gossamer.model.record import FIELDS
from gossamer.testing.crawl_rig import FAST, CrawlRig, Ended, read_jsonl
from gossamer.testing.synthetic_reply import Reply
from gossamer.testing.synthetic_web import SyntheticWeb

ROOT = Path(__file__).parents[2]
CLI = ROOT / "src" / "gossamer" / "cli"

FORGED = "gossamer: forged"
#: A window title, a cleared screen, a bell, C1, both kinds of reordering, separators, NUL, half a pair.
TRICKS = "\x1b]0;owned\x07\x1b[2J\x9b31m\x90\x85\u202e\u2066\u2028\u2029\x0b\x0c\x7f\x08"
TEXT = f"=cmd|' /C calc'!A0 \r\n{FORGED}{TRICKS}end"
IN_LINE = TEXT.replace("\r\n", " ")
#: What must never come out; a line feed is judged by the lines it makes.
BANNED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")
#: The colours and the cursor movements of our own displays.
OURS = re.compile(r"\r(?=\x1b\[[12][AK])|\x1b\[(?:[\d;]*m|2K|\d+A|\?25[hl]|\d*G)")


def raw(head: str, body: str = "", status: str = "200 OK") -> Reply:
    sent = body.encode("utf-8", "surrogatepass")
    lines = f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(sent)}\r\nConnection: close\r\n\r\n"
    return Reply(raw=lines.encode("utf-8", "surrogatepass") + sent)


def page(body: str, head: str = "Content-Type: text/html; charset=utf-8\r\n") -> Reply:
    # Control characters further up would make it a binary file, of which nothing is read.
    return raw(head, f"<!doctype html><!--{'-' * 2000}-->{body}")


ROBOTS = (
    f"User-agent: *\nDisallow: /secret{IN_LINE}\nDisallow: /*{IN_LINE}x\nAllow: /{TRICKS}\n"
    f"Disallow: /forbidden\nSitemap: http://a.example/{IN_LINE}\n{IN_LINE}: {IN_LINE}\nDisallow: /odd*\x1b]0;owned\x07*\u202e\n"
)
PATHS = (
    "/",
    "/title",
    "/header",
    "/type",
    "/moved",
    "/moved-far",
    "/phrase",
    "/broken",
    "/late",
    "/forbidden",
)


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread(slow_seconds=0.1) as served:
        links = "".join(f'<a href="{path}">x</a>' for path in PATHS)
        hrefs = f'<a href="/odd{TEXT}">x</a><a href="http://{IN_LINE}/">x</a><a href="/q?{TEXT}">x</a>'
        title = f"<title>{TEXT} &#27;[2J&#155;&#xD800;&#0;</title>"
        facts = f'<meta name=description content="{TEXT}"><html lang="{TEXT}"><h1>{TEXT}</h1>'
        answers = {
            "/robots.txt": raw("Content-Type: text/plain\r\n", ROBOTS),
            "/": page(links + hrefs),
            "/title": page(title + facts + "\ud800"),
            # A bare ESC is refused by the parser; what it lets through must not get further than the value.
            "/header": page("x", f"Content-Type: text/html\r\nX-Odd: a\u2028{FORGED}\x85\u202e\x9b31m\r\n"),
            "/type": page("x", "Content-Type: text/html\u2028\x9b31m\u202e; charset=\u202e\r\n"),
            "/moved": raw("Location: /to\u2028\u202e\x9b31m\r\n", status="302 Found"),
            "/moved-far": raw("Location: http://\u202e\x9b2J\u2028/\r\n", status="302 Found"),
            "/phrase": raw("", status=f"404 \u202e\x9b31m{FORGED}"),
            "/broken": Reply(raw=f"HTTP/1.1 200 OK\r\n{TRICKS}{FORGED}: x\r\n\r\n".encode()),
            "/late": raw(f"Retry-After: {TRICKS}\r\n", status="503 Later"),
        }
        for path, answer in answers.items():
            served.add("hostile", path, answer)
        yield served


@pytest.fixture(scope="module")
def rig(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> CrawlRig:
    """A finished crawl of the hostile host."""
    made = CrawlRig(tmp_path_factory.mktemp("hostile"))
    arguments = made.arguments("crawl", web.url("hostile"), "--progress", "plain", "-v", "--retries", "0")
    ended = made.run(*arguments, "-o", str(made.folder / "pages.csv"))
    assert ended.code == 0, ended.err
    check(ended)
    return made


def check(ended: Ended) -> None:
    for text in (ended.out, ended.err):
        found = BANNED.search(text.replace("\r\n", "\n"))
        assert found is None, repr(text[max(found.start() - 80, 0) : found.end() + 40])
        assert not re.search(rf"^\W*{FORGED}", text, re.MULTILINE), text


def in_terminal(folder: Path, *arguments: str) -> Ended:
    """Run a command whose stdout and stderr are a terminal; what it drew with is taken off."""
    near, far = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    command = [sys.executable, "-m", "gossamer", *arguments]
    with subprocess.Popen(command, stdout=far, stderr=far, stdin=far, cwd=folder, env=environment) as process:
        os.close(far)
        shown = b""
        deadline = time.monotonic() + 60
        while select.select([near], [], [], max(deadline - time.monotonic(), 0))[0]:
            try:
                shown += os.read(near, 65536)
            except OSError:
                break
        process.kill()
    os.close(near)
    # A terminal takes a bare C1 byte for a command; in UTF-8 it would be two bytes, which `check` looks for.
    return Ended(process.returncode, OURS.sub("", shown.decode("utf-8", "surrogateescape")), "")


# -- logs and outputs ------------------------------------------------------------------------------------


def test_the_crawl_met_what_it_was_to_meet(web: SyntheticWeb, rig: CrawlRig) -> None:
    rows = {row.url.removeprefix(web.url("hostile")[:-1]): row for row in rig.rows().values()}
    assert rows["/forbidden"].reason == "robots"
    assert rows["/broken"].state.label == "failed"
    assert rows["/moved"].state.label == "redirected"
    (odd,) = [row for path, row in rows.items() if path.startswith("/odd")]
    assert odd.reason == "robots"
    assert "\x1b" in odd.detail
    assert "\u202e" in odd.detail
    (titled,) = [record for record in read_jsonl(rig.folder / "pages.jsonl") if "/title" in record["url"]]
    assert "\x1b" in titled["title"] + titled["description"] + "".join(titled["headings"])


def test_each_line_of_the_log_is_one_object_of_printable_ascii(rig: CrawlRig) -> None:
    data = (rig.jobs / "job" / "log.jsonl").read_bytes()
    assert not re.search(rb"[^\x20-\x7e\n]", data)
    lines = [json.loads(line) for line in data.decode("ascii").splitlines()]
    assert len(lines) > 3
    assert {"time", "event"} <= set.intersection(*map(set, lines))
    assert not [line for line in lines if line["event"] == FORGED]


def test_each_line_of_the_json_lines_is_one_record(rig: CrawlRig) -> None:
    lines = (rig.folder / "pages.jsonl").read_bytes().split(b"\n")
    assert [set(json.loads(line)) <= set(FIELDS) for line in lines[:-1]] == [True] * (len(lines) - 1)


def test_the_csv_has_the_same_records_and_nothing_to_run(rig: CrawlRig) -> None:
    records = list(read_jsonl(rig.folder / "pages.jsonl"))
    with (rig.folder / "pages.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert [row["url"] for row in rows] == [record["url"] for record in records]
    assert all(set(row) == set(FIELDS) for row in rows)
    (titled,) = [row for row in rows if "/title" in row["url"]]
    assert titled["title"].startswith("'=cmd")
    assert titled["description"].startswith("'=cmd")
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", str(rows))


# -- commands --------------------------------------------------------------------------------------------

COMMANDS = {
    "jobs": ["jobs"],
    "status": ["status", "job"],
    "urls": ["urls", "job"],
    "urls as JSON": ["urls", "job", "--format", "jsonl"],
    "report": ["report", "job"],
    "report as JSON": ["report", "job", "--json"],
    "audit": ["audit", "job"],
    "audit as JSON": ["audit", "job", "--json"],
    "unknown job": ["status", f"a{TEXT}"],
    "unknown reason": ["urls", "job", "--reason", f"a{TEXT}"],
    "unknown host": ["urls", "job", "--host", f"a{TEXT}"],
    "unknown URL": ["explain", "job", f"http://a.example/{TEXT}"],
    "no URL": ["explain", "job", TEXT],
    "nobody to pause": ["pause", f"a{TEXT}"],
    "nobody to stop": ["stop", f"a{TEXT}"],
    "nothing to export": ["export", f"a{TEXT}", "-o", f"b{TEXT}.jsonl"],
    "nothing to retry": ["retry", "job", "--reason", "timeout"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_what_commands_say_has_nothing_of_the_web_but_text(rig: CrawlRig, arguments: list[str]) -> None:
    words = [*arguments, "--jobs-dir", str(rig.jobs)]
    check(rig.run(*words))
    check(in_terminal(rig.folder, *words))


def test_every_url_is_explained_in_harmless_lines(rig: CrawlRig) -> None:
    for url in rig.rows():
        ended = rig.run("explain", "job", url, "--jobs-dir", str(rig.jobs))
        assert ended.code == 0
        check(ended)


@pytest.mark.parametrize("path", ["/", "/forbidden", "/secret"])
def test_what_robots_says_is_harmless(web: SyntheticWeb, rig: CrawlRig, path: str) -> None:
    for words in ([], ["--json"], ["--job", "job", "--jobs-dir", str(rig.jobs)]):
        ended = rig.run("robots", web.url("hostile", path), "--allow-private", *words)
        assert ended.code == 0
        check(ended)


@pytest.mark.parametrize("path", ["/title", "/header", "/type", "/moved", "/phrase", "/broken", "/forbidden"])
@pytest.mark.parametrize("form", ["json", "text", "html", "headers"])
def test_a_page_on_a_terminal_is_spelled_out(web: SyntheticWeb, rig: CrawlRig, path: str, form: str) -> None:
    quickly = ("--retries", "0", "--delay", "0")
    words = ["fetch", web.url("hostile", path), "--allow-private", "--as", form, *quickly]
    shown = in_terminal(rig.folder, *words).out.replace("\r\n", "\n")
    assert shown
    assert BANNED.search(shown) is None, shown
    if form == "json" and shown.startswith("{"):
        assert json.loads(shown)["url"] == web.url("hostile", path)


def test_a_page_in_a_pipe_is_as_it_was_sent_but_for_its_headers(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = web.url("hostile", "/title")
    html = rig.spawn("fetch", url, "--allow-private", "--as", "html").out
    assert f"{FORGED}{TRICKS}" in html
    headers = rig.spawn("fetch", web.url("hostile", "/header"), "--allow-private", "--as", "headers")
    check(headers)
    assert r"x-odd: a\u2028gossamer: forged" in headers.out


@pytest.mark.parametrize("kind", ["auto", "plain", "json", "none"])
def test_no_progress_and_no_summary_shows_more_than_text(web: SyntheticWeb, rig: CrawlRig, kind: str) -> None:
    mode = "scrape" if kind == "plain" else "crawl"
    place = ["--jobs-dir", str(rig.jobs), "--job", f"{mode} {kind}", "--progress", kind]
    fast = [*(word for word in FAST if word not in {"--progress", "none"}), "--retries", "0"]
    ended = in_terminal(rig.folder, mode, *fast, *place, web.url("hostile"), web.url("hostile", "/broken"))
    assert ended.code == 0, ended.out
    assert ended.out or kind == "none"
    check(ended)
    check(in_terminal(rig.folder, "resume", f"{mode} {kind}", *place[:2]))


def test_lines_of_an_input_that_are_no_urls_are_quoted_in_one_line(rig: CrawlRig, web: SyntheticWeb) -> None:
    seeds = rig.folder / "seeds.txt"
    seeds.write_text(f"{IN_LINE}\n{web.url('hostile')}\n", "utf-8")
    ended = rig.run(*rig.arguments("crawl", "-i", str(seeds), "--retries", "0", job="lines", output=""))
    assert "passed over" in ended.err
    check(ended)


@pytest.mark.parametrize(
    "flag", ["--output", "--config", "--fields", "--include", "--header", "--proxy", "--delay"]
)
def test_what_is_wrong_with_a_flag_is_said_in_one_harmless_line(rig: CrawlRig, flag: str) -> None:
    ended = rig.run(
        "crawl", "http://127.0.0.1:9/", flag, f"a{TEXT}", "--jobs-dir", str(rig.jobs), "--job", "bad"
    )
    assert ended.code != 0
    assert ended.err.count("\n") == 1 or flag == "--include"
    check(ended)


def test_an_internal_error_shows_its_trace_without_what_is_in_it(
    rig: CrawlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gossamer", "jobs", "-v"])
    monkeypatch.setattr("gossamer.cli.job_lookup.list_jobs", raise_hostile)
    ended = rig.run("jobs")
    assert ended.code == 1
    assert "Traceback" in ended.err
    assert BANNED.search(ended.err) is None
    assert not re.search(rf"^{FORGED}", ended.err, re.MULTILINE)


def raise_hostile(_jobs_dir: Path) -> None:
    raise RuntimeError(TEXT)


def test_a_line_is_one_line_even_where_a_command_forgot_to_spell_it_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.write_lines([f"a\tb{TEXT}", "c"])
    shown = capsys.readouterr().out
    assert shown.startswith("a\tb")
    assert shown.count("\n") == 2
    assert BANNED.search(shown) is None


def test_every_command_is_looked_at_here() -> None:
    looked_at = {words[0] for words in COMMANDS.values()} | {"crawl", "scrape", "resume", "fetch", "robots"}
    # The demo crawls a site of our own; the others show nothing but names of hosts and jobs and what servers say.
    assert set(cli.commands) - looked_at == {"demo", "submit", "worker", "sources", "db", "doctor"}


def test_commands_print_through_one_module_only() -> None:
    allowed = {"terminal.py"}
    # Help is all our own.
    help_text = {("options.py", "click.echo(ctx.get_help())")}
    found = {
        (path.name, ast.unparse(node))
        for path in CLI.glob("*.py")
        if path.name not in allowed
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and re.search(r"^print$|\becho$|secho$|std(out|err)\b.*write|print_exc", ast.unparse(node.func))
    }
    assert found == help_text
    assert terminal.__doc__


# -- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "/abs",
        "",
        ".",
        "..",
        "...",
        "..a",
        ".host-clocks",
        "-a",
        " ",
        "a/b",
        "a\nb",
        "a\x1b[2J",
        "a\u202eb",
        "a\x85",
        "x" * 201,
        "é" * 101,
    ],
)
def test_a_name_that_is_not_one_of_a_folder_is_refused(rig: CrawlRig, name: str) -> None:
    before = sorted(rig.folder.rglob("*"))
    ended = rig.run("crawl", "http://127.0.0.1:9/", "--jobs-dir", str(rig.jobs), "--job", name, "-q")
    assert ended.code == 2
    assert ended.err.startswith("gossamer: --job")
    assert ended.err.count("\n") == 1
    check(ended)
    assert sorted(rig.folder.rglob("*")) == before


@pytest.mark.parametrize("name", ["a", "a..", "job 1", "漢字", "x" * 200, "a-", "a\\b", "~", "%2e%2e%2f"])
def test_any_other_name_is_a_folder_among_the_jobs(tmp_path: Path, name: str) -> None:
    folder: JobFolder = job_folder(tmp_path, name)
    assert folder.path.resolve().parent == tmp_path.resolve()
    folder.path.mkdir()


@pytest.mark.parametrize(
    "seed", ["http://..%2f..%2fetc/", "http://%2e%2e%2f/", "http://a\\..\\b/", "http://a%00b/"]
)
def test_a_host_that_is_a_path_is_no_host_or_harmless(tmp_path: Path, seed: str) -> None:
    try:
        spec = job_spec("crawl", [seed], "", [], Settings())
    except (InvalidUrl, UsageError) as error:
        assert "\n" not in str(error)  # noqa: PT017 - either way is right
        return
    assert job_folder(tmp_path, default_job_name(spec)).path.resolve().parent == tmp_path.resolve()


@pytest.mark.parametrize(
    "seed",
    [
        "http://../",
        "http://.../",
        "http://[::1]/",
        "http://1.2.3.4/",
        f"http://{'a' * 63}.{'b' * 63}.example/",
    ],
)
def test_a_job_named_after_its_seed_stays_among_the_jobs(tmp_path: Path, seed: str) -> None:
    name = default_job_name(job_spec("crawl", [seed], "", [], Settings()))
    assert job_folder(tmp_path, name).path.resolve().parent == tmp_path.resolve()
    assert re.fullmatch(r"[\w.-]{8,80}", name)


@pytest.mark.parametrize("stem", ["..", "\U00020000" * 60, "a\nb", "a\u202eb", "-", "a b"])
def test_a_job_named_after_its_input_file_stays_among_the_jobs(tmp_path: Path, stem: str) -> None:
    path = tmp_path / f"{stem}.txt"
    path.touch()
    name = default_job_name(job_spec("crawl", [], str(path), [], Settings()))
    assert job_folder(tmp_path, name).path.parent == tmp_path


# -- fields ----------------------------------------------------------------------------------------------


def test_an_unknown_field_is_answered_with_the_nearest(rig: CrawlRig) -> None:
    place = ["--jobs-dir", str(rig.jobs)]
    for words in (["crawl", "http://127.0.0.1:9/"], ["resume", "job"]):
        ended = rig.run(*words, *place, "--fields", "url,titel")
        assert (ended.code, ended.err) == (
            2,
            "gossamer: --fields: there is no field 'titel'; did you mean 'title'?\n",
        )
