"""Shuffled local reports: both published tables, and random initialisation of one step.

Of n = 10^4 people each sends a report of epsilon_0 = log(n / (8 log(2 / delta)) - 1), delta = 1e-6,
where the closed form just holds. The tables compare (epsilon, delta) by the closed form of Feldman,
McMillan and Talwar with what the trade-off function of the clones gives.

Source: Wang, Su, Ye, Shokri and Su 2023; tables 2 and 3 of Su's review of 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from neyman import Bound, LocalRandomizer, Tradeoff
from neyman.numerics import check
from reproductions.facts import PUBLISHED

__all__ = [
    "LOCAL",
    "LOCAL_DELTA",
    "USERS",
    "Row",
    "closed_form",
    "closed_form_delta",
    "curve",
    "largest_local",
    "rows",
]

USERS = 10_000
LOCAL_DELTA = 1e-6
FACTS = PUBLISHED["shuffled_mechanism"]


def largest_local(users: int, delta: float) -> float:
    """Return the largest epsilon_0 of the closed form, log(n / (8 log(2 / delta)) - 1); -inf if
    none.

    Args:
        users: n, at least 1.
        delta: in (0, 1).
    """
    n, d = check.integer("users", users, 1), check.probability("delta", delta)
    if not 0 < d < 1:
        raise ValueError(f"delta = {delta!r} must be between 0 and 1")
    room = n / (8 * math.log(2 / d)) - 1
    return math.log(room) if room > 0 else -math.inf


LOCAL = largest_local(USERS, LOCAL_DELTA)


def closed_form(users: int, local: float, delta: float) -> float:
    """Return an upper bound on epsilon of shuffled reports.

    epsilon = log(1 + (e^{epsilon_0} - 1) (4 sqrt(2 log(4 / delta)) / sqrt((e^{epsilon_0} + 1) n)
    + 4 / n)) where epsilon_0 <= log(n / (8 log(2 / delta)) - 1), and never more than epsilon_0.

    Args:
        users: n, at least 1.
        local: epsilon_0 of each report, above 0.
        delta: in (0, 1).

    Raises:
        ValueError: where the closed form does not hold; epsilon_0 itself does, and so does
            ``LocalRandomizer(epsilon_0).shuffle(users=n)``, at any delta.

    Source: Feldman, McMillan and Talwar 2023.
    """
    check.positive("local", local)
    most = largest_local(users, delta)
    if local > most * (1 + 1e-12):
        raise ValueError(
            f"local = {local!r}: the closed form holds up to log(n / (8 log(2 / delta)) - 1) = "
            f"{most:.4g} at users = {users}, delta = {delta!r}. There epsilon = {local!r} still "
            "holds, or ask LocalRandomizer(local).shuffle(users=users), which has no such limit"
        )
    grown = 4 * math.sqrt(2 * math.log(4 / delta) / ((math.exp(local) + 1) * users)) + 4 / users
    return min(math.log1p(math.expm1(local) * grown), local)


def closed_form_delta(users: int, local: float, epsilon: float) -> float:
    """Return the delta at which the closed form gives this epsilon, its range left aside.

    With y = (e^epsilon - 1) / (e^{epsilon_0} - 1) - 4 / n it is
    4 e^{-y^2 (e^{epsilon_0} + 1) n / 32}.
    Only where epsilon_0 is in the range for that delta (`largest_local`) does it mean anything.
    """
    y = math.expm1(epsilon) / math.expm1(local) - 4 / users
    return 4 * math.exp(-y * y * (math.exp(local) + 1) * users / 32) if y > 0 else 4.0


def curve() -> Tradeoff:
    """Of the worst report of epsilon_0 among those of `USERS` people."""
    return LocalRandomizer(LOCAL).shuffle(users=USERS).tradeoff()


@dataclass(frozen=True)
class Row:
    """One column of a published table.

    Args:
        given: the epsilon of table 2, the delta of table 3.
        printed: figures of the table, by their names in the facts.
        ours: certified: upper for any report, lower for the worst one.
        closed: by the closed form, or None where it does not hold.
        formula: what the closed form's formula gives, whether it holds or not.
    """

    given: float
    printed: dict[str, float]
    ours: Bound
    closed: float | None
    formula: float


def rows(table: str) -> Iterator[Row]:
    """Yield the columns of table 2 ("delta_by_epsilon") or 3 ("epsilon_by_delta")."""
    facts, f = FACTS[table], curve()
    key = "epsilon" if table == "delta_by_epsilon" else "delta"
    for i, given in enumerate(facts[key]):
        printed = {name: row[i] for name, row in facts.items() if name != key}
        if key == "epsilon":
            formula = closed_form_delta(USERS, LOCAL, given)
            holds = formula < 1 and largest_local(USERS, formula) >= LOCAL * (1 - 1e-12)
            yield Row(given, printed, f.delta(epsilon=given), formula if holds else None, formula)
        else:
            grown = 4 * math.sqrt(2 * math.log(4 / given) / ((math.exp(LOCAL) + 1) * USERS))
            formula = math.log1p(math.expm1(LOCAL) * (grown + 4 / USERS))
            holds = largest_local(USERS, given) >= LOCAL * (1 - 1e-12)
            yield Row(given, printed, f.epsilon(delta=given), formula if holds else None, formula)
