"""Private training: over its course, its last iterate, one that runs, and a page of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import neyman as ny
from neyman import NoisyCyclicGradientDescent
from neyman.accounting import approximations
from reproductions.dp_sgd import course as training
from reproductions.dp_sgd import last_iterate as iterates
from reproductions.dp_sgd import logistic_regression as logistic
from reproductions.dp_sgd import user_records
from reproductions.facts import PUBLISHED
from reproductions.federated import simulation as study

DOCS = Path(__file__).parents[2] / "docs"


# ---- over the course of training --------------------------------------------------------------


def test_the_settings_are_those_of_the_paper():
    assert [(m.sigma, m.epochs) for m in training.MNIST] == [
        (1.3, 15),
        (1.1, 60),
        (0.7, 45),
        (0.6, 62),
        (0.55, 68),
        (0.5, 100),
    ]
    assert {(m.n, m.batch, m.sampling) for m in training.MNIST} == {(60_000, 256, "poisson")}


@pytest.mark.parametrize("training_run", training.MNIST[:3])
def test_renyi_holds_and_the_truth_is_below_it(training_run):
    course = training.course(training_run, epochs=(1, 4, 15))
    for moment in course.moments:
        assert moment.exact.upper < moment.renyi.lower
        assert moment.exact.width < 1e-6
    ends = [m.exact.lower for m in course.moments]
    assert ends == sorted(ends)
    last = replace(training_run, epochs=15).tradeoff().epsilon(training.DELTA)
    assert course.moments[-1].exact == last


def test_renyi_epsilon_is_the_least_over_its_orders():
    step = ny.Gaussian(2)
    orders = (1.5, 2.0, 5.0, 9.0, 30.0)
    result = training.renyi_epsilon(step, orders)(40, 1e-6)
    by_hand = [
        40 * a / 8 + math.log1p(-1 / a) + (math.log(1e6) - math.log(a)) / (a - 1) for a in orders
    ]
    assert result.lower <= min(by_hand) <= result.upper


def test_the_limit_is_below_the_truth_where_few_large_losses_decide():
    total = training.WARNING
    assert (total.batch / total.n, total.sigma, total.steps) == (0.001, 0.5, 100)
    limit = approximations.normal(approximations.sampled_gaussian(0.5, 0.001, 100))
    limit = limit.epsilon(1e-5).value
    assert limit == pytest.approx(0.243, abs=5e-4)
    curve = total.tradeoff()
    assert curve.delta(2.0996).lower > 1e-5
    assert curve.delta(limit).lower > 1e-3


def test_only_poisson_samples_have_this_limit():
    with pytest.raises(ValueError, match="must be 'poisson'"):
        training.course(replace(training.MNIST[0], sampling="shuffled"))


def test_the_same_loop_keeps_its_noise():
    result = training.same_loop(training.MNIST[0])
    assert [m.noise(clip=3.0) for m in result.values()] == pytest.approx([3.9] * 5)
    assert {name: m.sampling for name, m in result.items()} == {name: name for name in result}


def test_the_longest_setting_is_told_at_each_of_its_hundred_epochs():
    moments = training.course(training.MNIST[-1]).moments
    assert len(moments) == 100
    assert all(moment.exact.upper <= moment.exact.lower * (1 + 1e-6) for moment in moments)


# ---- the last iterate -------------------------------------------------------------------------


def test_all_nine_printed_figures_are_ours():
    results = list(iterates.cells())
    facts = PUBLISHED[iterates.TABLE]
    columns = ("composition", "renyi", "f_dp")
    assert [c.printed for c in results] == [
        facts[name][i] for i in range(len(facts["epochs"])) for name in columns
    ]
    assert len(results) == 9
    assert all(c.agrees for c in results)


@pytest.mark.parametrize("c", [0.05, 0.5, 0.99, 0.9999])
@pytest.mark.parametrize(("batches", "epochs"), [(1, 1), (1, 5), (4, 1), (4, 30), (40, 200)])
def test_the_renyi_baseline_holds_because_it_is_above_the_gaussian_curve(c, batches, epochs):
    mechanism = NoisyCyclicGradientDescent(10 * batches, 10, epochs, 0.5, 2, contraction=c)
    rho = iterates.renyi_rho(mechanism)
    mu = mechanism.tradeoff().gdp()
    assert float(rho) >= mu.lower**2 / 2 * (1 - 1e-12)
    answer = iterates.accounted(mechanism)
    assert answer.f_dp.lower <= answer.renyi.upper
    assert answer.f_dp.lower <= answer.composition.upper * (1 + 1e-12)


@pytest.mark.parametrize("kind", [{"contraction": 1.0}, {"diameter": 1, "step_size": 0.1}])
def test_the_renyi_baseline_is_for_contractions(kind):
    with pytest.raises(ValueError, match="contraction"):
        iterates.renyi_rho(NoisyCyclicGradientDescent(100, 10, 5, 1, 1, **kind))


# ---- one that runs ----------------------------------------------------------------------------


def problem(n=60, d=5, regularisation=0.05):
    random = np.random.default_rng(3)
    x = logistic.within(random.standard_normal((n, d)), 1.0)
    return logistic.Problem(x, np.where(x[:, 0] > 0, 1, -1), 1.0, regularisation)


def test_rows_are_shortened_and_never_lengthened():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert np.allclose(logistic.within(rows, 1.0), [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])


def test_the_gradient_is_that_of_the_loss():
    p, w = problem(), np.linspace(-2, 2, 5)

    def loss(w):
        margins = p.labels * (p.features @ w)
        return float(np.mean(np.log1p(np.exp(-margins))) + p.regularisation / 2 * w @ w)

    slopes = [(loss(w + e) - loss(w - e)) / 2e-6 for e in 1e-6 * np.eye(5)]
    assert np.allclose(p.gradient(w), slopes, atol=1e-8)


@pytest.mark.parametrize("step_size", [0.5, 4.0, 6.0])
def test_steps_contract_as_promised(step_size):
    run = logistic.Training(problem(), 20, step_size, 0.1)
    assert run.worst_contraction(50, np.random.default_rng(5)) <= run.contraction * (1 + 1e-12)


def test_a_course_that_breaks_an_assumption_stops():
    """Rows that are longer than was said are refused, and so is a step that is too long."""
    good = problem()
    with pytest.raises(ValueError, match="above radius"):
        logistic.Problem(3 * good.features, good.labels, 1.0, 0.05)
    with pytest.raises(ValueError, match="labels"):
        logistic.Problem(good.features, good.labels * 2, 1.0, 0.05)
    with pytest.raises(ValueError, match="step_size"):
        _ = logistic.Training(good, 20, 10.0, 0.1).contraction


def test_the_description_is_of_the_descent_that_ran():
    run = logistic.Training(problem(), 20, 2.0, 0.1)
    product = run.described(7)
    assert (product.n, product.batch, product.epochs, product.sigma) == (60, 20, 7, 0.1)
    assert product.sensitivity == 2.0
    assert product.contraction == pytest.approx(0.9)
    still = logistic.Training(problem(), 20, 2.0, 1e-12)
    *_, before, last = still.iterates(400, np.random.default_rng(1))
    assert np.allclose(before, last, atol=1e-9)  # the cycle's fixed point
    shift = run.problem.gradient(last)
    assert np.linalg.norm(shift) < 0.1


# ---- users with several records ----------------------------------------------------------------


def test_the_page_on_users_is_what_its_code_writes():
    for name, text in user_records.pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text


def test_at_the_crossover_both_loops_have_the_same_epsilon_and_noise():
    users, examples, equal = user_records.crossover(4, 8)
    by_record = ny.DPSGD(80_000, 800, examples, 10, records_per_user=8)
    by_user = ny.DPSGD(10_000, 100, users, 10, records_per_user=8, user_sampling="users")
    assert by_record.steps == by_user.steps == user_records.STEPS
    for run in (by_record, by_user):
        assert run.tradeoff().epsilon(user_records.DELTA).upper == pytest.approx(4, rel=1e-5)
    clip = 1.5
    assert by_user.noise(clip=8 * equal * clip) == pytest.approx(by_record.noise(clip=clip))


# ---- the page ---------------------------------------------------------------------------------


def test_the_example_prints_what_the_page_says():
    pytest.importorskip("sklearn")
    page = (DOCS / "training.md").read_text(encoding="utf-8")
    run, held_out = logistic.digits()
    for m in logistic.course(run, held_out, np.random.default_rng(1)):
        line = f"| {m.epochs} | {m.accuracy:.3f} | {m.last.upper:.2f} | {m.all.upper:.2f} |"
        assert line in page
    assert run.described(1).n == 1500
    assert Fraction(run.step_size) == 4


# ---- federated training


OTHER_SUMS = 6  # test rows of 360 that another order of floating-point sums may move


@pytest.mark.needs("release")
def test_the_simulation_repeats_the_stored_counts():
    stored = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    assert set(stored) == set(study.ARMS)
    for arm, sigma in study.ARMS.items():
        right, rows = study.correct(sigma, 0)
        assert rows == stored[arm][0][1] == 360
        assert abs(right - stored[arm][0][0]) <= OTHER_SUMS
    means = [sum(right for right, _ in counts) / len(counts) for counts in stored.values()]
    assert means[0] > 0.9 * 360
    assert 0.8 * 360 < means[1] < means[0]
