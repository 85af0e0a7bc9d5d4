"""Pages that say the same as others: what of that goes into records, to the ledger, and to the guard against traps.

A page that nobody asks about costs one look into the guard's table. Text is compared only where the job asks for it,
and for some of the pages in places with many URLs: see `TrapGuard.watch`.
"""

from __future__ import annotations

import re

import msgspec
from xxhash import xxh3_64_intdigest

from gossamer.config.settings import Settings
from gossamer.model.outcome import Content
from gossamer.model.page import Facts
from gossamer.model.response import Response
from gossamer.policy.near_duplicates import MAX_TEXT_CHARS, NearIndex, simhash
from gossamer.policy.soft_404 import looks_like_soft_404
from gossamer.policy.traps import Place, TrapGuard

_NUMBERS = re.compile(r"\d+")
#: As a share of the words.
_FEW_NUMBERS = 0.1
_COMPARED_HEADINGS = 5
_MARKUP = ("text/html", "text/xml")


class Question(msgspec.Struct, frozen=True):
    """What is to be found out about one page. `place` is where it stands, if its like are watched there."""

    wants_text: bool
    place: Place | None = None


class Sameness:
    """Compares pages. `guard` hears what pages of crowded places are like; None where nobody follows links."""

    def __init__(self, settings: Settings, guard: TrapGuard | None) -> None:
        record = settings.record
        self._guard = guard
        self._in_records = record.near_duplicates
        self._skip = record.skip_duplicates
        self._always = Question(self._in_records or self._skip == "near")
        self._remembered = settings.traps.remembered_pages
        self._texts: NearIndex | None = None

    def question(self, url: str, status: int) -> Question:
        """Say before a page is read what will be asked about it."""
        place = self._guard.watch(url) if self._guard is not None and 200 <= status < 300 else None
        return self._always if place is None else Question(wants_text=True, place=place)

    def simhash(self, asked: Question, answer: Response, facts: Facts) -> int:
        """Return the hash of the text, 0 where there is none or nobody asked, and tell the guard about the page."""
        if not asked.wants_text:
            return 0
        if asked.place is not None and self._guard is not None and facts.text:
            is_suspect = self._is_suspect(asked.place, answer.status, facts)
            (self._guard.suspect if is_suspect else self._guard.trust)(asked.place)
        return simhash(facts.text or _plain_text(answer)) if self._always.wants_text else 0

    def _is_suspect(self, place: Place, status: int, facts: Facts) -> bool:
        if self._texts is None:
            self._texts = NearIndex(self._remembered)
        # On many sites all pages are nearly the same, so much of each is menu. What is called by another name, but for
        # numbers, is another page. The mask keeps distances within its kind, and makes all others large.
        names = _NUMBERS.sub("", " ".join([facts.title, *facts.headings[:_COMPARED_HEADINGS]]))
        mask = xxh3_64_intdigest(f"{place.prefix} {names}".encode("utf-8", "replace"))
        seen_before = self._texts.meet(simhash(_without_counters(facts.text)) ^ mask) is not None
        return seen_before or looks_like_soft_404(facts.title, len(facts.text), status)

    def in_record(self, likeness: int) -> str | msgspec.UnsetType:
        """Return the hash as records have it, where they have it."""
        return f"{likeness:016x}" if self._in_records and likeness else msgspec.UNSET

    def content(self, answer: Response, digest: bytes, likeness: int) -> Content | None:
        """Return what the ledger tells equal pages by; None where it need not, or for no success or an empty page."""
        if self._skip == "none" or not answer.body or not 200 <= answer.status < 300:
            return None
        exact = int.from_bytes(digest[:8], "big", signed=True)
        return Content(exact, likeness if self._skip == "near" and likeness else None)


def _without_counters(text: str) -> str:
    """Return a text without its numbers where they are few: in prose they count, in a table they are what it says."""
    without, numbers = _NUMBERS.subn("", text)
    return without if numbers <= text.count(" ") * _FEW_NUMBERS else text


def _plain_text(answer: Response) -> str:
    """Return the beginning of what is text and no markup. One character a byte: any charset will do to compare by."""
    kind = answer.header("content-type").lower().lstrip()
    if not kind.startswith("text/") or kind.startswith(_MARKUP):
        return ""
    return answer.body[:MAX_TEXT_CHARS].decode("latin-1")
