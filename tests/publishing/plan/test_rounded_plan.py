"""Plans with rounded Gaussian noise: what they mean, draw, claim, and say about their errors."""

from __future__ import annotations

import json
import math
from fractions import Fraction as F

import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from neyman.noise import SecureBits
from neyman.publishing import PlanError, forms, noise_choice, noisy_part, standard_error, verify
from plans import SMALL, release

ROUNDED = SMALL | {"noise": "rounded-gaussian"}
MANY = SMALL | {
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 25, "id": "who"},
    "columns": {
        "race": {"keys": [f"race {i}" for i in range(40)]}, "pay": {"integer": True, "unknown": 0},
    },
    "query": [{
        "name": "pay", "measure": "sum", "column": "pay", "clip": [-4, 9], "by": ["race"],
        "share": 1,
    }],
}  # fmt: skip
"""A person in so many rows that their shifts are too many to list."""


def test_a_plan_that_names_no_kind_of_noise_means_what_it_meant():
    silent = ny.Plan.from_dict(SMALL)
    named = ny.Plan.from_dict(SMALL | {"noise": "discrete-gaussian"})
    assert silent == named
    assert silent.hash == named.hash
    assert "noise" not in silent.canonical()
    assert type(silent.mechanism()).__name__ == "DiscreteGaussian"
    rounded = ny.Plan.from_dict(ROUNDED)
    assert rounded.canonical()["noise"] == "rounded-gaussian"
    assert rounded.hash != silent.hash
    assert ny.Plan.from_dict(rounded.canonical()) == rounded
    assert rounded.mechanism() == ny.RoundedGaussian(sigma_squared=2, squared_norm=2)


def test_a_plan_from_its_sections_takes_a_kind_of_noise():
    plan = ny.Plan(
        name="small", dataset="people@1", table="people",
        unit=ny.Unit("person", neighboring="replace-one", rows=1),
        columns={"race": {"keys": ["white", "black"]}}, budget={"zcdp": "1/2"},
        queries=[{"name": "race", "measure": "count", "by": ["race"]}], noise="rounded-gaussian",
    )  # fmt: skip
    assert plan.hash == ny.Plan.from_dict(ROUNDED).hash


def test_an_unknown_kind_of_noise_is_refused_with_the_nearest_name():
    with pytest.raises(PlanError, match=r"noise = 'rounded gaussian': did you mean 'rounded-gaus"):
        ny.Plan.from_dict(SMALL | {"noise": "rounded gaussian"})


@pytest.mark.parametrize("budget", [{"gdp": "1/2"}, {"power": "1/4", "level": "1/20"}])
def test_shifts_that_are_too_many_to_list_meet_a_budget_of_a_curve(budget):
    with pytest.raises(PlanError, match="noise = 'rounded-gaussian'"):
        ny.Plan.from_dict(MANY | {"budget": budget})
    plan = ny.Plan.from_dict(MANY | {"budget": budget, "noise": "rounded-gaussian"})
    f = plan.mechanism().tradeoff()
    assert plan.admits(plan.mechanism())
    assert not plan.admits(plan.at_scale(plan.scale * (1 - F(1, 10**7))))
    if "gdp" in budget:
        assert 0.5 * (1 - 1e-8) < f.gdp().upper <= 0.5 + 1e-14
    else:
        assert 0.25 * (1 - 1e-7) < f.power(level=0.05).upper <= 0.25


def test_the_scale_of_one_moving_cell_uses_its_exact_curve():
    budget = {"power": "1/4", "level": "1/20"}
    one = SMALL | {"unit": {"protects": "person", "neighboring": "add-remove"}, "budget": budget}
    plan = ny.Plan.from_dict(one | {"noise": "rounded-gaussian"})
    assert not plan.target.admits(ny.Gaussian(math.sqrt(plan.scale / 2)))  # its sigma
    assert plan.target.admits(plan.mechanism())


def test_integer_shifts_of_the_norm_have_no_smaller_curve_than_is_claimed():
    plan = ny.Plan.from_dict(ROUNDED | {"budget": {"gdp": "1"}})
    sigma_squared = float(plan.calibrated()[0][1])
    k = np.arange(-30, 31)
    p = np.diff([math.erf(x / math.sqrt(2 * sigma_squared)) / 2 for x in np.arange(-31, 31) + 0.5])
    moved = np.interp(k - 1, k, p, left=0, right=0)
    both, other = np.multiply.outer(p, p).ravel(), np.multiply.outer(moved, moved).ravel()
    f = plan.mechanism().tradeoff()
    for epsilon in (0.0, 0.2, 0.5, 1.0, 3.0):
        delta = np.maximum(other - math.exp(epsilon) * both, 0).sum()
        assert f.delta(epsilon).lower - 1e-9 <= delta <= f.delta(epsilon).upper + 1e-9


def test_a_release_draws_from_the_rounded_law_and_verifies(tmp_path):
    """At sigma^2 = 1/20 one cell in 40 moves; of the discrete Gaussian it is one in 11,000."""
    keys = [f"k{i}" for i in range(4000)]
    plan = ny.Plan.from_dict(
        ROUNDED | {"columns": {"race": {"keys": keys}}, "budget": {"zcdp": "20"}}
    )
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=50)
    out = release(plan, pa.table({"race": keys}), ledger, tmp_path / "out")
    assert all(check.ok for check in verify(tmp_path / "out"))
    values = out.tables["race.all"]["value"].to_numpy()
    moved = math.erfc(0.5 / math.sqrt(2 / 20))
    assert abs(np.mean(values != 1) - moved) < 6 * math.sqrt(moved / 4000)
    (part,) = json.loads((tmp_path / "out" / "receipt.json").read_text())["mechanisms"]
    assert part["mechanism"]["type"] == "RoundedGaussian"
    assert part["standard_error"] == pytest.approx(math.sqrt(moved), rel=1e-6)


def test_a_receipt_whose_plan_names_another_kind_of_noise_is_refused(tmp_path):
    plan = ny.Plan.from_dict(ROUNDED)
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=50)
    release(plan, pa.table({"race": ["white"]}), ledger, tmp_path / "out")
    path = tmp_path / "out" / "receipt.json"
    receipt = json.loads(path.read_text())
    del receipt["plan"]["noise"]
    receipt["plan_hash"] = ny.Plan.from_dict(receipt["plan"]).hash
    path.write_text(json.dumps(receipt))
    failed = {check.name for check in verify(tmp_path / "out") if not check.ok}
    assert "mechanisms" in failed


def test_noise_of_a_scale_beyond_all_tables_is_drawn():
    """A sum that one person moves by 10^9, at a small budget."""
    plan = ny.Plan.from_dict(
        ROUNDED | {
            "most_rows": 1000, "columns": {"pay": {"decimals": 2, "unknown": 0}},
            "query": [{
                "name": "pay", "measure": "sum", "column": "pay", "clip": [0, 10**9], "share": 1,
            }],
        }
    )  # fmt: skip
    (form,) = forms(plan, plan.calibrated())
    sigma = math.sqrt(plan.calibrated()[0][1])

    class Zeros:
        def dense(self, start, stop):
            return np.zeros(stop - start, np.int64)

    draws = [
        noisy_part(form, {("pay", "all", "sum"): Zeros()}, range(1), SecureBits())["sum"][0]
        for _ in range(50)
    ]
    assert sigma > 10**10
    assert 0.5 < np.std(draws) / sigma < 1.6
    assert plan.mechanism().tradeoff().gdp().upper < 1.0001


@pytest.mark.parametrize(("content", "better"), [
    (SMALL, "discrete-gaussian"), (SMALL | {"budget": {"gdp": "2"}}, "rounded-gaussian"),
    (SMALL | {"budget": {"power": "1/4", "level": "1/20"}}, "discrete-gaussian"),
    (MANY | {"budget": {"epsilon": 1, "delta": "1e-6"}}, "rounded-gaussian"),
    (ROUNDED | {"budget": {"gdp": "2"}}, "rounded-gaussian"), (ROUNDED, "discrete-gaussian"),
    (MANY | {"budget": {"gdp": "1"}, "noise": "rounded-gaussian"}, "rounded-gaussian"),
])  # fmt: skip
def test_the_better_kind_of_noise_is_named(content, better):
    plan = ny.Plan.from_dict(content)
    choice = noise_choice(plan)
    assert choice.better == better
    assert (better in choice.text()) or choice.ratio is None
    assert choice.to_dict()["better"] == better
    if choice.ratio is not None:
        other = plan.changed(noise=choice.other)
        errors = [standard_error(p.calibrated()[0][1], rounded=p.rounded) for p in (plan, other)]
        assert choice.ratio == pytest.approx(errors[1] / errors[0], rel=1e-9)
