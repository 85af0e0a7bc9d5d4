"""One event as one line of JSON that nothing inside it can break, forge or blow up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

#: Bounds of one value. A canonical URL is at most 4096 bytes, so none is cut.
MAX_TEXT = 8192
MAX_ITEMS = 100
MAX_DEPTH = 2
#: A line that is longer all the same keeps only its first fields.
MAX_LINE = 65_536

#: Made once: `json.dumps` would build an encoder for each line.
_encode = json.JSONEncoder(separators=(",", ":")).encode


def json_line(fields: Mapping[str, object]) -> str:
    """Return the fields as one line of ASCII JSON, in their order, without a line end; at most `MAX_LINE` long.

    Every character outside printable ASCII is escaped: no value can begin a line of its own or reach a
    terminal as a command. Values that JSON has no word for become text; NaN and infinity become null.
    Never raises.
    """
    known = {_text(str(key)): _plain(value, MAX_DEPTH) for key, value in islice(fields.items(), MAX_ITEMS)}
    line = _encode(known)
    while len(line) > MAX_LINE:
        # Rare and only for what nobody reads: the last field goes, and the line says so.
        known.pop("truncated", None)
        known.popitem()
        known["truncated"] = True
        line = _encode(known)
    return line


def _plain(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray):
        return _scalar(value)
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        items = islice(value.items(), MAX_ITEMS)
        return {_text(_spelled(key)): _plain(item, depth - 1) for key, item in items}
    if isinstance(value, Sequence | AbstractSet):
        return [_plain(item, depth - 1) for item in islice(value, MAX_ITEMS)]
    return _text(_spelled(value))


def _scalar(value: bool | float | str | bytes | bytearray | None) -> object:
    match value:
        case str():
            return _text(value)
        case bytes() | bytearray():
            return _text(value[:MAX_TEXT].decode(errors="replace"))
        case float():
            return value if math.isfinite(value) else None
        case int() if value.bit_length() > 63:
            # Most readers of JSON lose digits beyond 64 bits, and Python refuses to spell very long ones.
            return _text(hex(value))
    return value


def _spelled(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the boundary to foreign __str__: a log line must not end a run
        return f"<{type(value).__name__}>"


def _text(text: str) -> str:
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "…"
    if text.isascii():
        return text
    # Lone surrogates would be valid to this encoder and to no strict reader.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
