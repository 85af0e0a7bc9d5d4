"""What one worker says to Redis: reports wait a moment and travel with the next question."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import xxhash

from gossamer.config.redis import RedisSettings
from gossamer.config.settings import FrontierSettings, PolitenessSettings
from gossamer.contracts import Clock
from gossamer.errors import BackendLost, BackendUnreachable, UsageError
from gossamer.frontier.redis_codec import PARTITIONS, Op, ReleaseOp
from gossamer.frontier.redis_epochs import Epochs
from gossamer.frontier.redis_link import Call, RedisLink
from gossamer.frontier.redis_skew import Skew

_encode = msgspec.msgpack.Encoder().encode
_CLUSTER_PARTITIONS = 16


class Introduction(msgspec.Struct, frozen=True):
    """What scripts must know of whoever calls them."""

    job: str
    worker: str
    window: int
    scheduled: int
    partitions: int
    lease: float
    refill: float
    most: int
    delay: float
    per_host: int
    park: int
    probes: int
    pages: int
    resumed: float
    slack: float


class RedisCalls:
    """The calls of one worker of one job, in order, several in a round trip.

    * A report is sent with the next question, or by itself after `flush_seconds`. If Redis cannot be reached it stays
      queued and is sent again; one that arrives twice changes nothing.
    * `clock` stands in for the server's time where `server_time` is False: for tests.
    """

    def __init__(
        self,
        job: str,
        redis: RedisSettings,
        settings: FrontierSettings,
        politeness: PolitenessSettings,
        clock: Clock,
        random: Callable[[], float],
        *,
        pages: int,
        resumed_at: float,
        server_time: bool,
    ) -> None:
        if not 0 <= redis.partitions < PARTITIONS:
            raise UsageError(f"a schedule has 1 to {PARTITIONS - 1} partitions, not {redis.partitions}")
        self.link = RedisLink(redis, random)
        self.skew = Skew()
        #: Reports that came too late.
        self.stale = 0
        self.redis = redis
        self._clock = clock
        self._server_time = server_time
        self.worker = secrets.token_hex(6)
        self._introduction = Introduction(
            job,
            self.worker,
            settings.window_urls,
            settings.scheduled_urls,
            redis.partitions,
            settings.lease_seconds,
            redis.refill_seconds,
            redis.batch_entries,
            politeness.delay,
            politeness.per_host,
            politeness.park_after_failures,
            politeness.park_probes,
            pages,
            resumed_at,
            redis.slack_seconds,
        )
        self._divide()
        self._waiting: deque[tuple[int, Op | ReleaseOp]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and begin a new epoch where the server is not the one it was."""
        await self.link.open()
        self._divide()
        try:
            asked_at = self._clock()
            answers = await self.ask_all("open", None)
            self.learn_time(asked_at, answers[0][0])
            for number, (_, _, epoch) in enumerate(answers):
                self.epochs.hear(number, epoch, asked_at)
            self._check_partitions({int(partitions) for _, partitions, _ in answers})
        except BackendLost as error:
            await self.link.close()
            # Nothing was begun that could be gone on with.
            raise BackendUnreachable(str(error)) from error
        except BaseException:
            await self.link.close()
            raise
        self.link.greeting = lambda: [self._call("open", number, None) for number in range(self.partitions)]

    def _divide(self) -> None:
        """Decide on the parts of the schedule: where nobody has said how many, a cluster has its own number."""
        self.partitions = self.redis.partitions or (_CLUSTER_PARTITIONS if self.link.is_cluster else 1)
        self.epochs = Epochs(self.partitions, self.redis.slack_seconds)
        self._keys = [f"{self.redis.prefix}:{{g:{number}}}" for number in range(self.partitions)]
        self._me = _encode(msgspec.structs.replace(self._introduction, partitions=self.partitions))

    def _check_partitions(self, found: set[int]) -> None:
        for partitions in found - {self.partitions}:
            raise UsageError(
                f"the schedule `{self.redis.prefix}` has {partitions} partitions: all workers must use that"
                f" number, or another prefix"
            )

    async def close(self) -> None:
        """Send what waits, if Redis can be reached, and let go of it."""
        self._flush_no_more()
        try:
            if self._flushing is not None:
                await asyncio.wait([self._flushing])
            await self.flush()
        except BackendLost:
            # The leases of this worker expire.
            self._waiting.clear()
        finally:
            self._flush_no_more()
            await self.link.close()

    # -- questions -------------------------------------------------------------------------------------

    def partition(self, group: str) -> int:
        """Return where a group is kept."""
        if self.partitions == 1:
            return 0
        return xxhash.xxh3_64_intdigest(group.encode()) % self.partitions

    async def ask(self, script: str, partition: int, argument: Any) -> Any:
        """Run one script."""
        (answer,) = await self.ask_many([(script, partition, argument)])
        return answer

    async def ask_all(self, script: str, argument: Any) -> list[Any]:
        """Run a script on every partition."""
        return await self.ask_many([(script, number, argument) for number in range(self.partitions)])

    async def ask_many(self, asked: Sequence[tuple[str, int, Any]]) -> list[Any]:
        """Send the reports that wait, then what is asked, in one round trip; returns the answers to the latter."""
        sent: list[tuple[int, Op | ReleaseOp]] = []

        def batch() -> list[Call]:
            return [*self._reports(sent), *(self._call(*one) for one in asked)]

        try:
            answers = await self.link.run(batch)
        except BaseException:
            self._waiting.extendleft(reversed(sent))
            if sent:
                self._flush_later(self.redis.max_reconnect_seconds)
            raise
        reports = len(answers) - len(asked)
        self.stale += sum(answers[:reports])
        return answers[reports:]

    def _call(self, script: str, partition: int, argument: Any) -> Call:
        now = "" if self._server_time else repr(self._clock())
        seed = str(secrets.randbelow(1 << 20))
        return Call(script, self._keys[partition], (now, seed, self._me, _encode(argument)))

    # -- time ------------------------------------------------------------------------------------------

    def learn_time(self, sent_at: float, server_now: bytes) -> None:
        """Compare clocks."""
        if self._server_time:
            self.skew.note(sent_at, float(server_now))

    def server_now(self) -> float:
        """Return what the server's clock shows now, or a little more."""
        return self._clock() + self.skew.seconds

    # -- reports ---------------------------------------------------------------------------------------

    def report(self, partition: int, op: Op | ReleaseOp) -> None:
        """Send a report soon."""
        self._waiting.append((partition, op))
        self._flush_later(self.redis.flush_seconds)

    async def flush(self) -> None:
        """Send what waits."""
        while self._waiting:
            await self.ask_many([])

    def _reports(self, sent: list[tuple[int, Op | ReleaseOp]]) -> Iterable[Call]:
        """Take the reports that wait into `sent`; returns the calls that make them."""
        by_partition: dict[int, list[Op | ReleaseOp]] = {}
        while self._waiting and len(sent) < 4 * self.redis.batch_reports:
            partition, op = self._waiting.popleft()
            sent.append((partition, op))
            by_partition.setdefault(partition, []).append(op)
        most = self.redis.batch_reports
        for partition, ops in by_partition.items():
            for start in range(0, len(ops), most):
                yield self._call("report", partition, ops[start : start + most])

    def _flush_later(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_flush)

    def _flush_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_flush(self) -> None:
        self._timer = None
        if self._waiting:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_quietly(), name="redis flush")

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except BackendLost:
            # Still queued: whoever asks next hears of it.
            return
