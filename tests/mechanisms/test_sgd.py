"""Private training: what it is made of, by how batches are drawn."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import neyman as ny
from neyman import DPSGD, MatrixMechanism
from neyman.curves.losses.discrete_gaussian import root_above
from neyman.mechanisms import Binned, Toeplitz, Triangular, square_root

SAMPLINGS = "poisson", "allocated", "k-of-t", "bins", "fixed", "shuffled", "cyclic"
N, BATCH, SIGMA = 1000, 64, 0.9
ROUNDS = math.ceil(N / BATCH)


def spelled_out(sampling, epochs):
    step, root = ny.Gaussian(SIGMA), root_above(Fraction(epochs))
    return {
        "poisson": step.subsample(rate=Fraction(BATCH, N)) * math.ceil(epochs * N / BATCH),
        "fixed": step.subsample(size=BATCH, population=N) * math.ceil(epochs * N / BATCH),
        "allocated": step.random_allocation(ROUNDS) * epochs,
        "k-of-t": step.random_allocation(ROUNDS * epochs, times=epochs),
        "bins": ny.Gaussian(SIGMA, sensitivity=root).random_allocation(ROUNDS),
        "shuffled": step.shuffled_batches(ROUNDS) * epochs,
        "cyclic": step.shuffled_batches(ROUNDS) * epochs,
    }[sampling]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("epochs", [1, 3])
def test_each_sampling_is_what_it_spells_out(sampling, epochs):
    mechanism, parts = DPSGD(N, BATCH, SIGMA, epochs, sampling), spelled_out(sampling, epochs)
    assert mechanism.made_of() == parts
    assert mechanism.neighboring == parts.neighboring
    assert mechanism.rho() == parts.rho()
    assert mechanism.tradeoff() == parts.tradeoff()
    assert mechanism.tradeoff().epsilon(1e-5) == parts.tradeoff().epsilon(1e-5)


def test_the_samplings_are_told_apart():
    """No two ways to draw batches give the same curve, and no amplification is claimed unproven.

    The curve of k passes is what is proven for k of T steps: no gap to "allocated". Records that
    come in a fixed order are in as many batches as shuffled ones.
    """
    by_key = {s: DPSGD(N, BATCH, SIGMA, 2, s).tradeoff().epsilon(1e-5) for s in SAMPLINGS}
    assert by_key.pop("k-of-t").upper <= by_key["allocated"].upper * (1 + 1e-9)
    assert by_key.pop("cyclic") == by_key["shuffled"]
    ends = sorted(by_key.values(), key=lambda b: b.lower)
    assert all(a.upper < b.lower for a, b in pairwise(ends))
    plain = (ny.Gaussian(SIGMA) * 2).tradeoff().epsilon(1e-5)
    assert by_key["shuffled"].upper == pytest.approx(plain.upper, rel=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_description_survives_json(sampling):
    mechanism = DPSGD(N, BATCH, Fraction(9, 10), 2, sampling)
    again = ny.Mechanism.from_json(mechanism.to_json())
    assert again == mechanism
    assert again.sigma == Fraction(9, 10)


def test_a_description_of_an_unknown_loop_is_refused_by_name():
    text = DPSGD(N, BATCH, SIGMA, 2).to_json().replace("poisson", "spiral")
    with pytest.raises(ValueError, match="sampling = 'spiral'"):
        ny.Mechanism.from_json(text)


def test_steps_are_counted_as_the_loop_takes_them():
    assert DPSGD(1000, 300, 1, 3).steps == 10
    assert DPSGD(1000, 300, 1, 3, "fixed").steps == 10
    assert DPSGD(1000, 300, 1, 3, "shuffled").steps == 12
    assert DPSGD(1000, 300, 1, 3, "allocated").steps == 12
    assert DPSGD(1000, 300, 1, Fraction(1, 10)).steps == 1


@pytest.mark.parametrize(
    ("sampling", "times"), list(zip(SAMPLINGS, (1, 1, 1, 1, 2, 2, 2), strict=True))
)
def test_the_noise_is_sigma_times_what_can_move(sampling, times):
    mechanism = DPSGD(N, BATCH, 1.5, 1, sampling)
    assert mechanism.noise(clip=2.0) == times * 1.5 * 2.0
    with pytest.raises(ValueError, match="clip"):
        mechanism.noise(clip=0)


def test_one_batch_that_holds_all_records_is_no_sample():
    total = (ny.Gaussian(SIGMA) * 2).tradeoff().epsilon(1e-5).upper
    for sampling in SAMPLINGS:
        epsilon = DPSGD(N, N, SIGMA, 2, sampling).tradeoff().epsilon(1e-5).upper
        assert epsilon == pytest.approx(total, rel=1e-12), sampling


@pytest.mark.parametrize(
    "strategy",
    [
        square_root(32),
        square_root(32, band=8),
        Binned(32, 2),
        Toeplitz(32, (65536, -9)),
        Triangular.of(np.tri(32)),
    ],
)
def test_a_strategy_is_a_matrix_mechanism_in_which_a_record_comes_once_a_pass(strategy):
    run = DPSGD(N, BATCH, SIGMA, 2, "cyclic", strategy=strategy)
    assert run.made_of() == MatrixMechanism(strategy, SIGMA, participations=2, separation=ROUNDS)
    assert ny.Mechanism.from_json(run.to_json()) == run
    matrix = strategy.matrix() / 65536
    early, late = matrix[:, :ROUNDS], matrix[:, ROUNDS:]
    moved = np.linalg.norm([early + late, early - late], axis=1).max()
    mu = run.tradeoff().gdp()
    assert moved / SIGMA <= mu.upper
    if strategy == square_root(32):  # where falling weights make the bound exact
        assert mu.upper == pytest.approx(moved / SIGMA, rel=1e-8)
    assert f"strategy={strategy!r}" in repr(run)


@pytest.mark.parametrize("band", [1, 4, 10])
def test_poisson_batches_of_groups_are_samples_of_whole_columns(band):
    strategy = square_root(40, band)
    run = DPSGD(100, 10, 3, 4, strategy=strategy)
    column = math.sqrt(sum((math.comb(2 * m, m) / 4**m) ** 2 for m in range(band)))
    peer = ny.Gaussian(3 / column).subsample(rate=Fraction(band, 10)) * (40 // band)
    epsilon = run.tradeoff().epsilon(1e-5)
    assert epsilon.upper == pytest.approx(peer.tradeoff().epsilon(1e-5).upper, rel=1e-4)
    assert run.neighboring == "add-remove"
    assert ny.Mechanism.from_json(run.to_json()) == run


@pytest.mark.parametrize("fixed", [True, False])
def test_no_mixture_over_groups_and_coins_tells_more_than_the_blocks(fixed):
    """Likelihood ratios of 300,000 runs of 4 steps in 2 groups, in both directions, by their sums.

    With a fixed group it is all that the blocks tell, to 5 standard errors.
    """
    steps, groups, rate, runs = 4, 2, 0.6, 300_000
    strategy = square_root(steps, groups)
    curve = DPSGD(10, 3, 1, Fraction(6, 5), strategy=strategy).tradeoff()
    matrix = strategy.matrix() / 65536
    generator = np.random.default_rng(5)

    def ratios(released):
        products = []
        for group in range(1 if fixed else groups):
            columns = [matrix[:, t] for t in range(group, steps, groups)]
            shifts = [np.exp(released @ c - c @ c / 2) for c in columns]
            products.append(math.prod(1 - rate + rate * shift for shift in shifts))
        return np.mean(products, axis=0)

    group = np.zeros(runs) if fixed else generator.integers(0, groups, runs)
    takes = (np.arange(steps) % groups == group[:, None]) & (generator.random((runs, steps)) < rate)
    noise = generator.normal(size=(runs, steps))
    present, absent = ratios(takes @ matrix.T + noise), ratios(noise)
    for epsilon in (0.2, 0.5, 1.0, 2.0):
        larger = [np.maximum(0, 1 - math.exp(epsilon) / present)]
        larger += [np.maximum(0, 1 - math.exp(epsilon) * absent)]
        means = np.array([part.mean() for part in larger])
        errors = np.array([part.std() for part in larger]) / math.sqrt(runs)
        delta = curve.delta(epsilon)
        assert (means - 5 * errors).max() <= delta.upper
        assert not fixed or (means + 5 * errors).max() >= delta.lower
