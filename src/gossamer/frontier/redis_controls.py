"""What an operator decides about jobs and hosts, kept in Redis so that it holds for every worker."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gossamer.frontier.redis_calls import RedisCalls


class Held(msgspec.Struct, frozen=True):
    """What is in force: `paused`, `stopped` or nothing for a job, the hosts that are off, and least delays of hosts."""

    control: str
    off: frozenset[str]
    delays: frozenset[tuple[str, float]]


class RedisControls:
    """Pauses and stops jobs, switches hosts off, and sets their delays: at once, and for workers that come later.

    It is kept beside the schedule and is lost with it when Redis is wiped.
    """

    def __init__(self, job: str, calls: RedisCalls) -> None:
        self.job = job
        self._calls = calls

    async def pause(self, job: str) -> None:
        """Let no worker lease URLs of a job until it is resumed. What is under way is finished."""
        await self._calls.ask_all("control", ("control", job, "paused"))

    async def resume(self, job: str) -> None:
        """Let a job that was paused or stopped go on."""
        await self._calls.ask_all("control", ("control", job, ""))

    async def stop(self, job: str) -> None:
        """Let no worker lease URLs of a job, for good: each sees it in `control` and ends."""
        await self._calls.ask_all("control", ("control", job, "stopped"))

    async def control(self) -> str:
        """Return `paused` or `stopped`, or nothing while this job runs."""
        (answer,) = await self._calls.ask_many([("outlook", 0, (1, "", 0.0))])
        return str(answer[3].decode())

    async def set_delay(self, host: str, seconds: float) -> None:
        """Set the least delay of a host, for all jobs; 0 leaves each its own, from the next answer on."""
        await self._calls.ask_all("control", ("delay", host, seconds))

    async def switch(self, host: str, *, on: bool) -> None:
        """Let a host be leased from, or not, by any job."""
        await self._calls.ask_all("control", ("switch", host, on))

    async def held(self, job: str) -> list[Held]:
        """Return what is in force for a job and for all hosts, as each partition has it: they should agree."""
        answers = await self._calls.ask_all("control", ("held", job, ""))
        return [_held(word, off, delays) for word, off, delays in answers]

    async def clear(self) -> None:
        """Let the windows of this job have nothing but what is leased: the ledger says anew what is to be done."""
        while any(await self._calls.ask_all("control", ("clear", self.job, ""))):
            pass

    async def forget(self) -> None:
        """Take this job off the schedule. The clocks of its groups stay until they have run out."""
        while any(await self._calls.ask_all("control", ("forget", self.job, ""))):
            pass


def _held(word: bytes, off: Sequence[bytes], delays: Sequence[bytes]) -> Held:
    pairs = zip(delays[::2], delays[1::2], strict=True)
    return Held(
        word.decode(),
        frozenset(host.decode() for host in off),
        # A delay that was taken back is 0.
        frozenset((host.decode(), float(delay)) for host, delay in pairs if float(delay) > 0),
    )
