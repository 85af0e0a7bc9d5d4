"""Columns of values as PostgreSQL's binary arrays, packed many at a time: some ten times as fast as one by one.

A batch is written by a few statements that each take whole columns (`unnest`), so that they fit into a pipeline.
COPY does not, and needs a staging table besides.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence

#: Whatever PostgreSQL's text cannot hold becomes this: NUL, and halves of surrogate pairs.
REPLACEMENT = "\ufffd"

_HEAD = struct.Struct("!iiIii")
_EMPTY = struct.Struct("!iiI")
_length = struct.Struct("!i").pack
_NULL = _length(-1)


class Packed:
    """An array in PostgreSQL's binary form. Its subclass says of which type."""

    __slots__ = ("data",)
    #: The type of the array, and of what it holds, by the numbers PostgreSQL gives them.
    oid = 0
    element = 0

    def __init__(self, count: int, body: bytes | bytearray, *, has_null: bool = False) -> None:
        if count:
            self.data: bytes = _HEAD.pack(1, has_null, self.element, count, 1) + body
        else:
            self.data = _EMPTY.pack(0, 0, self.element)


class _Numbers(Packed):
    """Numbers of a fixed size."""

    __slots__ = ()
    code = ""

    def __init__(self, values: Iterable[float]) -> None:
        numbers = array(self.code, values)
        if sys.byteorder == "little":
            numbers.byteswap()
        raw, size = numbers.tobytes(), numbers.itemsize
        step = size + 4
        body = bytearray(step * len(numbers))
        # Each has its size before it; byte by byte of all of them at once.
        body[3::step] = bytes((size,)) * len(numbers)
        for place in range(size):
            body[4 + place :: step] = raw[place::size]
        super().__init__(len(numbers), body)


class Bigints(_Numbers):
    """64-bit integers."""

    __slots__ = ()
    oid, element, code = 1016, 20, "q"


class Integers(_Numbers):
    """32-bit integers."""

    __slots__ = ()
    oid, element, code = 1007, 23, "i"


class Floats(_Numbers):
    """Double precision."""

    __slots__ = ()
    oid, element, code = 1022, 701, "d"


class _Pieces(Packed):
    """Byte strings of any length, or nothing."""

    __slots__ = ()

    def __init__(self, values: Sequence[bytes | None]) -> None:
        count = len(values)
        if count and values.count(values[0]) == count:
            # A column that says the same of every row, as most do that are about the exceptions.
            body = _piece(values[0]) * count
        else:
            body = b"".join([_piece(value) for value in values])
        super().__init__(count, body, has_null=None in values)


class Blobs(_Pieces):
    """Bytes."""

    __slots__ = ()
    oid, element = 1001, 17


class Jsonbs(_Pieces):
    """JSON texts, which the server takes apart."""

    __slots__ = ()
    oid, element = 3807, 3802

    def __init__(self, values: Sequence[bytes]) -> None:
        # Each has the version of its binary form before it.
        super().__init__([b"\1" + value for value in values])


class Texts(_Pieces):
    """Texts; what cannot be stored of them is replaced."""

    __slots__ = ()
    oid, element = 1009, 25

    def __init__(self, values: Sequence[str | None]) -> None:
        try:
            encoded = [None if value is None else value.encode() for value in values]
        except UnicodeEncodeError:
            encoded = [None if value is None else storable(value).encode() for value in values]
        if b"\0" in b"".join(filter(None, encoded)):
            encoded = [None if value is None else storable(value).encode() for value in values]
        super().__init__(encoded)


#: Every kind of array, for the driver.
KINDS: tuple[type[Packed], ...] = (Bigints, Integers, Floats, Blobs, Jsonbs, Texts)


def storable(text: str) -> str:
    """Return a text that PostgreSQL can hold."""
    if text.isascii() and "\0" not in text:
        return text
    return "".join(REPLACEMENT if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


def _piece(value: bytes | None) -> bytes:
    return _NULL if value is None else _length(len(value)) + value
