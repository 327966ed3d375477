"""Canary gradients refute four broken training loops, and accuse no correct one."""

from __future__ import annotations

import os
from functools import partial
from itertools import count

import numpy as np
import pytest

import neyman as ny
from canary_scores import CLAIM, LEVEL, MIDDLE, ROWS, SIGMA, of_canary, of_noise, scores

LARGE = int(os.environ.get("NEYMAN_AUDITS", "2000")) > 2000
NAMES = count()


def no_noise(run):
    return run(mechanism=DPSGD(sigma=0.05))


def half_the_noise(run):
    return run(mechanism=DPSGD(sigma=SIGMA / 2))


def no_clipping(run):
    """The same noise in rows that are cut at a norm that none of them has."""
    return run(mechanism=DPSGD(sigma=SIGMA / 20), clip=20)


def realized_batch(run):
    """Divide by the number of rows that were drawn: the sum and the noise shrink with it."""
    batch = set()
    return run(batch=batch) * ROWS / max(len(batch), 1)


def DPSGD(sigma):
    return ny.DPSGD(n=ROWS, batch=ROWS, sigma=sigma, epochs=1)


@pytest.fixture
def trained(tmp_path):
    """Return a function from canaries and a fault to the parameters of a training."""
    book = ny.throwaway(10**6, currency="renyi:8")
    for relation in ("add-remove", "replace-one"):
        book.register(f"{relation}@1", protects="row", neighboring=relation, rows=1)

    def run(canaries, mechanism=CLAIM, clip=1, batch=None):
        name = f"run{next(NAMES)}"
        given = canaries.join(lambda w, rows: np.full((len(rows), 2), 0.1), start=[0, 0], rows=ROWS)
        gradient = given.pop("gradient")

        def watched(parameters, rows):
            if batch is not None:
                batch.update(rows.tolist())
            return gradient(parameters, rows)

        return ny.train(
            watched,
            **given,
            mechanism=mechanism,
            clip=clip,
            step_size=1,
            ledger=book,
            dataset=f"{canaries.neighboring}@1",
            out=tmp_path / name,
            name=name,
            piece=64,
        ).parameters

    def with_fault(canaries, fault=None, **more):
        loop = partial(run, canaries, **more)
        return fault(loop) if fault else loop()

    return with_fault


@pytest.mark.parametrize(
    ("fault", "runs", "score", "threshold"),
    [
        (no_noise, 12, of_canary, MIDDLE),
        (no_clipping, 20, of_canary, 10 * MIDDLE),
        (realized_batch, 40, of_noise, LEVEL),
        (half_the_noise, 200, of_canary, MIDDLE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_loop_is_refuted_by_many_runs(fault, runs, score, threshold, trained):
    broken = partial(trained, fault=fault)
    shown = ny.audit.scores(*scores(broken, runs, score), threshold=threshold)
    assert shown.refutes(CLAIM), shown


@pytest.mark.parametrize(
    ("score", "threshold"), [(of_canary, MIDDLE), (of_noise, LEVEL)], ids=["canary", "noise"]
)
def test_the_loop_is_not_accused(score, threshold, trained):
    sides = scores(trained, 1000 if LARGE else 60, score)
    for at in (threshold, "all"):
        shown = ny.audit.scores(*sides, threshold=at, confidence="0.9999999")
        assert not shown.refutes(CLAIM), shown
        assert not shown.refutes(ny.gdp(1 / SIGMA))


def test_one_run_with_many_canaries_refutes_what_shows_in_each_of_them(trained):
    canaries = ny.audit.canaries(200, norm=10)
    assert not canaries.one_run(trained(canaries), confidence="0.9999999").refutes(CLAIM)
    # 60 of 200 coins or more fall on each side but once in 10^7 times, so 120 guesses can be right.
    for fault, guesses in [(no_noise, 120), (no_clipping, 120), (half_the_noise, None)]:
        shown = canaries.one_run(trained(canaries, fault), guesses=guesses)
        assert shown.refutes(CLAIM) == bool(guesses), shown
        assert shown.neighboring == "add-remove"


def test_a_search_learns_the_score_and_the_threshold(trained):
    def run(inserted):
        canaries = ny.audit.canaries(norm=10, inserted=inserted)
        parameters = trained(canaries, no_noise)
        return [of_canary(canaries, parameters), of_noise(canaries, parameters)]

    assert ny.audit.search(run, True, False, claim=CLAIM, runs=60, seed=1).refuted


def test_opposite_canaries_audit_a_mechanism_of_replace_one(trained):
    claim = ny.DPSGD(n=ROWS + 100, batch=ROWS + 100, sigma=1, epochs=1, sampling="fixed")
    canaries = ny.audit.canaries(100, norm=10, neighboring="replace-one")
    assert canaries.rows == 100
    assert (np.abs(canaries.gradients()).sum(axis=1) == 10).all()
    shown = canaries.one_run(trained(canaries, mechanism=claim), confidence="0.9999999")
    assert not shown.refutes(claim)
    with pytest.raises(ValueError, match="relation"):
        shown.refutes(CLAIM)
    silent = ny.DPSGD(n=ROWS + 100, batch=ROWS + 100, sigma=0.05, epochs=1, sampling="fixed")
    parameters = trained(canaries, mechanism=silent)
    assert canaries.one_run(parameters, guesses=44).refutes(claim)


def test_canaries_do_not_touch_the_model():
    canaries = ny.audit.canaries(3, norm=5, inserted=[True, False, True], silent=2)
    joined = canaries.join(lambda w, rows: np.outer(rows, w), start=[1.0, 2.0], rows=4)
    assert joined["rows"] == 6
    values = joined["gradient"](joined["start"], np.array([1, 3, 4, 5]))
    assert (values[:2, :2] == [[1, 2], [3, 6]]).all()
    assert not values[:2, 2:].any()
    assert not values[2:, :2].any()
    assert (values[2:, 2:] == canaries.gradients()).all()
    assert (canaries.gradients([1]) == [[0, 0, 5, 0, 0]]).all()


def test_what_is_no_canary_is_refused():
    for name, bad in [
        ("count", 0), ("count", 10**6), ("count", 1.5), ("silent", -1), ("silent", True),
        ("norm", 0), ("norm", np.nan), ("norm", "1"), ("inserted", [1]), ("inserted", [True] * 2),
        ("inserted", "yes"), ("neighboring", "any"),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=name):
            ny.audit.canaries(**{"norm": 1, name: bad})
    canaries = ny.audit.canaries(2, norm=1, inserted=True, silent=0)
    with pytest.raises(ValueError, match="inserted was given"):
        canaries.one_run([0, 0])
    with pytest.raises(ValueError, match="silent = 0"):
        canaries.noise_score([0, 0])
    for bad in ([0], [np.nan, 0], [np.inf, 0], "x", None):
        with pytest.raises((TypeError, ValueError), match="parameters"):
            canaries.scores(bad)
    for bad in ([2], [-1], [0.5], "x", [[0]], 0):
        with pytest.raises(ValueError, match="rows"):
            canaries.gradients(bad)
    assert canaries.gradients([]).shape == (0, 2)
    for bad in ("x", [np.nan], [np.inf], {}):
        with pytest.raises((TypeError, ValueError), match="start"):
            canaries.join(lambda w, rows: w, start=bad, rows=4)
    with pytest.raises(TypeError, match="gradient = 1"):
        canaries.join(1, start=[0], rows=4)
    wrong = canaries.join(lambda w, rows: np.zeros(3), start=[0], rows=4)
    with pytest.raises(ValueError, match="one gradient per row"):
        wrong["gradient"](wrong["start"], np.array([0]))
    fair = ny.audit.canaries(9, norm=1)
    for bad in (0, 3, 10, 2.5, "2"):
        with pytest.raises((TypeError, ValueError), match="guesses"):
            fair.one_run(np.zeros(209), guesses=bad)
    assert fair.one_run(np.zeros(209)).guesses == 8
    assert fair.noise_score(np.zeros(209)) > 100
    with pytest.raises(ValueError, match="guesses = None"):
        ny.audit.canaries(1, norm=1).one_run(np.zeros(201))
