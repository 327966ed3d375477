"""Count how many records must change before one more change can move a statistic much."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from neyman.mechanisms.stability.grid import Grid, rank_of, row_count
from neyman.mechanisms.stability.order_statistics import OrderStatistic
from neyman.numerics import check
from neyman.numerics.raw_values import in_order
from neyman.numerics.relation import MOVES, Neighboring, neighboring_of, size_known

Exact = float | Fraction | str


@dataclass(frozen=True)
class Stability:
    """Store a statistic and its distance, **private** input of `ProposeTestRelease.draw`.

    Args:
        distance: the number of records that must change before one more change can move the
            statistic by more than the bound, at least 0.
        value: the exact statistic.
        steps: the statistic in steps of its grid, or None for a mode.
    """

    distance: int
    value: Any
    steps: int | None = None


class DistanceToInstability:
    """Count the records that must change before a statistic becomes unstable.

    A dataset is unstable if some neighbor moves the statistic by more than a bound. The distance is
    the least number of changes that lead to an unstable dataset. It is 0 for unstable data, and
    moves by at most 1 between neighbors. The distance is exact. `median`, `quantile`, and
    `interquartile_range` use the replace-one relation. `mode` works under both relations.

    Fix the bound, the grid, and the keys before anyone sees the data. The results are private: pass
    them only to `ProposeTestRelease.draw`.

    Examples:
        >>> import neyman as ny
        >>> incomes = [31, 33, 34, 36, 37, 39, 40, 44, 250]
        >>> ny.distance_to_instability.median(incomes, bound=5, lower=0, upper=1000)
        Stability(distance=2, value=Fraction(37, 1), steps=37)
    """

    def median(
        self, values: Iterable[Any], *, bound: Exact, lower: Exact, upper: Exact, step: Exact = 1
    ) -> Stability:
        """Return the median and its distance. For an even number of rows, use the lower middle row.

        Args:
            values: one number per row. Each is rounded and clipped to the grid, or becomes `lower`
                if it is not a number.
            bound: the proposed sensitivity b, at least 0 and below upper - lower, in the units of
                the values.
            lower, upper, step: the public grid, in the same units.

        Returns:
            A `Stability`.

        Raises:
            ValueError: there is no row, every dataset meets the bound, or the grid is invalid.
        """
        return self.quantile(
            values, Fraction(1, 2), bound=bound, lower=lower, upper=upper, step=step
        )

    def quantile(
        self,
        values: Iterable[Any],
        q: Exact,
        *,
        bound: Exact,
        lower: Exact,
        upper: Exact,
        step: Exact = 1,
    ) -> Stability:
        """Return the q-quantile and its distance. The q-quantile is the row of rank ceil(q n).

        Args:
            values, bound, lower, upper, step: as for `median`.
            q: above 0 and at most 1.
        """
        grid = Grid.of(lower, upper, step)
        most = _steps_of(bound, grid)
        rows = np.sort(grid.steps(values))
        statistic = OrderStatistic(rows, rank_of(q, row_count(rows, 1)), grid.last)
        place = statistic.value
        return Stability(statistic.changes_above(most), grid.value(place), place)

    def interquartile_range(
        self, values: Iterable[Any], *, bound: Exact, lower: Exact, upper: Exact, step: Exact = 1
    ) -> Stability:
        """Return the interquartile range and its distance.

        The quartiles have the ranks ceil(3n/4) and ceil(n/4). One replaced record moves the range
        by at most its largest effect on a quartile. So the distance is the smaller of the
        quartiles' distances [ST-10].

        Args:
            values, bound, lower, upper, step: as for `median`, with at least 2 rows.
        """
        grid = Grid.of(lower, upper, step)
        most = _steps_of(bound, grid)
        rows = np.sort(grid.steps(values))
        count = row_count(rows, 2)
        first, third = (
            OrderStatistic(rows, rank_of(Fraction(k, 4), count), grid.last) for k in (1, 3)
        )
        wide = third.value - first.value
        distance = min(first.changes_above(most), third.changes_above(most))
        return Stability(distance, grid.step * wide, wide)

    def mode(
        self,
        values: Iterable[Hashable],
        *,
        keys: Sequence[Hashable],
        neighboring: Neighboring = "replace-one",
    ) -> Stability:
        """Return the most frequent key and its distance, for a proposed bound of 0.

        The first of several most frequent keys counts, in the public order of ``keys`` [ST-11].

        Args:
            values: one key per row. Other values are ignored.
            keys: at least two public keys.
            neighboring: "replace-one" or "add-remove".

        Raises:
            ValueError: there are fewer than two keys, equal keys, another relation, or no row under
                "replace-one".

        Examples:
            >>> import neyman as ny
            >>> ny.distance_to_instability.mode("aaaaabb", keys="abc").distance
            1
        """
        listed: list[Hashable] = (
            list(keys) if isinstance(keys, str) else check.several("keys", keys, "['a', 'b']")
        )
        keyed = all(isinstance(key, Hashable) for key in listed)  # pyright: ignore[reportUnnecessaryIsInstance]
        places = {key: i for i, key in enumerate(listed)} if keyed else {}
        if len(listed) < 2 or len(places) < len(listed):
            raise ValueError(f"keys = {listed!r} must be at least two different public keys")
        neighboring_of(neighboring)
        counts, rows = [0] * len(listed), 0
        for value in values if isinstance(values, str) else in_order("values", values):
            rows += 1
            place = _place(places, value)
            if place is not None:
                counts[place] += 1
        if size_known(neighboring) and not rows:
            raise ValueError("values has no rows: no record can be replaced")
        top = max(range(len(counts)), key=lambda i: (counts[i], -i))
        ahead = [
            counts[top] - number + (top < i) for i, number in enumerate(counts) if i != top
        ]  # another key wins if it gains this number
        return Stability(-(-min(ahead) // MOVES[neighboring]) - 1, listed[top])


def _place(places: dict[Hashable, int], value: Hashable) -> int | None:
    try:
        return places.get(value)
    except TypeError:  # a value without a hash is not a key
        return None


def _steps_of(bound: Exact, grid: Grid) -> Fraction:
    exact = check.exact("bound", bound)
    if exact < 0:
        raise ValueError(f"bound = {bound!r} must be at least 0")
    if exact >= grid.upper - grid.lower:
        raise ValueError(
            f"bound = {bound!r} must be below upper - lower = {float(grid.upper - grid.lower):g}: "
            "every dataset satisfies it, so release with this sensitivity and no test"
        )
    return exact / grid.step


distance_to_instability = DistanceToInstability()
