"""A generated site of many hosts, what is done to whoever asks for a page of it, and when each was asked."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable

from gossamer.testing.stalls import ARRIVAL_SECONDS, stall_watch
from gossamer.testing.synthetic_reply import Hit, Reply
from gossamer.testing.synthetic_web import SyntheticWeb


def ignore(_hit: Hit) -> None:
    """Let a hit pass."""


def _always(_hit: Hit) -> bool:
    return True


class Site:
    """`pages` pages on `hosts` hosts, all of them reachable from one seed a host. Names are new for each site."""

    _numbers = itertools.count(1)

    def __init__(self, web: SyntheticWeb, pages: int, hosts: int, *, answer_seconds: float = 0.0) -> None:
        self.web = web
        self.watch = stall_watch()
        self.answer_seconds = answer_seconds
        number = next(self._numbers)
        self.hosts = [f"s{number}h{host}" for host in range(hosts)]
        self.paths = [(self.hosts[page % hosts], f"/{page}") for page in range(pages)]
        self.urls = [web.url(*path) for path in self.paths]
        self.seeds = self.urls[:hosts]
        #: Called in the server's thread with every hit on a page, before it is answered.
        self.on_hit: Callable[[Hit], None] = ignore
        self._may_pass: Callable[[Hit], bool] = _always
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
            while not self._may_pass(hit):
                await asyncio.sleep(0.01)
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

    def hold(self, *, after: int = 0, host: str = "") -> threading.Event:
        """Keep back the answers to all but the next `after` requests, or only those to one host, until the event is set.

        Whoever asks needs patience: see `rig.PATIENT`.
        """
        left, released, held = after, threading.Event(), set[int]()

        def may_pass(hit: Hit) -> bool:
            nonlocal left
            if id(hit) not in held and (not host or hit.host == host):
                left -= 1
                if left < 0:
                    held.add(id(hit))
            return id(hit) not in held or released.is_set()

        self._may_pass = may_pass
        return released

    def check_polite(self, delay: float) -> None:
        """Assert that each host was left alone for its delay between two requests, by the server's own clock.

        Where the server stood still, requests that came apart are met together: nothing can be said of those.
        """
        hits = [(hit.host, hit.at) for hit in self.hits() if not self.watch.disturbed(hit.at)]
        check_apart(hits, delay - ARRIVAL_SECONDS)


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
