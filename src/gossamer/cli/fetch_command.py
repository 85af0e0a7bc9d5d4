"""`fetch`: one page to stdout, as its record, its text, its HTML or its headers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import click
import msgspec
import uvloop

from gossamer.asking import with_scheme
from gossamer.cli.options import GroupedCommand, given, setting_options
from gossamer.cli.terminal import escape, write_page
from gossamer.config.load import load_settings
from gossamer.config.settings import Settings
from gossamer.contracts import Clock, Fetcher
from gossamer.engine.worker import Worker
from gossamer.errors import NothingFetched
from gossamer.extract.charset import decode, sniff
from gossamer.extract.text import visible_text
from gossamer.fetch.identity import build_identity, with_credentials
from gossamer.model.outcome import REASONS, Deferred, Hop, Retry, Settled, State, StoredRobots, Visit
from gossamer.model.page import link_to
from gossamer.model.request import Known, Lease, Request, Source
from gossamer.model.response import FetchFailure, Response
from gossamer.parts import build_fetcher, build_worker, steady_clock, url_policy
from gossamer.policy.cookies import CookieJar
from gossamer.policy.scope import Scope

Form = Literal["json", "text", "html", "headers"]


class RememberingFetcher:
    """A `Fetcher` that keeps the last response, for those who want more of it than the record."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self.last: Response | None = None

    async def fetch(  # noqa: D102 - see Fetcher
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        max_body_bytes: int | None = None,
        truncate: bool = False,
        started: Callable[[float], None] | None = None,
    ) -> Response | FetchFailure:
        answer = await self._fetcher.fetch(
            url,
            method=method,
            headers=headers,
            body=body,
            max_body_bytes=max_body_bytes,
            truncate=truncate,
            started=started,
        )
        self.last = answer if isinstance(answer, Response) else None
        return answer

    async def close(self) -> None:
        """Close every connection."""
        await self._fetcher.close()


@setting_options("fetch", "politeness")
@click.command(cls=GroupedCommand)
@click.argument("url")
@click.option(
    "--as",
    "form",
    type=click.Choice(["json", "text", "html", "headers"]),
    default="json",
    help="what to print [json]",
)
def fetch(url: str, form: Form, **values: Any) -> None:
    """Fetch one page and print it. Follows redirects, obeys robots.txt, keeps nothing."""
    settings = with_credentials(load_settings(given(values), os.environ, None)[0], [with_scheme(url)])
    write_page(uvloop.run(_fetch(url, form, settings)), is_json=form == "json")


async def _fetch(url: str, form: Form, settings: Settings) -> str:
    clock = steady_clock()
    fetcher = RememberingFetcher(build_fetcher(settings.fetch, clock))
    scope = Scope(settings.scope)
    link = link_to(url, None, url_policy(settings.scope))
    worker, _ = build_worker(
        settings,
        scope,
        _nothing_stored,
        clock,
        follow=False,
        cookies=CookieJar(by_port=True) if settings.fetch.cookies else None,
        identity=build_identity(settings, [link.url]),
        fetcher=fetcher,
    )
    known = Known(Request(link.url, link.fingerprint, link.host, source=Source.SEED), 1)
    try:
        visit = await _visit_until_settled(worker, known, clock, settings.politeness.max_wait_seconds)
    finally:
        await worker.close()
    outcome = visit.outcome
    if fetcher.last is None or not visit.record or not isinstance(outcome, Settled):
        reason = outcome.reason if isinstance(outcome, Settled) else "unknown"
        detail = (
            outcome.detail if isinstance(outcome, Settled) and outcome.detail else REASONS.get(reason, "")
        )
        raise NothingFetched(f"{link.url} could not be fetched: {reason}: {detail}")
    return _FORMS[form](visit, fetcher.last)


async def _nothing_stored(_origin: str) -> StoredRobots:
    return StoredRobots()


async def _visit_until_settled(worker: Worker, known: Known, clock: Clock, max_wait: float) -> Visit:
    """Visit the page as a crawl would: robots.txt first, then hop by hop, each request a delay after the last."""
    delay = 0.0
    starts: dict[str, float] = {}
    while True:
        host = known.request.host
        await asyncio.sleep(max(starts.get(host, 0.0) + delay - clock(), 0.0))
        report = await worker.visit(
            Lease(known, 1, clock() + 3600.0, delay), partial(starts.__setitem__, host)
        )
        delay = max(delay, report.pause.delay or 0.0)
        match report.visit.outcome:
            case Deferred():
                wait = max(report.pause.until - clock(), 0.0)
                if wait > max_wait:
                    detail = f"the host asked to wait {wait:.0f} s before its robots.txt can be read"
                    return Visit(known, Settled(State.HELD, "wait_too_long", detail))
                await asyncio.sleep(wait)
            case Hop(request):
                known = msgspec.structs.replace(known, request=request, tries=0)
            case Retry(_, not_before):
                await asyncio.sleep(max(not_before - clock(), 0.0))
                known = msgspec.structs.replace(known, tries=known.tries + 1)
            case _:
                return report.visit


def _as_json(visit: Visit, _response: Response) -> str:
    return msgspec.json.format(visit.record, indent=2).decode()


def _as_text(_visit: Visit, response: Response) -> str:
    return visible_text(response.body, response.header("content-type"))


def _as_html(_visit: Visit, response: Response) -> str:
    return decode(response.body, sniff(response.body, response.header("content-type")))


def _as_headers(_visit: Visit, response: Response) -> str:
    # Spelled out for files and pipes too: no value may begin a line, and so pass for a header of its own.
    headers = [escape(f"{name}: {value}") for name, value in response.headers]
    return "\n".join([f"status: {response.status}", *headers])


_FORMS: dict[Form, Callable[[Visit, Response], str]] = {
    "json": _as_json,
    "text": _as_text,
    "html": _as_html,
    "headers": _as_headers,
}

COMMANDS: list[click.Command] = [fetch]
