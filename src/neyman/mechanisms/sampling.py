"""Describe mechanisms on a random sample of the records, and how the sample hides a record.

The dominating pair of distributions depends on the sampling scheme and on the relation. The module
refuses cases without a proof, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, singledispatch
from typing import Any

from neyman.curves.losses.bounded_range import EnvelopeLoss, sides
from neyman.curves.losses.bracket import ComposedLattice, LossBracket, ends
from neyman.curves.losses.circular_arcs import CircularGaussianLoss
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.external_pld import ExternalPld
from neyman.curves.losses.finite import OffLatticeLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.loss import Loss, Part
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.losses.subsampled import (
    FixedSizeLoss,
    ReplaceOneSubsampledLoss,
    SubsampledGaussianLoss,
    SubsampledLoss,
)
from neyman.curves.losses.user_pair import resting_on, user_pairs
from neyman.mechanisms.additive import Gaussian, Laplace
from neyman.mechanisms.base import Composed, Mechanism, bracketed, check_one_step
from neyman.mechanisms.description import COUNT, PROBABILITY, form, integer, probability, rational
from neyman.mechanisms.full_disclosure import RandomSubset
from neyman.mechanisms.gaussian_mixture import binomial_mixture
from neyman.mechanisms.matrix_mechanism.matrix_mechanism import MatrixMechanism
from neyman.numerics import check
from neyman.numerics.relation import Neighboring, neighboring_of

MAX_USER_RECORDS = 1000  # per user: the mixture has one normal distribution for each


@dataclass(frozen=True, repr=False)
class Subsampled(Mechanism):
    """Run a mechanism on a Poisson sample. Build it with ``.subsample(rate=)`` and ``.user(k)``.

    Each record enters with probability q, independently of the others. Let (P, Q) be the pair of
    the mechanism. Under add-remove, the pair of the sample is (1 - q) Q + q P against Q, and its
    reverse. Under replace-one, the pair is (1 - q) N + q (N + s) against (1 - q) N + q (N - s).
    Here N is the noise, and s is the largest shift that the presence of one record causes. This
    pair is proven for Gaussian and Laplace noise.

    With ``records`` = k, one neighbor contains all records of a user (at most k), and the other
    contains none of them. The pair is sum_j Bin(k, q)(j) N(j mu, 1) against N(0, 1), and its
    reverse [SA-8]. Here mu is the shift by one record, in standard deviations.

    Args:
        mechanism: any mechanism, described by the shift from adding or removing a record. Under
            replace-one, a Gaussian mechanism, a sum of them, or a Laplace mechanism.
        rate: q, 0 or from 1e-300 to 1.
        neighboring: "add-remove" or "replace-one".
        records: k, from 1 to 1000. Above 1 it needs Gaussian noise and "add-remove".

    Raises:
        ValueError: the mechanism has another relation, has several possible shifts and none covers
            the others, or is known only by a zCDP bound.

    Source: Zhu, Dong and Wang 2022, theorem 11 (add-remove); [SA-1], [SA-3] (replace-one); Charles
    et al. 2024 and [SA-8] (several records).
    """

    mechanism: Mechanism
    rate: float | Fraction = field(metadata=PROBABILITY)
    neighboring: Neighboring = "add-remove"  # type: ignore[assignment]
    records: int = field(
        default=1,
        metadata=integer(1, MAX_USER_RECORDS) | form(shown=lambda sample: sample.records > 1),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        neighboring_of(self.neighboring)
        known = self.mechanism.neighboring
        if self.neighboring == "replace-one" and known != "any":
            raise ValueError(
                f"mechanism = {self.mechanism!r} is described under {known!r}; Poisson sampling "
                "under 'replace-one' needs the shift that the presence of one record can cause"
            )
        if known not in ("any", self.neighboring):
            raise ValueError(
                f"mechanism = {self.mechanism!r} is described under {known!r}, but a Poisson "
                "sample of neighbors under 'add-remove' differs by a record that is there or not; "
                "use size= and population= with 'replace-one'"
            )
        if self.records > 1 and self.neighboring != "add-remove":
            raise ValueError(
                f"records = {self.records} with neighboring = {self.neighboring!r}: several "
                "records of a user have a proof under 'add-remove' only"
            )
        self.losses()

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, for the removal of a record, or for its replacement."""
        return self._losses

    @cached_property
    def _losses(self) -> tuple[Composition, ...]:
        composition, rate = _single_sum(self.mechanism), float(self.rate)
        if not rate or not composition.parts:
            return (Composition(),)
        if self.neighboring == "replace-one":
            return (resting_on([composition], _opposite(self.mechanism, composition, rate)),)
        if self.records > 1:
            return (_of_user(self.mechanism, composition, rational(self.rate), self.records),)
        if rate == 1:
            return (composition,)
        loss = _through(self.mechanism, composition, lambda inner: _poisson(inner, rate))
        return (resting_on([composition], Composition.of([(loss, 1)])),)

    def rho(self) -> Fraction:
        """Return the mechanism's rho, without amplification.

        It is multiplied by 4 under replace-one, and by k^2 for k records per user.
        """
        if not self.rate:
            return Fraction(0)
        times = 2 if self.neighboring == "replace-one" else self.records
        return self.mechanism.rho() * times**2

    def _of_user(self, records: int) -> Mechanism:
        if self.records > 1:
            raise ValueError(
                f"{self!r} is described for a user with {self.records} records already; describe "
                "it once, with the number that a user may have"
            )
        return replace(self, records=records)

    def __repr__(self) -> str:
        asked = "" if self.neighboring == "add-remove" else f", neighboring={self.neighboring!r}"
        user = f".user({self.records})" if self.records > 1 else ""
        return f"{bracketed(self.mechanism)}.subsample(rate={self.rate!r}{asked}){user}"


@dataclass(frozen=True, repr=False)
class FixedSize(Mechanism):
    """Run a mechanism on a sample of fixed size. Build it with ``.subsample(size=, population=)``.

    The sample has ``size`` of the ``population`` records, without replacement. All samples of this
    size are equally likely. With p = size / population and the mechanism's curve f under
    replace-one, the curve is C_p(f) = min{f_p, f_p^-1}** with f_p = p f + (1 - p) Id. Steps compose
    as C_p(f) (x) ... (x) C_p(f), with the hull taken at each step [SA-2].

    Args:
        mechanism: described by the shift when one record is replaced.
        size: number of records in the sample, at least 0.
        population: number of all records, from 1 to 1e18 and at least ``size``.

    Raises:
        ValueError: the mechanism is under add-remove, or samples itself from a number of records
            other than ``size``, or `Subsampled` would refuse it.

    Source: Dong, Roth and Su 2022, theorem 4.2.
    """

    RELATION = "replace-one"

    mechanism: Mechanism
    size: int = field(metadata=integer())
    population: int = field(metadata=COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size > self.population:
            raise ValueError(
                f"size = {self.size} must be at most population = {self.population}: without "
                "replacement no more records can be drawn than there are"
            )
        _check_replaced(self.mechanism, "a sample of fixed size")
        for other in _populations(self.mechanism) - {self.size}:
            raise ValueError(
                f"size = {self.size}, but mechanism = {self.mechanism!r} draws from a population "
                f"of {other}; its population must be the {self.size} records of this sample"
            )
        self.losses()

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, which is its own reverse."""
        composition = _single_sum(self.mechanism)
        if not self.size or self.size == self.population:
            return (composition if self.size else Composition(),)
        if composition.reverse() != composition:
            raise ValueError(
                f"mechanism = {self.mechanism!r}: sampling of fixed size is proven for curves that "
                "are their own inverse"
            )
        if not composition.parts:
            return (composition,)
        share = self.size / self.population
        loss = _through(self.mechanism, composition, lambda inner: FixedSizeLoss(inner, share))
        return (resting_on([composition], Composition.of([(loss, 1)])),)

    def rho(self) -> Fraction:
        """Return the mechanism's rho, without amplification: C_p(f) >= f."""
        return self.mechanism.rho() if self.size else Fraction(0)

    def __repr__(self) -> str:
        inner = bracketed(self.mechanism)
        return f"{inner}.subsample(size={self.size}, population={self.population})"


@dataclass(frozen=True, repr=False)
class ShuffledBatches(Mechanism):
    """Run one pass over disjoint batches of shuffled records. Build it with ``.shuffled_batches``.

    The records are shuffled and cut into ``batches`` batches of fixed sizes, and the mechanism runs
    on each batch. Most training code does this. A record is in one batch only, so the curve of a
    pass is the curve f of one run. No amplification is claimed for the secret order. Do not account
    for this scheme as Poisson sampling, or as a fresh sample of fixed size at each step. Passes
    compose: ``* epochs``.

    Args:
        mechanism: described by the shift when one record is replaced.
        batches: number of batches per pass, at least 1.

    Raises:
        ValueError: the mechanism is under add-remove. Adding or removing a record moves the cuts.

    Source: joint convexity over the orders; Dong, Roth and Su 2022, lemma 2.2 (post-processing).
    """

    RELATION = "replace-one"
    OWN_STEPS = True

    mechanism: Mechanism
    batches: int = field(metadata=integer(1))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_step(self.mechanism, "a pass over shuffled batches")
        _check_replaced(self.mechanism, "a pass over shuffled batches")
        self.losses()

    def losses(self) -> tuple[Composition, ...]:
        """Return the losses of one release of the mechanism."""
        return (_single_sum(self.mechanism),)

    def rho(self) -> Fraction:
        """Return the rho of one release of the mechanism."""
        return self.mechanism.rho()

    def __repr__(self) -> str:
        return f"{bracketed(self.mechanism)}.shuffled_batches(batches={self.batches})"


def subsampled(
    mechanism: Mechanism,
    rate: float | Fraction | None,
    size: int | None,
    population: int | None,
    neighboring: Neighboring | None,
) -> Mechanism:
    """Return the result of ``.subsample``. A sample of a sample of one kind becomes one sample."""
    if rate is not None and (size is not None or population is not None):
        raise ValueError("give either rate= (Poisson) or size= and population= (fixed size)")
    if rate is not None:
        share = probability("rate", rate)
        relation = "add-remove" if neighboring is None else neighboring
        if (
            isinstance(mechanism, Subsampled)
            and mechanism.neighboring == relation
            and mechanism.records == 1
        ):
            return Subsampled(mechanism.mechanism, product(mechanism.rate, share), relation)
        return Subsampled(mechanism, share, relation)
    if size is None or population is None:
        raise ValueError("give either rate= (Poisson) or both size= and population= (fixed size)")
    if neighboring is not None:
        why = ": another relation does not go with a sample of fixed size; or give rate="
        check.one_of("neighboring", neighboring, ("replace-one",), why)
    if isinstance(mechanism, FixedSize) and mechanism.population == size:
        return FixedSize(mechanism.mechanism, mechanism.size, population)
    return FixedSize(mechanism, size, population)


def _single_sum(mechanism: Mechanism) -> Composition:
    """Return the mechanism's only sum of losses.

    Refuse several sums, losses that are known only by a bound, and streams.
    """
    for leaf, _ in mechanism.leaves:
        if isinstance(leaf, MatrixMechanism) and leaf.strategy.steps > 1:
            raise ValueError(
                f"mechanism = {leaf!r} is a stream, and one sample would be drawn for all of it. "
                "If each step has its own sample, use ny.DPSGD(strategy=). For one sample, "
                "subsample ny.Gaussian(m.sigma / m.shift()), which has the curve of the stream m"
            )
    composition, *more = mechanism.losses()
    if more:
        # The shift may depend on the other records in the sample, so no shift dominates.
        raise ValueError(
            f"mechanism = {mechanism!r} has {len(more) + 1} possible losses, and none dominates "
            "the others; describe the mechanism by one shift that does, and then sample it"
        )
    for loss, _ in composition.parts:
        if isinstance(loss, (RenyiBound, ExternalPld)) or any(x.source for x in user_pairs(loss)):
            raise ValueError(
                f"mechanism = {mechanism!r}: one part is known only by a bound ({loss!r}), "
                "which does not determine the effect of sampling; describe the mechanism itself"
            )
    return composition


def _check_replaced(mechanism: Mechanism, scheme: str) -> None:
    if mechanism.neighboring not in ("any", "replace-one"):
        raise ValueError(
            f"mechanism = {mechanism!r} is described under {mechanism.neighboring!r}, but {scheme} "
            "needs 'replace-one': describe it by the shift when one record is replaced"
        )


@singledispatch
def _populations(mechanism: Mechanism) -> set[int]:
    """Return the population sizes of all fixed-size samples in a mechanism.

    Ignore the samples in a `Choice`: a truncated batch uses them only for their share.
    """
    return set()


@_populations.register
def _(mechanism: FixedSize | RandomSubset) -> set[int]:
    return {mechanism.population}


@_populations.register
def _(mechanism: ShuffledBatches) -> set[int]:
    return {mechanism.batches * n for n in _populations(mechanism.mechanism)}


@_populations.register
def _(mechanism: Composed) -> set[int]:
    return {n for part, _ in mechanism.parts for n in _populations(part)}


def _through(
    mechanism: Mechanism, composition: Composition, sampled: Callable[[Any], Part]
) -> Part:
    """Return the loss of a composition on a sample, exactly or between two grids.

    Args:
        sampled: a function from a loss without sampling to the loss on a sample.
    """
    low, high = sides(composition.parts)
    if low != high:
        first, last = (_through(mechanism, Composition.of(x), sampled) for x in (low, high))
        return LossBracket(ends(first)[0], ends(last)[1], "safe, not exact, seen through a sample")
    loss, count = composition.parts[0]
    if len(composition.parts) == count == 1 and _samples_itself(loss):
        return sampled(loss)
    if any(isinstance(part, NonPrivateLoss) for part, _ in composition.parts):
        return sampled(NonPrivateLoss())
    exact = ComposedLattice.exact(composition.parts)
    if exact is not None:
        return sampled(exact)
    return LossBracket(
        sampled(ComposedLattice(composition.parts, -1)),
        sampled(ComposedLattice(composition.parts, 1)),
    )


@singledispatch
def _poisson(inner: Loss, rate: float) -> Loss:
    """Return the loss for the removal of a record from a Poisson sample. ``inner`` is unsampled."""
    return SubsampledLoss(inner, rate, True)


@_poisson.register
def _(inner: GaussianLoss, rate: float) -> Loss:
    return SubsampledGaussianLoss(inner.mu, rate, True)


def _of_user(
    mechanism: Mechanism, composition: Composition, rate: Fraction, records: int
) -> Composition:
    """Return the loss for the removal of all records of a user [SA-8]."""
    loss, count = composition.parts[0]
    if not (len(composition.parts) == count == 1 and isinstance(loss, GaussianLoss)):
        raise ValueError(
            f"mechanism = {mechanism!r}: several records of a user in a Poisson sample are proven "
            "for Gaussian noise only; use .tradeoff().group(k), which any curve has"
        )
    if float(rate) == 1:
        return Composition.of([(GaussianLoss(records**2 * loss.mu_squared), 1)])
    return Composition.of([(binomial_mixture(loss.mu, records, rate), 1)])


def _opposite(mechanism: Mechanism, composition: Composition, rate: float) -> Composition:
    loss, count = composition.parts[0]
    # The noise itself must be normal or Laplace: other noise with the same curve has other shifts.
    known = all(isinstance(leaf, (Gaussian, Laplace)) for leaf, _ in mechanism.leaves)
    single = len(composition.parts) == count == 1
    if not (known and single) or not isinstance(loss, (GaussianLoss, LaplaceLoss)):
        raise ValueError(
            f"mechanism = {mechanism!r}: Poisson sampling under 'replace-one' is proven for "
            "Gaussian mechanisms and for one Laplace mechanism; use 'add-remove', or size= and "
            "population="
        )
    if rate == 1:  # noise shifted up against noise shifted down
        return Composition.of([(_at_twice_the_shift(loss), 1)])
    return Composition.of([(ReplaceOneSubsampledLoss(loss, rate), 1)])


@singledispatch
def _samples_itself(part: Part) -> bool:
    """Return True if `_through` needs no grid for this loss on a sample."""
    return False


@_samples_itself.register
def _(part: Loss) -> bool:
    return part.step is not None


@_samples_itself.register
def _(
    part: CircularGaussianLoss
    | GaussianLoss
    | LaplaceLoss
    | OffLatticeLoss
    | EnvelopeLoss
    | NonPrivateLoss,
) -> bool:
    return True


@singledispatch
def _at_twice_the_shift(loss: GaussianLoss) -> Part:
    return GaussianLoss(4 * loss.mu_squared)


@_at_twice_the_shift.register
def _(loss: LaplaceLoss) -> Part:
    return LaplaceLoss(2 * loss.exact_epsilon)


def product(a: float | Fraction, b: float | Fraction) -> float | Fraction:
    """Return the product of two sampling rates, exact, or a float if both are floats.

    Raises:
        ValueError: the product is below 1e-300, but not 0.
    """
    exact = rational(a) * rational(b)
    probability("rate", exact)
    return exact if any(isinstance(x, Fraction) for x in (a, b)) else float(exact)
