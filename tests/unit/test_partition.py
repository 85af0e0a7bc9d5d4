from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy.partition import own_parts

PARTS = 64
NAMES = st.sets(st.text("abcdef0123456789", min_size=12, max_size=12), min_size=1, max_size=8)


def owners(workers: set[str]) -> dict[int, str]:
    """Return the owner of each part; a part with two of them, or none, fails."""
    pairs = [(part, worker) for worker in workers for part in own_parts(worker, workers, PARTS)]
    assert sorted(part for part, _ in pairs) == list(range(PARTS))
    return dict(pairs)


@given(NAMES)
def test_every_part_has_one_owner_whoever_is_there(workers: set[str]) -> None:
    owners(workers)


@given(NAMES, st.text("abcdef0123456789", min_size=12, max_size=12))
def test_who_comes_or_goes_moves_only_parts_of_its_own(workers: set[str], other: str) -> None:
    before, after = owners(workers - {other} or {"0"}), owners((workers - {other} or {"0"}) | {other})
    assert all(after[part] in {owner, other} for part, owner in before.items())


def test_parts_are_shared_about_equally() -> None:
    workers = [f"worker{number}" for number in range(8)]
    sizes = [len(own_parts(worker, workers, 512)) for worker in workers]
    assert sum(sizes) == 512
    assert min(sizes) > 32
    assert max(sizes) < 128


def test_a_worker_counts_itself_whether_it_is_named_or_not() -> None:
    assert own_parts("a", [], PARTS) == own_parts("a", ["a"], PARTS) == frozenset(range(PARTS))
    assert own_parts("a", ["b"], PARTS) == own_parts("a", ["b", "a", "a"], PARTS)
