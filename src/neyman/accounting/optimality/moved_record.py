"""One moved record: the sampling error of a conjugate prior, plus what privacy adds to it.

Records fall into k categories with a Dirichlet prior, and the output depends on the parameter
through the data alone. So the Bayes risk is exactly the risk without privacy, plus the error of the
output as an estimate of the posterior mean m(x) [OP-6]. Relabeling a dataset as the one with a
record moved from category a to b leaves the law of the output alone, and moves m_a - m_b. Cauchy
and Schwarz bound the second term by the chi-square divergence of the relabeled joint law [OP-7].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from neyman.accounting.optimality.guarantee import SLACK
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

__all__ = ["bayes_risk", "many_spread", "moved_error", "priors", "two_spread"]

NODES = 1500  # at which the law of a count is looked at
PRIORS = 28


def priors(n: int, categories: int) -> list[float]:
    """Concentrations of a symmetric Dirichlet prior that are tried."""
    least = 1.05 if categories == 2 else 3.05
    most = max(4 * math.sqrt(n) / categories, 40.0)
    return [math.sqrt(n) / categories, *np.geomspace(least, most, PRIORS).tolist()]


def bayes_risk(n: int, categories: int, alpha: float) -> float:
    """Return the sum over categories of the posterior variance of their shares, without privacy."""
    total = categories * alpha
    return (1 - 1 / categories) * total / (total + 1) / (n + total)


def moved_error(n: int, categories: int, alpha: float, chi_square: float) -> float:
    """Return D with E[((M - N)_a - (M - N)_b)^2] >= 4 D for counts N and every output M [OP-7].

    D = (1 - p_0)^2 / C, with p_j the chance that a category has j records, and C the chi-square
    divergence of the relabeled joint law, at most
    chi_square (1 - 2 p_0 + S) + S - p_0 + 2 p_1, S = E[(r - 1)^2] of the ratio r of the counts'
    law at the moved record.

    Args:
        n: number of records, at least 1.
        categories: k, at least 2.
        alpha: concentration, above 1, and above 3 for more than two categories; else D is 0.
        chi_square: of neighbors.
    """
    if alpha <= (1 if categories == 2 else 3) or not math.isfinite(chi_square):
        return 0.0
    none, one = _chance(n, categories, alpha, 0), _chance(n, categories, alpha, 1)
    if categories == 2:
        spread = two_spread(n, alpha)
    else:
        spread = many_spread(n, categories, alpha)
    most = chi_square * (1 - 2 * none + spread) + spread - none + 2 * one
    return (1 - none) ** 2 / (most * (1 + SLACK) + 1e-300)


def _chance(n: int, categories: int, alpha: float, j: int) -> float:
    """P(N_a = j) of a Dirichlet-multinomial count."""
    return float(np.exp(_log_mass(np.array([float(j)]), n, alpha, (categories - 1) * alpha)[0]))


def _log_mass(j: Array, n: int, a: float, b: float) -> Array:
    """Logarithm of the beta-binomial probability of j, before its rounding."""
    choose = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    beta = gammaln(j + a) + gammaln(n - j + b) - gammaln(n + a + b)
    return choose + beta - (gammaln(a) + gammaln(b) - gammaln(a + b))


def two_spread(n: int, alpha: float) -> float:
    """S for two categories, in blocks in which the mass and r - 1 are monotone [OP-8]."""
    middle = n // 2
    near = np.arange(0, min(200, middle) + 1)
    left = np.unique(np.concatenate([near, np.linspace(0, middle, NODES // 2).astype(np.int64)]))
    right = np.unique(
        np.concatenate([n - near, np.linspace(middle, n, NODES // 2).astype(np.int64)])
    )
    starts = np.unique(np.concatenate([left, right]))
    ends = np.append(starts[1:] - 1, n)  # each block holds its start and its end
    both = np.stack([starts, ends]).astype(float)
    # Nine values of log gamma, each at most n + 2 alpha times its logarithm, of 5 units, and 8
    # sums.
    slack = 64 * UNIT * (n + 2 * alpha) * math.log(n + 2 * alpha + 2) + SLACK
    mass = np.exp(_log_mass(both, n, alpha, alpha)).max(axis=0)
    ratio = (alpha - 1) * np.abs(n - 2 * both - 1) / ((both + 1) * (n - both - 1 + alpha))
    count = ends - starts + 1
    return float(np.sum(count * mass * ratio.max(axis=0) ** 2)) * (1 + slack)


def many_spread(n: int, categories: int, alpha: float) -> float:
    """S for more categories: |r - 1| <= (alpha - 1) / (the smaller count + 1) [OP-8]."""
    total = categories * alpha
    second = (total - 1) * (total - 2) / ((alpha - 1) * (alpha - 2))
    third = second * (total - 3) / (alpha - 3)
    inverse = second / ((n + 1) * (n + 2)) + 3 * third / ((n + 1) * (n + 2) * (n + 3))
    return 2 * (alpha - 1) ** 2 * min(inverse, 1.0) * (1 + SLACK)
