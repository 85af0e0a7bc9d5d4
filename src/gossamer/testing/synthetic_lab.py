"""`lab` and the hosts around it: redirects, failures, refusals, strange bodies, a trap, a broken and a dead host."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import replace
from urllib.parse import parse_qs

from gossamer.testing.synthetic_reply import Hit, Reply, State, redirect, text_reply
from gossamer.testing.synthetic_site import Site, document, link_list, page, prose

HOST = "lab"
COOKIE = "pass=granted"


def build_lab(site: Site, *, slow_seconds: float) -> None:
    """Add the laboratory and its neighbours to the site."""
    site.serve(HOST, "/robots.txt", text_reply("User-agent: *\nDisallow:\n"))
    _redirects(site)
    _failures(site, slow_seconds)
    _wishes(site)
    _bodies(site)
    _neighbours(site)
    found_otherwise = {"/robots.txt", "/login", "/hidden/*", "/chain/2", "/chain/3", "/chain/4", "/round/b"}
    own = [path for (host, path) in site.answers if host == HOST and path not in found_otherwise]
    shown = link_list((path, path) for path in own)
    absent = link_list([("/no-such-page", "missing"), (site.url("dead", "/page"), "a dead host")])
    unfollowed = '<p><a rel="nofollow" href="/hidden/by-link">not endorsed</a></p>'
    body = f"{prose('Experiments', 1)}{shown}{absent}{unfollowed}"
    site.put(HOST, "/", page(HOST, "Everything that can go wrong", body), via="seed")


def _redirects(site: Site) -> None:
    for number in (1, 2, 3):
        via = "a" if number == 1 else "redirect"
        site.put(HOST, f"/chain/{number}", redirect(f"/chain/{number + 1}"), via=via)
    site.put(HOST, "/chain/4", page(HOST, "End of the chain", prose("Arriving", 1)), via="redirect")
    site.put(HOST, "/to-another-host", redirect(site.url("shop"), 302))
    site.put(HOST, "/out-of-scope", redirect(site.url("elsewhere"), 302))
    site.put(HOST, "/round/a", redirect("/round/b", 302), state="depends")
    site.put(HOST, "/round/b", redirect("/round/a", 302), state="depends", via="redirect")
    site.serve(HOST, "/members", _members)
    site.expect(HOST, "/members", 200, "depends")
    site.put(
        HOST,
        "/login",
        redirect("/members", 302).with_headers(("Set-Cookie", f"{COOKIE}; Path=/")),
        via="redirect",
    )


def _members(hit: Hit) -> Reply:
    """Let in who has been to the login page; anybody else is sent there, again and again."""
    if COOKIE in hit.headers.get("cookie", ""):
        return page(HOST, "Members only", prose("Membership", 1))
    return redirect("/login", 302)


def _failures(site: Site, slow_seconds: float) -> None:
    site.put(
        HOST, "/slow", replace(page(HOST, "A slow page", prose("Waiting", 1)), delay_seconds=slow_seconds)
    )
    site.put(HOST, "/failing", page(HOST, "Out of order", "").with_status(500))
    site.put(HOST, "/gone", page(HOST, "Gone for good", "").with_status(410))
    site.expect(HOST, "/no-such-page", 404, "fetched")
    site.serve(HOST, "/flaky", _flaky)
    site.serve(HOST, "/busy", _busy)
    for path in ("/flaky", "/busy"):
        site.expect(HOST, path, 200, "fetched")


def _flaky(hit: Hit) -> Reply:
    """Fail twice, the first time with a wish when to come back."""
    if hit.visit > 2:
        return page(HOST, "Third time lucky", prose("Patience", 1))
    failure = text_reply("try again\n", status=503)
    return failure.with_headers(("Retry-After", "1")) if hit.visit == 1 else failure


def _busy(hit: Hit) -> Reply:
    """Send the first visitor away for a second."""
    if hit.visit > 1:
        return page(HOST, "No longer busy", prose("Rest", 1))
    return text_reply("too many requests\n", status=429).with_headers(("Retry-After", "1"))


def _wishes(site: Site) -> None:
    """Pages with wishes for crawlers. Whatever is below /hidden/ can be reached only against one."""
    behind = '<p><a href="/hidden/by-{}">onwards</a></p>'
    noindex, nofollow = (f'<meta name="robots" content="{wish}">\n' for wish in ("noindex", "nofollow"))
    site.put(HOST, "/noindex", page(HOST, "Please do not keep this", prose("Modesty", 1), head=noindex))
    site.put(HOST, "/nofollow", page(HOST, "Please go no further", behind.format("meta"), head=nofollow))
    tagged = page(HOST, "The header says it", behind.format("header"))
    site.put(HOST, "/tagged", tagged.with_headers(("X-Robots-Tag", "noindex, nofollow")))
    site.serve(HOST, "/hidden/*", page(HOST, "Hidden", "<p>Nobody was asked to come here.</p>"))


def _bodies(site: Site) -> None:
    site.put(HOST, "/data.json", text_reply('{"threads": 12, "colour": "undyed"}\n', "application/json"))
    site.put(HOST, "/dot.png", text_reply(_png(), "image/png"))
    site.put(HOST, "/readme.txt", text_reply("Plain text. http://docs.localhost/not-a-link\n"))
    site.put(HOST, "/blob", text_reply(bytes(range(256)) * 16, "text/html"))
    squeezed = gzip.compress(document(HOST, "Compressed", prose("Pressing", 9)).encode(), mtime=0)
    site.put(HOST, "/gzip", Reply(body=squeezed).with_headers(("Content-Encoding", "gzip")))
    chunks = replace(page(HOST, "In pieces", prose("Piecework", 2)), chunked=True, drip_bytes=100)
    site.put(HOST, "/chunked", chunks)
    site.put(HOST, "/nothing", Reply(204, ()), state="depends")
    site.put(HOST, "/empty", Reply(), state="depends")


def _png() -> bytes:
    """Draw one grey pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\x80"))
        + chunk(b"IEND", b"")
    )


def _neighbours(site: Site) -> None:
    site.serve("broken", "/robots.txt", text_reply("no answer today\n", status=503))
    site.serve("broken", "/*", page("broken", "Out of reach", '<p><a href="/more">more</a></p>'))
    site.expect("broken", "/", 0, "held", via="seed")
    # Whether a host that refuses connections fails or, its robots.txt being unknown, is held is a policy.
    unknown: State = "depends"
    site.expect("dead", "/", 0, unknown, via="seed")
    site.expect("dead", "/page", 0, unknown)
    site.serve("elsewhere", "/*", page("elsewhere", "Another web", prose("Distance", 1)))
    site.serve(
        "trap",
        "/",
        page("trap", "No way out", link_list([("/calendar?month=1", "Calendar"), ("/loop/", "Loop")])),
    )
    site.serve("trap", "/calendar", _calendar)
    site.serve("trap", "/loop/*", _loop)


def _calendar(hit: Hit) -> Reply:
    """Show any month there ever was or will be, and link the ones around it."""
    text = parse_qs(hit.path.partition("?")[2]).get("month", ["1"])[0]
    month = int(text) if text.removeprefix("-").isdecimal() and len(text) < 10 else 1
    around = link_list((f"?month={number}", f"Month {number}") for number in (month - 1, month + 1))
    return page("trap", f"Month {month}", around)


def _loop(hit: Hit) -> Reply:
    """Be one level deeper than the page before."""
    return page("trap", f"Level {hit.path.count('/') - 1}", '<p><a href="loop/">deeper</a></p>')
