"""Streams: what is remembered gives the rows that are meant, and readers see only what is out."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from neyman.mechanisms import STRATEGY_UNIT, Toeplitz, Triangular, square_root
from neyman.mechanisms.matrix_mechanism import noise_stream as stream
from neyman.mechanisms.matrix_mechanism.blocks import Binned
from neyman.noise import SecureBits, rounded_gaussian
from seeded import Seeded

SIGMA = Fraction(10**6)


@given(st.data())
@settings(max_examples=80)
def test_a_window_weighs_the_last_steps(data):
    """Rows of any lengths, against sums in plain Python."""
    n = data.draw(st.integers(1, 12))
    total = st.integers(-9, 9)
    rows = [data.draw(st.lists(total, min_size=1, max_size=t + 1)) for t in range(n)]
    values = [data.draw(total) for _ in range(n)]
    window = stream.Window(rows.__getitem__, max(map(len, rows)), 1, np.int64)
    for t, row in enumerate(rows):
        past = values[t + 1 - len(row) : t]
        assert window.weighted().tolist() == [sum(w * x for w, x in zip(row, past, strict=False))]
        assert window.own() == row[-1]
        window.push(np.array([values[t]]))


@given(st.integers(1, 4), st.integers(1, 120))
@settings(max_examples=40)
def test_blocks_weigh_past_steps_by_their_middle(fine, n):
    """At each step, the largest block that is far enough back, by its definition."""
    weights = np.arange(1000, 1000 - n, -1)
    blocks = stream.Blocks(weights, fine, 1, np.int64)
    values = [(7 * t) % 11 - 5 for t in range(n)]
    for t in range(n):
        total = 0
        for i in range(t):
            size, middle = 1, i
            while t - (i // (2 * size) * 2 * size + 2 * size - 1) >= fine * 2 * size:
                size *= 2
                middle = i // size * size + size // 2
            total += int(weights[t - middle]) * values[i]
        assert blocks.weighted().tolist() == [total]
        blocks.push(np.array([values[t]]))
    assert blocks.capacity <= (fine + 2) * n.bit_length() + fine


def test_a_tree_releases_the_blocks_that_end(injected):
    """Scaled sums of the last 1, 2, 4, ... steps, as many as the step's number has factors of 2."""
    encoder = stream.TreeEncoder(20, 1000, SIGMA, 100, 2, injected(3))
    values = np.arange(40).reshape(20, 2)
    for t in range(1, 21):
        rows = encoder._rows(values[t - 1])
        sizes = [2**level for level in range(5) if t % 2**level == 0]
        assert np.array_equal(rows, [1000 * values[t - size : t].sum(axis=0) for size in sizes])


def test_noise_is_fresh_for_each_number_and_data_are_clipped(injected):
    """Numbers differ by noise of the stated size, entries count up to the largest."""
    row = stream.Window(lambda t: [1], 1, 1000, np.int64)
    encoder = stream.RowEncoder(row, SIGMA, 50_000, 1000, injected(4))
    (first,) = encoder.add(np.full(1000, 10**9))
    (second,) = encoder.add(np.full(1000, -(10**9)))
    for result, mean in ((first, 50_000), (second, -50_000)):
        noise = result - mean
        assert len(set(noise.tolist())) > 500
        # chi squared with 1000 degrees of freedom leaves 780 to 1260 less than once in 10^6
        assert 780 < np.sum(noise.astype(float) ** 2) / 1e6 < 1260
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.17


def test_a_reader_needs_only_what_is_released(injected):
    """A decoder made elsewhere, fed with the released numbers, gives the stream's estimates."""

    def ends():
        def window(kind):
            return stream.Window(lambda t: [30, 100][-(t + 1) :], 2, 1, kind)

        return window(np.int64), window(np.float64)

    here, there = stream.RowDecoder(ends()[1]), stream.RowDecoder(ends()[1])
    encoder = stream.RowEncoder(ends()[0], SIGMA, 10**6, 1, injected(5))
    copy = stream.RowEncoder(ends()[0], SIGMA, 10**6, 1, injected(5))
    total = stream.Stream(copy, here, 9, 1)
    for t in range(9):
        assert total.step(t) == there.read(encoder.add(np.array([t])))
    with pytest.raises(ValueError, match="last step"):
        total.step(1)


@pytest.mark.parametrize("width", [3, 70])  # small steps take another path
@pytest.mark.parametrize("after", [0, 7])
@pytest.mark.parametrize(
    "strategy",
    [
        square_root(24, band=5),
        Toeplitz(24, (9, -4, 0, 1)),
        Triangular.normalized(square_root(24)),
        Binned(24, 2),
    ],
)
def test_correlated_noise_gives_what_follows_from_the_rows_of_the_matrix(strategy, after, width):
    """Whole numbers of Python: the rows W x + Z alone, and the estimates that they imply.

    Rows after a restart leave out the steps before it.
    """
    matrix = strategy.matrix().astype(object)
    noise = strategy.noise(SIGMA, width, Seeded(7))
    bits, data = Seeded(7), np.random.default_rng(1).integers(-999, 999, (24, width))
    estimates = np.zeros((24, width), object)
    for t in range(after, 24):
        row = matrix[t, after : t + 1] @ data[after : t + 1].astype(object)
        row = row + rounded_gaussian(SIGMA, width, bits)
        rest = row - matrix[t, after:t] @ estimates[after:t]
        estimates[t] = [(2 * x + matrix[t, t]) // (2 * matrix[t, t]) for x in rest]
        total = data[t].copy()
        noise.add(t, total)
        assert total.tolist() == estimates[t].tolist()


def test_correlated_noise_cancels_as_the_strategy_says():
    """Errors of prefix sums of 4,000 numbers; chi squared, a false alarm in 10^9 runs."""
    strategy, sigma, size = square_root(32, band=8), 1 << 20, 4000
    noise = strategy.noise(Fraction((sigma * STRATEGY_UNIT) ** 2), size, SecureBits())
    errors = np.zeros(size)
    for step, spread in enumerate(strategy.spread()):
        total = np.full(size, 12345)
        noise.add(step, total)
        errors += total - 12345
        square = float(np.sum((errors / (spread * sigma)) ** 2))
        assert 2e-9 < chi2.sf(square, size) < 1 - 2e-9


def test_correlated_noise_wraps_around_and_raises_nothing():
    """A strategy whose inverse grows without end loses its use, and no step is refused."""
    noise = Toeplitz(200, (1, 50)).noise(SIGMA, 2, SecureBits())
    for step in range(200):
        noise.add(step, np.array([1, 2]))


def test_trust_in_a_blocks_own_number_is_its_best_weight():
    """2^l / (2^(l+1) - 1): the variance of the best reading of a full tree, by dense algebra."""
    for levels, result in enumerate(stream.tree_trust(5)):
        n = 2**levels
        rows = [
            np.repeat(np.arange(n // size) == j, size)
            for size in (2**level for level in range(levels + 1))
            for j in range(n // size)
        ]
        gram = np.array(rows, float).T @ np.array(rows, float)
        best = np.ones(n) @ np.linalg.solve(gram, np.ones(n))
        assert np.isclose(result, 2**levels / (2 ** (levels + 1) - 1), rtol=1e-12)
        assert np.isclose(result, best, rtol=1e-12)
