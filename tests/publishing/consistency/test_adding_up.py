"""Least squares on trees, over margins and under constraints, against dense linear algebra."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from neyman.publishing.consistency.constraints import least_squares
from neyman.publishing.consistency.integer_rounding import rounded_parts
from neyman.publishing.consistency.margins import Margin, Margins
from neyman.publishing.consistency.nonnegative import nonnegative
from neyman.publishing.consistency.tree import PlaceTree

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
    """Any shape of tree, nodes that were not measured and nodes that are known exactly."""
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
    """Least squares is linear and unbiased, and doing it twice is doing it once."""
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


@given(seeds)
@exactly
def test_no_direction_that_adds_up_comes_nearer(seed):
    """The weighted distance grows along every change of the leaves."""
    rng = np.random.default_rng(seed)
    sizes, parents, _, sums = random_tree(rng)
    variances = [10.0 ** rng.uniform(-2, 2, size) for size in sizes]
    noisy = [rng.normal(size=size) for size in sizes]
    fitted = np.concatenate(PlaceTree(parents, variances, sizes[0]).fit(noisy))
    y, v, x = np.concatenate(noisy), np.concatenate(variances), np.vstack(sums)
    least = ((fitted - y) ** 2 / v).sum()
    for size in (1e-3, 1.0):
        step = x @ rng.normal(size=x.shape[1]) * size
        assert ((fitted + step - y) ** 2 / v).sum() >= least * (1 - 1e-12)


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


def test_one_node_and_chains_of_single_children():
    """One node stays as it is; along a chain all values become their precision's mean."""
    assert PlaceTree([], [4.0]).fit([np.array([7.0])])[0].tolist() == [7.0]
    one = np.zeros(1, np.int64)
    tree = PlaceTree([one, one], [1.0, np.inf, 0.25])
    result = tree.fit([np.array([10.0]), np.array([np.nan]), np.array([0.0])])
    assert [level[0] for level in result] == pytest.approx([2.0, 2.0, 2.0])
    assert [level[0] for level in tree.after] == pytest.approx([0.2, 0.2, 0.2])


def test_what_is_known_exactly_is_met_exactly():
    """To the last bit at the node itself, and in the sums to rounding."""
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
    """Each refusal names what is wrong."""
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
    """Tables by any columns at any levels, whether they make a tree or not."""
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
    """Races at five states and totals at their counties: neither is a margin of the other."""
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
    """To totals that are their own sums rounded either way; none falls below 0 that is not."""
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
    """Whole numbers stay, and a total below its parts takes from none that is at 0."""
    zeros = np.zeros(4, np.int64)
    parts = np.array([1.5, 0.2, 2.3, 3.0])
    assert rounded_parts(np.array([7]), parts, zeros).tolist() == [2, 0, 2, 3]
    assert rounded_parts(np.array([8]), parts, zeros).tolist() == [2, 0, 3, 3]
    assert rounded_parts(np.array([2]), np.array([0.0, 3.0]), zeros[:2]).tolist() == [0, 2]


def test_ties_go_to_no_side_and_are_not_decided_by_rounding():
    """Errors of the last digits change nothing, and those that go up are spread over all."""
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
    """Rows that repeat others, and values that are known exactly, included."""
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
    """A tree of 1,631 nodes as constraints, too large to be decomposed."""
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
    """Contradictions, shapes, and variances that are none."""
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
