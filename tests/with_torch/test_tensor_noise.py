"""Noise for tensors has the exact distribution: on the CPU, and on each CUDA device that
there is.
"""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction as F

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm

from neyman import noise
from neyman.noise import tensor_laws, tensor_noise, tensor_operations
from neyman.noise.large_gaussian import CELLS, Strips
from neyman.noise.lookup_table import rounded_table, weights_table
from neyman.noise.tensor_laws import (
    GROUP_BLOCKS,
    OPEN_DRAW,
    TAIL_SIGMAS,
    StripTensors,
    TableTensors,
    open_places,
)
from seeded import Seeded

ALARM = 1e-6  # the chance that a right sampler fails a test of counts
CPU = torch.device("cpu")
DEVICES = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
STRIPS = [(F(130**2), False), (F(10**12), True), (F(10**12), False), (F(2**80), True)]


@pytest.fixture(scope="module")
def kernel():
    """The kernels of Triton, interpreted on the CPU."""
    if tensor_noise.triton_kernel is None:
        pytest.skip("needs triton")
    name = "interpreted_kernel"
    spec = importlib.util.spec_from_file_location(name, tensor_noise.triton_kernel.__file__)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        patch.setattr(tensor_noise, "triton_kernel", module)
        yield module
    tensor_noise.law_and_engine.cache_clear()


def strips_of(sigma_squared, rounded):
    return StripTensors(Strips(sigma_squared, rounded, TAIL_SIGMAS), CPU)


def block(key, counter):
    """The words of a block of ChaCha20 with nonce 0, by RFC 8439 in whole numbers."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, counter, 0, 0, 0]
    x = list(start)
    for turn in range(20):
        for i in range(4):
            a, b, c, d = (4 * r + (i + r * (turn % 2)) % 4 for r in range(4))
            for p, q, r, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[p] = (x[p] + x[q]) % 2**32
                x[r] ^= x[p]
                x[r] = (x[r] << n | x[r] >> 32 - n) % 2**32
    return [(u + v) % 2**32 for u, v in zip(x, start, strict=True)]


def signed(words):
    """32-bit words as torch has them."""
    return torch.from_numpy(np.array(words, np.uint32).view(np.int32))


RFC = [  # RFC 8439, appendix A.1: the key, the counter, and the first 16 bytes of the keystream
    ("00" * 32, 0, "76b8e0ada0f13d90405d6ae55386bd28"),
    ("00" * 32, 1, "9f07e7be5551387a98ba977c732d080d"),
    ("00" * 31 + "01", 1, "3aeb5224ecf849929b9d828db1ced4dd"),
    ("00ff" + "00" * 30, 2, "72d54dfbf12ec44b362692df94137f32"),
]


@pytest.mark.parametrize(("key", "counter", "first"), RFC)
def test_the_cipher_has_the_keystream_of_rfc_8439(key, counter, first):
    words = np.frombuffer(bytes.fromhex(key), np.uint32)
    stream = np.array(block(words.tolist(), counter), np.uint32).tobytes()
    assert stream.hex().startswith(first)
    stream_words = tensor_operations.keystream(signed(words), torch.tensor([counter, counter + 1]))
    assert stream_words[:, 0].numpy().tobytes() == stream


def test_operations_and_the_cipher_of_secure_bits_agree():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    key = os.urandom(32)
    counters = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
    stream_words = tensor_operations.keystream(signed(np.frombuffer(key, np.uint32)), counters)
    for i, counter in enumerate(counters.tolist()):
        nonce = counter.to_bytes(4, "little") + bytes(12)
        encryptor = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
        assert stream_words[:, i].numpy().tobytes() == encryptor.update(bytes(64))


def reference_words(key, size, count):
    """The words of each draw: a tile has ``GROUP_BLOCKS`` blocks, and its draws go word by word."""
    blocks, draws = {}, 16 // count
    for place in range(size):
        tile, rest = divmod(place, draws * GROUP_BLOCKS)
        j, lane = divmod(rest, GROUP_BLOCKS)
        counter = tile * GROUP_BLOCKS + lane
        if counter not in blocks:
            blocks[counter] = block(key, counter)
        yield blocks[counter][count * j : count * (j + 1)]


def reference_table(word, table):
    """A draw of 31 bits, or the word if a threshold is within a unit of them."""
    value = word % 2**31
    thresholds = [int(t) >> 33 for t in table.thresholds.tolist()]
    k = sum(t <= value for t in thresholds)
    if value == 2**31 - 1 or (k and value - thresholds[k - 1] < 2):
        return OPEN_DRAW + word
    return -k if word >> 31 else k


def reference_strip(words, law):
    """A draw of the first stage."""
    strips, word = law.strips, words[0]
    picked = int(strips.guide[word % CELLS])
    strip, sure = picked >> 16, picked % 2**16
    minus = word >> 15 & 1
    length = strips.width + strips.fine
    stream = words[1] << 32 if len(words) == 2 else words[2] << 32 | words[3]
    x = F((strip << length) + (stream >> 64 - length), 1 << strips.fine)
    if word >> 16 >= sure or (minus and strip == 0 and not strips.rounded):
        return OPEN_DRAW + word
    magnitude = math.floor(x + F(1, 2))
    return -magnitude if minus else magnitude


@pytest.mark.parametrize("sigma", [F(1, 100), F(1), F(100)])
def test_one_key_gives_one_table_of_draws_everywhere(kernel, sigma):
    law = TableTensors(weights_table(F(0), 1 / (2 * sigma**2)), CPU)
    key = [int(k) for k in np.frombuffer(os.urandom(32), np.uint32)]
    expected = [reference_table(w, law.table) for (w,) in reference_words(key, 2500, 1)]
    for engine in (tensor_operations, kernel):
        out = torch.zeros(2500, dtype=torch.int64)
        engine.draw_table(out, signed(key), law)
        assert out.tolist() == expected


@pytest.mark.parametrize(("sigma_squared", "rounded"), STRIPS)
def test_one_key_gives_one_sequence_of_strips_everywhere(kernel, sigma_squared, rounded):
    law = strips_of(sigma_squared, rounded)
    key = [int(k) for k in np.frombuffer(os.urandom(32), np.uint32)]
    expected = [reference_strip(w, law) for w in reference_words(key, 1100, law.words)]
    decided = []
    for engine in (tensor_operations, kernel):
        out = torch.zeros(1100, dtype=torch.int64)
        engine.draw_strips(out, signed(key), law)
        assert out.tolist() == expected
        engine.decide_strips(out, open_places(out), signed(key), law)
        decided.append(out)
    assert torch.equal(*decided)


def padded(words):
    """As many words as a kernel takes, a power of two, the last ones 0."""
    n = 1 << (words.shape[-1] - 1).bit_length()
    return torch.nn.functional.pad(words, (0, n - words.shape[-1])).contiguous(), n


@pytest.mark.parametrize("law", ["discrete_gaussian", "rounded_gaussian", "discrete_laplace"])
def test_each_word_that_decides_has_one_answer_for_all_that_follows(kernel, law):
    """Words at and beside each threshold, all zeros and all ones, against exact probabilities.

    A word of 31 bits is an interval of U. It decides k where all of the interval lies from
    P(|X| < k) to P(|X| <= k). So with further bits of the same U for open words, the law is exact.
    """
    import word_kernels

    parameter = F(6)
    square = parameter if law == "discrete_laplace" else parameter**2
    tensors = tensor_noise.tensors(law, square, CPU)
    assert isinstance(tensors, TableTensors)
    entries = tensors.entries[1:].to(torch.int64)
    values = torch.cat([entries + e for e in (-1, 0, 1, 2, 3)] + [torch.tensor([0, 2**31 - 1])])
    values = values[(values >= 0) & (values < 2**31)].unique()
    words = signed(torch.cat([values, values + 2**31]).numpy())
    draws = tensor_operations.table_draws(words, tensors)
    taken, n = padded(words)
    out = torch.zeros(n, dtype=torch.int64)
    word_kernels.table[(1,)](out, taken, tensors.entries, tensors.entries.numel() // 2, N=n)
    assert torch.equal(out[: words.numel()], draws)
    with mpmath.workprec(100):
        below = cumulative(law, int(parameter), 200)
        opens = 0
        for word, draw in zip(words.tolist(), draws.tolist(), strict=True):
            value = word % 2**31
            if draw == OPEN_DRAW + word % 2**32:
                opens += 1
                continue
            k = abs(draw)
            assert word < 0 or draw >= 0
            assert (draw <= 0) == (word < 0) or k == 0
            assert below[k] <= mpmath.mpf(value) / 2**31
            assert mpmath.mpf(value + 1) / 2**31 <= below[k + 1]
    undecided = {t + e for t in entries.tolist() for e in (0, 1)} - {2**31}
    assert opens == 2 * len(undecided)


def cumulative(law, parameter, n):
    """P(|X| < k) for k = 0, ..., n, in mpmath."""
    if law == "rounded_gaussian":
        halves = [mpmath.mpf(2 * k - 1) / (2 * parameter) for k in range(1, n + 1)]
        return [mpmath.mpf(0), *(mpmath.erf(z / mpmath.sqrt(2)) for z in halves)]
    scale = mpmath.mpf(parameter)

    def weight(k):
        return mpmath.exp(-k / scale if law == "discrete_laplace" else -(k**2) / (2 * scale**2))

    weights = [weight(0), *(2 * weight(mpmath.mpf(k)) for k in range(1, 3000))]
    sums = [mpmath.mpf(0)]
    for w in weights[:n]:
        sums.append(sums[-1] + w)
    total = mpmath.fsum(weights)
    return [x / total for x in sums]


class Prescribed:
    """Bits that a test spells out, in the place of the operating system's."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        return np.array(taken, np.uint64)


@pytest.mark.parametrize("beside", [-1, 0])
def test_an_open_word_of_a_table_goes_on_with_the_bits_that_follow(beside, monkeypatch):
    law = TableTensors(rounded_table(F(9)), CPU)
    with mpmath.workprec(200):
        for k in range(0, 15, 3):
            truth = int(cumulative("rounded_gaussian", 3, 30)[k + 1] * 2**64)
            u = truth + 2000 * (2 * beside + 1)
            assert u >> 33 == truth >> 33
            bits = Prescribed(u % 2**33 << 31)
            monkeypatch.setattr(tensor_laws, "SecureBits", lambda bits=bits: bits)

            class Engine:
                @staticmethod
                def draw_table(out, key, law, u=u):
                    out.copy_(tensor_operations.table_draws(signed([u >> 33 | 1 << 31]), law))

            out = torch.zeros(1, dtype=torch.int64)
            law.fill(out, Engine)
            assert not bits.left
            assert out.item() == -(k + 1 + beside)


def acceptance(law, strip, x):
    """2^30 C w(x) / n, in mpmath."""
    square = mpmath.mpf(law.sigma_squared.numerator) / law.sigma_squared.denominator
    w = mpmath.exp(-((mpmath.mpf(x.numerator) / x.denominator) ** 2) / (2 * square))
    return 2**30 * mpmath.mpf(law.most.numerator) / law.most.denominator * w / law.counts[strip]


@pytest.mark.parametrize(("sigma_squared", "rounded"), STRIPS)
def test_words_beside_an_acceptance_are_decided_as_exact_arithmetic_does(
    kernel, sigma_squared, rounded
):
    import word_kernels

    law = strips_of(sigma_squared, rounded)
    strips, length = law.strips, law.length
    cells = np.cumsum([0, *strips.counts]).tolist()
    cases = []
    with mpmath.workprec(160):
        for strip in (0, 2, strips.number // 3, strips.number - 1, strips.number):
            for low in (0, (1 << length) - 1, (1 << length) // 3):
                x = F((strip << length) + low, 1 << strips.fine)
                ends = x, x + (F(1, 1 << strips.fine) if rounded else 0)
                chances = [acceptance(strips, strip, e) for e in ends]
                least, most = (
                    int(x[0]) for x in strips._bounds(np.array([strip]), np.array([low]))
                )
                if strip == strips.number:
                    most = law.most
                near = {int(chances[0]) + e for e in (-2000, -1, 0, 1, 2000)}
                near |= {least - 1, least, most - 1, most}
                for v in sorted({0, 2**30 - 1, *(min(max(n, 0), 2**30 - 1) for n in near)}):
                    for minus in (0, 1):
                        word = (v >> 14) << 16 | minus << 15 | cells[strip]
                        stream = low << 64 - length
                        row = word, v % 2**14 << 18, stream >> 32, stream % 2**32
                        is_open = (
                            max(least, (int(law.guide[cells[strip]]) & 0xFFFF) << 14) <= v < most
                        )
                        cases.append((row, strip, x, v, minus, chances, is_open))
        n = len(cases)
        columns = [signed([row[i] for row, *_ in cases]) for i in range(4)]
        # A refused proposal is followed by the beginning of strip 4, with V = 0.
        words = torch.stack([signed([cells[4]] * n), *columns[1:], *[signed([0] * n)] * 12])
        mark = 4 << strips.width
        draws, state = tensor_operations.decisions(columns[0], words, law)
        (first, n2), (block, _) = padded(columns[0]), padded(words)
        out, states = torch.zeros(n2, dtype=torch.int64), torch.zeros((4, n2), dtype=torch.int32)
        tables = law.guide, law.starts, law.settings
        word_kernels.decisions[(1,)](out, states, first, block, *tables, law.is_discrete, N=n2)
        assert torch.equal(out[:n], draws)
        opens = 0
        for i, (_, strip, x, v, minus, (most, least), is_open) in enumerate(cases):
            draw, size = int(draws[i]), math.floor(x + F(1, 2))
            assert (draw == OPEN_DRAW) == is_open
            if draw == OPEN_DRAW:
                opens += 1
                assert state[:, i].tolist() == [int(c[i]) for c in columns]
                assert state[:, i].tolist() == states[:, i].tolist()
                assert v < law.most if strip == strips.number else abs(v - most) < 2000
            elif draw == mark:
                zero = not rounded and x == 0 and minus
                assert v >= (law.most if strip == strips.number else most) or zero
            else:
                assert draw == (-size if minus else size)
                assert strip < strips.number
                assert v + 1 <= least
                assert draw or not minus or rounded
        assert 0 < opens < n
        ratio = mpmath.exp(-mpmath.mpf(strips.number << strips.width) * 1 / square_of(strips))
        top = acceptance(strips, strips.number, F(strips.number << strips.width))
        assert top / ((1 << strips.width) * (1 - ratio)) <= law.most < 2**30 / 1000


@pytest.mark.parametrize(("sigma_squared", "rounded"), STRIPS)
def test_the_host_goes_on_with_all_bits_of_an_open_proposal(sigma_squared, rounded):
    law = strips_of(sigma_squared, rounded)
    strips = law.strips
    strip = strips.number // 3
    low = (1 << law.length) // 3
    x = F((strip << law.length) + low, 1 << strips.fine)
    cell = sum(strips.counts[:strip])
    with mpmath.workprec(160):
        truth = int(acceptance(strips, strip, x) * 2**18)
    stream = low << 64 - law.length
    rows = []
    for v in (truth - 2**26, truth + 2**26):
        rows += [(v >> 32 << 16 | cell, v % 2**32, stream >> 32, stream % 2**32)] * 20
    words = np.array(rows, np.uint64).T
    draws = law._finish(words, np.zeros(40, bool)).tolist()
    size = math.floor(x + F(1, 2))
    assert draws[:20] == [size] * 20
    assert draws[20:].count(size) < 5


def square_of(law):
    return mpmath.mpf(law.sigma_squared.numerator) / law.sigma_squared.denominator


@pytest.mark.parametrize(("sigma_squared", "rounded"), STRIPS)
def test_the_first_words_of_strips_at_their_ends(kernel, sigma_squared, rounded):
    import word_kernels

    law = strips_of(sigma_squared, rounded)
    cells = [0, 1, 2**15 - 1, *range(5, 2**15, 2**11)]
    rows = [(0,) * 4, (2**32 - 1,) * 4]
    for cell in cells:
        sure = int(law.guide[cell]) & 0xFFFF
        for first in {0, max(sure - 1, 0), sure, min(sure + 1, 2**16 - 1), 2**16 - 1}:
            word = first << 16 | cell
            rows += [(w, 0xFFFF0000, 0x80000000, 1) for w in (word, word | 1 << 15)]
    words = torch.stack([signed([row[i] for row in rows]) for i in range(law.words)])
    draws = tensor_operations.strip_draws(words, law)
    assert draws.tolist() == [reference_strip(row[: law.words], law) for row in rows]
    taken, n = padded(words)
    out = torch.zeros(n, dtype=torch.int64)
    word_kernels.strips[(1,)](out, taken, law.guide, law.settings, law.words, law.is_discrete, N=n)
    assert torch.equal(out[: len(rows)], draws)


class Undecided:
    """An engine that leaves everything open, with the words of a keystream."""

    KEY_DRAWS = 10**6

    @staticmethod
    def draw_strips(out, key, law):
        words = tensor_operations.words_of(key, out.numel(), 4)
        out.copy_((words[0].to(torch.int64) & 0xFFFFFFFF) + OPEN_DRAW)

    @staticmethod
    def decide_strips(out, places, key, law):
        state = tensor_operations.words_of(key, places.numel(), 4)
        state[0] = out[places].to(torch.int32)
        out[places] = OPEN_DRAW
        return state


@pytest.mark.parametrize(("sigma_squared", "rounded"), STRIPS)
def test_open_proposals_are_finished_on_the_host_with_their_law(sigma_squared, rounded):
    out = torch.empty(40_000, dtype=torch.int64)
    tensor_noise.draw(out, strips_of(sigma_squared, rounded), Undecided)
    scale = math.sqrt(sigma_squared)
    assert_law(out.numpy(), np.concatenate([[-np.inf], edges(scale), [np.inf]]), scale)


def assert_law(draws, edges, sigma):
    """Chi-square of counts between edges, which are halves, against a normal law.

    A discrete Gaussian of sigma above 100 has these probabilities to 1e-3 of what n draws can tell.
    """
    exact = np.diff(norm.cdf(edges / sigma))
    counts = np.histogram(draws, edges)[0]
    expected = exact * len(draws)
    assert expected.min() > 5
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, len(exact) - 1) > ALARM


SAMPLERS = [
    ("discrete_gaussian", F(1)),
    ("discrete_gaussian", F(100)),
    ("discrete_gaussian", F(200**2)),
    ("discrete_laplace", F(10)),
    ("rounded_gaussian", F(4)),
    ("rounded_gaussian", F(100**2)),
    ("rounded_gaussian", F(10**12)),
    ("rounded_gaussian", F(2**90)),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("law", "parameter"), SAMPLERS)
def test_counts_of_draws_on_a_device(law, parameter, device):
    """Chi-square with 24 or more cells. A right sampler fails once in a million runs."""
    n = 200_000
    out = torch.empty(n, dtype=torch.int64, device=device)
    if device == "cpu":
        tensor_noise.draw(out, tensor_noise.tensors(law, parameter, CPU), tensor_operations)
    else:
        getattr(noise, law)(parameter, n, out=out)
    draws = out.cpu().numpy()
    scale = math.sqrt(parameter) if law != "discrete_laplace" else int(parameter)
    if scale > 150:
        assert_law(draws, np.concatenate([[-np.inf], edges(scale), [np.inf]]), scale)
        return
    with mpmath.workprec(100):
        below = [float(p) for p in cumulative(law, scale, 100 if scale < 50 else 600)]
    reach = next(k for k, p in enumerate(below) if (1 - p) * n < 100)
    magnitudes = np.diff(below[: reach + 1])
    sides = [*(magnitudes[:0:-1] / 2), magnitudes[0], *(magnitudes[1:] / 2)]
    exact = np.array([*sides, 1 - sum(sides)])
    counts = [np.count_nonzero(draws == k) for k in range(1 - reach, reach)]
    expected = exact * n
    statistic = float(((np.array([*counts, n - sum(counts)]) - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, len(exact) - 1) > ALARM


def edges(scale):
    """Halves of whole numbers, where a 40th part of the distribution is between two."""
    return np.floor(norm.ppf(np.arange(1, 40) / 40) * scale) + 0.5


def test_no_two_launches_share_a_key_nor_do_two_processes(monkeypatch):
    keys = []

    def recorded(n, urandom=os.urandom):
        keys.append(urandom(n))
        return keys[-1]

    monkeypatch.setattr(os, "urandom", recorded)
    monkeypatch.setattr(tensor_operations, "KEY_DRAWS", 1000)
    table = TableTensors(rounded_table(F(1)), CPU)
    strips = strips_of(F(10**6), rounded=True)
    out = torch.empty(4500, dtype=torch.int64)
    read, write = os.pipe()
    child = os.fork()
    tensor_noise.draw(out, table, tensor_operations)
    assert len(keys) >= 5  # and those of open words
    tensor_noise.draw(out, strips, tensor_operations)
    if not child:
        os.write(write, b"".join(key[:32] for key in keys))
        os._exit(0)
    os.close(write)
    theirs = os.read(read, 65536)
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
    others = [theirs[i : i + 32] for i in range(0, len(theirs), 32)]
    assert len(others) >= 15 <= len(keys)
    assert len(set(others) | set(keys)) == len(others) + len(keys)


def test_a_key_is_wiped_after_its_launch(monkeypatch):
    keys = []
    monkeypatch.setattr(
        tensor_laws, "new_key", lambda device: keys.append(signed([7] * 8)) or keys[-1]
    )
    strips_of(F(10**6), rounded=True).fill(torch.empty(2000, dtype=torch.int64), tensor_operations)
    assert len(keys) == 2
    assert not any(key.any() for key in keys)


@pytest.mark.parametrize("law", ["discrete_gaussian", "discrete_laplace", "rounded_gaussian"])
@pytest.mark.parametrize("parameter", [3, 50_000])
def test_a_tensor_on_a_cpu_is_filled_like_its_array(law, parameter):
    sampler, n = getattr(noise, law), 12_000
    array = sampler(F(parameter), n, Seeded(4))
    tensor = torch.empty(n, dtype=torch.int64)
    view = tensor.numpy()
    assert sampler(F(parameter), n, Seeded(4), out=tensor) is tensor
    assert (view == array).all()
    sampler(F(parameter), n, out=tensor)
    assert (view != array).any()


BAD = [
    (torch.empty(5), TypeError, r"torch\.float32, and must be one of torch\.int64"),
    (torch.empty(5, requires_grad=True), TypeError, r"torch\.int64"),
    (torch.empty(5, dtype=torch.int32), TypeError, r"torch\.int32"),
    (torch.empty(4, dtype=torch.int64), ValueError, r"shape \(4,\).*\(5,\)"),
    (torch.empty((5, 1), dtype=torch.int64), ValueError, r"view\(-1\)"),
    (torch.empty(10, dtype=torch.int64)[::2], ValueError, "contiguous"),
    (torch.zeros(1, dtype=torch.int64).expand(5), ValueError, "contiguous"),
    (torch.zeros(5, dtype=torch.int64).to_sparse(), ValueError, "contiguous"),
]


@pytest.mark.parametrize(("out", "error", "message"), BAD)
def test_another_tensor_is_refused_with_what_is_valid(out, error, message):
    with pytest.raises(error, match=message):
        noise.rounded_gaussian(F(4), 5, out=out)


def test_a_tensor_has_no_seed():
    with pytest.raises(TypeError, match=r"must be a neyman.noise.Bits"):
        noise.rounded_gaussian(F(4), 5, 3, out=torch.empty(5, dtype=torch.int64))


@pytest.mark.parametrize("parameter", [F(4), F(10**6)])
def test_a_kernel_that_differs_draws_nothing(parameter, kernel, monkeypatch):
    monkeypatch.setattr(tensor_noise, "LIMITS", replace(tensor_noise.LIMITS, trial_draws=600))
    tensor_noise.law_and_engine.cache_clear()
    assert tensor_noise.law_and_engine("rounded_gaussian", parameter, CPU)[1] is kernel
    name = "draw_table" if parameter == 4 else "decide_strips"
    right = getattr(kernel, name)

    def wrong(out, *rest):
        result = right(out, *rest)
        out[out.numel() // 2] ^= 1
        return result

    tensor_noise.law_and_engine.cache_clear()
    monkeypatch.setattr(kernel, name, wrong)
    with pytest.raises(RuntimeError, match="make other draws"):
        tensor_noise.law_and_engine("rounded_gaussian", parameter, CPU)


def test_without_a_compiler_operations_draw(kernel, monkeypatch):
    def broken(*_):
        raise OSError("no compiler")

    monkeypatch.setattr(kernel, "draw_table", broken)
    tensor_noise.law_and_engine.cache_clear()
    with pytest.warns(RuntimeWarning, match="no compiler"):
        engine = tensor_noise.law_and_engine("rounded_gaussian", F(4), CPU)[1]
    assert engine is tensor_operations


COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from neyman.noise import triton_kernel as kernels

wide = "out places starts settings".split()
for kernel, constants in (
    (kernels._table_kernel, {}),
    (kernels._strip_kernel, {"N": 2, "IS_DISCRETE": False}),
    (kernels._decision_kernel, {"IS_DISCRETE": True}),
):
    constants["BLOCKS"] = 128
    names = [n for n in kernel.arg_names if n not in constants]
    types = {n: "i32" if n in ("size", "step") else "*i64" if n in wide else "*i32" for n in names}
    source = ASTSource(kernel, types | dict.fromkeys(constants, "constexpr"), constants)
    code = compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    body = code[code.index("{"):]
    print(kernel.__name__, "rn" in body, any(t in body for t in (".f16", ".f32", ".f64", ".bf16")))
"""


def test_kernels_compile_to_code_without_floating_point(tmp_path):
    if tensor_noise.triton_kernel is None:
        pytest.skip("needs triton")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-W", "ignore", "-c", COMPILE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["False"] * 3


def test_importing_noise_does_not_import_torch():
    code = "import sys, neyman.noise; print('torch' in sys.modules, 'triton' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
