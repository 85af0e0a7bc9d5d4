"""Pages that say nearly the same: a 64-bit simhash of their text, and an index of the hashes met so far.

Texts that differ in a few words have hashes that differ in a few bits; unrelated ones differ in about 32.
Short texts are all or nothing: in ten words, one other word changes a third of the shingles.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_64_digest

#: Two texts are near duplicates if their hashes differ in at most this many bits.
MAX_DISTANCE = 3
#: What follows in a longer text is not looked at.
MAX_TEXT_CHARS = 50_000
#: Words that are longer than this on average come from a script without spaces: its characters are the words.
_LONG_WORD_CHARS = 20

_LANE_BITS = 64
_LANE = (1 << _LANE_BITS) - 1
_LANE_ONE = (1).to_bytes(_LANE_BITS // 8, "little")

_MAGIC = b"gossamer near 1\n"
_ENTRY = struct.Struct("<Qq")
_BLOCK_BITS = 16
_BLOCKS = 1 << _BLOCK_BITS
#: One more block than bits may differ, so a near duplicate has at least one block in common.
_TABLES = MAX_DISTANCE + 1


def simhash(text: str) -> int:
    """Return 64 bits over the 3-word shingles of a text, whatever its case and spacing; 0 if it has no words.

    The same in every process and on every machine.
    """
    words = _words(text[:MAX_TEXT_CHARS].lower())
    if not words:
        return 0
    # All shingles at once: one long integer with a lane of 64 bits for each word. A shingle's hash mixes those
    # of its three words, each rotated by its place.
    hashes = int.from_bytes(b"".join(map(xxh3_64_digest, words)), "little")
    shingles = max(len(words) - 2, 1)
    ones = int.from_bytes(_LANE_ONE * shingles, "little")
    second = _rotated(hashes >> _LANE_BITS, 21, ones)
    third = _rotated(hashes >> 2 * _LANE_BITS, 42, ones)
    return _majority((hashes & ones * _LANE) ^ second ^ third, shingles)


def distance(one: int, other: int) -> int:
    """Return the number of bits in which two hashes differ."""
    return (one ^ other).bit_count()


class Match(NamedTuple):
    """A stored hash near the one that was asked for, and what it was stored for."""

    simhash: int
    label: int
    distance: int


class NearIndex:
    """The last `capacity` hashes; finds those within `MAX_DISTANCE` of another, and misses none it holds.

    Each hash stands in one bucket per table, by one of its four 16-bit blocks. A bucket is a chain through
    slots, newest first, so the memory is fixed: 32 bytes a hash and 1.5 MB. A hash leaves when its slot is
    needed again, or early when `max_bucket` newer ones share a block with it: pages made from one template
    crowd a few buckets, and a search must stay short.
    """

    def __init__(self, capacity: int = 100_000, *, max_bucket: int = 512) -> None:
        if capacity < 1 or not 1 <= max_bucket < _BLOCKS:
            raise ValueError("capacity and max_bucket must be positive, and max_bucket below 65,536")
        self._max_bucket = max_bucket
        # Slot 0 is the end of every chain.
        self._hashes = array("Q", bytes(8 * (capacity + 1)))
        self._labels = array("q", bytes(8 * (capacity + 1)))
        self._used = bytearray(capacity + 1)
        self._next = [array("I", bytes(4 * (capacity + 1))) for _ in range(_TABLES)]
        self._heads = [array("I", bytes(4 * _BLOCKS)) for _ in range(_TABLES)]
        self._sizes = [array("H", bytes(2 * _BLOCKS)) for _ in range(_TABLES)]
        self._newest = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<NearIndex {self._count} of {len(self._used) - 1}>"

    def find(self, simhash: int) -> Match | None:
        """Return the nearest stored hash within `MAX_DISTANCE`, the newest of equals."""
        hashes = self._hashes
        nearest, best = 0, MAX_DISTANCE + 1
        for table, block in enumerate(blocks(simhash)):
            following = self._next[table]
            slot = self._heads[table][block]
            while slot:
                bits = (hashes[slot] ^ simhash).bit_count()
                if bits < best or (bits == best and nearest and self._age(slot) < self._age(nearest)):
                    nearest, best = slot, bits
                slot = following[slot]
        return Match(hashes[nearest], self._labels[nearest], best) if nearest else None

    def add(self, simhash: int, label: int = 0) -> None:
        """Store a 64-bit hash with a signed 64-bit label. One that is held already keeps its label."""
        if self._holds(simhash):
            return
        slot = self._newest % (len(self._used) - 1) + 1
        self._remove(slot)
        for table, block in enumerate(blocks(simhash)):
            if self._sizes[table][block] >= self._max_bucket:
                self._remove(self._oldest(table, block))
        # Linked only now: making room may have changed any of the four chains.
        for table, block in enumerate(blocks(simhash)):
            self._next[table][slot] = self._heads[table][block]
            self._heads[table][block] = slot
            self._sizes[table][block] += 1
        self._hashes[slot] = simhash
        self._labels[slot] = label
        self._used[slot] = 1
        self._newest = slot
        self._count += 1

    def meet(self, simhash: int, label: int = 0) -> Match | None:
        """Return what `find` does; where there is nothing near, store the hash for those to come."""
        match = self.find(simhash)
        if match is None:
            self.add(simhash, label)
        return match

    def to_bytes(self) -> bytes:
        """Return all hashes and labels, oldest first: 16 bytes each."""
        entries = (_ENTRY.pack(self._hashes[slot], self._labels[slot]) for slot in self._slots())
        return _MAGIC + b"".join(entries)

    @classmethod
    def from_bytes(cls, data: bytes, capacity: int = 100_000, *, max_bucket: int = 512) -> NearIndex:
        """Return an index of what `to_bytes` wrote, or of the newest that fit. Raises `ValueError` for other bytes."""
        body = data[len(_MAGIC) :]
        if not data.startswith(_MAGIC) or len(body) % _ENTRY.size:
            raise ValueError("not an index of near duplicates, or cut short")
        index = cls(capacity, max_bucket=max_bucket)
        for simhash, label in _ENTRY.iter_unpack(body[-capacity * _ENTRY.size :]):
            index.add(simhash, label)
        return index

    def _slots(self) -> Iterator[int]:
        """Yield the used slots, oldest first."""
        capacity = len(self._used) - 1
        for step in range(capacity):
            slot = (self._newest + step) % capacity + 1
            if self._used[slot]:
                yield slot

    def _age(self, slot: int) -> int:
        return (self._newest - slot) % (len(self._used) - 1)

    def _holds(self, simhash: int) -> bool:
        slot = self._heads[0][simhash % _BLOCKS]
        while slot and self._hashes[slot] != simhash:
            slot = self._next[0][slot]
        return slot != 0

    def _oldest(self, table: int, block: int) -> int:
        following = self._next[table]
        slot = self._heads[table][block]
        while following[slot]:
            slot = following[slot]
        return slot

    def _remove(self, slot: int) -> None:
        if not self._used[slot]:
            return
        for table, block in enumerate(blocks(self._hashes[slot])):
            following = self._next[table]
            before, here = 0, self._heads[table][block]
            while here != slot:
                before, here = here, following[here]
            if before:
                following[before] = following[slot]
            else:
                self._heads[table][block] = following[slot]
            self._sizes[table][block] -= 1
        self._used[slot] = 0
        self._count -= 1


def _words(text: str) -> list[bytes]:
    words = text.encode("utf-8", "replace").split()
    if len(text) > _LONG_WORD_CHARS * len(words):
        return [character.encode("utf-8", "replace") for character in text if not character.isspace()]
    return words


def _rotated(lanes: int, bits: int, ones: int) -> int:
    """Rotate every lane that `ones` marks to the left; drop the others."""
    low = (1 << bits) - 1
    return (lanes << bits & ones * (_LANE ^ low)) | (lanes >> (_LANE_BITS - bits) & ones * low)


def _majority(lanes: int, count: int) -> int:
    """Return a lane with the bits that are set in more than half of `count` lanes.

    The counters of all 64 bits are added at once: plane n holds bit n of every counter, and the upper half of
    the lanes is added to the lower half, by full adders made of bitwise operations, until one lane is left.
    """
    planes = [lanes]
    width = 1 << (count - 1).bit_length()
    while width > 1:
        width >>= 1
        shift = width * _LANE_BITS
        lower_half = (1 << shift) - 1
        sums, carry = [], 0
        for plane in planes:
            lower, upper = plane & lower_half, plane >> shift
            either = lower ^ upper
            sums.append(either ^ carry)
            carry = (lower & upper) | (either & carry)
        planes = [*sums, carry]
    return _greater(planes, count // 2)


def _greater(planes: list[int], threshold: int) -> int:
    """Return a lane with the bits whose counters, given as planes, are greater than the threshold."""
    greater, equal = 0, _LANE
    for weight in reversed(range(len(planes))):
        plane = planes[weight]
        if threshold >> weight & 1:
            equal &= plane
        else:
            greater |= equal & plane
            equal &= ~plane
    return greater


def blocks(simhash: int) -> tuple[int, int, int, int]:
    """Return the four 16-bit blocks of a hash; hashes within `MAX_DISTANCE` have at least one in common."""
    block = _BLOCKS - 1
    return simhash & block, simhash >> 16 & block, simhash >> 32 & block, simhash >> 48
