"""A Bloom filter over 64-bit fingerprints: it may take a new one for known, at a chosen rate, and never the reverse.

A filter is a list of slices. All but the last are full; when the last is full too, one of twice its size is begun,
with a smaller error rate, so that the rates of all slices ever made add up to no more than the filter's.

A slice is blocked: a fingerprint has all its bits in one block of 64 bytes, two in each of its eight words. A block is
read as one number and compared with one mask, which is what makes this fast in Python; the price is a fifth more
memory than bits scattered over the whole slice would need. Fingerprints must be hashes: their upper half chooses the
block, and is not mixed again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache

BLOCK_BYTES = 64
_WORDS = 8
_WORD_BITS = 64
_LOW_32 = 0xFFFF_FFFF
_LOW_64 = 0xFFFF_FFFF_FFFF_FFFF
# 64 bits are too few for the block and sixteen positions of six bits: a product with a large odd number has enough.
_SPREAD = 0xD6E8_FEB8_6659_FD93_9E37_79B9_7F4A_7C15
#: The first slice may make half of all mistakes; each later one three quarters of what its predecessor may.
_FIRST_SHARE = 0.5
_LATER_SHARE = 0.125
_TIGHTENING = 0.75
#: Fuller blocks than this are of no use at any rate.
_MAX_KEYS_PER_BLOCK = 200.0
_HALVINGS = 40


@cache
def _tables() -> tuple[tuple[int, ...], ...]:
    """Return a table for each word: by twelve bits of a hash, two positions in it. Made when first asked for: 18 ms."""
    return tuple(
        tuple((1 << (pair & 63) | 1 << (pair >> 6)) << (_WORD_BITS * word) for pair in range(1 << 12))
        for word in range(_WORDS)
    )


def masks_of(fingerprints: Iterable[int]) -> Iterator[int]:
    """Yield the bits of each fingerprint in its block, as one number."""
    a, b, c, d, e, f, g, h = _tables()
    for fingerprint in fingerprints:
        spread = (fingerprint & _LOW_64) * _SPREAD >> 32
        yield (
            a[spread & 4095]
            | b[spread >> 12 & 4095]
            | c[spread >> 24 & 4095]
            | d[spread >> 36 & 4095]
            | e[spread >> 48 & 4095]
            | f[spread >> 60 & 4095]
            | g[spread >> 72 & 4095]
            | h[spread >> 84 & 4095]
        )


def block_of(fingerprint: int, blocks: int) -> int:
    """Return the number of a fingerprint's block in a slice of so many."""
    return (fingerprint >> 32 & _LOW_32) * blocks >> 32


def error_share(number: int) -> float:
    """Return which part of a filter's error rate its slice with this number may use. All of them make one at most."""
    return _FIRST_SHARE if number == 0 else _LATER_SHARE * _TIGHTENING ** (number - 1)


def expected_rate(keys_per_block: float) -> float:
    """Return the error rate of a slice whose blocks hold so many fingerprints on average."""
    chance = math.exp(-keys_per_block)
    total = 0.0
    # The number of fingerprints in a block follows Poisson's law; the few full blocks make most of the mistakes.
    for keys in range(1, int(keys_per_block + 12 * math.sqrt(keys_per_block)) + 13):
        chance *= keys_per_block / keys
        one_clear = (1 - 1 / _WORD_BITS) ** (2 * keys)
        two_clear = (1 - 2 / _WORD_BITS) ** (2 * keys)
        both_set = (1 - one_clear) / _WORD_BITS + (1 - 1 / _WORD_BITS) * (1 - 2 * one_clear + two_clear)
        total += chance * both_set**_WORDS
    return total


def blocks_for(keys: int, error_rate: float) -> int:
    """Return how many blocks hold so many fingerprints within an error rate."""
    low, high = 0.0, _MAX_KEYS_PER_BLOCK
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_rate(middle) <= error_rate else (low, middle)
    return max(1, math.ceil(keys / low))


class BloomSlice:
    """One part of a filter, made for a number of fingerprints. It takes more, at a higher error rate."""

    __slots__ = ("bits", "blocks", "capacity", "keys")

    def __init__(self, capacity: int, blocks: int) -> None:
        self.capacity = capacity
        self.blocks = blocks
        self.keys = 0
        self.bits = bytearray(blocks * BLOCK_BYTES)

    def __repr__(self) -> str:
        return f"<BloomSlice {self.keys} of {self.capacity}, {len(self.bits)} bytes>"

    @property
    def room(self) -> int:
        """How many more fingerprints it is made for."""
        return max(0, self.capacity - self.keys)

    def add(self, fingerprints: Sequence[int]) -> None:
        """Take in fingerprints that are new to the filter."""
        bits, blocks = self.bits, self.blocks
        for fingerprint, mask in zip(fingerprints, masks_of(fingerprints), strict=True):
            start = ((fingerprint >> 32 & _LOW_32) * blocks >> 32) * BLOCK_BYTES
            end = start + BLOCK_BYTES
            block = int.from_bytes(bits[start:end], "little") | mask
            bits[start:end] = block.to_bytes(BLOCK_BYTES, "little")
        self.keys += len(fingerprints)


def next_slice(slices: Sequence[BloomSlice], error_rate: float, first_capacity: int) -> BloomSlice:
    """Return an empty slice to follow those that are full."""
    number = len(slices)
    capacity = slices[-1].capacity * 2 if slices else max(1, first_capacity)
    return BloomSlice(capacity, blocks_for(capacity, error_rate * error_share(number)))


def find(slices: Sequence[BloomSlice], fingerprints: Collection[int]) -> set[int]:
    """Return which fingerprints are in a filter: all that were added, and rarely one that was not."""
    # The last slices are the largest: what is known is most likely in them.
    parts = [(part.bits, part.blocks) for part in reversed(slices)]
    number = int.from_bytes
    found = set()
    for fingerprint, mask in zip(fingerprints, masks_of(fingerprints), strict=True):
        place = fingerprint >> 32 & _LOW_32
        for bits, blocks in parts:
            start = (place * blocks >> 32) * BLOCK_BYTES
            if number(bits[start : start + BLOCK_BYTES], "little") & mask == mask:
                found.add(fingerprint)
                break
    return found
