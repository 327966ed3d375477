"""The comparison of private regressions with diffprivlib."""

from __future__ import annotations

import json
import math

import pytest
from scipy.stats import binom

from reproductions.regression.compare import (
    BUDGETS,
    EPSILONS,
    RESULTS,
    losses_of_a_pair,
    tasks,
    without_privacy,
)
from reproductions.regression.coverage import CASES, COVERAGE, coverage


def test_the_other_library_gives_no_noise_to_a_square_whose_lower_bound_is_0():
    assert math.isinf(losses_of_a_pair((0, 1), (0, 1))["total"])


def test_the_largest_loss_of_a_pair_agrees_with_a_grid_of_records():
    for x_bounds, y_bounds in (((18, 42.2), (25, 346)), ((-1, 1), (-1, 1)), ((-3, 1), (0, 2))):
        (a, b), (c, d) = x_bounds, y_bounds
        grid = [
            (a + (b - a) * i / 8, c + (d - c) * j / 8) for i in range(9) for j in range(9)
        ]  # fmt: skip
        ends = [u * v for u in x_bounds for v in y_bounds]
        scales = max(c * c, d * d), max(ends) - min(ends), a * a
        worst = max(
            abs(y * y - v * v) / scales[0]
            + abs(x * y - u * v) / scales[1]
            + abs(x * x - u * u) / scales[2]
            for x, y in grid
            for u, v in grid
        )
        assert losses_of_a_pair(x_bounds, y_bounds)["total"] == pytest.approx(worst / 3)
        assert (worst / 3 > 1) == (b > abs(a))


def test_the_file_has_each_task_budget_and_epsilon_and_the_score_without_privacy():
    results = json.loads(RESULTS.read_text("utf-8"))
    rows = {(r["task"], r["penalty"], r["epsilon"], r["budget"]): r for r in results["rows"]}
    assert len(rows) == len(results["rows"])
    assert results["runs"] >= 20
    for task in tasks():
        for penalty in {r["penalty"] for r in results["rows"] if r["task"] == task.name}:
            best = without_privacy(task, penalty)
            for epsilon in EPSILONS:
                for budget in BUDGETS:
                    row = rows[task.name, penalty, epsilon, budget]
                    assert row["without_privacy"] == pytest.approx(best, abs=1e-3)
                    assert row["tenth"] <= row["median"]
                    if task.model == "linear":
                        assert row["median"] <= best + 1e-9


def test_the_measured_coverage_refutes_no_interval():
    """At 95%, with a false alarm in 1e-6 for each case; the file has every case."""
    results = json.loads(COVERAGE.read_text("utf-8"))
    assert [(r["n"], r["size"], r["mu"], r["radius"]) for r in results["rows"]] == list(CASES)
    for row in results["rows"]:
        assert row["covers"] >= binom.ppf(1e-6, row["finite"], 0.95)


def test_a_simulation_of_few_runs_covers():
    row = coverage(1_500, 1, 1.0, 3.0, 20, 1)
    assert row["covers"] >= row["finite"] - 8
    assert row["finite"] > 10
