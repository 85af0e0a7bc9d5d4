from __future__ import annotations

import pytest

from gossamer.errors import UsageError
from gossamer.policy.threshold import parse_threshold

STATES = {
    "fetched": {"ok": 88, "http_404": 2},
    "failed": {"timeout": 4, "http_500": 1},
    "refused": {"robots": 5},
    "queued": {"": 900},
}


@pytest.mark.parametrize(
    ("text", "crossed"),
    [
        ("failed>4", True),
        ("failed>5", False),
        ("failed>=5", True),
        ("failed<5", False),
        ("failed<=5", True),
        ("failed==5", True),
        ("http_404>0", True),
        ("http_503>0", False),
        ("timeout>3", True),
        ("robots>=5%", True),
        ("failed>5%", False),
        ("failed>4.9%", True),
        ("fetched<50%", False),
        (" failed  >  4 ", True),
        ("duplicate>0", False),
    ],
)
def test_an_expression_counts_a_state_or_a_reason_or_its_share_of_what_is_settled(
    text: str, crossed: bool
) -> None:
    assert parse_threshold(text).crossed(STATES) is crossed


def test_a_share_of_nothing_is_nothing() -> None:
    assert not parse_threshold("failed>0%").crossed({})
    assert parse_threshold("fetched<1%").crossed({"queued": {"": 3}})


@pytest.mark.parametrize(
    "text", ["", "failed", "failed>", ">5", "failed>five", "failed>-1", "failed=>5", "a>1;b>2"]
)
def test_what_is_no_expression_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="failed>5%"):
        parse_threshold(text)


@pytest.mark.parametrize("name", ["fialed", "http_4041", "http_", "ok_"])
def test_an_unknown_name_is_refused_and_named(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        parse_threshold(f"{name}>1")
