"""What a user may have meant by a word that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` for a near miss, else nothing."""
    import difflib  # noqa: PLC0415 - for mistakes alone

    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
