"""Random allocation: every record is put into one batch of a pass, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from neyman.losses.composition import Composition
from neyman.losses.gaussian import GaussianLoss
from neyman.losses.random_allocation import MOST_MU, allocated
from neyman.mechanisms.base import Composed, Mechanism
from neyman.numerics import check

__all__ = ["RandomAllocation"]

MOST_BATCHES = 10**9


@dataclass(frozen=True, repr=False)
class RandomAllocation(Mechanism):
    """One pass over batches into which records fall at random; ``.random_allocation(batches)``.

    Each record draws one of T batches, all as likely, independently of the others; the batches are
    of random size. With a record more or less the pair is P, the mean over t of N(mu e_t, I),
    against Q = N(0, I) in T coordinates, and its reverse, whatever a batch's release depends on of
    the earlier ones. It holds only while nobody learns which batch a record was in. Passes
    compose: ``* epochs``, each drawn afresh. It is a bracket, certified from both sides.

    Args:
        mechanism: Gaussian noise, described by the shift that one record causes by being there; a
            shift of at most 10 standard deviations.
        batches: T, at least 1.

    Raises:
        ValueError: for any other mechanism or relation.

    Source: [RA-1] to [RA-4]; Chua et al. 2025 (balls and bins), Feldman and Shenfeld 2025.
    """

    mechanism: Mechanism
    batches: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", check.integer("batches", self.batches, 1))
        if self.batches > MOST_BATCHES:
            raise ValueError(f"batches = {self.batches!r} must be at most {MOST_BATCHES:g}")
        if self.mechanism.neighboring not in ("any", "add-remove"):
            raise ValueError(
                f"mechanism = {self.mechanism!r} is described under "
                f"{self.mechanism.neighboring!r}; random allocation is proven for 'add-remove'"
            )
        mu = self._mu
        if mu > MOST_MU and self.batches > 1:
            raise ValueError(
                f"mechanism = {self.mechanism!r}: one batch is {mu:.3g} standard deviations away, "
                f"more than {MOST_MU:g}, which hides nothing; add noise, or claim no amplification "
                "(shuffled_batches)"
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

    @property
    def neighboring(self) -> str:
        """ "add-remove": a record is there or not."""
        return "add-remove"

    def losses(self) -> tuple[Composition, ...]:
        """One loss, between two finite ones; that of the mechanism for one batch [RA-1]."""
        mu = self._mu
        if self.batches == 1 or not mu:
            return self.mechanism.losses()
        return (Composition.of([(allocated(mu, self.batches), 1)]),)

    def rho(self) -> Fraction:
        """That of the mechanism, once: to see which batch it was would tell more."""
        return self.mechanism.rho()

    def __repr__(self) -> str:
        text = repr(self.mechanism)
        inner = f"({text})" if isinstance(self.mechanism, Composed) else text
        return f"{inner}.random_allocation(batches={self.batches})"
