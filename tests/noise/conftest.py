"""Sources of bits that tests can repeat; nothing like them exists outside the tests."""

import numpy as np
import pytest

from neyman.noise import Bits


class InjectedBits(Bits):
    """Words of a seeded generator, after those that a test prescribes."""

    def __init__(self, seed, first=()):
        self.generator = np.random.Philox(seed)
        self.first = list(first)

    def words(self, n):
        prescribed, self.first = self.first[:n], self.first[n:]
        rest = self.generator.random_raw(n - len(prescribed))
        return np.concatenate([np.array(prescribed, np.uint64), rest])


@pytest.fixture(scope="session")
def injected():
    return InjectedBits
