"""Tables that add up along two trees, against dense linear algebra and active-set solvers."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import neyman as ny
from neyman.display import page
from neyman.publishing import PlanError, verify
from neyman.publishing.consistency import consistent_tables, consistent_variances
from neyman.publishing.consistency.margins import Margin, Margins
from neyman.publishing.consistency.nonnegative import nonnegative
from neyman.publishing.consistency.tree import Chain
from neyman.publishing.consistency.tree_pair import TreePair

exactly = settings(max_examples=60)
seeds = st.integers(0, 2**32 - 1)
PLACES = [["N", "a"], ["N", "b"], ["S", "a"], ["S", "c"], ["S", "d"]]
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


def dense(sums, values, variances):
    """Generalized least squares by its optimality conditions; exact values are constraints."""
    exact = variances == 0
    x, x0, w = sums[~exact], sums[exact], 1 / variances[~exact]
    zero = np.zeros((len(x0), len(x0)))
    system = np.block([[x.T @ (w[:, None] * x), x0.T], [x0, zero]])
    inverse = np.linalg.pinv(system, rcond=1e-12)
    columns = sums.shape[1]
    estimate = inverse[:columns] @ np.concatenate([x.T @ (w * values[~exact]), values[exact]])
    return sums @ estimate, np.einsum("ij,jk,ik->i", sums, inverse[:columns, :columns], sums)


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
    """Any two trees and any pairs of levels, with a finest one or without; also the variances."""
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
    """Variances from 1e-60 to 1e30: sums hold, and no variance after is far below its bound."""
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
    """Only a total can be known exactly."""
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
        "place": {"levels": ["region", "county"], "keys": PLACES, "unknown": ["N", "a"]},
        "industry": {"levels": ["sector", "job"], "keys": INDUSTRIES, "unknown": "y1"},
    }
    return ny.Plan.from_dict(
        {
            "schema": 2,
            "name": "pairs",
            "dataset": "firms@1",
            "table": "firms",
            "unit": {"protects": "person", "neighboring": "replace-one"},
            "columns": {"sex": {"keys": ["f", "m"], "unknown": "f"}},
            "hierarchy": {name: tree | more.pop(name, {}) for name, tree in trees.items()} | more,
            "budget": {"zcdp": "1/50"},
            "consistency": {"method": method},
            "query": [q | {"share": f"1/{len(queries)}"} for q in queries],
        }
    )


def count(name, *at, by=(), **more):
    return {"name": name, "measure": "count", "at": list(at), "by": list(by), **more}


TWO_WAYS = (
    count("total", public={"all": 60}) | {"at": []},
    count("pairs", "all pairs"),
    count("turned", "sector x county", by=["sex"]),
    count("jobs", "sector", "job", by=["sex"]),
    count("places", "county"),
)


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
    return full.reshape(-1, len(PLACES) * len(INDUSTRIES) * 2)


def noisy_of(example, rng):
    cells = rng.poisson(1.5, len(PLACES) * len(INDUSTRIES) * 2)
    exact = {}
    for entry, sigma_squared in example.calibrated():
        truth = matrix_of(example, entry.query, entry.level) @ cells
        noise = np.rint(rng.normal(0, float(sigma_squared) ** 0.5, len(truth)))
        exact[entry.query, entry.level, "count"] = ((truth + noise).astype(np.int64), sigma_squared)
    return exact


@pytest.mark.parametrize("method", ["least-squares", "nonnegative", "integer"])
def test_tables_of_a_plan_by_two_trees_add_up_in_whatever_order_their_places_are(method):
    """Each table is the sums of one table of all cells, and least squares are dense ones."""
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


def test_rows_that_one_tree_drops_set_tables_apart():
    """Tables by industry count fewer rows than tables by place alone, and need not add up."""
    example = plan(*TWO_WAYS[1:], industry={"unknown": "drop"})
    groups = consistent_tables(example, noisy_of(example, np.random.default_rng(1))).families
    assert [{name for name, _ in group} for group in groups] == [
        {"pairs", "turned", "jobs"},
        {"places"},
    ]


def test_three_trees_in_one_family_are_refused():
    """The error names them, before any data are read."""
    third = {"levels": ["age"], "keys": [["0"], ["1"]], "unknown": "0"}
    example = plan(count("a", "region x sector"), count("b", "age"), third=third)
    with pytest.raises(PlanError, match="place, industry, third"):
        consistent_tables(example, {})


def test_a_release_by_two_trees_is_verified(tmp_path: Path):
    """Key columns of both trees are published, and the tables that add up are made again."""
    example = plan(*TWO_WAYS[1:], method="nonnegative")
    rng = np.random.default_rng(2)
    places, jobs = rng.integers(0, len(PLACES), 60), rng.integers(0, len(INDUSTRIES), 60)
    rows = pa.table(
        {
            "region": [PLACES[i][0] for i in places],
            "county": [PLACES[i][1] for i in places],
            "sector": [INDUSTRIES[i][0] for i in jobs],
            "job": [INDUSTRIES[i][1] for i in jobs],
            "sex": ["f", "m"] * 30,
        }
    )
    ledger = ny.Ledger(str(tmp_path / "ledger.db"))
    ledger.create("firms@1", protects="person", neighboring="replace-one", cap=1)
    release = ny.run(example, data=rows, ledger=ledger, out=tmp_path / "out")
    table = release.tables["consistent/pairs.county x job"]
    assert table.column_names[:4] == ["region", "county", "sector", "job"]
    listed = [(*p, *j) for p in PLACES for j in INDUSTRIES]
    assert list(zip(*(table[n].to_pylist() for n in table.column_names[:4]), strict=True)) == listed
    checks = verify(tmp_path / "out", {"report.html": page})
    assert [check for check in checks if not check.ok] == []
    report = (tmp_path / "out" / "report.html").read_text()
    assert "job within a known sector" in report
    assert "county within a known region" in report
