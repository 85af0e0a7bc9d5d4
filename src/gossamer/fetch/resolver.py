"""Host names to IP addresses, each checked before anyone may connect to it.

The fetcher connects to the address that was checked, never to the name, so a name that changes its mind
between the check and the connection gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address

from gossamer.model.response import FetchProblem
from gossamer.policy.address import Network, category, is_listed

#: Gives all addresses of a name in order of preference, or raises OSError.
Lookup = Callable[[str], Awaitable[Sequence[str]]]


class ResolveFailed(Exception):
    """The name has no address we may connect to. `problem` is DNS or PRIVATE_ADDRESS; the text is one line."""

    def __init__(self, problem: FetchProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Answer:
    """A cached result: the addresses, or why there are none."""

    addresses: tuple[str, ...]
    expires_at: float
    problem: FetchProblem = FetchProblem.DNS
    detail: str = ""


class Resolver:
    """Resolves names with the system's resolver and lets only public addresses through.

    * Every address returned is public by `gossamer.policy.address` or in one of `allow_networks`, unless `allow_private`.
    * A name with public and private addresses yields the public ones; IP literals are checked, never looked up.
    * `localhost` and names under it are loopback without asking anyone (RFC 6761).
    * Answers are kept for `ttl_seconds`, failures for `failure_ttl_seconds`, at most `max_names` of them;
      a name is looked up once however many ask at the same time, and `max_lookups` names at a time.
    """

    def __init__(
        self,
        allow_private: bool,
        *,
        allow_networks: Sequence[Network] = (),
        ttl_seconds: float = 300.0,
        failure_ttl_seconds: float = 1.0,  # shorter than a retry's wait, or the retry would learn nothing
        max_names: int = 10_000,
        max_lookups: int = 32,
        max_addresses: int = 8,
        lookup: Lookup | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allow_private = allow_private
        self._allow_networks = tuple(allow_networks)
        self._ttl = ttl_seconds
        self._failure_ttl = failure_ttl_seconds
        self._max_names = max_names
        self._max_addresses = max_addresses
        self._clock = clock
        self._lookup = lookup or self._system_lookup
        self._slots = asyncio.Semaphore(max_lookups)
        # A pool of our own: libuv's has four threads, so four dead name servers would stop all lookups.
        self._threads = ThreadPoolExecutor(max_lookups, thread_name_prefix="gossamer-dns")
        self._answers: dict[str, _Answer] = {}
        self._pending: dict[str, asyncio.Future[None]] = {}

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return the addresses of `host` that may be connected to, best first. Raises ResolveFailed if none."""
        answer = await self._answer(_name(host))
        if not answer.addresses:
            raise ResolveFailed(answer.problem, answer.detail)
        return answer.addresses

    def close(self) -> None:
        """Let go of the threads. Lookups under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, name: str) -> _Answer:
        while True:
            answer = self._answers.get(name)
            if answer is not None and self._clock() < answer.expires_at:
                return answer
            pending = self._pending.get(name)
            if pending is None:
                return await self._lead(name)
            # Whoever leads may be cancelled; then the first of those who wait takes over.
            await asyncio.shield(pending)

    async def _lead(self, name: str) -> _Answer:
        done = self._pending[name] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._find(name)
            self._remember(name, answer)
            return answer
        finally:
            del self._pending[name]
            done.set_result(None)

    async def _find(self, name: str) -> _Answer:
        known = _without_lookup(name)
        if known:
            return self._judge(name, known)
        try:
            async with self._slots:
                found = await self._lookup(name)
        except (OSError, UnicodeError) as error:
            return self._failure(FetchProblem.DNS, f"{name} does not resolve: {_reason(error)}")
        return self._judge(name, tuple(dict.fromkeys(found)))

    def _judge(self, name: str, found: tuple[str, ...]) -> _Answer:
        if not found:
            return self._failure(FetchProblem.DNS, f"{name} has no address")
        allowed = tuple(ip for ip in found if self._may_connect(ip))
        if not allowed:
            return self._failure(FetchProblem.PRIVATE_ADDRESS, _refusal(name, found[0]))
        return _Answer(allowed[: self._max_addresses], self._clock() + self._ttl)

    def _may_connect(self, ip: str) -> bool:
        return self._allow_private or not category(ip) or is_listed(ip, self._allow_networks)

    def _failure(self, problem: FetchProblem, detail: str) -> _Answer:
        return _Answer((), self._clock() + self._failure_ttl, problem, detail)

    def _remember(self, name: str, answer: _Answer) -> None:
        self._answers.pop(name, None)
        while len(self._answers) >= self._max_names:
            del self._answers[next(iter(self._answers))]
        self._answers[name] = answer

    async def _system_lookup(self, name: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(self._threads, _getaddrinfo, name)
        return [str(row[4][0]) for row in rows]


def is_literal(host: str) -> bool:
    """Say whether `host` needs no lookup: an IP address, or localhost."""
    return bool(_without_lookup(_name(host)))


def _name(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def _getaddrinfo(name: str) -> list[tuple[int, int, int, str, tuple[str | int, ...] | tuple[int, bytes]]]:
    return list(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))


def _without_lookup(name: str) -> tuple[str, ...]:
    """Answer IP literals and localhost; empty for any other name."""
    if name == "localhost" or name.endswith(".localhost"):
        return ("127.0.0.1", "::1")
    try:
        return (str(ip_address(name)),)
    except ValueError:
        return ()


def _refusal(name: str, ip: str) -> str:
    kind = category(ip)
    noun = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} address"
    verb = "is" if name == ip else f"resolves to {ip},"
    return f"{name} {verb} {noun}; --allow-private or --allow-network {ip} allows it"


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error) or type(error).__name__
