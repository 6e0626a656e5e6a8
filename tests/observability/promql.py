"""What a PromQL expression names: enough of a reader to hold expressions to the names that there are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<number>\d[\w.]*)|(?P<variable>\$\w+)"""
    r"""|(?P<word>[a-zA-Z_:][\w:]*)|(?P<sign>=~|!~|!=|==|>=|<=|[^\s\w])"""
)
LISTS_LABELS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OPERATORS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile", "group", "stddev", "stdvar", "count_values"}
OF_PROMETHEUS = {"instance", "job"}


@dataclass
class Expression:
    """The selectors of an expression, each a metric and its matchers, and the labels that it groups or joins by."""

    selectors: list[tuple[str, list[tuple[str, str, str]]]] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def parse(text: str) -> Expression:
    """Read an expression; what it means, promtool checks."""
    tokens = [(match.lastgroup, match.group()) for match in TOKEN.finditer(text)]
    expression, place = Expression(), 0
    while place < len(tokens):
        kind, word = tokens[place]
        following = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        place += 1
        if kind != "word" or word in OPERATORS:
            continue
        if word in LISTS_LABELS:
            end = tokens.index(("sign", ")"), place)
            expression.grouped |= {label for kind, label in tokens[place:end] if kind == "word"}
            place = end
        elif following == "{":
            end = tokens.index(("sign", "}"), place)
            expression.selectors.append((word, _matchers(tokens[place + 1 : end])))
            place = end
        elif following != "(" and word not in AGGREGATIONS:
            expression.selectors.append((word, []))
    return expression


def _matchers(tokens: list[tuple[str | None, str]]) -> list[tuple[str, str, str]]:
    return [
        (label, sign, value.strip('"'))
        for (kind, label), (_, sign), (_, value) in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if kind == "word"
    ]


def faults(text: str, series: Mapping[str, set[str]], values: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What an expression names that is not there: a metric, a label of it, or a value of a label with a closed set of values."""
    expression = parse(text)
    wrong = [] if expression.selectors else [f"{text!r} asks for no metric"]
    labels = OF_PROMETHEUS.copy()
    for metric, matchers in expression.selectors:
        if metric not in series:
            wrong.append(f"no metric {metric}")
            continue
        labels |= series[metric]
        for label, _, value in matchers:
            if label not in series[metric] | OF_PROMETHEUS:
                wrong.append(f"{metric} has no label {label}")
            # empty is what a label is that is not there; a variable is filled in by Grafana
            told = [] if "$" in value or not value else value.split("|")
            wrong += [f"{label} is never {one}" for one in told if one not in values.get(label, told)]
    wrong += [f"nothing here has a label {label}" for label in sorted(expression.grouped - labels)]
    return wrong
