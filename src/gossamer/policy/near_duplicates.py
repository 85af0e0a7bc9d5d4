"""Pages that say nearly the same: a 64-bit simhash of their text, and an index of the hashes met so far.

Texts that differ in a few words have hashes that differ in a few bits; unrelated ones differ in about 32.
Very short texts are all or nothing: one other word changes most of their shingles.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xxhash import xxh3_64_digest

#: Two texts are near duplicates if their hashes differ in at most this many bits.
MAX_DISTANCE = 3
#: What follows in a longer text is not looked at.
MAX_TEXT_CHARS = 50_000
#: Words that are longer on average than this come from a script without spaces: its characters are the words.
_LONG_WORD_CHARS = 20

_LANE_BITS = 64
_LANE = (1 << _LANE_BITS) - 1

_MAGIC = b"gossamer near 1\n"
_ENTRY = struct.Struct("<Qq")
_BLOCK_BITS = 16
_BLOCK = (1 << _BLOCK_BITS) - 1
#: One more block than bits may differ, so at least one block of a near duplicate is the same.
_TABLES = range(MAX_DISTANCE + 1)


def simhash(text: str) -> int:
    """Return 64 bits over the 3-word shingles of a text, whatever its case and spacing; 0 if it has no words.

    The same in every process and on every machine.
    """
    words = _words(text[:MAX_TEXT_CHARS].lower())
    if not words:
        return 0
    shingles = max(len(words) - 2, 1)
    hashes = int.from_bytes(b"".join(map(xxh3_64_digest, words)), "little")
    # A shingle's hash mixes those of its words, each rotated by its place: all shingles in a few operations on
    # one long integer, a lane of 64 bits for each.
    lanes = sum(1 << (_LANE_BITS * exponent) for exponent in ()) if False else _lane_ones(shingles)
    mixed = hashes ^ _rotated(hashes >> _LANE_BITS, 21, lanes) ^ _rotated(hashes >> 2 * _LANE_BITS, 42, lanes)
    return _majority(mixed & (lanes * _LANE), shingles)


def distance(one: int, other: int) -> int:
    """Return the number of bits in which two hashes differ."""
    return (one ^ other).bit_count()
