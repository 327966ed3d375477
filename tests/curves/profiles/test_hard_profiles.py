"""Questions that a third review found unanswered, or answered on the wrong side by a hair."""

import math
import tracemalloc

import numpy as np
import pytest

import neyman as ny
from neyman import Tradeoff
from neyman.accounting import from_pld
from neyman.curves import Composition, SubsampledGaussianLoss, select

G = ny.Gaussian


def test_the_largest_loss_of_an_added_record_is_rounded_up():
    """At the float below or at n times -log(1 - q) some delta is left, and is not called 0."""
    for mu, rate, count, epsilon in (
        (30.0, 1 / 401, 1000, 2.4968801985871987),
        (30.0, 1 / 401, 2, 0.004993760397174397),
    ):
        composition = Composition.of([(SubsampledGaussianLoss(mu, rate, False), count)])
        assert select(composition).log_delta(epsilon)[1] > -math.inf


def test_a_tiny_probabilistic_delta_is_not_called_zero():
    """delta = sup of 1 - f(a) where it exceeds e^epsilon a is above 0 for every Gaussian."""
    assert ny.Gaussian(1000).tradeoff().pbdp(10).upper > 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda: (G(0.30353).subsample(rate=1.8e-6) * 2).tradeoff().epsilon(1e-12),
        lambda: (G(0.1).subsample(rate=0.01) * 20).tradeoff().epsilon(1e-6),
        lambda: (G(8.2061).subsample(size=25, population=10**7) * 2).tradeoff().delta(1e-4),
        lambda: (ny.Laplace(0.02637).subsample(rate=0.574) * 2).tradeoff().epsilon(1e-5),
        lambda: (G(1).subsample(rate=0.1, neighboring="replace-one") * 10).tradeoff().renyi(1e6),
        lambda: (ny.Laplace(0.1).subsample(rate=0.01) * 10).tradeoff().renyi(1e10),
        lambda: (ny.GaussianMixture(0.5, (0, 1), (0.5, 0.5)) * 10).tradeoff().renyi(1e8),
        lambda: (G(0.001).subsample(rate=0.5) * 2).tradeoff().epsilon(1e-6),
        lambda: (G(0.01).subsample(rate=1e-3) * 3).tradeoff().delta(10.0),
        lambda: (G(1.0).subsample(rate=0.01) * 1000).tradeoff().renyi(1e12),
        lambda: (G(1).subsample(rate=0.01) * 100).tradeoff().epsilon(log_delta=-1e4),
        lambda: (G(1).subsample(rate=0.01) * 100).tradeoff().epsilon(log_delta=-1e300),
    ],
)
def test_far_and_few_is_answered_in_little_memory(ask):
    """Rare large losses, huge orders and tiny deltas give an interval and no memory error."""
    tracemalloc.start()
    try:
        bound = ask()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bound.lower <= bound.upper
    assert bound.upper > 0
    assert peak < 1e9


@pytest.mark.parametrize("delta", [0.042, 0.05, 0.0507, 0.3, 0.9, 0.999999])
def test_deltas_about_the_total_variation_give_epsilon_down_to_zero(delta):
    """Epsilon falls to 0 at the total variation and stays there."""
    f = (G(1).subsample(rate=0.01) * 100).tradeoff()
    epsilon = f.epsilon(delta)
    if delta >= f.advantage().upper:
        assert epsilon.lower == epsilon.upper == 0
    else:
        assert f.delta(epsilon.upper).upper <= delta * (1 + 1e-12)
        assert epsilon.lower == 0 or f.delta(epsilon.lower).lower >= delta * (1 - 1e-12)


def test_no_epsilon_is_enough_for_more_infinite_loss_than_delta():
    """Both ends say so."""
    epsilon = ny.approximate(1, 0.1).epsilon(0.01)
    assert epsilon.lower == epsilon.upper == math.inf


def test_products_of_ordered_pairs_stay_ordered():
    """One order of a pair is not both."""
    curve = ny.from_points([0.0, 0.2, 1.0], [0.7, 0.3, 0.0])
    assert (curve**1).power(0.3).upper == curve.power(0.3).upper
    assert (curve @ ny.perfect()).ordered is False
    assert (curve @ curve).ordered


def test_the_pure_epsilon_of_a_finite_pair_contains_the_logarithm():
    """Its largest loss is a logarithm, known to rounding."""
    epsilon = ny.between([0.5, 0.5], [0.9, 0.1]).pure()
    assert epsilon.lower <= 1.609437912434100374600759333 <= epsilon.upper


def test_humps_far_apart_are_both_kept_or_the_higher_one():
    """K of a removal at a large tilt is that of the two humps' sum (Laplace's method, both)."""
    for sigma, rate in ((200.0, math.exp(-4)), (1000.0, math.exp(-2.5))):
        loss = SubsampledGaussianLoss(1 / sigma, rate, True)
        k = loss.log_mgf(np.geomspace(1e3, 1e6, 12))
        # Convex in the tilt, with the far hump's slope at the end.
        assert np.all(np.diff(k) > 0)
        w = 1e6 + 1
        far = w * math.log(rate) + w * (w - 1) / (2 * sigma**2)
        assert k[-1] >= far


def test_an_estimate_certifies_nothing():
    """What others state is not compared as if it were proven here."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    reference = from_pld(pld.from_gaussian_mechanism(1.0, value_discretization_interval=1e-2), 1e-2)
    assert isinstance(reference, Tradeoff)
    assert not reference >= ny.gdp(3.0)
    assert ny.compare(reference, ny.pure(1)) == "undecided"
    assert "PLD" in reference.pure().method


def test_noise_that_hides_nothing_is_refused_under_sampling():
    """Where sigma is thousands of times too small the nodes would not fit in any memory."""
    with pytest.raises(ValueError, match="NonPrivate"):
        G(1e-8).subsample(rate=0.5)


def test_a_curve_may_be_asked_at_its_ends():
    """Level 0 gives the mass of infinite loss, level 1 gives 1."""
    f = (G(1).subsample(rate=0.1) * 100).tradeoff()
    none, all_, half = f.powers([0, 1, 0.5])
    assert (none.lower, none.upper) == (0, 0)
    assert all_.upper == 1
    assert half.lower > 0.5


def test_a_sum_whose_exact_lattice_is_finer_than_any_float_is_answered():
    """The exact common step of 14 float sigmas is below every float: there is no lattice."""
    mechanism = ny.DiscreteGaussian(sigma=math.sqrt(1 / 0.013))
    for i in range(1, 14):
        mechanism = mechanism + ny.DiscreteGaussian(sigma=math.sqrt(1 / (0.01 * (i + 1.3))))
    gaussian = ny.gdp(math.sqrt(sum(0.01 * (i + 1.3) for i in range(14))))
    delta = mechanism.tradeoff().delta(epsilon=3.0)
    assert 0.9 * gaussian.delta(epsilon=3.0).lower < delta.lower
    assert delta.upper < 1.1 * gaussian.delta(epsilon=3.0).upper
