"""Which hosts belong to which of N jobs that share a crawl without a server between them."""

from __future__ import annotations

import re

import msgspec
from xxhash import xxh3_64_intdigest

from gossamer.errors import UsageError

_FORM = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", re.ASCII)


class Shard(msgspec.Struct, frozen=True):
    """Part `number`, counted from 1, of `count`. The hash is the same on every machine and in every version."""

    number: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, name: str) -> Shard:
        """Return the shard that a name belongs to. `www.` does not count: most redirects of a seed only add it."""
        return Shard(xxh3_64_intdigest(name.removeprefix("www.").encode()) % self.count + 1, self.count)


#: The only part: everything belongs to it.
WHOLE = Shard()


def parse_shard(text: str) -> Shard:
    """Read `I/N`; an empty text is the whole. Raises `UsageError` with the form it must have."""
    if not text:
        return WHOLE
    match = _FORM.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(
            f"--shard {text[:40]!r} is not a part of a whole: write I/N, from 1/3 to 3/3 for three jobs"
        )
    return Shard(int(match[1]), int(match[2]))
