"""Neyman's accountant where a library accepts the interface of dp_accounting.

`dp_accounting.calibrate_dp_mechanism` and jax_privacy take any accountant of that interface. The
second part runs if jax_privacy is installed.
"""

from importlib.util import find_spec

import dp_accounting

from neyman.accounting.dp_accounting.accountant import NeymanAccountant

N, BATCH, STEPS, EPSILON, DELTA = 60_000, 256, 1_000, 1.0, 1e-5


def event(sigma):
    """1,000 steps of DP-SGD."""
    step = dp_accounting.PoissonSampledDpEvent(BATCH / N, dp_accounting.GaussianDpEvent(sigma))
    return dp_accounting.SelfComposedDpEvent(step, STEPS)


sigma = dp_accounting.calibrate_dp_mechanism(NeymanAccountant, event, EPSILON, DELTA, tol=1e-4)
print(f"dp_accounting, Neyman's accountant: sigma = {sigma:.4f} for epsilon = {EPSILON:g}")


class Neyman:
    """What jax_privacy asks for an accountant: one method."""

    def create_accountant(self):
        return NeymanAccountant()


if find_spec("jax_privacy"):
    from jax_privacy.accounting import (
        DpsgdTrainingAccountant,
        PldAccountantConfig,
        calibrate_noise_multiplier,
    )

    for name, config in (("Neyman", Neyman()), ("PLD", PldAccountantConfig())):
        noise = calibrate_noise_multiplier(
            target_epsilon=EPSILON,
            accountant=DpsgdTrainingAccountant(dp_accountant_config=config),
            batch_sizes=BATCH,
            num_updates=STEPS,
            num_samples=N,
            target_delta=DELTA,
            tol=1e-4,
        )
        print(f"jax_privacy, {name}: noise multiplier = {noise:.4f}")
