from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import ada_url
import pytest

from gossamer.testing.synthetic_reply import Hit, Reply, redirect, text_reply
from gossamer.testing.synthetic_web import SyntheticWeb

LINKS = {"a": "href", "area": "href", "frame": "src", "iframe": "src", "link": "href"}


@pytest.fixture
def web() -> Iterator[SyntheticWeb]:
    with SyntheticWeb.in_thread(slow_seconds=0.0) as served:
        yield served


def get(
    web: SyntheticWeb, host: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=10)
    try:
        connection.request(method, path, headers={"Host": f"{host}.localhost:{web.port}", **headers})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def exchange(web: SyntheticWeb, data: bytes) -> bytes:
    """Send bytes, and read until the server closes."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=10) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


class Links(HTMLParser):
    """Collects what a page points to, with the element that does."""

    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "base":
            self.base = values["href"]
        elif tag == "meta" and values.get("http-equiv") == "refresh":
            self.found.append((values["content"].partition("url=")[2], "refresh"))
        elif tag in LINKS and LINKS[tag] in values and values.get("rel") != "nofollow":
            self.found.append((values[LINKS[tag]], tag))


def links_of(url: str, headers: dict[str, str], body: bytes) -> Iterator[tuple[str, str]]:
    if "Location" in headers:
        yield ada_url.join_url(url, headers["Location"]), "redirect"
    if "html" not in headers.get("Content-Type", "") or "nofollow" in headers.get("X-Robots-Tag", ""):
        return
    text = (
        gzip.decompress(body).decode() if "Content-Encoding" in headers else body.decode("utf-8", "replace")
    )
    parser = Links()
    parser.feed(text)
    if 'content="nofollow"' in text:
        return
    base = ada_url.join_url(url, parser.base)
    for href, via in parser.found:
        try:
            yield ada_url.join_url(base, href).partition("#")[0], via
        except ValueError:
            continue


def crawl(web: SyntheticWeb) -> dict[str, tuple[int, int, str]]:
    """Visit all that can be reached from the finite seeds: status, depth and element for each URL."""
    seen = dict.fromkeys(web.finite_seeds, (0, 0, "seed"))
    queue = list(seen)
    for url in queue:
        parts = urlsplit(url)
        host = (parts.hostname or "").removesuffix(".localhost")
        if parts.port != web.port or host == "elsewhere":
            continue
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        status, headers, body = get(web, host, target)
        while status in {429, 503}:
            status, headers, body = get(web, host, target)
        _, depth, via = seen[url]
        seen[url] = (status, depth, via)
        for found, element in links_of(url, headers, body):
            if found.startswith("http:") and found not in seen:
                seen[found] = (0, depth + 1, element)
                queue.append(found)
    return seen


def test_every_expected_url_can_be_reached_within_four_links_and_has_the_expected_status(
    web: SyntheticWeb,
) -> None:
    seen = crawl(web)
    assert set(web.expected) <= set(seen)
    served = {
        url: expected for url, expected in web.expected.items() if expected.status and "/members" not in url
    }
    assert {url: seen[url][0] for url in served} == {url: expected.status for url, expected in served.items()}
    assert max(depth for _, depth, _ in seen.values()) <= 4
    assert 150 <= len(served) <= 250


def test_every_reachable_url_is_expected_or_known_to_depend_on_settings(web: SyntheticWeb) -> None:
    unexpected = set(crawl(web)) - set(web.expected)
    assert {url.replace(f".localhost:{web.port}", "") for url in unexpected} == {
        "http://shop/product/nettle-scarf?utm_source=letter&utm_medium=mail",
        "http://shop/compare?b=2&a=1",
        "http://elsewhere/",  # out of scope
        "http://broken/more",  # behind a robots.txt that cannot be read
    }


def test_pages_that_lie_behind_one_element_are_found_by_that_element(web: SyntheticWeb) -> None:
    seen = crawl(web)
    special = {url: expected.via for url, expected in web.expected.items() if expected.via != "a"}
    assert {url: seen[url][2] for url in special} == special
    assert {"area", "frame", "iframe", "link", "refresh", "redirect", "seed"} == set(special.values())


def test_fetched_pages_are_all_different(web: SyntheticWeb) -> None:
    urls = [urlsplit(url) for url, expected in web.expected.items() if expected.state == "fetched"]
    bodies = Counter(
        get(web, (url.hostname or "").removesuffix(".localhost"), f"{url.path}?{url.query}".rstrip("?"))[2]
        for url in urls
        if url.path not in {"/flaky", "/busy"}
    )
    assert bodies.most_common(1)[0][1] == 1


def test_the_trap_is_not_reachable_from_the_finite_seeds_and_never_ends(web: SyntheticWeb) -> None:
    assert not any("://trap." in url for url in crawl(web))
    assert web.seeds == [*web.finite_seeds, web.url("trap")]
    assert b'href="?month=42"' in get(web, "trap", "/calendar?month=41")[2]
    assert b"Level 20" in get(web, "trap", "/" + "loop/" * 20)[2]


def test_two_servers_serve_the_same_bytes(web: SyntheticWeb) -> None:
    with SyntheticWeb.in_thread() as other:
        for host, path in (("docs", "/guide/silk/"), ("shop", "/catalogue?page=3"), ("blog", "/archive")):
            assert get(web, host, path) == get(other, host, path)


def test_a_bare_address_is_the_docs_host_and_names_ignore_case(web: SyntheticWeb) -> None:
    bare = exchange(web, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    loud = exchange(web, b"GET / HTTP/1.1\r\nHost: DOCS.LocalHost.:80\r\nConnection: close\r\n\r\n")
    whole = exchange(web, b"GET http://docs.localhost/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"Weaver" in bare
    assert bare == loud == whole


def test_flaky_and_busy_pages_recover_and_reset_makes_them_fail_again(web: SyntheticWeb) -> None:
    flaky = [get(web, "lab", "/flaky") for _ in range(3)]
    assert [status for status, _, _ in flaky] == [503, 503, 200]
    assert [headers.get("Retry-After") for _, headers, _ in flaky] == ["1", None, None]
    assert [get(web, "lab", "/busy")[0] for _ in range(2)] == [429, 200]
    web.reset()
    assert web.hits == []
    assert get(web, "lab", "/flaky")[0] == 503


def test_the_members_page_opens_only_with_the_cookie_of_the_login_page(web: SyntheticWeb) -> None:
    status, headers, _ = get(web, "lab", "/members")
    assert (status, headers["Location"]) == (302, "/login")
    cookie = get(web, "lab", "/login")[1]["Set-Cookie"].partition(";")[0]
    assert get(web, "lab", "/members", Cookie=cookie)[0] == 200


def test_robots_files_are_what_the_expectations_assume(web: SyntheticWeb) -> None:
    statuses = {
        host: get(web, host, "/robots.txt")[0] for host in ("docs", "shop", "blog", "lab", "broken", "trap")
    }
    assert statuses == {"docs": 200, "shop": 200, "blog": 404, "lab": 200, "broken": 503, "trap": 404}
    assert b"Crawl-delay: 0.05" in get(web, "docs", "/robots.txt")[2]


def test_old_posts_are_in_the_charset_they_hide(web: SyntheticWeb) -> None:
    mislabelled = get(web, "blog", "/old/mislabelled.html")
    assert "utf-8" in mislabelled[1]["Content-Type"]
    assert "Crème brûlée" in mislabelled[2].decode("cp1252")
    assert "蜘蛛" in get(web, "blog", "/old/japanese.html")[2].decode("shift_jis")
    assert get(web, "blog", "/old/wide.html")[2].startswith((b"\xff\xfe", b"\xfe\xff"))
    assert get(web, "blog", "/old/undeclared.html")[1]["Content-Type"] == "text/html"


def test_strange_bodies_are_framed_correctly(web: SyntheticWeb) -> None:
    assert gzip.decompress(get(web, "lab", "/gzip")[2]).startswith(b"<!doctype html>")
    assert get(web, "lab", "/chunked")[1]["Transfer-Encoding"] == "chunked"
    assert get(web, "lab", "/chunked")[2].endswith(b"</html>\n")
    assert "Content-Length" not in get(web, "lab", "/nothing")[1]
    assert get(web, "lab", "/empty")[2] == b""
    assert get(web, "lab", "/dot.png")[2].startswith(b"\x89PNG")


def test_nothing_answers_at_the_dead_host(web: SyntheticWeb) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(web.url("dead")).port or 0), timeout=5)


def test_requests_sent_at_once_are_answered_in_order_on_one_connection(web: SyntheticWeb) -> None:
    one = b"GET /%b HTTP/1.1\r\nHost: lab.localhost\r\n%b\r\n"
    answers = exchange(
        web, one % (b"data.json", b"") + one % (b"gone", b"") + one % (b"empty", b"Connection: close\r\n")
    )
    assert [answers.find(mark) for mark in (b"200 OK", b"410 Gone", b"Connection: close")] == sorted(
        answers.find(mark) for mark in (b"200 OK", b"410 Gone", b"Connection: close")
    )
    assert [hit.path for hit in web.hits] == ["/data.json", "/gone", "/empty"]
    assert len({hit.port for hit in web.hits}) == 1


def test_head_has_the_headers_of_get_and_no_body(web: SyntheticWeb) -> None:
    status, headers, body = get(web, "shop", "/", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == len(get(web, "shop", "/")[2])


def test_a_posted_body_reaches_the_page_function(web: SyntheticWeb) -> None:
    web.add("echo", "/post", lambda hit: text_reply(hit.body))
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=10)
    connection.request("POST", "/post", b"some bytes", {"Host": "echo.localhost"})
    assert connection.getresponse().read() == b"some bytes"
    connection.close()
    assert web.hits[-1].method == "POST"


def test_added_pages_may_be_values_functions_or_coroutines_and_replace_built_in_ones(
    web: SyntheticWeb,
) -> None:
    async def later(hit: Hit) -> Reply:
        await asyncio.sleep(0)
        return text_reply(f"visit {hit.visit}")

    web.add("docs", "/", redirect("/new", 308))
    web.add("mine", "/now", lambda hit: text_reply(hit.path))
    web.add("mine", "/later", later)
    web.add("mine", "/below/*", text_reply("below"))
    assert get(web, "docs", "/")[0] == 308
    assert get(web, "mine", "/now?x=1")[2] == b"/now?x=1"
    assert [get(web, "mine", "/later")[2] for _ in range(2)] == [b"visit 1", b"visit 2"]
    assert get(web, "mine", "/below/a/b?c")[2] == b"below"
    assert get(web, "mine", "/other")[0] == 404


def test_raw_replies_are_sent_untouched_and_dripped_ones_arrive_whole(web: SyntheticWeb) -> None:
    web.add("mine", "/raw", Reply(raw=b"HTTP/1.1 abc\r\n", drip_bytes=3, drip_seconds=0.001))
    web.add("mine", "/drip", Reply(body=b"0123456789", drip_bytes=4, drip_seconds=0.001, close=True))
    assert exchange(web, b"GET /raw HTTP/1.1\r\nHost: mine.localhost\r\n\r\n") == b"HTTP/1.1 abc\r\n"
    assert exchange(web, b"GET /drip HTTP/1.1\r\nHost: mine.localhost\r\n\r\n").endswith(
        b"\r\n\r\n0123456789"
    )


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: docs\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: docs\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\nHost: docs\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"GET /" + b"a" * 100_000, b"431"),
    ],
)
def test_a_bad_or_oversized_request_is_refused_and_the_connection_closed(
    web: SyntheticWeb, request_bytes: bytes, status: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=10) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split(b" ")[1] == status
    assert web.hits == []


def test_the_server_outlives_clients_that_leave_in_the_middle(web: SyntheticWeb) -> None:
    web.add("mine", "/big", Reply(body=b"x" * 20_000_000))
    for data in (b"GET / HT", b"GET /big HTTP/1.1\r\nHost: mine.localhost\r\n\r\n", b""):
        with socket.create_connection(("127.0.0.1", web.port), timeout=10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(data)
    assert get(web, "docs", "/")[0] == 200


def test_leaving_the_context_ends_idle_and_waiting_connections() -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        def never(hit: Hit) -> Reply:
            asked.set()
            return Reply(delay_seconds=3600)

        async with SyntheticWeb() as web:
            web.add("mine", "/never", never)
            _, idle = await asyncio.open_connection("127.0.0.1", web.port)
            reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
            writer.write(b"GET /never HTTP/1.1\r\nHost: mine.localhost\r\n\r\n")
            await asked.wait()
            assert "hits=1" in repr(web)
        assert await reader.read() == b""
        for one in (idle, writer):
            one.close()
            await one.wait_closed()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_leaving_the_context_does_not_wait_for_a_client_that_never_reads() -> None:
    async def scenario() -> None:
        async with SyntheticWeb() as web:
            web.add("mine", "/big", Reply(body=bytes(20_000_000)))
            reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
            writer.write(b"GET /big HTTP/1.1\r\nHost: mine.localhost\r\n\r\n")
            assert await reader.read(8) == b"HTTP/1.1"
        assert len(await reader.read()) < 20_000_000
        writer.close()
        await writer.wait_closed()

    asyncio.run(scenario())


def test_a_page_function_that_raises_fails_the_test_that_added_it() -> None:
    def wrong(hit: Hit) -> Reply:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with SyntheticWeb() as web:
            web.add("mine", "/wrong", wrong)
            _, writer = await asyncio.open_connection("127.0.0.1", web.port)
            try:
                writer.write(b"GET /wrong HTTP/1.1\r\nHost: mine.localhost\r\n\r\n")
                await asyncio.Event().wait()
            finally:
                writer.close()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(scenario())
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]


def test_a_port_in_use_is_reported_to_who_starts_the_thread(web: SyntheticWeb) -> None:
    with pytest.raises(OSError, match="in use"), SyntheticWeb.in_thread(port=web.port):
        pass


def test_as_a_process_it_prints_its_address_and_writes_hits_as_json_lines(tmp_path: Path) -> None:
    hits = tmp_path / "hits.jsonl"
    command = [sys.executable, "-m", "gossamer.testing.synthetic_web", "--port", "0", "--hits", str(hits)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = urlsplit(process.stdout.readline().strip())
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
        connection.request("GET", "/map.html?x=1")
        assert connection.getresponse().read().startswith(b"<!doctype html>")
        connection.close()
        line = json.loads(hits.read_text())
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert (line["host"], line["path"], line["method"], line["visit"]) == ("docs", "/map.html?x=1", "GET", 1)
