"""The matrix mechanism: sensitivities, curves, errors, streams and how far from the best."""

import json
import math
import subprocess
import sys
from fractions import Fraction
from itertools import combinations, pairwise, product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import chi2

import neyman as ny
from neyman import MatrixMechanism
from neyman.curves import integer_mu
from neyman.mechanisms import (
    STRATEGY_UNIT,
    Binned,
    Strategy,
    Toeplitz,
    Tree,
    Triangular,
    optimized,
    optimized_band,
    optimized_toeplitz,
    square_root,
)
from neyman.noise import SecureBits, discrete_gaussian, rounded_gaussian
from reproductions.streams.page import circulant_bound
from seeded import Seeded

N = 1024


def patterns(n, k, b):
    """Every set of at most k of n steps that are at least b apart."""
    for size in range(1, k + 1):
        for chosen in combinations(range(n), size):
            if all(y - x >= b for x, y in pairwise(chosen)):
                yield chosen


def moved(matrix, k, b):
    """The largest squared norm of W x over patterns and signs, and of sums of |G_ij|."""
    gram = matrix.T @ matrix
    scalar = absolute = 0
    for chosen in patterns(matrix.shape[1], k, b):
        part = gram[np.ix_(chosen, chosen)]
        absolute = max(absolute, int(np.abs(part).sum()))
        for signs in product((-1, 1), repeat=len(chosen) - 1):
            x = np.array((1, *signs))
            scalar = max(scalar, int(x @ part @ x))
    return scalar, absolute


def prefix_bound(n, k=1, b=1):
    """The bound that the gap of any strategy is over, from below on all of them."""
    mechanism = MatrixMechanism(square_root(n), 1, k, b)
    return mechanism.errors().max() * mechanism.shift() / mechanism.gap()


# --- the numbers of the literature


def test_errors_at_mu_one_are_those_that_are_known():
    """Prefix sums of 1024 steps: 3.2726 by the square root and 10.4881 by the binary tree."""
    for strategy, known, reference in (
        (
            square_root(N),
            3.2726,
            mp.nsum(lambda m: (mp.binomial(2 * m, m) / 4**m) ** 2, [0, N - 1]),
        ),
        (Tree(N, optimal=False), 10.4881, mp.sqrt(110)),
    ):
        sigma = ny.calibrate(lambda s, c=strategy: MatrixMechanism(c, s), ny.gdp(1))
        largest = MatrixMechanism(strategy, float(sigma)).errors().max()
        assert round(largest, 4) == known
        assert math.isclose(largest, reference, rel_tol=1e-5)


def test_lower_bounds_are_sums_of_singular_values():
    """2.6876 from the skew-circulant of ones, 2.9096 from the triangle, by a dense SVD."""
    ones = np.tri(N)
    skew = np.linalg.svd(2 * ones - 1, compute_uv=False).sum() / (2 * N)
    assert round(circulant_bound(N), 4) == 2.6876
    assert math.isclose(circulant_bound(N), skew, rel_tol=1e-10)
    asymptotic = (mp.log(N) + mp.euler + mp.log(8 / mp.pi)) / mp.pi
    assert math.isclose(circulant_bound(N), asymptotic, rel_tol=1e-7)
    trace = np.linalg.svd(ones, compute_uv=False).sum() / N
    assert math.isclose(prefix_bound(N), trace, rel_tol=1e-10)
    assert math.isclose(prefix_bound(N, 4, 256), 2 * trace, rel_tol=1e-9)
    assert math.isclose(prefix_bound(N, 6, 200), math.sqrt(N / 200) * trace, rel_tol=1e-9)
    assert circulant_bound(N) < prefix_bound(N) < 3.08


def test_dividing_columns_by_their_norms_comes_closer_to_the_bound():
    mechanism = MatrixMechanism(Triangular.normalized(square_root(N)), 1)
    assert 1 < mechanism.gap() < 1.06 < MatrixMechanism(square_root(N), 1).gap()
    assert math.isclose(mechanism.shift(), 1, rel_tol=1e-4)


# --- sensitivity

WEIGHTS = st.lists(st.integers(-9, 9), min_size=1, max_size=7)


@given(WEIGHTS, st.integers(1, 7), st.integers(1, 4), st.integers(1, 5))
@settings(max_examples=150)
def test_no_pattern_moves_a_toeplitz_strategy_further(weights, n, k, b):
    weights = [abs(weights[0]) + 1, *weights[1:]][:n]
    strategy = Toeplitz(n, tuple(weights))
    scalar, absolute = moved(strategy.matrix(), k, b)
    result = strategy.largest(k, b)
    assert scalar <= absolute <= result
    falling = all(x >= y >= 0 for x, y in pairwise(weights))
    if falling or k == 1 or len(weights) <= b:
        assert result == scalar
    rows = [tuple(row[: t + 1]) for t, row in enumerate(strategy.matrix().tolist())]
    assert result <= Triangular(tuple(rows)).largest(k, b)


def test_a_strategy_longer_than_matrices_moves_by_the_sum_of_its_first_columns():
    assert Toeplitz(5000, (4, 2, 1)).largest(2, 1) == 4**2 + 6**2 + 3**2 + 1**2


@given(st.data())
@settings(max_examples=150)
def test_no_pattern_moves_a_triangular_strategy_further(data):
    n, k, b = (data.draw(st.integers(1, most)) for most in (7, 4, 5))
    rows = [data.draw(st.lists(st.integers(-9, 9), min_size=1, max_size=t + 1)) for t in range(n)]
    strategy = Triangular(tuple((*row[:-1], abs(row[-1]) + 1) for row in rows))
    scalar, absolute = moved(strategy.matrix(), k, b)
    result = strategy.largest(k, b)
    assert scalar <= absolute <= result
    if k == 1 or strategy.band <= b:
        assert result == scalar


@pytest.mark.parametrize("n", [1, 2, 7, 8, 11])
def test_no_pattern_moves_a_tree_further(n):
    for k, b in product(range(1, 5), range(1, 6)):
        scalar, absolute = moved(Tree(n).matrix() // STRATEGY_UNIT, k, b)
        result = Tree(n).largest(k, b) // STRATEGY_UNIT**2
        assert scalar == absolute <= result, (k, b)
        if k == 1 or (n == 8 and b in (1, 2, 4)):
            assert scalar == result, (k, b)


@pytest.mark.parametrize("fine", [1, 2, 3])
def test_no_pattern_moves_blocks_further(fine):
    for n in (1, 2, 5, 9, 33, 100):
        matrix = Binned(n, fine).matrix()
        assert Binned(n, fine).largest() == (matrix**2).sum(axis=0).max()
    matrix = Binned(9, fine).matrix()
    for k, b in product((2, 3), (1, 2, 4)):
        scalar, absolute = moved(matrix, k, b)
        assert scalar == absolute <= Binned(9, fine).largest(k, b)


@given(st.data())
@settings(max_examples=60)
def test_a_stream_that_forgets_moves_no_further_than_one_that_remembers(data):
    n = data.draw(st.integers(1, 7))
    weights = data.draw(st.lists(st.integers(-9, 9), min_size=1, max_size=n))
    strategy = Toeplitz(n, (1 + abs(weights[0]), *weights[1:]))
    k, b = data.draw(st.integers(1, n)), data.draw(st.integers(1, n))
    if not strategy.covers_restarts(b):
        assert min(weights) < 0
        assert len(weights) > b
        return
    starts = data.draw(st.sets(st.integers(0, n)))
    matrix = strategy.matrix()
    for t in range(n):
        matrix[t, : max((start for start in starts if start <= t), default=0)] = 0
    assert moved(matrix, k, b)[0] <= strategy.largest(k, b)


@pytest.mark.parametrize(
    "strategy",
    [
        Toeplitz(8, (5, -3, 1)),
        square_root(8),
        Triangular(((3,), (-2, 4), (1, -5, 2), (0, 0, 3), (7, 1))),
        Tree(8),
        Binned(8, 1),
    ],
)
def test_vectors_move_no_further_than_numbers_may(strategy):
    generator, matrix = np.random.default_rng(5), strategy.matrix()
    for k, b in product((1, 2, 3), (1, 2, 3)):
        for chosen in patterns(strategy.steps, k, b):
            for _ in range(4):
                x = np.zeros((strategy.steps, 3))
                given = generator.normal(size=(len(chosen), 3))
                x[list(chosen)] = given / np.linalg.norm(given, axis=1, keepdims=True)
                norm = np.linalg.norm(matrix @ x) ** 2
                assert norm <= strategy.largest(k, b) * (1 + 1e-12)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=60)
def test_more_participation_moves_more(n, band, k, b):
    for strategy in (square_root(n, band), Tree(n), Binned(n)):
        result = strategy.largest(k, b)
        assert strategy.largest(k, b + 1) <= result <= strategy.largest(k + 1, b)
        assert result <= k * k * strategy.largest()
        assert result >= strategy.largest()


# --- the curve


@pytest.mark.parametrize("variance", [Fraction(1024), Fraction(2**14) + Fraction(1, 3)])
@pytest.mark.parametrize("shift", [1, 7, 40])
def test_integers_with_noise_are_gaussian_as_stated(variance, shift):
    """The discrete Gaussian's exact thresholds, in mpmath, stay below the mu that is claimed."""
    with mp.workdps(60):
        s2 = mp.mpf(variance.numerator) / variance.denominator
        sigma = int(mp.sqrt(s2))
        top = 9 * sigma
        weights = [mp.exp(-(mp.mpf(x) ** 2) / (2 * s2)) for x in range(top + 8 * sigma, -1, -1)]
        tails, total = {}, mp.mpf(0)
        for i, weight in enumerate(weights):
            total += weight
            tails[len(weights) - 1 - i] = total
        combined = 2 * total - 1

        def quantile(t):
            """q with P(N > q) = P(X > t), t >= 0, by Newton's method on the logarithm."""
            tail = tails[t + 1] / combined
            q = (t + mp.mpf(1) / 2) / mp.sqrt(s2)
            for _ in range(6):
                p = mp.erfc(q / mp.sqrt(2)) / 2
                q += mp.log(p / tail) * p / mp.npdf(q)
            return q

        claimed = integer_mu(Fraction(shift) ** 2, variance)
        gaps = [quantile(t) - quantile(t - shift) for t in range(shift, top, sigma // 3)]
        assert max(gaps) <= claimed <= shift / mp.sqrt(s2 - 6) * (1 + mp.mpf("1e-14"))


def test_curve_is_the_gaussians():
    mechanism = MatrixMechanism(square_root(64), 3, participations=4, separation=16, sensitivity=2)
    gram = square_root(64).matrix() / STRATEGY_UNIT
    exact = 2 * np.linalg.norm(gram[:, [0, 16, 32, 48]].sum(axis=1)) / 3
    mu = mechanism.tradeoff().gdp()
    assert exact * (1 - 1e-12) <= mu.lower <= mu.upper <= exact * (1 + 1e-9)
    theirs = ny.Gaussian(3, exact * 3).tradeoff()
    for epsilon in (0.5, 3.0, 10.0):
        ours = mechanism.tradeoff().delta(epsilon=epsilon)
        assert math.isclose(ours.upper, theirs.delta(epsilon=epsilon).upper, rel_tol=1e-7)
    assert math.isclose(mechanism.rho(), exact**2 / 2, rel_tol=1e-12)


def test_curve_lies_below_that_of_the_integers():
    strategy = Toeplitz(3, (40, 30, 10))
    coarse = MatrixMechanism(strategy, sigma_squared=Fraction(1024, STRATEGY_UNIT**2))
    exact = ny.DiscreteGaussian(sigma_squared=1024, sensitivity=[(40, 30, 10)]).tradeoff()
    for epsilon in (0.0, 1.0, 5.0):
        claimed, true = coarse.tradeoff().delta(epsilon=epsilon), exact.delta(epsilon=epsilon)
        assert true.lower <= claimed.upper <= 1.05 * true.upper


def test_strategies_of_blocks_are_read_before_they_are_imported():
    mechanisms = [MatrixMechanism(kind(8), 2).to_json() for kind in (Binned, Tree)]
    code = "import sys, neyman as ny; print(*map(ny.Mechanism.from_json, sys.argv[1:]))"
    run = subprocess.run([sys.executable, "-c", code, *mechanisms], check=True, capture_output=True)
    assert b"Binned(steps=8" in run.stdout
    assert b"Tree(steps=8" in run.stdout


def test_it_is_a_mechanism_of_the_house():
    for strategy in (
        square_root(50, 7),
        Tree(9, optimal=False),
        Binned(30, 2),
        Triangular(((STRATEGY_UNIT,), (5, STRATEGY_UNIT))),
    ):
        mechanism = MatrixMechanism(strategy, "1.3", 2, 3, sensitivity=Fraction(5, 2))
        assert ny.Mechanism.from_json(mechanism.to_json()) == mechanism
        assert Strategy.from_dict(json.loads(json.dumps(strategy.to_dict()))) == strategy
        assert mechanism.neighboring == "any"
        both = mechanism * 2 + ny.Laplace(20)
        assert ny.Mechanism.from_json(both.to_json()) == both
        mu = (mechanism * 2).tradeoff().gdp().upper
        assert math.isclose(mu, math.sqrt(2) * mechanism.mu(), rel_tol=1e-9)
        assert len(repr(mechanism)) < 300
    still = MatrixMechanism(square_root(4), 1, sensitivity=0)
    assert still.tradeoff().gdp().upper == 0
    assert MatrixMechanism(square_root(4), sigma_squared=4) == MatrixMechanism(square_root(4), 2)


# --- errors and streams

ALL = [
    square_root(37),
    square_root(40, 6),
    Toeplitz(20, (STRATEGY_UNIT,)),
    Toeplitz(20, (STRATEGY_UNIT, -STRATEGY_UNIT // 2, 77)),
    Triangular.normalized(square_root(33, 5)),
    Tree(1),
    Tree(32, optimal=False),
    Tree(37),
    Binned(50, 1),
    Binned(61, 3),
]


def dense(strategy):
    """Row t of B, by least squares from what is out at step t alone; the plain tree adds blocks."""
    matrix, n = strategy.matrix() / STRATEGY_UNIT, strategy.steps
    rows = np.zeros((n, len(matrix)))
    for t in range(n):
        out = (
            sum((s & -s).bit_length() for s in range(1, t + 2)) if type(strategy) is Tree else t + 1
        )
        if type(strategy) is Tree and not strategy.optimal:
            end = t + 1
            while end:  # the largest block that ends here
                size = end & -end
                row = np.zeros(n)
                row[end - size : end] = 1
                rows[t, np.flatnonzero((matrix == row).all(axis=1))[0]] = 1
                end -= size
        else:
            rows[t, :out] = (np.arange(t + 1) <= t) @ np.linalg.pinv(matrix[:out, : t + 1])
    return rows


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_a_stream_releases_the_matrix_times_the_data_and_reads_it_best(strategy):
    mechanism = MatrixMechanism(strategy, Fraction(3, 2))
    sigma_squared = Fraction(9, 4) * STRATEGY_UNIT**2
    data = np.random.default_rng(1).integers(-1000, 1000, (strategy.steps, 3))
    stream, encoder = mechanism.stream(3, Seeded(7)), mechanism.stream(3, Seeded(7)).encoder
    released = np.array([y for x in data for y in encoder.add(x)])
    noise, bits = [], Seeded(7)
    while len(noise) < len(released):
        noise.append(discrete_gaussian(sigma_squared, 3, bits))
    assert (released == strategy.matrix() @ data + np.array(noise)).all()
    result = np.array([stream.step(x) for x in data])
    rows = dense(strategy)
    assert np.allclose(result, rows @ (released / STRATEGY_UNIT), rtol=1e-9, atol=1e-7)
    assert np.allclose(mechanism.errors(), 1.5 * np.linalg.norm(rows, axis=1), rtol=1e-9)
    assert np.abs(result - data.cumsum(axis=0)).max() < 8 * mechanism.errors().max()


def test_errors_are_those_of_many_streams():
    """The spread of 4000 streams' last sums is as stated; a false alarm at most once in 10^6."""
    for strategy in (square_root(12, 4), Tree(7), Binned(12, 1)):
        mechanism = MatrixMechanism(strategy, 2)
        stream = mechanism.stream(4000, Seeded(3))
        results = [stream.step(np.zeros(4000, int)) for _ in range(strategy.steps)][-1]
        share = np.sum((results / mechanism.errors()[-1]) ** 2)
        assert chi2.ppf(1e-7, 4000) < share < chi2.isf(1e-7, 4000)


def test_streams_remember_little():
    for strategy, most in ((square_root(1500, 9), 8), (Binned(1500, 4), 4 * 9 + 8)):
        stream = MatrixMechanism(strategy, 1).stream(1, Seeded(1))
        for _ in range(1500):
            result = stream.step(1)
        assert stream.encoder.memory.capacity <= most
        assert abs(result[0] - 1500) < 200
        with pytest.raises(ValueError, match="last step"):
            stream.step(1)


def test_queries_are_read_by_least_squares():
    windows = np.tri(24) - np.tri(24, k=-5)
    for strategy in (Tree(24), square_root(24, 5)):
        rows = windows @ np.linalg.pinv(strategy.matrix() / STRATEGY_UNIT)
        errors = MatrixMechanism(strategy, 2).errors(windows)
        assert np.allclose(errors, 2 * np.linalg.norm(rows, axis=1), rtol=1e-9)


@pytest.mark.parametrize("width", [3, 70])  # small steps take another path
@pytest.mark.parametrize("after", [0, 7])
@pytest.mark.parametrize(
    "strategy",
    [
        square_root(24, band=5),
        Toeplitz(24, (9, -4, 0, 1)),
        Triangular.normalized(square_root(24)),
        Binned(24, 2),
    ],
)
def test_correlated_noise_gives_what_follows_from_the_rows_of_the_matrix(strategy, after, width):
    """Whole numbers of Python: the rows W x + Z alone, and the estimates that they imply.

    Rows after a restart leave out the steps before it.
    """
    matrix = strategy.matrix().astype(object)
    noise = strategy.noise(Fraction(10**6), width, Seeded(7))
    bits, data = Seeded(7), np.random.default_rng(1).integers(-999, 999, (24, width))
    estimates = np.zeros((24, width), object)
    for t in range(after, 24):
        row = matrix[t, after : t + 1] @ data[after : t + 1].astype(object)
        row = row + rounded_gaussian(Fraction(10**6), width, bits)
        rest = row - matrix[t, after:t] @ estimates[after:t]
        estimates[t] = [(2 * x + matrix[t, t]) // (2 * matrix[t, t]) for x in rest]
        total = data[t].copy()
        noise.add(t, total)
        assert total.tolist() == estimates[t].tolist()


def test_correlated_noise_cancels_as_the_strategy_says():
    """Errors of prefix sums of 4,000 numbers; chi squared, a false alarm in 10^9 runs."""
    strategy, sigma, size = square_root(32, band=8), 1 << 20, 4000
    noise = strategy.noise(Fraction((sigma * STRATEGY_UNIT) ** 2), size, SecureBits())
    errors = np.zeros(size)
    for step, spread in enumerate(strategy.spread()):
        total = np.full(size, 12345)
        noise.add(step, total)
        errors += total - 12345
        square = float(np.sum((errors / (spread * sigma)) ** 2))
        assert 2e-9 < chi2.sf(square, size) < 1 - 2e-9


def test_correlated_noise_wraps_around_and_raises_nothing():
    noise = Toeplitz(200, (1, 50)).noise(Fraction(10**6), 2, SecureBits())
    for step in range(200):
        noise.add(step, np.array([1, 2]))


# --- the best strategies, and bounds on them


@pytest.mark.parametrize("objective", ["largest", "mean"])
def test_optimized_strategies_meet_their_bound(objective):
    result = optimized(64, objective)
    assert 1 <= result.gap < 1.002
    mechanism = MatrixMechanism(result.strategy, 1)
    errors = mechanism.errors() * mechanism.shift()
    reached = errors.max() if objective == "largest" else math.sqrt(np.mean(errors**2))
    assert math.isclose(reached, result.error, rel_tol=1e-9)
    assert result.bound >= prefix_bound(64)
    assert result.error < MatrixMechanism(square_root(64), 1).gap() * prefix_bound(64)


def test_optimized_strategies_for_other_queries():
    queries = np.concatenate([np.eye(40), np.tri(40) - np.tri(40, k=-8)])
    result = optimized(queries)
    assert 1 <= result.gap < 1.002
    for other in (square_root(40), Toeplitz(40, (STRATEGY_UNIT,)), Tree(40)):
        mechanism = MatrixMechanism(other, 1)
        assert mechanism.errors(queries).max() * mechanism.shift() > result.error


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=60)
def test_no_strategy_is_better_than_the_bound(seed, k, b):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 9))
    random = np.tril(generator.normal(size=(n, n))) * 0.3
    np.fill_diagonal(random, 1)
    for strategy in (Triangular.of(random), square_root(n), Tree(n)):
        mechanism = MatrixMechanism(strategy, 1)
        scalar, _ = moved(strategy.matrix(), k, b)
        mean = math.sqrt(np.mean(mechanism.errors() ** 2)) * math.sqrt(scalar) / STRATEGY_UNIT
        assert mean >= prefix_bound(n, k, b) * (1 - 1e-9)


def test_an_optimized_band_beats_the_square_roots():
    for k, b in ((1, 1), (8, 32)):
        for objective in ("largest", "mean"):
            result = optimized_toeplitz(256, 16, objective, participations=k, separation=b)
            plain = MatrixMechanism(square_root(256, 16), 1, k, b)
            errors = plain.errors() * plain.shift()
            size = errors.max() if objective == "largest" else math.sqrt(np.mean(errors**2))
            assert result.gap >= 1
            assert result.error < 0.95 * size
            assert result.strategy.band == 16
    assert optimized_toeplitz(5, 1).strategy == square_root(5, 1)


def test_an_optimized_band_of_rows_beats_one_row_for_all():
    for objective in ("largest", "mean"):
        result = optimized_band(64, 16, objective, participations=4, separation=16)
        row = optimized_toeplitz(64, 16, objective, participations=4, separation=16)
        assert 1 <= result.gap < 1.2
        assert result.error < 0.98 * row.error
        assert result.bound >= prefix_bound(64, 4, 16) * (1 - 1e-9)
        assert result.strategy.band == 16
        mechanism = MatrixMechanism(result.strategy, 1, 4, 16)
        assert math.isclose(mechanism.shift(), 2, rel_tol=1e-3)  # orthogonal columns of norm 1
        errors = mechanism.errors() * mechanism.shift()
        reached = errors.max() if objective == "largest" else math.sqrt(np.mean(errors**2))
        assert math.isclose(reached, result.error, rel_tol=1e-9)
    small = optimized_band(9, 3, participations=3, separation=2)
    scalar, absolute = moved(small.strategy.matrix(), 3, 2)
    assert scalar <= absolute <= small.strategy.largest(3, 2)
    assert optimized_band(32, 32).error < 1.02 * optimized(32).error


# --- what is refused

BAD = [None, "x", -1, 0, 1.5, float("nan"), [], {}, int, True]


UNREAD = ["x", np.eye(2) * 1e300, np.eye(2) * 1e-300, np.ones((2, 2))]
REFUSED = [
    (lambda x: MatrixMechanism(x, 1), "strategy", BAD),
    (lambda x: MatrixMechanism(Tree(4), x), "sigma", [*BAD[:4], *BAD[5:], 1e-9, 1e99]),
    (lambda x: MatrixMechanism(Tree(4), 1, x), "participations", BAD),
    (lambda x: MatrixMechanism(Tree(4), 1, 1, x), "separation", BAD),
    (lambda x: MatrixMechanism(Tree(4), 1, 1, 1, x), "sensitivity", [None, "x", -1, [], 1e250]),
    (lambda x: MatrixMechanism(Tree(4), 1, sigma_squared=x), "sigma", [1, 0]),
    (Tree, "steps", [*BAD, 1 << 21]),
    (lambda x: Tree(4, x), "optimal", [None, 1, "yes"]),
    (Binned, "steps", [*BAD, 1 << 21]),
    (lambda x: Binned(4, x), "fine", [*BAD, 1 << 21]),
    (square_root, "steps", BAD),
    (lambda x: square_root(4, x), "band", BAD[1:]),
    (lambda x: Toeplitz(3, x), "coefficients", [None, 1, "1", [], [0], [1.5], [1] * 4, [1 << 18]]),
    (Triangular, "rows", [1, "a", [[1.5]], [[1, 1]], [[0]], [[]], [[1], [1, -1]]]),
    (
        lambda x: MatrixMechanism(Tree(4), 1).errors(x),
        "workload",
        [[1], [[1, 2]], [[math.nan] * 4], np.eye(4)[None] * 1j],
    ),
    (lambda x: MatrixMechanism(Tree(4), 1).stream(x), "width", BAD),
    (
        lambda x: MatrixMechanism(Tree(4), 1).stream(2, Seeded(1)).step(x),
        "value",
        [1, 1.5, "a", [1], [1.0, 2.0], [[1, 2]], [True, False]],
    ),
    (Triangular.of, "matrix", [[[1.0, 2.0]], [[math.nan]], [[1e300]], "x", [[3.0]], [[1 + 1j]]]),
    (optimized, "workload", UNREAD),
    (lambda x: optimized_band(x, 2), "workload", UNREAD),
    (MatrixMechanism(square_root(2), 1).errors, "workload", ["x", [[1e300, 0]]]),
    (lambda x: MatrixMechanism(Toeplitz(x, (1,)), 1).gap(), "steps", [10**9]),
    (lambda x: optimized(4, x), "objective", [None, "best", 1]),
    (optimized, "workload", [0, -1, [1], [[1, 1]], [[1, 0], [1, 0]], [[math.nan]], 2000, []]),
    (lambda x: optimized_toeplitz(9, x), "band", [*BAD[2:], 10]),
    (lambda x: optimized_band(9, x), "band", BAD),
    (lambda x: optimized_band(9, 3, participations=x), "participations", BAD),
    (
        Strategy.from_dict,
        "strategy",
        [
            None,
            1,
            {},
            {"kind": "Tree"},
            {"kind": "Bush"},
            {"kind": "Tree", "steps": 4, "leaves": 2},
        ],
    ),
]


@pytest.mark.parametrize(("ask", "argument", "bad"), REFUSED)
def test_what_makes_no_sense_is_refused_by_name(ask, argument, bad):
    for value in bad:
        with pytest.raises((ValueError, TypeError), match=argument):
            ask(value)


def test_entries_beyond_the_room_count_as_the_room():
    strategy = square_root(4)
    stream = MatrixMechanism(strategy, 1).stream(2, Seeded(1))
    for _ in range(4):
        result = stream.step(np.array([2**63 - 1, -(2**63)]))
    room = strategy.room()
    assert np.allclose(result, [4 * room, -4 * room], rtol=1e-9)
    unsigned = (
        MatrixMechanism(strategy, 1).stream(1, Seeded(1)).step(np.array([2**64 - 1], np.uint64))
    )
    assert np.allclose(unsigned, room, rtol=1e-9)
    for large in (2**63, 2**64, 10**30):
        stream = MatrixMechanism(strategy, 1).stream(3, Seeded(1))
        assert np.allclose(stream.step([-1, large, -large]), [0, room, -room], rtol=1e-9, atol=9)


def test_long_streams_are_described_at_once():
    n = 1 << 20
    long = Toeplitz(n, (3, 2, 1))
    assert long.largest(n, 1) == 9 + 25 + 36 * (n - 2)
    assert long.largest(5, 2) == 9 + 4 + 4 * (16 + 4) + 1  # 3, 2, 1 + 3, 2, 1 + 3, ..., 2, 1
    assert Tree(n).largest() == 21 * STRATEGY_UNIT**2
    assert Binned(n).largest() < 2.1 * square_root(n).largest()


def test_errors_of_long_streams_are_those_of_the_recursion():
    """By Fourier transforms, where the recursion itself would take long: 16384 steps by both."""
    strategy = square_root(1 << 14)
    rows = lfilter([1.0], np.array(strategy.coefficients) / STRATEGY_UNIT, np.ones(strategy.steps))
    assert np.allclose(strategy.spread(), np.sqrt(np.cumsum(rows**2)), rtol=1e-12)
    million = MatrixMechanism(square_root(1 << 20), 1)
    assert 1.07 < million.gap() < 1.08


def test_strategies_whose_inverse_outgrows_the_floats_say_so():
    n = 800
    for weights in ((1, STRATEGY_UNIT), (1, -STRATEGY_UNIT, STRATEGY_UNIT, -5)):
        rows = [tuple(reversed(weights[: t + 1])) for t in range(n)]
        for strategy in (Toeplitz(n, weights), Triangular(tuple(rows))):
            mechanism = MatrixMechanism(strategy, 1)
            errors = mechanism.errors()
            assert errors[-1] == np.inf
            assert not np.isnan(errors).any()
            with pytest.raises(ValueError, match="inverse stays small"):
                mechanism.errors(np.eye(n))
            stream = mechanism.stream(bits=Seeded(1))
            for _ in range(n):
                stream.step(1)


def test_separations_beyond_the_stream_ask_for_one_step():
    """The bound, and so the gap, is then that of one step."""
    apart = MatrixMechanism(square_root(8), 1, participations=2, separation=10**30)
    assert apart.gap() == MatrixMechanism(square_root(8), 1).gap()


@pytest.mark.parametrize(("n", "b"), [(6, 1), (7, 2), (8, 3), (9, 9)])
def test_no_limit_on_participations_is_the_most_that_fit(n, b):
    entries = np.tril(np.random.default_rng(n).integers(-9, 10, (n, n)))
    np.fill_diagonal(entries, 5)
    strategy = Triangular(tuple(tuple(row[: t + 1]) for t, row in enumerate(entries.tolist())))
    fit, gram = -(-n // b), entries.T @ entries
    free = strategy.largest(fit, b)
    assert free == strategy.largest(fit + 1, b) >= strategy.largest(max(1, fit - 1), b)
    assert all(np.abs(gram[np.ix_(steps, steps)]).sum() <= free for steps in patterns(n, fit, b))
