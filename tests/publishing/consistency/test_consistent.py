"""Tables that add up: the solvers against dense matrices and mpmath, and the tables of plans."""

import itertools
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import neyman as ny
from mixed_plan import MIXED
from neyman.display import page
from neyman.noise import discrete_gaussian
from neyman.publishing import (
    Z90,
    Plan,
    PlanError,
    check_consistency,
    errors,
    standard_error,
    verify,
)
from neyman.publishing.consistency import consistent_tables, consistent_variances
from neyman.publishing.consistency.constraints import least_squares
from neyman.publishing.consistency.integer_rounding import rounded_parts
from neyman.publishing.consistency.margins import Margin, Margins
from neyman.publishing.consistency.nonnegative import nonnegative
from neyman.publishing.consistency.tree import Chain, PlaceTree
from neyman.publishing.consistency.tree_pair import TreePair
from plans import COUNTIES, STATE_TOTAL, YEAR_TOTAL, plan_with_totals
from seeded import Seeded

exactly = settings(max_examples=60)
seeds = st.integers(0, 2**32 - 1)


def random_tree(rng, levels=None):
    """Sizes, parents, and for each level the matrix from the values of the leaves to its nodes."""
    sizes, parents = [int(rng.integers(1, 4))], []
    for _ in range(int(rng.integers(0, 4)) if levels is None else levels):
        size = int(rng.integers(1, 9))
        parents.append(rng.integers(0, sizes[-1], size))
        sizes.append(size)
    leaf = [np.ones(size, bool) for size in sizes]
    for above, part in zip(parents, leaf, strict=False):
        part[above] = False
    count = sum(int(part.sum()) for part in leaf)
    sums, used = [np.zeros((size, count)) for size in sizes], 0
    for depth in reversed(range(len(sizes))):
        for node in np.flatnonzero(leaf[depth]):
            sums[depth][node, used] = 1
            used += 1
        if depth < len(parents):
            np.add.at(sums[depth], parents[depth], sums[depth + 1])
    return sizes, parents, leaf, sums


def dense(sums, values, variances):
    """Generalized least squares by its optimality conditions; exact values are constraints."""
    measured, exact = np.isfinite(variances) & (variances > 0), variances == 0
    weight = np.where(measured, 1 / np.where(measured, variances, 1), 0)
    x, x0 = sums[measured], sums[exact]
    w = weight[measured]
    zero = np.zeros((len(x0), len(x0)))
    system = np.block([[x.T @ (w[:, None] * x), x0.T], [x0, zero]])
    inverse = np.linalg.pinv(system, rcond=1e-12)
    columns = sums.shape[1]
    estimate = inverse[:columns] @ np.concatenate([x.T @ (w * values[measured]), values[exact]])
    spread = inverse[:columns, :columns]
    return sums @ estimate, np.einsum("ij,jk,ik->i", sums, spread, sums)


# ---- trees ------------------------------------------------------------------------------------


@given(seeds)
@exactly
def test_two_passes_are_dense_generalized_least_squares(seed):
    rng = np.random.default_rng(seed)
    sizes, parents, leaf, sums = random_tree(rng)
    truth = rng.normal(size=sums[0].shape[1]) * 10
    variances, values = [], []
    for depth, size in enumerate(sizes):
        variance = 10.0 ** rng.uniform(-2, 2, size)
        variance[(rng.random(size) < 0.3) & ~leaf[depth]] = np.inf
        variance[rng.random(size) < 0.1] = 0
        noise = np.sqrt(np.where(np.isfinite(variance), variance, 0)) * rng.normal(size=size)
        variances.append(variance)
        values.append(sums[depth] @ truth + noise)
    tree = PlaceTree(parents, variances, sizes[0])
    hidden = [np.where(np.isinf(v), np.nan, y) for v, y in zip(variances, values, strict=True)]
    fitted = np.concatenate(tree.fit(hidden))
    expected, spread = dense(np.vstack(sums), np.concatenate(values), np.concatenate(variances))
    assert np.allclose(fitted, expected, rtol=0, atol=1e-6)
    assert np.allclose(np.concatenate(tree.after), spread, rtol=1e-6, atol=1e-8)


@given(seeds)
@exactly
def test_what_adds_up_already_stays(seed):
    rng = np.random.default_rng(seed)
    sizes, parents, _, sums = random_tree(rng)
    tree = PlaceTree(parents, [10.0 ** rng.uniform(-4, 6, size) for size in sizes], sizes[0])
    truth = rng.normal(size=sums[0].shape[1]) * 1e6
    consistent = [part @ truth for part in sums]
    for result, right in zip(tree.fit(consistent), consistent, strict=True):
        assert np.allclose(result, right, rtol=1e-12, atol=1e-6)
    noisy = [rng.normal(size=size) for size in sizes]
    single = tree.fit(noisy)
    for again, first in zip(tree.fit(single), single, strict=True):
        assert np.allclose(again, first, rtol=0, atol=1e-10)
    both = tree.fit([y + 3 * c for y, c in zip(noisy, consistent, strict=True)])
    for sum_, first, right in zip(both, single, consistent, strict=True):
        assert np.allclose(sum_, first + 3 * right, rtol=1e-12, atol=1e-5)


@pytest.mark.parametrize("top", ["0.0001", "1", "1e30"])
@pytest.mark.parametrize("below", ["0.0001", "1", "1e30"])
def test_extreme_variances_keep_their_digits(top, below):
    """A total and three parts, against the formula in exact fractions."""
    a, b = Fraction(top), Fraction(below)
    y0, y = 1000, [100, -7, 300]
    share = b / (a + 3 * b)
    values = [part + share * (y0 - sum(y)) for part in y]
    spread = [1 / (1 / a + 1 / (3 * b)), b - b * share]
    tree = PlaceTree([np.zeros(3, np.int64)], [float(a), float(b)])
    result = tree.fit([np.array([float(y0)]), np.array(y, float)])
    assert result[1] == pytest.approx([float(v) for v in values], rel=1e-13)
    assert result[0][0] == pytest.approx(float(sum(values)), rel=1e-13)
    assert tree.after[0][0] == pytest.approx(float(spread[0]), rel=1e-13)
    assert tree.after[1] == pytest.approx([float(spread[1])] * 3, rel=1e-13)


def test_what_is_known_exactly_is_met_exactly():
    above = np.arange(1000) % 7
    tree = PlaceTree([np.zeros(7, np.int64), above], [0.0, 3.0, 5.0])
    rng = np.random.default_rng(1)
    levels = [np.array([42_008_942.0]), rng.normal(size=7), rng.normal(size=1000)]
    result = tree.fit(levels)
    assert result[0][0] == 42_008_942
    assert tree.after[0][0] == 0
    assert result[1].sum() == pytest.approx(42_008_942, rel=1e-15)
    assert np.bincount(above, weights=result[2]) == pytest.approx(result[1], rel=1e-14)


def test_trees_that_are_none_are_refused():
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="one more"):
        PlaceTree([one], [1.0])
    with pytest.raises(ValueError, match="positions in the level above"):
        PlaceTree([one + 1], [1.0, 1.0])
    with pytest.raises(ValueError, match="at least 0"):
        PlaceTree([], [-1.0])
    with pytest.raises(ValueError, match="not measured"):
        PlaceTree([one], [1.0, np.inf])
    with pytest.raises(ValueError, match="known exactly"):
        PlaceTree([one], [0.0, 0.0]).fit([np.array([1.0]), np.array([2.0])])
    with pytest.raises(ValueError, match="shapes"):
        PlaceTree([one], [1.0, 1.0]).fit([np.zeros(1), np.zeros(2)])


# ---- margins ----------------------------------------------------------------------------------


def random_margins(rng, *, finest=False):
    """Tables over a hierarchy, and the matrix from the finest cells to all of theirs."""
    sizes = [int(k) for k in rng.integers(1, 4, int(rng.integers(0, 3)))]
    places, parents = int(rng.integers(1, 3)), []
    counts = [places]
    for _ in range(int(rng.integers(0, 3))):
        more = int(rng.integers(0, 4))
        above = np.concatenate([np.arange(counts[-1]), rng.integers(0, counts[-1], more)])
        parents.append(rng.permutation(above))
        counts.append(len(above))
    kinds = [
        (int(rng.integers(0, len(counts))), frozenset(i for i in range(len(sizes)) if coin < 0.5))
        for coin in rng.random(int(rng.integers(1, 5)))
    ]
    if finest:
        kinds.append((len(parents), frozenset(range(len(sizes)))))
    tables = [Margin(level, columns, 10.0 ** rng.uniform(-1, 2)) for level, columns in kinds]
    cells = np.indices((counts[-1], *sizes)).reshape(1 + len(sizes), -1)
    matrices, shapes = [], []
    for table in tables:
        place = np.arange(counts[-1])
        for above in reversed(parents[table.level :]):
            place = above[place]
        keys = [cells[i + 1] if i in table.columns else 0 * cells[0] for i in range(len(sizes))]
        shape = (
            counts[table.level],
            *(k if i in table.columns else 1 for i, k in enumerate(sizes)),
        )
        rows = np.ravel_multi_index([place[cells[0]], *keys], shape)
        matrix = np.zeros((int(np.prod(shape)), cells.shape[1]))
        matrix[rows, np.arange(cells.shape[1])] = 1
        matrices.append(matrix)
        shapes.append((*shape, 1))
    return Margins(tables, sizes, parents, places), matrices, shapes


def flat(tables):
    return np.concatenate([table.ravel() for table in tables])


@given(seeds)
@exactly
def test_parts_on_trees_are_dense_generalized_least_squares(seed):
    rng = np.random.default_rng(seed)
    margins, matrices, shapes = random_margins(rng)
    values = [rng.normal(size=shape) * 5 for shape in shapes]
    variances = np.concatenate(
        [np.full(len(m), t.variance) for m, t in zip(matrices, margins.margins, strict=True)]
    )
    expected, spread = dense(np.vstack(matrices), flat(values), variances)
    assert np.allclose(flat(margins.fit(values)), expected, rtol=0, atol=1e-7)
    by_cell = [
        np.broadcast_to(v.reshape(-1, *(1,) * (len(shape) - 1)), shape)
        for v, shape in zip(margins.variances, shapes, strict=True)
    ]
    assert np.allclose(flat(by_cell), spread, rtol=1e-7, atol=1e-10)


@given(seeds, st.floats(-1, 1.5))
@exactly
def test_the_nearest_tables_without_a_negative_cell(seed, shift):
    """Against the active-set solver for cells that must not be negative."""
    rng = np.random.default_rng(seed)
    margins, matrices, shapes = random_margins(rng, finest=True)
    values = [rng.normal(size=shape) * 5 + 5 * shift for shape in shapes]
    spread = np.concatenate(
        [np.full(len(m), t.variance**0.5) for m, t in zip(matrices, margins.margins, strict=True)]
    )
    sums = np.vstack(matrices)
    cells, _ = nnls(sums / spread[:, None], flat(values) / spread, maxiter=10_000)
    result = nonnegative(margins, values)
    assert result.residual <= 1e-7
    assert np.allclose(flat(result.values), sums @ cells, rtol=0, atol=1e-4)
    assert flat(result.values).min() >= 0


def test_two_margins_without_their_joint_table():
    above = np.array([0, 0, 1, 1, 1, 2, 3, 4, 4])
    margins = Margins(
        [Margin(0, frozenset([0]), 2.0), Margin(1, frozenset(), 9.0)], [3], [above], places=5
    )
    rng = np.random.default_rng(5)
    values = [rng.normal(size=(5, 3, 1)) * 3, rng.normal(size=(9, 1, 1)) * 3]
    joint = np.eye(27).reshape(9, 3, 27)
    by_race = np.zeros((5, 3, 27))
    np.add.at(by_race, above, joint)
    sums = np.vstack([by_race.reshape(15, 27), joint.sum(axis=1)])
    spread = np.concatenate([np.full(15, 2.0**0.5), np.full(9, 3.0)])
    cells, _ = nnls(sums / spread[:, None], flat(values) / spread, maxiter=10_000)
    result = nonnegative(margins, values)
    assert margins.finest() == [0, 1]
    assert np.allclose(flat(result.values), sums @ cells, rtol=0, atol=1e-5)


# ---- whole numbers ----------------------------------------------------------------------------


@given(seeds, st.sampled_from([0.0, 0.4, 1e6]))
@exactly
def test_rounded_parts_add_up_and_move_by_less_than_one(seed, low):
    rng = np.random.default_rng(seed)
    parents = rng.integers(0, 4, int(rng.integers(1, 30)))
    parts = rng.uniform(-low / 1e3, low + 3, len(parents))
    parts = np.where(rng.random(len(parts)) < 0.3, np.rint(parts), parts)
    sums = np.bincount(parents, weights=parts, minlength=4)
    totals = np.where(rng.random(4) < 0.5, np.floor(sums + 1e-6), np.ceil(sums - 1e-6))
    result = rounded_parts(totals.astype(np.int64), parts, parents)
    used = np.bincount(parents, minlength=4) > 0
    assert (np.bincount(parents, weights=result, minlength=4) == totals)[used].all()
    assert (np.abs(result - parts) < 1 + 1e-6).all()
    assert (result[parts >= 0] >= 0).all()
    assert result.dtype == np.int64


def test_the_largest_remainders_go_up():
    zeros = np.zeros(4, np.int64)
    parts = np.array([1.5, 0.2, 2.3, 3.0])
    assert rounded_parts(np.array([7]), parts, zeros).tolist() == [2, 0, 2, 3]
    assert rounded_parts(np.array([8]), parts, zeros).tolist() == [2, 0, 3, 3]
    assert rounded_parts(np.array([2]), np.array([0.0, 3.0]), zeros[:2]).tolist() == [0, 2]


def test_ties_go_to_no_side_and_are_not_decided_by_rounding():
    rng = np.random.default_rng(4)
    zeros = np.zeros(1000, np.int64)
    parts = rng.integers(0, 99, 1000) + 0.3
    total = np.array([int(np.floor(parts).sum()) + 300])
    result = rounded_parts(total, parts, zeros)
    again = rounded_parts(total, parts + 1e-9 * rng.normal(size=1000), zeros)
    assert (result == again).all()
    up = np.flatnonzero(result > parts)
    assert len(up) == 300
    # Of 300 places of 1,000 a mean has a standard deviation of 14.
    assert abs(up.mean() - 499.5) < 5


# ---- constraints of one's own -----------------------------------------------------------------


@given(seeds)
@exactly
def test_constraints_against_dense_algebra(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    matrix = rng.integers(-1, 2, (int(rng.integers(0, n + 2)), n)).astype(float)
    truth, noise = rng.normal(size=n), rng.normal(size=n)
    variances = np.where(rng.random(n) < 0.2, 0, 10.0 ** rng.uniform(-2, 2, n))
    y = truth + np.sqrt(variances) * noise
    result = least_squares(y, variances, scipy.sparse.csr_array(matrix), matrix @ truth)
    scaled = matrix * variances
    gain = scaled.T @ np.linalg.pinv(matrix @ scaled.T, rcond=1e-10)
    assert np.allclose(result.values, y + gain @ (matrix @ (truth - y)), rtol=0, atol=1e-6)
    left = np.maximum(variances - (gain * scaled.T).sum(axis=1), 0)
    assert np.allclose(result.standard_errors**2, left, rtol=0, atol=1e-7 * (1 + variances.max()))
    assert (result.values == truth)[variances == 0].all()


@pytest.mark.parametrize("large", [1e12, 1e15, 1e18, 1e24, 1e60, 1e300])
def test_an_unmeasured_value_has_the_standard_error_that_the_others_give_it(large):
    """Its variance is large; the reference is the covariance of the fit in mpmath."""
    for variances, matrix in (
        ([large, 1], [[1, -1]]),
        ([large, 1, 4], [[1, -1, -1]]),
        ([1, large, 4, 1], [[1, -1, -1, 0], [2, 0, 1, 1]]),
        ([large, 2, 1e12, 1], [[0, -2, 1, -1], [0, -1, 0, -2], [2, 0, 2, 2]]),
    ):
        errors = least_squares(
            np.zeros(len(variances)), variances, np.array(matrix), np.zeros(len(matrix))
        ).standard_errors
        with mp.workdps(800):
            v, a = mp.diag(variances), mp.matrix(matrix)
            left = v - v * a.T * mp.inverse(a * v * a.T) * a * v
            exact = [float(mp.sqrt(abs(left[i, i]))) for i in range(len(variances))]
        np.testing.assert_allclose(errors, exact, rtol=1e-9)


def test_the_iterative_solver_agrees_with_the_tree():
    rng = np.random.default_rng(8)
    parents = [np.zeros(30, np.int64), rng.permutation(np.arange(1600) % 30)]
    variances = [rng.uniform(1, 9, size) for size in (1, 30, 1600)]
    values = [rng.normal(size=size) * 5 for size in (1, 30, 1600)]
    # The constraints twice, which changes nothing but makes the problem a large one.
    half = scipy.sparse.lil_array((31, 1631))
    half[0, 0], half[0, 1:31] = -1, 1
    for node, above in enumerate(parents[1]):
        half[1 + above, 31 + node] = 1
    for node in range(30):
        half[1 + node, 1 + node] = -1
    matrix = scipy.sparse.vstack([half] * 20)
    result = least_squares(
        np.concatenate(values), np.concatenate(variances), matrix, np.zeros(31 * 20)
    )
    expected = np.concatenate(PlaceTree(parents, variances).fit(values))
    assert result.standard_errors is None
    assert np.allclose(result.values, expected, rtol=0, atol=1e-9)
    assert result.residual < 1e-9


def test_constraints_that_cannot_hold_are_refused():
    both = np.array([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="contradict"):
        least_squares([0, 0], [1, 1], both, [1, 2])
    with pytest.raises(ValueError, match="contradict"):
        least_squares([0, 0], [0, 0], both[:1], [1])
    with pytest.raises(ValueError, match=r"A has shape"):
        least_squares([0], [1], both, [1, 2])
    with pytest.raises(ValueError, match="variances must be"):
        least_squares([0, 0], [1, np.inf], both, [1, 1])
    with pytest.raises(ValueError, match="both must be"):
        least_squares([0, 0], [1], both, [1, 1])


BRANCHES = [["N", "a"], ["N", "b"], ["S", "a"], ["S", "c"], ["S", "d"]]
INDUSTRIES = [["X", "x1"], ["X", "x2"], ["Y", "y1"], ["Z", "z1"]]


def random_chain(rng, most=7):
    """Up to three levels of places, each with a place of the next one below it."""
    sizes, parents = [int(rng.integers(1, 4))], []
    for _ in range(int(rng.integers(0, 3))):
        size = int(rng.integers(sizes[-1], most + 1))
        rest = rng.integers(0, sizes[-1], size - sizes[-1])
        parents.append(rng.permutation(np.concatenate([np.arange(sizes[-1]), rest])))
        sizes.append(size)
    return Chain(sizes[0], tuple(parents))


def sums_to(chain, level):
    """The matrix from the lowest places to those of a level."""
    lowest = len(chain.sizes) - 1
    matrix = np.zeros((chain.sizes[level], chain.sizes[lowest]))
    matrix[chain.above(level, lowest), np.arange(chain.sizes[lowest])] = 1
    return matrix


def random_pair(rng):
    """Two trees, some pairs of their levels, and the noise of each; one total may be exact."""
    first, second = random_chain(rng), random_chain(rng)
    every = list(itertools.product(range(len(first.sizes)), range(len(second.sizes))))
    chosen = rng.choice(len(every), int(rng.integers(1, len(every) + 1)), replace=False)
    levels = [every[i] for i in chosen]
    variances = [float(10.0 ** rng.uniform(-2, 2)) for _ in levels]
    single = [i for i, (a, b) in enumerate(levels) if first.sizes[a] * second.sizes[b] == 1]
    if single and rng.random() < 0.5:
        variances[single[0]] = 0.0
    return first, second, levels, variances


@given(seeds)
@exactly
def test_two_passes_with_matrices_are_dense_generalized_least_squares(seed):
    rng = np.random.default_rng(seed)
    first, second, levels, variances = random_pair(rng)
    sums = [np.kron(sums_to(first, a), sums_to(second, b)) for a, b in levels]
    truth = rng.normal(size=sums[0].shape[1]) * 10
    noise = [np.sqrt(v) * rng.normal(size=len(s)) for s, v in zip(sums, variances, strict=True)]
    values = [s @ truth + e for s, e in zip(sums, noise, strict=True)]
    pair = TreePair(first, second, levels, variances)
    fitted = pair.fit([np.stack([y, 2 * y], axis=1) for y in values])
    spread = np.concatenate([np.full(len(s), v) for s, v in zip(sums, variances, strict=True)])
    expected, after = dense(np.vstack(sums), np.concatenate(values), spread)
    assert np.allclose(np.concatenate([t[:, 0] for t in fitted]), expected, rtol=0, atol=1e-6)
    assert np.allclose(np.concatenate([t[:, 1] for t in fitted]), 2 * expected, rtol=0, atol=1e-6)
    assert np.allclose(np.concatenate(pair.after), after, rtol=1e-6, atol=1e-8)


@given(seeds)
@exactly
def test_what_noise_is_far_apart_adds_up_all_the_same(seed):
    rng = np.random.default_rng(seed)
    first, second = random_chain(rng), random_chain(rng)
    levels = list(itertools.product(range(len(first.sizes)), range(len(second.sizes))))
    variances = [float(10.0 ** rng.choice([-60.0, -4.0, 0.0, 12.0, 30.0])) for _ in levels]
    sums = [np.kron(sums_to(first, a), sums_to(second, b)) for a, b in levels]
    pair = TreePair(first, second, levels, variances)
    values = [rng.normal(size=(len(s), 1)) * 100 for s in sums]
    fitted = pair.fit(values)
    lowest = fitted[levels.index((len(first.sizes) - 1, len(second.sizes) - 1))]
    for table, matrix in zip(fitted, sums, strict=True):
        assert np.allclose(table, matrix @ lowest, rtol=1e-9, atol=1e-6)
    for after, variance in zip(pair.after, variances, strict=True):
        assert (after <= variance).all()
        assert (after >= 0).all()


def test_a_table_of_several_cells_has_noise():
    with pytest.raises(ValueError, match="must have noise"):
        TreePair(Chain(2), Chain(2), [(0, 0)], [0.0])


@given(seeds)
@settings(max_examples=15)
def test_the_nearest_tables_of_pairs_without_a_negative_cell(seed):
    """Against an active-set solver: two trees beside a column."""
    rng = np.random.default_rng(seed)
    first, second = random_chain(rng, 3), random_chain(rng, 3)
    lowest = (len(first.sizes) - 1, len(second.sizes) - 1)
    every = list(itertools.product(range(lowest[0] + 1), range(lowest[1] + 1)))
    measured = [at for at in every if at == lowest or rng.random() < 0.6]
    tables, matrices, values = [], [], []
    for at in measured:
        columns = frozenset({0}) if at == lowest or rng.random() < 0.5 else frozenset()
        tables.append(Margin(at[0], columns, float(10.0 ** rng.uniform(-1, 1)), at[1]))
        column = np.eye(2) if columns else np.ones((1, 2))
        places = np.kron(sums_to(first, at[0]), sums_to(second, at[1]))
        matrices.append(np.kron(places, column))
        values.append(rng.normal(size=(len(places), len(column), 1)) * 3)
    margins = Margins(tables, [2], first.parents, first.places, second)
    result = nonnegative(margins, values)
    weights = [1 / np.sqrt(m.variance) for m in tables]
    rows = [matrix * w for matrix, w in zip(matrices, weights, strict=True)]
    right = [y.ravel() * w for y, w in zip(values, weights, strict=True)]
    truth = nnls(np.vstack(rows), np.concatenate(right))[0]
    for table, matrix in zip(result.values, matrices, strict=True):
        assert np.allclose(table.ravel(), matrix @ truth, atol=1e-5)


def plan(*queries, method="least-squares", **more):
    trees = {
        "place": {"levels": ["region", "county"], "keys": BRANCHES, "unknown": ["N", "a"]},
        "industry": {"levels": ["sector", "job"], "keys": INDUSTRIES, "unknown": "y1"},
    }
    return ny.Plan.from_dict({
        "schema": 2, "name": "pairs", "dataset": "firms@1", "table": "firms",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"sex": {"keys": ["f", "m"], "unknown": "f"}},
        "hierarchy": {name: tree | more.pop(name, {}) for name, tree in trees.items()} | more,
        "budget": {"zcdp": "1/50"}, "consistency": {"method": method},
        "query": [q | {"share": f"1/{len(queries)}"} for q in queries],
    })  # fmt: skip


def count(name, *at, by=(), **more):
    return {"name": name, "measure": "count", "at": list(at), "by": list(by), **more}


TWO_WAYS = (
    count("total", public={"all": 60}) | {"at": []}, count("pairs", "all pairs"),
    count("turned", "sector x county", by=["sex"]), count("jobs", "sector", "job", by=["sex"]),
    count("places", "county"),
)  # fmt: skip


def matrix_of(example, name, level):
    """The sums of the cells (county, job, sex) that a table is made of, in its order of cells."""
    query = example.query(name)
    axes = {one.name: np.ones((1, len(one.rows))) for one in example.hierarchies}
    order = []
    for one, low in example.parts(level):
        axes[one.name] = np.zeros((len(one.paths(low)), len(one.rows)))
        axes[one.name][one.codes(low), np.arange(len(one.rows))] = 1
        order.append(one.name)
    axes["sex"] = np.eye(2) if query.by else np.ones((1, 2))
    full = np.einsum("ap,bq,cr->abcpqr", axes["place"], axes["industry"], axes["sex"])
    full = full.swapaxes(0, 1) if order == ["industry", "place"] else full
    return full.reshape(-1, len(BRANCHES) * len(INDUSTRIES) * 2)


def noisy_of(example, rng):
    cells = rng.poisson(1.5, len(BRANCHES) * len(INDUSTRIES) * 2)
    exact = {}
    for entry, sigma_squared in example.calibrated():
        truth = matrix_of(example, entry.query, entry.level) @ cells
        noise = np.rint(rng.normal(0, float(sigma_squared) ** 0.5, len(truth)))
        exact[entry.query, entry.level, "count"] = ((truth + noise).astype(np.int64), sigma_squared)
    return exact


@pytest.mark.parametrize("method", ["least-squares", "nonnegative", "integer"])
def test_tables_of_a_plan_by_two_trees_add_up_in_whatever_order_their_places_are(method):
    queries = TWO_WAYS[1:]
    if method == "integer":
        queries = (*queries, count("cells", "county x job", by=["sex"]))
    example = plan(*queries, method=method)
    noisy = noisy_of(example, np.random.default_rng(4))
    result = consistent_tables(example, noisy, method)
    assert result.families == (tuple(result.tables),)
    names = list(result.tables)
    sums = np.vstack([matrix_of(example, *name) for name in names])
    values = np.concatenate([result.tables[name].value for name in names])
    cells = np.linalg.lstsq(sums, values, rcond=None)[0]
    assert np.abs(sums @ cells - values).max() < 1e-6
    if method == "least-squares":
        noise = [noisy[*name, "count"] for name in names]
        variances = np.concatenate([np.full(len(y), float(v)) for y, v in noise])
        expected, after = dense(sums, np.concatenate([y for y, _ in noise]), variances)
        errors = np.concatenate([result.tables[name].standard_error for name in names])
        assert np.allclose(values, expected, atol=1e-6)
        assert np.allclose(errors**2, after, rtol=1e-4)
        by_place = consistent_variances(example, {n: float(noisy[*n, "count"][1]) for n in names})
        place = np.concatenate(
            [np.repeat(by_place[n], len(noisy[*n, "count"][0]) // len(by_place[n])) for n in names]
        )
        assert np.allclose(place, after, rtol=1e-6)
    else:
        assert values.min() >= 0
        assert values.dtype == (np.int64 if method == "integer" else np.float64)


def test_three_trees_in_one_family_are_refused():
    third = {"levels": ["age"], "keys": [["0"], ["1"]], "unknown": "0"}
    example = plan(count("a", "region x sector"), count("b", "age"), third=third)
    with pytest.raises(PlanError, match="place, industry, third"):
        consistent_tables(example, {})


def test_a_release_by_two_trees_is_verified(tmp_path: Path):
    example = plan(*TWO_WAYS[1:], method="nonnegative")
    rng = np.random.default_rng(2)
    places, jobs = rng.integers(0, len(BRANCHES), 60), rng.integers(0, len(INDUSTRIES), 60)
    rows = pa.table({
        "region": [BRANCHES[i][0] for i in places], "county": [BRANCHES[i][1] for i in places],
        "sector": [INDUSTRIES[i][0] for i in jobs], "job": [INDUSTRIES[i][1] for i in jobs],
        "sex": ["f", "m"] * 30,
    })  # fmt: skip
    ledger = ny.Ledger(str(tmp_path / "ledger.db"))
    ledger.create("firms@1", protects="person", neighboring="replace-one", cap=1)
    release = ny.run(example, data=rows, ledger=ledger, out=tmp_path / "out")
    table = release.tables["consistent/pairs.county x job"]
    assert table.column_names[:4] == ["region", "county", "sector", "job"]
    listed = [(*p, *j) for p in BRANCHES for j in INDUSTRIES]
    assert list(zip(*(table[n].to_pylist() for n in table.column_names[:4]), strict=True)) == listed
    checks = verify(tmp_path / "out", {"report.html": page})
    assert [check for check in checks if not check.ok] == []
    report = (tmp_path / "out" / "report.html").read_text()
    assert "job within a known sector" in report
    assert "county within a known region" in report


METHODS = ("least-squares", "nonnegative", "integer")
PLACES = [["north", f"n{i}", f"n{i}{c}"] for i in range(2) for c in "ab"] + [["south", "s0", "s0a"]]


def query(name, share, *, by=(), at=("region", "state", "county"), measure="count", **more):
    by_key = {"name": name, "measure": measure, "by": list(by), "at": list(at), **more}
    return by_key if share is None else {**by_key, "share": share}


def planned(*queries, unknown="other", place_unknown="drop", zcdp="1/8", pay=0, **more):
    sections = {
        "schema": 2, "name": "small", "dataset": "people@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {
            "race": {"keys": ["white", "black", "other"], "unknown": unknown},
            "sex": {"keys": ["f", "m"], "unknown": "f"}, "pay": {"integer": True, "unknown": pay},
        },
        "hierarchy": {
            "place": {
                "levels": ["region", "state", "county"], "keys": PLACES, "unknown": place_unknown,
            },
        },
        "budget": {"zcdp": zcdp}, "query": list(queries),
    }  # fmt: skip
    return Plan.from_dict(sections | more)


def people(plan, seed=3, mean=40):
    """True counts by (county, race, sex), and from them the exact table of each entry."""
    cells = np.random.default_rng(seed).poisson(mean, (len(PLACES), 3, 2))
    exact = {}
    for entry in plan.entries():
        asked = plan.query(entry.query)
        table = cells
        if "sex" not in asked.by:
            table = table.sum(axis=2, keepdims=True)
        if "race" not in asked.by:
            table = table.sum(axis=1, keepdims=True)
        if asked.by == ("sex", "race"):
            table = table.transpose(0, 2, 1)
        if entry.level == "all":
            table = table.sum(axis=0)
        else:
            places = len(plan.hierarchy.paths(entry.level))
            summed = np.zeros((places, *table.shape[1:]), dtype=np.int64)
            np.add.at(summed, plan.hierarchy.codes(entry.level), table)
            table = summed
        exact[entry.query, entry.level, entry.measure] = table.ravel()
    return exact


def released(plan, exact, bits):
    noisy = {}
    for entry, sigma_squared in plan.calibrated():
        key = (entry.query, entry.level, entry.measure)
        noise = discrete_gaussian(sigma_squared, entry.cells, bits) if sigma_squared else 0
        noisy[key] = (exact[key] + noise, sigma_squared)
    return noisy


CROSSED = (
    query("total", "1/4"),
    query("race", "1/4", by=["race"]),
    query("both", "1/2", by=["sex", "race"], at=["state", "county"]),
)


def up(plan, values, lower, upper):
    """A table's sums over the places of a level above."""
    summed = np.zeros((len(plan.hierarchy.paths(upper)), *values.shape[1:]))
    np.add.at(summed, plan.hierarchy.parents(lower, upper), values)
    return summed


@pytest.mark.parametrize("method", METHODS)
def test_counties_add_up_to_states_and_margins_to_totals(method):
    plan = planned(*CROSSED, zcdp="1/200")
    noisy = released(plan, people(plan, mean=4), Seeded(1))
    product = consistent_tables(plan, noisy, method)
    within = 0 if method == "integer" else 1e-5
    tables = {
        (name, level): table.value.reshape(len(plan.hierarchy.paths(level)), *shape)
        for (name, level), table in product.tables.items()
        for shape in [{"total": (), "race": (3,), "both": (2, 3)}[name]]
    }
    for name in ("total", "race", "both"):
        for upper, lower in (("state", "county"), ("region", "state")):
            if (name, upper) in tables and (name, lower) in tables:
                sums = up(plan, tables[name, lower], lower, upper)
                assert np.abs(sums - tables[name, upper]).max() <= within
    for level in ("region", "state", "county"):
        race = tables["race", level]
        assert np.abs(race.sum(axis=1) - tables["total", level]).max() <= within
        if level != "region":
            assert np.abs(tables["both", level].sum(axis=1) - race).max() <= within
    assert {table.value.dtype.name for table in product.tables.values()} == {
        "int64" if method == "integer" else "float64"
    }
    if method != "least-squares":
        assert min(table.value.min() for table in product.tables.values()) >= 0
        assert min(table.lower.min() for table in product.tables.values()) == 0
        assert 0 < product.residual <= 1e-7
    else:
        assert product.residual == 0  # least squares search nothing
    assert product.families == (tuple(product.tables),)


@pytest.mark.parametrize("method", METHODS)
def test_a_declared_total_is_met_exactly(method):
    exact = people(planned(*CROSSED))
    total = int(exact["total", "region", "count"].sum())
    places = [["all", *row] for row in PLACES]
    levels = {"place": {"levels": ["nation", "region", "state", "county"], "keys": places}}
    plan = planned(
        query("total", "1/4", at=["nation", "state"], public={"nation": total}),
        query("race", "3/4", by=["race"], at=["county"]),
        zcdp="1/200",
        hierarchy={"place": levels["place"] | {"unknown": places[-1]}},
    )
    noisy = released(plan, people(plan) | {("total", "nation", "count"): total}, Seeded(2))
    noisy["total", "nation", "count"] = (np.array([total]), Fraction(0))
    product = consistent_tables(plan, noisy, method)
    assert product.invariants == (("total", "nation"),)
    nation = product.tables["total", "nation"]
    for column in (nation.value, nation.lower, nation.upper):
        assert column.tolist() == [total]
    assert nation.standard_error.tolist() == [0]
    for table in product.tables.values():
        assert table.value.sum() == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("runs", [400, 2000])
def test_standard_errors_and_intervals_are_true_over_many_releases(runs):
    """Mean squared errors over all releases are the stated variances, and intervals cover 90%.

    A table's mean of squared errors over releases is within 6 of its standard deviations, at most
    sqrt(2 / runs) of it: a false alarm has probability below 1e-8.
    """
    plan = planned(*CROSSED, zcdp="1/2")
    exact = people(plan)
    bits = Seeded(4)
    squares, errors, covered = {}, {}, {}
    for _ in range(runs):
        product = consistent_tables(plan, released(plan, exact, bits))
        for (name, level), table in product.tables.items():
            truth = exact[name, level, "count"]
            key = (name, level)
            squares[key] = squares.get(key, 0) + (table.value - truth) ** 2
            errors[key] = errors.get(key, 0) + (table.value - truth)
            inside = (table.lower <= truth) & (truth <= table.upper)
            covered[key] = covered.get(key, 0) + inside.mean()
    for key, square in squares.items():
        variance = product.tables[key].standard_error ** 2
        assert abs((square / runs / variance).mean() - 1) < 6 * (2 / runs) ** 0.5
        # Unbiased: no cell's mean error is 6 standard errors away.
        assert (np.abs(errors[key] / runs) < 6 * (variance / runs) ** 0.5).all()
        assert covered[key] / runs > 0.9 - 6 * (0.09 / runs) ** 0.5


@pytest.mark.parametrize("method", ["least-squares", "integer"])
def test_intervals_cover_where_true_cells_are_small(method):
    """Coverage of at least 90% for the versions that move cells to 0 or to whole numbers too.

    The share covered, over 200 releases, is held to 90% less 6 standard deviations, of which
    a release's share has at most 0.3: a false alarm has probability below 1e-8.
    """
    plan = planned(*CROSSED, zcdp="1/20")
    exact = people(plan, mean=1)
    bits, runs = Seeded(5), 200
    covered = {}
    for _ in range(runs):
        product = consistent_tables(plan, released(plan, exact, bits), method)
        for (name, level), table in product.tables.items():
            truth = exact[name, level, "count"]
            assert ((table.lower <= table.value) & (table.value <= table.upper)).all()
            inside = ((table.lower <= truth) & (truth <= table.upper)).mean()
            covered[name, level] = covered.get((name, level), 0) + inside
    assert min(covered.values()) / runs > 0.9 - 6 * (0.09 / runs) ** 0.5


# ---- which tables must add up -----------------------------------------------------------------


EVERYTHING = query("all", "1/2", at=()), query("total", "1/2")
BY_RACE_AND_ID = query("kept", "1/2", by=["race"], groups=1, rows_per_group=1)
BY_ID = {"protects": "person", "neighboring": "add-remove", "rows": 3, "id": "id"}


@pytest.mark.parametrize(("plan", "families"), [
    (planned(*CROSSED, unknown="drop"), [["both", "race"], ["total"]]),
    (planned(*EVERYTHING), [["all"], ["total"]]),
    (planned(*EVERYTHING, place_unknown=PLACES[-1]), [["all", "total"]]),
    (planned(EVERYTHING[1], BY_RACE_AND_ID, unit=BY_ID), [["kept"], ["total"]]),
    (plan(*TWO_WAYS[1:], industry={"unknown": "drop"}), [["jobs", "pairs", "turned"], ["places"]]),
])  # fmt: skip
def test_tables_that_count_other_rows_are_not_made_to_add_up(plan, families):
    noisy = {
        (e.query, e.level, e.measure): (np.zeros(e.cells, np.int64), sigma_squared)
        for e, sigma_squared in plan.calibrated()
    }
    product = consistent_tables(plan, noisy)
    assert sorted(sorted({name for name, _ in one}) for one in product.families) == families


def test_a_declared_total_counts_dropped_rows_so_that_places_need_not_add_up_to_it():
    levels = {"levels": ["nation", "state"], "keys": [["all", "n0"], ["all", "n1"]]}

    def free_errors(unknown):
        plan = planned(
            query("total", "1/2", at=["nation", "state"], public={"nation": 1000}),
            query("all", "1/2", at=()),
            hierarchy={"place": levels | {"unknown": unknown}},
        )
        noise = {(e.query, e.level): s for e, s in plan.calibrated()}
        noisy = {
            ("total", "nation", "count"): (np.array([1000]), Fraction(0)),
            ("total", "state", "count"): (np.array([450, 450]), noise["total", "state"]),
            ("all", "all", "count"): (np.array([1003]), noise["all", "all"]),
        }
        return consistent_tables(plan, noisy)

    apart = free_errors("drop")
    assert apart.tables["total", "state"].value.tolist() == [450, 450]
    assert apart.tables["all", "all"].value.tolist() == [1000]
    joined = free_errors(["all", "n1"])
    assert joined.tables["total", "state"].value.tolist() == [500, 500]


def test_means_take_no_part_and_sums_add_up_among_themselves():
    plan = planned(
        query("total", "1/4"),
        query("pay", "1/4", measure="sum", column="pay", clip=[-5, 9]),
        query("pay-race", "1/4", by=["race"], measure="sum", column="pay", clip=[-5, 9]),
        query("average", "1/4", measure="mean", column="pay", clip=[0, 9]),
    )
    exact = {(e.query, e.level, e.measure): np.arange(e.cells) - 7 for e in plan.entries()}
    product = consistent_tables(plan, released(plan, exact, Seeded(1)), "integer")
    assert [{name for name, _ in family} for family in product.families] == [
        {"total"},
        {"pay", "pay-race"},
    ]
    assert set(product.left_out.values()) == {"a table of measure 'mean' does not add up"}
    assert product.tables["pay", "region"].value.min() < 0  # a sum of both signs may be negative
    assert product.tables["total", "region"].value.min() >= 0


def test_a_histogram_adds_up_to_the_count_if_no_row_is_dropped():
    queries = [
        query("total", "1/2"),
        query("pay", "1/2", at=["county"], measure="histogram", column="pay", edges=[0, 5, 9, 20]),
    ]
    plan = planned(*queries)
    exact = {(e.query, e.level, e.measure): np.full(e.cells, 45 // e.cells) for e in plan.entries()}
    product = consistent_tables(plan, released(plan, exact, Seeded(1)))
    assert product.families == (tuple(product.tables),)
    bins = product.tables["pay", "county"].value.reshape(len(PLACES), 3)
    assert bins.sum(axis=1) == pytest.approx(product.tables["total", "county"].value)
    dropped = planned(*queries, pay="drop")
    product = consistent_tables(dropped, released(dropped, exact, Seeded(1)))
    totals = tuple(("total", level) for level in ("region", "state", "county"))
    assert product.families == (totals, (("pay", "county"),))


def test_a_plan_that_cannot_add_up_is_refused_before_any_data():
    apart = planned(query("race", "1/2", by=["race"]), query("sex", "1/2", by=["sex"]))
    check_consistency(apart, "nonnegative")
    with pytest.raises(PlanError, match=r"'race\.county' and 'sex\.county'"):
        check_consistency(apart, "integer")
    with pytest.raises(PlanError, match="must be one of"):
        check_consistency(apart, "best")
    means = planned(query("average", "1", measure="mean", column="pay", clip=[0, 9]))
    with pytest.raises(PlanError, match="leave the section out"):
        check_consistency(means, "least-squares")
    one = {"place": {"levels": ["nation", "county"], "keys": [["all", "a"]], "unknown": "drop"}}
    twice = planned(
        query("first", None, at=["nation"], public={"nation": 5}),
        query("second", None, at=["nation"], public={"nation": 6}),
        query("race", "1", by=["race"], at=["county"]),
        hierarchy=one,
    )
    with pytest.raises(PlanError, match="must be equal"):
        check_consistency(twice, "least-squares")


def test_values_that_no_double_can_count_are_left_as_they_are():
    """Beyond 2^53 a family says so; the others are made."""
    plan = planned(
        query("total", "1/2"), query("pay", "1/2", measure="sum", column="pay", clip=[0, 9])
    )
    noisy = released(plan, people(plan), Seeded(1))
    huge, sigma_squared = noisy["pay", "state", "sum"]
    noisy["pay", "state", "sum"] = (huge + 2**62, sigma_squared)
    for method in METHODS:
        product = consistent_tables(plan, noisy, method)
        assert {name for name, _ in product.tables} == {"total"}
        assert set(product.left_out) == {("pay", level) for level in ("region", "state", "county")}
        assert "more than doubles can count" in product.left_out["pay", "state"]


@pytest.mark.parametrize("zcdp", ["1e-14", "1e4"])
def test_the_least_and_the_most_noise_that_a_plan_can_have(zcdp):
    plan = planned(*CROSSED, zcdp=zcdp)
    exact = people(plan)
    product = consistent_tables(plan, released(plan, exact, Seeded(1)), "integer")
    county, state = (product.tables["total", level] for level in ("county", "state"))
    assert (up(plan, county.value, "county", "state") == state.value).all()
    for key, table in product.tables.items():
        truth = exact[*key, "count"]
        assert (table.standard_error > 0).all()
        # Beyond 8 standard errors, and the roundings: probability below 1e-12.
        assert (
            np.abs(np.maximum(table.value, table.lower) - truth) <= 8 * table.standard_error + 3
        ).all()


def test_the_same_tables_give_the_same_bytes():
    plan = planned(*CROSSED, zcdp="1/100")
    noisy = released(plan, people(plan), Seeded(9))
    backwards = dict(reversed(noisy.items()))
    for method in METHODS:
        one, two = (consistent_tables(plan, tables, method) for tables in (noisy, backwards))
        assert list(one.tables) == list(two.tables)
        for key, table in one.tables.items():
            for name in ("value", "standard_error", "lower", "upper"):
                first, second = getattr(table, name), getattr(two.tables[key], name)
                assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("wide", [0.9, 0.3, 0.05])
@pytest.mark.parametrize("narrow", [0.15, 0.12, 0.05])
@pytest.mark.parametrize("children", [1, 2, 3])
def test_intervals_cover_where_noise_is_hardly_ever_seen(children, narrow, wide):
    variances = [standard_error(Fraction(s).limit_denominator(1000)) ** 2 for s in (narrow, wide)]
    tree = PlaceTree([np.zeros(children, dtype=np.int64)], variances)
    k = np.arange(-4, 5)
    laws = [np.exp(-k * k / (2 * s)) for s in (narrow, *[wide] * children)]
    chance, draws = np.ones(1), np.zeros((0, 1))
    for law in laws:
        chance = np.outer(chance, law / law.sum()).ravel()
        draws = np.vstack([np.repeat(draws, len(k), axis=1), np.tile(k, draws.shape[1])])
    fitted = tree.fit([draws[:1], draws[1:]])
    for values, after in zip(fitted, tree.after, strict=True):
        half = Z90 * np.sqrt(after)[:, None] + 0.5 + 1e-9
        covered = (np.abs(values) <= half) @ chance
        assert covered.min() >= 0.9


def test_consistent_errors_are_those_that_are_published():
    mixed = Plan.from_dict(tomllib.loads(MIXED))
    by_name = {error.name: error for error in errors(mixed)}
    noisy = {
        (e.query, e.level, e.measure): (np.zeros(e.cells, dtype=np.int64), s)
        for e, s in mixed.calibrated()
    }
    result = consistent_tables(mixed, noisy)
    assert {name for name, error in by_name.items() if error.consistent} == {
        ".".join(name) for name in result.tables
    }
    for name, table in result.tables.items():
        unit = 100 if name[0] == "pay" else 1
        answer = by_name[".".join(name)].consistent
        assert answer == pytest.approx(
            (table.standard_error.min() / unit, table.standard_error.max() / unit), rel=1e-9
        )


FAMILIES = [
    [["state"]], [["state"], ["year"]], [["state"], ["year"], ["race"]],
    [["state", "year"], ["county"]], [["year", "race"], ["state", "race"]],
    [["nation"], ["state"], ["state", "year"]], [["county", "year"]],
]  # fmt: skip
KEYS: dict[str, list[Any]] = {"race": ["white", "black", "other"], "year": [2020, 2021]}


def margin(table: Any, by: list[str]) -> tuple[list[list[Any]], Any]:
    """The sums of a table by county, race, and year, with the keys of each."""
    level = next((name for name in by if name not in KEYS), None)
    depth = ("nation", "state", "county").index(level) + 1 if level else 0
    places = list(dict.fromkeys(tuple(place[:depth]) for place in COUNTIES))
    sums = np.zeros((len(places), *table.shape[1:]), dtype=table.dtype)
    for i, place in enumerate(COUNTIES):
        sums[places.index(tuple(place[:depth]))] += table[i]
    gone = tuple(1 + i for i, name in enumerate(KEYS) if name not in by)
    sums = sums.sum(axis=gone)
    columns = [name for name in by if name in KEYS]
    order = [name for name in KEYS if name in columns]
    sums = sums.transpose(0, *(1 + order.index(name) for name in columns))
    keys = itertools.product(places, *(KEYS[name] for name in columns))
    return [[*place, *rest] for place, *rest in keys], sums.ravel()


@pytest.mark.parametrize("by", FAMILIES, ids=str)
@pytest.mark.parametrize("method", ["least-squares", "nonnegative", "integer"])
def test_random_tables_add_up_to_the_totals(by, method):
    """Whole numbers to the unit, others to rounding, and none below 0; nor is the noise undone."""
    rng = np.random.default_rng(4)
    for rows in (0, 3, 100, 10**7):
        truth = rng.multinomial(rows, rng.dirichlet(np.full(24, 0.2))).reshape(4, 3, 2)
        totals: list[Any] = []
        for one in by:
            keys, sums = margin(truth, one)
            values = [[*key, int(n)] for key, n in zip(keys, sums, strict=True)]
            totals.append({"by": one, "values": values})
        own = plan_with_totals(*totals, consistency={"method": method})
        check_consistency(own, method)
        noisy: dict[tuple[str, str, str], tuple[Any, Fraction]] = {}
        for name, table in (("all", truth), ("race", truth.sum(axis=2))):
            noise = np.rint(30 * rng.standard_normal(table.size)).astype(np.int64)
            noisy[name, "county", "count"] = table.ravel() + noise, Fraction(900)
        result = consistent_tables(own, noisy, method)
        fitted = result.tables["all", "county"].value.reshape(4, 3, 2)
        races = result.tables["race", "county"].value.reshape(4, 3)
        assert set(result.tables) == {("all", "county"), ("race", "county")}
        for one in by:
            before, after = (margin(table, one)[1] for table in (truth, fitted))
            if method == "integer":
                assert fitted.dtype == np.int64
                assert (before == after).all()
            else:
                assert np.abs(before - after).max() < 1e-6
        assert np.abs(fitted.sum(axis=2) - races).max() < 1e-6
        assert method == "least-squares" or fitted.min() >= 0
        assert np.abs(fitted - truth).max() < 30 * 8


def test_known_sums_lower_the_stated_errors_to_those_of_the_matrix(tmp_path):
    """Against the projection in dense matrices, with the totals as exact constraints."""
    own = plan_with_totals(STATE_TOTAL, YEAR_TOTAL, consistency={"method": "least-squares"})
    rng = np.random.default_rng(5)
    cells = np.eye(24).reshape(24, 4, 3, 2)
    measured = np.vstack([np.eye(24), cells.sum(axis=3).reshape(24, 12).T])
    exact = np.vstack([margin(cell, by)[1] for cell in cells for by in (["state"],)]).T
    exact = np.vstack([exact, np.vstack([margin(cell, ["year"])[1] for cell in cells]).T])
    variances = np.repeat([4.0, 9.0], [24, 12])
    y = rng.integers(0, 20, 36)
    noisy: Any = {
        ("all", "county", "count"): (y[:24], Fraction(4)),
        ("race", "county", "count"): (y[24:], Fraction(9)),
    }
    result = consistent_tables(own, noisy).tables["all", "county"]
    normal = measured.T @ np.diag(1 / variances) @ measured
    known = np.array([60, 40, 70, 30])
    system = np.block([[normal, exact.T], [exact, np.zeros((4, 4))]])
    inverse = np.linalg.pinv(system)
    expected = inverse @ np.concatenate([measured.T @ (y / variances), known])
    assert result.value == pytest.approx(expected[:24], abs=1e-8)
    assert result.standard_error**2 == pytest.approx(np.diag(inverse)[:24], rel=1e-2)
