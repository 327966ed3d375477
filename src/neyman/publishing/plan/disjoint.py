"""Prove from a plan's filters that some queries cannot count the same row [UN-11].

The proof splits a filter into cases. Each case is a list of claims about the values of expressions.
Two cases exclude each other if their claims together leave no possible value to some expression.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeAlias

from neyman.publishing.plan.row_expression import Node


@dataclass(frozen=True)
class Limits:
    """Limit the size of a proof that queries are disjoint."""

    sets: int = 64  # sets of queries that one row can meet together
    cases: int = 64  # cases of one filter


LIMITS = Limits()


Case: TypeAlias = list[tuple[Node, str, Any]]  # expressions, each with a kind of claim and values
Sets: TypeAlias = tuple[frozenset[str], ...]

_OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def are_disjoint(one: Node, other: Node) -> bool:
    """Return True if it is proved that no row makes both conditions true."""
    return _exclude(_cases(one, True), _cases(other, True))


def largest_sets(filters: Mapping[str, Node | None]) -> Sets | None:
    """Return the maximal sets of query names in which no two filters are proved disjoint.

    ``filters`` has each query's filter by name; None accepts every row. Return None if there are
    more than `LIMITS.sets` sets.
    """
    nodes = list(dict.fromkeys(filters.values()))
    cases = {node: None if node is None else _cases(node, True) for node in nodes}
    beside: dict[Node | None, set[Node | None]] = {node: set() for node in nodes}
    for one, other in combinations(nodes, 2):
        if not _exclude(cases[one], cases[other]):
            beside[one].add(other)
            beside[other].add(one)
    sets: list[frozenset[Node | None]] = [frozenset()]
    for node in nodes:
        grown = dict.fromkeys([*sets, *((one & beside[node]) | {node} for one in sets)])
        sets = [one for one in grown if not any(one < other for other in grown)]
        if len(sets) > LIMITS.sets:
            return None
    return tuple(frozenset(name for name, node in filters.items() if node in one) for one in sets)


def _exclude(some: list[Case] | None, others: list[Case] | None) -> bool:
    """Return True if no case of one list can hold together with a case of the other list.

    None stands for no filter, or for too many cases. It excludes nothing.
    """
    if some is None or others is None:
        return False
    return all(_is_impossible([*a, *b]) for a in some for b in others)


def _cases(node: Node, truth: bool) -> list[Case] | None:
    """Return cases, at least one of which holds if ``node`` has the truth value ``truth``.

    Return None if there are too many.
    """
    match node.op:
        case "not":
            return _cases(node.parts[0], not truth)
        case "and" | "or":
            parts = [_cases(part, truth) for part in node.parts]
            known = [part for part in parts if part is not None]
            if (node.op == "and") == truth:
                return _all_of(known)  # an unknown part only leaves out claims
            cases = [case for part in known for case in part]
            return cases if len(known) == len(parts) and len(cases) <= LIMITS.cases else None
        case "literal":
            return [[]] if node.value is truth else []
        case "missing":
            return [[(_core(node.parts[0]), "missing" if truth else "known", None)]]
        case "compare":
            a, b = node.parts
            sign: str = node.value
            if a.op == "literal":
                a, b, sign = b, a, _MIRRORED[sign]
            if b.op == "literal" and a.op != "literal":
                sign = sign if truth else _OPPOSITES[sign]
                return [[(_core(a), *_comparison(sign, _scale_constant(a, b.value)))]]
        case "member":
            (part,) = node.parts
            values = {_scale_constant(part, value) for value in node.value}
            return [[(_core(part), "in" if truth else "out", values)]]
        case _:
            pass
    return [[(node, "in", {truth})]]


def _all_of(parts: Sequence[list[Case]]) -> list[Case]:
    """Return the cases of a conjunction. Leave out parts that would make too many cases."""
    cases: list[Case] = [[]]
    for part in sorted(parts, key=len):
        if len(cases) * len(part) <= LIMITS.cases:
            cases = [[*one, *other] for one in cases for other in part]
    return cases


def _comparison(sign: str, constant: Any) -> tuple[str, Any]:
    if sign in ("==", "!="):
        return ("in" if sign == "==" else "out"), {constant}
    if sign in (">", ">="):  # integers of the last digit
        return "least", math.ceil(constant) if sign == ">=" else math.floor(constant) + 1
    return "most", math.floor(constant) if sign == "<=" else math.ceil(constant) - 1


def _core(node: Node) -> Node:
    """Return a number's expression without the steps that only add decimals to it."""
    while node.op == "multiply":
        part, factor = node.parts
        more = node.scale - part.scale
        if factor.op != "literal" or more < 0 or factor.value != 10**more:
            break
        node = part
    return node


def _scale_constant(part: Node, value: Any) -> Any:
    """Return the constant ``value``, scaled for a comparison with `_core` of ``part``.

    ``value`` is in units of the last digit of ``part``, and the result in units of the last digit
    of `_core` of ``part``. If ``part`` is a text, a date, or a truth value, ``value`` is returned.
    """
    number = part.type == "number"
    return Fraction(value, 10 ** (part.scale - _core(part).scale)) if number else value


def _is_impossible(case: Case) -> bool:
    """Return True if the claims leave no value, not even a missing one, to some expression."""
    own: dict[Node, dict[str, list[Any]]] = {}
    for node, kind, values in case:
        own.setdefault(node, {}).setdefault(kind, []).append(values)
    return any(map(_has_no_value, own.values()))


def _has_no_value(claims: Mapping[str, list[Any]]) -> bool:
    if "missing" in claims:
        return len(claims) > 1
    least, most = (claims.get(kind, []) for kind in ("least", "most"))
    if "in" not in claims:
        return bool(least and most) and max(least) > min(most)
    left = set[Any](claims["in"][0]).intersection(*claims["in"]).difference(*claims.get("out", []))
    return not any(all(x >= low for low in least) and all(x <= high for high in most) for x in left)
