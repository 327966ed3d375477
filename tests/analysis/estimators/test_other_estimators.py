"""Covariance, histogram, quantile, and normal mean: shifts, distributions, intervals, and
refusals.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binom

import neyman as ny
from neyman.analysis.estimators import density, grid_quantile, second_moments, unbounded_mean
from neyman.mechanisms import Grid
from neyman.noise import SecureBits, draw_sorted_quantile
from neyman.noise.quantile_draw import _rings, runs
from neyman.numerics import largest_rate

pytestmark = pytest.mark.needs("release")
RHO = ny.zcdp("1/2")
MESS = [None, "x", 0.5, float("nan"), float("inf"), -float("inf"), 10**400, object(), 1e308, -3, 2]
FALSE_ALARM = 1e-6  # of each coverage test below


PURE = ny.pure(1)


def quantile(values, q, ends, budget=PURE, **more):
    lower, upper, step = ends
    given = {"lower": lower, "upper": upper, "step": step, "budget": budget}
    return ny.estimate.quantile(values, q, **given, **more)


@pytest.mark.parametrize("centered", [True, False])
def test_no_pair_of_records_moves_the_moments_by_more_than_the_stated_norm(centered):
    grid = 8
    weight = grid // 2 if centered else 0
    lattice = [v for v in itertools.product(range(-8, 9, 2), repeat=3) if np.dot(v, v) <= grid**2]
    # The whole matrix counts an entry off the diagonal twice, as half the noise variance does.
    images = np.array([np.outer(v, v).ravel() for v in lattice])
    sums = weight * np.array(lattice)
    apart = ((images[:, None] - images) ** 2).sum(axis=-1)
    worst = (apart + 2 * ((sums[:, None] - sums) ** 2).sum(axis=-1)).max()
    assert worst <= 2 * (grid**2 + weight**2) ** 2
    assert worst >= 2 * (grid**2 + weight**2) ** 2 * 0.9
    estimate = ny.estimate.covariance(np.zeros((3, 3)), radius=1, budget=RHO, centered=centered)
    arguments = estimate.receipt["arguments"]
    limit = 2 * (arguments["grid"] ** 2 + arguments["weight"] ** 2) ** 2
    assert limit <= estimate.mechanism.squared <= limit * (1 + 1e-9)
    assert RHO.admits(estimate.mechanism)


@pytest.mark.parametrize("centered", [True, False])
def test_no_record_that_comes_or_goes_moves_the_moments_by_more_than_the_stated_norm(centered):
    """Sums with and without each vector of a small grid, in exact integers; the longest attains it.

    The squares count off the diagonal twice, as half the noise variance does.
    """
    grid = 8
    weight, of_number = (grid // 2 if centered else 0), grid * grid // 2
    rest = np.array([(3, -5, 1), (0, 0, 8)])
    worst = 0
    for v in itertools.product(range(-8, 9, 2), repeat=3):
        if np.dot(v, v) > grid**2:
            continue
        rows = np.vstack([rest, v])
        moved = (rows.T @ rows - rest.T @ rest, rows.sum(axis=0) - rest.sum(axis=0))
        norm = (moved[0] ** 2).sum() + 2 * weight**2 * (moved[1] ** 2).sum() + of_number**2
        worst = max(worst, int(norm))
    assert worst == grid**4 * (7 if centered else 5) // 4
    for rows in (np.zeros((3, 3)), np.zeros((0, 3))):
        estimate = ny.estimate.covariance(
            rows, radius=1, budget=RHO, centered=centered, neighboring="add-remove"
        )
        arguments = estimate.receipt["arguments"]
        own = arguments["grid"]
        assert arguments["weight"] == (own // 2 if centered else 0)
        assert arguments["weight_of_number"] == own * own // 2
        limit = own**4 * (7 if centered else 5) // 4
        assert limit <= estimate.mechanism.squared <= limit * (1 + 1e-9)
        assert RHO.admits(estimate.mechanism)
        assert np.isfinite(estimate.value).all()
        # The number has a deviation below 3, so this fails in one of 10^10 calls.
        assert estimate.interval("0.999999999999")[1].max() == math.inf
    assert estimate.receipt["arguments"].keys().isdisjoint({"records"})


def test_second_moments_are_exact_integers():
    random = np.random.default_rng(2)
    rows = random.normal(size=(9000, 3))
    squares, total = second_moments.moments(rows, 1.0, 1 << 20)
    units = second_moments.grid_rows(rows, 1.0, 1 << 20, careful=True).astype(object)
    assert (squares == (units.T @ units)).all()
    assert (total == units.sum(axis=0)).all()


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 12), max_size=12),
    st.sampled_from([F(1, 2), F(1, 8), F(9, 10)]),
    st.integers(1, 30),
)
def test_rings_have_each_point_once_with_its_distance_and_bound_the_rest(table, q, cut):
    values, ends = np.sort(np.array(table, np.int64)), (0, 12)
    held = sorted(Counter(table).items())
    expected = {
        t: score
        for first, n, score in runs([v for v, _ in held], [c for _, c in held], ends, q)
        for t in range(first, first + n)
    }
    cells, points = [], {}
    for ring in _rings(values, ends, q, cut, cells):
        new = cells[len(cells) - len(ring.scores) :]
        for (first, n), score in zip(new, ring.scores, strict=True):
            assert not points.keys() & set(range(first, first + n))
            points |= dict.fromkeys(range(first, first + n), score)
        rest = expected.keys() - points.keys()
        assert len(rest) == ring.beyond
        assert all(expected[t] >= ring.least for t in rest)
    assert points == expected


def test_quantiles_follow_the_law_of_the_exponential_mechanism():
    """3,000 draws, chi-square on 4 degrees: a false alarm below 1e-6 (36.2)."""
    values, size, bits = np.array([0, 1, 1, 4]), 3000, SecureBits()
    draws = Counter(draw_sorted_quantile(values, (0, 4), F(1, 2), F(1), bits) for _ in range(size))
    distance = {0: 1, 1: 0, 2: 1, 3: 1, 4: 1}
    total = sum(math.exp(-d) for d in distance.values())
    expected = {t: size * math.exp(-d) / total for t, d in distance.items()}
    assert sum((draws[t] - e) ** 2 / e for t, e in expected.items()) < 36.2


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_a_quantile_meets_its_budget_and_states_its_rate(relation):
    for budget in (ny.pure(1), RHO, ny.gdp(1), ny.approximate(1, 1e-6)):
        estimate = quantile(
            [1, 2, 3], "3/4", (0, 4, "1/2"), budget=budget, confidence=None, neighboring=relation
        )
        assert budget.admits(estimate.mechanism)
    assert quantile([1, 2], "1/2", (0, 4, 1), confidence=None).mechanism.rate == F(1, 2)


@pytest.mark.parametrize("law", ["continuous", "ties"])
def test_the_interval_of_a_quantile_covers_at_the_stated_rate(law):
    """False-alarm rate 1e-6: misses are at most binomial with chance 0.5, and it is not vacuous."""
    random = np.random.default_rng(3)
    repeats, misses, widths = 25, 0, []
    for _ in range(repeats):
        values = random.normal(size=800)
        values, truth = (
            (values, 0.6744897501960817) if law == "continuous" else (np.rint(values), 1)
        )
        estimate = quantile(values, "3/4", (-10, 10, "1/100"), budget=ny.zcdp(2), confidence="1/2")
        low, high = estimate.interval("1/2")
        misses += not low <= truth <= high
        widths.append(high - low)
    assert misses <= binom.ppf(1 - FALSE_ALARM, repeats, 0.5)
    assert max(widths) < 4


@pytest.mark.parametrize(
    ("n", "q", "epsilon"), [(9, F(1, 2), 1), (40, F(1, 4), F(1, 2)), (5, F(9, 10), 2)]
)
def test_the_stated_error_of_a_quantile_is_that_of_the_enumerated_draw(n, q, epsilon):
    values, top = (np.arange(n) + 1) * 4000, (n + 1) * 4000
    estimate = quantile(values, q, (0, top, 1), budget=ny.pure(epsilon), neighboring="replace-one")
    grid = np.arange(top + 1)
    fewer, most = (np.searchsorted(values, grid, side) for side in ("left", "right"))
    ranks = np.maximum(0, np.maximum(fewer - float(q * n), float(q * n) - most))
    weight = np.exp(-float(estimate.mechanism.rate) * ranks)
    away = (grid - values[math.ceil(q * n) - 1]) / 4000
    truth = np.sqrt(np.sum(weight * away**2) / np.sum(weight))
    assert estimate.largest_error == pytest.approx(truth, rel=1e-4)


def few(n, c, q):
    """P(Bin(n, q) <= c) in mpmath, for c below the mean."""
    with mp.workdps(40):
        q = mp.mpf(F(q).numerator) / F(q).denominator
        log = mp.loggamma(n + 1) - mp.loggamma(c + 1) - mp.loggamma(n - c + 1)
        term = total = mp.exp(log + c * mp.log(q) + (n - c) * mp.log1p(-q))
        while c > 0 and term > total * 1e-20:
            term *= c * (1 - q) / ((n - c + 1) * q)
            total, c = total + term, c - 1
        return total


@pytest.mark.parametrize(
    ("n", "c", "q"),
    [
        (10**8, 49962362, F(1, 2)),
        (2**31 + 5, 1073600000, F(1, 2)),
        (2**31 + 5, 2130000, F(1, 1000)),
        (10**9, 999 * 10**6 - 5 * 10**3, F(999, 1000)),
        (1000, 0, F(1, 100)),
    ],
)
def test_ends_of_a_quantile_are_the_last_ranks_that_few_records_reach(n, c, q):
    exact, points, rate = few(n, c, q), 2, 1e300

    def ranks(level, share):
        low, high = grid_quantile._ends_of(level, n, points, rate, 4 * F(float(share)))
        slack = grid_quantile.LIMITS.rounding_share
        return (
            0 if low is None else round(float(low) * n / (1 - slack)),
            0 if high is None else n - round(float(high) * n / (1 + slack)),
        )

    for share in (exact * (1 - 1e-7), exact * (1 - 1e-12), exact / 2):
        assert ranks(q, share)[0] <= c
        assert ranks(1 - q, share)[1] <= c
    assert ranks(q, exact * (1 + 2e-8))[0] == c + 1
    assert ranks(1 - q, exact * (1 + 2e-8))[1] == c + 1


def test_few_records_have_an_infinite_end_and_no_draw_for_it():
    for confidence in (0.95, None):
        estimate = quantile([1, 2], "1/2", (0, 4, 1), confidence=confidence)
        assert estimate.mechanism == ny.InverseSensitivity("1/2")
        if confidence:
            assert estimate.interval() == (-math.inf, math.inf)
        else:
            with pytest.raises(ValueError, match="call the estimator with confidence"):
                estimate.interval()


def test_an_end_that_few_records_leave_infinite_gives_its_share_to_the_other_draws():
    estimate = quantile(np.arange(300) % 100, "9/10", (0, 120, "1/10"), confidence=0.95)
    assert estimate.mechanism == ny.InverseSensitivity("1/4", draws=2)
    assert estimate.interval()[1] == math.inf
    assert len(estimate.receipt["result"]["points"]) == 3


def test_several_quantiles_rise_with_their_levels_and_share_the_budget():
    values, crossed = np.arange(40), 0
    levels = ["3/4", 0.25, F(1, 2), "1/2"]
    for _ in range(50):
        estimate = quantile(values, levels, (0, 40, 1))
        high, low, one, other = estimate.value.tolist()
        assert low <= one <= other <= high
        points = [float(own[0]) for own in estimate.receipt["result"]["points"]]
        assert sorted(points) == sorted(estimate.value.tolist())
        crossed += points != estimate.value.tolist()
    assert crossed  # all fifty in order by chance: below 1e-12, two are alike
    assert estimate.mechanism == ny.InverseSensitivity("1/8", draws=4)
    assert np.isnan(estimate.standard_error).all()
    assert estimate.gap is None
    one = quantile(values, ["1/2"], (0, 40, 1))
    assert (one.value.shape, one.mechanism.rate) == ((1,), F(1, 2))


def test_intervals_of_several_quantiles_cover_each_one():
    """False-alarm rate 1e-6 for each of three: misses are at most binomial with chance 0.5."""
    random, repeats, misses = np.random.default_rng(5), 25, np.zeros(3)
    truth = np.array([-0.6744897501960817, 0.0, 0.6744897501960817])
    for _ in range(repeats):
        estimate = quantile(
            random.normal(size=800),
            ["1/4", "1/2", "3/4"],
            (-10, 10, "1/100"),
            budget=ny.zcdp(4),
            confidence="1/2",
        )
        low, high = estimate.interval("1/2")
        misses += ~((low <= truth) & (truth <= high))
        assert (high - low).max() < 4
    assert (misses <= binom.ppf(1 - FALSE_ALARM / 3, repeats, 0.5)).all()
    assert estimate.mechanism.draws == 9


def _law(values, ends, draws):
    """Return the distribution of independent draws by its definition, without the sampler's
    code.
    """
    laws = []
    for level, rate in draws:
        weights = {}
        for t in range(ends[0], ends[1] + 1):
            below, upto = sum(v < t for v in values), sum(v <= t for v in values)
            distance = max(0, below - level * len(values), level * len(values) - upto)
            weights[t] = math.exp(-float(rate * distance))
        total = sum(weights.values())
        laws.append({t: w / total for t, w in weights.items()})
    return {
        points: math.prod(law[t] for law, t in zip(laws, points, strict=True))
        for points in itertools.product(*laws)
    }


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("levels", [["1/2"], ["1/4", "9/10"]])
def test_the_law_of_quantiles_obeys_its_curve_for_all_small_neighbors(
    monkeypatch, relation, levels
):
    """All pairs of data sets of up to three records on four points, by enumeration.

    The levels and rates are those that the estimator passes to the sampler. They must not depend on
    the data. The stated deltas must hold in both orders, and pure epsilon must be nearly attained.
    """
    calls = []

    def spy(values, ends, level, rate, bits):
        calls.append((level, rate))
        return draw_sorted_quantile(values, ends, level, rate, bits)

    monkeypatch.setattr(grid_quantile, "draw_sorted_quantile", spy)
    sizes = (3,) if relation == "replace-one" else (0, 1, 2, 3)
    tables = [t for n in sizes for t in itertools.combinations_with_replacement(range(4), n)]
    laws, plans = {}, set()
    for table in tables:
        calls.clear()
        estimate = quantile(list(table), levels, (0, 3, 1), neighboring=relation)
        plans.add(tuple(calls))
        laws[table] = _law(table, (0, 3), calls)
    assert len(plans) == 1
    curve, worst = estimate.mechanism.tradeoff(), 0.0
    deltas = {e: curve.delta(epsilon=e).upper for e in (0.0, 0.25, 0.5, 0.9)}
    for one, two in itertools.permutations(tables, 2):
        apart = (Counter(one) - Counter(two)).total(), (Counter(two) - Counter(one)).total()
        if apart != (1, 1) if relation == "replace-one" else sum(apart) != 1:
            continue
        p, q = laws[one], laws[two]
        worst = max(worst, *(abs(math.log(p[o] / q[o])) for o in p))
        for epsilon, delta in deltas.items():
            assert sum(max(p[o] - math.exp(epsilon) * q[o], 0) for o in p) <= delta + 1e-12
    assert 0.4 < worst <= 1 + 1e-12


def test_the_grid_of_a_quantile_has_both_ends():
    grid = Grid.of(-1, 2, "1/4", grid_quantile.LIMITS.points - 1)
    assert grid.lower == -1
    assert grid.value(grid.last) == 2


@pytest.mark.parametrize("n", [4, 5])
def test_the_error_on_evenly_spaced_values_counts_the_gaps_beyond_both_ends(n):
    rate, middle = 0.7, -(-n // 2)
    values = [200 * i - 1 for i in range(1, n + 1)]
    held = runs(values, [1] * n, (0, 200 * (n + 1) - 2), F(1, 2))
    laws = [(t, math.exp(-rate * s / 2)) for first, k, s in held for t in range(first, first + k)]
    square = sum(w * ((t - values[middle - 1]) / 200) ** 2 for t, w in laws)
    exact = math.sqrt(square / sum(w for _, w in laws))
    near = grid_quantile._reference_error(n, F(1, 2), n * 200, rate)
    assert near == pytest.approx(exact, rel=1e-3)


def test_the_gap_of_a_quantile_is_that_of_evenly_spaced_values():
    n, points, rate = 5, 5 * 200, 0.7
    values = [100 + 200 * i for i in range(n)]
    held = runs(values, [1] * n, (0, points - 1), F(1, 2))
    laws = [(t, math.exp(-rate * s / 2)) for first, k, s in held for t in range(first, first + k)]
    exact = sum(w * ((t - values[2]) / 200) ** 2 for t, w in laws) / sum(w for _, w in laws)
    near = grid_quantile._reference_error(n, F(1, 2), points, rate)
    # The gaps at the ends of the grid are half as wide as the reference takes them to be.
    assert exact <= near**2 <= exact * 1.6
    estimate = quantile(np.zeros(1001), "1/2", (0, 1, "1/1000000"), confidence=None)
    assert 1 < estimate.gap < 10


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_a_record_moves_the_counts_by_the_stated_norm(relation):
    cuts = np.array([0.0, 1.0, 2.0, 4.0])
    places = [-1.0, 0.0, 0.5, 1.0, 3.0, 4.0, 9.0, math.nan]
    moved = 0
    for rest in ([], [0.5]):
        tables = [density._counts(np.array([*rest, x]), cuts) for x in places]
        assert all(t.sum() == len(rest) + 1 for t in tables)
        if relation == "add-remove":
            tables = [*tables, density._counts(np.array(rest, float), cuts)]
            pairs = [(t, tables[-1]) for t in tables]
        else:
            pairs = itertools.product(tables, repeat=2)
        moved = max([moved, *(int(((a - b) ** 2).sum()) for a, b in pairs)])
    estimate = ny.estimate.histogram([0.5], edges=cuts, budget=RHO, neighboring=relation)
    assert moved == estimate.mechanism.squared
    assert RHO.admits(estimate.mechanism)


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("about", ["population", "data"])
def test_intervals_of_a_histogram_cover_at_the_stated_rate(relation, about):
    """False-alarm rate 1e-6 for each of three bins, of which one is rare."""
    random = np.random.default_rng(4)
    shares, repeats = np.array([0.7, 0.28, 0.02]), 50
    misses, spans = np.zeros(3), []
    for _ in range(repeats):
        values = random.choice([0.5, 1.5, 3.0], size=60, p=shares)
        estimate = ny.estimate.histogram(
            values, edges=[0, 1, 2, 4], budget=RHO, neighboring=relation
        )
        low, high = estimate.interval("4/5", about=about)
        widths = np.array([1, 1, 2])
        spans.append((high - low) * widths)
        truth = (
            shares
            if about == "population"
            else np.bincount(np.searchsorted([0, 1, 2], values, "right") - 1, minlength=3)
            / len(values)
        )
        misses += ~((low * widths <= truth + 1e-12) & (truth <= high * widths + 1e-12))
    assert (misses <= binom.ppf(1 - FALSE_ALARM / 3, repeats, 0.2)).all()
    widest = {"population": (0.31, 0.42), "data": (0.075, 0.18)}[about]
    assert np.max(np.mean(spans, axis=0)) < widest[relation == "add-remove"]


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("about", ["population", "data"])
@pytest.mark.parametrize("centered", [True, False])
def test_intervals_of_a_covariance_cover_each_entry(about, centered, relation):
    """False-alarm rate 1e-6 for each of three entries."""
    random = np.random.default_rng(6)
    corners = np.array([(0.9, 0.1), (-0.1, 0.8), (-0.5, -0.5), (0.4, 0.4)])
    mean, repeats = corners.mean(axis=0) * centered, 80
    truth = (corners - mean).T @ (corners - mean) / 4
    misses, widths = np.zeros((2, 2)), []
    for _ in range(repeats):
        rows = corners[random.integers(0, 4, size=30)]
        if about == "data":
            truth = np.cov(rows.T) if centered else rows.T @ rows / 30
        estimate = ny.estimate.covariance(
            rows, radius=1, budget=RHO, centered=centered, neighboring=relation
        )
        low, high = estimate.interval("4/5", about=about)
        misses += ~((low <= truth) & (truth <= high))
        widths.append((high - low).max())
        assert (estimate.value == estimate.value.T).all()
    widest = {"population": (0.85, 3.2), "data": (0.26, 0.75)}[about][centered]
    assert np.mean(widths) < widest * (1 if relation == "add-remove" else 0.65 + 0.35 * centered)
    assert (misses <= binom.ppf(1 - FALSE_ALARM / 3, repeats, 0.2)).all()
    if (about, centered, relation) == ("data", False, "replace-one"):
        assert (misses >= binom.ppf(FALSE_ALARM / 3, repeats, 0.19)).all()  # exact here


def test_intervals_of_a_normal_mean_cover_wherever_the_mean_is():
    """False-alarm rate 1e-6; the mean is anywhere up to 10^12, and sigma is an upper bound."""
    random = np.random.default_rng(7)
    repeats, misses = 25, np.zeros(2)
    for i in range(repeats):
        mean = float(random.choice([-1, 1]) * 10.0 ** random.uniform(-3, 12))
        values = mean + random.normal(size=600) * (1 if i % 2 else 0.5)
        estimate = ny.estimate.normal_mean(values, sigma=1, budget=RHO)
        for k, (about, truth) in enumerate((("population", mean), ("data", values.mean()))):
            low, high = estimate.interval("4/5", about=about)
            misses[k] += not low <= truth <= high
            assert high - low < (0.14, 0.08)[k] + 1e-12 * abs(mean)
    assert (misses <= binom.ppf(1 - FALSE_ALARM, repeats, 0.2)).all()


def test_the_clipping_bound_of_a_normal_mean_is_that_of_its_proof():
    for n in (60, 1000, 10**6):
        wide = unbounded_mean._reach(n)
        y = wide - 1
        shares = np.linspace(0, y, 4000)
        # Some split of the bound serves both: the location takes one part, the records the other.
        phi = np.array([0.5 * math.erfc(s / math.sqrt(2)) for s in shares])
        far = n * 2 * np.array([0.5 * math.erfc((y - s) / math.sqrt(2)) for s in shares])
        excess = np.maximum(0.5 - phi - 0.125, 0)
        away = 2 * np.exp(-2 * n * excess**2)
        assert min(far + away) <= unbounded_mean.LIMITS.failure_chance * 0.75 * 1.05


@pytest.mark.parametrize(
    "make",
    [
        lambda data: ny.estimate.histogram(data, edges=[0, 1, 2], budget=RHO),
        lambda data: quantile(data, "1/2", (0, 1, "1/4"), budget=RHO),
        lambda data: ny.estimate.normal_mean(data, sigma=1, budget=RHO),
        lambda data: ny.estimate.covariance(
            [[x, 1.0] for x in data], radius=1, budget=RHO, dimension=2
        ),
    ],
)
def test_no_content_of_the_data_raises_an_error(make):
    for data in (MESS * 60, [float("nan")] * 600, [1e308] * 600, [True] * 600):
        assert np.isfinite(np.asarray(make(data).value)).all()


@pytest.mark.parametrize("tail", [0.025, 1e-9, 1e-14, 1.7e-16, 1e-20, 1e-40])
@pytest.mark.parametrize(("k", "n"), [(0, 1000), (10, 1000), (400, 1000), (0, 10**14), (9, 10**9)])
def test_a_limit_of_a_share_is_exceeded_at_most_as_often_as_stated(k, n, tail):
    upper = float(largest_rate(k, n, tail))
    assert tail * (1 - 1e-4) < few(n, k, upper) <= tail


def test_a_full_ledger_draws_no_quantile(monkeypatch):
    calls = []
    monkeypatch.setattr(grid_quantile, "draw_sorted_quantile", lambda *_: calls.append(1))
    with pytest.raises(Exception, match="asked for"):
        quantile([1, 2], 0.5, (0, 4, 1), budget=RHO, ledger=ny.throwaway("1/100"), dataset="toy@1")
    assert not calls


# ---- one draw from a normal posterior


RECORDS = [0.5, -0.25, 1.75, 9.0, math.nan]  # clipped to 1.5, and 0
POSTERIOR = {"radius": F(3, 2), "variance": 2, "prior_variance": "1/2"}


def test_draws_have_the_law_of_the_posterior_of_the_clipped_records():
    """Kolmogorov's test of 2,000 draws has a chance of 1e-5 to fail."""
    precision = 5 / 2 + 2
    mean = (0.5 - 0.25 + 1.5 + 1.5) / 2 / precision
    draws = [float(ny.estimate.posterior_draw(RECORDS, **POSTERIOR).value) for _ in range(2000)]
    assert stats.kstest(draws, stats.norm(mean, precision**-0.5).cdf).pvalue > 1e-5


def test_the_curve_is_that_of_the_library_for_a_posterior_of_this_convexity():
    draw = ny.estimate.posterior_draw(RECORDS, **POSTERIOR)
    same = ny.PosteriorSample(lipschitz=2 * 1.5 / 2, convexity=4.5).tradeoff()
    assert draw.tradeoff().gdp().upper == pytest.approx(float(same.gdp()), rel=1e-6)


def test_intervals_cover_the_posterior_mean_and_the_mean_of_the_model():
    """Fewer hits than this have a chance of 1e-5 if they cover in 90% of the runs."""
    runs, hits, draw = 400, np.zeros(2), np.random.default_rng(1)
    for _ in range(runs):
        mean = draw.normal(0, 0.3)
        records = draw.normal(mean, 1, 50)
        estimate = ny.estimate.posterior_draw(
            records, radius=9, variance=1, prior_variance=F(9, 100)
        )
        truths = mean, records.sum() / (50 + 100 / 9)
        for k, about in enumerate(("population", "data")):
            low, high = estimate.interval(0.9, about=about)
            hits[k] += low <= truths[k] <= high
            assert high - low < (0.6, 0.43)[k]
    assert np.all(hits >= stats.binom.ppf(1e-5, runs, 0.9))


def test_bad_arguments_are_refused_before_a_charge():
    ledger = ny.throwaway("1")
    paid = {"ledger": ledger, "dataset": "a@1"}
    for wrong in (
        {"radius": 0},
        {"variance": 0},
        {"prior_variance": -1},
        {"neighboring": "add-remove"},
        {"variance": 1e90},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ny.estimate.posterior_draw(RECORDS, **POSTERIOR | wrong, **paid)
    assert (
        ny.estimate.posterior_draw(RECORDS, **POSTERIOR).receipt["ledger"]["charged"] == "nothing"
    )
