"""From the links of a page to the URLs the ledger should hear of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gossamer.config.settings import Settings
from gossamer.model.outcome import Found
from gossamer.model.page import Link
from gossamer.model.request import Request, Source
from gossamer.policy.priority import priority_of
from gossamer.policy.scope import UNSURE, Globs, Scope
from gossamer.policy.traps import TrapGuard

_FAR = 1 << 40


class SeenCache:
    """Fingerprints the ledger is known to hold, with the smallest depth they were committed at.

    Only a saver of work: whatever it has forgotten, the ledger still knows. It must never hold what is not
    committed, or a link would be lost: that is why `learn` is called after the commit, for the winners.
    Two generations bound it: when the young one is full it becomes the old one.
    """

    def __init__(self, capacity: int) -> None:
        self._half = max(capacity // 2, 1)
        self.young: dict[int, int] = {}
        self.old: dict[int, int] = {}

    def learn(self, found: Iterable[Found]) -> None:
        """Take in what a committed visit has found."""
        for item in found:
            fingerprint, depth = item.request.fingerprint, item.request.depth
            self.young[fingerprint] = min(depth, self.young.get(fingerprint, _FAR))
        if len(self.young) > self._half:
            self.old, self.young = self.young, {}


class Discoverer:
    """Applies scope, depth and priority to links, and drops those the ledger is known to hold."""

    def __init__(self, settings: Settings, scope: Scope, seen: SeenCache) -> None:
        self._scope = scope
        self._seen = seen
        self._max_depth = settings.limits.depth
        self._prefer = Globs(settings.scope.prefer)
        #: What refuses places without end; None where they are allowed.
        self.traps = TrapGuard(settings.traps) if settings.traps.traps else None
        self._outside: set[int] = set()

    def learn(self, found: Iterable[Found]) -> None:
        """Note that these are committed, but for what was in doubt."""
        if self._scope.is_partial:
            found = [item for item in found if item.refusal != UNSURE]
        self._seen.learn(found)

    def join(self, root: str) -> None:
        """Widen the scope; what was outside may now be inside."""
        self._scope.join(root)
        self._outside.clear()

    def look_again(self) -> None:
        """Ask the scope again about what was outside: roots may have joined that nobody told us of."""
        self._outside.clear()

    def links(self, request: Request, links: Sequence[Link]) -> tuple[Found, ...]:
        """Return the links of a page that the ledger may not know yet, each with its refusal if it has one."""
        depth = request.depth + 1
        young, old, outside = self._seen.young, self._seen.old, self._outside
        found = []
        for link in links:
            fingerprint = link.fingerprint
            known = young.get(fingerprint)
            if known is None:
                known = old.get(fingerprint, _FAR)
                if known <= depth:
                    # What is still linked to outlives its generation: menus are on every page.
                    young[fingerprint] = known
            if known <= depth or fingerprint in outside or not link.follow:
                continue
            item = self._judge(link, request, depth)
            if item is not None:
                found.append(item)
        return tuple(found)

    def _judge(self, link: Link, request: Request, depth: int) -> Found | None:
        refusal = self._scope.refusal(link.url, link.host)
        if refusal and refusal != UNSURE:
            self._leave_outside(link.fingerprint)
            return None
        priority = priority_of(link.url, depth, Source.LINK, self._prefer)
        discovered = Request(link.url, link.fingerprint, link.host, depth, priority, request.url)
        return Found(discovered, UNSURE) if refusal else self._unless_deep(discovered)

    def decide(self, request: Request) -> Found | None:
        """Decide about a finding that was refused as `UNSURE`, now that its roots are known; None if it is not the job's."""
        refusal = self._scope.refusal(request.url, request.host)
        if request.source is Source.REDIRECT:
            return Found(request, refusal) if refusal else self._unless_trapped(request)
        if refusal:
            self._leave_outside(request.fingerprint)
            return None
        return self._unless_deep(request)

    def _leave_outside(self, fingerprint: int) -> None:
        """Note what is outside the job. Nobody counts it, or every page's links to the rest of the web would fill the ledger."""
        if len(self._outside) > 100_000:
            self._outside.clear()
        self._outside.add(fingerprint)

    def _unless_deep(self, request: Request) -> Found:
        if self._max_depth is not None and request.depth > self._max_depth:
            return Found(request, "depth")
        return self._unless_trapped(request)

    def _unless_trapped(self, request: Request) -> Found:
        trap = self.traps.refusal(request.url, request.depth) if self.traps is not None else ""
        return Found(request, "trap", trap) if trap else Found(request)

    def redirect(self, request: Request, target: Link) -> tuple[Found, str]:
        """Return the target of a redirect at the same depth, and the root that joins the scope, if any.

        Only seeds and what they redirect to have depth 0: their targets belong to the job wherever they lead,
        unless that is to a host of another shard.
        """
        from_seed = request.depth == 0
        owner = self._scope.owner(target.host)
        discovered = Request(
            target.url,
            target.fingerprint,
            target.host,
            request.depth,
            priority_of(target.url, request.depth, Source.REDIRECT, self._prefer)
            if not from_seed
            else request.priority,
            request.url,
            Source.REDIRECT,
            redirected_from=(*request.redirected_from, request.url),
        )
        if owner:
            return Found(discovered, "shard", f"it belongs to shard {owner}"), ""
        refusal = (
            self._scope.exclusion(target.url) if from_seed else self._scope.refusal(target.url, target.host)
        )
        if refusal:
            return Found(discovered, refusal), ""
        if from_seed:
            return Found(discovered), self._scope.root_of(target.url, target.host)
        return self._unless_trapped(discovered), ""

    def hop(self, request: Request, target: Link) -> Request:
        """Return the same input, to be continued at the target of its redirect (`scrape`)."""
        chain = (*request.redirected_from, request.target)
        return msgspec.structs.replace(request, hop=target.url, host=target.host, redirected_from=chain)
