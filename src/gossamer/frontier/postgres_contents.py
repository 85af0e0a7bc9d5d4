"""Which page first had a content, in a PostgreSQL ledger. Only under the lock of a job's books: see `lock_books`."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.frontier.postgres_arrays import Bigints, Integers, Texts
from gossamer.frontier.postgres_books import lock_books
from gossamer.frontier.postgres_pool import Query, Session
from gossamer.model.outcome import Content, Settled, Visit
from gossamer.policy.near_duplicates import MAX_DISTANCE, blocks, distance

_UNSIGNED = 1 << 64
#: Contents looked at for one block of a simhash; what is behind so many is not found.
_MAX_SHARING = 20_000

_OWNERS = """
    SELECT c.hash, c.url FROM unnest(%s::bigint[]) AS w(hash)
    CROSS JOIN LATERAL (SELECT hash, url FROM contents WHERE job = %s::integer AND hash = w.hash OFFSET 0) c
"""
_NEAR = """
    SELECT w.place, n.simhash, n.hash, c.url
    FROM unnest(%s::integer[], %s::integer[], %s::bigint[]) AS w(place, block, simhash)
    CROSS JOIN LATERAL (
        SELECT simhash, hash FROM near_contents WHERE job = %s::integer AND block = w.block LIMIT %s
    ) n
    CROSS JOIN LATERAL (SELECT url FROM contents WHERE job = %s::integer AND hash = n.hash OFFSET 0) c
    WHERE bit_count((n.simhash # w.simhash)::bit(64)) <= %s
"""
_TAKE = """
    INSERT INTO contents(job, hash, url) SELECT %s::integer, * FROM unnest(%s::bigint[], %s::text[]) ON CONFLICT DO NOTHING
"""
_TAKE_NEAR = """
    INSERT INTO near_contents(job, block, simhash, hash)
    SELECT %s::integer, * FROM unnest(%s::integer[], %s::bigint[], %s::bigint[]) ON CONFLICT DO NOTHING
"""


async def claim(session: Session, job: int, winners: Sequence[Visit]) -> tuple[dict[int, str], list[Query]]:
    """Give contents that nobody has to these pages, in their order.

    Returns the others, by fingerprint, with what they repeat, and what must be written.
    """
    asking = [
        (visit.known.request.fingerprint, visit.known.request.url, visit.content)
        for visit in winners
        if visit.content is not None and visit.record and isinstance(visit.outcome, Settled)
    ]
    if not asking:
        return {}, []
    contents = [content for _, _, content in asking]
    exact = Query(_OWNERS, (Bigints([content.exact for content in contents]), job))
    # Each statement sees what was committed before it began: the lock must be one of its own.
    _, owners, near = await session.run(lock_books(job), exact, _near(job, contents))
    claims = _Claims(dict(owners.rows))
    for place, simhash, hash_, url in near.rows:
        claims.stored.setdefault(place, []).append((simhash % _UNSIGNED, hash_, url))
    repeats = {}
    for place, (fp, url, content) in enumerate(asking):
        repeated = claims.repeated(place, content, url)
        if repeated:
            repeats[fp] = repeated
        else:
            claims.take(content, url)
    return repeats, _writes(job, claims.taken)


class _Claims:
    """Who has which content: what the tables say, and what this batch has taken so far."""

    def __init__(self, owners: dict[int, str]) -> None:
        self.owners = owners
        #: By the place of a page in the batch, what of the tables is near it: simhash, exact hash, URL.
        self.stored: dict[int, list[tuple[int, int, str]]] = {}
        self.taken: list[tuple[Content, str]] = []

    def repeated(self, place: int, content: Content, url: str) -> str:
        """Name the page that has the content; empty where there is none but the one that asks."""
        owner = self.owners.get(content.exact, "")
        if owner:
            return f"same as {owner}" if owner != url else ""
        owner = self._nearest_owner(place, content.near) if content.near is not None else ""
        return f"nearly the same as {owner}" if owner not in {"", url} else ""

    def _nearest_owner(self, place: int, simhash: int) -> str:
        fresh = [(taken.near, taken.exact, url) for taken, url in self.taken if taken.near is not None]
        near = [
            (bits, exact, url)
            for other, exact, url in [*self.stored.get(place, ()), *fresh]
            if (bits := distance(other, simhash)) <= MAX_DISTANCE
        ]
        return min(near)[2] if near else ""

    def take(self, content: Content, url: str) -> None:
        """Give the content to a page."""
        self.owners.setdefault(content.exact, url)
        self.taken.append((content, url))


def _near(job: int, contents: Sequence[Content]) -> Query:
    asked = [
        (place, block, _signed(content.near))
        for place, content in enumerate(contents)
        if content.near is not None
        for block in _places(content.near)
    ]
    places, keys, hashes = zip(*asked, strict=True) if asked else ((), (), ())
    columns = Integers(places), Integers(keys), Bigints(hashes)
    return Query(_NEAR, (*columns, job, _MAX_SHARING, job, MAX_DISTANCE))


def _writes(job: int, taken: Sequence[tuple[Content, str]]) -> list[Query]:
    exact = Bigints([content.exact for content, _ in taken])
    queries = [Query(_TAKE, (job, exact, Texts([url for _, url in taken])))]
    near = [
        (block, _signed(content.near), content.exact)
        for content, _ in taken
        if content.near is not None
        for block in _places(content.near)
    ]
    if near:
        keys, hashes, owners = zip(*near, strict=True)
        queries.append(Query(_TAKE_NEAR, (job, Integers(keys), Bigints(hashes), Bigints(owners))))
    return queries


def _places(simhash: int) -> list[int]:
    """Return the four keys a simhash is filed under: which block it is, and its 16 bits."""
    return [number << 16 | block for number, block in enumerate(blocks(simhash))]


def _signed(simhash: int) -> int:
    """Return 64 bits as PostgreSQL stores them."""
    return simhash - _UNSIGNED if simhash >= _UNSIGNED >> 1 else simhash
