"""Places where a crawl would never end: loops, calendars, sessions, parameters and hosts without number.

Everything is judged by the shape of URLs and by how many of one shape there were, so nothing needs to be fetched
to be refused. What pages turn out to be comes back by `suspect` and `trust`: the room of a folder whose pages
repeat each other shrinks, and grows again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class TrapSettings:
    """From when on a shape is a trap. Counts are those of a run."""

    max_path_bytes: int = 1024
    max_path_segments: int = 25
    #: How often the same segments may stand in a row (`/a/b/a/b`), and one segment anywhere.
    max_segment_repeats: int = 2
    max_segment_occurrences: int = 4
    max_link_depth: int = 1000
    #: Pages of dates: how far from the seeds, and how many under one path. A year of days, a life of months.
    max_calendar_depth: int = 366
    max_dates_per_path: int = 3000
    #: The first session is taken for the crawler's own: some sites give no page without.
    max_sessions_per_host: int = 1
    max_query_bytes: int = 2048
    max_parameters: int = 20
    max_parameter_sets_per_path: int = 100
    max_queries_per_path: int = 20_000
    max_urls_per_folder: int = 50_000
    #: A section is all that is below the first segment of the path.
    max_urls_per_section: int = 500_000
    #: What is left of these three where all pages are suspect.
    min_urls: int = 200
    #: The room is halved whenever there are this many more suspect pages than others.
    suspects_per_halving: int = 4
    max_host_labels: int = 10
    max_label_occurrences: int = 2
    max_hosts_per_domain: int = 1000
    #: URLs that count once however often they are found, and prefixes whose counts are kept, at least.
    remembered_urls: int = 100_000
    remembered_prefixes: int = 50_000


class TrapGuard:
    """Counts the URLs it lets pass, and refuses those that look like more of the same.

    * A URL counts once; asked again, it passes again. Refused URLs count nowhere.
    * The same URLs in the same order are judged the same way.
    * Memory is bounded: the prefixes that were out of use for the longest start anew.
    """

    def __init__(self, settings: TrapSettings) -> None:
        self._settings = settings
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._tallies = _Tallies(settings.remembered_prefixes)
        self._parameter_sets = _Distinct(settings.remembered_prefixes)
        self._sessions = _Distinct(settings.remembered_prefixes)
        self._hosts = _Distinct(settings.remembered_prefixes)
        self._last_authority = ""
        self._most_suspicious = settings.suspects_per_halving * settings.max_urls_per_section.bit_length()

    def refusal(self, url: str, depth: int) -> str:
        """Return why a canonical URL found `depth` links away from a seed is a trap, or an empty string.

        The reason is one of `TRAPS`, a colon and a short detail.
        """
        identity = hash(url)
        if identity in self._young or identity in self._old:
            return ""
        start = url.index("//") + 2
        slash = url.index("/", start)
        authority = url[start:slash]
        path, _, query = url[slash:].partition("?")
        reason = (
            (authority != self._last_authority and self._host_refusal(authority))
            or self._path_refusal(authority, path, depth)
            or (query and self._query_refusal(authority, path, query.lower()))
            or self._take(authority, path, query, depth)
        )
        if reason:
            return reason
        self._young.add(identity)
        if len(self._young) >= self._settings.remembered_urls:
            self._old, self._young = self._young, set()
        return ""

    def suspect(self, url: str) -> None:
        """Note that a page is a near duplicate or a soft 404: there is less room for URLs beside it."""
        for tally in self._judged(url):
            tally.suspicion = min(tally.suspicion + 1, self._most_suspicious)

    def trust(self, url: str) -> None:
        """Note that a page is unlike the others: it makes up for a suspect one."""
        for tally in self._judged(url):
            tally.suspicion = max(tally.suspicion - 1, 0)

    # -- shapes ----------------------------------------------------------------------------------------

    def _host_refusal(self, authority: str) -> str:
        settings = self._settings
        host = authority if authority.endswith("]") else authority.partition(":")[0]
        if not is_ip_address(host):
            labels = host.split(".")
            if len(labels) > settings.max_host_labels:
                return f"hosts: {len(labels)} labels in {_short(host)}"
            repeated = next((one for one in labels if labels.count(one) > settings.max_label_occurrences), "")
            if repeated:
                return f"hosts: {_short(repeated)} is repeated in {_short(host)}"
            domain = registrable_domain(host)
            if not self._hosts.admit(domain, host, settings.max_hosts_per_domain):
                return f"hosts: more than {settings.max_hosts_per_domain:,} of {domain}"
        self._last_authority = authority
        return ""

    def _path_refusal(self, authority: str, path: str, depth: int) -> str:
        settings = self._settings
        if len(path) > settings.max_path_bytes:
            return f"path_length: {len(path):,} bytes"
        if depth > settings.max_link_depth:
            return f"link_depth: {depth:,} links from a seed"
        segments = path[1:].split("/")
        count = len(segments)
        if count > settings.max_path_segments:
            return f"path_depth: {count} segments"
        # Only a path with this many segments to spare can repeat any of them too often.
        if count - len(set(segments)) >= min(settings.max_segment_repeats, settings.max_segment_occurrences):
            loop = _loop(segments, settings)
            if loop:
                return loop
        if ";" in path or "(" in path:
            session = _SESSION_IN_PATH.search(path.lower())
            if session and not self._is_own_session(authority, session):
                return f"session: {_short(session[0])}"
        return ""

    def _query_refusal(self, authority: str, path: str, query: str) -> str:
        settings = self._settings
        if len(query) > settings.max_query_bytes:
            return f"parameters: {len(query):,} bytes"
        names = [parameter.partition("=")[0] for parameter in query.split("&")]
        if len(names) > settings.max_parameters:
            return f"parameters: {len(names)} in one query"
        names.sort()
        if not _SESSION_NAMES.isdisjoint(names):
            session = _SESSION_IN_QUERY.search(query)
            if session and not self._is_own_session(authority, session):
                return f"session: {_short(session[0])}"
        limit = settings.max_parameter_sets_per_path
        if not self._parameter_sets.admit(authority + path, "&".join(names), limit):
            return f"parameters: more than {limit:,} choices of them for {_short(path)}"
        return ""

    def _is_own_session(self, authority: str, session: re.Match[str]) -> bool:
        value = session[session.lastindex or 0]
        return self._sessions.admit(authority, value, self._settings.max_sessions_per_host)

    # -- counts ----------------------------------------------------------------------------------------

    def _take(self, authority: str, path: str, query: str, depth: int) -> str:
        """Count a URL in every place it belongs to, or say which of them has no room."""
        calendar = _calendar(authority, path, query)
        if calendar and depth > self._settings.max_calendar_depth:
            return f"calendar: a date {depth:,} links from a seed"
        places = self._places(authority, path, query, calendar)
        for trap, tally, limit in places:
            if tally.count >= limit or (tally.suspicion and tally.count >= self._room(tally, limit)):
                return f"{trap}: more than {self._room(tally, limit):,} in {_short(tally.prefix)}"
        for _, tally, _ in places:
            tally.count += 1
        return ""

    def _places(self, authority: str, path: str, query: str, calendar: str) -> list[tuple[str, _Tally, int]]:
        """Return where a URL takes room.

        A path with queries is an entry of its folder, and a section is one of the root: a trap that opens a new
        one for every page fills those.
        """
        settings, tally_of = self._settings, self._tallies.of
        places = []
        if calendar:
            places.append(("calendar", tally_of(calendar), settings.max_dates_per_path))
        if query:
            queries = tally_of(authority + path + "?")
            places.append(("queries", queries, settings.max_queries_per_path))
        if not query or not queries.count:
            places.append(("folder", tally_of(_folder(authority, path)), settings.max_urls_per_folder))
        section = _section(authority, path)
        if section:
            tally = tally_of(section)
            places.append(("folder", tally, settings.max_urls_per_section))
            if not tally.count:
                places.append(("folder", tally_of(authority + "/"), settings.max_urls_per_folder))
        return places

    def _room(self, tally: _Tally, limit: int) -> int:
        settings = self._settings
        return min(limit, max(settings.min_urls, limit >> tally.suspicion // settings.suspects_per_halving))

    def _judged(self, url: str) -> list[_Tally]:
        """Return what a page speaks for: its path's queries; or its folder, and its section."""
        prefix, mark, _ = url[url.index("//") + 2 :].partition("?")
        if mark:
            return [self._tallies.of(prefix + mark)]
        slash = prefix.index("/")
        authority, path = prefix[:slash], prefix[slash:]
        section = _section(authority, path)
        places = (_folder(authority, path), section) if section else (_folder(authority, path),)
        return [self._tallies.of(place) for place in places]


class _Tally:
    """How many URLs a prefix has, and by how much its suspect pages outnumber the others."""

    __slots__ = ("count", "prefix", "suspicion")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.count = 0
        self.suspicion = 0


class _Tallies:
    """The tallies in use. Two generations bound them: when the young one is full, it becomes the old one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._young: dict[str, _Tally] = {}
        self._old: dict[str, _Tally] = {}

    def of(self, prefix: str) -> _Tally:
        tally = self._young.get(prefix)
        if tally is None:
            if len(self._young) >= self._capacity:
                self._old, self._young = self._young, {}
            tally = self._young[prefix] = self._old.pop(prefix, None) or _Tally(prefix)
        return tally


class _Distinct:
    """Up to a limit of distinct members for each key; bounded by members, in two generations."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._young: dict[str, set[int]] = {}
        self._old: dict[str, set[int]] = {}

    def admit(self, key: str, member: str, limit: int) -> bool:
        """Return whether the member is one of the first `limit` of its key."""
        members = self._young.get(key)
        if members is None:
            if self._size >= self._capacity:
                self._old, self._young, self._size = self._young, {}, 0
            members = self._young[key] = self._old.pop(key, None) or set()
            self._size += len(members) + 1
        identity = hash(member)
        if identity not in members:
            if len(members) >= limit:
                return False
            members.add(identity)
            self._size += 1
        return True


def looks_like_soft_404(title: str, text_length: int, status: int) -> bool:
    """Whether a page answers with a success but says by its title that there is nothing here.

    Only short pages (`text_length` in characters) whose title, or a part of it between dashes and bars, is
    nothing but such a message: an article about the error 404 is none.
    """
    if not 200 <= status < 300 or text_length > _MAX_SOFT_404_CHARS:
        return False
    parts = _TITLE_PARTS.split(title[:_MAX_TITLE_CHARS].lower())
    return any(_NOTHING_HERE.fullmatch(part.strip(" .!…\t\n")) for part in parts)


def _loop(segments: list[str], settings: TrapSettings) -> str:
    """Name the segments that are repeated too often. Numbers may repeat: they are dates and coordinates."""
    for segment in segments:
        if segments.count(segment) > settings.max_segment_occurrences and not segment.isdigit():
            return f"path_loop: /{_short(segment)} {segments.count(segment)} times"
    for period in range(1, len(segments) // (settings.max_segment_repeats + 1) + 1):
        run = 0
        for index in range(period, len(segments)):
            run = run + 1 if segments[index] == segments[index - period] else 0
            if run >= period * settings.max_segment_repeats:
                cycle = segments[index - period + 1 : index + 1]
                if not all(segment.isdigit() for segment in cycle):
                    return f"path_loop: /{_short('/'.join(cycle))} {settings.max_segment_repeats + 1} times in a row"
    return ""


def _folder(authority: str, path: str) -> str:
    """Return what a page stands in; `/a/b/` is a page of `/a/`."""
    return authority + path[: path.rfind("/", 0, -1) + 1]


def _section(authority: str, path: str) -> str:
    """Return authority and first segment; empty for what stands in the root."""
    slash = path.find("/", 1)
    return authority + path[:slash] if 0 < slash < len(path) - 1 else ""


def _calendar(authority: str, path: str, query: str) -> str:
    """Return what all dates of the URL's calendar have in common; empty if it is no page of a date."""
    if query and _DATED_QUERY.search(query):
        # No canonical URL has a space: these are not the prefixes that queries and folders are counted by.
        return f"{authority}{path} ?date"
    if path[-1].isdigit() or path[-2:-1].isdigit():
        dated = _DATED_PATH.search(path, max(len(path) - _DATED_PATH_CHARS, 0))
        if dated:
            return f"{authority}{path[: dated.start()]} /date"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


_SESSION_ID = r"([0-9a-z_.,!-]{6,256})"
_SESSION_NAMES = frozenset(
    "aspsessionid cfid cftoken jsessionid oscsid phpsessid s sess session sessionid session_id sessid sid zenid".split()
)
_SESSION_IN_QUERY = re.compile(
    r"(?:^|&)(?:"
    rf"(?:aspsessionid|cfid|cftoken|jsessionid|oscsid|phpsessid|sessionid|session_id|sessid|zenid)={_SESSION_ID}"
    # Names that mean other things as well: only with what cannot be anything else.
    r"|(?:s|sess|session|sid)=([0-9a-f]{24,128})(?=&|$))"
)
_SESSION_IN_PATH = re.compile(
    rf";(?:jsessionid|phpsessid|sessionid|sid)={_SESSION_ID}|/\((?:[a-z]\([0-9a-z]+\))*s\(([0-9a-z]{{16,64}})\)"
)
_YEAR, _MONTH, _DAY = r"[12]\d{3,4}", r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_DATED_PATH = re.compile(rf"/{_YEAR}[/-]{_MONTH}(?:[/-]{_DAY})?/?$")
_DATED_PATH_CHARS = len("/12345/12/12/")
_DATED_QUERY = re.compile(
    rf"(?:^|&)(?:(?:cal|date|day|month|week|year|yr|mon)=|[^=&]*={_YEAR}-{_MONTH}(?:-{_DAY})?(?:&|$))",
    re.IGNORECASE,
)

_MAX_SOFT_404_CHARS = 5000
_MAX_TITLE_CHARS = 300
_TITLE_PARTS = re.compile(r"\s[-–—|·•:»«]+\s|[|–—·•»«:]")
_NOTHING_HERE = re.compile(
    r"(?:oops|sorry|hoppla|desol[ée])?[,.! ]*(?:"
    r"(?:http )?(?:error|fehler|erreur|errore|fout|ошибка)? ?\(?404\)?(?: error| page)?(?:[,.: -]*(?:page |file )?not found)?"
    r"|(?:the |this |your )?(?:requested )?(?:page|file|url|document|content|resource|article|product|item)?"
    r" ?(?:(?:you (?:requested|are looking for|were looking for) )?(?:was |is |could |can ?)?not (?:be )?found"
    r"|does(?: not|n['’]t) exist|(?:is )?no longer available)"
    r"|(?:die )?seite (?:wurde )?nicht gefunden|page (?:introuvable|non trouv[ée]e)|p[áa]gina n(?:o|ão) encontrada"
    r"|pagina non trovata|pagina niet gevonden|sidan (?:hittades inte|kunde inte hittas)|siden (?:blev )?ikke (?:fundet|funnet)"
    r"|nie znaleziono strony|strona nie (?:istnieje|została znaleziona)|str[áa]nka nenalezena|sayfa bulunamadı"
    r"|страница не найдена|(?:お探しの)?ページが?見つかりません(?:でした)?|页面不存在|(?:页面)?找不到(?:页面)?|페이지를 찾을 수 없습니다"
    r")"
)
