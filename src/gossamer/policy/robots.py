"""robots.txt: RFC 9309, and what Google's reference parser does where the RFC is silent.

`parse` never fails: it keeps every line it can read and ignores the rest. A `RobotsRules` then answers for
any user agent and URL. Where the two sources differ the RFC wins, so escapes of unreserved characters equal
the characters themselves; reserved characters and their escapes (`/` and `%2F`) stay different.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from gossamer.policy.robots_pace import ABSURD_SECONDS, Pace, PaceReader, RequestRate

#: RFC 9309 asks for at least 500 KiB.
MAX_BYTES = 512_000
#: Google's parser keeps a line in a buffer of 2083 * 8 bytes with its terminator, and drops what is beyond.
_MAX_LINE_BYTES = 2083 * 8 - 1
#: No line shorter than "allow:" says anything.
_MIN_LINE_BYTES = 6
_MAX_CACHED_AGENTS = 64
_ANYONE = "*"
_ROBOTS_PATH = "/robots.txt"
_NO_PACE = Pace()
#: Rules with one prefix beyond which they are looked up by a few of their characters instead of tried in turn.
_CROWD = 32
_GRAM = 3

_BYTE_ORDER_MARK = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
_TOKEN_END = re.compile(r"[^A-Za-z_-]")
_SEVERAL_WORDS = re.compile(r"[A-Za-z_-]+(?:\s+[A-Za-z_-]+)+")

_AGENT_KEYS = (b"user-agent", b"useragent", b"user agent")
_DISALLOW_KEYS = (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw")
_SITEMAP_KEYS = (b"sitemap", b"site-map")

#: A canonical URL whose path needs no normalising; anything else takes the slow way.
_PLAIN_URL = re.compile(r"https?://[^/?;#]+(/[!$&-;=?-Z\[\]_a-z~]*)\Z")
#: Path, parameters and query of anything that might be a URL.
_ANY_URL = re.compile(r"(?://)?(?:[^/?;#]*://)?[^/?;#]*([/?;][^#]*)?")
#: What is spelled anew: escapes, and the octets that no URL holds as they are.
_RESPELLED = re.compile(r"%([0-9A-Fa-f]{2})|[^!#-;=?-\[\]_a-z~]")
#: `*` and `$` count as plain so that `%2A` in a rule is the character, not the wildcard.
_PLAIN_OCTETS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~*$")
_SPELLING = tuple(chr(octet) if octet in _PLAIN_OCTETS else f"%{octet:02X}" for octet in range(256))


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a URL may be fetched, and the line that says so."""

    allowed: bool
    #: The path of the deciding rule as written, or empty where no rule applies.
    rule: str = ""
    #: Its line, counted from 1, or 0 where no rule applies.
    line: int = 0
    #: The user-agent lines of the group it stands in, as written.
    user_agents: tuple[str, ...] = ()


class _Group(msgspec.Struct):
    """User-agent lines that stand together, and the rules they share, as (line, allow, path)."""

    agents: list[str] = []
    tokens: set[str] = set()
    rules: list[tuple[int, bool, bytes]] = []


class _Rule(msgspec.Struct, frozen=True):
    """A rule's path, cut at its wildcards: it starts with `prefix`, then come `parts`, then `tail`."""

    #: Twice the length, plus one for Allow: the longest rule wins, and Allow wins a tie.
    rank: int
    allow: bool
    line: int
    text: bytes
    group: _Group
    prefix: str
    parts: tuple[str, ...]
    anchored: bool
    #: What an anchored rule ends with after its last wildcard; None where it has no wildcard.
    tail: str | None

    def matches(self, path: str) -> bool:
        """Whether a path that starts with the prefix fits the rest. One pass: the leftmost fit of a part is the best."""
        at = len(self.prefix)
        for part in self.parts:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        if not self.anchored:
            return True
        return at == len(path) if self.tail is None else path.endswith(self.tail, at)


#: Rank, needle, rule.
_Entry: TypeAlias = tuple[int, str, _Rule]


class _Crowd:
    """Many rules with one prefix, found by the rarest few characters of their needles that a path must have too."""

    __slots__ = ("_by_gram", "_sizes")

    def __init__(self, entries: list[_Entry]) -> None:
        counts = Counter(gram for _, needle, _ in entries for gram in _grams(needle))
        self._by_gram: dict[str, list[_Entry]] = {}
        for entry in entries:
            gram = min(_grams(entry[1]), key=counts.__getitem__)
            self._by_gram.setdefault(gram, []).append(entry)
        self._sizes = {len(gram) for gram in self._by_gram}

    def candidates(self, path: str) -> list[_Entry]:
        """Return the rules that may match, the highest rank first."""
        known = self._by_gram
        grams = {gram for size in self._sizes for gram in _grams(path, size)}
        found = [entry for gram in grams if gram in known for entry in known[gram]]
        return sorted(found, key=_rank, reverse=True)


def _grams(text: str, size: int = _GRAM) -> set[str]:
    """Return the pieces of that size, or the text itself where it is shorter."""
    return {text[at : at + size] for at in range(max(len(text) - size, 0) + 1)}


def _rank(entry: _Entry) -> int:
    return entry[0]


class _RuleSet:
    """The rules for one user agent, found by prefix in O(log n).

    Invariant: the prefixes of a path among sorted keys are the greatest key not above it and that key's
    ancestors, where a key's parent is the longest other key it starts with.
    """

    __slots__ = ("_buckets", "_ceilings", "_crowds", "_keys", "_parents")

    def __init__(self, rules: Iterable[_Rule]) -> None:
        buckets: dict[str, list[_Entry]] = {}
        for rule in sorted(rules, key=lambda rule: -rule.rank):
            # A path that lacks the longest part cannot match: one search in C spares most calls.
            needle = max((*rule.parts, rule.tail or ""), key=len)
            buckets.setdefault(rule.prefix, []).append((rule.rank, needle, rule))
        self._keys = sorted(buckets)
        self._buckets = [buckets[key] for key in self._keys]
        self._crowds = {at: _Crowd(bucket) for at, bucket in enumerate(self._buckets) if len(bucket) > _CROWD}
        self._parents: list[int] = []
        #: The highest rank of a key and its ancestors: who has found that need not look further.
        self._ceilings: list[int] = []
        for key in self._keys:
            parent = len(self._parents) - 1
            while parent >= 0 and not key.startswith(self._keys[parent]):
                parent = self._parents[parent]
            self._parents.append(parent)
            own = buckets[key][0][0]
            self._ceilings.append(max(own, self._ceilings[parent]) if parent >= 0 else own)

    def find(self, path: str) -> _Rule | None:
        """Return the rule that decides about a normalised path, or None where none applies."""
        best, rank = None, 0
        at = bisect_right(self._keys, path) - 1
        while at >= 0 and self._ceilings[at] > rank:
            if path.startswith(self._keys[at]):
                crowd = self._crowds.get(at)
                for rule_rank, needle, rule in self._buckets[at] if crowd is None else crowd.candidates(path):
                    if rule_rank <= rank:
                        break
                    if needle in path and rule.matches(path):
                        best, rank = rule, rule_rank
                        break
            at = self._parents[at]
        return best


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """What one robots.txt says. Immutable; compiles the rules for a user agent when first asked.

    A user agent is known by its product token, the letters, `-` and `_` it starts with, in any case:
    "Gossamer/0.1 (+https://example.org)" obeys the groups of "gossamer", all of them, and those of `*`
    only where there are none. Several bare words ("Foo Bar") are no product and obey `*`.
    """

    #: The sitemaps it names, in order, each once.
    sitemaps: tuple[str, ...] = ()
    _groups: tuple[_Group, ...] = ()
    _paces: dict[str, Pace] = field(default_factory=dict)
    _compiled: dict[str, _RuleSet] = field(default_factory=dict, compare=False, repr=False)

    def allowed(self, user_agent: str, url: str) -> bool:
        """Whether `user_agent` may fetch `url`. robots.txt itself always may be."""
        path = _path(url)
        rule = (self._compiled.get(user_agent) or self._compile(user_agent)).find(path)
        return rule is None or rule.allow or path == _ROBOTS_PATH

    def decide(self, user_agent: str, url: str) -> Decision:
        """Answer as `allowed`, with the line that decided."""
        path = _path(url)
        rule = (self._compiled.get(user_agent) or self._compile(user_agent)).find(path)
        if rule is None or path == _ROBOTS_PATH:
            return Decision(allowed=True)
        text = rule.text.decode("utf-8", "replace")
        return Decision(rule.allow, text, rule.line, tuple(rule.group.agents))

    def crawl_delay(self, user_agent: str) -> float | None:
        """Return the Crawl-delay in seconds that the agent's group asks for; the longest, where it names several."""
        return self.pace(user_agent).crawl_delay

    def request_rate(self, user_agent: str) -> RequestRate | None:
        """Return the Request-rate that the agent's group asks for; the slowest, where it names several."""
        return self.pace(user_agent).request_rate

    def delay(self, user_agent: str) -> float | None:
        """Return the seconds between two requests that keep both Crawl-delay and Request-rate; None for neither."""
        return self.pace(user_agent).delay

    def pace(self, user_agent: str) -> Pace:
        """Return how slowly the agent's group asks to be visited, with what it asks for and nobody can mean."""
        return self._paces.get(self._token_for(user_agent), _NO_PACE)

    def _token_for(self, user_agent: str) -> str:
        token = product_token(user_agent)
        return token if any(token in group.tokens for group in self._groups) else _ANYONE

    def _compile(self, user_agent: str) -> _RuleSet:
        token = self._token_for(user_agent)
        rules: dict[tuple[bool, bytes], _Rule] = {}
        for group in self._groups:
            if token not in group.tokens:
                continue
            for line, allow, text in group.rules:
                for path in (text, _directory(text)) if allow else (text,):
                    if path and (allow, path) not in rules:
                        rules[allow, path] = _rule(path, allow, line, text, group)
        if len(self._compiled) >= _MAX_CACHED_AGENTS:
            self._compiled.clear()
        self._compiled[user_agent] = ruleset = _RuleSet(rules.values())
        return ruleset


def parse(body: bytes, *, max_bytes: int = MAX_BYTES, absurd_seconds: float = ABSURD_SECONDS) -> RobotsRules:
    """Read a robots.txt. Any bytes will do: lines that make no sense are ignored, as is all beyond `max_bytes`.

    A Crawl-delay or Request-rate that is no number, negative or beyond `absurd_seconds` holds for nobody: see `pace`.
    """
    if len(body) > max_bytes:
        # Half a line could say more than the whole: "Disallow: /" of "Disallow: /tmp".
        head = body[: max_bytes + 1]
        body = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
    reader = _Reader(PaceReader(absurd_seconds))
    for number, line in enumerate(_BYTE_ORDER_MARK.sub(b"", body, count=1).splitlines(), 1):
        if len(line) >= _MIN_LINE_BYTES:
            reader.read(number, line[:_MAX_LINE_BYTES])
    return RobotsRules(tuple(reader.sitemaps), tuple(reader.groups), reader.pace.paces)


def product_token(user_agent: str) -> str:
    """Return the lower-case name by which a robots.txt knows a user agent, or an empty string."""
    name = user_agent.strip()
    return "" if _SEVERAL_WORDS.fullmatch(name) else _leading_token(name)


class _Reader:
    """Gathers groups line by line.

    Only a rule ends a run of user-agent lines. Crawl-delay and Request-rate are no rules (RFC 9309, 2.2.4),
    so they leave the group open but hold only for the agents named just above them.
    """

    def __init__(self, pace: PaceReader) -> None:
        self.groups: list[_Group] = []
        self.sitemaps: dict[str, None] = {}
        self.pace = pace
        self._paced: list[str] = []
        self._named = False
        self._open = False

    def read(self, number: int, line: bytes) -> None:
        """Take in one line, whatever it holds."""
        key, value = _key_and_value(line)
        if key.startswith(_AGENT_KEYS):
            self._name(value)
        elif key.startswith(b"allow"):
            self._add_rule(number, allow=True, path=value)
        elif key.startswith(_DISALLOW_KEYS):
            self._add_rule(number, allow=False, path=value)
        elif key.startswith(_SITEMAP_KEYS):
            if value:
                self.sitemaps[value.decode("utf-8", "replace")] = None
        elif key == b"crawl-delay":
            self._named = False
            self.pace.crawl_delay(number, value, self._paced)
        elif key == b"request-rate":
            self._named = False
            self.pace.request_rate(number, value, self._paced)

    def _name(self, value: bytes) -> None:
        if not self._open:
            self.groups.append(_Group())
        if not self._named:
            self._paced = []
        self._open = self._named = True
        text = value.decode("utf-8", "replace")
        self.groups[-1].agents.append(text)
        # Google: a star followed by more words is still the star.
        token = _ANYONE if text.split(maxsplit=1)[:1] == [_ANYONE] else _leading_token(text)
        if token:
            self.groups[-1].tokens.add(token)
            self._paced.append(token)

    def _add_rule(self, number: int, *, allow: bool, path: bytes) -> None:
        self._open = self._named = False
        if self.groups and path:
            self.groups[-1].rules.append((number, allow, path))


def _key_and_value(line: bytes) -> tuple[bytes, bytes]:
    """Split a line; the key is lower case, and empty where the line says nothing.

    A NUL ends the line, save at its start: there it is the second half of a UTF-16 line end, and what
    follows may be a good rule.
    """
    text = line.lstrip(b"\0").partition(b"\0")[0].partition(b"#")[0].strip()
    key, colon, value = text.partition(b":")
    if not colon:
        words = text.split()
        if len(words) != 2:
            return b"", b""
        key, value = words
    return key.rstrip().lower(), value.lstrip()


def _leading_token(text: str) -> str:
    return _TOKEN_END.split(text, maxsplit=1)[0].lower()


def _directory(path: bytes) -> bytes:
    """Return the rule for the folder of an index page: Google takes "Allow: /a/index.html" to allow "/a/" too."""
    folder, slash, name = path.rpartition(b"/")
    return folder + b"/$" if slash and name.startswith(b"index.htm") else b""


def _rule(path: bytes, allow: bool, line: int, text: bytes, group: _Group) -> _Rule:
    # Latin-1 keeps each octet a character of its own, whatever encoding the file is in.
    pattern = path.decode("latin-1")
    anchored = pattern.endswith("$")
    prefix, *parts = [_normalised(part) for part in pattern.removesuffix("$").split("*")]
    length = len(prefix) + sum(map(len, parts)) + len(parts) + anchored
    tail = parts.pop() if anchored and parts else None
    kept = tuple(filter(None, parts))
    return _Rule(2 * length + allow, allow, line, text, group, prefix, kept, anchored, tail)


def _path(url: str) -> str:
    """Return path and query of a URL, normalised as rules are; "/" where there is none."""
    plain = _PLAIN_URL.match(url)
    if plain is not None:
        return plain[1]
    found = _ANY_URL.match(url)
    path = (found and found[1]) or "/"
    if not path.startswith("/"):
        path = "/" + path
    return _normalised(path.encode("utf-8", "replace").decode("latin-1"))


def _normalised(octets: str) -> str:
    """Spell every octet in one way: unreserved ones plainly, others that need it as upper-case escapes."""
    return _RESPELLED.sub(_respell, octets)


def _respell(match: re.Match[str]) -> str:
    return _SPELLING[int(match[1], 16) if match[1] else ord(match[0])]


#: Where there is no robots.txt.
ALLOW_ALL = parse(b"")
#: Where there should be one but it cannot be had (RFC 9309, 2.3.1.4).
DISALLOW_ALL = parse(b"User-agent: *\nDisallow: /")
