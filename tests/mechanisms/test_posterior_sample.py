"""Posterior samples: quadrature of real posteriors finds no attack above the curve."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny

GRID = np.linspace(-12, 12, 6001)
EPSILONS = (0.0, 0.2, 0.5, 1.0, 2.0)
QUADRATURE = 4e-6  # step^2 / 8 times the largest bend of p - e^eps q, below 2, where it crosses 0


def law(potential):
    """The probabilities of the grid's points."""
    weight = np.exp(-(potential - potential.min()))
    return weight / weight.sum()


def attained(p, q, epsilon):
    """The delta that the best test attains, in the worse order."""
    factor = math.exp(epsilon)
    return max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum())


def holds(f, p, q):
    for epsilon in EPSILONS:
        assert attained(p, q, epsilon) <= f.delta(epsilon=epsilon).upper + QUADRATURE


def sample(**more):
    return ny.PosteriorSample(**{"lipschitz": 1, "convexity": 4, **more})


def test_gaussian_posteriors_attain_the_curve():
    tv = float(mpmath.erf(mpmath.sqrt(mpmath.mpf(1) / 32)))
    f = ny.PosteriorSample(lipschitz=0.5, convexity=1).tradeoff()
    assert f.advantage().upper == pytest.approx(tv, abs=1e-13)
    p, q = law(GRID**2 / 2), law(GRID**2 / 2 - 0.5 * GRID)
    assert attained(p, q, 0) == pytest.approx(tv, abs=1e-5)
    holds(f, p, q)


@settings(max_examples=40)
@given(
    convexity=st.floats(0.3, 3),
    lipschitz=st.floats(0.1, 2),
    place=st.floats(-2, 2),
    kind=st.sampled_from(["line", "absolute", "log cosh", "two", "bend"]),
    rest=st.sampled_from(["none", "quartic", "hinge", "half line"]),
)
def test_no_attack_on_a_log_concave_posterior_beats_the_curve(
    convexity, lipschitz, place, kind, rest
):
    x = GRID - place
    difference = (
        lipschitz
        * {
            "line": GRID,
            "absolute": np.abs(x),
            "log cosh": np.logaddexp(x, -x),
            "two": (np.abs(x) + np.abs(x - 1)) / 2,
            "bend": -np.abs(x),
        }[kind]
    )
    more = {
        "none": 0 * GRID,
        "quartic": GRID**4,
        "hinge": 3 * np.maximum(0, GRID - 0.5),
        "half line": np.where(GRID < -0.2, 1e4, 0.0),
    }[rest]
    base = convexity * GRID**2 / 2 + more
    f = ny.PosteriorSample(lipschitz=lipschitz, convexity=convexity).tradeoff()
    holds(f, law(base), law(base + difference))


def test_a_replaced_logistic_term_is_below_the_curve():
    """A check value: the prior's TV is 0.17721 and the bound 0.31084."""
    p = law(GRID**2 / 2)
    q = law(GRID**2 / 2 + 0.8 * np.log(np.cosh(GRID - 0.5)))
    f = ny.PosteriorSample(lipschitz=0.8, convexity=1).tradeoff()
    assert attained(p, q, 0) < f.advantage().upper == pytest.approx(0.31084, abs=1e-5)


@settings(max_examples=40)
@given(
    lipschitz=st.sampled_from([0.3, 1.0, 2.0]),
    distance=st.sampled_from([1e-6, 1e-3, 0.02, 0.1]),
    edges=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_no_chain_within_its_distance_beats_the_curve(lipschitz, distance, edges):
    chain = ny.PosteriorSample(
        lipschitz=lipschitz, convexity=1, exact=False, total_variation=distance
    )
    p, q = law(GRID**2 / 2), law((GRID - lipschitz) ** 2 / 2)
    moved = []
    for weight, edge in zip((p, q), edges, strict=True):
        new = weight.copy()
        left, budget = distance, 0.0
        order = range(len(GRID)) if edge % 2 else range(len(GRID) - 1, -1, -1)
        for i in order:
            take = min(left, new[i])
            new[i] -= take
            left, budget = left - take, budget + take
        # To where the other has nearly none, or to one point.
        new[{0: 0, 1: -1, 2: len(GRID) // 2, 3: len(GRID) // 3}[edge]] += budget
        moved.append(new)
        assert np.abs(new - weight).sum() / 2 <= distance + 1e-12
    holds(chain.tradeoff(), *moved)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("v", [1e-12, 1e-6, 1e-3, 0.02])
def test_the_curve_of_a_chain_is_below_the_best_proven_one(mu, v):
    f = ny.PosteriorSample(lipschitz=mu, convexity=1, exact=False, total_variation=v).tradeoff()
    exact = ny.gdp(mu)
    with mpmath.workdps(40):
        z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(v))
        flat = mpmath.mpf(v) + mpmath.ncdf(mu - z)
        top = float(mu * z - mu * mu / 2)
    for epsilon in (0.0, 0.3 * top, 0.9 * top, top):
        best = exact.delta(epsilon=epsilon).lower + (1 + math.exp(epsilon)) * v
        assert f.delta(epsilon=epsilon).upper >= best * (1 - 1e-9)
    assert f.delta(epsilon=top + 50).upper == pytest.approx(float(flat), rel=1e-6)
    assert f.delta(epsilon=top + 50).upper >= float(flat)


@settings(max_examples=30)
@given(
    lipschitz=st.sampled_from([0.3, 1.0]),
    distance=st.sampled_from([0.05, 0.4]),
    sigma=st.sampled_from([0.5, 1.5]),
    wave=st.sampled_from([0.0, 1.0, 4.0, 20.0]),
)
def test_no_chain_within_a_shift_beats_the_curve_with_noise(lipschitz, distance, sigma, wave):
    chain = ny.PosteriorSample(
        lipschitz=lipschitz, convexity=1, exact=False, wasserstein=distance, sigma=sigma
    )
    fine = GRID[::8]
    noise = np.exp(-((fine[:, None] - fine[None, :]) ** 2) / (2 * sigma**2))
    assert np.allclose(noise, noise.T)
    densities = []
    for center, sign in ((0.0, -1.0), (lipschitz, 1.0)):
        weight = np.exp(-((fine - center) ** 2) / 2)
        weight /= weight.sum()
        places = fine + sign * distance * (np.cos(wave * fine) if wave else 1)
        out = np.exp(-((fine[:, None] - places[None, :]) ** 2) / (2 * sigma**2)) @ weight
        densities.append(out / out.sum())
    holds(chain.tradeoff(), *densities)


def test_rho_json_and_composition():
    assert sample().rho() == Fraction(1, 8)
    assert float((sample() * 4).tradeoff().gdp()) == pytest.approx(1)
    chain = sample(exact=False, total_variation=1e-6)
    noisy = sample(exact=False, wasserstein=Fraction(1, 100), sigma=0.1)
    assert float(noisy.tradeoff().gdp()) == pytest.approx(0.7)
    assert noisy.rho() >= Fraction(49, 200)
    with pytest.raises(ValueError, match="no zCDP"):
        chain.rho()
    for mechanism in (sample(), chain, noisy):
        assert ny.Mechanism.from_json(mechanism.to_json()) == mechanism
        assert mechanism.neighboring == "any"
        assert mechanism.subsample(rate=0.1).tradeoff().delta(1).upper < 0.1
    with pytest.raises(ValueError, match="proven for"):
        sample().subsample(rate=0.1, neighboring="replace-one")
    assert chain.revealed_at_most() > 1e-6
    assert sample().revealed_at_most() == 0


def test_a_chain_of_which_nothing_is_hidden_has_power_one():
    chain = sample(lipschitz=30, convexity=1, exact=False, total_variation=1e-60)
    assert chain.tradeoff().power(level=0.05).upper == 1
    assert chain.tradeoff().delta(epsilon=5).upper == 1


def test_a_bounded_likelihood_is_an_exponential_mechanism():
    generator = np.random.default_rng(5)
    most = {"add-remove": 0.0, "replace-one": 0.0}
    for _ in range(400):
        prior = generator.dirichlet([1, 1, 1])
        old, new = generator.choice([0.0, 0.5], (2, 3))
        for relation in most:
            before = old if relation == "replace-one" else 0 * old
            p, q = (prior * np.exp(s) for s in (before, new))
            loss = np.log(p / p.sum()) - np.log(q / q.sum())
            most[relation] = max(most[relation], loss.max() - loss.min())
            f = ny.PosteriorSample.bounded(spread=0.5, neighboring=relation).tradeoff()
            assert attained(p / p.sum(), q / q.sum(), 0.1) <= f.delta(epsilon=0.1).upper + 1e-12
    assert most == pytest.approx({"add-remove": 0.5, "replace-one": 1.0})
    with pytest.raises(ValueError, match="neighboring"):
        ny.PosteriorSample.bounded(spread=1, neighboring="any")
    with pytest.raises(ValueError, match="spread"):
        ny.PosteriorSample.bounded(spread=-1, neighboring="add-remove")


def test_langevin_dynamics_is_noisy_gradient_descent():
    n, eta, temperature, moved, curvature, steps = 20, 0.3, 0.05, 2.0, 0.8, 7
    chain = ny.NoisyGradientDescent.langevin(
        n=n,
        steps=steps,
        step_size=eta,
        temperature=temperature,
        sensitivity=moved,
        strong_convexity=curvature,
        smoothness=1,
    )
    means, variance = [0.0, 0.0], 0.0
    for _ in range(steps):
        means = [
            (1 - eta * curvature) * w - eta * g for w, g in zip(means, (0, moved / n), strict=True)
        ]
        variance = (1 - eta * curvature) ** 2 * variance + 2 * eta * temperature
    mu = abs(means[1] - means[0]) / math.sqrt(variance)
    assert chain.tradeoff().gdp().upper == pytest.approx(mu, rel=1e-9)
    assert float(chain.sigma) ** 2 <= 2 * temperature / eta


def test_short_steps_reach_the_posterior_sample():
    n, moved, curvature = 50, 2, 0.5
    exact = ny.PosteriorSample(lipschitz=moved, convexity=n * curvature).tradeoff().gdp().upper
    for eta in (0.1, 0.01, 0.001):
        chain = ny.NoisyGradientDescent.langevin(
            n=n,
            steps=10**6,
            step_size=eta,
            temperature=Fraction(1, n),
            sensitivity=moved,
            strong_convexity=curvature,
            smoothness=1,
        )
        ratio = chain.tradeoff().gdp().upper / exact
        assert 1 - eta < ratio < 1
    with pytest.raises(ValueError, match="step_size"):
        ny.NoisyGradientDescent.langevin(
            n=1,
            steps=1,
            step_size=3,
            temperature=1,
            sensitivity=1,
            strong_convexity=0.5,
            smoothness=1,
        )
