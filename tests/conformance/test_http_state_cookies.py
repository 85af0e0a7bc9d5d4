"""Cookies against the IETF http-state suite, read from $GOSSAMER_CONFORMANCE or beside the repository."""

from __future__ import annotations

import json
import os
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from gossamer.policy.cookies import CookieJar
from gossamer.policy.http_date import parse_http_date

FOLDER = os.environ.get("GOSSAMER_CONFORMANCE", "")
SUITE = Path(FOLDER or Path(__file__).parents[3] / "shared" / "conformance") / "http-state-cookies"
#: In 2011, when the suite was written: some of its cookies have expired since.
NOW = 1_300_000_000.0
#: A request path with a needless escape is expected to match a cookie path without; RFC 6265 compares octets.
NOT_BY_THE_RFC = {"http-state-DISABLED_PATH0029"}


def cases(name: str) -> list[dict[str, Any]]:
    if not FOLDER and not SUITE.exists():
        pytest.skip(
            "no conformance suite here; set GOSSAMER_CONFORMANCE to the folder that holds http-state-cookies/"
        )
    loaded: list[dict[str, Any]] = json.loads((SUITE / name).read_text(encoding="utf-8"))
    return loaded


def sent(case: dict[str, Any]) -> str:
    jar = CookieJar()
    jar.store(case["set_from"], case["set_cookie"], NOW)
    return jar.header_for(case["sent_to"], NOW)


def report(capsys: pytest.CaptureFixture[str], name: str, passed: int, total: int) -> None:
    with capsys.disabled():
        print(f"\n{name}: {passed} of {total} cases pass")  # noqa: T201 - the count is the result


def test_what_was_set_is_sent_back_as_the_suite_expects(capsys: pytest.CaptureFixture[str]) -> None:
    suite = cases("cases.json")
    failed = {
        case["id"]
        for case in suite
        if sent(case) != "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in case["expected"])
    }
    report(capsys, "http-state cookies", len(suite) - len(failed), len(suite))
    assert suite
    assert failed <= NOT_BY_THE_RFC


def test_dates_are_read_as_the_suite_expects(capsys: pytest.CaptureFixture[str]) -> None:
    suite = cases("date_cases.json")
    failed = []
    for case in suite:
        expected = parsedate_to_datetime(case["expected"]).timestamp() if case["expected"] else None
        if parse_http_date(case["test"]) != expected:
            failed.append(case["test"])
    report(capsys, "http-state dates", len(suite) - len(failed), len(suite))
    assert suite
    assert not failed
