"""Neyman's accountant and exact noise where a library accepts the interface of dp_accounting.

`dp_accounting.calibrate_dp_mechanism` takes any accountant of that interface. The second part
trains a classifier with jax_privacy, if it is installed (``neyman[jax-privacy]``).
"""

from importlib.util import find_spec

import dp_accounting
import numpy as np

from neyman.accounting import NeymanAccountant

N, BATCH, STEPS, EPSILON, DELTA = 60_000, 256, 1_000, 1.0, 1e-5


def event(sigma):
    """1,000 steps of DP-SGD."""
    step = dp_accounting.PoissonSampledDpEvent(BATCH / N, dp_accounting.GaussianDpEvent(sigma))
    return dp_accounting.SelfComposedDpEvent(step, STEPS)


sigma = dp_accounting.calibrate_dp_mechanism(NeymanAccountant, event, EPSILON, DELTA, tol=1e-4)
print(f"dp_accounting, Neyman's accountant: sigma = {sigma:.4f} for epsilon = {EPSILON:g}")


def train():
    """100 steps of logistic regression on two clouds of points, with exact noise."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax_privacy import clipped_grad
    from jax_privacy.accounting import DpParams, DpsgdTrainingAccountant
    from jax_privacy.batch_selection import CyclicPoissonSampling, pad_to_multiple_of

    from neyman.accounting.integrations.jax_privacy import (
        NeymanAccountantConfig,
        exact_gaussian_privatizer,
    )

    records, batch, steps, noise = 2_000, 200, 100, 2.0
    generator = np.random.default_rng(1)  # of the data, not of the noise
    y = np.arange(records) % 2
    x = (generator.normal(size=(records, 8)) + 0.7 * (2 * y[:, None] - 1)).astype(np.float32)

    def loss(w, x, y, weight):
        return weight * optax.sigmoid_binary_cross_entropy(x @ w, y)

    gradient = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2, 3), keep_batch_dim=False)
    optimizer = optax.chain(
        exact_gaussian_privatizer(
            noise_multiplier=noise,
            sensitivity=gradient.sensitivity(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE),
        ),
        optax.scale(1 / batch),
        optax.sgd(1.0),
    )

    @jax.jit
    def step(w, state, x, y, weight):
        updates, state = optimizer.update(gradient(w, x, y, weight), state)
        return optax.apply_updates(w, updates), state

    w = jnp.zeros(8)
    state = optimizer.init(w)
    batches = CyclicPoissonSampling(sampling_prob=batch / records, iterations=steps)
    for rows in batches.batch_iterator(records):
        padded = pad_to_multiple_of(rows, 64)  # with -1, whose weight is 0
        w, state = step(w, state, x[padded], y[padded], (padded >= 0).astype(np.float32))

    accountant = DpsgdTrainingAccountant(dp_accountant_config=NeymanAccountantConfig())
    run = DpParams(noise_multipliers=noise, num_samples=records, delta=DELTA, batch_size=batch)
    accuracy = float(((x @ w > 0) == y).mean())
    epsilon = accountant.compute_epsilon(steps, run)
    print(f"jax_privacy: epsilon <= {epsilon:.4f} at delta {DELTA:g}, accuracy {accuracy:.3f}")


if find_spec("jax_privacy"):
    train()
