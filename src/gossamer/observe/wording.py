"""Numbers and foreign text as people read them: short, steady in width, and harmless to a terminal."""

from __future__ import annotations

#: Longer text from outside is cut: nothing worth reading on a terminal is longer.
MAX_TEXT = 1000


def spelled_out(text: str, keep: str = "") -> str:
    r"""Return text in one line with control, format and other invisible characters spelled out, as in `\x1b`.

    So a host name or a server's message can neither move the cursor, nor recolour the screen, nor turn the
    reading direction, nor begin a line of its own. Everything that is shown to people passes through here.
    Characters in `keep` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str, limit: int = MAX_TEXT) -> str:
    """Return text spelled out, and cut where nobody would read on."""
    return spelled_out(text if len(text) <= limit else text[: limit - 1] + "…")


def number_text(number: int) -> str:
    """Return a count in at most seven characters or so: `12,345`, `1.23 M`."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:,}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 host`, `1,200 hosts`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def bytes_text(number: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} bytes" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def rate_text(per_second: float) -> str:
    """Return a rate with as many digits as it can vouch for: `0.25`, `48.2`, `1,930`."""
    if per_second < 1:
        return f"{per_second:.2f}"
    return f"{per_second:.1f}" if per_second < 1000 else f"{per_second:,.0f}"


def duration_text(seconds: float) -> str:
    """Return a duration to the second: `7 s`, `2 min 07 s`, `1 h 05 min`, `3 d 4 h`."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
