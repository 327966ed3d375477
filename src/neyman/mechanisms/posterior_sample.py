"""Release one draw from a posterior distribution.

The draw is from the density proportional to e^{-F}. Neighbors have different potentials F. The
spread of the draw hides the difference of the two potentials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from scipy.special import ndtr, ndtri

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import LIMITS as DESCRIPTION_LIMITS
from neyman.mechanisms.description import POSITIVE, TRUTH, pure_epsilon, rational
from neyman.mechanisms.private_selection import ExponentialMechanism
from neyman.numerics import check
from neyman.numerics.relation import MOVES, Neighboring, neighboring_of
from neyman.numerics.rounding import above, up

NORMAL_RELATIVE_ERROR = 1e-9  # relative, an upper bound for ndtr and ndtri at |x| < 40 [PS-2]
MOST_RATIO, MOST_MOVE = Fraction(10) ** 300, 10**150


@dataclass(frozen=True, kw_only=True)
class PosteriorSample(Mechanism):
    """Release one draw from the density e^{-F}: the curve is at least G_mu, mu = L / sqrt(m).

    Both neighbors' potentials F must be m-strongly convex, on the whole space or on the same convex
    set, and their *difference* must be L-Lipschitz. Let F(w) be a sum of f(w, record) and a
    regularizer, each f C-Lipschitz in w. Then L = C if a record is added or removed, and L = 2C if
    a record is replaced. Two Gaussians with covariance 1/m attain the curve.

    The curve holds for exact draws. A chain of finitely many steps draws from another distribution.
    Give ``exact=False`` and one certified distance of that distribution from the posterior, which
    must hold for every dataset:

    - ``total_variation`` = v: the curve is as if the release revealed everything with probability v
      + Phi(mu - z), z = Phi^-1(1 - v), and otherwise had the curve G_mu. The best proven curve is
      max(0, G_mu(alpha + v) - v), and this curve is never above it.
    - ``wasserstein`` = D, in the distance W-infinity: the release is the draw plus normal noise of
      standard deviation ``sigma`` on each coordinate. The curve is G(L / sqrt(m) + 2 D / sigma).

    A convergence diagnostic is not a certificate. For a chain of noisy gradient steps, no posterior
    is needed: use `NoisyGradientDescent.langevin`, whose curve holds for every number of steps.

    Args:
        lipschitz: L, above 0: Lipschitz constant of the difference of two neighbors' potentials.
        convexity: m, above 0: both potentials minus m |w|^2 / 2 are convex.
        exact: True if the draw follows the posterior exactly.
        total_variation: v, from 1e-300 to less than Phi(-mu / 2); for ``exact=False``.
        wasserstein: D, above 0, in the units of w; for ``exact=False``.
        sigma: standard deviation of the noise that is added to the draw, with ``wasserstein``.

    Raises:
        ValueError: a chain has no distance, or two, or one that is too large for any privacy.

    Examples:
        >>> import neyman as ny
        >>> f = ny.PosteriorSample(lipschitz=2, convexity=16).tradeoff()
        >>> round(float(f.gdp()), 6), round(float(f.power(level=0.05)), 4)
        (0.5, 0.1261)
        >>> chain = ny.PosteriorSample(lipschitz=2, convexity=16, exact=False, total_variation=1e-9)
        >>> round(float(chain.tradeoff().delta(epsilon=1)), 6)
        0.00683

    Source: Gopi, Lee and Liu 2022, "Private convex optimization via exponential mechanism"; [PS-1],
    [PS-2], [PS-3].
    """

    RELATION = "any"

    lipschitz: float | Fraction = field(metadata=POSITIVE)
    convexity: float | Fraction = field(metadata=POSITIVE)
    exact: bool = field(default=True, metadata=TRUTH)
    total_variation: float | Fraction | None = field(default=None, metadata=POSITIVE)
    wasserstein: float | Fraction | None = field(default=None, metadata=POSITIVE)
    sigma: float | Fraction | None = field(default=None, metadata=POSITIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [n for n in ("total_variation", "wasserstein") if getattr(self, n) is not None]
        if self.exact and (given or self.sigma is not None):
            raise ValueError(
                f"exact = True goes with no distance, but {(*given, 'sigma')[0]} is given: an "
                "exact draw is at distance 0; give exact=False for a chain"
            )
        if not self.exact and len(given) != 1:
            raise ValueError(
                "exact = False needs one certified distance of the chain's distribution from the "
                "posterior, for every dataset: give total_variation=, or wasserstein= and sigma=. "
                "Without one nothing is proven of a chain. If its steps are noisy gradients, "
                "NoisyGradientDescent.langevin needs none"
            )
        if (self.wasserstein is None) != (self.sigma is None):
            raise ValueError(
                f"wasserstein = {self.wasserstein!r} and sigma = {self.sigma!r} go together: only "
                "noise that is added to the draw hides a distance in w"
            )
        if not 1 / MOST_RATIO <= self._mu_squared() <= MOST_RATIO:
            raise ValueError(
                f"lipschitz = {self.lipschitz!r} and convexity = {self.convexity!r}: "
                "lipschitz^2 / convexity must be between 1e-300 and 1e300"
            )
        if self.wasserstein is not None and not 1 / MOST_RATIO <= self._shift() <= MOST_MOVE:
            raise ValueError(
                f"wasserstein = {self.wasserstein!r} and sigma = {self.sigma!r}: "
                "wasserstein / sigma must be between 1e-300 and 1e150"
            )
        mu = self._mu()
        if self.total_variation is not None:
            most = float(ndtr(-mu / 2))
            least = DESCRIPTION_LIMITS.least_share
            if not least <= self.total_variation < most * (1 - NORMAL_RELATIVE_ERROR):
                raise ValueError(
                    f"total_variation = {self.total_variation!r} must be from {least:g} to "
                    f"less than Phi(-mu / 2) = {most:.6g}: from there on nothing is proven"
                )

    @staticmethod
    def bounded(*, spread: float | Fraction, neighboring: Neighboring) -> ExponentialMechanism:
        """Return the mechanism for one draw from a posterior with a bounded log-likelihood.

        The draw is an exponential mechanism. The loss is the change of the log-likelihood, minus a
        constant. So the range is B if a record is added or removed, and 2 B if a record is
        replaced. The prior and the shape of the likelihood are arbitrary. The bound must hold at
        every w that the prior allows, and the draw must be exact.

        Args:
            spread: B, at least 0: for each record, the largest minus the smallest value of its
                log-likelihood over w.
            neighboring: "add-remove" or "replace-one".

        Returns:
            ``ExponentialMechanism(B)`` or ``ExponentialMechanism(2 B)``.

        Raises:
            ValueError: the relation is another one. It decides whether one or two terms change.

        Examples:
            >>> import neyman as ny
            >>> ny.PosteriorSample.bounded(spread=0.5, neighboring="replace-one")
            ExponentialMechanism(epsilon=Fraction(1, 1))

        Source: McSherry and Talwar 2007; Wang, Fienberg and Smola 2015.
        """
        neighboring_of(
            neighboring, ": it decides whether one record's log-likelihood changes, or two"
        )
        epsilon = MOVES[neighboring] * check.exact("spread", spread)
        pure_epsilon("the epsilon of spread", epsilon)
        return ExponentialMechanism(epsilon)

    def losses(self) -> tuple[Composition, ...]:
        """Return one Gaussian loss. With a total variation, add the chance of full disclosure."""
        mu = self._mu()
        parts = [(GaussianLoss(up(mu * mu, 1)), 1)]
        if self.total_variation is None:
            return (Composition.of(parts),)
        rate = self.revealed_at_most()
        if rate == 1:
            return (Composition.of([(NonPrivateLoss(), 1)]),)
        both = FiniteLoss(Fraction(1), (0,), (math.log1p(-rate),), rate, rate)
        return (Composition.of([*parts, (both, 1)]),)

    def revealed_at_most(self) -> float:
        """Return an upper bound on the probability of full disclosure [PS-2].

        It is 0 for an exact draw and for a draw with noise, and v + Phi(mu - Phi^-1(1 - v)) for a
        chain at total variation v, rounded up.
        """
        if self.total_variation is None:
            return 0.0
        v = above(rational(self.total_variation))
        return min(float(v + ndtr(self._mu() + ndtri(v))) * (1 + NORMAL_RELATIVE_ERROR), 1.0)

    def rho(self) -> Fraction:
        """Return mu^2 / 2, exact for an exact draw, otherwise rounded up.

        Raises:
            ValueError: a total variation is given. Such a chain has no zCDP parameter.
        """
        if self.total_variation is not None:
            raise ValueError(
                f"total_variation = {self.total_variation!r}: a chain that may fail has no zCDP "
                "parameter; give wasserstein= and sigma= instead"
            )
        if self.exact:
            return self._mu_squared() / 2
        return Fraction(self._mu()) ** 2 / 2

    def _mu_squared(self) -> Fraction:
        """Return L^2 / m, the mu squared of an exact draw."""
        return rational(self.lipschitz) ** 2 / rational(self.convexity)

    def _shift(self) -> Fraction:
        """Return 2 D / sigma, the part of mu from ``wasserstein``, or 0 without it."""
        if self.wasserstein is None or self.sigma is None:
            return Fraction(0)
        return 2 * rational(self.wasserstein) / rational(self.sigma)

    def _mu(self) -> float:
        """Return mu of the Gaussian part, rounded up [PS-1, PS-3]."""
        return up(math.sqrt(above(self._mu_squared())) + above(self._shift()))
