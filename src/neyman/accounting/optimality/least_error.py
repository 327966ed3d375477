"""Compute lower bounds on the mean squared error of any release that meets a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from neyman.accounting.optimality.guarantee import DOWN, Guarantee
from neyman.accounting.optimality.lower_bounds import (
    ball_packing,
    bayes_risk,
    best_pair,
    category_risk,
    cosine_risk,
    data_pair,
    information_of_a_bit,
    mean_information,
    moved_error,
    priors,
)
from neyman.curves.tradeoff.curve import Described
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.bound import Bound
from neyman.numerics.relation import Neighboring


@dataclass(frozen=True)
class Limits:
    """Limit the arguments of `least_error`."""

    records: int = 10**12
    parts: int = 10**6  # largest number of dimensions or categories
    least_width: float = 1e-100  # squares do not underflow
    largest_width: float = 1e100  # squares do not overflow


LIMITS = Limits()
WIDTHS = np.geomspace(0.004, 1.0, 90)  # half width of a prior / half width of the parameter set
TWO_POINTS, VAN_TREES, MOVED = "two points", "van Trees", "one moved record"
Methods = dict[str, float]


@dataclass(frozen=True)
class _Question:
    """Represent the checked arguments of `least_error`."""

    n: int
    guarantee: Guarantee
    local: bool
    sigma: float = 1.0
    radius: float = math.inf
    dimension: int = 1
    categories: int = 2
    prior: float | None = None
    values: tuple[float, ...] = ()
    quantile: float = 0.5


def least_error(
    problem: str,
    *,
    n: int | None = None,
    budget: Described,
    sigma: float | None = None,
    radius: float | None = None,
    dimension: int | None = None,
    categories: int | None = None,
    values: Iterable[float] | None = None,
    quantile: float | None = None,
    model: str = "central",
    prior: float | None = None,
) -> Bound:
    """Bound the least mean squared error of any release that meets a budget.

    The bound is on the worst-case error over all distributions of the problem (over all data, for
    "histogram"). It holds for every release at least as private as the budget, known or unknown.
    For a population, the error includes sampling error. Neighbors replace one of n records, and n
    is public. A budget under add-remove is used for groups of two, except for "histogram".

    Args:
        problem: one of

            - "bernoulli-mean" or "share": p of n coins;
            - "bounded-mean": the mean of a distribution on an interval of half width ``radius``;
            - "normal-mean": theta of N(theta, sigma^2), abs(theta) <= ``radius`` (default inf);
            - "regression-coefficient": theta of y = theta x + N(0, sigma^2), where x has the second
              moment 1;
            - "ball-mean": the mean of a distribution on a ball of this radius and dimension,
              squared l2 error;
            - "category-shares": the shares of k categories, squared errors summed;
            - "histogram": the counts of k categories in the data, squared error per count; the
              limit of large n if n is left out;
            - "quantile": a quantile of data near ``values``, squared error, by two points.
        n: number of records, at least 1; public.
        budget: a curve such as ``ny.zcdp(...)``, ``ny.at_most(...)`` (its Gaussian curve), or a
            mechanism. In the local model, each report meets it.
        sigma: standard deviation of the noise in a record, from 1e-100 to 1e100.
        radius: half width of the interval, or radius, from 1e-100 to 1e100.
        dimension: dimension of the ball, from 1 to 10^6.
        categories: k, the number of categories, from 2 to 10^6.
        values: public or simulated numbers, at least 3, each from -1e100 to 1e100. Never use
            private numbers: the bound depends on them.
        quantile: in (0, 1); by default the median.
        model: "central", or "local": each record is reported by its own mechanism, which may depend
            on earlier reports.
        prior: half width of the prior in van Trees' inequality, for "bernoulli-mean",
            "normal-mean", and "regression-coefficient", at least 1e-100; by default the best of
            several.

    Returns:
        A bound whose lower end is proven, with its method's name; lower is safe. The upper end is
        infinity: `alike` lists errors that the library achieves.

    Raises:
        ValueError: the problem is unknown, an argument is unused or out of range, the number of
            records is unknown, or a prior is outside the parameter set.

    Examples:
        >>> import neyman as ny
        >>> least = ny.least_error("bernoulli-mean", n=1000, budget=ny.gdp(0.1))
        >>> f"{least:.4g}", least.method
        ('0.0003283', 'one moved record')
        >>> f"{ny.least_error('share', n=100_000, budget=ny.pure(1), model='local'):.4g}"
        '1.162e-05'

    Sources: Le Cam 1973; Assouad 1983; Gill and Levit 1995 (van Trees); Duchi, Jordan and
    Wainwright 2018; Acharya, Sun and Zhang 2021. The constants are proven in [OP-1] to [OP-16].
    """
    known = PROBLEMS[check.one_of("problem", problem, PROBLEMS)]
    check.one_of("model", model, ("central", "local"))
    given = {
        "sigma": sigma,
        "radius": radius,
        "dimension": dimension,
        "categories": categories,
        "values": values,
        "quantile": quantile,
        "prior": prior,
    }
    _check_arguments(problem, given)
    relation = check.described("budget", budget).tradeoff().neighboring
    twice = relation == "add-remove" and not (problem == "histogram" and n is None)
    question = _Question(
        _records(problem, n, relation, model),
        Guarantee.of(budget, 2 if twice else 1),
        model == "local",
        1.0 if sigma is None else _scale("sigma", sigma),
        math.inf if radius is None else _scale("radius", radius),
        1 if dimension is None else _parts("dimension", dimension, 1),
        2 if categories is None else _parts("categories", categories, 2),
        None if prior is None else _scale("prior", prior),
        () if values is None else _numbers(values),
        0.5 if quantile is None else check.between("quantile", quantile, 0.0, 1.0),
    )
    bound = known.local if question.local else known.central
    if bound is None:
        raise ValueError(f"model = 'local': no bound is proven for {problem!r} in the local model")
    if problem == "histogram" and n is None:
        results = _endless_histogram(question, relation)
    else:
        results = bound(question)
    method = max(results, key=lambda name: results[name])
    words = f"{method}, through groups of two" if twice else method
    return Bound(max(results[method], 0.0), math.inf, "lower", words)


def _check_arguments(problem: str, given: Mapping[str, object]) -> None:
    known = PROBLEMS[problem]
    for name, value in given.items():
        if value is not None and name not in known.arguments:
            uses = ", ".join(known.arguments) or "n and budget alone"
            raise ValueError(f"{name} = {value!r} is not used by {problem!r}, which takes {uses}")
    for name in known.needed:
        if given[name] is None:
            raise ValueError(f"{name}: {problem!r} needs it")


def _records(problem: str, n: int | None, relation: Neighboring, model: str) -> int:
    if problem == "quantile" and n is not None:
        raise ValueError(f"n = {n!r} is not used by 'quantile': it is the number of values")
    if n is None and problem in ("histogram", "quantile"):
        return 0
    if n is None:
        secret = " and secret under add-remove" if relation == "add-remove" else ""
        raise ValueError(
            f"n = None: the number of records is unknown{secret}, and no bound is proven for that; "
            "give n= and read the error at that size"
        )
    if model == "local" and relation == "add-remove":
        raise ValueError(
            "budget: a report of one record has no add-remove relation; give a curve under "
            "replace-one"
        )
    number = check.integer("n", n, 1)
    if number > LIMITS.records:
        raise ValueError(f"n = {n!r} must be at most {LIMITS.records:g}")
    return number


def _numbers(values: Iterable[float]) -> tuple[float, ...]:
    numbers = [check.finite("values", v) for v in check.several("values", values)]
    if len(numbers) < 3:
        raise ValueError(f"values has {len(numbers)} numbers and must have at least 3")
    for v in numbers:
        if abs(v) > LIMITS.largest_width:
            raise ValueError(
                f"values has {v!r}, and must be from {-LIMITS.largest_width:g} to "
                f"{LIMITS.largest_width:g}; state the values in another unit"
            )
    return tuple(sorted(numbers))


def _scale(name: str, value: float) -> float:
    number = check.positive(name, value)
    if not LIMITS.least_width <= number <= LIMITS.largest_width:
        raise ValueError(
            f"{name} = {value!r} must be from {LIMITS.least_width:g} to "
            f"{LIMITS.largest_width:g}; state all sizes in another unit"
        )
    return number


def _parts(name: str, value: int, least: int) -> int:
    number = check.integer(name, value, least)
    if number > LIMITS.parts:
        shown = repr(number) if number < 10**30 else "a number of more than 30 digits"
        raise ValueError(
            f"{name} = {shown} must be from {least} to {LIMITS.parts:,}; ask for fewer"
        )
    return number


def _width(ask: _Question, most: float) -> list[float]:
    """Return half widths of a prior to try, at most ``most``: a stated one, or several."""
    if ask.prior is not None:
        if ask.prior > most:
            raise ValueError(
                f"prior = {ask.prior!r} must be at most {most:g}: a prior outside the parameter "
                "set bounds nothing"
            )
        return [ask.prior]
    return [math.inf] if math.isinf(most) else [float(w) * most for w in WIDTHS]


def _on_interval(ask: _Question, results: Methods) -> Methods:
    """Scale bounds on squared errors from an interval of width 1 to half width ``ask.radius``."""
    scale = (2 * ask.radius) ** 2
    return {name: scale * value * DOWN for name, value in results.items()}


# Central model


def _bernoulli(ask: _Question) -> Methods:
    g, n = ask.guarantee, ask.n

    def coins(p: Array) -> Array:
        with np.errstate(divide="ignore"):
            return 1 / (0.25 - np.minimum(p, 0.5) ** 2)

    private = 4 * n * n * g.chi_square
    widths = _width(ask, 0.5)
    trees = max(
        cosine_risk(min(n * mean_information(coins, w) if w < 0.5 else math.inf, private), w)
        for w in widths
    )
    if ask.prior is not None:
        return {VAN_TREES: trees}
    moved = max(
        bayes_risk(n, 2, a) / 2 + moved_error(n, 2, a, g.chi_square) / (n + 2 * a) ** 2
        for a in priors(n, 2)
    )
    return {
        MOVED: moved * DOWN,
        VAN_TREES: trees,
        TWO_POINTS: best_pair(g, n, lambda d: d * d, lambda d: 2 * d, 0.5),
    }


def _normal(ask: _Question) -> Methods:
    g, n, sigma = ask.guarantee, ask.n, ask.sigma
    information = min(n / sigma**2, n * n * 2 / math.pi / sigma**2 * g.chi_square)
    trees = max(cosine_risk(information, w) for w in _width(ask, ask.radius))
    if ask.prior is not None:
        return {VAN_TREES: trees}
    most = min(ask.radius, 8 * sigma)
    points = best_pair(g, n, lambda d: d * d, lambda d: math.erf(d / (sigma * math.sqrt(2))), most)
    return {VAN_TREES: trees, TWO_POINTS: points}


def _ball(ask: _Question) -> Methods:
    g, n, d = ask.guarantee, ask.n, ask.dimension
    k = 2 * d
    moved = max(
        bayes_risk(n, k, a) / (1 - 1 / k)
        # same: * d -> / d: Safe: a smaller lower bound, since 4 / d is at most 4 d.
        + 4 * d * moved_error(n, k, a, g.chi_square) / (n + k * a) ** 2
        for a in priors(n, k)
    )
    assouad = best_pair(g, n, lambda t: t * t / d, lambda t: t / d, 1.0)
    packing, fano = ball_packing(g, n, d)
    results = {MOVED: moved, "Assouad": assouad, "packing": packing, "Fano": fano}
    scale = ask.radius**2 * DOWN
    return {name: scale * value for name, value in results.items()}


def _categories(ask: _Question) -> Methods:
    g, n, k = ask.guarantee, ask.n, ask.categories
    moved = max(
        bayes_risk(n, k, a) + 2 * (k - 1) * moved_error(n, k, a, g.chi_square) / (n + k * a) ** 2
        for a in priors(n, k)
    )
    pairs = k // 2
    # Each pair of categories has the share 2 / k, split by (1 + t) / 2: two coordinates.
    assouad = best_pair(g, n, lambda t: 2 * pairs * (t / k) ** 2, lambda t: 2 * t / k, 1.0)
    return {MOVED: moved * DOWN, "Assouad": assouad}


def _histogram(ask: _Question) -> Methods:
    g, n, k = ask.guarantee, ask.n, ask.categories
    moved = max(2 * (1 - 1 / k) * moved_error(n, k, a, g.chi_square) for a in priors(n, k))
    largest = max(min(n // max(k // 2, 1), 10**7), 1)
    # same: 60 -> 61: Each size gives a bound. Which sizes are tried changes the largest of them by
    # less than the grid resolves.
    sizes = np.unique(np.geomspace(1, largest, 60).astype(np.int64)).astype(float)
    # k // 2 pairs of categories with `size` records each, all in one category of the pair.
    pair = float(np.max(sizes**2 / 4 * g.affinity(sizes)))
    assouad = 2 * (k // 2) / k * pair * DOWN if n >= k // 2 else 0.0
    return {MOVED: moved * DOWN, "Assouad": assouad}


def _endless_histogram(ask: _Question, relation: Neighboring) -> Methods:
    """Bound a histogram's squared error per count from below, for many records [OP-13].

    One record changes two counts, or one if ``relation`` is add-remove.
    """
    g, k = ask.guarantee, ask.categories
    counts = 1.0 if relation == "add-remove" else 2 * (1 - 1 / k)
    moved = counts / g.chi_square if g.chi_square > 0 else math.inf
    sizes = np.unique(np.geomspace(1, 1e6, 80).astype(np.int64)).astype(float)
    most = float(np.max(sizes**2 / 4 * g.affinity(sizes)))
    pairs = 1.0 if relation == "add-remove" else 2 * (k // 2) / k
    return {MOVED: moved * DOWN, "Assouad": pairs * most * DOWN}


def _quantile(ask: _Question) -> Methods:
    """Bound a quantile's squared error from below [OP-14].

    If k records are replaced, the quantile's rank moves by at most k.
    """
    x = np.array(ask.values)
    middle = min(max(math.ceil(ask.quantile * len(x)) - 1, 0), len(x) - 1)
    above, below = x[middle + 1 :] - x[middle], (x[middle] - x[:middle])[::-1]
    size = min(max(len(above), len(below)), 100_000)
    moved = np.zeros(size)
    for side in (above, below):
        moved[: min(len(side), size)] = np.maximum(moved[: min(len(side), size)], side[:size])
    return {TWO_POINTS: data_pair(ask.guarantee, moved)}


# Local model


def _local_bernoulli(ask: _Question) -> Methods:
    g, n = ask.guarantee, ask.n
    trees = max(
        cosine_risk(n * mean_information(information_of_a_bit(g), 2 * w), 2 * w) / 4
        for w in _width(ask, 0.5)
    )
    return {VAN_TREES: trees}


def _local_normal(ask: _Question) -> Methods:
    g, n, sigma = ask.guarantee, ask.n, ask.sigma
    information = n / sigma**2 * min(1.0, 2 / math.pi * g.chi_square)
    return {VAN_TREES: max(cosine_risk(information, w) for w in _width(ask, ask.radius))}


def _local_ball(ask: _Question) -> Methods:
    g, n, d = ask.guarantee, ask.n, ask.dimension
    best = 0.0
    for b in WIDTHS.tolist():
        each = min(g.chi_square, d) / (1 - b * b) if b < 1 else math.inf
        best = max(best, d / (n * each + d * (math.pi / b) ** 2))
    return {VAN_TREES: ask.radius**2 * best * DOWN}


@dataclass(frozen=True)
class _Problem:
    central: Callable[[_Question], Methods]
    local: Callable[[_Question], Methods] | None = None
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.needed + self.optional


PROBLEMS = {
    "bernoulli-mean": _Problem(_bernoulli, _local_bernoulli, (), ("prior",)),
    "share": _Problem(_bernoulli, _local_bernoulli, (), ("prior",)),
    "bounded-mean": _Problem(
        lambda ask: _on_interval(ask, _bernoulli(ask)),
        lambda ask: _on_interval(ask, _local_bernoulli(ask)),
        ("radius",),
    ),
    "normal-mean": _Problem(_normal, _local_normal, ("sigma",), ("radius", "prior")),
    "regression-coefficient": _Problem(_normal, _local_normal, ("sigma",), ("radius", "prior")),
    "ball-mean": _Problem(_ball, _local_ball, ("radius", "dimension")),
    "category-shares": _Problem(
        _categories,
        lambda ask: {VAN_TREES: category_risk(ask.guarantee, ask.n, ask.categories)},
        ("categories",),
    ),
    "histogram": _Problem(_histogram, None, ("categories",)),
    "quantile": _Problem(_quantile, None, ("values",), ("quantile",)),
}
"""Each problem, by name."""
