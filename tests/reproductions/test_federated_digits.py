"""Ten clients on digits: the simulation repeats the stored counts, and noise costs accuracy."""

from __future__ import annotations

import json

import pytest

from reproductions.federated import simulation as study

pytestmark = pytest.mark.needs("release")
OTHER_SUMS = 6  # test rows of 360 that another order of floating-point sums may move


def test_the_simulation_repeats_the_stored_counts():
    stored = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    assert set(stored) == set(study.ARMS)
    for arm, sigma in study.ARMS.items():
        right, rows = study.correct(sigma, 0)
        assert rows == stored[arm][0][1] == 360
        assert abs(right - stored[arm][0][0]) <= OTHER_SUMS
    means = [sum(right for right, _ in counts) / len(counts) for counts in stored.values()]
    assert means[0] > 0.9 * 360
    assert 0.8 * 360 < means[1] < means[0]
