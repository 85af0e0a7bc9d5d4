"""A generated site of many hosts, what is done to whoever asks for a page of it, and when each was asked."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb

#: Between the moment before the first byte goes out and its arrival lie two schedulers: of either may be this late.
ARRIVAL_SECONDS = 0.08


def ignore(_hit: Hit) -> None:
    """Let a hit pass."""


class Site:
    """`pages` pages on `hosts` hosts, all of them reachable from one seed a host. Names are new for each site."""

    _numbers = itertools.count(1)
    watch: StallWatch

    def __init__(self, web: SyntheticWeb, pages: int, hosts: int, *, answer_seconds: float = 0.0) -> None:
        self.web = web
        self.watch = _watch()
        self.answer_seconds = answer_seconds
        number = next(self._numbers)
        self.hosts = [f"s{number}h{host}" for host in range(hosts)]
        self.paths = [(self.hosts[page % hosts], f"/{page}") for page in range(pages)]
        self.urls = [web.url(*path) for path in self.paths]
        self.seeds = self.urls[:hosts]
        #: Called in the server's thread with every hit on a page, before it is answered.
        self.on_hit: Callable[[Hit], None] = ignore
        for page in range(pages):
            self._serve(page, self._links(page))

    def be_a_chain(self) -> None:
        """Let each page lead to the next one alone."""
        for page in range(len(self.urls)):
            self._serve(page, [page + 1] if page + 1 < len(self.urls) else [])

    def _serve(self, page: int, targets: Iterable[int]) -> None:
        links = "".join(f'<a href="{self.urls[n]}">{n}</a>' for n in targets)
        body = f"<title>Page {page}</title>{links}".encode()

        async def answer(hit: Hit) -> Reply:
            self.on_hit(hit)
            if self.answer_seconds:
                await asyncio.sleep(self.answer_seconds)
            return Reply(body=body)

        self.web.add(*self.paths[page], answer)

    def _links(self, page: int) -> list[int]:
        # The tree makes every page reachable, also from another host; the other links are known already.
        first = page * 3 + len(self.hosts)
        tree = [target % len(self.urls) for target in range(first, first + 3)]
        return tree + random.Random(page).choices(range(len(self.urls)), k=3)

    def hits(self) -> list[Hit]:
        """Return the requests for this site, robots.txt included."""
        hosts = set(self.hosts)
        return [hit for hit in list(self.web.hits) if hit.host in hosts]

    def page_hits(self) -> Counter[str]:
        """Return how often each page was asked for, by URL."""
        return Counter(self.web.url(hit.host, hit.path) for hit in self.hits() if hit.path != "/robots.txt")

    def after_hits(self, count: int) -> threading.Event:
        """Return an event that is set when so many more pages were asked for."""
        left, reached = count, threading.Event()

        def on_hit(_hit: Hit) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                reached.set()

        self.on_hit = on_hit
        return reached

    def check_polite(self, delay: float) -> None:
        """Assert that each host was left alone for its delay between two requests, by the server's own clock.

        Where the server stood still, requests that came apart are met together: nothing can be said of those.
        """
        stalls = self.watch.stalls()
        hits = [
            (hit.host, hit.at)
            for hit in self.hits()
            if not any(began <= hit.at <= ended + ARRIVAL_SECONDS for began, ended in stalls)
        ]
        check_apart(hits, delay - ARRIVAL_SECONDS)


class StallWatch:
    """Notes when this process, which the server lives in, was not run for a while."""

    def __init__(self) -> None:
        self._stalls: list[tuple[float, float]] = []
        threading.Thread(target=self._run, name="stall watch", daemon=True).start()

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(0.005)
            now = time.monotonic()
            if now - last > ARRIVAL_SECONDS / 2:
                self._stalls.append((last, now))
            last = now

    def stalls(self) -> list[tuple[float, float]]:
        """Return when it stood still, from and to."""
        return list(self._stalls)


@cache
def _watch() -> StallWatch:
    return StallWatch()


def check_apart(starts: Iterable[tuple[str, float]], seconds: float) -> None:
    """Assert that no two starts of a group are nearer to each other."""
    by_group: dict[str, list[float]] = {}
    for group, at in starts:
        by_group.setdefault(group, []).append(at)
    near = [
        (group, round(later - earlier, 4), earlier)
        for group, moments in by_group.items()
        for earlier, later in itertools.pairwise(sorted(moments))
        if later - earlier < seconds
    ]
    assert not near, f"{len(near)} starts nearer than {seconds}: {near[:5]}"
