"""Engine selection: the docstring is the rule, and a loss from outside needs no edit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest

from neyman.curves import Composition, Engine, GaussianLoss, Loss, register, select
from neyman.curves.divergences import implied_profile
from neyman.curves.profiles import rules
from neyman.mechanisms.shuffling import shuffled_loss
from neyman.numerics import Discretization


def test_the_docstring_of_select_lists_every_rule_with_its_reason():
    assert implied_profile  # importing it registers its rule, and so does the next one
    assert shuffled_loss
    text = " ".join((select.__doc__ or "").split())
    listed = re.findall(r"- (\d+): (.*?)\.(?= -| A new)", text)
    assert [(int(n), why) for n, why in listed] == [(r.priority, r.reason) for r in rules()]


def test_a_priority_that_is_taken_is_refused():
    with pytest.raises(ValueError, match="priority = 10 is taken"):
        register(10, "something else")(lambda composition: None)


@dataclass(frozen=True)
class Coin(Loss):
    """A loss from outside: a coin with probabilities p and 1 - p under P, swapped under Q."""

    p: float

    @property
    def supremum(self) -> float:
        return math.log(self.p) - math.log1p(-self.p)

    def reverse(self) -> Coin:
        return self

    def _values(self) -> tuple[np.ndarray, np.ndarray]:
        top = self.supremum
        return np.array([-top, top]), np.array([1 - self.p, self.p])

    def log_mgf(self, z):
        value, weight = self._values()
        return np.log(np.exp(np.multiply.outer(z, value)) @ weight)

    def mgf_rounding(self, z):
        return 1e-13 * (1 + np.abs(z))

    def moments(self, tilts):
        value, weight = self._values()
        k = self.log_mgf(tilts)
        tilted = weight * np.exp(np.multiply.outer(tilts, value) - k[:, None])
        mean = tilted @ value
        return k, mean, (tilted * (value - mean[:, None]) ** 2).sum(axis=1)

    def dots(self, tilt: float, step: float) -> Discretization:
        value, weight = self._values()
        scale = float(self.log_mgf(np.array([tilt]))[0])
        return Discretization(value, weight * np.exp(tilt * value - scale), tilt, scale, 0.0, 1e-13)


def test_a_loss_from_outside_gets_an_engine_without_an_edit():
    """The grid holds ten coins that it has never seen; their exact delta is within its bounds."""
    p, count, epsilon = 0.6, 10, 1.0
    profile = select(Composition.of([(Coin(p), count)]))
    assert profile.engine in (Engine.GRID, Engine.CONTOUR)
    top = math.log(p / (1 - p))
    delta = math.fsum(
        math.comb(count, k)
        * p**k
        * (1 - p) ** (count - k)
        * max(0.0, 1 - math.exp(epsilon - (2 * k - count) * top))
        for k in range(count + 1)
    )
    low, high = profile.log_delta(epsilon)
    assert low <= math.log(delta) <= high


def test_the_profile_of_a_composition_is_computed_once():
    composition = Composition.of([(GaussianLoss(1.0), 1)])
    assert select(composition) is select(composition)
