"""Bits that tests can repeat; nothing like them exists outside the tests."""

import numpy as np

from neyman.noise import Bits


class Seeded(Bits):
    """Words of a seeded generator."""

    def __init__(self, seed):
        self.generator = np.random.Philox(seed)

    def words(self, n):
        """So many."""
        return np.atleast_1d(self.generator.random_raw(n)).astype(np.uint64)


class Prescribed(Seeded):
    """Words of a seeded generator, after those that a test prescribes."""

    def __init__(self, seed, first=()):
        super().__init__(seed)
        self.first = list(first)

    def words(self, n):
        """Those first, and then others."""
        prescribed, self.first = self.first[:n], self.first[n:]
        rest = super().words(n - len(prescribed))
        return np.concatenate([np.array(prescribed, np.uint64), rest])
