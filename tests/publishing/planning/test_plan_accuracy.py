"""Errors that are told before any data: against plain sums, simulation, and what is published."""

import math
import tomllib
from fractions import Fraction

import numpy as np
import pytest

from mixed_plan import MIXED
from neyman.noise import discrete_gaussian
from neyman.publishing import Plan, errors
from neyman.publishing.planning.accuracy import guarantee_at, scale_for, table_named
from plans import SMALL, TOTALS
from seeded import Seeded

PLAN = Plan.from_dict(tomllib.loads(MIXED))
COUNT = {"name": "total", "measure": "count", "at": ["nation", "county"], "public": {"nation": 4}}
NATION = {"name": "nation total", "measure": "count", "at": ["nation"], "share": "1/2"}
PUBLIC = Plan.from_dict(TOTALS | {"query": [COUNT | {"share": "1/2"}, NATION]})
SUM = {"name": "pay", "measure": "sum", "column": "pay", "clip": "discover", "share": 1}
SEARCHED = Plan.from_dict(
    SMALL | {"columns": {"pay": {"integer": True}}, "query": [SUM], "noise": "rounded-gaussian"}
)
NOISE = {(e.query, e.level, e.measure): s for e, s in PLAN.calibrated()}
ERRORS = {error.name: error for error in errors(PLAN)}


def plain_error(sigma_squared):
    """The standard deviation of integer noise, by the sum that defines it."""
    weights = {k: math.exp(-k * k / (2 * float(sigma_squared))) for k in range(-400, 401)}
    return math.sqrt(sum(k * k * w for k, w in weights.items()) / sum(weights.values()))


@pytest.mark.parametrize("zcdp", ["1/10", "3", "40"])
def test_counts_have_the_error_of_their_noise(zcdp):
    plan = Plan.from_dict(tomllib.loads(MIXED) | {"budget": {"zcdp": zcdp}})
    fields = {error.name: error for error in errors(plan)}
    noise = {(e.query, e.level): s for e, s in plan.calibrated()}
    for name in ("total.state", "race.county"):
        sigma_squared = noise[tuple(name.split("."))]
        assert fields[name].standard_error == pytest.approx(plain_error(sigma_squared), rel=1e-9)
        weights = [math.exp(-k * k / (2 * float(sigma_squared))) for k in range(400)]
        total = 2 * sum(weights) - 1
        half = next(k for k in range(400) if (2 * sum(weights[: k + 1]) - 1) / total >= 0.9)
        assert fields[name].half_width == half


def test_sums_are_told_in_the_units_of_the_plan():
    sigma = math.sqrt(NOISE["pay", "state", "sum"])
    assert ERRORS["pay.state"].standard_error == pytest.approx(sigma / 100, rel=1e-12)


def test_means_scatter_as_told():
    """Of 4,000 drawn means at the clip's end the spread is the one told: false alarm below 1e-6."""
    rows, bits = 10_000, Seeded(5)
    fields = {n: error for n, error, _ in ERRORS["mean age.all"].by_rows}[rows]
    by_key = {
        part: discrete_gaussian(NOISE["mean age", "all", part], 4000, bits)
        for part in ("offset", "count")
    }
    means = 40 + (60 * rows + by_key["offset"]) / (rows + by_key["count"])
    # A sample standard deviation of 4,000 draws is within 6 / sqrt(8000) but for 2e-9.
    assert np.std(means) == pytest.approx(fields, rel=6 / math.sqrt(8000) + 0.01)


def test_quantiles_are_told_by_rank():
    """The largest spread of what decides a quantile, over all bins and levels, by simulation."""
    sigma_squared = NOISE["ages", "all", "count"]
    draws = discrete_gaussian(sigma_squared, 5 * 4000, Seeded(6)).reshape(4000, 5)
    reached = np.cumsum(draws, axis=1)
    spread = max(
        float(np.std(reached[:, j] - q * reached[:, -1])) for q in (0.25, 0.5) for j in range(5)
    )
    fields = {n: error for n, error, _ in ERRORS["ages.all"].by_rows}[1000]
    assert spread / 1000 == pytest.approx(fields, rel=6 / math.sqrt(8000))
    assert ERRORS["ages.all"].cells == 2  # two quantiles, of five noisy bins


@pytest.mark.parametrize(
    ("table", "error"), [("county total", 3), ("pay.state", 12.5), ("race", 1)]
)
def test_the_least_rho_with_a_wanted_error(table, error):
    """The error is met, and one part in 10^6 more noise would miss it."""
    scale = scale_for(PLAN, table, error)
    name = ".".join(table_named(PLAN, table))

    def table_error(at):
        return next(e for e in errors(PLAN, at) if e.name == name)

    assert table_error(scale).standard_error <= error
    assert table_error(scale * Fraction(1_000_001, 1_000_000)).standard_error > error
    known = {"county total": 2 / (2 / 8 * 9), "pay.state": 2 * 50_000**2 / (2 / 8 * 1250**2)}
    if table in known:
        assert float(1 / scale) == pytest.approx(known[table], rel=1e-6)
    at = scale_for(PLAN, table, 20, interval=True)
    assert (
        table_error(at).half_width
        <= 20
        < table_error(at * Fraction(1_000_001, 1_000_000)).half_width
    )


def test_the_least_rho_with_a_wanted_error_after_least_squares():
    scale = scale_for(PLAN, "total.county", 3, consistent=True)
    assert scale > scale_for(PLAN, "total.county", 3)
    result = next(e for e in errors(PLAN, scale) if e.name == "total.county")
    assert result.consistent[1] == pytest.approx(3, rel=1e-6)
    assert result.consistent[1] <= 3


def test_the_promise_is_that_of_the_mechanism():
    answer = guarantee_at(PLAN, Fraction(10))
    curve = PLAN.at_scale(Fraction(10)).tradeoff()
    assert answer["rho"] == pytest.approx(0.1)
    assert answer["epsilon"] == curve.epsilon(delta=1e-6).upper
    assert answer["power"] == curve.power(level=0.05).upper


def test_tables_are_named_as_one_says_them():
    for text in ("total.county", "county total", " county  total"):
        assert table_named(PLAN, text) == ("total", "county")
    assert table_named(PLAN, "race") == ("race", "county")
    assert table_named(PLAN, "mean age.all") == ("mean age", "all")
    with pytest.raises(ValueError, match=r"did you mean 'total\.county'"):
        table_named(PLAN, "total.conty")
    with pytest.raises(ValueError, match="no such table"):
        table_named(PLAN, "total")
    with pytest.raises(TypeError, match="must be a text"):
        table_named(PLAN, 5)
    with pytest.raises(ValueError, match=r"several tables, total\.nation and nation total\.nation"):
        table_named(PUBLIC, "nation total")


@pytest.mark.parametrize(("plan", "table", "error", "more", "words"), [
    (PLAN, "mean age", 1, {}, "how many rows"),
    (PLAN, "ages", 1, {}, "how many rows"),
    (PLAN, "race", 0, {}, "above 0"),
    (PLAN, "race", 1e30, {}, "give a smaller one"),
    (PLAN, "race", 1, {"interval": True, "consistent": True}, "not the half width"),
    (PUBLIC, "total.nation", 1, {}, "is declared and has no error"),
    (PUBLIC, "total.county", 1, {"consistent": True}, "is not made consistent"),
    (SEARCHED, "pay", 1, {}, "a noisy histogram leads to"),
])  # fmt: skip
def test_errors_that_cannot_be_wanted_are_refused(plan, table, error, more, words):
    with pytest.raises(ValueError, match=words):
        scale_for(plan, table, error, **more)
