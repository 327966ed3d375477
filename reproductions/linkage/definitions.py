"""Properties of an exact table: k-anonymity, l-diversity, t-closeness, in exact fractions.

A table has one row per person. Rows that agree in their quasi-identifiers form a group. All three
properties are about the groups of one table, and none is about what two tables reveal together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction

__all__ = ["anonymity", "closeness", "difference", "diversity", "groups"]

Row = tuple[str, ...]
"""The quasi-identifiers of a person, then the sensitive value."""


def groups(rows: Iterable[Row]) -> dict[Row, Counter[str]]:
    """Return the number of people with each sensitive value, group by group.

    Raises:
        ValueError: if there are no rows.
    """
    counts: defaultdict[Row, Counter[str]] = defaultdict(Counter)
    for *quasi, value in rows:
        counts[tuple(quasi)][value] += 1
    if not counts:
        raise ValueError("rows = () must have at least one row")
    return dict(counts)


def anonymity(rows: Iterable[Row]) -> int:
    """Return the largest k for which the table is k-anonymous: the size of its smallest group."""
    return min(group.total() for group in groups(rows).values())


def diversity(rows: Iterable[Row]) -> int:
    """Return the largest l for which the table is (distinct) l-diverse.

    Every group has at least l different sensitive values. Source: Machanavajjhala, Kifer, Gehrke
    and Venkitasubramaniam 2007.
    """
    return min(len(group) for group in groups(rows).values())


def closeness(rows: Sequence[Row]) -> Fraction:
    """Return the smallest t for which the table is t-close, with the total variation distance.

    The distance of each group's sensitive values from those of everyone is at most t. Source: Li,
    Li and Venkatasubramanian 2007 (the earth mover's distance, all values equally far apart).
    """
    everyone = Counter(row[-1] for row in rows)
    people = everyone.total()
    return max(
        sum(
            (
                abs(Fraction(group[value], group.total()) - Fraction(n, people))
                for value, n in everyone.items()
            ),
            Fraction(0),
        )
        / 2
        for group in groups(rows).values()
    )


def difference(before: Iterable[Row], after: Iterable[Row]) -> dict[Row, Counter[str]]:
    """Return what a later table has more than an earlier one, group by group: an attack."""
    earlier = groups(before)
    more = {key: group - earlier.get(key, Counter()) for key, group in groups(after).items()}
    return {key: group for key, group in more.items() if group}
