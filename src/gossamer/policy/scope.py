"""Which URLs belong to a job: the scope around its seeds, and the user's globs on top."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from itertools import islice

from gossamer.config.settings import ScopeName, ScopeSettings
from gossamer.policy.public_suffix import registrable_domain
from gossamer.policy.shard import WHOLE, parse_shard

#: Roots kept in memory. A crawl with more seeds than this on hosts of their own asks the ledger.
MAX_ROOTS = 200_000
#: The refusal of a URL that may belong to the job: it depends on roots that nobody here knows of.
UNSURE = "unsure"


class Scope:
    """Decides whether a canonical URL belongs to the job.

    The seeds' *roots* (their host, registrable domain or folder) span the scope; `join` adds one, as the
    target of a seed's redirect does. Globs are matched against the whole URL, or against path and query
    where they begin with a slash; `*` matches anything, slashes too. With a shard, each host (with scope
    `domain`, each registrable domain) belongs to one job of several, and only to that. Only `MAX_ROOTS` roots are kept in
    memory: with more of them, `is_root` is asked for those that are not. It must not wait: None stands for an answer that
    must be had elsewhere.
    """

    def __init__(
        self,
        settings: ScopeSettings,
        roots: Iterable[str] = (),
        is_root: Callable[[str], bool | None] | None = None,
    ) -> None:
        self._name: ScopeName = settings.scope
        self._roots = set(islice(roots, MAX_ROOTS))
        self._is_root = is_root
        self._include = Globs(settings.include)
        self._exclude = Globs(settings.exclude)
        self._shard = parse_shard(settings.shard)

    @property
    def roots(self) -> frozenset[str]:
        """What spans the scope."""
        return frozenset(self._roots)

    @property
    def is_partial(self) -> bool:
        """Whether there may be roots that are not in memory."""
        return len(self._roots) >= MAX_ROOTS and self._is_root is not None

    def join(self, root: str) -> None:
        """Widen the scope by the root of another seed."""
        if len(self._roots) < MAX_ROOTS:
            self._roots.add(root)

    def _spans(self, root: str) -> bool | None:
        if root in self._roots:
            return True
        return len(self._roots) >= MAX_ROOTS and self._is_root is not None and self._is_root(root)

    def roots_over(self, url: str, host: str) -> list[str]:
        """Return the roots any of which would bring a URL into the scope."""
        match self._name:
            case "host":
                return [host]
            case "domain":
                return [registrable_domain(host)]
            case "prefix":
                return [host + folder for folder in _folders(_path(url))]
            case "page" | "any":
                return []

    def root_of(self, url: str, host: str) -> str:
        """Return what a seed adds to the scope; empty where the scope has no roots."""
        match self._name:
            case "host":
                return host
            case "domain":
                return registrable_domain(host)
            case "prefix":
                return host + _folder(_path(url))
            case "page" | "any":
                return ""

    def refusal(self, url: str, host: str) -> str:
        """Return why a discovered URL is not followed: `shard`, `scope`, `excluded`, or empty if it is.

        `UNSURE` where that depends on whether one of `roots_over` the URL is a root.
        """
        if self.owner(host):
            return "shard"
        within = self._within(url, host)
        if within is None:
            return self.exclusion(url) or UNSURE
        return self.exclusion(url) if within else "scope"

    def owner(self, host: str) -> str:
        """Return the shard that has the host, such as `2/3`, where it is another: that binds seeds too."""
        if self._shard is WHOLE:
            return ""
        owner = self._shard.of(registrable_domain(host) if self._name == "domain" else host)
        return "" if owner == self._shard else str(owner)

    def exclusion(self, url: str) -> str:
        """Return `excluded` where the globs forbid the URL: they bind seeds too."""
        if self._exclude.match(url) or (self._include and not self._include.match(url)):
            return "excluded"
        return ""

    def _within(self, url: str, host: str) -> bool | None:
        match self._name:
            case "host":
                return self._spans(host)
            case "any":
                return True
            case "domain":
                return self._spans(registrable_domain(host))
            case "page":
                return False
            case "prefix":
                return self._is_below(url, host)

    def _is_below(self, url: str, host: str) -> bool | None:
        is_sure = True
        for folder in _folders(_path(url)):
            spans = self._spans(host + folder)
            if spans:
                return True
            is_sure = is_sure and spans is not None
        return False if is_sure else None


class Globs:
    """A list of globs compiled into one expression. Empty matches nothing, and is false."""

    def __init__(self, patterns: Sequence[str]) -> None:
        whole = [_whole_url(pattern) for pattern in patterns]
        self._match = re.compile("|".join(whole)).match if whole else None

    def __bool__(self) -> bool:
        return self._match is not None

    def match(self, url: str) -> bool:
        """Say whether any glob matches the URL."""
        return self._match is not None and self._match(url) is not None


def _whole_url(pattern: str) -> str:
    expression = translate(pattern)
    return rf"https?://[^/]+{expression}" if pattern.startswith("/") else expression


def _path(url: str) -> str:
    """Return the path of a canonical URL, without its query."""
    start = url.index("/", url.index("://") + 3)
    return url[start:].partition("?")[0]


def _folder(path: str) -> str:
    return path[: path.rindex("/") + 1]


def _folders(path: str) -> Iterable[str]:
    """Yield every folder above a path, the root first."""
    end = path.find("/")
    while end >= 0:
        yield path[: end + 1]
        end = path.find("/", end + 1)
