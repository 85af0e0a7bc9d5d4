"""robots.txt against the examples and tables of RFC 9309, read from $GOSSAMER_CONFORMANCE or beside the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gossamer.policy import robots

FOLDER = os.environ.get("GOSSAMER_CONFORMANCE", "")
SUITE = Path(FOLDER or Path(__file__).parents[3] / "shared" / "conformance") / "rfc9309" / "cases.json"


def cases() -> list[dict[str, Any]]:
    if not FOLDER and not SUITE.exists():
        pytest.skip("no conformance suite here; set GOSSAMER_CONFORMANCE to the folder that holds rfc9309/")
    loaded: list[dict[str, Any]] = json.loads(SUITE.read_text(encoding="utf-8"))
    return loaded


def passes(case: dict[str, Any]) -> bool:
    rules = robots.parse(case["robots_txt"].encode())
    return rules.allowed(case["user_agent"], case["url"]) is case["expected_allowed"]


def test_every_case_that_must_pass_passes(capsys: pytest.CaptureFixture[str]) -> None:
    suite = cases()
    failed = [case["id"] for case in suite if not passes(case)]
    must_pass = {case["id"] for case in suite if case["must_pass"]}
    with capsys.disabled():
        print(f"\nRFC 9309: {len(suite) - len(failed)} of {len(suite)} cases pass, {len(must_pass)} must")  # noqa: T201 - the count is the result
    assert must_pass
    assert not must_pass.intersection(failed)
