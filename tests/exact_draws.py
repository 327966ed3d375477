"""A test of counts against exact probabilities, with false alarms rarer than one in a million."""

import math

ALARM = 1e-6


def assert_shares(counts, probabilities):
    """Each count is within the Chernoff bound of its cell; all cells together alarm at 1e-6."""
    n = int(sum(counts))
    assert abs(math.fsum(probabilities) - 1) < 1e-9
    allowed = math.log(2 * len(counts) / ALARM)
    for count, p in zip(counts, probabilities, strict=True):
        share, divergence = int(count) / n, 0.0
        for x, y in ((share, p), (1 - share, 1 - p)):
            divergence += x * math.log(x / y) if x else 0.0
        assert n * divergence <= allowed, (count, p * n)
