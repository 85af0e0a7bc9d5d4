"""A session outlives the process that began it: what a server has set is sent again after `kill -9`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gossamer.testing.crawl_rig import Crawled, CrawlRig, hits_of, html
from gossamer.testing.synthetic_reply import Hit, Reply, redirect
from gossamer.testing.synthetic_web import SyntheticWeb

from .killing import KILLED, LONGEST_SECONDS, children_of

HOST = "wall"


def members_only(hit: Hit) -> Reply:
    """Let in whoever has the session, and only the session of this host."""
    return html("/more") if hit.headers.get("cookie") == "session=abc" else Reply(403)


class Wall:
    """A page that begins a session, and pages behind it; the first visit to one of them is somebody's end."""

    def __init__(self, web: SyntheticWeb) -> None:
        self.web = web
        self.kill: Callable[[], None] = lambda: None
        self.seed = web.url(HOST)
        web.add(HOST, "/", redirect("/in").with_headers(("Set-Cookie", "session=abc; Path=/; HttpOnly")))
        web.add(HOST, "/in", html("/members"))
        web.add(HOST, "/members", self._members)
        web.add(HOST, "/more", members_only)

    def _members(self, hit: Hit) -> Reply:
        kill, self.kill = self.kill, lambda: None
        kill()
        return members_only(hit)

    def crawl_killed(self, rig: CrawlRig, *flags: str, victim: Callable[[int], int]) -> int:
        """Crawl until the first visit behind the wall; returns how the command ended."""
        command = [sys.executable, "-m", "gossamer", *rig.arguments("crawl", self.seed, *flags)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            self.kill = lambda: os.kill(victim(process.pid), signal.SIGKILL)
            try:
                return process.wait(LONGEST_SECONDS)
            finally:
                process.kill()

    def check(self, crawled: Crawled) -> None:
        """Assert that everything behind the wall was fetched, in the session that the first page began."""
        for path in ("/members", "/more"):
            assert crawled.state(self.web.url(HOST, path)) == "fetched ok", path
        hits = hits_of(self.web, HOST)
        assert [hit.path for hit in hits if "cookie" not in hit.headers] == ["/"]
        assert [hit.path for hit in hits].count("/members") == 2


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_job_goes_on_in_the_session_it_had(web: SyntheticWeb, tmp_path: Path, workers: str) -> None:
    wall, rig = Wall(web), CrawlRig(tmp_path)
    assert wall.crawl_killed(rig, "--workers", workers, victim=lambda parent: parent) == KILLED
    wall.check(rig.crawl(wall.seed, "--workers", workers))


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_worker_process_that_takes_over_has_the_cookies_of_the_dead_one(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    wall, rig = Wall(web), CrawlRig(tmp_path)

    def kill_all_workers(parent: int) -> int:
        first, *others = children_of(parent)
        for other in others:
            os.kill(other, signal.SIGKILL)
        return first

    assert wall.crawl_killed(rig, "--workers", "2", victim=kill_all_workers) == 0
    wall.check(rig.inspect(rig.run("status", "job", "--jobs-dir", str(rig.jobs))))


def test_a_resumed_job_has_dropped_what_expired_and_what_was_removed(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    cookies = ("kept=1", "brief=1; Max-Age=1", "gone=1")
    first = html("/a", "/b").with_headers(*(("Set-Cookie", cookie) for cookie in cookies))
    web.add("jar", "/", first)
    web.add("jar", "/a", html().with_headers(("Set-Cookie", "gone=; Max-Age=0")))
    web.add("jar", "/b", html())
    rig = CrawlRig(tmp_path)
    # A whole delay passes between a run and the next: more than the second that one of them lives.
    rig.crawl(web.url("jar"), "-n", "2")
    rig.crawl(web.url("jar"), "--delay", "1.1")
    (hit,) = [hit for hit in hits_of(web, "jar") if hit.path == "/b"]
    assert hit.headers["cookie"] == "kept=1"


def test_without_cookies_a_resumed_job_sends_none(web: SyntheticWeb, tmp_path: Path) -> None:
    web.add("none", "/", html("/a").with_headers(("Set-Cookie", "a=1")))
    web.add("none", "/a", html())
    rig = CrawlRig(tmp_path)
    rig.crawl(web.url("none"), "-n", "1")
    rig.crawl(web.url("none"), "--no-cookies")
    assert ["cookie" in hit.headers for hit in hits_of(web, "none")] == [False, False]
