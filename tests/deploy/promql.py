"""Reads what a PromQL expression asks for: which metrics, by which labels, and which values of them.

It knows as much of the language as our expressions use, and refuses what it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FUNCTIONS = frozenset(
    {
        "absent",
        "count",
        "histogram_quantile",
        "increase",
        "label_replace",
        "max",
        "min",
        "rate",
        "sum",
        "vector",
    }
)
_OPERATORS = frozenset({"and", "or"})
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<range>\[[^\]]*\])
      | (?P<labels>(?:by|on)\s*\([^)]*\))
      | (?P<matchers>\{[^}]*\})
      | (?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<number>\d+(?:\.\d+)?)
      | (?P<sign>==|>=|<=|!=|[-+*/<>(),])
    )""",
    re.VERBOSE,
)
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"\s*(?:,|$)')
_RANGE = re.compile(r"\[(?:\d+[smhd]|\$__rate_interval)\]")


@dataclass(frozen=True, slots=True)
class Query:
    """What an expression asks for."""

    metrics: frozenset[str]
    #: Those it needs to be there: to group by, to compare, or to take apart.
    labels: frozenset[str]
    #: Those it makes itself.
    made: frozenset[str]
    #: Metric, label, and a value or the beginning of one that it must be able to have.
    values: frozenset[tuple[str, str, str]]


def read_query(text: str) -> Query:
    """Read an expression. Raises `ValueError` at what it does not know."""
    metrics: list[str] = []
    labels: set[str] = set()
    values: set[tuple[str, str, str]] = set()
    replaced = [(made, source) for made, source in re.findall(r'"(\w+)", "\$1", "(\w+)", "\(\.\+\)"', text)]
    for kind, token in _tokens(text):
        if kind == "word" and token not in FUNCTIONS | _OPERATORS:
            metrics.append(token)
        elif kind == "labels":
            labels |= set(re.findall(r"\w+", token.partition("(")[2]))
        elif kind == "matchers":
            for label, _, value in _matchers(token):
                labels.add(label)
                values |= {(metrics[-1], label, each) for each in value.split("|")}
        elif kind == "range" and not _RANGE.fullmatch(token):
            raise ValueError(f"no range: {token}")
    made = frozenset(name for name, _ in replaced)
    labels |= {source for _, source in replaced}
    return Query(frozenset(metrics), frozenset(labels - made), made, frozenset(values))


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(text.rstrip()):
        found = _TOKEN.match(text, place)
        if found is None or found.lastgroup is None:
            raise ValueError(f"not known: {text[place:]}")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        place = found.end()
    return tokens


def _matchers(token: str) -> list[tuple[str, str, str]]:
    inner = token[1:-1]
    found = [match.groups() for match in _MATCHER.finditer(inner)]
    if _MATCHER.sub("", inner).strip():
        raise ValueError(f"not known: {token}")
    return [(label, sign, value) for label, sign, value in found]
