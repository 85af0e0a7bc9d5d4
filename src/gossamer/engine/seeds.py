"""Seeds: from arguments, a file or standard input, streamed into the ledger in batches."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from gossamer.contracts import Added
from gossamer.errors import InvalidUrl, UsageError
from gossamer.model.outcome import Found
from gossamer.model.page import link_to
from gossamer.model.request import Request, Source
from gossamer.model.url import UrlPolicy
from gossamer.policy.priority import SEED
from gossamer.policy.scope import Scope

Add = Callable[[list[Found], set[str], str], Awaitable[Added]]
_MAX_LINE_BYTES = 65_536


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

    async def _flush(self, add: Add, batch: list[Found], progress: str) -> None:
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
            if offset:
                stream.seek(offset)
            lines = _numbered(stream, offset)
            while True:
                batch, offset, more = await asyncio.to_thread(self._read_batch, lines, offset)
                await self._flush(add, batch, "" if stream is sys.stdin.buffer else f"offset:{offset}")
                if not more:
                    break

    def _read_batch(
        self, lines: Iterator[tuple[int, int, bytes]], offset: int
    ) -> tuple[list[Found], int, bool]:
        batch: list[Found] = []
        for number, offset, line in lines:  # noqa: PLR1704 - the offset behind the last line read is the result
            text = line.strip().decode("utf-8", "replace").lstrip("\ufeff")
            if not text or text.startswith("#"):
                continue
            try:
                batch.append(self.found(text))
            except InvalidUrl as error:
                self.bad_lines.note(f"line {number}", error)
            if len(batch) >= self._batch_urls:
                return batch, offset, True
        return batch, offset, False

    def _open(self) -> BinaryIO:
        if self._input == "-":
            return sys.stdin.buffer
        try:
            return Path(self._input).open("rb")
        except OSError as error:
            raise UsageError(f"cannot read {self._input}: {error.strerror}") from error

    def found(self, text: str) -> Found:
        """Return a seed, refused if the user's own globs exclude it."""
        link = link_to(text, None, self._policy)
        request = Request(link.url, link.fingerprint, link.host, 0, SEED, source=Source.SEED)
        return Found(request, self._scope.exclusion(link.url))


def _numbered(stream: BinaryIO, offset: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number, offset behind it, line). A line longer than any URL may be is cut, never kept whole."""
    number = 0
    while line := stream.readline(_MAX_LINE_BYTES):
        number += 1
        offset += len(line)
        while not line.endswith(b"\n") and (rest := stream.readline(_MAX_LINE_BYTES)):
            offset += len(rest)
            if rest.endswith(b"\n"):
                break
        yield number, offset, line
