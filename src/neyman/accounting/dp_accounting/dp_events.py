"""Translate dp_accounting's trees of events into Neyman's mechanisms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from scipy.special import betainc

from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from neyman.mechanisms.base import Composed, Mechanism
from neyman.mechanisms.choice import Choice
from neyman.mechanisms.description import LIMITS as DESCRIPTION_LIMITS
from neyman.mechanisms.description import probability
from neyman.mechanisms.full_disclosure import NonPrivate
from neyman.mechanisms.gaussian_mixture import GaussianMixture
from neyman.mechanisms.private_selection import ExponentialMechanism, ReportNoisyMax
from neyman.mechanisms.randomized_response import RandomizedResponse
from neyman.mechanisms.sampling import Subsampled, product
from neyman.mechanisms.tuning.runs import Runs
from neyman.mechanisms.tuning.winner import select_best
from neyman.numerics import check
from neyman.numerics.relation import MOVES, Neighboring

Reader = Callable[[Any, Neighboring], Mechanism]


@dataclass(frozen=True)
class Limits:
    """Hold the error of binomial tails, and the least tail with a lower bound."""

    least_tail: float = 1e-290  # below it, a tail only has an upper bound


LIMITS = Limits()


class UnsupportedEvent(ValueError):
    """Refuse an event that has no certified description, at all or under this relation.

    Args:
        event: the event, anywhere in its tree.
        reason: the reason, and what to do instead.
    """

    def __init__(self, event: Any, reason: str) -> None:
        super().__init__(f"event = {event!r}: {reason}")
        self.event = event


def described(event: Any, neighboring: Neighboring) -> Mechanism:
    """Return the mechanism that an event describes.

    The event's type name selects the function that reads it.
    """
    name = type(event).__name__
    needed, why = _RELATIONS.get(name, (neighboring, ""))
    if neighboring != needed:
        raise UnsupportedEvent(event, f'{why}; ask with neighboring="{needed}"')
    if name in READERS:
        return READERS[name](event, neighboring)
    advice = _REFUSED.get(name, "describe it with Neyman's own mechanisms")
    raise UnsupportedEvent(event, f"{name} has no certified loss here; {advice}")


def _gaussian(event: Any, neighboring: Neighboring) -> Mechanism:
    sigma = check.non_negative("noise_multiplier", event.noise_multiplier)
    return Gaussian(sigma, MOVES[neighboring]) if sigma else NonPrivate()


def _laplace(event: Any, neighboring: Neighboring) -> Mechanism:
    scale = check.non_negative("noise_multiplier", event.noise_multiplier)
    return Laplace(scale, MOVES[neighboring]) if scale else NonPrivate()


def _discrete_laplace(event: Any, neighboring: Neighboring) -> Mechanism:
    rate = check.exact("noise_parameter", event.noise_parameter)
    if rate <= 0:
        raise ValueError(f"noise_parameter = {event.noise_parameter!r} must be above 0")
    sensitivity = check.integer("sensitivity", event.sensitivity)
    return DiscreteLaplace(1 / rate, sensitivity * MOVES[neighboring])


def _discrete_gaussian(event: Any, neighboring: Neighboring) -> Mechanism:
    """Describe discrete Gaussian noise. For several coordinates, only a zCDP bound is known."""
    sigma = check.exact("sigma", event.sigma)
    norm = check.exact("sensitivity", event.sensitivity) * MOVES[neighboring]
    if sigma < 0 or norm < 0:
        raise ValueError(f"sigma = {event.sigma!r}, sensitivity = {event.sensitivity!r}: below 0")
    if event.dimension is not None:
        check.integer("dimension", event.dimension, 1)
    if norm < 1:  # integers do not change
        return Mechanism.nothing()
    if not sigma:
        return NonPrivate()
    if event.dimension == 1:
        return DiscreteGaussian(sigma, math.floor(norm))
    return DiscreteGaussian(sigma, squared_norm=math.floor(norm**2))


def _permute_and_flip(event: Any, neighboring: Neighboring) -> Mechanism:
    """Describe permute-and-flip: the top score with exponential noise (Ding and others 2021)."""
    epsilon = check.exact("epsilon", event.epsilon)
    return ReportNoisyMax(Fraction(1), epsilon / 2, noise="exponential")


def _epsilon_delta(event: Any, neighboring: Neighboring) -> Mechanism:
    """Describe pure epsilon-DP that also reveals everything with probability delta.

    Under replace-one, this is the worst (epsilon, delta)-DP pair. Refuse a delta under add-remove.
    """
    delta = check.probability("delta", event.delta)
    if delta == 1 or event.epsilon == math.inf:
        return NonPrivate()
    pure = _permute_and_flip(event, neighboring)
    if not delta:
        return pure
    if neighboring != "replace-one":  # disclosure reveals a record in only one dataset
        raise UnsupportedEvent(
            event,
            "delta may be on both sides, which no mechanism here has under add-remove; its curve "
            "is ny.approximate(epsilon, delta), which composes with other curves by @",
        )
    return pure + _full_disclosure(delta, neighboring)


def _allocation(event: Any, neighboring: Neighboring) -> Mechanism:
    chosen = check.integer("num_selected", event.num_selected)
    steps = check.integer("num_steps", event.num_steps, 1)
    if chosen > steps:
        raise ValueError(f"num_selected = {chosen} must be at most num_steps = {steps}")
    inner = described(event.event, neighboring)
    if chosen in (0, steps) or isinstance(inner, NonPrivate):
        return inner * chosen
    if neighboring != "add-remove":
        raise UnsupportedEvent(event, "a random allocation is described here under add-remove")
    try:
        return inner.random_allocation(steps, times=chosen)
    except ValueError as refusal:
        raise UnsupportedEvent(event, str(refusal)) from None


def _response(event: Any, neighboring: Neighboring) -> Mechanism:
    p = check.probability("noise_parameter", event.noise_parameter)
    k = check.integer("num_buckets", event.num_buckets, 1)
    if p == 1 or k == 1:
        return Mechanism.nothing()
    if p == 0:
        return NonPrivate()
    # The truth has probability 1 - p + p / k, each other answer p / k; rounded up.
    return RandomizedResponse(math.log1p(k * (1 - p) / p) * (1 + 1e-15), k)


def _mixture(event: Any, neighboring: Neighboring) -> Mechanism:
    sigma = check.non_negative("standard_deviation", event.standard_deviation)
    if sigma:
        return GaussianMixture(sigma, event.sensitivities, event.sampling_probs)
    checked = GaussianMixture(1.0, event.sensitivities, event.sampling_probs)
    pairs = zip(checked.sensitivities, checked.probabilities, strict=True)
    moved = min(math.fsum(float(p) for c, p in pairs if c), 1.0)
    return NonPrivate(moved, "any" if moved in (0.0, 1.0) else neighboring)


def _best_of_runs(event: Any, neighboring: Neighboring) -> Mechanism:
    """Describe the best of several runs.

    dp_accounting checks that the event's mean is at least 1 and its shape at least 0. Shape inf is
    a Poisson number of runs.
    """
    mean, shape = event.mean, float(event.shape)
    inner = described(event.event, neighboring)
    law = Runs.poisson(mean) if shape == math.inf else Runs.negative_binomial(mean, shape)
    try:
        return select_best(inner, runs=law)
    except ValueError as refusal:
        raise UnsupportedEvent(event, str(refusal)) from None


def _poisson(event: Any, neighboring: Neighboring) -> Mechanism:
    rate = _rate(event)
    # Describe the shift by one added or removed record, even under replace-one.
    inner = described(event.event, "add-remove")
    if 0 < rate < 1 and (sizes := _sizes(event.event)):
        raise UnsupportedEvent(
            event,
            f"a Poisson sample has no fixed size, but an event on it needs {min(sizes)} records",
        )
    if isinstance(inner, NonPrivate):
        return _full_disclosure(product(rate, inner.rate), neighboring)
    if not rate or inner == Mechanism.nothing():
        return Mechanism.nothing()
    if rate == 1:
        return described(event.event, neighboring)
    if isinstance(inner, Subsampled):  # a Poisson sample of a Poisson sample is a Poisson sample
        inner, rate = inner.mechanism, product(rate, inner.rate)
    try:
        return inner.subsample(rate=rate, neighboring=neighboring)
    except ValueError as refusal:
        raise UnsupportedEvent(event, str(refusal)) from None


def _without_replacement(event: Any, neighboring: Neighboring) -> Mechanism:
    size = check.integer("sample_size", event.sample_size)
    population = check.integer("source_dataset_size", event.source_dataset_size)
    if size > population:
        raise ValueError(f"sample_size = {size} must be at most {population}, the whole dataset")
    inner = described(event.event, neighboring)
    for other in _sizes(event.event) - {size}:
        raise UnsupportedEvent(
            event, f"sample_size = {size}, but an event on the sample needs {other} records"
        )
    if isinstance(inner, NonPrivate):
        share = Fraction(size, population) if population else Fraction(0)
        return _full_disclosure(product(share, inner.rate), neighboring)
    try:
        return inner.subsample(size=size, population=population)
    except ValueError as refusal:
        raise UnsupportedEvent(event, str(refusal)) from None


def _rate(event: Any) -> float | Fraction:
    """Return an event's sampling rate. In jax_privacy, it may be an array of one number."""
    given = event.sampling_probability
    one = given.item() if getattr(given, "shape", None) == () else given
    return probability("sampling_probability", one)


def _full_disclosure(rate: float | Fraction, neighboring: Neighboring) -> Mechanism:
    return NonPrivate(rate, "any" if rate in (0, 1) else neighboring)


def _sizes(event: Any) -> set[int]:
    """Return the dataset sizes that an event and its parts state."""
    name = type(event).__name__
    if name == "SampledWithoutReplacementDpEvent":
        return {event.source_dataset_size}
    if name == "TruncatedSubsampledGaussianDpEvent":
        return {event.dataset_size}
    if name == "ComposedDpEvent":
        return {n for e in event.events for n in _sizes(e)}
    return _sizes(event.event) if hasattr(event, "event") else set()


def _truncated_sample(event: Any, neighboring: Neighboring) -> Mechanism:
    """Describe Gaussian noise on a Poisson sample, truncated at random to a largest batch.

    Let k of n - 1 other records be sampled, with rate q. If k is below the limit B, the record
    joins with probability q. If k >= B, it is in the batch with probability q B / (k + 1), and
    replaces another record: the sum changes by up to twice the norm. Assume that everyone sees
    which case occurs, and, if k >= B, the batch's other records, whose distribution does not depend
    on k. So only the mean probability of this case counts: (B / n) P(Bin(n, q) > B) / P(Bin(n - 1,
    q) >= B).

    Under add-remove there are n - 1 or n other records. If the last of them fills the batch, assume
    probability q and twice the norm. This covers both cases. Each P(K >= k) is rounded down. Only
    the probability of the worst case, with q, is rounded up [SA-7].
    """
    n = check.integer("dataset_size", event.dataset_size, 1)
    if n > DESCRIPTION_LIMITS.count:
        raise ValueError(f"dataset_size = {n} must be at most {DESCRIPTION_LIMITS.count:g}")
    rate = float(_rate(event))
    limit = check.integer("truncated_batch_size", event.truncated_batch_size)
    sigma = check.non_negative("noise_multiplier", event.noise_multiplier)
    if not limit or not rate:
        return Mechanism.nothing()

    def used(share: float, moves: int) -> Mechanism:
        if not sigma:
            return _full_disclosure(share, neighboring)
        noise = Gaussian(sigma, moves)
        if neighboring == "replace-one" and moves == 2:
            population = DESCRIPTION_LIMITS.count  # rounds the share up, by at most 1e-18
            size = min(math.ceil(Fraction(share) * population), population)
            return noise.subsample(size=size, population=population)
        return noise.subsample(rate=share, neighboring=neighboring)

    full = _tail(limit, n if neighboring == "add-remove" else n - 1, rate)[1]
    some = min(_tail(limit, n - 1, rate)[0], full)
    parts = [(1 - full, used(rate, 1)), (full - some, used(rate, 2))]
    if some:
        mean = limit / n * (_tail(limit + 1, n, rate)[1] / some) * (1 + 1e-15) * (1 + 1e-15)
        parts.append((some, used(max(min(mean, rate), DESCRIPTION_LIMITS.least_share), 2)))
    positive = tuple((max(p, DESCRIPTION_LIMITS.least_share), m) for p, m in parts if p > 0)
    return positive[0][1] if len(positive) == 1 else Choice(positive)


def _tail(k: int, n: int, rate: float) -> tuple[float, float]:
    """Return lower and upper bounds on P(K >= k) for K ~ Bin(n, rate); exact if it is 0 or 1."""
    if k <= 0 or k > n or rate == 1:
        certain = float(k <= n)
        return certain, certain
    mass = float(betainc(k, n - k + 1, rate))
    if not mass > LIMITS.least_tail:
        return 0.0, 1.0 if math.isnan(mass) else 2 * LIMITS.least_tail
    tail_error = 1e-9  # Assumed relative error of binomial tails, which are computed to 1e-12.
    return mass * (1 - tail_error), min(mass * (1 + tail_error), 1.0)


def _tree(event: Any, neighboring: Neighboring) -> Mechanism:
    """Describe Gaussian noise on tree nodes: a record is in at most bit_length(steps) nodes.

    Each record is in one leaf of one tree. A released node covers a complete binary subtree, so a
    leaf of a tree with n steps is in at most floor(log2 n) + 1 = bit_length(n) nodes.
    """
    counts: Any = event.step_counts
    each = cast(Sequence[object], counts if isinstance(counts, list | tuple) else [counts])
    steps = [check.integer("step_counts", n) for n in each]
    if not steps:
        raise ValueError(f"step_counts = {event.step_counts!r} must have at least one tree")
    depth = max(steps).bit_length()
    sigma = check.non_negative("noise_multiplier", event.noise_multiplier)
    if not depth:
        return Mechanism.nothing()
    return Gaussian(sigma, MOVES[neighboring]) * depth if sigma else NonPrivate()


READERS: dict[str, Reader] = {
    "ComposedDpEvent": lambda event, relation: Composed.of(
        [(described(e, relation), 1) for e in event.events]
    ),
    "DiscreteGaussianDpEvent": _discrete_gaussian,
    "DiscreteLaplaceDpEvent": _discrete_laplace,
    "EpsilonDeltaDpEvent": _epsilon_delta,
    "ExponentialMechanismDpEvent": lambda event, _: ExponentialMechanism(
        check.exact("epsilon", event.epsilon)
    ),
    "GaussianDpEvent": _gaussian,
    "LaplaceDpEvent": _laplace,
    "MixtureOfGaussiansDpEvent": _mixture,
    "NoOpDpEvent": lambda event, relation: Mechanism.nothing(),
    "NonPrivateDpEvent": lambda event, relation: NonPrivate(),
    "PermuteAndFlipDpEvent": _permute_and_flip,
    "PoissonSampledDpEvent": _poisson,
    "RandomAllocationDpEvent": _allocation,
    "RandomizedResponseDpEvent": _response,
    "RepeatAndSelectDpEvent": _best_of_runs,
    "SampledWithoutReplacementDpEvent": _without_replacement,
    "SelfComposedDpEvent": lambda event, relation: (
        described(event.event, relation) * check.integer("count", event.count)
    ),
    "SingleEpochTreeAggregationDpEvent": _tree,
    "TruncatedSubsampledGaussianDpEvent": _truncated_sample,
}

_RELATIONS: dict[str, tuple[Neighboring, str]] = {
    "MixtureOfGaussiansDpEvent": (
        "add-remove",
        "a mixture of Gaussians is described by its pair with and without the record",
    ),
    "RandomizedResponseDpEvent": (
        "replace-one",
        "randomized response changes one answer for another and has no meaning under add-remove",
    ),
    "SampledWithoutReplacementDpEvent": (
        "replace-one",
        "a sample of fixed size is a statement about a population of fixed size",
    ),
    "SingleEpochTreeAggregationDpEvent": (
        "replace-one",
        "SingleEpochTreeAggregationDpEvent fixes the leaf of each record: one that is added or "
        "removed moves the others",
    ),
}
"""The relation that an event needs, and why."""

_REFUSED = {
    "SampledWithReplacementDpEvent": (
        "use SampledWithoutReplacementDpEvent or PoissonSampledDpEvent if the data are sampled so"
    ),
    "UnsupportedDpEvent": "dp_accounting itself does not describe it",
    "ZCDpEvent": "with xi = 0 its curve is ny.zcdp(rho), which composes with other curves by @",
}
