"""The attack of the training page: a small sample of it, and what its stored counts show."""

import numpy as np
import pytest

from reproductions.dp_sgd import canary_attack as attack
from reproductions.dp_sgd import canary_section as section

pytestmark = pytest.mark.needs("release")


def test_the_attack_stays_below_the_certified_power():
    """At each epoch; its lower bound rises, and its rate of true positives is near the limit."""
    runs, missed = section.counted()["runs"], section.counted()["missed"]
    for shown, (power, epsilon) in zip(section.evidence(), section.certified(), strict=True):
        assert attack.LEVEL <= shown.power_at_least(attack.LEVEL) < power
        assert shown.epsilon(section.DELTA) < epsilon
    assert not section.evidence()[-1].refutes(attack.MECHANISM)
    assert section.evidence()[-1].power_at_least(attack.LEVEL) > 1.5 * attack.LEVEL
    deviation = (section.certified()[-1][0] / runs) ** 0.5
    assert abs(1 - missed[-1] / runs - section.certified()[-1][0]) < 5 * deviation


def test_a_sample_of_the_attack_runs(monkeypatch):
    """Two epochs of the training, and the noisy sums of one canary."""
    monkeypatch.setattr(attack, "MECHANISM", attack.after(2))
    monkeypatch.setattr(attack, "EPOCHS", (1, 2))
    counts = attack.counts(2)
    assert counts["runs"] == 2
    assert all(0 <= count <= 2 for count in (*counts["missed"], *counts["alarms"]))
    sums = np.zeros((3, attack.MECHANISM.steps))
    assert attack.scores(sums).shape == (3, 2)
    assert (attack.scores(sums + 5) > attack.scores(sums)).all()
