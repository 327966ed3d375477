"""A filter per person: sums are those of an exact book, and no text has an amount of it."""

import copy
import logging
import os
import pickle
import signal
import sys
import threading
import traceback
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.accounting import PersonalFilter
from seeded import Seeded

SECRET = 4937  # the square of a person's vector, in no public value


def total(steps: PersonalFilter, vectors: Any) -> np.ndarray:
    """The sum without its noise: the same bits and no person give the noise alone."""
    noisy = steps.step(vectors, Seeded(3))
    empty = PersonalFilter(budget=1, sigma=steps.sigma, people=0)
    return noisy - empty.step(np.zeros((0, noisy.size), int), Seeded(3))


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=4), min_size=1, max_size=8),
    st.integers(1, 300),
)
def test_a_person_takes_part_while_the_exact_sum_of_costs_fits(numbers, cap):
    sigma = 7
    steps = PersonalFilter(budget=Fraction(cap, 2 * sigma**2), sigma=sigma, people=2)
    used = [0, 0]
    for a, b, c, d in numbers:
        expected = np.zeros(2, int)
        for i, vector in enumerate(((a, b), (c, d))):
            cost = sum(x * x for x in vector)
            if used[i] + cost <= cap:
                used[i] += cost
                expected += vector
        assert np.array_equal(total(steps, np.array([[a, b], [c, d]])), expected)
    assert max(used) <= cap


def test_without_one_person_the_others_are_where_they_were():
    rows = np.random.default_rng(0).integers(-20, 20, (30, 5, 3))
    both = PersonalFilter(budget=4, sigma=10, people=5)
    without = PersonalFilter(budget=4, sigma=10, people=4)
    moved = 0
    for vectors in rows:
        shift = total(both, vectors) - total(without, vectors[1:])
        assert not shift.any() or np.array_equal(shift, vectors[0])
        moved += int(shift @ shift)
    assert Fraction(moved, 200) <= 4
    assert float(both.tradeoff().zcdp()) == pytest.approx(4)
    assert both.tradeoff().neighboring == "add-remove"


def test_vectors_beyond_the_range_are_left_out_without_a_word():
    steps = PersonalFilter(budget=10**17, sigma=1, people=3)
    far = np.array([[2**63, 0], [2**20, 2**20], [1, 1]], np.uint64)
    assert np.array_equal(total(steps, far), [2**20 + 1, 2**20 + 1])
    near = np.array([[-(2**63), 0], [2**20, -(2**20)], [1, 1]])
    assert np.array_equal(total(steps, near), [2**20 + 1, 1 - 2**20])


def test_no_text_copy_or_error_has_an_amount(caplog):
    caplog.set_level(logging.DEBUG)
    steps = PersonalFilter(budget="1/2", sigma=100, people=2)
    steps.step(np.array([[64, 29], [0, 0]]))  # 64^2 + 29^2 = 4937 of at most 10,000
    steps.step(np.array([[64, 29], [0, 0]]))
    steps.step(np.array([[64, 29], [0, 0]]))  # does not fit any more
    texts = [repr(steps), str(steps), f"{steps}", repr(dir(steps)), repr(steps._secret)]
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret") as error:
            refused(steps)
        texts.append("".join(traceback.format_exception(error.value)))
    bad: list[Any] = [[[64, 29]], [[64.5, 29], [0, 0]], [64, 29], [["64", "29"], ["0", "0"]]]
    bad += [np.array(x) for x in bad]
    for vectors in bad:
        with pytest.raises((TypeError, ValueError)) as error:
            steps.step(vectors)
        texts.append(str(error.value))
    texts += [record.getMessage() for record in caplog.records]
    texts += [repr(getattr(steps, name)) for name in steps.__slots__]
    for text in texts:
        for amount in (SECRET, 2 * SECRET, Fraction(SECRET, 20_000), SECRET / 20_000):
            assert str(amount) not in text, text
    assert not hasattr(steps, "__dict__")
    assert not hasattr(steps._secret, "__dict__")


def one_step():
    """A filter whose only person can pay for one of these steps, and no second one."""
    return PersonalFilter(budget=Fraction(1, 2), sigma=50, people=1), np.array([[30, 40]])


def test_threads_pay_once_between_them():
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            steps = PersonalFilter(budget=0.5, sigma=50, people=50_000)
            vectors = np.tile([30, 40], (50_000, 1))
            start, sums = threading.Barrier(4), []

            def run(steps=steps, vectors=vectors, start=start, sums=sums):
                start.wait()
                sums.append(steps.step(vectors))

            threads = [threading.Thread(target=run) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            full = [x for x in sums if x[1] > 1_000_000]  # 2,000,000, or noise alone
            assert len(sums) == 4
            assert len(full) == 1
    finally:
        sys.setswitchinterval(switch)


def in_a_child(act):
    """The text of the error of ``act`` in a forked child, or that there was none."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        text = "no error"
        try:
            signal.alarm(60)  # of a child that waits for a lock
            act()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, text.encode())
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@forks
def test_a_forked_child_is_refused_and_the_parent_pays_on():
    steps, vectors = one_step()
    text = in_a_child(lambda: steps.step(vectors))
    assert text.startswith("RuntimeError: this PersonalFilter was made in another process")
    assert np.array_equal(total(steps, vectors), [30, 40])
    assert in_a_child(lambda: one_step()[0].step(vectors)) == "no error"


@pytest.mark.needs("release")
@forks
def test_a_child_with_the_same_process_id_is_refused(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    steps, vectors = one_step()
    assert in_a_child(lambda: steps.step(vectors)).startswith("RuntimeError")


@pytest.mark.needs("release")
@forks
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_during_a_step_is_refused_and_does_not_wait():
    steps, vectors = one_step()
    inside, go = threading.Event(), threading.Event()

    class Slow(Seeded):
        def words(self, n):
            inside.set()
            assert go.wait(60)
            return super().words(n)

    thread = threading.Thread(target=steps.step, args=(vectors, Slow(1)))
    thread.start()
    assert inside.wait(60)
    text = in_a_child(lambda: steps.step(vectors))
    go.set()
    thread.join()
    assert text.startswith("RuntimeError")
    assert np.array_equal(total(steps, vectors), [0, 0])  # the thread has paid


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, ">i4", np.int64, np.uint64])
def test_no_number_of_an_integer_dtype_raises_an_error(dtype):
    limits = np.iinfo(dtype)
    for number in {int(limits.min), int(limits.max), 0}:
        steps = PersonalFilter(budget=10**17, sigma=1, people=2)
        vectors = np.array([[number, 1], [3, 4]], dtype)
        expected = [3 + number, 5] if abs(number) <= 2**20 else [3, 4]
        assert np.array_equal(total(steps, vectors), expected)
        assert vectors[0, 0] == number


def test_other_types_are_refused_by_their_type_whatever_they_hold():
    steps = PersonalFilter(budget=0.5, sigma=50, people=2)
    contents: list[Any] = [[[x, -1], [3, 4]] for x in (1, 2**62, 2**63, 2**64, 1.5, "x", None)]
    contents += [[[1, 2], [3]], [[1], [2]], []]
    texts = set()
    for vectors in contents:
        with pytest.raises(TypeError, match="vectors is a list and must be a NumPy") as error:
            steps.step(vectors)
        texts.add(str(error.value))
    assert len(texts) == 1
    with pytest.raises(TypeError, match="MaskedArray"):
        steps.step(np.ma.array([[1, 2], [3, 4]]))
    with pytest.raises(TypeError, match="dtype object"):
        steps.step(np.array([[2**64, 2], [3, 4]]))


def test_what_is_refused_costs_nothing():
    class Broken(Seeded):
        def words(self, n):
            raise OSError("no entropy")

    steps, vectors = one_step()
    wrong: Any
    for wrong in (5, 0, "", [], np.random.default_rng(0), Broken(1)):
        with pytest.raises((TypeError, OSError)):
            steps.step(vectors, wrong)
    for wrong in (np.zeros((1, 0), int), np.zeros((2, 1), int), np.zeros(1, int), vectors / 1):
        with pytest.raises((TypeError, ValueError), match="vectors"):
            steps.step(wrong)
    assert np.array_equal(total(steps, vectors), [30, 40])
    assert np.array_equal(total(steps, vectors), [0, 0])


def test_the_largest_sigma_draws():
    steps = PersonalFilter(budget=1, sigma=2**53 - 1, people=1)
    assert steps.step(np.ones((1, 2), int)).shape == (2,)


def test_nothing_changes_after_it_is_made():
    steps, vectors = one_step()
    steps.step(vectors)
    untyped: Any = steps
    for name, value in (("budget", 9), ("sigma", 1), ("people", 2), ("_secret", None), ("new", 1)):
        with pytest.raises(AttributeError, match=name):
            setattr(untyped, name, value)
        with pytest.raises(AttributeError, match=name):
            delattr(untyped, name)
    with pytest.raises(TypeError, match="make a new PersonalFilter"):
        untyped.__init__(budget=1, sigma=50, people=1)
    assert (steps.budget, steps.sigma, steps.people) == (Fraction(1, 2), 50, 1)
    assert np.array_equal(total(steps, vectors), [0, 0])
