"""Places where a crawl would never end: loops, calendars, sessions, parameters and hosts without number.

Everything is judged by the shape of URLs and by how many of one shape there were, so nothing needs to be fetched
to be refused. Where there are many, some of the pages are to be looked at (`watch`), and what they turn out to be
comes back by `suspect` and `trust`: the room of a place whose pages repeat each other shrinks, and grows again.
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
class Place:
    """Where URLs take room: a folder, a path with queries, one choice of its parameters, a section, a calendar."""

    trap: str
    prefix: str
    limit: int
    section: Place | None = None
    #: Of a choice of parameters: whether they may carry a session, or a date.
    may_be_session: bool = False
    dated: bool = False
    count: int = 0
    #: Pages met since there are many, by which it is decided whether one is looked at.
    met: int = 0
    #: By how much suspect pages outnumber the others, and what that leaves of the limit.
    suspicion: int = 0
    room: int = field(init=False)
    #: What is counted once, by its hash: choices of parameters, which are places too; sessions; hosts.
    members: dict[int, Place | None] = field(default_factory=dict)

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

    def watch(self, url: str) -> Place | None:
        """Return the place of a fetched page if the page should be looked at; None for most.

        Only where there are `suspect_from_urls` URLs, and then one page in `compare_every_pages`, or every page while
        there is suspicion. The narrowest such place answers: what a calendar is like says nothing of its folder.
        """
        place = self._crowded(url)
        if place is None:
            return None
        place.met += 1
        return place if place.suspicion or place.met % self._settings.compare_every_pages == 0 else None

    def suspect(self, place: Place) -> None:
        """Note that a page of a place is a near duplicate or a soft 404: there is less room for others."""
        self._doubt(place, 1)

    def trust(self, place: Place) -> None:
        """Note that a page is unlike the others of its place: it makes up for a suspect one."""
        self._doubt(place, -1)

    def _doubt(self, place: Place, change: int) -> None:
        settings = self._settings
        place.suspicion = min(max(place.suspicion + change, 0), self._most_suspicion)
        halved = place.limit >> place.suspicion // settings.suspects_per_halving
        place.room = min(place.limit, max(halved, settings.min_suspect_urls))

    def _crowded(self, url: str) -> Place | None:
        many, mark = self._settings.suspect_from_urls, url.find("?") + 1
        place = self._places.get(url[:mark] if mark else _folder(url))
        if place is None:
            return None
        if mark:
            place = place.members.get(_shape(_names(url[mark:]))) if place.count >= many else None
            return place if place is not None and place.count >= many else None
        section = place.section
        if place.count < many and (section is None or section.count < many):
            return None
        dated = _dated(url) if url[-1].isdigit() or url[-2].isdigit() else None
        dates = self._places.get(_calendar_of(url, dated)) if dated else None
        if dates is not None and dates.count >= many:
            return dates
        return place if place.count >= many else section

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
            dated = _dated(url)
            if dated:
                return self._enter_calendar(_calendar_of(url, dated), place, depth)
        return _enter(place)

    def _enter_queries(self, url: str, start: int, depth: int) -> str:
        prefix = url[:start]
        place = self._places.get(prefix) or self._open("queries", prefix, self._settings.max_queries_per_path)
        if isinstance(place, str):
            return place
        query = url[start:]
        if len(query) > self._settings.max_query_bytes:
            return f"parameters: {len(query):,} bytes"
        names = _names(query)
        shape = _shape(names)
        alike = place.members.get(shape) or self._admit_shape(place, names, shape)
        if isinstance(alike, str):
            return alike
        if alike.may_be_session:
            session = _SESSION_IN_QUERY.search(query)
            if session and not self._is_own_session(url, session):
                return f"session: {_short(session[0])}"
        if alike.count >= alike.room:
            return _full(alike if alike.room < alike.limit else place)
        if alike.dated or ("-" in query and _DATED_VALUE.search(query)):
            reason = self._enter_calendar(prefix + " date", place, depth)
        else:
            reason = _enter(place)
        alike.count += not reason
        return reason

    def _enter_calendar(self, prefix: str, place: Place, depth: int) -> str:
        settings = self._settings
        if depth > settings.max_calendar_depth:
            return f"calendar: a date {depth:,} links from a seed"
        dates = self._places.get(prefix)
        dates = dates or self._places.put(Place("calendar", prefix, settings.max_dates_per_path))
        if dates.count >= dates.room:
            return _full(dates)
        reason = _enter(place)
        dates.count += not reason
        return reason

    def _admit_shape(self, place: Place, names: list[str], shape: int) -> Place | str:
        limit = self._settings.max_parameter_sets_per_path
        if len(names) > self._settings.max_parameters:
            return f"parameters: {len(names)} in one query"
        if len(place.members) >= limit:
            return f"parameters: more than {limit:,} choices of them in {_short(place.prefix)}"
        lowered = {name.lower() for name in names}
        alike = Place("queries", place.prefix + "&".join(names), place.limit)
        alike.may_be_session = not lowered.isdisjoint(_SESSION_NAMES)
        alike.dated = not lowered.isdisjoint(_CALENDAR_NAMES)
        place.members[shape] = alike
        self._places.grow()
        return alike

    # -- a new prefix ----------------------------------------------------------------------------------

    def _open(self, trap: str, prefix: str, limit: int) -> Place | str:
        """Return a new place, or why there can be none.

        A path with queries takes room in its folder, and a section in the root: a trap that opens a new one for
        every page fills those.
        """
        reason, folder = self._path_refusal(prefix.rstrip("?")), prefix
        if trap == "queries":
            reason, folder = reason or self._enter_folder(prefix[:-1], 0), _folder(prefix[:-1])
        section = reason or self._section(folder)
        return section if isinstance(section, str) else self._places.put(Place(trap, prefix, limit, section))

    def _section(self, folder: str) -> Place | str | None:
        """Return the section of a folder, or why it can have none; None for the root."""
        end = folder.find("/", folder.index("/", _AUTHORITY) + 1)
        if end < 0:
            # The first folder of every host, so this is where hosts are judged.
            return self._host_refusal(folder) or None
        # With a space, which no URL has: an empty segment must not make it the key of the root.
        key = folder[:end] + " *"
        section = self._places.get(key) or self._enter_folder(folder[:end], 0)
        return section or self._places.put(Place("folder", key, self._settings.max_urls_per_section))

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


class _Places:
    """Places by prefix. Two generations bound them: when the young one is full, it becomes the old one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._filled = 0
        self._young: dict[str, Place] = {}
        self._old: dict[str, Place] = {}

    def get(self, prefix: str) -> Place | None:
        place = self._young.get(prefix)
        if place is None and prefix in self._old:
            place = self.put(self._old.pop(prefix))
            if place.section is not None and self.get(place.section.prefix) is not place.section:
                self.put(place.section)
        return place

    def put(self, place: Place) -> Place:
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
        place = self.get(prefix) or self.put(Place(trap, prefix, limit))
        identity = hash(member)
        if identity not in place.members:
            if len(place.members) >= limit:
                return False
            place.members[identity] = None
            self.grow()
        return True


def _enter(place: Place) -> str:
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


def _full(place: Place) -> str:
    suspected = (
        " (pages there are nearly the same, or say that there is nothing)" if place.room < place.limit else ""
    )
    return f"{place.trap}: more than {place.room:,} in {_short(place.prefix)}{suspected}"


def _names(query: str) -> list[str]:
    return sorted(parameter.partition("=")[0] for parameter in query.split("&"))


def _shape(names: list[str]) -> int:
    return hash("&".join(names))


def _dated(url: str) -> re.Match[str] | None:
    """Return where the date begins that a path ends with."""
    return _DATED_PATH.search(url, max(len(url) - _DATED_PATH_CHARS, 0))


def _calendar_of(url: str, dated: re.Match[str]) -> str:
    return f"{url[: dated.start()]} /date"


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
