"""Schedulers on a real Redis, made to the plan of a test and closed when its event loop ends."""

from __future__ import annotations

import asyncio
import itertools
import os
from importlib import resources

import msgspec

from gossamer.config.redis import RedisSettings
from gossamer.frontier.redis_scheduler import RedisScheduler
from gossamer.testing.clock import FakeClock
from gossamer.testing.scheduler_contract import Plan

_prefixes = itertools.count(1)


def new_prefix() -> str:
    """Return a prefix under which nothing is stored yet."""
    return f"t{os.getpid()}-{next(_prefixes)}"


async def redis_scheduler(
    plan: Plan, redis: RedisSettings, *, job: str = "job", aged: bool = True
) -> RedisScheduler:
    """Open a scheduler by the clock of the plan. It is closed when the event loop ends.

    The Redis is `aged`: its epoch began long ago, so that no group waits for it.
    """
    if aged:
        await age(redis)
    made = _make(plan, redis, job)
    await made.open()
    _closing.add(asyncio.create_task(_close_at_the_end(made)))
    return made


async def age(redis: RedisSettings) -> None:
    """Let the epoch of an empty Redis have begun long ago: nobody can have asked a host just before."""
    first = _make(Plan(clock=FakeClock(1.0)), redis, "elder")
    await first.open()
    await first.close()


_closing: set[asyncio.Task[None]] = set()


async def _close_at_the_end(scheduler: RedisScheduler) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await scheduler.close()


def _make(plan: Plan, redis: RedisSettings, job: str) -> RedisScheduler:
    return RedisScheduler(
        job,
        redis,
        plan.frontier,
        plan.politeness,
        plan.clock,
        lambda: plan.chance,
        max_pages_per_host=plan.max_pages_per_host,
        resumed_at=plan.resumed_at,
        server_time=False,
    )


class SeenWindow(msgspec.Struct, frozen=True):
    """A window, and of its group what decides whether it may be leased from."""

    urls: int
    busy: int
    starting: int
    delay: float
    ready: bool


class Seen(msgspec.Struct, frozen=True):
    """Everything a job has in one partition. Fingerprints are those of `queued` and `leased` requests."""

    windows: list[SeenWindow]
    queued: list[int]
    leased: list[int]
    #: How many requests the windows say they have, queued or leased.
    places: int


_PRELUDE = (resources.files("gossamer.frontier") / "lua" / "prelude.lua").read_text()
_LOOK = """
local windows, queued, leased, places = {}, {}, {}, 0

local function number(fingerprint)
  return (string.gsub(fingerprint, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

for _, host in ipairs(call('HKEYS', key('w', job))) do
  local window = window_of(job, host)
  local group, pace = group_of(window.group), pace_of(job, window.group)
  local members = call('ZRANGE', key('q', job, host), 0, -1)
  local later = call('ZRANGE', key('l', job, host), 0, -1)
  assert(#members == window.queued and #later == window.waits)
  for _, member in ipairs(members) do queued[#queued + 1] = number(string.sub(member, 9)) end
  for _, member in ipairs(later) do queued[#queued + 1] = number(member) end
  places = places + call('HLEN', key('r', job, host))
  windows[#windows + 1] = {
    urls = #members + #later, busy = group.busy, starting = group.starting, delay = pace.delay,
    ready = pace.spot ~= '' and call('ZSCORE', key('ready', job), pace.spot) ~= false,
  }
end
assert(call('ZCARD', key('ready', job)) <= #windows)
for _, token in ipairs(call('HKEYS', key('x'))) do
  leased[#leased + 1] = number(lease_at(token).fp)
end
local counts = call('HMGET', key('c', job), 'queued', 'leased')
assert(tonumber(counts[1] or 0) == #queued and tonumber(counts[2] or 0) == #leased)
return { cjson.encode(windows), cjson.encode(queued), cjson.encode(leased), places }
"""


async def inspect_schedule(scheduler: RedisScheduler) -> Seen:
    """Look at all a scheduler of one partition has, and check that its counts are right."""
    calls = scheduler._calls  # noqa: SLF001 - looking inside is the purpose
    await calls.flush()
    (about,) = calls.link.greeting()
    client = calls.link._client  # noqa: SLF001 - as above
    assert client is not None
    windows, queued, leased, places = await client.eval(_PRELUDE + _LOOK, 1, about.key, *about.arguments)
    return Seen(_windows(windows), _fingerprints(queued), _fingerprints(leased), places)


def _windows(text: bytes) -> list[SeenWindow]:
    return [] if text == b"{}" else msgspec.json.decode(text, type=list[SeenWindow])


def _fingerprints(text: bytes) -> list[int]:
    found = [] if text == b"{}" else msgspec.json.decode(text, type=list[str])
    return [int.from_bytes(bytes.fromhex(one), "big", signed=True) for one in found]
