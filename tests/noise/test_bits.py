"""Secure bits: never the same keystream twice, whoever asks and wherever."""

import copy
import inspect
import math
import pickle
import subprocess
import sys
import threading
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import neyman as ny
from neyman.noise import Bits, SecureBits, discrete_gaussian, discrete_laplace, rounded_gaussian

KEY_WORDS = 1 << 16  # words for each key


def test_words_have_the_shape_and_type_asked_for():
    for n in (0, 1, 2, KEY_WORDS - 1, KEY_WORDS, KEY_WORDS + 1, 3 * KEY_WORDS + 5):
        words = SecureBits().words(n)
        assert words.shape == (n,)
        assert words.dtype == np.uint64


def test_no_word_comes_twice_within_and_across_chunks_calls_and_instances():
    # Among m independent words a repetition has probability below m^2 / 2^65 < 1e-7.
    one, other = SecureBits(), SecureBits()
    words = np.concatenate([one.words(5 * KEY_WORDS + 3), one.words(7), other.words(3 * KEY_WORDS)])
    assert np.unique(words).size == words.size


def test_each_bit_is_fair():
    # 64 bits, two sides each, Hoeffding: false alarm 128 exp(-2 n d^2) = 1e-6.
    n = 1 << 20
    words = SecureBits().words(n)
    allowed = np.sqrt(np.log(128 / 1e-6) / (2 * n))
    for bit in range(64):
        share = np.mean(words >> np.uint64(bit) & np.uint64(1))
        assert abs(share - 0.5) < allowed


def test_threads_that_share_an_instance_share_no_words():
    bits, draws = SecureBits(), []
    threads = [
        threading.Thread(target=lambda: draws.append(bits.words(2 * KEY_WORDS + 1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = np.concatenate(draws)
    assert words.size == 4 * (2 * KEY_WORDS + 1)
    assert np.unique(words).size == words.size


FORK = """
import os
from fractions import Fraction
from neyman.noise import SecureBits, discrete_gaussian
bits = SecureBits()
bits.words(3)
discrete_gaussian(Fraction(10**6), 3, bits)  # the table is made before the fork
draw = lambda: bits.words(8).tobytes() + discrete_gaussian(Fraction(10**6), 24, bits).tobytes()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, draw())
    os._exit(0)
mine = draw()
os.waitpid(child, 0)
theirs = os.read(reader, 256)
words = {part[i : i + 8] for part in (mine, theirs) for i in range(0, 64, 8)}
same = sum(mine[i : i + 8] == theirs[i : i + 8] for i in range(64, 256, 8))
print(len(theirs), len(words), same < 6)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_both_sides_of_a_fork_draw_different_words_and_noise():
    # Noise of sigma 1000 agrees with probability 3e-4 a draw, so six times in 24 below 1e-15.
    # In a process of its own, because a test run may have threads, which forks do not survive.
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["256", "16", "True"]


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_and_copying_are_refused_with_advice(duplicate):
    with pytest.raises(TypeError, match=r"make a new SecureBits\(\)"):
        duplicate(SecureBits())


def test_there_is_no_seed():
    assert not inspect.signature(SecureBits).parameters
    with pytest.raises(TypeError):
        SecureBits(seed=1)  # pyright: ignore[reportCallIssue] what is tested


def test_a_missing_cryptography_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(ImportError, match=r"pip install 'neyman\[release\]'"):
        SecureBits()


def test_importing_the_folder_does_not_import_cryptography():
    code = "import sys, neyman.noise; print('cryptography' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_bits_is_abstract():
    with pytest.raises(TypeError):
        Bits()  # pyright: ignore[reportAbstractUsage] what is tested


def refused():
    """Calls of the package, and the words of their refusals."""
    draws = (discrete_gaussian, "sigma_squared"), (discrete_laplace, "scale")
    for draw, name in (*draws, (rounded_gaussian, "sigma_squared")):
        for wrong in (0.5, math.nan, math.inf, np.float64(2), "1/2", True, None, 1j):
            yield partial(draw, wrong, 3, SecureBits()), f"{name} = "
        for wrong in (0, -1, Fraction(-1, 3), 10**33):
            yield partial(draw, wrong, 3, SecureBits()), f"{name} = "
        yield partial(draw, 1, -1, SecureBits()), "size = -1"
        yield partial(draw, 1, 2.0, SecureBits()), "size = "
        for bits in (None, 3, np.random.default_rng(0)):  # a seed can be guessed
            yield partial(draw, 1, 3, bits), r"bits is a .*SecureBits"
    yield partial(rounded_gaussian, 2**106, 1, SecureBits()), "sigma_squared"
    yield partial(SecureBits().words, -1), "n = -1"
    yield partial(SecureBits().words, 2.5), r"n = 2\.5"
    for step in (0, -1, math.nan, "x"):
        yield partial(ny.Staircase(1).draw, 3, step=step), "step"
    rough = ny.smooth_sensitivity.median([1, 2, 3], lower=0, upper=9, smoothness=0.2)
    noise = ny.SmoothNoise("student", degrees=3, smoothness=0.1, scale=0.3)
    yield partial(noise.draw, rough, step=1), "smoothness"


def test_what_cannot_be_drawn_is_refused_by_name():
    for call, words in refused():
        with pytest.raises((TypeError, ValueError), match=words):
            call()
