"""The URL standard's own suite, as carried by web-platform-tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import InvalidUrl
from gossamer.model.url import parse

_PARTS = {
    "href": "href",
    "username": "username",
    "password": "password",
    "hostname": "host",
    "origin": "origin",
    "pathname": "path",
}


def _suite() -> list[dict[str, Any]]:
    named = os.environ.get("GOSSAMER_CONFORMANCE")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "conformance"
    file = folder / "whatwg-url" / "urltestdata.json"
    if not named and not file.exists():
        pytest.skip(f"the suite is not here: {file}; name its folder in GOSSAMER_CONFORMANCE")
    return [case for case in json.loads(file.read_bytes()) if isinstance(case, dict)]


def _touches_http(case: dict[str, Any]) -> bool:
    fields = (case["input"], case.get("base") or "", case.get("href", ""))
    return any(text.lower().lstrip().startswith(("http:", "https:")) for text in fields)


def _fault(case: dict[str, Any]) -> str:
    try:
        url = parse(case["input"], case.get("base"))
    except InvalidUrl:
        return "" if case.get("failure") else "rejected"
    if case.get("failure"):
        return f"accepted as {url.href}"
    port = "" if url.port is None else str(url.port)
    found = {part: getattr(url, ours) for part, ours in _PARTS.items()}
    found |= {"protocol": url.scheme + ":", "port": port, "search": url.query and "?" + url.query}
    found |= {"hash": url.fragment and "#" + url.fragment}
    wrong = {part: value for part, value in found.items() if part in case and case[part] != value}
    return str(wrong or "")


def _run(cases: list[dict[str, Any]], what: str) -> list[tuple[str, str | None, str]]:
    faults = [(case["input"], case.get("base"), fault) for case in cases if (fault := _fault(case))]
    print(f"WHATWG URL, {what}: {len(cases) - len(faults)} of {len(cases)} pass")  # noqa: T201  # the suite reports its count
    return faults


def test_every_http_case_of_the_standard_passes() -> None:
    assert _run([case for case in _suite() if _touches_http(case)], "http and https") == []


def test_every_case_of_the_standard_passes() -> None:
    assert _run(_suite(), "all schemes") == []
