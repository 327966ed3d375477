"""jax_privacy 2 with our accountant and our noise: real configurations, and a real run."""

from __future__ import annotations

import copy
import doctest
import math
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from jax_privacy.accounting import (
    DpParams,
    DpsgdTrainingAccountant,
    DpsgdTrainingUserLevelAccountant,
    PldAccountantConfig,
    SamplingMethod,
    SingleReleaseTrainingAccountant,
    calibrate_noise_multiplier,
)
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
from scipy import stats

import neyman as ny
from neyman.accounting import NeymanAccountant
from neyman.accounting.integrations import jax_privacy
from neyman.accounting.integrations.jax_privacy import (
    NeymanAccountantConfig,
    exact_gaussian_privatizer,
    noise_variance,
)

ROOT = Path(__file__).parents[2]
FIXED = SamplingMethod.FIXED_BATCH_SIZE
RECORDS, BATCH, DELTA = 60_000, 256, 1e-5


def params(**settings):
    return DpParams(
        noise_multipliers=settings.pop("noise", 1.0),
        num_samples=RECORDS,
        delta=DELTA,
        batch_size=BATCH,
        **settings,
    )


RUNS = {
    "poisson": (DpsgdTrainingAccountant, params()),
    "truncated": (DpsgdTrainingAccountant, params(truncated_batch_size=300)),
    "fixed": (DpsgdTrainingAccountant, params(sampling_method=FIXED)),
    "cyclic": (DpsgdTrainingAccountant, params(cycle_length=4)),
    "users": (DpsgdTrainingUserLevelAccountant, params(noise=4.0, examples_per_user=2)),
    "users, fixed": (
        DpsgdTrainingUserLevelAccountant,
        params(noise=4.0, examples_per_user=2, sampling_method=FIXED),
    ),
    "one release": (SingleReleaseTrainingAccountant, params()),
}


@pytest.mark.parametrize("name", RUNS)
def test_each_event_of_jax_privacy_has_a_bound_next_to_its_own(name):
    kind, run = RUNS[name]
    steps = 1_000 if name == "truncated" else 10
    ours = kind(dp_accountant_config=NeymanAccountantConfig()).compute_epsilon(steps, run)
    theirs = kind(dp_accountant_config=PldAccountantConfig()).compute_epsilon(steps, run)
    assert theirs * 0.997 <= ours <= theirs


def test_schedules_send_rates_as_arrays_and_get_the_bound_of_plain_rates():
    run = params(noise=[(0, 1.0), (7, 0.8)], batch_size_scale_schedule={5: 2})
    sent = DpsgdTrainingAccountant(dp_accountant_config=NeymanAccountantConfig())
    plain = NeymanAccountant()
    for count, noise, batch in ((5, 1.0, BATCH), (2, 1.0, 2 * BATCH), (3, 0.8, 2 * BATCH)):
        rate = float(np.float32(batch / RECORDS)) if batch > BATCH else batch / RECORDS
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        plain.compose(event, count)
    assert sent.compute_epsilon(10, run) == plain.get_epsilon(DELTA)
    truncated = params(truncated_batch_size=300, batch_size_scale_schedule={500: 1})
    assert sent.compute_epsilon(1_000, truncated) == pytest.approx(2.53169688, abs=1e-5)


@pytest.mark.parametrize(
    ("run", "epsilon"),
    [
        ((DpsgdTrainingAccountant, params(truncated_batch_size=300)), 2.53169688),
        ((DpsgdTrainingUserLevelAccountant, params(examples_per_user=4)), 3.37500375),
    ],
)
def test_a_thousand_steps_have_the_bound_of_the_mechanism_that_is_asked_directly(run, epsilon):
    """jax_privacy's own accountant returns 2.5375 and 3.3750."""
    kind, settings = run
    ours = kind(dp_accountant_config=NeymanAccountantConfig()).compute_epsilon(1_000, settings)
    assert ours == pytest.approx(epsilon, abs=1e-8)


def test_its_calibration_asks_our_accountant():
    accountant = DpsgdTrainingAccountant(dp_accountant_config=NeymanAccountantConfig())
    noise = calibrate_noise_multiplier(
        target_epsilon=1.0,
        accountant=accountant,
        batch_sizes=BATCH,
        num_updates=100,
        num_samples=RECORDS,
        target_delta=DELTA,
        truncated_batch_size=300,
        tol=1e-3,
    )
    spent = [
        accountant.compute_epsilon(100, params(noise=sigma, truncated_batch_size=300))
        for sigma in (noise, noise - 2e-3)
    ]
    assert spent[0] <= 1 < spent[1]


def test_its_execution_plan_takes_our_accountant():
    accountant = NeymanAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    config = BandMFExecutionPlanConfig(
        strategy=np.array([1.0, 0.5]),
        iterations=20,
        epsilon=2.0,
        delta=DELTA,
        sampling_prob=0.1,
        accountant=accountant,
    )
    spent = copy.deepcopy(accountant).compose(config.plan.dp_event).get_epsilon(DELTA)
    assert 1.9 < spent <= 2
    assert accountant.get_epsilon(DELTA) == 0


def test_our_accountant_has_no_distribution_of_the_class_that_jax_privacy_asks_for():
    accountant = NeymanAccountantConfig().create_accountant()
    assert isinstance(accountant, PLDAccountant)
    assert accountant.neighboring_relation is dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    with pytest.raises(AttributeError, match="no _pld"):
        _ = accountant._pld
    assert doctest.testmod(jax_privacy).failed == 0


def privatized(total, **settings):
    settings = {"noise_multiplier": 2.0, "sensitivity": 1.0, "grid": 1 << 10} | settings
    privatizer = exact_gaussian_privatizer(**settings)
    state = privatizer.init(total)
    return jax.jit(lambda given: privatizer.update(given, state)[0])


@pytest.mark.parametrize("moved", [1.0, 0.75])
def test_noise_has_exactly_the_rounded_law(moved):
    """Chi-square of 40 cells with exact probabilities; a false alarm in 10^9 runs."""
    size, grid = 1 << 16, 1 << 10
    noisy = np.asarray(privatized(jnp.zeros(size), sensitivity=moved, grid=grid)(jnp.zeros(size)))
    unit = 2.0 ** math.floor(math.log2(moved / grid))
    units = noisy / unit
    assert (units == np.rint(units)).all()
    sigma = 2.0 * (moved / unit + math.ceil(math.sqrt(size)))  # one unit more for each rounding
    assert noise_variance(Fraction(2), Fraction(moved / unit), size) == Fraction(sigma) ** 2
    edges = np.rint(stats.norm.ppf(np.arange(1, 40) / 40) * sigma) + 0.5
    expected = size * np.diff(stats.norm.cdf(edges / sigma), prepend=0, append=1)
    counts = np.bincount(np.searchsorted(edges, units), minlength=40)
    assert stats.chisquare(counts, expected).pvalue > 1e-9


def test_a_compiled_step_never_draws_the_same_noise_twice():
    total = jnp.zeros(64)
    step = privatized(total)
    privatizer = exact_gaussian_privatizer(noise_multiplier=1.0, sensitivity=1.0)

    @jax.jit
    def several(given):
        first, state = privatizer.update(given, privatizer.init(given))
        second, state = privatizer.update(given, state)
        _, more = jax.lax.scan(
            lambda state, _: privatizer.update(given, state)[::-1], state, length=8
        )
        return jnp.concatenate([jnp.stack([first, second]), more])

    draws = np.concatenate([[step(total), step(total)], several(total), several(total)])
    assert len(np.unique(draws, axis=0)) == 22


def test_noise_that_a_step_does_not_use_is_drawn_all_the_same(monkeypatch):
    calls = []
    draw = jax_privacy.rounded_gaussian
    monkeypatch.setattr(
        jax_privacy, "rounded_gaussian", lambda *asked: calls.append(asked) or draw(*asked)
    )
    privatizer = exact_gaussian_privatizer(noise_multiplier=1.0, sensitivity=1.0)

    @jax.jit
    def unused(given):
        privatizer.update(given, privatizer.init(given))
        return given

    for _ in range(3):
        jax.block_until_ready(unused(jnp.zeros(4)))
    jax.effects_barrier()
    assert len(calls) == 3


def test_transformations_that_would_repeat_or_skip_the_noise_are_refused():
    privatizer = exact_gaussian_privatizer(noise_multiplier=1.0, sensitivity=1.0)

    def first(given):
        return privatizer.update(given, privatizer.init(given))[0][0]

    with pytest.raises(ValueError, match="vmap"):
        jax.vmap(first)(jnp.zeros((3, 4)))
    with pytest.raises(ValueError, match="JVP"):
        jax.grad(first)(jnp.zeros(4))


def test_sums_keep_their_shapes_and_types_and_what_is_not_finite_counts_as_zero():
    total = {
        "a": jnp.full((2, 3), 1e6),
        "b": jnp.array(math.nan, jnp.bfloat16),
        "c": jnp.array([math.inf, -math.inf]),
    }
    noisy = privatized(total)(total)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), noisy) == jax.tree.map(
        lambda x: (x.shape, x.dtype), total
    )
    flat = np.concatenate([np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(noisy)])
    assert np.isfinite(flat).all()
    assert np.abs(flat[:6] - 1e6).max() < 50
    assert np.abs(flat[6:]).max() < 50


def test_a_sum_that_overflows_in_units_is_clipped_and_not_dropped():
    with jax.enable_x64(True):
        total = jnp.array([1e15, 1e19, -1e19])
        noisy = np.asarray(privatized(total, sensitivity=1e-290)(total))
    unit = 2.0 ** math.floor(math.log2(1e-290 / 1024))
    assert (np.abs(noisy / unit) > 2.0**51).all()
    assert (np.sign(noisy) == [1, 1, -1]).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": 1e300},
        {"sensitivity": math.inf},
        {"sensitivity": 1e-320},
        {"sensitivity": -1.0},
        {"grid": 0},
        {"grid": 1 << 40},
    ],
)
def test_arguments_out_of_range_are_named(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"^{name} = "):
        privatized(jnp.zeros(2), **wrong)(jnp.zeros(2))


def test_several_devices_are_refused():
    module = "neyman.accounting.integrations.jax_privacy"
    code = f"import {module} as m; m.exact_gaussian_privatizer(noise_multiplier=1, sensitivity=1)"
    several = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=several, check=False, capture_output=True, text=True
    )
    assert "JAX sees 2 devices" in run.stderr


def test_the_example_trains_with_jax_privacy_and_prints_our_epsilon():
    run = [sys.executable, ROOT / "examples" / "jax_privacy_accounting.py"]
    printed = subprocess.run(run, check=True, timeout=300, capture_output=True, text=True).stdout
    epsilon, accuracy = map(
        float, re.findall(r"epsilon <= ([\d.]+).*accuracy ([\d.]+)", printed)[0]
    )
    mechanism = ny.DPSGD(n=2_000, batch=200, sigma=2, epochs=10)
    assert epsilon == pytest.approx(mechanism.tradeoff().epsilon(1e-5).upper, abs=1e-3)
    assert accuracy > 0.8
