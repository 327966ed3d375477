"""The accountant for other loops, without their libraries: a sample of `make test-torch`."""

import math
from types import SimpleNamespace

import pytest

import neyman as ny
from neyman.accounting import check_model
from neyman.accounting.integrations.step_accountant import StepAccountant


def history(*steps):
    accountant = StepAccountant()
    accountant.load_state_dict({"history": list(steps), "mechanism": "rdp"})
    return accountant


def test_steps_are_counted_and_equal_ones_are_merged():
    accountant = StepAccountant()
    for sigma in (1.0, 1.0, 0.8, 1.0):
        accountant.step(noise_multiplier=sigma, sample_rate=0.01)
    assert len(accountant) == 4
    assert accountant.history == [(1.0, 0.01, 2), (0.8, 0.01, 1), (1.0, 0.01, 1)]


def test_changing_noise_and_rates_are_one_composition_and_not_a_sum_of_epsilons():
    accountant = history((1.0, 0.01, 200), (0.8, 0.02, 100))
    run_of_both = (
        ny.Gaussian(1).subsample(rate=0.01) * 200 + ny.Gaussian(0.8).subsample(rate=0.02) * 100
    )
    expected = run_of_both.tradeoff().epsilon(1e-5).upper
    assert accountant.get_epsilon(delta=1e-5) == pytest.approx(expected, rel=1e-9)
    apart = sum(history(s).get_epsilon(delta=1e-5) for s in accountant.history)
    assert expected < 0.85 * apart


def test_the_order_of_steps_is_of_no_matter_and_questions_change_nothing():
    one = history((1.0, 0.01, 200), (0.8, 0.02, 100))
    other = history((0.8, 0.02, 50), (1.0, 0.01, 200), (0.8, 0.02, 50))
    assert one.get_epsilon(delta=1e-5) == other.get_epsilon(delta=1e-5)
    assert one.get_epsilon(delta=1e-5, alphas=[2]) == one.get_epsilon(delta=1e-5, eps_error=0.1)
    assert len(one) == len(other) == 300


def test_states_are_saved_and_those_of_other_accountants_are_loaded():
    accountant = history((1.0, 0.01, 20))
    state = accountant.state_dict()
    assert state == {"history": [(1.0, 0.01, 20)], "mechanism": "neyman"}
    again = StepAccountant()
    again.load_state_dict(state)
    again.step(noise_multiplier=1.0, sample_rate=0.01)
    assert (len(accountant), len(again)) == (20, 21)
    for damaged, match in (
        ({}, "history"),
        ({"history": []}, "mechanism"),
        ({"history": [], "mechanism": "other"}, "'other'"),
        ({"history": [(1.0, 2.0, 1)], "mechanism": "prv"}, "sample_rate"),
        ({"history": [(-1.0, 0.5, 1)], "mechanism": "prv"}, "noise_multiplier"),
    ):
        with pytest.raises(ValueError, match=match):
            again.load_state_dict(damaged)


def test_no_steps_reveal_nothing_and_no_noise_reveals_everything():
    accountant = StepAccountant()
    assert accountant.get_epsilon(delta=1e-5) == 0
    accountant.step(noise_multiplier=0, sample_rate=0)
    assert accountant.get_epsilon(delta=1e-5) == 0
    accountant.step(noise_multiplier=0, sample_rate=0.5)
    assert accountant.get_epsilon(delta=1e-5) == math.inf


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"),
    [(0.3, 0.01, 1000), (0.5, 0.2, 10), (1.0, 0.2, 500), (20.0, 1.0, 10), (0.7, 1e-6, 10**6)],
)
def test_settings_in_which_a_grid_fails_are_answered(sigma, rate, steps):
    """Large and small epsilons, of the kind that opacus#591, #601 and #604 are about."""
    epsilon = history((sigma, rate, steps)).get_epsilon(delta=1e-5)
    curve = (ny.Gaussian(sigma).subsample(rate=rate) * steps).tradeoff()
    assert 0 < epsilon < math.inf
    assert curve.delta(epsilon).lower <= 1e-5
    assert curve.delta(epsilon * 0.99).upper > 1e-5


class Optimizer:
    noise_multiplier = 1.5
    accumulated_iterations = 1


def test_a_step_is_reported_by_the_hook_and_one_of_several_samples_is_refused():
    accountant = StepAccountant()
    hook = accountant.get_optimizer_hook_fn(0.25)
    hook(Optimizer())
    assert accountant.history == [(1.5, 0.25, 1)]
    several = Optimizer()
    several.accumulated_iterations = 2
    with pytest.raises(ValueError, match="adds up 2 Poisson samples"):
        hook(several)
    assert len(accountant) == 1


def test_the_curve_is_that_of_the_receipt_without_steps_and_without_noise():
    assert StepAccountant().tradeoff().power(0.05).upper == pytest.approx(0.05)
    assert history((0.0, 0.25, 1), (1.0, 0.25, 1)).tradeoff().power(0.05).upper == 1
    assert history((0.0, 0.0, 1)).tradeoff().power(0.05).upper == pytest.approx(0.05)
    accountant = StepAccountant()
    accountant.get_optimizer_hook_fn(0.25).draws = SimpleNamespace(unaccounted=3)
    for answer in (StepAccountant.tradeoff, lambda a: a.get_epsilon(1e-5)):
        with pytest.raises(ValueError, match="3"):
            answer(accountant)


def test_only_steps_of_an_optimizer_without_a_check_get_no_answer():
    accountant = history((1.5, 0.25, 3))
    accountant.step(noise_multiplier=1.5, sample_rate=0.25)
    expected = accountant.get_epsilon(delta=1e-5)
    accountant.get_optimizer_hook_fn(0.25)(Optimizer())
    again = StepAccountant()
    again.load_state_dict(accountant.state_dict())
    for unchecked in (accountant, again):
        for answer in (lambda a: a.get_epsilon(1e-5), StepAccountant.tradeoff):
            with pytest.raises(ValueError, match=r"check of their loader: 1\. .* check_batches"):
                answer(unchecked)
        unchecked.history = [(1.5, 0.25, 4)]
        assert unchecked.get_epsilon(delta=1e-5) == expected


def test_a_state_with_more_exact_steps_than_steps_makes_no_later_step_exact():
    accountant = StepAccountant()
    state = {"history": [(1.5, 0.25, 3)], "mechanism": accountant.mechanism(), "exact": 100}
    accountant.load_state_dict(state)
    assert accountant.exact
    accountant.step(noise_multiplier=1.5, sample_rate=0.25)
    assert not accountant.exact


class BatchNorm2d:
    training, running_mean = True, None


class GroupNorm:
    pass


class Model:
    def __init__(self, *layers):
        self.layers = layers

    def named_modules(self):
        return [("", self), *((f"layers.{i}", x) for i, x in enumerate(self.layers))]


def test_layers_that_mix_examples_are_refused_by_name():
    check_model(Model(GroupNorm()))
    with pytest.raises(ValueError, match=r"'layers\.1' is a BatchNorm2d: it mixes"):
        check_model(Model(GroupNorm(), BatchNorm2d()))
    still = BatchNorm2d()
    still.training = False  # of the batch all the same, as it has no other statistics
    with pytest.raises(ValueError, match="it mixes"):
        check_model(Model(still))
    still.running_mean = [0.0]
    check_model(Model(still))


def test_the_summary_has_the_safe_mu_next_to_epsilon():
    run = history((1.0, 0.01, 1000))
    curve = (ny.Gaussian(1).subsample(rate=0.01) * 1000).tradeoff()
    epsilon, mu, power = run.summary(delta=1e-6).splitlines()
    assert epsilon == f"epsilon: {curve.epsilon(1e-6):.4g} at delta 1e-06"
    assert mu == f"mu: {curve.gdp(levels=(1e-4, 0.5)).mu:.4g} at every level from 0.0001 to 0.5"
    assert power == f"power: {curve.power(1e-4):.4g} at level 0.0001"
    assert "mu: inf" in history((0.0, 0.01, 1)).summary(1e-5)
    assert history((1.0, 0.0, 5)).summary(1e-5).startswith("epsilon: 0 at delta")
