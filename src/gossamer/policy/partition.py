"""Who prefers what, where several workers share a schedule: rendezvous hashing."""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest


def own_parts(worker: str, workers: Iterable[str], parts: int) -> frozenset[int]:
    """Return the parts, of those numbered from 0, that `worker` ranks first for among all `workers`.

    Every worker that knows the same others comes to the same division: each part has one owner, and when a worker
    comes or goes, only the parts that it gets or had change hands.
    """
    me = worker.encode()
    others = [name.encode() for name in set(workers) - {worker}]
    return frozenset(part for part in range(parts) if _is_first(me, others, part))


def _is_first(me: bytes, others: list[bytes], part: int) -> bool:
    mine = xxh3_64_intdigest(me, part), me
    return all((xxh3_64_intdigest(other, part), other) < mine for other in others)
