"""The batches that are drawn are the batches that are accounted."""

import copy
import math
import pickle
from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import neyman as ny
from exact_draws import ALARM, assert_shares
from neyman.curves.profiles.selection import select
from neyman.mechanisms import BallsInBins, Toeplitz, Triangular, square_root
from neyman.mechanisms.matrix_mechanism.blocks import Tree
from neyman.noise import Bits, coins, order, subset
from random_laws import examples
from seeded import Seeded

pytestmark = pytest.mark.needs("release")
SAMPLINGS = ["poisson", "allocated", "k-of-t", "bins", "fixed", "shuffled", "cyclic"]


class Words(Bits):
    """The given words, and then an error."""

    def __init__(self, words):
        self.left = np.array(words, np.uint64)

    def words(self, n):
        assert n <= self.left.size
        first, self.left = self.left[:n], self.left[n:]
        return first


def run(sampling, rows=40, batch=10, epochs=3, after=0):
    return ny.DPSGD(40, batch, 2, epochs, sampling).batches(rows, after=after)


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(5, 7), Fraction(3, 2**16), Fraction(1)])
def test_a_rate_is_met_exactly(rate):
    """Of all 2^16 beginnings of a coin each decides as it must, and one stays open.

    With rate = (t + r) / 2^16, t beginnings are heads, one is heads with chance r, and no more.
    """
    beginnings = np.arange(2**16, dtype=np.uint16).view(np.uint64)
    scaled = rate * 2**16
    count, rest = math.floor(scaled), scaled - math.floor(scaled)
    low = math.floor(rest * 2**64)
    for word, heads in (
        ((max(low - 1, 0), True), (min(low + 1, 2**64 - 1), False)) if rest else ((0, False),)
    ):
        taken = coins(rate, 2**16, Words([*beginnings, word]))
        assert taken.tolist() == list(range(count + (heads and rest > 0)))


def test_an_open_coin_asks_for_bits_until_it_is_certain():
    """Two words that agree with the rate's digits leave the third to decide."""
    rate = Fraction(1, 3)
    digits = [int(rate * 2**16), *[0x5555555555555555] * 2]
    for last, heads in ((0, True), (2**64 - 1, False)):
        lane = np.array([digits[0], 2**16 - 1, 2**16 - 1, 2**16 - 1], np.uint16).view(np.uint64)
        taken = coins(rate, 1, Words([lane[0], *digits[1:], last]))
        assert (taken.size == 1) is heads


def test_every_subset_is_equally_likely():
    """All 20 subsets of 3 of 6, all 15 of 4 of 6 (by what is left out); alarm below 1e-6."""
    for size in (3, 4):
        bits = Seeded(size)
        counts = Counter(tuple(subset(6, size, bits).tolist()) for _ in range(20_000))
        every = list(combinations(range(6), size))
        assert_shares([counts[s] for s in every], [1 / len(every)] * len(every))


def test_every_order_is_equally_likely():
    bits = Seeded(5)
    counts = Counter(tuple(order(4, bits).tolist()) for _ in range(24_000))
    assert len(counts) == 24
    assert_shares(list(counts.values()), [1 / 24] * 24)


def test_orders_with_equal_keys_are_drawn_again():
    """A tie would favor the first of two rows."""
    bits = Words([7, 7, 3, 9, 4, 2])
    assert order(3, bits).tolist() == [2, 1, 0]


def test_poisson_batches_have_the_binomial_law():
    """Sizes of 4,000 batches of 40 rows at rate 1/4; alarm below 1e-6."""
    sizes = [b.size for b in run("poisson", epochs=1000)]
    counts = np.bincount(sizes, minlength=41)
    law = [math.comb(40, k) * 0.25**k * 0.75 ** (40 - k) for k in range(41)]
    assert_shares(counts, law)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_each_row_and_each_pair_of_rows_is_in_a_step_as_often_as_described(sampling):
    """Two rows over the two first steps, against enumeration; alarm below 1e-6."""
    mechanism, counts = ny.DPSGD(6, 2, 2, 2, sampling), Counter()
    for _ in range(6000):
        steps = list(mechanism.batches(6))[:2]
        counts[tuple((0 in s, 5 in s) for s in steps)] += 1
    truth = pair_law(sampling)
    assert set(counts) <= set(truth)
    assert_shares([counts[k] for k in truth], list(truth.values()))


def test_rows_of_a_group_take_part_in_every_step_of_their_group_alone():
    """Two rows over three steps of two groups, each coin 2/3, by enumeration; alarm below 1e-6."""
    mechanism, counts = ny.DPSGD(6, 2, 2, 1, strategy=square_root(3, band=2)), Counter()
    for _ in range(6000):
        counts[tuple((0 in s, 5 in s) for s in mechanism.batches(6))] += 1
    alone = Counter()
    for tossed in product((0, 1), repeat=3):
        p = math.prod(2 / 3 if coin else 1 / 3 for coin in tossed)
        for group in (0, 1):
            alone[tuple(bool(x) and t % 2 == group for t, x in enumerate(tossed))] += p / 2
    truth = {
        tuple(zip(a, b, strict=True)): p * q for a, p in alone.items() for b, q in alone.items()
    }
    assert set(counts) <= set(truth)
    assert_shares([counts[key] for key in truth], list(truth.values()))


def pair_law(sampling):
    """Of (row 0 in step, row 5 in step) for two steps: n 6, batch 2, 2 epochs, so T = 6."""
    one, two = [(a, b) for a in (False, True) for b in (False, True)], {}
    if sampling == "poisson":
        law = {x: math.prod(1 / 3 if y else 2 / 3 for y in x) for x in one}
        return {(x, y): law[x] * law[y] for x in one for y in one}
    if sampling == "cyclic":  # row 0 is in the first of three batches, and row 5 in the last
        return {((True, False), (False, False)): 1}
    if sampling == "fixed":
        law = Counter()
        for s in combinations(range(6), 2):
            law[0 in s, 5 in s] += 1 / 15
        return {(x, y): law[x] * law[y] for x in one for y in one}
    if sampling in ("allocated", "k-of-t", "bins"):
        if sampling != "k-of-t":
            alone = {(True, False): 1 / 3, (False, True): 1 / 3, (False, False): 1 / 3}
        else:  # two of six steps
            alone = Counter()
            for s in combinations(range(6), 2):
                alone[0 in s, 1 in s] += 1 / 15
        for a, p in alone.items():
            for b, q in alone.items():
                key = ((a[0], b[0]), (a[1], b[1]))
                two[key] = two.get(key, 0) + p * q
        return two
    law = Counter()  # shuffled: places of the two rows among three batches of two
    for places in [(i, j) for i in range(6) for j in range(6) if i != j]:
        at = [p // 2 for p in places]
        law[tuple((at[0] == s, at[1] == s) for s in range(2))] += 1 / 30
    return dict(law)


@pytest.mark.parametrize("sampling", ["allocated", "k-of-t", "bins", "shuffled", "cyclic"])
def test_each_record_takes_part_as_often_as_there_are_epochs(sampling):
    batches = list(run(sampling))
    assert np.bincount(np.concatenate(batches)).tolist() == [3] * 40
    if sampling != "k-of-t":
        for epoch in (batches[:4], batches[4:8], batches[8:]):
            assert sorted(np.concatenate(epoch)) == list(range(40))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("batch", [7, 10, 40])
def test_there_is_one_sorted_batch_of_distinct_rows_for_each_accounted_step(sampling, batch):
    batches = run(sampling, batch=batch)
    mechanism = batches.mechanism
    everything = list(batches)
    assert len(batches) == len(everything) == mechanism.steps
    for rows in everything:
        assert rows.dtype == np.int64
        assert np.all(np.diff(rows) > 0)
        assert rows.size == 0 or (rows[0] >= 0 and rows[-1] < 40)
        if sampling in ("fixed", "shuffled", "cyclic"):
            assert 0 < rows.size <= batch
        if sampling == "fixed":
            assert rows.size == batch


@pytest.mark.parametrize("sampling", ["poisson", "allocated", "k-of-t", "bins"])
@pytest.mark.parametrize("rows", [0, 1, 39, 55])
def test_the_number_of_rows_may_differ_from_n_and_the_number_of_steps_does_not(sampling, rows):
    """Under add-remove an error for another number would reveal it; empty batches are steps."""
    batches = list(run(sampling, rows=rows))
    assert len(batches) == 12
    assert rows == 0 or max((b.max() for b in batches if b.size), default=0) < rows
    assert rows > 1 or any(b.size == 0 for b in batches)


@pytest.mark.parametrize("sampling", ["fixed", "shuffled", "cyclic"])
def test_another_number_of_rows_is_refused_where_the_number_is_public(sampling):
    with pytest.raises(ValueError, match="rows = 39 must be n = 40"):
        run(sampling, rows=39)


def test_pieces_are_the_batch_and_an_empty_batch_has_one():
    for parts in run("fixed", batch=7).pieces(2):
        assert [part.size for part in parts] == [2, 2, 2, 1]
        assert (np.diff(np.concatenate(parts)) > 0).all()
    empty = run("poisson", rows=0).pieces(2)
    assert [[part.size for part in parts] for parts in empty] == [[0]] * 12


def test_a_second_pass_is_refused_and_an_interrupted_one_goes_on():
    batches = run("poisson")
    for _ in zip(range(5), batches, strict=False):
        pass
    assert batches.step in (5, 6)
    left = 12 - batches.step
    assert len(list(batches)) == left
    with pytest.raises(RuntimeError, match="another run"):
        iter(batches)


def test_batches_are_not_copied():
    """A copy would draw other rows for the same steps."""
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            way(run("poisson"))


def test_a_run_goes_on_only_between_draws():
    """The rest of a shuffled pass cannot be drawn again: it would be another pass."""
    for sampling, allowed in (
        ("poisson", 5),
        ("fixed", 5),
        ("allocated", 8),
        ("shuffled", 4),
        ("cyclic", 5),
    ):
        batches = run(sampling, after=allowed)
        assert len(list(batches)) == len(batches) == 12 - allowed
    grouped = ny.DPSGD(40, 10, 2, 3, strategy=square_root(12, band=3))
    assert len(list(grouped.batches(40, after=6))) == 6
    with pytest.raises(ValueError, match="multiple of 3"):
        grouped.batches(40, after=4)
    for sampling in ("allocated", "shuffled", "k-of-t", "bins"):
        with pytest.raises(ValueError, match="cannot be drawn again"):
            run(sampling, after=5)
    assert list(run("k-of-t", after=12)) == []


def test_two_draws_of_secure_bits_differ():
    mechanism = ny.DPSGD(1000, 100, 2, 1.2)
    first, second = (list(mechanism.batches(1000)) for _ in range(2))
    assert any(a.tolist() != b.tolist() for a, b in zip(first, second, strict=True))
    assert ALARM == 1e-6


def k_of_t_deltas(mu, batches, times, epsilon):
    """Both deltas of the mean over all sets of k batches, mixture first.

    The ratio is affine in the last batch's lognormal, so its mean has a closed form. The others are
    integrated on a grid.
    """
    x = np.linspace(-8, 8 + 2 * mu, 400 if batches == 3 else 120)
    grid = np.meshgrid(*[x] * (batches - 1), indexing="ij")
    q = math.prod(norm.pdf(g) * (x[1] - x[0]) for g in grid)
    ratio = np.exp([mu * g - mu * mu / 2 for g in grid])
    slope, rest = (
        sum(np.prod(ratio[list(s)], axis=0) for s in combinations(range(batches - 1), size))
        / math.comb(batches, times)
        for size in (times - 1, times)
    )
    strike = np.exp(np.array([epsilon, -epsilon]))
    left = np.maximum(np.stack([strike[0] - rest, strike[1] - rest]), 1e-300)
    at = (np.log(left / slope) + mu * mu / 2) / mu
    call = slope * norm.cdf(mu - at[0]) - (strike[0] - rest) * norm.cdf(-at[0])
    put = left[1] * norm.cdf(at[1]) - slope * norm.cdf(at[1] - mu)
    return (q * call).sum(), strike[0] * (q * put).sum()


@pytest.mark.parametrize(("batches", "times"), [(3, 2), (4, 2), (4, 3)])
@given(mu=st.floats(0.1, 2.5), epsilon=st.floats(0.1, 3))
@settings(max_examples=examples(6))
def test_k_of_t_holds_the_deltas_of_quadrature(batches, times, mu, epsilon):
    (losses,) = ny.Gaussian(1 / Fraction(mu)).random_allocation(batches, times=times).losses()
    truth = k_of_t_deltas(mu, batches, times, epsilon)
    for each, delta in zip((losses, losses.reverse()), truth, strict=True):
        low, high = (math.exp(v) for v in select(each).log_delta(epsilon))
        assert low * (1 - 1e-6) - 1e-12 <= delta <= high * (1 + 1e-6) + 1e-12


# Delta at epsilon 1 by quadrature, sigma 1.
K_OF_T = [(3, 2, 0.200409913020828), (4, 2, 0.15239477376261)]


@pytest.mark.parametrize(("batches", "times", "delta"), K_OF_T)
def test_k_of_t_holds_the_published_deltas(batches, times, delta):
    bound = ny.Gaussian(1).random_allocation(batches, times=times).tradeoff().delta(1)
    assert 0.94 * delta < bound.lower <= delta <= bound.upper


# The largest distance of the two ends of epsilon at delta 1e-5, relative to the upper end.
WIDTHS = [
    (100, 5, 1, 0.04),
    (400, 20, 1, 0.03),
    (1000, 10, 1, 0.0125),
    (10_000, 100, 1, 0.0085),
    (10_000, 30, 0.6, 0.029),
    (20, 10, 2, 0.023),
    (100, 90, 5, 0.0294),
]


@pytest.mark.parametrize(("batches", "times", "sigma", "width"), WIDTHS)
def test_the_ends_of_k_of_t_are_close(batches, times, sigma, width):
    curve = ny.Gaussian(sigma).random_allocation(batches, times=times).tradeoff()
    epsilon = curve.epsilon(1e-5)
    mu = times / (sigma * math.sqrt(batches))
    assert ny.Gaussian(1 / Fraction(mu)).tradeoff().epsilon(1e-5).lower <= epsilon.lower * 1.000001
    assert epsilon.upper * (1 - width) <= epsilon.lower


def test_five_of_a_hundred_hold_what_simulation_says():
    """Epsilon at delta 1e-5 is 2.882 +- .001 by importance sampling."""
    epsilon = ny.Gaussian(1).random_allocation(100, times=5).tradeoff().epsilon(1e-5)
    assert 2.87 < epsilon.lower < 2.883 < epsilon.upper < 3


def test_k_of_t_is_between_one_batch_and_every_batch():
    step = ny.Gaussian(1)
    assert step.random_allocation(4, times=4).tradeoff() >= (step * 4).tradeoff()
    one_pass = step.random_allocation(4)
    assert one_pass == step.random_allocation(4, times=1)
    assert "times" not in one_pass.to_json()
    twice = step.random_allocation(4, times=2)
    assert ny.Mechanism.from_json(twice.to_json()) == twice
    assert twice.rho() == 2 * one_pass.rho()
    assert repr(twice).endswith("random_allocation(batches=4, times=2)")
    with pytest.raises(ValueError, match="times = 5 must be at most batches = 4"):
        step.random_allocation(4, times=5)


def test_a_run_of_k_of_t_is_accounted_as_such():
    run_once = ny.DPSGD(6000, 256, 1.3, 15, "k-of-t")
    assert run_once.made_of() == ny.Gaussian(1.3).random_allocation(360, times=15)
    passes = ny.DPSGD(6000, 256, 1.3, 15, "allocated").tradeoff().epsilon(1e-5).upper
    assert run_once.tradeoff().epsilon(1e-5).upper <= passes * (1 + 1e-6)
    assert ny.Mechanism.from_json(run_once.to_json()) == run_once


def test_in_bins_each_record_is_in_the_same_step_of_each_pass():
    batches = list(run("bins"))
    for first, second, third in zip(batches[:4], batches[4:8], batches[8:], strict=True):
        assert first.tolist() == second.tolist() == third.tolist()


# Delta at epsilon 1 by quadrature, mixture first and noise first, sigma 2 on the rows of C.
IN_BINS = [
    (square_root(4), 2, 0.07962571840808, 0.07857394633012),
    (square_root(8), 2, 0.3818923863951, 0.3808932897609),
    (Toeplitz(6, (65536, 32768)), 3, 0.01924271607048, 0.01793774052584),
]


@pytest.mark.parametrize(("strategy", "bins", "removed", "added"), IN_BINS)
def test_bins_with_correlated_noise_lie_between_two_simpler_matrices(
    strategy, bins, removed, added
):
    curve = ny.DPSGD(bins, 1, 2, strategy.steps // bins, "bins", strategy=strategy).tradeoff()
    delta = curve.delta(1)
    assert delta.lower <= max(removed, added) <= delta.upper
    assert delta.upper < 2.2 * delta.lower


@given(data=st.data())
@settings(max_examples=examples(8))
def test_two_bins_hold_the_delta_of_quadrature(data):
    """With two bins, dP/dQ is a mean of two lognormals with the covariance G."""
    weights = data.draw(st.lists(st.integers(-40_000, 90_000), min_size=1, max_size=4))
    strategy = Toeplitz(4, (65536, *weights[:3]))
    mechanism = ny.DPSGD(2, 1, 2, 2, "bins", strategy=strategy)
    shifts = np.abs(strategy.matrix() / 65536).reshape(4, 2, 2).sum(axis=1) / 2
    gram = shifts.T @ shifts
    nodes, mass = np.polynomial.hermite_e.hermegauss(200)
    mass = np.multiply.outer(mass, mass) / (2 * math.pi)
    factor = np.linalg.cholesky(gram + 1e-14 * np.eye(2))
    x, y = np.meshgrid(nodes, nodes, indexing="ij")
    logs = [a * x + b * y - gram[i, i] / 2 for i, (a, b) in enumerate(factor)]
    ratio = (np.exp(logs[0]) + np.exp(logs[1])) / 2
    curve = mechanism.tradeoff()
    for epsilon in (0.2, 1.0):
        t = math.exp(epsilon)
        truth = max((mass * np.maximum(x, 0)).sum() for x in (ratio - t, 1 - t * ratio))
        delta = curve.delta(epsilon)
        assert delta.lower - 2e-3 <= truth <= delta.upper + 2e-3  # the error of the quadrature


def test_a_strategy_of_rows_has_the_ends_of_its_weights_by_age():
    by_age = square_root(12)
    by_row = Triangular.of(by_age.matrix() / 65536)
    for bins in (1, 2, 3, 6, 12):
        for ours, theirs in zip(by_age.gram_ends(bins), by_row.gram_ends(bins), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-13)


def test_bins_without_a_strategy_are_allocation_with_less_noise():
    curve = ny.DPSGD(40, 10, 2, 4, "bins").tradeoff()
    assert curve == ny.Gaussian(1).random_allocation(4).tradeoff()
    flat = ny.DPSGD(40, 10, 2, 4, "bins", strategy=Toeplitz(16, (65536,)))
    assert float(flat.tradeoff().epsilon(1e-5)) == pytest.approx(float(curve.epsilon(1e-5)), 1e-9)
    assert ny.Mechanism.from_json(flat.to_json()) == flat
    composition = flat.made_of()
    assert ny.Mechanism.from_json(composition.to_json()) == composition


def test_bins_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="bins = 3 must divide the 4 steps"):
        BallsInBins(square_root(4), 2, 3)
    with pytest.raises(ValueError, match="needs a row per step"):
        ny.DPSGD(8, 2, 2, 2, "bins", strategy=Tree(8))
    with pytest.raises(TypeError, match="must have a row per step"):
        BallsInBins(Tree(8), 2, 2)
    for sigma in (1e-160, 1e18):
        with pytest.raises(ValueError, match="must be from 1/2048"):
            BallsInBins(square_root(4), sigma, 2)
    with pytest.raises(ValueError, match="hides nothing"):
        BallsInBins(square_root(4), Fraction(1, 20), 2)
