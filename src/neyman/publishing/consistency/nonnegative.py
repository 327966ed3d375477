"""Compute least-squares tables without a negative cell.

The nearest such tables, in the norm of least squares, are the least-squares tables of lifted
values: each cell of a finest table is raised by its lift. The lift is 0 if the result is positive.
Otherwise it just makes the result 0. So each step of a solver is one least-squares fit, and the
tables add up after every step [CO-3].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neyman.numerics.arrays import Floats
from neyman.publishing.consistency.margins import Margins


@dataclass(frozen=True)
class Nonnegative:
    """Represent tables that add up and have no negative cell.

    Args:
        values: the tables. Values below 0 by at most the residual have been set to 0.
        residual: the largest violation of the optimality conditions over all cells, in the units of
            a cell: |min(value, lift)|. A sum of n cells is exact to n times the residual.
    """

    values: list[Floats]
    residual: float
    steps: int


def nonnegative(margins: Margins, values: Sequence[Floats]) -> Nonnegative:
    """Return tables of at least 0 that add up and minimize the sum of (x - y)^2 / variance.

    The dual problem is a quadratic in the lifts, which are at least 0. Its matrix is the covariance
    of the estimates, at most the variance of the noise. So steps of length 1 never overshoot. They
    are accelerated, with a restart if they turn back. Tens to hundreds of steps are usual.

    Returns:
        The tables, with the remaining residual: at most 1e-9, or 1e-14 of the largest value, unless
        5,000 steps were too few.

    Source: Beck and Teboulle (2009); O'Donoghue and Candes (2015) for the restarts.
    """
    lifted = [i for i in margins.finest() if margins.margins[i].variance > 0]
    scale = {i: 1 / margins.margins[i].variance for i in lifted}
    lift = {i: np.zeros_like(values[i]) for i in lifted}
    point, speed = dict(lift), 1.0
    enough = max(1e-9, 1e-14 * max(_largest(table) for table in values))
    fitted, residual, steps = list(values), 0.0, 0
    while steps < 5_000:
        raised = [y + point[i] if i in point else y for i, y in enumerate(values)]
        fitted = margins.fit(raised)
        steps += 1
        down = {i: np.minimum(fitted[i], point[i]) for i in lifted}
        residual = max((_largest(moved) for moved in down.values()), default=0.0)
        if residual <= enough:
            break
        new = {i: point[i] - down[i] for i in lifted}
        step = {i: new[i] - lift[i] for i in lifted}
        back = sum(scale[i] * np.vdot(down[i], step[i]) for i in lifted)
        faster = 1.0 if back > 0 else (1 + (1 + 4 * speed * speed) ** 0.5) / 2
        ahead = 0.0 if back > 0 else (speed - 1) / faster
        for i in lifted:
            step[i] *= ahead
            step[i] += new[i]
        point, lift, speed = step, new, faster
    return Nonnegative([np.maximum(table, 0.0) for table in fitted], residual, steps)


def _largest(table: Floats) -> float:
    return float(max(table.max(initial=0.0), -table.min(initial=0.0)))
