"""Asks a Redis what it is like, without leaving anything behind."""

from __future__ import annotations

import time
from typing import Any

from gossamer.errors import UsageError
from gossamer.frontier.redis_link import place_of, redis_library, unopened
from gossamer.model.server import ClockReading, RedisFacts, best_reading

_SAMPLES = 20
#: Writes as the schedule does, in a script, and takes it back.
_TRIAL = "redis.call('SET', KEYS[1], 1, 'PX', 1000) return redis.call('DEL', KEYS[1])"
_TRIAL_KEY = "gossamer:doctor"


async def look_at_redis(url: str, seconds: float = 5.0) -> RedisFacts:
    """Return what the server is like. Raises `BackendUnreachable` where it does not answer in time, `UsageError`."""
    redis = redis_library()
    try:
        client = _client(url, seconds)
    except ValueError as error:
        raise UsageError(f"{place_of(url)} is no address of a Redis: {error}") from error
    try:
        return await _look(client, redis)
    except (redis.RedisError, OSError) as error:
        raise unopened(error, place_of(url)) from error
    finally:
        await client.aclose()


def _client(url: str, seconds: float) -> Any:
    from redis.asyncio import Redis  # noqa: PLC0415 - an extra
    from redis.asyncio.retry import Retry  # noqa: PLC0415 - an extra
    from redis.backoff import NoBackoff  # noqa: PLC0415 - an extra

    return Redis.from_url(
        url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0)
    )


async def _look(client: Any, redis: Any) -> RedisFacts:
    about = await client.info()
    valkey = about.get("valkey_version")
    is_node = bool(int(about.get("cluster_enabled", 0)))
    # Of a cluster, another node may have to be asked.
    unwritable, is_full = ("", False) if is_node else await _trial(client, redis)
    return RedisFacts(
        product="Valkey" if valkey else "Redis",
        version=str(valkey or about.get("redis_version", "0")),
        policy=str(about.get("maxmemory_policy", "noeviction")),
        max_memory_bytes=int(about.get("maxmemory", 0)),
        used_memory_bytes=int(about.get("used_memory", 0)),
        appends_to_file=bool(int(about.get("aof_enabled", 0))),
        cluster=await _cluster_state(client) if is_node else "",
        unwritable=unwritable,
        clock=await _clock(client),
        is_full=is_full,
    )


async def _cluster_state(client: Any) -> str:
    answer = await client.execute_command("CLUSTER INFO")
    fields = answer if isinstance(answer, dict) else {}
    return str(fields.get("cluster_state", "unknown"))


async def _trial(client: Any, redis: Any) -> tuple[str, bool]:
    """Try to write; returns what the server has against it, and whether that is a lack of room."""
    try:
        await client.eval(_TRIAL, 1, _TRIAL_KEY)
    except redis.ConnectionError:
        raise
    except redis.ResponseError as error:
        return str(error), isinstance(error, redis.exceptions.OutOfMemoryError)
    return "", False


async def _clock(client: Any) -> ClockReading:
    samples = []
    for _ in range(_SAMPLES):
        sent, began = time.time(), time.monotonic()
        whole, micros = await client.time()
        samples.append((sent, whole + micros / 1e6, sent + time.monotonic() - began))
    return best_reading(samples)
