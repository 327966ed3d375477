"""Time exact noise beside floating-point noise, and accountants on one run.

python benchmarks/training.py                # noise per step, and the accountants that are there
"""

import time
from fractions import Fraction

import numpy as np

import neyman as ny
from neyman.noise import SecureBits, rounded_gaussian

SIZE = 10**6
RUN = {"n": 1437, "batch": 256, "sigma": 4, "epochs": 40}


def best(function, times=5):
    """Return the shortest time in milliseconds, and the last result."""
    spans = []
    for _ in range(times):
        start = time.perf_counter()
        result = function()
        spans.append(1000 * (time.perf_counter() - start))
    return min(spans), result


def noise():
    """Print the time of 10^6 draws at common scales."""
    bits, out = SecureBits(), np.empty(SIZE, np.int64)
    total = np.zeros(SIZE, np.int64)
    parameters = np.zeros(SIZE)
    generator = np.random.default_rng()
    for sigma in (Fraction(7, 10), Fraction(1), Fraction(4)):
        squared = (sigma * (1 << 20)) ** 2
        exact, _ = best(lambda s=squared: rounded_gaussian(s, SIZE, bits, out))

        def step(s=squared):
            moved = total + rounded_gaussian(s, SIZE, bits, out)
            return parameters - 0.1 * (moved.astype(np.float64) * 1e-6)

        moves, _ = best(step)
        floats, _ = best(lambda s=float(sigma): generator.normal(0, s, SIZE))
        print(
            f"sigma {float(sigma):g}: exact {exact:.1f} ms, step {moves:.1f} ms, "
            f"floats {floats:.1f} ms"
        )


def ours():
    return ny.DPSGD(**RUN).tradeoff().epsilon(delta=1e-5).upper


def accountants():
    """Print epsilon at delta 1e-5 of one run, by each accountant that is installed."""
    rate, steps = RUN["batch"] / RUN["n"], ny.DPSGD(**RUN).steps
    rows = [("Neyman", ours)]
    try:
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant

        event = SelfComposedDpEvent(
            PoissonSampledDpEvent(rate, GaussianDpEvent(RUN["sigma"])), steps
        )
        for name, kind in (("PLD", PLDAccountant), ("RDP", RdpAccountant)):
            rows.append(
                (f"dp_accounting {name}", lambda k=kind: k().compose(event).get_epsilon(1e-5))
            )
    except ModuleNotFoundError:
        print("dp_accounting is not installed")
    try:
        from opacus.accountants import PRVAccountant, RDPAccountant

        for name, kind in (("RDP", RDPAccountant), ("PRV", PRVAccountant)):

            def theirs(k=kind):
                accountant = k()
                accountant.history = [(RUN["sigma"], rate, steps)]
                return accountant.get_epsilon(delta=1e-5)

            rows.append((f"Opacus {name}", theirs))
    except ModuleNotFoundError:
        print("Opacus is not installed")
    for name, function in rows:
        span, epsilon = best(function, 3)
        print(f"{name}: epsilon {epsilon:.6f}, {span:.0f} ms")


if __name__ == "__main__":
    noise()
    accountants()
