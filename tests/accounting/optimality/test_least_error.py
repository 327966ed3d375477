"""Lower bounds on errors: no release, and no release that anyone could make, is below them."""

import itertools
import math
from fractions import Fraction as F
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import betaln, gammaln, ndtri
from scipy.stats import binom

import neyman as ny
from neyman import Tradeoff
from neyman.accounting.optimality.guarantee import Guarantee, normal_affinity
from neyman.accounting.optimality.least_error import _endless_histogram
from neyman.accounting.optimality.lower_bounds import (
    ball_packing,
    bayes_risk,
    best_pair,
    largest_variance,
    many_spread,
    mean_affinity,
    mean_information,
    moved_error,
    packing_success,
    priors,
    two_spread,
)

GUARANTEES = {
    "gdp": ny.gdp(0.2),
    "pure": ny.pure("0.5"),
    "zcdp": ny.zcdp("0.02"),
    "approximate": ny.approximate("0.3", 1e-4),
    "power": ny.at_most(0.1, 0.05),
    "laplace": ny.Laplace(4).tradeoff(),
}
PROBLEMS = [
    ("bernoulli-mean", {}),
    ("bounded-mean", {"radius": 2.0}),
    ("normal-mean", {"sigma": 1.0}),
    ("normal-mean", {"sigma": 1.0, "radius": 0.5}),
    ("regression-coefficient", {"sigma": 2.0, "radius": 3.0}),
    ("ball-mean", {"radius": 1.0, "dimension": 5}),
    ("category-shares", {"categories": 6}),
    ("histogram", {"categories": 6}),
]
LOCAL = [p for p in PROBLEMS if p[0] != "histogram"]


# ---- values that were computed without the library -----------------------------------------------


def test_affinities_are_those_of_mpmath_and_closed_forms():
    for mu, target in ((1, 0.7959457343664997), (2, 0.4495995092066728)):
        exact = mp.quad(
            lambda z, mu=mu: mp.npdf(z) * 2 / (1 + mp.exp(mu**2 / 2 - mu * z)), [-40, 0, 40]
        )
        assert float(exact) == pytest.approx(target, rel=1e-14)
        bound = ny.gdp(mu).affinity()
        assert bound.lower <= target <= bound.upper
        assert bound.width < 1e-5
        assert normal_affinity(np.array([float(mu)]))[0] == pytest.approx(target, rel=1e-10)
    for epsilon in ("0.1", 1, 3):
        bound, truth = ny.pure(epsilon).affinity(), 1 / math.cosh(float(epsilon) / 2) ** 2
        assert bound.lower <= truth * (1 + 1e-12)
        assert bound.upper >= truth * (1 - 1e-12)
    assert ny.perfect().affinity().lower == pytest.approx(1, abs=1e-9)
    leak = ny.approximate(1, "0.01").affinity()
    assert leak.lower <= 0.99 / math.cosh(0.5) ** 2 <= leak.upper


def test_the_affinity_of_an_ordered_pair_is_that_of_both_orders():
    f = ny.between(["1/2", "1/2"], ["9/10", "1/10"])
    both = f.symmetric().affinity()
    assert f.affinity().lower == both.lower


def test_the_two_point_bound_has_the_value_of_theory():
    value = 0.0125**2 * mean_affinity(Guarantee.of(ny.gdp(0.1)), 1000, 0.025, 400)
    assert value == pytest.approx(5.03859e-5, rel=1e-5)
    exact = math.fsum(
        float(binom.pmf(k, 1000, 0.025)) * float(normal_affinity(np.array([0.1 * k]))[0])
        for k in range(200)
    )
    assert value <= 0.0125**2 * exact
    assert mean_affinity(Guarantee.of(ny.gdp(0.5)), 30, 0.2) * 0.01 <= 0.0051882104


def test_randomized_response_is_within_its_gap():
    """1.0762 of optimal for 1000 people and 1.0072 for 100,000, and mean 0.004351150 by hand."""
    rate = math.tanh(0.5)
    for n, gap in ((1000, 1.0762), (100_000, 1.0072)):
        least = ny.least_error("share", n=n, budget=ny.pure(1), model="local")
        assert 1 / (4 * n * rate**2) / least.lower == pytest.approx(gap, abs=1e-4)
    normal = ny.least_error(
        "normal-mean", n=100, budget=ny.gdp(0.1), sigma=3, radius=1e9, model="local"
    )
    assert normal.lower == pytest.approx(9 / (100 * 2 / math.pi * math.expm1(0.01)), rel=1e-6)
    fixed = ny.least_error("share", n=1000, budget=ny.pure(1), model="local", prior=0.5)
    assert 4 * fixed.lower == pytest.approx(0.004351150, rel=1e-6)


def test_packing_has_the_value_of_theory():
    success = packing_success(Guarantee.of(ny.gdp(0.1)), math.log(1024), 10)
    assert success == pytest.approx(0.0177640, rel=1e-4)
    pure = packing_success(Guarantee.of(ny.pure("0.1")), math.log(1024), 10)
    assert pure == pytest.approx(math.e / (math.e + 1023), rel=1e-4)


def test_the_normal_information_is_that_of_theory():
    least = ny.least_error(
        "normal-mean", n=1000, budget=ny.gdp(0.02), sigma=1, radius=1e6, prior=1e6
    )
    assert 1 / least.lower == pytest.approx(254.6988, rel=1e-5)


def test_the_mean_of_an_information_is_at_least_the_integral():
    for width in (0.3, 0.9):
        mean = mean_information(lambda p: 1 / (0.25 - (p / 2) ** 2), width)
        exact = mp.quad(
            lambda t, b=width: mp.cos(mp.pi * t / (2 * b)) ** 2 / b / (0.25 - (t / 2) ** 2),
            [-width, 0, width],
        )
        assert float(exact) <= mean <= float(exact) * (1 + 1e-5)


# ---- brute force ---------------------------------------------------------------------------------


def posterior(n, alpha):
    """Chance of each count under the beta prior, and mean and variance of p after it."""
    j = np.arange(n + 1)
    log = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    mass = np.exp(log + betaln(j + alpha, n - j + alpha) - betaln(alpha, alpha))
    mean = (j + alpha) / (n + 2 * alpha)
    return mass, mean, mean * (1 - mean) / (n + 2 * alpha + 1)


@pytest.mark.parametrize(("n", "epsilon"), [(1, 0.5), (3, 1.0), (5, 0.3), (6, 2.0)])
@pytest.mark.parametrize("alpha", [1.2, 2.0, 4.0])
def test_no_pure_mechanism_at_all_has_a_smaller_bayes_risk(n, epsilon, alpha):
    mass, mean, variance = posterior(n, alpha)
    grid = np.linspace(mean[0], mean[-1], 61)
    cost = mass[:, None] * (variance[:, None] + (grid[None] - mean[:, None]) ** 2)
    rows = []
    for j, y in itertools.product(range(n), range(len(grid))):
        for a, b in ((j, j + 1), (j + 1, j)):
            row = np.zeros(cost.shape)
            row[a, y], row[b, y] = 1, -math.exp(epsilon)
            rows.append(row.ravel())
    equal = np.kron(np.eye(n + 1), np.ones(len(grid)))
    best = linprog(
        cost.ravel(), np.array(rows), np.zeros(len(rows)), equal, np.ones(n + 1), method="highs"
    ).fun
    chi = 4 * math.sinh(epsilon / 2) ** 2
    bound = bayes_risk(n, 2, alpha) / 2 + moved_error(n, 2, alpha, chi) / (n + 2 * alpha) ** 2
    assert bayes_risk(n, 2, alpha) / 2 < bound <= best + 1e-9
    assert ny.least_error("share", n=n, budget=ny.pure(repr(epsilon))).lower <= 0.25


@pytest.mark.parametrize(("n", "mu", "alpha"), [(4, 0.5, 2.0), (12, 0.3, 1.5), (40, 0.2, 4.0)])
def test_the_bayes_risk_of_the_gaussian_mechanism_is_above_the_bound(n, mu, alpha):
    mass, mean, variance = posterior(n, alpha)
    y = np.linspace(-9 / mu, n + 9 / mu, 4001)
    density = np.exp(-(((y[None] - np.arange(n + 1)[:, None]) * mu) ** 2) / 2)
    joint = mass[:, None] * density * mu / math.sqrt(2 * math.pi) * (y[1] - y[0])
    guess = (joint * mean[:, None]).sum(0) / joint.sum(0)
    risk = float((joint * (variance[:, None] + (guess[None] - mean[:, None]) ** 2)).sum())
    chi = math.expm1(mu * mu)
    bound = bayes_risk(n, 2, alpha) / 2 + moved_error(n, 2, alpha, chi) / (n + 2 * alpha) ** 2
    assert bayes_risk(n, 2, alpha) / 2 < bound < risk


def test_the_bayes_risk_of_three_categories_is_above_the_bound():
    n, k, alpha, epsilon = 5, 3, 4.0, 1.0
    counts = [c for c in itertools.product(range(n + 1), repeat=k) if sum(c) == n]
    c = np.array(counts, float)
    log = gammaln(n + 1) - gammaln(c + 1).sum(1) + gammaln(c + alpha).sum(1)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    mean = (c + alpha) / (n + k * alpha)
    each = (mean * (1 - mean)).sum(1) / (n + k * alpha + 1)
    noise = np.arange(-12, 13 + n)
    law = np.exp(-np.abs(noise[None] - np.arange(n + 1)[:, None]) * epsilon / 2)
    law /= law.sum(1, keepdims=True)
    joint = np.einsum("i,ia,ib,ic->iabc", mass, *(law[c[:, i].astype(int)] for i in range(k)))
    total = joint.sum(0)
    guess = np.einsum("iabc,ik->kabc", joint, mean) / total
    risk = float(mass @ (each + (mean**2).sum(1)) - (total * (guess**2).sum(0)).sum())
    assert float(mass @ each) == pytest.approx(bayes_risk(n, k, alpha), rel=1e-12)
    chi = 4 * math.sinh(epsilon / 2) ** 2  # truncated noise is less private by a little
    more = 2 * (k - 1) * moved_error(n, k, alpha, chi) / (n + k * alpha) ** 2
    assert bayes_risk(n, k, alpha) < bayes_risk(n, k, alpha) + more < risk


def exact_moved_error(n, k, alpha, chi_square):
    """The definition of D, for more than two categories, in mpmath."""
    a, total = mp.mpf(alpha), k * mp.mpf(alpha)

    def chance(j):
        choose = mp.loggamma(n + 1) - mp.loggamma(j + 1) - mp.loggamma(n - j + 1)
        beta = mp.loggamma(j + a) + mp.loggamma(n - j + total - a) - mp.loggamma(n + total)
        return mp.exp(choose + beta - mp.loggamma(a) - mp.loggamma(total - a) + mp.loggamma(total))

    second = (total - 1) * (total - 2) / ((a - 1) * (a - 2)) / (mp.mpf(n + 1) * (n + 2))
    third = 3 * second * (total - 3) / ((a - 3) * (n + 3))
    s = 2 * (a - 1) ** 2 * min(second + third, 1)
    none, one = chance(0), chance(1)
    return (1 - none) ** 2 / (chi_square * (1 - 2 * none + s) + s - none + 2 * one)


@pytest.mark.parametrize("k", [3, 1000, 10**6])
@pytest.mark.parametrize("n", [1, 20, 100, 10**4, 10**5, 10**5 + 1, 10**9, 10**15])
def test_what_one_moved_record_adds_is_at_most_its_definition(n, k):
    with mp.workdps(60):
        for alpha in (3.05, 40.0, max(3.05, 4 * math.sqrt(n) / k)):
            for chi_square in (1e-3, 0.1, 5.0):
                exact = exact_moved_error(n, k, alpha, chi_square)
                assert exact * (1 - 1e-8) < moved_error(n, k, alpha, chi_square) <= exact


@pytest.mark.parametrize("n", [20, 100])
def test_the_least_error_of_many_bins_and_few_records_is_at_most_its_definition(n):
    k, chi_square = 10**6, mp.expm1(mp.mpf(0.3) ** 2)
    lower = ny.least_error("histogram", n=n, categories=k, budget=ny.gdp(0.3)).lower
    with mp.workdps(60):
        exact = max(
            2 * (1 - mp.mpf(1) / k) * exact_moved_error(n, k, alpha, chi_square)
            for alpha in priors(n, k)
            if alpha > 3
        )
    assert exact * (1 - 1e-6) < lower <= exact


def test_the_law_of_a_count_is_summed_from_above():
    for n, alpha in ((1, 1.5), (7, 2.0), (400, 5.0), (5000, 20.0)):
        mass = posterior(n, alpha)[0]
        j = np.arange(n + 1)
        moved = (alpha - 1) * (n - 2 * j - 1) / ((j + 1) * (n - j - 1 + alpha))
        exact = float((mass * moved**2).sum())
        assert exact <= two_spread(n, alpha) <= exact * (1.2 if n < 5000 else 1.3)
        following = np.append(mass[1:] / mass[:-1], 0.0)
        np.testing.assert_allclose(following, 1 + moved, atol=1e-9)
    rng = np.random.default_rng(1)
    for n, k, alpha in ((20, 3, 4.0), (200, 5, 6.0)):
        counts = rng.multinomial(n, rng.dirichlet([alpha] * k, 20_000))
        a, b = counts[:, 0], counts[:, 1]
        moved = (alpha - 1) * (b - a - 1) / ((a + 1) * (b + alpha - 1))
        assert (moved**2).mean() < many_spread(n, k, alpha)


@pytest.mark.parametrize("mu", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("n", [1, 5, 50, 1000])
def test_no_library_release_of_a_share_is_below_the_bound(n, mu):
    gaussian = 0.25 / n + 1 / (n * mu) ** 2
    laplace = 0.25 / n + 2 / (n * mu) ** 2
    assert ny.least_error("share", n=n, budget=ny.gdp(mu)).lower < gaussian
    assert ny.least_error("share", n=n, budget=ny.zcdp(repr(mu * mu / 2))).lower < gaussian
    assert ny.least_error("share", n=n, budget=ny.pure(repr(mu))).lower < laplace
    assert ny.least_error("share", n=n, budget=ny.Laplace(1 / mu)).lower < laplace


@pytest.mark.parametrize("n", [10, 1000, 100_000])
@pytest.mark.parametrize("k", [2, 3, 20])
def test_no_library_release_of_many_numbers_is_below_the_bound(n, k):
    mu = 0.3
    f = ny.gdp(mu)
    assert ny.least_error("histogram", n=n, budget=f, categories=k).lower < 2 / mu**2
    shares = (1 - 1 / k) * (1 / n + 2 * k / (n * mu) ** 2)
    assert ny.least_error("category-shares", n=n, budget=f, categories=k).lower < shares
    ball = 1 / n + 4 * k / (n * mu) ** 2
    assert ny.least_error("ball-mean", n=n, budget=f, radius=1, dimension=k).lower < ball
    laplace = 1 / n + 8 * k * k / (n * 0.3) ** 2
    assert ny.least_error("ball-mean", n=n, budget=ny.pure("0.3"), radius=1, dimension=k).lower < (
        laplace
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("k", [2, 5, 64])
@pytest.mark.parametrize("n", [1, 10, 10_000])
def test_no_local_report_is_below_the_bound(epsilon, k, n):
    least = ny.least_error(
        "category-shares", n=n, budget=ny.pure(epsilon), categories=k, model="local"
    ).lower
    for way in (
        ny.CategoryResponse(epsilon, k),
        ny.UnaryEncoding(epsilon, k),
        ny.UnaryEncoding(epsilon, k, optimised=True),
        ny.HadamardResponse(epsilon, k),
    ):
        shares = np.linspace(0, 1, 101)
        worst = max(way.variance(float(p), n) + p * (1 - p) / n for p in shares)
        assert least < k * worst


# ---- shape ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("problem", "more"), PROBLEMS)
def test_bounds_grow_as_budgets_shrink_and_meet_the_bound_without_privacy(problem, more):
    results = [
        ny.least_error(problem, n=500, budget=ny.gdp(mu), **more).lower
        for mu in (100.0, 3.0, 1.0, 0.3, 0.1, 0.01, 0.001)
    ]
    assert all(a <= b * (1 + 1e-6) for a, b in itertools.pairwise(results))
    free = {
        "bernoulli-mean": 0.25 / (math.sqrt(500) + 1) ** 2,
        "bounded-mean": 4.0 / (math.sqrt(500) + 1) ** 2,
        "ball-mean": 1 / (math.sqrt(500) + 1) ** 2,
        "category-shares": (1 - 1 / 6) / (math.sqrt(500) + 1) ** 2,
        "histogram": 0.0,
    }
    if problem in free:
        assert results[0] == pytest.approx(free[problem], rel=1e-6, abs=1e-9)
    elif "radius" not in more:
        assert results[0] == pytest.approx(1 / 500, rel=1e-6)


@pytest.mark.parametrize(("problem", "more"), LOCAL)
def test_local_bounds_grow_as_budgets_shrink(problem, more):
    results = [
        ny.least_error(problem, n=5000, budget=ny.pure(e), model="local", **more).lower
        for e in (50, 5, 1, "0.3", "0.1")
    ]
    assert all(a <= b * (1 + 1e-6) for a, b in itertools.pairwise(results))


@pytest.mark.parametrize("budget", GUARANTEES.values(), ids=GUARANTEES)
@pytest.mark.parametrize(("problem", "more"), PROBLEMS)
def test_every_budget_has_a_bound_and_a_method(problem, more, budget):
    least = ny.least_error(problem, n=300, budget=budget, **more)
    assert 0 < least.lower < math.inf == least.upper
    assert least.method in (
        "one moved record",
        "van Trees",
        "two points",
        "Assouad",
        "packing",
        "Fano",
    )


def test_gaussian_noise_is_optimal_for_a_share_and_a_histogram():
    n, mu = 10**6, 0.01
    achieved = 0.25 / n + 1 / (n * mu) ** 2
    for budget in (ny.gdp(mu), ny.zcdp(repr(mu * mu / 2))):
        assert 1 < achieved / ny.least_error("share", n=n, budget=budget).lower < 1.01
        cells = ny.least_error("histogram", n=n, budget=budget, categories=10).lower
        assert 1 < 2 / mu**2 / cells < 10 / 9 * 1.01


def test_packing_and_fano_are_the_best_for_few_records_in_many_dimensions():
    least = ny.least_error("ball-mean", n=5000, budget=ny.pure("0.1"), radius=1, dimension=500)
    assert least.method == "packing"
    packing, fano = ball_packing(Guarantee.of(ny.zcdp("0.0001")), 1000, 2000)
    assert packing == 0 < fano


@pytest.mark.parametrize(("k", "n", "mu"), [(4, 1000, 1.0), (64, 10_000, 0.3)])
def test_the_local_bound_of_categories_has_the_value_of_theory(k, n, mu):
    """Van Trees, with the moments of the largest inverse share: the best of many priors."""

    def value(alpha):
        orders = [m for m in (1, 2, 4, 8, 16, 32, 64) if m < alpha]
        inverses = [(m, np.arange(1, m + 1)) for m in orders]
        moments = [(m, k * np.prod((k * alpha - i) / (k * (alpha - i)))) for m, i in inverses]
        mean = (k - 1) * (k * alpha - 1) / (k * (alpha - 1))
        largest = min(moment ** (1 / m) for m, moment in moments)
        variance = min(mean, (1 - 1 / k) * math.expm1(mu**2) * largest)
        prior = (k - 1) * (k * alpha - 1) * (k * alpha - 2) / (alpha - 2)
        return (k - 1) ** 2 / (n * k * variance + prior)

    best = max(value(alpha) for alpha in np.geomspace(2.1, 1e5, 200))
    least = ny.least_error(
        "category-shares", n=n, budget=ny.gdp(mu), categories=k, model="local"
    ).lower
    assert least == pytest.approx(best, rel=4e-3)


def test_the_quantile_bound_has_the_value_of_theory():
    x = ndtri((np.arange(101) + 0.5) / 101)
    least = ny.least_error("quantile", budget=ny.pure(1), values=x)
    step = 0.02482065 / 2
    assert least.lower >= step**2 / math.cosh(0.5) ** 2 * (1 - 1e-4)
    assert step * (1 - math.tanh(0.5)) == pytest.approx(0.0066753, rel=1e-4)
    assert least.lower <= (0.0510519 * 1.2533) ** 2 * 1.6


def test_the_quantile_bound_of_the_largest_of_three_values():
    for epsilon in (0.1, 1.0):
        least = ny.least_error("quantile", budget=ny.pure(epsilon), values=[0, 1, 1], quantile=0.9)
        assert least.lower == pytest.approx(1 / math.cosh(epsilon) ** 2 / 4, rel=1e-6)


def test_a_pair_of_laws_is_about_the_best_at_any_distance():
    guarantee = Guarantee.of(ny.pure(1))
    for n in (1, 10**3, 10**6):
        best = best_pair(guarantee, n, lambda d: d * d, lambda d: d, 1.0)
        for d in np.geomspace(0.01 / n, 1, 40).tolist():
            assert best >= 0.99 * d * d * mean_affinity(guarantee, n, d)


def test_the_bound_of_endless_histograms_is_below_that_of_exact_affinities():
    for epsilon in np.geomspace(0.01, 2, 100).tolist():
        guarantee = Guarantee(4.0, epsilon, math.inf, math.inf, ())
        ask = SimpleNamespace(guarantee=guarantee, categories=3)
        near = max(math.floor(2.39936 / epsilon), 1)  # where x tanh x is 1, x = k epsilon / 2
        exact = [
            mp.mpf(k) ** 2 / 4 * mp.sech(k * mp.mpf(epsilon) / 2) ** 2 for k in (near, near + 1)
        ]
        assert _endless_histogram(ask, "add-remove")["Assouad"] <= max(exact)


def test_an_add_remove_budget_counts_through_groups_of_two():
    f = Tradeoff.of(ny.gdp(0.1).alternatives, "add-remove")
    ours = ny.least_error("share", n=1000, budget=f)
    assert ours.lower == pytest.approx(
        ny.least_error("share", n=1000, budget=ny.gdp(0.2)).lower, rel=1e-6
    )
    assert "groups of two" in ours.method
    cells = ny.least_error("histogram", budget=f, categories=5)
    assert cells.lower == pytest.approx(1 / math.expm1(0.01), rel=1e-6)


@pytest.mark.parametrize("model", ["central", "local"])
@pytest.mark.parametrize("n", [1, 10**12])
@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("normal-mean", {"sigma": 1e-100, "radius": 1e100}),
        ("normal-mean", {"sigma": 1e100, "radius": 1e-100}),
        ("share", {"prior": 1e-100}),
        ("bounded-mean", {"radius": 1e100}),
        ("ball-mean", {"radius": 1e100, "dimension": 10**6}),
        ("category-shares", {"categories": 10**6}),
    ],
)
def test_the_ends_of_the_ranges_have_finite_bounds(problem, arguments, n, model):
    for budget in (ny.gdp(1), ny.pure(1)):
        assert math.isfinite(
            ny.least_error(problem, n=n, budget=budget, model=model, **arguments).lower
        )


def test_the_largest_variance_is_the_largest_of_all_sizes():
    for k in (2, 3, 7, 100):
        size = np.arange(1, k) / k
        for epsilon in (1e-9, 0.3, 1.0, 4.0, 30.0, 299.0):
            more = math.expm1(epsilon)
            every = size * (1 - size) * (more / (1 + size * more)) ** 2
            assert largest_variance(epsilon, k) == every.max()


def test_an_unknown_size_under_add_remove_is_refused():
    step = ny.Gaussian(1).subsample(rate=0.1)
    with pytest.raises(ValueError, match="secret under add-remove, and no bound is proven"):
        ny.least_error("share", budget=step)
    with pytest.raises(ValueError, match="no add-remove relation"):
        ny.least_error("share", n=10, budget=step, model="local")


def test_no_random_mechanism_on_counts_has_a_smaller_bayes_risk():
    rng = np.random.default_rng(5)
    for _ in range(300):
        n, alpha = int(rng.integers(1, 9)), float(rng.choice([1.1, 1.5, 3.0, 12.0]))
        j = np.arange(n + 1)[:, None]
        law = np.exp(j * rng.normal(size=6) * rng.choice([0.05, 0.3, 1, 3]))
        law /= law.sum(1, keepdims=True)
        pairs = [(law[a], law[b]) for a in range(n + 1) for b in (a - 1, a + 1) if 0 <= b <= n]
        chi = max(float((p * p / q).sum()) - 1 for p, q in pairs)
        mass, mean, variance = posterior(n, alpha)
        joint = mass[:, None] * law
        guess = (joint * mean[:, None]).sum(0) / joint.sum(0)
        risk = float((joint * (variance[:, None] + (guess[None] - mean[:, None]) ** 2)).sum())
        bound = bayes_risk(n, 2, alpha) / 2
        bound += moved_error(n, 2, alpha, chi) / (n + 2 * alpha) ** 2
        assert bound <= risk * (1 + 1e-9)


def test_no_random_local_channel_has_a_smaller_bayes_risk():
    rng = np.random.default_rng(6)
    k, alpha = 3, 3.0
    for _ in range(100):
        channel = np.exp(float(rng.choice([0.3, 1, 4])) * rng.integers(0, 2, (k, 3)))
        channel /= channel.sum(1, keepdims=True)
        epsilon = float(np.log(channel.max(0) / channel.min(0)).max())
        if epsilon < 1e-6:
            continue
        after = alpha + np.eye(k)
        total = k * alpha + 1
        mean = after / total
        risk = 0.0
        for report in channel.T:
            weight = report / k
            square = weight @ (after * (after + 1)).sum(1) / (total * (total + 1))
            risk += float(square - ((weight @ mean) ** 2).sum() / weight.sum())
        inverse = (k * alpha - 1) / (k * (alpha - 1))
        prior = (k - 1) * (k * alpha - 1) * (k * alpha - 2) / (alpha - 2)
        information = k * min(largest_variance(epsilon, k), k - 1.0) * inverse
        assert (k - 1) ** 2 / (information + prior) <= risk * (1 + 1e-9)


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**32 + 10_000, 10**12])
def test_a_mean_of_billions_of_records_can_be_as_accurate_as_the_bound(n):
    for dimension, mu in ((10**6, 8.0), (100, 1e-9)):
        least = ny.least_error("ball-mean", n=n, radius=1.0, dimension=dimension, budget=ny.gdp(mu))
        reached = 1 / n + dimension * (2 / (n * mu)) ** 2
        assert least.lower <= min(reached, 1.0) * (1 + 1e-9)
        assert least.lower >= min(reached, 1.0) / 1000


def test_blocks_of_changed_records_have_their_binomial_masses_at_any_size():
    guarantee = SimpleNamespace(affinity=lambda k: np.where(k <= 3, 1.0, 0.0))
    for n in (10**4, 2**31, 2**32 + 10_000, 10**12):
        with mp.workdps(30):
            t = mp.mpf(5) / n
            truth = mp.fsum(
                mp.exp(k * mp.log(t) + (n - k) * mp.log1p(-t) + mp.log(mp.binomial(n, k)))
                for k in range(4)
            )
        mass = mean_affinity(guarantee, n, 5 / n, blocks=60)
        assert mass <= truth
        assert mass >= truth * (1 - 1e-8)


@pytest.mark.parametrize("epsilon", ["1e-140", "1e-20", "1e-10", "1e-9", "1e-8", "1e-6", "0.001"])
def test_no_affinity_of_a_tiny_budget_is_that_of_perfect_privacy(epsilon):
    bound = ny.pure(epsilon).affinity()
    with mp.workdps(400):
        assert F(bound.lower) < 1 - F(epsilon) ** 2 / 4
        truth = mp.sech(mp.mpf(epsilon) / 2) ** 2
        assert mp.mpf(bound.lower) <= truth <= mp.mpf(bound.upper)
    assert ny.perfect().affinity().lower == 1
    assert ny.gdp(epsilon).affinity().lower < 1
