"""Pages that answer with a success and say that there is nothing."""

from __future__ import annotations

import re

_MAX_SOFT_404_CHARS = 5000
_MAX_TITLE_CHARS = 300
_TITLE_PARTS = re.compile(r"\s-+\s|[|:\u2013\u2014\u00b7\u2022\u00ab\u00bb]")
_WORDS = re.compile(r"\w+")
_FILLER = re.compile(
    "404|a|be|error|erreur|fehler|oops|page|requested|seite|sorry|the|this|url|p[aá]gina|страница"
)
#: What such titles say, without the fillers.
_NOTHING_HERE = re.compile(
    "(?:(?:file|content|document|article|product) )?(?:you (?:are|were) looking for )?(?:(?:was|is|could|can) )?not found"
    "|cannot found|(?:does not|doesn t) exist|is no longer available"
    "|(?:die )?(?:wurde )?nicht gefunden|introuvable|non trouvée|n(?:o|ão) encontrad[ao]|non trovata|niet gevonden"
    "|sidan hittades inte|siden blev ikke fundet|strona nie istnieje|nie znaleziono strony|stránka nenalezena|не найдена"
    "|ページが見つかりません|页面不存在|找不到页面|페이지를 찾을 수 없습니다"
)


def looks_like_soft_404(title: str, text_length: int, status: int) -> bool:
    """Whether a page answers with a success but says by its title that there is nothing here.

    Only short pages (`text_length` in characters) whose title, or a part of it between dashes or bars, is such a
    message and nothing else: an article about the error 404 is none.
    """
    if not 200 <= status < 300 or text_length > _MAX_SOFT_404_CHARS:
        return False
    for part in _TITLE_PARTS.split(title[:_MAX_TITLE_CHARS].lower()):
        words = _WORDS.findall(part)
        message = " ".join(word for word in words if not _FILLER.fullmatch(word))
        if _NOTHING_HERE.fullmatch(message) or (not message and "404" in words):
            return True
    return False
