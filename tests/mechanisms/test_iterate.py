"""The last iterate of noisy gradient descent."""

import json
import math
from fractions import Fraction
from itertools import pairwise, product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import neyman as ny
from neyman import NoisyCyclicGradientDescent, NoisyGradientDescent, NoisyStochasticGradientDescent


def contraction(step_size, strong_convexity, smoothness):
    terms = {"strong_convexity": strong_convexity, "smoothness": smoothness}
    chain = NoisyGradientDescent.langevin(
        n=9, steps=3, step_size=step_size, temperature=1, sensitivity=1, **terms
    )
    return chain.contraction


def mu(mechanism):
    return mechanism.tradeoff().gdp()


@pytest.mark.parametrize("c", [0.0, 0.3, 0.9, 0.9999])
@pytest.mark.parametrize("t", [1, 2, 7, 300])
def test_full_gradients_are_what_quadratic_losses_give(c, t):
    mp.mp.dps = 40
    s, c = mp.mpf(2) / 1000 / mp.mpf("0.1"), mp.mpf(str(c))
    shift = s * mp.fsum(c**k for k in range(t))
    deviation = mp.sqrt(mp.fsum(c ** (2 * k) for k in range(t)))
    result = mu(NoisyGradientDescent(1000, t, 0.1, 2, contraction=float(c)))
    assert result.lower <= float(shift / deviation) <= result.upper


@pytest.mark.parametrize(("batches", "epochs"), [(1, 4), (2, 3), (5, 20)])
@pytest.mark.parametrize("c", [0.0, 0.5, 0.99, 1.0])
def test_cyclic_batches_cover_every_place_of_the_record(batches, epochs, c):
    claimed = mu(NoisyCyclicGradientDescent(10 * batches, 10, epochs, 1.0, 5, contraction=c)).upper
    noise = math.sqrt(sum(c ** (2 * k) for k in range(batches * epochs)))
    for place in range(batches):  # steps after the record's batch in its last epoch
        shift = 0.5 * sum(c ** (place + batches * e) for e in range(epochs))
        assert shift / noise <= claimed * (1 + 1e-12)


@given(c=st.floats(0.0, 1 - 1e-9), batches=st.integers(1, 50), epochs=st.integers(1, 50))
def test_hiding_the_iterates_never_costs(c, batches, epochs):
    last = NoisyCyclicGradientDescent(7 * batches, 7, epochs, 0.5, 1.0, contraction=c)
    assert mu(last).lower <= mu(last.all_iterates()).upper
    more = NoisyCyclicGradientDescent(7 * batches, 7, epochs + 1, 0.5, 1.0, contraction=c)
    assert mu(last).lower <= mu(more).upper


def test_the_limit_of_no_contraction_is_continuous():
    near, one = (NoisyGradientDescent(100, 50, 1.0, 3, contraction=c) for c in (1 - 1e-10, 1))
    assert float(mu(near)) == pytest.approx(float(mu(one)), rel=1e-7)
    near, one = (
        NoisyCyclicGradientDescent(100, 20, 9, 1.0, 3, contraction=c) for c in (1 - 1e-10, 1)
    )
    assert float(mu(near)) == pytest.approx(float(mu(one)), rel=1e-6)
    assert float(mu(one)) == pytest.approx(3 / 20 * math.sqrt(1 + 8 / 5), rel=1e-12)


def test_a_constraint_set_stops_the_loss_from_growing():
    """In a set of diameter D the published curves hold once t, or E, reaches its threshold."""
    n, size, sigma, reach, far, eta = 1000, 50, 0.1, 2.0, 3.0, 0.05
    full = NoisyGradientDescent(n, 10**6, sigma, reach, diameter=far, step_size=eta)
    threshold = far * n / (eta * reach)
    total = 3 * reach * far / (eta * n) + (reach / n) ** 2 * math.ceil(threshold)
    assert float(mu(full)) == pytest.approx(math.sqrt(total) / sigma, rel=1e-12)
    short = NoisyGradientDescent(n, int(threshold) - 1, sigma, reach, diameter=far, step_size=eta)
    assert float(mu(short)) == pytest.approx(float(mu(short.all_iterates())), rel=1e-14)
    cyclic = NoisyCyclicGradientDescent(n, size, 10**6, sigma, reach, diameter=far, step_size=eta)
    batches = n // size
    total = (reach / size) ** 2 + 3 * reach * far / (eta * size * batches)
    total += reach**2 / (size**2 * batches) * math.ceil(far * size / (eta * reach))
    assert float(mu(cyclic)) == pytest.approx(math.sqrt(total) / sigma, rel=1e-12)


@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize(("c", "s"), [(0.3, 1.0), (0.05, 3.0), (0.8, 0.5)])
def test_stochastic_batches_cover_quadratic_losses(steps, c, s):
    p = 0.25
    claimed = NoisyStochasticGradientDescent(8, 2, steps, 1 / s, 2, contraction=c).tradeoff()
    noise = math.sqrt(sum(c ** (2 * k) for k in range(steps)))
    ways = list(product((0, 1), repeat=steps))
    chances = np.array([math.prod(p if b else 1 - p for b in way) for way in ways])
    shifts = np.array([sum(b * c ** (steps - 1 - k) for k, b in enumerate(way)) for way in ways])
    means = s * shifts / noise / 2

    def density(y, way):
        return chances @ np.exp(-((y - way * means) ** 2) / 2) / math.sqrt(math.tau)

    for epsilon in (0.0, 0.5, 2.0):
        t = math.exp(epsilon)
        result, _ = quad(
            lambda y, t=t: max(density(y, 1) - t * density(y, -1), 0.0), -12, 12, limit=200
        )
        assert result <= claimed.delta(epsilon).upper + 1e-9


def test_stochastic_batches_are_the_published_product():
    n, b, t, sigma, reach, c, delta = 1000, 50, 100_000, 0.1, 2.0, 0.99, 1e-5
    mechanism = NoisyStochasticGradientDescent(n, b, t, sigma, reach, contraction=c)
    s = reach / (b * sigma)

    def published(subset):
        gap = 2 * math.sqrt(2) * s * c**subset / (1 - c)
        steps = ny.Gaussian(1, 2 * s).subsample(size=b, population=n) * subset
        return float((ny.Gaussian(1, gap) + steps).tradeoff().epsilon(delta))

    result = float(mechanism.tradeoff().epsilon(delta))
    selection = max(count for _, count in mechanism.made_of().parts)
    assert result == pytest.approx(published(selection), rel=1e-9)
    assert result <= 1.003 * min(published(k) for k in range(450, 700, 10))
    assert result < 0.2 * float(mechanism.all_iterates().tradeoff().epsilon(delta))


@pytest.mark.parametrize("c", [0.5, 0.99, 1.0])
def test_few_stochastic_steps_are_the_composition_of_all_iterates(c):
    """No split of so few steps gains, as its gap alone costs more."""
    mechanism = NoisyStochasticGradientDescent(1000, 50, 3, 0.1, 2, contraction=c)
    assert mechanism.made_of() == mechanism.all_iterates()


@pytest.mark.parametrize(
    "instance",
    [
        NoisyGradientDescent(100, 5, 0.1, 2, contraction=0.5),
        NoisyCyclicGradientDescent(100, 10, 5, 0.1, 2, diameter=1, step_size=Fraction(1, 3)),
        NoisyStochasticGradientDescent(100, 10, 50, 0.1, 2, contraction=0.5),
    ],
)
def test_descriptions_can_be_written_down(instance):
    again = ny.Mechanism.from_json(instance.to_json())
    assert again == instance
    assert json.loads(instance.to_json())["n"] == 100
    assert float(instance.rho()) >= instance.tradeoff().zcdp().lower * (1 - 1e-12)


def test_the_contraction_of_a_step():
    assert contraction(0.05, 0.002, 1.0) == pytest.approx(0.9999)
    assert contraction(1.9, 0.002, 1.0) == pytest.approx(0.9962)
    assert contraction(2.0, 0.0, 1.0) == 1.0


@given(smoothness=st.floats(1e-3, 1e3), share=st.floats(1e-17, 1.0), part=st.floats(0.01, 1.0))
def test_a_contraction_is_never_rounded_down(smoothness, share, part):
    step, least = part * 2 / smoothness, share * smoothness
    result = contraction(step, least, smoothness)
    eta, ends = Fraction(repr(step)), (Fraction(repr(least)), Fraction(repr(smoothness)))
    exact = max(abs(1 - eta * end) for end in ends)
    assert min(exact, 1) <= Fraction(repr(result)) <= min(exact, 1) + Fraction(1, 2**52)


@pytest.mark.parametrize("digits", [10, 19, 30, 57, 60, 80])
def test_factors_next_to_one_lose_no_digits(digits):
    """With c = 1 - 10^-k nothing is below the formula in 300 digits, nor far above it."""
    mp.mp.dps = 300
    exact = 1 - Fraction(1, 10**digits)
    c = mp.mpf(exact.numerator) / exact.denominator
    for epochs in (2, 7):
        later = c ** (3 * (epochs - 1))
        total = 1 + c**4 * (1 - c**2) / (1 - c**3) ** 2 * (1 - later) / (1 + later)
        rho = 2 * NoisyCyclicGradientDescent(3, 1, epochs, 1, 1, contraction=exact).rho()
        assert 0 <= rho.numerator / mp.mpf(rho.denominator) - total < 1e-9


@pytest.mark.parametrize("digits", [18, 20])
@pytest.mark.parametrize("share", [Fraction(1, 3), Fraction(2, 3), Fraction(6, 7)])
def test_rho_is_rounded_up_next_to_a_factor_of_one(digits, share):
    c = 1 - (1 + share) / 10**digits
    for t in (2, 5):
        exact = (1 - c**t) * (1 + c) / ((1 + c**t) * (1 - c)) / 2
        rho = NoisyGradientDescent(1, t, 1, 1, contraction=c).rho()
        assert exact <= rho <= exact * (1 + Fraction(1, 10**48))
        later = c ** (3 * (t - 1))
        exact = 1 + c**4 * (1 - c**2) / (1 - c**3) ** 2 * (1 - later) / (1 + later)
        rho = 2 * NoisyCyclicGradientDescent(3, 1, t, 1, 1, contraction=c).rho()
        assert exact <= rho <= exact * (1 + Fraction(1, 10**48))


@pytest.mark.parametrize("cyclic", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
def test_no_walk_in_an_interval_tells_more(cyclic, share):
    noise, cells, every = 0.6 * share, 300, 3 if cyclic else 1
    edges = [k / cells for k in range(cells + 1)]
    places = np.array([0.0, *((a + b) / 2 for a, b in pairwise(edges)), 1.0])

    def step(shift):
        below = norm.cdf((np.array(edges) - (places + shift)[:, None]) / noise)
        return np.hstack([below[:, :1], np.diff(below, axis=1), 1 - below[:, -1:]])

    laws = [np.eye(cells + 2)[cells // 2]] * 2
    steps = [(step(s * share / 2), step(0.0)) for s in (1, -1)]
    for t in range(1, 31):
        laws = [p @ s[t % every != 0] for p, s in zip(laws, steps, strict=True)]
        if t % every:
            continue
        mechanism = (
            NoisyCyclicGradientDescent(3, 1, t // 3, noise, share, diameter=1, step_size=1)
            if cyclic
            else NoisyGradientDescent(1, t, noise, share, diameter=1, step_size=1)
        )
        for epsilon in (0.0, 0.5, 2.0):
            p, q = laws
            result = max(
                float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p))
            )
            assert result <= mechanism.tradeoff().delta(epsilon).upper + 1e-12


def test_parameters_at_the_ends_are_answered_or_refused_by_name():
    far = NoisyGradientDescent(10, 10**6, 1, 1, diameter=1e300, step_size=1e-300)
    assert far.rho() == pytest.approx(5000)
    with pytest.raises(ValueError, match="sigma"):
        NoisyStochasticGradientDescent(10, 5, 3, 1e-200, 1, contraction=0.5).tradeoff()
