"""Give jax_privacy certified numbers, and exact noise instead of JAX's generator.

Use `NeymanAccountantConfig` as jax_privacy's ``PldAccountantConfig``. Use
`exact_gaussian_privatizer` as its Gaussian privatizer.
"""

# jax_privacy and optax are no dependencies, so their types are unknown where they are missing.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import math
import sys
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.dp_accounting.accountant import NeymanAccountant
from neyman.extras import advice
from neyman.noise.bits import SecureBits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.noise.rejection import LIMITS as REJECTION_LIMITS
from neyman.numerics import check

try:
    import jax
    import optax
    from jax.experimental import io_callback
    from jax.flatten_util import ravel_pytree
    from jax_privacy.accounting import PldAccountantConfig
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(advice(missing), name=missing.name) from None

__all__ = ["NeymanAccountantConfig", "exact_gaussian_privatizer"]


class NeymanAccountantConfig(PldAccountantConfig):
    """Let jax_privacy use `NeymanAccountant`, under add-remove.

    It is a ``PldAccountantConfig`` because jax_privacy requires one if batches are truncated or a
    user has several examples. It discretizes nothing.

    Examples:
        >>> from jax_privacy.accounting import DpParams, DpsgdTrainingAccountant
        >>> from neyman.accounting.integrations.jax_privacy import NeymanAccountantConfig
        >>> accountant = DpsgdTrainingAccountant(dp_accountant_config=NeymanAccountantConfig())
        >>> run = DpParams(
        ...     noise_multipliers=1.0, num_samples=60_000, delta=1e-5, batch_size=256,
        ...     truncated_batch_size=300,
        ... )
        >>> round(accountant.compute_epsilon(1_000, run), 4)
        2.5317
    """

    def __init__(self) -> None:
        super().__init__(value_discretization_interval=0.0)

    def create_accountant(self) -> NeymanAccountant:
        """Return a new accountant."""
        return NeymanAccountant()


def exact_gaussian_privatizer(
    *, noise_multiplier: float, sensitivity: float, grid: int = 1 << 20
) -> optax.GradientTransformation:
    """Return a privatizer with exact noise, keyed by the operating system at each step.

    At each step, a callback on the host rounds the sum of clipped gradients to multiples of a unit,
    and adds exact rounded Gaussian noise in integers. The noise's sigma is slightly larger than
    ``noise_multiplier * sensitivity``, to cover the rounding. So each step is a Gaussian mechanism
    with the noise multiplier, for any later arithmetic, under one unproven condition: the float
    sums of two neighboring batches, as jax_privacy clips and adds them, differ by at most
    ``sensitivity`` in l2 norm. `ny.train` needs no such condition. It accepts gradients of JAX too.

    The callback is an ordered effect. JAX never caches, omits, or repeats it, and refuses it in a
    vectorized function and under differentiation. The callback has no seed: the same compiled step
    draws new noise each time. JAX runs it on only one device, and other devices would get wrong
    copies of the sum. So several devices are refused.

    Args:
        noise_multiplier: the accountant's noise multiplier, above 0.
        sensitivity: largest change of the sum between neighbors, above 0 and finite: the result of
            the clipped gradient's method ``sensitivity``.
        grid: the least number of units in the sensitivity, at most 2^30.

    Raises:
        TypeError, ValueError: an argument is out of range, or JAX sees several devices.
    """
    if (devices := jax.device_count()) > 1:
        raise ValueError(
            f"JAX sees {devices} devices, and the callback adds noise on one of them: make one "
            "visible, as with CUDA_VISIBLE_DEVICES=0"
        )
    multiplier = Fraction(check.positive("noise_multiplier", noise_multiplier))
    # Its unit is a normal float.
    moved = Fraction(check.between("sensitivity", sensitivity, 1e-290, sys.float_info.max))
    least = check.integer("grid", grid, 1)
    sensitivity_units = 1 << 30  # largest number of units in a sensitivity
    if least > sensitivity_units:
        raise ValueError(f"grid = {grid} must be at most {sensitivity_units}")
    unit = math.ldexp(1.0, math.floor(math.log2(moved / least)))

    sum_units = 2.0**52  # of a sum: a float holds whole numbers up to here

    def add(variance: Fraction, total: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the noisy sum. The sum affects it only through a whole number of units.

        ``variance``: of the noise, in squared units.
        """
        finite = np.nan_to_num(np.asarray(total, np.float64), posinf=0.0, neginf=0.0)
        with np.errstate(over="ignore"):  # the clip handles overflow
            clipped = np.clip(finite / unit, -sum_units, sum_units)
        units = np.rint(clipped).astype(np.int64)
        units += rounded_gaussian(variance, units.size, SecureBits())
        return (units * unit).astype(total.dtype)

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        del params
        total, back = ravel_pytree(updates)
        variance = noise_variance(multiplier, moved / Fraction(unit), total.size)
        if variance > REJECTION_LIMITS.sigma_squared:
            raise ValueError(
                f"noise_multiplier = {noise_multiplier} is too large for grid = {grid}: noise must "
                "fit in 64-bit integers"
            )
        shape = jax.ShapeDtypeStruct(total.shape, total.dtype)
        return back(io_callback(partial(add, variance), shape, total, ordered=True)), state

    return optax.GradientTransformation(optax.identity().init, update)


def noise_variance(multiplier: Fraction, moved: Fraction, size: int) -> Fraction:
    """Return the variance of the noise, in squared units, for an accounted noise multiplier.

    The sums of neighbors differ by at most ``moved`` units in l2 norm. Rounding moves each of
    ``size`` entries by at most half a unit, so rounded sums differ by at most moved + sqrt(size)
    [RG-3].
    """
    root = math.isqrt(size - 1) + 1 if size else 0
    return (multiplier * (moved + root)) ** 2
