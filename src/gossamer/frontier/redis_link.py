"""The line to Redis: calls of scripts, many in one round trip, and errors in our own words.

Only this module and `redis_facts.py` import redis-py, and only when they need it: it comes with an extra of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.config.redis import RedisSettings
from gossamer.errors import BackendLost, BackendUnreachable, UsageError
from gossamer.frontier.redis_scripts import load_scripts
from gossamer.model.server import evicts

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

#: The first version that runs scripts which say what they do when memory is short.
_OLDEST = 7
#: How a server says that it cannot do so now: a long script, a disk that is full, too few replicas. For what else may
#: pass redis-py has classes: see `_passing`.
_PASSING = ("BUSY", "MISCONF", "NOREPLICAS")
#: How a server says that it will not have us; redis-py has classes for some of these, and only outside of clusters.
_REFUSALS = ("uthenticat", "username-password", "WRONGPASS", "NOPERM", "no permissions", "DB index")


class Call(msgspec.Struct, frozen=True):
    """One script to run. `key` says where, the arguments what."""

    script: str
    key: str
    arguments: tuple[str | bytes, ...]


class OutOfMemory(msgspec.Struct, frozen=True):
    """The answer of a Redis that has no room: the script was refused and has changed nothing."""


class RedisLink:
    """Runs scripts on one Redis, or on the nodes of a cluster, one batch at a time and in order.

    * A batch is one round trip, counted in `round_trips`. Every command has a timeout.
    * `greeting` is run on each new connection before anything else is: whoever was reconnected without noticing, to
      a server that was started anew, has said so.
    * A server that does not answer is a `BackendLost`; whatever was to be done may be tried again, and is held back
      until a growing, jittered wait is over.
    * A script the server does not know is sent again, in full.
    * `is_cluster` is known once it is open.
    """

    def __init__(self, settings: RedisSettings, random: Callable[[], float]) -> None:
        self._settings = settings
        self._random = random
        self.is_cluster = bool(settings.cluster)
        self._scripts = load_scripts()
        self._lock = asyncio.Lock()
        self._client: Redis | RedisCluster | None = None
        self._failures = 0
        self._not_before = 0.0
        self.greeting: Callable[[], list[Call]] = list
        self.round_trips = 0
        #: Commands that were turned away because Redis was full.
        self.refused = 0

    async def open(self) -> None:
        """Connect, and refuse a server that would forget what it is told."""
        redis = redis_library()
        try:
            nodes = await self._nodes(await self._connect())
            await self._teach()
        except (redis.RedisError, OSError) as error:
            await self.close()
            raise unopened(error, self._where) from error
        for node in nodes:
            if problem := _unfit(node):
                await self.close()
                raise UsageError(problem)

    async def _connect(self) -> Redis | RedisCluster:
        """Find out whether the server is one of a cluster, and speak to it as that wants."""
        self._client = client = self._make()
        if self._settings.cluster is None and not self.is_cluster:
            about = await client.info("cluster")
            self.is_cluster = bool(int(about.get("cluster_enabled", 0)))
            if self.is_cluster:
                await client.aclose()
                self._client = client = self._make()
        return client

    async def _nodes(self, client: Any) -> list[dict[str, Any]]:
        """Ask each server that holds a part of the schedule what it is like."""
        if not self.is_cluster:
            return [await client.info()]
        return list((await client.info(target_nodes="primaries")).values())

    @property
    def _where(self) -> str:
        return place_of(self._settings.url)

    def _make(self) -> Redis | RedisCluster:
        from redis.asyncio import Redis  # noqa: PLC0415 - an extra
        from redis.asyncio.cluster import RedisCluster  # noqa: PLC0415 - an extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415 - an extra

        seconds = self._settings.timeout_seconds
        options: dict[str, Any] = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
        try:
            if not self.is_cluster:
                return Redis.from_url(
                    self._settings.url,
                    retry=Retry(NoBackoff(), 0),
                    redis_connect_func=self._greet,
                    **options,
                )
            cluster = RedisCluster.from_url(self._settings.url, retry=Retry(NoBackoff(), 2), **options)
        except ValueError as error:
            raise UsageError(f"{self._where} is no address of a Redis: {error}") from error
        # A cluster's nodes take no such function from its constructor, but hand it to their connections.
        shared = cluster.nodes_manager
        for kept in (
            shared.connection_kwargs,
            *(node.connection_kwargs for node in shared.startup_nodes.values()),
        ):
            kept["redis_connect_func"] = self._greet
        return cluster

    async def _greet(self, connection: Any) -> None:
        redis = redis_library()
        await connection.on_connect()
        calls = self.greeting()
        for call in calls:
            script = self._scripts[call.script]
            await connection.send_command("EVAL", script.text, 1, call.key, *call.arguments)
        for _ in calls:
            try:
                await connection.read_response()
            except redis.exceptions.MovedError:
                # The key is another node's, which is greeted by itself.
                continue
            except redis.ResponseError as error:
                if _is_passing(error):
                    # The connection is closed: whoever opens the next one greets again.
                    raise redis.ConnectionError(str(error)) from error
                raise

    async def _teach(self) -> None:
        """Load all scripts at once: of two in one batch, the second must not be done before the first."""
        assert self._client is not None, "the link is not open"
        for script in self._scripts.values():
            await self._client.script_load(script.text)

    async def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def run(self, calls: Callable[[], Sequence[Call]]) -> list[Any]:
        """Run a batch of scripts in one round trip and return their answers.

        The batch is made when the line is free, so that what came up meanwhile goes with it.
        """
        async with self._lock:
            await self._hold_back()
            batch = calls()
            return await self._attempt(batch) if batch else []

    async def _hold_back(self) -> None:
        wait = self._not_before - time.monotonic()
        if self._failures and wait > 0:
            await asyncio.sleep(wait)

    async def _attempt(self, calls: Sequence[Call]) -> list[Any]:
        redis = redis_library()
        try:
            answers = await self._send([(self._scripts[call.script].sha, call) for call in calls], "EVALSHA")
            unknown = [
                i for i, answer in enumerate(answers) if isinstance(answer, redis.exceptions.NoScriptError)
            ]
            if unknown:
                again = [(self._scripts[calls[i].script].text, calls[i]) for i in unknown]
                for i, answer in zip(unknown, await self._send(again, "EVAL"), strict=True):
                    answers[i] = answer
                await self._teach()
            translated = [self._translated(answer) for answer in answers]
        except _passing(redis) as error:
            raise self._lost(error) from error
        self._failures = 0
        return translated

    async def ping(self) -> None:
        """Ask whether the server is there. Raises `BackendLost` where it is not."""
        redis = redis_library()
        async with self._lock:
            await self._hold_back()
            assert self._client is not None, "the link is not open"
            self.round_trips += 1
            try:
                await self._client.ping()
            except (redis.RedisError, OSError) as error:
                raise self._lost(error) from error
            self._failures = 0

    def _lost(self, error: Exception) -> BackendLost:
        """Note a failure, after which the next attempt waits; returns our own error for it."""
        self._failures += 1
        wait = min(
            self._settings.reconnect_seconds * float(1 << min(self._failures - 1, 20)),
            self._settings.max_reconnect_seconds,
        )
        self._not_before = time.monotonic() + wait * (0.5 + self._random())
        return BackendLost(f"Redis at {self._where} stopped answering ({error}): trying again")

    async def _send(self, scripts: Sequence[tuple[str | bytes, Call]], command: str) -> list[Any]:
        assert self._client is not None, "the link is not open"
        self.round_trips += 1
        if self.is_cluster:
            pipeline: Any = self._client.pipeline()
        else:
            pipeline = self._client.pipeline(transaction=False)
        for script, call in scripts:
            pipeline.execute_command(command, script, 1, call.key, *call.arguments)
        before = _cancellations()
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        if _cancellations() > before:
            # redis-py sends with `wait_for`, which in Python 3.11 forgets a cancellation that comes as it ends.
            raise asyncio.CancelledError
        return answers

    def _translated(self, answer: Any) -> Any:
        if not isinstance(answer, Exception):
            return answer
        if isinstance(answer, redis_library().exceptions.OutOfMemoryError):
            self.refused += 1
            return OutOfMemory()
        if _is_passing(answer):
            raise OSError(str(answer)) from answer
        raise answer


def place_of(url: str) -> str:
    """Return the address without what may be a password."""
    return url.rpartition("@")[2].removeprefix("redis://").partition("?")[0]


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def redis_library() -> Any:
    """Return redis-py. Raises `UsageError` with the remedy where it is not installed."""
    try:
        import redis  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("a shared schedule needs redis-py: pip install 'gossamer[redis]'") from error
    return redis


def unopened(error: Exception, place: str) -> BackendUnreachable | UsageError:
    """Return our error for a server that cannot be spoken to: it refuses us, or it does not answer."""
    if any(word in str(error) for word in _REFUSALS):
        return UsageError(
            f"Redis at {place} refuses us ({error}): check user, password and number of the database"
        )
    return BackendUnreachable(f"no answer from Redis at {place} ({error}): start it, or correct the address")


def _is_passing(answer: Exception) -> bool:
    return str(answer).startswith(_PASSING)


def _passing(redis: Any) -> tuple[type[Exception], ...]:
    """Return what redis-py raises while a server, or a part of a cluster, cannot be had."""
    kinds = redis.exceptions
    return (
        kinds.ConnectionError,
        kinds.TimeoutError,
        kinds.ClusterError,
        kinds.RedisClusterException,
        kinds.ReadOnlyError,
        kinds.TryAgainError,
        kinds.AskError,
        OSError,
    )


def _unfit(about: dict[str, Any]) -> str:
    """Say why a server cannot keep a schedule, and what to do; empty if it can."""
    version = str(about.get("redis_version", "0"))
    if int(version.partition(".")[0]) < _OLDEST:
        return f"Redis {version} is too old for a shared schedule: use version {_OLDEST} or newer"
    policy = str(about.get("maxmemory_policy", "noeviction"))
    if evicts(policy, int(about.get("maxmemory", 0))):
        return (
            f"this Redis evicts keys when it is full ({policy}), and would forget who was asked when:"
            " set maxmemory-policy to noeviction"
        )
    return ""
