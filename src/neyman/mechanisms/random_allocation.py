"""Describe random allocation: each record enters one random batch of a pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.random_allocation import LIMITS as RANDOM_ALLOCATION_LIMITS
from neyman.curves.losses.random_allocation import allocated, allocated_often
from neyman.mechanisms.base import Mechanism, bracketed, check_one_step
from neyman.mechanisms.description import form, integer

MAX_BATCHES = 10**9


@dataclass(frozen=True, repr=False)
class RandomAllocation(Mechanism):
    """Run one pass over random batches. Build it with ``.random_allocation(batches)``.

    Each record enters one of T batches, uniformly and independently, so batch sizes are random. The
    pair for adding or removing a record is P against Q = N(0, I) in T coordinates, and its reverse.
    Here P is the mean over t of N(mu e_t, I), e_t is the unit vector of batch t, and mu is the
    shift by one record in standard deviations. A batch's release may depend on earlier releases.
    The pair holds only if no one learns the batch of a record. Passes compose: ``* epochs``, with
    fresh draws. The curve has certified lower and upper bounds.

    If a record takes part in k of T batches, P is the mean over all sets of k batches. Its curve is
    at least the curve of k passes over T / k batches, rounded up or down so that they add up to T,
    and at most the curve of a test: the sum of all releases, or of a function of each [RA-8].

    Args:
        mechanism: Gaussian noise, described by the shift that the presence of one record causes, at
            most 10 standard deviations.
        batches: T, at least 1.
        times: k, from 1 to T.

    Raises:
        ValueError: the mechanism or the relation is another.

    Source: [RA-1] to [RA-5], [RA-8]; Chua et al. 2025 (balls and bins), Feldman and Shenfeld 2025.
    """

    RELATION = "add-remove"
    OWN_STEPS = True

    mechanism: Mechanism
    batches: int = field(metadata=integer(1, MAX_BATCHES))
    times: int = field(default=1, metadata=integer(1) | form(shown=lambda pass_: pass_.times > 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_step(self.mechanism, "random allocation")
        if self.times > self.batches:
            raise ValueError(
                f"times = {self.times} must be at most batches = {self.batches}: a record is in a "
                "batch at most once"
            )
        if self.mechanism.neighboring not in ("any", "add-remove"):
            raise ValueError(
                f"mechanism = {self.mechanism!r} is described under "
                f"{self.mechanism.neighboring!r}; random allocation is proven for 'add-remove'"
            )
        mu = self._mu
        if mu > RANDOM_ALLOCATION_LIMITS.mu and self.batches > self.times:
            raise ValueError(
                f"mechanism = {self.mechanism!r}: one record moves a batch by {mu:.3g} standard "
                f"deviations, more than {RANDOM_ALLOCATION_LIMITS.mu:g}, which hides nothing; add "
                "noise, or claim no amplification (shuffled_batches)"
            )

    @property
    def _mu(self) -> float:
        composition, *more = self.mechanism.losses()
        kinds = [loss for loss, _ in composition.parts]
        if not kinds and not more:
            return 0.0
        if more or len(kinds) > 1 or not isinstance(kinds[0], GaussianLoss):
            raise ValueError(
                f"mechanism = {self.mechanism!r}: random allocation is proven here for Gaussian "
                "noise only; use subsample(rate=), or shuffled_batches for no amplification"
            )
        return kinds[0].mu

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, between two finite losses, or the loss of the mechanism [RA-1]."""
        mu = self._mu
        if self.batches == self.times or not mu:
            return (self.mechanism * self.times).losses()
        if self.times == 1:
            return (Composition.of([(allocated(mu, self.batches), 1)]),)
        return (Composition.of(allocated_often(mu, self.batches, self.times)),)

    def rho(self) -> Fraction:
        """Return k times the mechanism's rho, as if the attacker saw the record's k batches."""
        return self.mechanism.rho() * self.times

    def __repr__(self) -> str:
        times = f", times={self.times}" if self.times > 1 else ""
        return f"{bracketed(self.mechanism)}.random_allocation(batches={self.batches}{times})"
