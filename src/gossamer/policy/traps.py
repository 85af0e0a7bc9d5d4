"""Places where a crawl would never end: loops, calendars, sessions, parameters and hosts without number.

Everything is judged by the shape of URLs and by how many of one shape there were, so nothing needs to be fetched
to be refused. What pages turn out to be comes back by `suspect` and `trust`: the room of a folder whose pages
repeat each other shrinks, and grows again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gossamer.config.settings import TrapSettings
from gossamer.model.url import host_of
from gossamer.policy.public_suffix import is_ip_address, registrable_domain

#: What a refusal begins with, before its colon, and what it means.
TRAPS: dict[str, str] = {
    "path_loop": "segments of the path repeat themselves, as relative links that lead nowhere make them do",
    "path_length": "the path is longer than those that people write",
    "path_depth": "the path has more segments than those that people make",
    "link_depth": "too many links away from every seed",
    "calendar": "a calendar that goes on for ever",
    "session": "a session's id in the URL: the same pages again for each session",
    "parameters": "too many parameters, or too many choices of them, for one path",
    "queries": "too many queries of one path",
    "folder": "too many URLs in one folder",
    "hosts": "too many hosts of one domain, or a host name that repeats itself",
}


@dataclass(slots=True)
class _Place:
    """Where URLs take room: a folder, a path with queries, a section, a calendar."""

    trap: str
    prefix: str
    limit: int
    section: _Place | None = None
    count: int = 0
    #: By how much suspect pages outnumber the others, and what that leaves of the limit.
    suspicion: int = 0
    room: int = field(init=False)
    #: Hashes of what is counted once: of a query's parameter names, whether they may carry a session, or a date.
    members: dict[int, tuple[bool, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.room = self.limit


class TrapGuard:
    """Counts the URLs it lets pass, and refuses those that look like more of the same.

    * A URL counts once; asked again, it passes again. A refused one takes no room.
    * The same URLs in the same order are judged the same way.
    * Memory is bounded: prefixes and URLs that were out of use for the longest start anew.
    """

    def __init__(self, settings: TrapSettings) -> None:
        self._settings = settings
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._places = _Places(settings.remembered_prefixes)
        self._most_suspicion = settings.suspects_per_halving * settings.max_urls_per_section.bit_length()

    def refusal(self, url: str, depth: int) -> str:
        """Return why a canonical URL found `depth` links away from a seed is a trap, or an empty string.

        The reason is one of `TRAPS`, a colon and a short detail.
        """
        identity = hash(url)
        if identity in self._young or identity in self._old:
            return ""
        if depth > self._settings.max_link_depth:
            return f"link_depth: {depth:,} links from a seed"
        mark = url.find("?")
        reason = self._enter_folder(url, depth) if mark < 0 else self._enter_queries(url, mark + 1, depth)
        if not reason:
            self._young.add(identity)
            if len(self._young) >= self._settings.remembered_urls:
                self._old, self._young = self._young, set()
        return reason

    def suspect(self, url: str) -> None:
        """Note that a page is a near duplicate or a soft 404: there is less room for URLs beside it."""
        self._doubt(url, 1)

    def trust(self, url: str) -> None:
        """Note that a page is unlike the others: it makes up for a suspect one."""
        self._doubt(url, -1)

    def _doubt(self, url: str, change: int) -> None:
        settings = self._settings
        mark = url.find("?") + 1
        place = self._places.get(url[:mark] if mark else _folder(url))
        # What its queries are like says nothing about the other pages of a section.
        for one in (place, place.section if place and not mark else None):
            if one is not None:
                one.suspicion = min(max(one.suspicion + change, 0), self._most_suspicion)
                halved = one.limit >> one.suspicion // settings.suspects_per_halving
                one.room = min(one.limit, max(halved, settings.min_suspect_urls))

    # -- one URL ---------------------------------------------------------------------------------------

    def _enter_folder(self, url: str, depth: int) -> str:
        prefix = _folder(url)
        place = self._places.get(prefix) or self._open("folder", prefix, self._settings.max_urls_per_folder)
        if isinstance(place, str):
            return place
        leaf = url[len(prefix) :].rstrip("/")
        # The folder's own path was judged when it was opened.
        if len(url) > self._settings.max_path_bytes or ";" in leaf or f"/{leaf}/" in prefix:
            reason = leaf and self._path_refusal(url.removesuffix("/"))
            if reason:
                return reason
        if leaf[-1:].isdigit():
            dated = _DATED_PATH.search(url, max(len(url) - _DATED_PATH_CHARS, 0))
            if dated:
                return self._enter_calendar(f"{url[: dated.start()]} /date", place, depth)
        return _enter(place)

    def _enter_queries(self, url: str, start: int, depth: int) -> str:
        prefix = url[:start]
        place = self._places.get(prefix) or self._open("queries", prefix, self._settings.max_queries_per_path)
        if isinstance(place, str):
            return place
        query = url[start:]
        if len(query) > self._settings.max_query_bytes:
            return f"parameters: {len(query):,} bytes"
        names = [parameter.partition("=")[0] for parameter in query.split("&")]
        names.sort()
        shape = hash("&".join(names))
        traits = place.members.get(shape) or self._admit_shape(place, names, shape)
        if isinstance(traits, str):
            return traits
        may_be_session, dated = traits
        if may_be_session:
            session = _SESSION_IN_QUERY.search(query)
            if session and not self._is_own_session(url, session):
                return f"session: {_short(session[0])}"
        if dated or ("-" in query and _DATED_VALUE.search(query)):
            return self._enter_calendar(prefix + " date", place, depth)
        return _enter(place)

    def _enter_calendar(self, prefix: str, place: _Place, depth: int) -> str:
        settings = self._settings
        if depth > settings.max_calendar_depth:
            return f"calendar: a date {depth:,} links from a seed"
        dates = self._places.get(prefix)
        dates = dates or self._places.put(_Place("calendar", prefix, settings.max_dates_per_path))
        if dates.count >= dates.room:
            return _full(dates)
        reason = _enter(place)
        dates.count += not reason
        return reason

    def _admit_shape(self, place: _Place, names: list[str], shape: int) -> tuple[bool, bool] | str:
        limit = self._settings.max_parameter_sets_per_path
        if len(names) > self._settings.max_parameters:
            return f"parameters: {len(names)} in one query"
        if len(place.members) >= limit:
            return f"parameters: more than {limit:,} choices of them in {_short(place.prefix)}"
        lowered = {name.lower() for name in names}
        traits = (not lowered.isdisjoint(_SESSION_NAMES), not lowered.isdisjoint(_CALENDAR_NAMES))
        place.members[shape] = traits
        self._places.grow()
        return traits

    # -- a new prefix ----------------------------------------------------------------------------------

    def _open(self, trap: str, prefix: str, limit: int) -> _Place | str:
        """Return a new place, or why there can be none.

        A path with queries takes room in its folder, and a section in the root: a trap that opens a new one for
        every page fills those.
        """
        reason, folder = self._path_refusal(prefix.rstrip("?")), prefix
        if trap == "queries":
            reason, folder = reason or self._enter_folder(prefix[:-1], 0), _folder(prefix[:-1])
        section = reason or self._section(folder)
        return section if isinstance(section, str) else self._places.put(_Place(trap, prefix, limit, section))

    def _section(self, folder: str) -> _Place | str | None:
        """Return the section of a folder, or why it can have none; None for the root."""
        end = folder.find("/", folder.index("/", _AUTHORITY) + 1)
        if end < 0:
            # The first folder of every host, so this is where hosts are judged.
            return self._host_refusal(folder) or None
        # With a space, which no URL has: an empty segment must not make it the key of the root.
        key = folder[:end] + " *"
        section = self._places.get(key) or self._enter_folder(folder[:end], 0)
        return section or self._places.put(_Place("folder", key, self._settings.max_urls_per_section))

    def _host_refusal(self, url: str) -> str:
        settings, host = self._settings, host_of(url)
        if is_ip_address(host):
            return ""
        labels = host.split(".")
        if len(labels) > settings.max_host_labels:
            return f"hosts: {len(labels)} labels in {_short(host)}"
        if any(labels.count(label) > settings.max_label_occurrences for label in labels):
            return f"hosts: labels repeat in {_short(host)}"
        domain = registrable_domain(host)
        if not self._places.admit("hosts", domain, host, settings.max_hosts_per_domain):
            return f"hosts: more than {settings.max_hosts_per_domain:,} of {_short(domain)}"
        return ""

    def _path_refusal(self, url: str) -> str:
        settings, path = self._settings, url[url.index("/", _AUTHORITY) :]
        if len(path) > settings.max_path_bytes:
            return f"path_length: {len(path):,} bytes"
        # A folder counts with the page in it: its last segment is empty.
        segments = path[1:].split("/")
        if len(segments) > settings.max_path_segments:
            return f"path_depth: {len(segments)} segments"
        if ";" in path or "(" in path:
            session = _SESSION_IN_PATH.search(path)
            if session and not self._is_own_session(url, session):
                return f"session: {_short(session[0])}"
        return _loop(segments, settings)

    def _is_own_session(self, url: str, session: re.Match[str]) -> bool:
        value = session[session.lastindex or 0]
        return self._places.admit("session", host_of(url), value, self._settings.max_sessions_per_host)


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


class _Places:
    """Places by prefix. Two generations bound them: when the young one is full, it becomes the old one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._filled = 0
        self._young: dict[str, _Place] = {}
        self._old: dict[str, _Place] = {}

    def get(self, prefix: str) -> _Place | None:
        place = self._young.get(prefix)
        if place is None and prefix in self._old:
            place = self.put(self._old.pop(prefix))
            if place.section is not None and self.get(place.section.prefix) is not place.section:
                self.put(place.section)
        return place

    def put(self, place: _Place) -> _Place:
        self.grow(1 + len(place.members))
        self._young[place.prefix] = place
        return place

    def grow(self, size: int = 1) -> None:
        """Note what was added: a place, or a member of one."""
        self._filled += size
        if self._filled > self._capacity:
            self._old, self._young, self._filled = self._young, {}, size

    def admit(self, trap: str, key: str, member: str, limit: int) -> bool:
        """Return whether the member is one of the first `limit` of its key."""
        # With a space, which no URL has: not the prefix of a place for URLs.
        prefix = f"{trap} {key}"
        place = self.get(prefix) or self.put(_Place(trap, prefix, limit))
        identity = hash(member)
        if identity not in place.members:
            if len(place.members) >= limit:
                return False
            place.members[identity] = (False, False)
            self.grow()
        return True


def _enter(place: _Place) -> str:
    """Count a URL in a place and its section, or say which of them has no room."""
    section = place.section
    if place.count >= place.room:
        return _full(place)
    if section is not None:
        if section.count >= section.room:
            return _full(section)
        section.count += 1
    place.count += 1
    return ""


def _full(place: _Place) -> str:
    return f"{place.trap}: more than {place.room:,} in {_short(place.prefix)}"


def _folder(url: str) -> str:
    """Return what the page of a URL without query stands in; `/a/b/` is a page of `/a/`."""
    cut = url.rfind("/", _AUTHORITY, -1) + 1
    return url[:cut] if cut else url


def _loop(segments: list[str], settings: TrapSettings) -> str:
    """Name the segments that are repeated too often. Numbers may repeat: they are dates and coordinates."""
    repeats = settings.max_segment_repeats
    if len(segments) - len(set(segments)) < min(repeats, settings.max_segment_occurrences):
        return ""
    for segment in segments:
        if segments.count(segment) > settings.max_segment_occurrences and not segment.isdigit():
            return f"path_loop: /{_short(segment)} {segments.count(segment)} times"
    for period in range(1, len(segments) // (repeats + 1) + 1):
        run = 0
        for index in range(period, len(segments)):
            run = run + 1 if segments[index] == segments[index - period] else 0
            cycle = "/".join(segments[index - period + 1 : index + 1])
            if run >= period * repeats and not cycle.replace("/", "").isdigit():
                return f"path_loop: /{_short(cycle)} {repeats + 1} times in a row"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


#: The shortest http URL is `http://h/`: no slash of the path can come before this index.
_AUTHORITY = 8
_SURE = "aspsessionid|cfid|cftoken|jsessionid|oscsid|phpsessid|sessionid|session_id|sessid|zenid"
#: Names that mean other things as well: a session only with what can hardly be anything else.
_LIKELY = "s|sess|session|sid"
_SESSION_NAMES = frozenset(f"{_SURE}|{_LIKELY}".split("|"))
_SESSION_IN_QUERY = re.compile(
    rf"(?i)(?<![^&])(?:(?:{_SURE})=([^&]{{6,256}})|(?:{_LIKELY})=([0-9a-f]{{24,128}})(?![^&]))"
)
#: Also ASP.NET's `/(S(…))/`.
_SESSION_IN_PATH = re.compile(rf"(?i);(?:{_SURE}|session|sid)=([^;/]{{6,256}})|/\(s\((\w{{16,64}})\)\)")
_CALENDAR_NAMES = frozenset(["cal", "date", "day", "month", "week"])
_YEAR, _MONTH, _DAY = r"[12]\d{3,4}", r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_DATED_VALUE = re.compile(rf"={_YEAR}-{_MONTH}(?:-{_DAY})?(?![^&])")
_DATED_PATH = re.compile(rf"/{_YEAR}[/-]{_MONTH}(?:[/-]{_DAY})?/?$")
_DATED_PATH_CHARS = len("/12345/12/12/")

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
