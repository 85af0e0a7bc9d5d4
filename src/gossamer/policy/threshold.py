"""`--fail-on`: a small expression over the outcome of a crawl, such as `failed>5%` or `http_404>0`."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping

import msgspec

from gossamer.errors import UsageError
from gossamer.model.outcome import REASONS, State

_FORM = re.compile(r"\s*([a-z0-9_]+)\s*(>=|<=|>|<|==)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")
_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq}


class Threshold(msgspec.Struct, frozen=True):
    """A condition on the number, or the share, of URLs with a state or a reason."""

    text: str
    name: str
    comparison: str
    number: float
    percent: bool

    def crossed(self, states: Mapping[str, Mapping[str, int]]) -> bool:
        """Say whether the condition is true for the counts by state and reason. The share is of all settled URLs."""
        count = sum(states.get(self.name, {}).values()) + sum(
            reasons.get(self.name, 0) for reasons in states.values()
        )
        value: float = count
        if self.percent:
            settled = sum(sum(reasons.values()) for state, reasons in states.items() if state != "queued")
            value = 100.0 * count / settled if settled else 0.0
        return bool(_OPERATORS[self.comparison](value, self.number))


def parse_threshold(text: str) -> Threshold:
    """Read an expression. Raises `UsageError` that says how one looks."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--fail-on {text!r}: write a state or reason, a comparison and a number, as in 'failed>5%'"
        )
    name, comparison, number, percent = match.groups()
    known = {state.label for state in State} | set(REASONS)
    if name not in known and not re.fullmatch(r"http_\d{3}", name):
        raise UsageError(f"--fail-on: {name!r} is neither a state nor a reason")
    return Threshold(text, name, comparison, float(number), bool(percent))
