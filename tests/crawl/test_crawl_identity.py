"""Who we are to servers: two raw servers write down every header they get, and the second must get no secret."""

from __future__ import annotations

import os
import sqlite3
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import zstandard

import gossamer
from gossamer.config.words import HostWords
from gossamer.testing.crawl_rig import Crawled, CrawlRig

SECRET = "s3same-0pen"
BASIC = "Basic " + b64encode(f"me:{SECRET}".encode()).decode()
GIVEN = ("-H", f"Authorization: Bearer {SECRET}", "-H", f"Cookie: given={SECRET}", "-H", "X-Team: looms")
#: What of a request proves who sends it.
TELLING = ("authorization", "cookie", "proxy-authorization", "x-api-key")

Route = tuple[int, dict[str, str], str]


class RawServer:
    """Answers by path and keeps the headers of every request."""

    def __init__(self, address: str) -> None:
        self.routes: dict[str, Route] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append((self.path, headers))
                status, extra, text = outer.routes.get(self.path, (404, {}, ""))
                self.send_response(status)
                for name, value in {
                    "Content-Type": "text/html",
                    **extra,
                    "Content-Length": str(len(text)),
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base has it
                pass

        self.server = ThreadingHTTPServer((address, 0), Handler)
        self.server.daemon_threads = True
        self.origin = f"http://{address}:{self.server.server_address[1]}"

    def page(self, path: str, *links: str, **headers: str) -> str:
        """Serve a page with links; returns its URL."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.routes[path] = (200, named, "".join(f'<a href="{link}">x</a>' for link in links))
        return self.origin + path

    def redirect(self, path: str, target: str, **headers: str) -> str:
        """Redirect a path; returns its URL."""
        self.page(path, Location=target, **headers)
        self.routes[path] = (302, *self.routes[path][1:])
        return self.origin + path

    def headers_of(self, path: str) -> dict[str, str]:
        """Return what the last request for a path carried."""
        return [headers for asked, headers in self.asked if asked == path][-1]

    def told(self) -> list[tuple[str, str]]:
        """Return every telling header that arrived, with its path."""
        return [(path, name) for path, headers in self.asked for name in TELLING if name in headers]


@contextmanager
def serving(address: str) -> Iterator[RawServer]:
    raw = RawServer(address)
    thread = threading.Thread(target=raw.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield raw
    finally:
        raw.server.shutdown()
        raw.server.server_close()


@pytest.fixture
def home() -> Iterator[RawServer]:
    with serving("127.0.0.1") as raw:
        yield raw


@pytest.fixture(params=["127.0.0.1", "127.0.0.2"], ids=["other port", "other address"])
def other(request: pytest.FixtureRequest) -> Iterator[RawServer]:
    with serving(request.param) as raw:
        yield raw


def config_for(folder: Path, origin: str, *lines: str) -> str:
    """Write a config file with an entry for an origin; returns its path."""
    path = folder / "gossamer.toml"
    path.write_text("\n".join([f'[hosts."{origin}"]', *lines]), "utf-8")
    return str(path)


# -- nothing crosses to another origin -------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_links_and_redirects_carry_no_secret_to_another_origin(
    home: RawServer, other: RawServer, rig: CrawlRig, workers: str
) -> None:
    config = config_for(rig.folder, home.origin, f'headers = {{ "X-Api-Key" = "{SECRET}" }}')
    seed = home.page("/", other.page("/linked", home.origin + "/back"), "/away", Set_Cookie="set=1; Path=/")
    home.redirect("/away", other.page("/target"), Set_Cookie="more=1; Path=/")
    home.page("/back")
    rig.crawl(seed, *GIVEN, "--scope", "any", "--config", config, "--workers", workers)
    assert {path for path, _ in other.asked} == {"/robots.txt", "/linked", "/target"}
    assert other.told() == []
    assert {headers["x-team"] for _, headers in other.asked} == {"looms"}
    back = home.headers_of("/back")
    assert (back["authorization"], back["x-api-key"]) == (f"Bearer {SECRET}", SECRET)
    assert (
        {"set=1", "more=1", f"given={SECRET}"}
        >= set(back["cookie"].split("; "))
        >= {"set=1", f"given={SECRET}"}
    )
    assert home.headers_of("/robots.txt")["x-api-key"] == SECRET


def test_the_target_of_a_seeds_redirect_joins_the_scope_but_not_the_trust(
    home: RawServer, other: RawServer, rig: CrawlRig
) -> None:
    seed = home.redirect("/", other.page("/", "/further"), Set_Cookie="set=1; Path=/")
    other.page("/further")
    assert len(rig.crawl(seed, *GIVEN).records) == 2
    assert (other.told(), "authorization" in home.headers_of("/")) == ([], True)


@pytest.mark.parametrize("command", ["scrape", "fetch"])
def test_the_hops_of_a_scrape_carry_no_secret_to_another_origin(
    home: RawServer, other: RawServer, rig: CrawlRig, command: str
) -> None:
    url = home.redirect("/", "/second", Set_Cookie="set=1; Path=/")
    home.redirect("/second", other.redirect("/away", home.page("/back")))
    flags = ["--allow-private", "--delay", "0"]
    ended = rig.scrape(url, *GIVEN) if command == "scrape" else rig.spawn("fetch", url, *GIVEN, *flags)
    assert ended.code == 0
    assert "/away" in [path for path, _ in other.asked]
    assert other.told() == []
    for path in ("/", "/second", "/back"):
        assert home.headers_of(path)["authorization"] == f"Bearer {SECRET}"


def test_a_robots_txt_that_is_redirected_takes_no_secret_along(
    home: RawServer, other: RawServer, rig: CrawlRig
) -> None:
    config = config_for(rig.folder, home.origin, 'username = "me"', f'password = "{SECRET}"')
    home.redirect("/robots.txt", other.page("/rules.txt"), Set_Cookie="set=1; Path=/")
    seed = home.page("/")
    assert len(rig.crawl(seed, "-H", f"Cookie: a={SECRET}", "--config", config).records) == 1
    assert [path for path, _ in other.asked] == ["/rules.txt"]
    assert other.told() == []
    assert home.headers_of("/robots.txt")["authorization"] == BASIC
    rig.run("robots", seed, "-H", f"Authorization: {SECRET}", "--allow-private")
    assert other.told() == []


@pytest.mark.parametrize("mode", ["crawl", "scrape"])
def test_an_input_file_makes_each_url_trusted_and_nothing_they_lead_to(
    home: RawServer, other: RawServer, rig: CrawlRig, mode: str
) -> None:
    inputs = [home.page("/", "/linked", other.origin + "/linked"), home.redirect("/moved", "/here")]
    inputs += [home.redirect("/away", other.origin + "/target"), other.page("/input")]
    for server, paths in ((home, ("/linked", "/here")), (other, ("/linked", "/target"))):
        for path in paths:
            server.page(path)
    (rig.folder / "urls.txt").write_text("\n".join(inputs), "utf-8")
    run = rig.crawl if mode == "crawl" else rig.scrape
    run("-i", str(rig.folder / "urls.txt"), *GIVEN, *(("--scope", "any") if mode == "crawl" else ()))
    trusted = {
        server.origin + path
        for server in (home, other)
        for path, headers in server.asked
        if "authorization" in headers
    }
    assert trusted == {*inputs, home.origin + "/here"}
    assert ("/target", {}) in [
        (path, {k: v for k, v in h.items() if k in TELLING}) for path, h in other.asked
    ]


# -- one origin alone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_password_from_the_environment_is_sent_also_by_a_resumed_job_and_is_nowhere_on_disk(
    home: RawServer, rig: CrawlRig, workers: str
) -> None:
    config = config_for(rig.folder, home.origin, 'username = "me"', 'password_env = "THEIR_PASSWORD"')
    seed = home.page("/", "/a", "/b")
    for path in ("/a", "/b"):
        home.page(path)
    environment = {**os.environ, "THEIR_PASSWORD": SECRET}
    first = rig.arguments("crawl", seed, "-n", "1", "--config", config, "--workers", workers)
    assert rig.spawn(*first, environment=environment).code == 0
    resume = ["resume", "job", "--jobs-dir", str(rig.jobs), "-n", "9", "--progress", "none"]
    refused = rig.spawn(*resume)
    assert (refused.code, "environment has no THEIR_PASSWORD" in refused.err) == (2, True)
    assert rig.spawn(*resume, environment=environment).code == 0
    assert {path for path, _ in home.asked} == {"/robots.txt", "/", "/a", "/b"}
    assert {headers["authorization"] for _, headers in home.asked} == {BASIC}
    for file in (rig.jobs / "job").iterdir():
        assert SECRET.encode() not in file.read_bytes(), file.name


def test_a_user_in_a_url_is_authenticated_at_its_origin_alone(
    home: RawServer, other: RawServer, rig: CrawlRig
) -> None:
    home.page("/", "/next", other.page("/"))
    home.page("/next")
    crawled = rig.crawl(home.origin.replace("//", f"//me:{SECRET}@") + "/", "--scope", "any")
    assert set(crawled.urls) == {home.origin + "/", home.origin + "/next", other.origin + "/"}
    assert {headers["authorization"] for _, headers in home.asked} == {BASIC}
    assert other.told() == []
    fetched = rig.spawn("fetch", home.origin.replace("//", f"//me:{SECRET}@") + "/next", "--allow-private")
    assert (fetched.code, home.headers_of("/next")["authorization"]) == (0, BASIC)


def test_python_code_names_the_headers_of_an_origin_too(home: RawServer, other: RawServer) -> None:
    seed = home.page("/", other.page("/"))
    hosts: dict[str, HostWords] = {home.origin: {"username": "me", "password": SECRET}}
    pages = list(gossamer.crawl(seed, hosts=hosts, scope="any", allow_private=True, delay=0))
    assert len(pages) == 2
    assert (home.headers_of("/")["authorization"], other.told()) == (BASIC, [])
    with pytest.raises(gossamer.UsageError, match="write it as"):
        gossamer.crawl(seed, hosts={"127.0.0.1": {}})


# -- no secret is told -----------------------------------------------------------------------------------


def ledger_text(path: Path) -> bytes:
    """Return all that a ledger holds, decompressed."""
    shown = [path.read_bytes()]
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f"SELECT * FROM {table}"):
                for value in row:
                    is_packed = isinstance(value, bytes) and value[:4] == b"\x28\xb5\x2f\xfd"
                    shown.append(
                        zstandard.ZstdDecompressor().decompress(value) if is_packed else str(value).encode()
                    )
    return b"\n".join(shown)


def by_file(home: RawServer, rig: CrawlRig) -> list[str]:
    lines = ['username = "me"', f'password = "{SECRET}"', f'headers = {{ "X-Api-Key" = "{SECRET}" }}']
    return [home.origin + "/", "--config", config_for(rig.folder, home.origin, *lines)]


def by_url(home: RawServer, _rig: CrawlRig) -> list[str]:
    return [home.origin.replace("//", f"//me:{SECRET}@") + "/"]


def by_header(home: RawServer, _rig: CrawlRig) -> list[str]:
    return [home.origin + "/", "-H", f"Authorization: Bearer {SECRET}"]


@pytest.mark.parametrize("way", [by_file, by_url, by_header])
def test_a_secret_is_in_job_toml_and_in_nothing_else_that_is_written_or_said(
    home: RawServer, rig: CrawlRig, way: Callable[[RawServer, CrawlRig], list[str]]
) -> None:
    withuser = home.origin.replace("//", f"//me:{SECRET}@")
    home.page("/", "/gone", "/bad", "/away", withuser + "/linked")
    home.redirect("/bad", f"http://me:{SECRET}@bad host/")
    home.redirect("/away", withuser + "/linked")
    home.page("/linked")
    arguments = rig.arguments("crawl", *way(home, rig), "-v", "-n", "3")
    place = ["--jobs-dir", str(rig.jobs)]
    asked = withuser + "/"
    commands = [
        # Stopped while it waits for its first page: it says how to go on.
        [*arguments, "--delay", "1", "--time", "0.3"],
        arguments,
        arguments[:-2],
        arguments,
        ["resume", "job", *place, "--fail-on", "failed>0%"],
        *(
            ["status", "job", *place],
            ["jobs", *place],
            ["report", "job", *place],
            ["report", "job", "--json", *place],
        ),
        *(["urls", "job", *place], ["audit", "job", *place], ["explain", "job", asked, *place]),
        *(["explain", "job", asked + "bad", *place], ["robots", asked, "--job", "job", *place]),
        *(["robots", asked, "--allow-private"], ["fetch", asked, "--allow-private", "--delay", "0"]),
        ["fetch", f"http://me:{SECRET}@127.0.0.1:1/", "--allow-private", "--retries", "0"],
        ["fetch", f"http://me:{SECRET}@bad host/"],
        ["crawl", f"me:{SECRET}@127.0.0.1"],
        ["robots", f"me:{SECRET}@127.0.0.1"],
        ["crawl", asked, f"http://you:{SECRET}@" + home.origin.removeprefix("http://")],
    ]
    said = ""
    for command in commands:
        ended = rig.spawn(*command)
        said += ended.err
        assert SECRET not in ended.out + ended.err, command
        assert BASIC not in ended.out + ended.err, command
        assert "Traceback" not in ended.err, ended.err
    assert "gossamer crawl" in said or "gossamer resume job" in said
    kept = {path.name: path for path in (rig.jobs / "job").iterdir()}
    assert SECRET.encode() in kept.pop("job.toml").read_bytes()
    kept["pages.jsonl"] = rig.folder / "pages.jsonl"
    for name, path in kept.items():
        text = ledger_text(path) if name == "ledger.sqlite" else path.read_bytes()
        assert SECRET.encode() not in text, name
        assert BASIC.removeprefix("Basic ").encode() not in text, name
    assert not any(SECRET in headers.get("referer", "") for _, headers in home.asked)
    crawled: Crawled = rig.inspect(rig.run("status", "job", *place))
    assert crawled.state(home.origin + "/bad") == "failed bad_redirect"


def test_a_line_of_an_input_that_is_no_url_is_named_without_its_password(rig: CrawlRig) -> None:
    (rig.folder / "urls.txt").write_text(f"http://me:{SECRET}@bad host/\n", "utf-8")
    ended = rig.run(*rig.arguments("scrape", "-i", str(rig.folder / "urls.txt")))
    assert "line 1" in ended.err
    assert SECRET not in ended.err


def test_the_ledger_and_the_job_file_are_their_owners_alone(home: RawServer, rig: CrawlRig) -> None:
    rig.crawl(home.page("/", Set_Cookie=f"session={SECRET}"))
    for name in ("ledger.sqlite", "job.toml"):
        assert (rig.jobs / "job" / name).stat().st_mode & 0o077 == 0, name


# -- names -----------------------------------------------------------------------------------------------


def test_pages_are_fetched_under_rotating_names_and_robots_txt_under_the_honest_one(
    home: RawServer, rig: CrawlRig
) -> None:
    home.routes["/robots.txt"] = (
        200,
        {},
        "User-agent: gossamer\nDisallow: /a\n\nUser-agent: one\nDisallow: /b\n",
    )
    seed = home.page("/", "/a", "/b", "/c", "/d")
    for path in ("/a", "/b", "/c", "/d"):
        home.page(path)
    rig.crawl(seed, "--rotate-user-agent", "One/1 (x, y)", "--rotate-user-agent", "Two/2")
    names = [headers["user-agent"] for path, headers in home.asked if path != "/robots.txt"]
    assert names == ["One/1 (x, y)", "Two/2"] * 2
    assert {path for path, _ in home.asked} == {"/robots.txt", "/", "/b", "/c", "/d"}
    assert home.headers_of("/robots.txt")["user-agent"].startswith("Gossamer/")
    home.asked.clear()
    rig.crawl(seed, job="plain", output="plain.jsonl")
    assert {headers["user-agent"].partition("/")[0] for _, headers in home.asked} == {"Gossamer"}
