"""Thousands of broken replies and pages: every one ends in a value, soon, and memory does not grow."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import uvloop

from gossamer.extract.html import HtmlExtractor
from gossamer.extract.text import visible_text
from gossamer.model.response import FetchFailure, Response
from gossamer.model.url import UrlPolicy, host_of

from .misbehaving import Misbehaving, fetching
from .mutation import CONTENT_TYPES, PAGE_TOKENS, PAGES, REPLIES, REPLY_TOKENS, mutated

FEW, MANY = 300, 10_000
SEED = 20_240_229
#: A reply that is over takes a millisecond; one that promises more waits for its timeout.
TIMEOUT = 0.25
MAX_PAGE_SECONDS = 10.0
MAX_GROWTH_BYTES = 150_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


async def fuzz_replies(count: int, bugs: list[Any]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: bugs.append(context))
    sent: list[bytes] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent[-1])

    async with fetching(timeout_seconds=TIMEOUT, max_body_bytes=100_000) as fetcher:
        for number in range(count):
            random = Random(SEED + number)
            sent.append(mutated(REPLIES, REPLY_TOKENS, random))
            # Two replies of one connection now and then, so that what is left of the first could meet the second.
            async with Misbehaving(*[answer] * random.choice((1, 1, 2))).up() as site:
                for _ in range(2):
                    began = loop.time()
                    outcome = await fetcher.fetch(site.url, truncate=random.random() < 0.2)
                    check(outcome, f"seed {SEED + number}: {sent[-1][:300]!r}")
                    assert loop.time() - began < TIMEOUT + 20.0, f"seed {SEED + number}"
            assert bugs == [], f"seed {SEED + number}: {sent[-1][:300]!r}"
            sent.clear()


def check(outcome: object, place: str) -> None:
    assert isinstance(outcome, Response | FetchFailure), place
    if isinstance(outcome, FetchFailure):
        assert len(outcome.detail) <= 400, place
        assert "\n" not in outcome.detail, place
        return
    assert 200 <= outcome.status <= 999, place
    assert len(outcome.body) <= 100_000, place
    for name, value in outcome.headers:
        assert not any(char in name + value for char in "\r\n\0"), place
    msgspec.json.encode(outcome.headers)  # no lone surrogates


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_every_broken_reply_ends_in_a_response_or_a_failure(count: int) -> None:
    bugs: list[Any] = []
    before = resident_bytes()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(fuzz_replies(count, bugs))
    assert resident_bytes() - before < MAX_GROWTH_BYTES


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_every_broken_page_has_facts_that_can_be_written(count: int) -> None:
    extractor = HtmlExtractor(UrlPolicy(), max_links=1000, max_remembered_links=1000)
    before = resident_bytes()
    slowest = 0.0
    for number in range(count):
        random = Random(SEED + number)
        page = mutated(PAGES, PAGE_TOKENS, random)
        if random.random() < 0.1:  # large enough for the checks that small pages are spared
            page *= random.randint(2, 1 + 500_000 // max(len(page), 1000))
        kind = random.choice(CONTENT_TYPES)
        began = time.process_time()
        facts = extractor.extract(page, kind, "http://h.example/dir/page", [kind], kind[:20])
        visible_text(page[:20_000], kind)
        slowest = max(slowest, time.process_time() - began)
        place = f"seed {SEED + number}, {kind[:40]}: {page[:300]!r}"
        assert b"\\u0000" not in msgspec.json.encode(facts), place
        assert len(facts.links) <= 1000, place
        assert all(link.host == host_of(link.url) for link in facts.links), place
        assert slowest < MAX_PAGE_SECONDS, place
    assert resident_bytes() - before < MAX_GROWTH_BYTES
