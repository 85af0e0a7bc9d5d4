from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy.near_duplicates import (
    MAX_DISTANCE,
    MAX_TEXT_CHARS,
    NearIndex,
    _majority,
    distance,
    simhash,
)

BITS = 64
hashes = st.integers(0, 2**64 - 1)
few_bits = st.sets(st.integers(0, BITS - 1), max_size=MAX_DISTANCE)
#: Hashes around one: most pairs are between 0 and 8 bits apart.
crowded = st.sets(st.integers(0, BITS - 1), max_size=4).map(lambda bits: sum(1 << bit for bit in bits))


def words(seed: int, count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    chance = random.Random(seed)
    vocabulary = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(500)]
    return chance.choices(vocabulary, k=count)


def flipped(simhash: int, bits: set[int]) -> int:
    for bit in bits:
        simhash ^= 1 << bit
    return simhash


def near_by_search(stored: list[int], wanted: int) -> int:
    return min((distance(wanted, one) for one in stored), default=BITS)


# -- the hash --------------------------------------------------------------------------------------------


def test_the_hash_of_a_text_never_changes_since_it_is_stored() -> None:
    assert simhash("The quick brown fox jumps over the lazy dog") == 0x5280A7DEF425E7FC


def test_case_and_spacing_make_no_difference() -> None:
    assert simhash("One  two\n\tTHREE four") == simhash("one two three four")


def test_a_text_without_words_has_the_hash_zero() -> None:
    assert simhash("") == simhash(" \n\t") == 0


def test_a_long_text_with_a_few_other_words_is_near() -> None:
    text = words(1, 800)
    changed = [*text[:400], "changed", *text[401:]]
    assert distance(simhash(" ".join(text)), simhash(" ".join(changed))) <= MAX_DISTANCE


def test_unrelated_texts_are_far_from_each_other() -> None:
    found = [simhash(" ".join(words(seed, 300))) for seed in range(200)]
    apart = [distance(one, other) for one, other in pairwise(found)]
    assert min(apart) > 4 * MAX_DISTANCE
    assert 28 < sum(apart) / len(apart) < 36


def test_the_same_words_in_another_order_are_another_text() -> None:
    text = words(2, 300)
    assert distance(simhash(" ".join(text)), simhash(" ".join(sorted(text)))) > 4 * MAX_DISTANCE


def test_a_script_without_spaces_is_compared_by_its_characters() -> None:
    chance = random.Random(3)
    text = "".join(chr(chance.randint(0x4E00, 0x5000)) for _ in range(2000))
    other = "".join(chr(chance.randint(0x4E00, 0x5000)) for _ in range(2000))
    assert distance(simhash(text), simhash(text[:1000] + "字" + text[1000:])) <= MAX_DISTANCE
    assert distance(simhash(text), simhash(other)) > 4 * MAX_DISTANCE


def test_only_the_beginning_of_a_very_long_text_counts() -> None:
    text = ("word " * MAX_TEXT_CHARS)[:MAX_TEXT_CHARS]
    assert simhash(text + " tail" * 10_000) == simhash(text)


@given(st.text())
def test_any_text_has_a_hash_of_64_bits(text: str) -> None:
    assert 0 <= simhash(text) < 2**64
    assert simhash(text) == simhash(text)


def test_a_lone_surrogate_does_no_harm() -> None:
    assert 0 < simhash("one \ud800 two three") < 2**64


@given(st.lists(hashes, min_size=1, max_size=70))
def test_the_majority_of_each_bit_is_what_counting_finds(lanes: list[int]) -> None:
    counted = sum((sum(lane >> bit & 1 for lane in lanes) * 2 > len(lanes)) << bit for bit in range(BITS))
    packed = int.from_bytes(b"".join(lane.to_bytes(8, "little") for lane in lanes), "little")
    assert _majority(packed, len(lanes)) == counted


# -- the index -------------------------------------------------------------------------------------------


@given(hashes, few_bits, st.lists(hashes, max_size=20))
def test_whatever_differs_in_at_most_three_bits_is_found(
    stored: int, bits: set[int], others: list[int]
) -> None:
    index = NearIndex(100)
    for one in (*others, stored):
        index.add(one)
    match = index.find(flipped(stored, bits))
    assert match is not None
    assert match.distance <= len(bits)


def test_every_choice_of_up_to_three_bits_is_found() -> None:
    index = NearIndex(1)
    stored = 0x0123_4567_89AB_CDEF
    index.add(stored, 7)
    for first in range(BITS):
        for second in range(first, BITS):
            for third in range(second, BITS):
                bits = {first, second, third}
                assert index.find(flipped(stored, bits)) == (stored, 7, len(bits))


def test_four_bits_are_too_many_wherever_they_stand() -> None:
    index = NearIndex(5)
    for number in range(3):
        index.add(number << 60, number)
    for bits in ({0, 1, 2, 3}, {0, 16, 32, 48}, {7, 20, 21, 22}):
        assert index.find(flipped(0, bits)) is None


@given(st.lists(crowded, max_size=60), crowded)
def test_the_index_finds_exactly_what_a_search_through_its_last_hashes_does(
    found: list[int], wanted: int
) -> None:
    capacity = 16
    index = NearIndex(capacity)
    held: list[int] = []
    for one in found:
        index.add(one)
        if one not in held:
            held = [*held, one][-capacity:]
    assert len(index) == len(held)
    for asked in (wanted, *found):
        match = index.find(asked)
        nearest = near_by_search(held, asked)
        assert (match.distance if match else BITS) == (nearest if nearest <= MAX_DISTANCE else BITS)


def test_the_nearest_is_found_and_the_newest_of_equals() -> None:
    index = NearIndex(10)
    index.add(0b0011, 1)
    index.add(0b1000, 2)
    index.add(0b0001, 3)
    assert index.find(0) == (0b0001, 3, 1)
    assert index.find(0b1011) == (0b0011, 1, 1)


def test_a_hash_that_is_held_keeps_its_place_and_its_label() -> None:
    index = NearIndex(2)
    for simhash_, label in ((1, 1), (1 << 40, 2), (1, 3)):
        index.add(simhash_, label)
    assert (len(index), index.find(1)) == (2, (1, 1, 0))


def test_the_oldest_leaves_when_the_index_is_full() -> None:
    index = NearIndex(3)
    for number in range(1, 6):
        index.add(0xFFFF << (number * 10) & 2**64 - 1, number)
    assert len(index) == 3
    assert index.find(0xFFFF << 10) is None
    assert index.find(0xFFFF << 30) == (0xFFFF << 30, 3, 0)


def test_a_crowded_bucket_gives_up_its_oldest_in_every_table() -> None:
    index = NearIndex(1000, max_bucket=8)
    chance = random.Random(4)
    crowd = [chance.getrandbits(48) << 16 for _ in range(100)]
    for one in crowd:
        index.add(one)
    assert len(index) == 8
    assert [index.find(one) is not None for one in crowd] == [False] * 92 + [True] * 8


def test_meeting_a_near_duplicate_names_the_first_and_stores_nothing() -> None:
    index = NearIndex(10)
    assert index.meet(0b111_000, 1) is None
    assert index.meet(0b111_001, 2) == (0b111_000, 1, 1)
    assert len(index) == 1


def test_an_index_survives_as_bytes_with_the_newest_that_fit() -> None:
    index = NearIndex(50)
    chance = random.Random(5)
    entries = [(chance.getrandbits(64), chance.getrandbits(63) - 2**62) for _ in range(80)]
    for one, label in entries:
        index.add(one, label)
    data = index.to_bytes()
    assert NearIndex.from_bytes(data, 50).to_bytes() == data
    smaller = NearIndex.from_bytes(data, 10)
    assert [smaller.find(one) for one, _ in entries[-11:]] == [
        None,
        *((*entry, 0) for entry in entries[-10:]),
    ]


@pytest.mark.parametrize("data", [b"", b"something else", NearIndex(1).to_bytes() + b"1234567"])
def test_other_bytes_are_no_index(data: bytes) -> None:
    with pytest.raises(ValueError, match="cut short"):
        NearIndex.from_bytes(data)


@pytest.mark.parametrize(("capacity", "max_bucket"), [(0, 1), (1, 0), (1, 65_536)])
def test_an_index_without_room_is_refused(capacity: int, max_bucket: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        NearIndex(capacity, max_bucket=max_bucket)
