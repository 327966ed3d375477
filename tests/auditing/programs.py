"""Programs that add noise: ten with a planted fault, and ten without. Each claims what it states.

A dataset is a list of numbers. Neighbors differ by one number that is added.
"""

from __future__ import annotations

import math

import numpy as np

import neyman as ny

RNG = np.random.default_rng(20)
SHORT, LONG = [1, 1, 1], [1, 1, 1, 1]
ONE = ny.Laplace(scale=1)


def laplace(scale=1.0, size=None):
    return RNG.laplace(scale=scale, size=size)


def sensitivity_wrong_by_two(rows):
    """A replaced row moves the sum by 2; the noise is for 1."""
    return 2 * len(rows) + laplace()


def noise_reused_between_cells(rows):
    """Claims two releases; the cells share their noise, so the difference has none."""
    noise = laplace()
    return [len(rows) + noise, 2 + noise]


def fixed_seed(rows):
    return len(rows) + np.random.default_rng(0).laplace()


def threshold_without_noise(rows):
    """A noisy count, shown only if the exact count is at least 4."""
    return {"count": len(rows) + laplace()} if len(rows) >= 4 else {}


def rows_counted_twice(rows):
    """A join repeats each row, and the noise is for one."""
    return sum(rows) + sum(rows) + laplace()


def missing_clip(rows):
    """A sum of rows of at most 1, of which none is cut; the added row is 5."""
    return sum(rows[:3]) + (5 if len(rows) > 3 else 0) + laplace()


def laplace_in_floats(rows):
    """By inversion; which floats can come out depends on the count (Mironov 2012)."""
    uniform = RNG.random() - 0.5
    return len(rows) - 3 - math.copysign(math.log1p(-2 * abs(uniform)), uniform)


def sparse_vector_that_answers_too_often(rows):
    """Noise for one positive answer, and it goes on after the first. Queries move both ways."""
    threshold = 3.5 + laplace(2)
    queries = [len(rows), 7 - len(rows)] * 16
    return [float(query + laplace(4) > threshold) for query in queries]


def empty_cells_without_noise(rows):
    """Cells of no rows stay exactly zero."""
    last = len(rows) - 3
    return [3 + laplace(), last + laplace() if last else 0.0]


def variance_for_deviation(rows):
    """sigma = 4 is meant, and the deviation is its square root."""
    return len(rows) + 2 * RNG.normal()


FAULTY = {
    sensitivity_wrong_by_two: ONE,
    noise_reused_between_cells: ONE * 2,
    fixed_seed: ONE,
    threshold_without_noise: ONE,
    rows_counted_twice: ONE,
    missing_clip: ONE,
    laplace_in_floats: ONE,
    sparse_vector_that_answers_too_often: ny.pure(1),
    empty_cells_without_noise: ONE,
    variance_for_deviation: ny.Gaussian(4),
}


def grid(values):
    """Far coarser than the floats, so that their lowest bits say nothing."""
    return (np.round(np.asarray(values) * 1024) / 1024).tolist()


def two_cells(rows):
    return grid([len(rows) + laplace(), 2 + laplace()])


def rounded_laplace(rows):
    return float(round(len(rows) + laplace()))


def geometric(rows):
    p = 1 - math.exp(-1)
    return len(rows) + int(RNG.geometric(p)) - int(RNG.geometric(p))


def gaussian(rows):
    return grid(len(rows) + RNG.normal())


def vector(rows):
    return grid(len(rows) / 2 + RNG.normal(size=4))


def coin(rows):
    """The last row's answer, by randomized response."""
    truth = len(rows) == 4
    return truth if RNG.random() < math.e / (1 + math.e) else not truth


def noisy_maximum(rows):
    """Only the index, with exponential noise of scale 2."""
    return int(np.argmax(np.array([3, len(rows), 2]) + RNG.exponential(2, size=3)))


def sparse_vector(rows):
    """It stops at its first positive answer."""
    threshold = 3.5 + laplace(2)
    answers = []
    for _ in range(40):
        answers.append(float(len(rows) + laplace(4) > threshold))
        if answers[-1]:
            break
    return answers


def subsampled(rows):
    return grid((RNG.random(len(rows)) < 0.5).sum() + RNG.normal())


def clipped_sum(rows):
    rows = [*rows[:3], *(9 for _ in rows[3:])]
    return grid(sum(min(row, 1) for row in rows) + laplace())


CORRECT = {
    two_cells: ONE,
    rounded_laplace: ONE,
    geometric: ny.DiscreteLaplace(1),
    gaussian: ny.Gaussian(1),
    vector: ny.Gaussian(1),
    coin: ny.RandomizedResponse(1),
    noisy_maximum: ny.pure(1),
    sparse_vector: ny.pure(1),
    subsampled: ny.Gaussian(1).subsample(rate=0.5),
    clipped_sum: ONE,
}

JOINED = {
    "schema": 2,
    "name": "joined",
    "dataset": "clinic@1",
    "table": "visits",
    "where": "day >= date('2020-02-01') or urgent",
    "unit": {"protects": "patient", "neighboring": "add-remove", "id": "patient", "rows": 2},
    "tables": {
        "people": {"id": "id", "join": ["sex"], "duplicates": "drop"},
        "bills": {"rows": 2},
    },
    "columns": {
        "sex": {"keys": ["f", "m"]},
        "paid": {"integer": True},
        "day": {"type": "date"},
        "urgent": {"type": "boolean"},
        "kind": {"type": "text"},
        "cost": {"type": "whole"},
    },
    "derive": {
        "emergency": {"map": "kind", "to": {"a": "yes", "b": "no"}, "unknown": "no"},
        "dear": {"expression": "cost * 2", "range": [0, 50]},
    },
    "lookup": {"desk": {"column": ["sex", "kind"], "keys": [["f", "a", "1"], ["m", "a", "2"]]}},
    "budget": {"zcdp": "2"},
    "query": [
        {"name": "n", "measure": "count", "by": ["desk", "emergency"], "share": "1/4"},
        {"name": "paid", "table": "bills", "measure": "sum", "column": "paid", "clip": [0, 9],
         "share": "1/4"},
        {"name": "cost", "measure": "sum", "column": "dear", "clip": [0, 40], "share": "1/4",
         "where": "kind in ['a', 'c'] and cost > 3"},
        {"name": "people", "table": "people", "measure": "units", "by": ["sex"], "share": "1/4"},
    ],
}  # fmt: skip
