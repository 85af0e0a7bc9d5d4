"""Seeds: from arguments, a file or standard input, streamed into the ledger in batches."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec

from gossamer.errors import InvalidUrl, UsageError
from gossamer.model.outcome import Found
from gossamer.model.page import link_to
from gossamer.model.request import Request, Source
from gossamer.model.schedule import Added
from gossamer.model.url import UrlPolicy
from gossamer.policy.priority import SEED
from gossamer.policy.scope import Scope

Add = Callable[[list[Found], set[str], str], Awaitable[Added]]
_MAX_LINE_BYTES = 65_536
_READ_BYTES = 1 << 18
T = TypeVar("T")


class BadLines(msgspec.Struct):
    """Lines of an input that are not URLs: how many, and the first of them for the user."""

    count: int = 0
    first: str = ""

    def note(self, where: str, error: InvalidUrl) -> None:
        """Count a line."""
        self.count += 1
        self.first = self.first or f"{where}: {error}"


class Seeds:
    """The seeds of a job.

    A file remembers how far it was read in the transaction that adds its URLs, so a killed run goes on from
    there. Standard input cannot be wound back: it is read again from its start, which changes nothing twice.
    """

    def __init__(
        self, urls: tuple[str, ...], input_path: str, policy: UrlPolicy, scope: Scope, batch_urls: int
    ) -> None:
        self._urls = urls
        self._input = input_path
        self._policy = policy
        self._scope = scope
        self._batch_urls = batch_urls
        self.bad_lines = BadLines()
        self.accepted = 0

    async def add_all(self, add: Add, progress: str) -> None:
        """Add every seed. `progress` is the note of an earlier run, empty for none."""
        offset = int(progress.removeprefix("offset:")) if progress.startswith("offset:") else 0
        if not offset:
            await self._flush(add, [self.found(url) for url in self._urls], "")
        if self._input:
            await self._add_lines(add, offset)

    async def _flush(self, add: Add, given: list[Found], progress: str) -> None:
        batch = [item for item in given if not self._scope.owner(item.request.host)]
        roots = {
            self._scope.root_of(item.request.url, item.request.host) for item in batch if not item.refusal
        } - {""}
        for root in roots:
            self._scope.join(root)
        if batch or progress:
            await add(batch, roots, progress)
        self.accepted += len(batch)

    async def _add_lines(self, add: Add, offset: int) -> None:
        with self._open() as stream:
            from_stdin = self._input == "-"
            if offset:
                stream.seek(offset)
            lines = LineReader(stream, offset, waits=from_stdin)
            while not lines.ended:
                batch = await _in_daemon_thread(partial(self._read_batch, lines))
                await self._flush(add, batch, "" if from_stdin else f"offset:{lines.offset}")

    def _read_batch(self, lines: LineReader) -> list[Found]:
        batch: list[Found] = []
        for line in lines:
            text = line.strip().decode("utf-8", "replace").lstrip("\ufeff")
            if text and not text.startswith("#"):
                try:
                    batch.append(self.found(text))
                except InvalidUrl as error:
                    self.bad_lines.note(f"line {lines.number}", error)
            if len(batch) >= self._batch_urls or (batch and not lines.at_hand):
                break
        return batch

    @contextmanager
    def _open(self) -> Iterator[RawInput]:
        """Open the input, unbuffered: a thread that waits for standard input must hold no lock of it."""
        if self._input == "-":
            buffer = sys.stdin.buffer
            yield getattr(buffer, "raw", buffer)
            return
        try:
            stream = Path(self._input).open("rb", buffering=0)  # noqa: SIM115 - closed below
        except OSError as error:
            raise UsageError(f"cannot read {self._input}: {error.strerror}") from error
        with stream:
            yield stream

    def found(self, text: str) -> Found:
        """Return a seed, refused if the user's own globs exclude it."""
        link = link_to(text, None, self._policy)
        request = Request(link.url, link.fingerprint, link.host, 0, SEED, source=Source.SEED)
        return Found(request, self._scope.exclusion(link.url))


class RawInput(Protocol):
    """An unbuffered input: `read` returns what there is, and waits only if there is nothing."""

    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes; none means the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Go to a place in the input."""
        ...


class LineReader:
    """The lines of an input, and how far it was read.

    With `waits`, `at_hand` is false when the next line might be long in coming: time to use what there is.
    A line longer than any URL may be is cut, never kept whole.
    """

    def __init__(self, stream: RawInput, offset: int, *, waits: bool) -> None:
        self._stream = stream
        self._waits = waits
        self._buffer = b""
        self._position = 0
        self.number = 0
        self.offset = offset
        self.ended = False

    @property
    def at_hand(self) -> bool:
        """Whether the next line can be had without waiting for it."""
        return not self._waits or self._buffer.find(b"\n", self._position) >= 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines; after a break, iterating again goes on behind the last one."""
        while (line := self._next()) is not None:
            yield line
        self.ended = True

    def _next(self) -> bytes | None:
        kept = b""
        while (end := self._buffer.find(b"\n", self._position)) < 0:
            kept = (kept + self._buffer[self._position :])[:_MAX_LINE_BYTES]
            self.offset += len(self._buffer) - self._position
            self._buffer, self._position = self._stream.read(_READ_BYTES), 0
            if not self._buffer:
                self.number += bool(kept)
                return kept or None
        line = (kept + self._buffer[self._position : end])[:_MAX_LINE_BYTES]
        self.offset += end + 1 - self._position
        self._position = end + 1
        self.number += 1
        return line


async def _in_daemon_thread(work: Callable[[], T]) -> T:
    """Run `work` beside the loop. Unlike with `to_thread`, the end of the run does not wait for it.

    Standard input may have nothing to say for hours.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - carried over to whoever waits
            error = caught
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="seeds", daemon=True).start()
    return await future
