"""Define the loss without privacy: every outcome distinguishes the two hypotheses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman.curves.losses.loss import Part
from neyman.numerics.arrays import Array


@dataclass(frozen=True)
class NonPrivateLoss(Part):
    """Represent the non-private pair, L = inf almost surely. It absorbs all other losses."""

    @property
    def infinite(self) -> float:
        return 1.0

    @property
    def supremum(self) -> Fraction:
        """Return 0, so that sums stay finite: there is no finite loss."""
        return Fraction(0)

    def reverse(self) -> NonPrivateLoss:
        return self

    def log_mgf(self, z: Array) -> Array:
        """Return -inf: no outcome has a finite loss."""
        return np.full(np.shape(z), -math.inf)

    def mgf_rounding(self, z: Array) -> Array:
        return np.zeros(np.shape(z))

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return np.full(np.shape(tilts), -math.inf), np.zeros(len(tilts)), np.zeros(len(tilts))
