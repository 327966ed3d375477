"""The gap of each table of a plan: at least 1, and near 1 where Gaussian noise is optimal."""

import math
from fractions import Fraction

import pytest

import neyman as ny
from neyman.accounting import GAP, cell_gap, mean_gap
from neyman.publishing import errors

RHO = Fraction(1, 50)


@pytest.mark.parametrize("cells", [2, 5, 1000])
@pytest.mark.parametrize("rho", [Fraction(1, 5000), Fraction(1, 50), Fraction(1, 2), Fraction(4)])
def test_gaussian_noise_on_a_histogram_is_within_a_known_factor(cells, rho):
    gap = cell_gap(math.sqrt(1 / rho), rho, [(1, 1)], cells, "replace-one")
    x = 2 * float(rho)
    assert gap == pytest.approx(math.sqrt(cells / (cells - 1) * math.expm1(x) / x), rel=1e-6)
    alone = cell_gap(math.sqrt(1 / (2 * rho)), rho, [(1,)], cells, "add-remove")
    assert alone == pytest.approx(math.sqrt(math.expm1(x) / x), rel=1e-6)


@pytest.mark.parametrize("epsilon", ["0.05", "0.5", 1, 3])
def test_no_noise_of_the_library_is_below_the_least_error(epsilon):
    for make in (ny.DiscreteLaplace, ny.DiscreteGaussian, ny.RoundedGaussian):
        scale = 1 / float(Fraction(str(epsilon)))
        noise = make(scale, 1)
        rho = Fraction(noise.tradeoff().zcdp().upper)
        row = ny.alike(noise.tradeoff(), kinds=[])
        assert row.kinds == ()
        r = math.exp(-1 / scale)
        error = {
            ny.DiscreteLaplace: math.sqrt(2 * r) / (1 - r),
            ny.DiscreteGaussian: discrete_error(scale),
            ny.RoundedGaussian: math.sqrt(scale**2 + 1 / 12),
        }[make]
        least = math.sqrt(1 / math.expm1(2 * float(rho)))
        assert error > least * (1 - 1e-9)
        assert cell_gap(error, rho, [(1,)], 1, "replace-one") >= 1


def discrete_error(sigma):
    k = range(-200, 201)
    mass = [math.exp(-j * j / (2 * sigma * sigma)) for j in k]
    return math.sqrt(sum(m * j * j for m, j in zip(mass, k, strict=True)) / sum(mass))


def test_what_is_not_proven_has_no_gap():
    assert cell_gap(3.0, RHO, [], 5, "replace-one") is None
    assert cell_gap(3.0, RHO, [(1, 1)], None, "replace-one") is None
    assert cell_gap(3.0, Fraction(0), [(1, 1)], 5, "replace-one") is None
    assert mean_gap(0.0, RHO, 1.0, 100, "replace-one") is None


def test_a_mean_is_compared_with_the_least_error_at_its_rows():
    mu, rows = 0.2, 100_000
    error = 1 / (rows * mu)
    gap = mean_gap(error, Fraction(mu * mu / 2), 1.0, rows, "replace-one")
    assert 1 <= gap < 1.05
    twice = mean_gap(error, Fraction(mu * mu / 2), 1.0, rows, "add-remove")
    assert twice == pytest.approx(2 * gap, rel=0.1)


def plan_of(columns, queries, zcdp, *, neighboring="replace-one"):
    """A plan of one row per person."""
    document = {
        "schema": 2,
        "name": "gap",
        "dataset": "data@1",
        "table": "people",
        "unit": {"protects": "person", "neighboring": neighboring, "rows": 1},
        "columns": columns,
        "budget": {"zcdp": zcdp},
        "query": queries,
    }
    return ny.Plan.from_dict(document)


def test_every_table_of_a_plan_states_its_gap():
    count = {"name": "races", "measure": "count", "by": ["race"], "share": "1/4"}
    mean = {"name": "ages", "measure": "mean", "column": "age", "clip": [0, 100], "share": "1/4"}
    total = {**mean, "name": "sums", "measure": "sum", "by": ["race"]}
    middle = {"name": "middle", "measure": "quantiles", "column": "age", "share": "1/4"}
    columns = {
        "race": {"keys": ["a", "b", "c"], "unknown": "drop"},
        "age": {"integer": True, "unknown": 0},
    }
    queries = [count, mean, total, {**middle, "quantiles": ["0.5"], "edges": [0, 50, 100]}]
    plan = plan_of(columns, queries, "0.1")
    gaps = {error.query: error.gap for error in errors(plan)}
    assert 1 < gaps["races"] < 1.3
    assert 1 < gaps["sums"] < 1.3
    assert 1 < gaps["ages"] < 2.2
    assert gaps["middle"] is None
    assert "times the smallest error" in GAP


def test_a_number_of_distinct_keys_states_no_gap():
    columns = {"race": {"keys": ["a", "b", "c", "d"]}}
    query = {"name": "kinds", "measure": "distinct", "column": "race", "share": 1}
    plan = plan_of(columns, [query], "1/1000", neighboring="add-remove")
    (error,) = errors(plan)
    assert error.standard_error > 2 * 10
    assert error.gap is None
