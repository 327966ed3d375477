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
