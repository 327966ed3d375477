"""Sum independent privacy losses of one ordered pair."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from neyman.curves.losses.bracket import laws, sides
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Loss, Part
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.renyi_bound import RenyiBound, sum_of_bounds
from neyman.numerics.arrays import Array, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.canonical_order import order_key
from neyman.numerics.operations import CALL, charge

NEGLIGIBLE_K = -1e6  # K of a negligible node


@dataclass(frozen=True)
class Composition:
    """Represent the sum of independent losses, each with its count. Equal losses are grouped.

    Build it with `Composition.of`, which puts the parts in canonical order. Results are stored in
    `numerics.array_cache`, with the composition as the key.
    """

    parts: tuple[tuple[Part, int], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.parts)

    def __reduce__(self) -> tuple[type[Composition], tuple[tuple[tuple[Part, int], ...]]]:
        return Composition, (self.parts,)  # hashes of strings differ between processes

    @staticmethod
    def of(parts: Iterable[tuple[Part, int]]) -> Composition:
        """Return a sum in canonical order.

        Group equal losses, and add up Gaussian losses and Renyi bounds.
        """
        counts: dict[Part, int] = {}
        mu_squared: list[float] = []
        bare: list[tuple[RenyiBound, int]] = []
        for loss, count in parts:
            # These three classes have no subclasses.
            if type(loss) is NonPrivateLoss and count:
                return Composition(((loss, 1),))
            if type(loss) is GaussianLoss:
                mu_squared.append(loss.mu_squared * count)
            elif type(loss) is RenyiBound:
                bare.append((loss, count))
            else:
                counts[loss] = counts.get(loss, 0) + count
        if any(mu_squared):
            counts[GaussianLoss(math.fsum(mu_squared))] = 1
        if bare and (total := sum_of_bounds(bare)) is not None:
            counts[total] = 1
        if 0 in counts.values():
            counts = {loss: n for loss, n in counts.items() if n}
        each = counts.items()
        return Composition(tuple(sorted(each, key=order_key) if len(each) > 1 else each))

    def __add__(self, other: Composition) -> Composition:
        return Composition.of(self.parts + other.parts)

    def __mul__(self, count: int) -> Composition:
        return Composition.of((loss, n * count) for loss, n in self.parts)

    def reverse(self) -> Composition:
        """Return the sum of the reversed losses; this composition if it is its own reverse."""
        return self._reverse or self

    @cached_property
    def _reverse(self) -> Composition | None:
        """Return the reverse, or None if it equals this composition.

        The composition must not refer to itself.
        """
        backward = Composition.of((loss.reverse(), n) for loss, n in self.parts)
        return None if backward == self else backward

    @property
    def bare(self) -> RenyiBound | None:
        """Return the part that is only a bound on Renyi divergences, or None if there is none."""
        if RenyiBound not in self.kinds:
            return None
        return next(loss for loss, _ in self.parts if isinstance(loss, RenyiBound))

    @cached_property
    def kinds(self) -> frozenset[type]:
        """Return the classes of the parts, and all their base classes."""
        none: frozenset[type] = frozenset()
        return none.union(*(type(loss).__mro__ for loss, _ in self.parts))

    @cached_property
    def laws(self) -> tuple[tuple[Loss, int], ...]:
        """Return all parts. Raise TypeError for the first that is not a distribution."""
        return laws(self.parts)

    @property
    def known(self) -> Composition:
        """Return all parts except bounds on Renyi divergences."""
        return Composition(tuple(p for p in self.parts if not isinstance(p[0], RenyiBound)))

    @cached_property
    def least(self) -> Composition:
        """Return a sum that this one certainly dominates, with lower losses for brackets."""
        lower = sides(self.parts)[0]
        return self if lower == self.parts else Composition.of(lower)

    @property
    def infinite(self) -> float:
        """Return the mass of infinite loss."""
        masses = [(loss.infinite, n) for loss, n in self.parts if loss.infinite]
        if len(masses) == 1 and masses[0][1] == 1:
            return masses[0][0]
        if any(mass >= 1 for mass, _ in masses):
            return 1.0
        log_finite = math.fsum(n * math.log1p(-mass) for mass, n in masses)
        return -math.expm1(log_finite)

    @cached_property
    def supremum(self) -> Fraction | float:
        """Return the largest finite loss: exact, or inf."""
        each: list[tuple[Fraction | float, int]] = []
        for loss, n in self.parts:
            top = loss.supremum
            if top == math.inf:
                return math.inf
            each.append((top, n))
        total = sum([n * top for top, n in each], Fraction(0))
        if isinstance(total, float):  # some terms are floats, which were rounded up
            size = math.fsum([n * abs(float(top)) for top, n in each])
            total += 4 * (len(each) + 2) * UNIT * size  # slack: the_largest_loss_of_a_sum
        return total

    @property
    def wave_nodes(self) -> int:
        """Return 0: lines end where the characteristic function has decayed."""
        return 0

    def end(self, tilt: float, need: float, step: float) -> tuple[float, float] | None:
        """Return None: `log_decay` bounds the nodes beyond the last one."""
        return None

    @property
    def span(self) -> float:
        """Return 0: lines do not use a lattice. `LatticeSum` has one."""
        return 0.0

    @property
    def rounded(self) -> bool:
        """Return True if the largest loss is known only up to rounding."""
        return any(loss.rounded for loss, _ in self.parts)

    @property
    def log_top(self) -> float:
        """Return a lower bound on the log of the mass of the largest finite loss."""
        # slack: the_largest_loss_of_a_sum
        return math.fsum([n * loss.log_top * (1 + 8 * UNIT) for loss, n in self.parts])

    @cached_property
    def log_total_variation(self) -> float:
        """Return an upper bound on log delta(0).

        By a coupling, it is at most log(1 - prod(1 - TV of a part)).
        """
        each: list[float] = []
        for loss, n in self.parts:
            variation = loss.total_variation
            if variation >= 1:
                return 0.0
            each.append(n * math.log1p(-variation))
        total = -math.expm1(math.fsum(each))
        return min(math.log(total * (1 + 1e-12)), 0.0) if total > 0 else -math.inf

    @property
    def rho(self) -> float:
        """Return a proven zCDP parameter of the finite part: the sum of the parts' rho."""
        return math.fsum(n * loss.rho for loss, n in self.parts)

    @property
    def mu(self) -> float:
        """Return a proven GDP parameter of the finite part: the root of the sum of mu^2."""
        return math.sqrt(math.fsum(n * loss.mu**2 for loss, n in self.parts))

    @property
    def rough_mu(self) -> float:
        """Return a cheap, slightly larger GDP bound mu."""
        return math.sqrt(math.fsum(n * loss.rough_mu**2 for loss, n in self.parts))

    @cached_property
    def _by_class(self) -> tuple[tuple[type[Part], list[Part], Array], ...]:
        """Return (class, losses, counts) for each class of parts."""
        classes: dict[type[Part], list[tuple[Part, int]]] = {}
        for loss, count in self.parts:
            classes.setdefault(type(loss), []).append((loss, count))
        return tuple(
            (kind, [loss for loss, _ in parts], np.array([float(n) for _, n in parts]))
            for kind, parts in classes.items()
        )

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) of the sum."""
        total = np.zeros(z.shape, dtype=z.dtype)
        for loss, count in self.parts:
            total = total + count * loss.log_mgf(z)
        return total

    def places(self, tilt: float, height: float) -> float:
        """Estimate the number of terms in the computation of K(z) at z = tilt + i height."""
        total = 0.0
        for kind, losses, _ in self._by_class:
            total += kind.sum_of_places(losses, tilt, height)
        return total

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        """Return K(z), and a bound on the error of e^K relative to e^{K(Re z)} [C-3].

        Let phi be e^{K(z) - K(Re z)} of a part, and e a bound on its error. The product of all true
        phi is at most the product of all |phi| + e. Each addition to the sum of K errs by at most
        one rounding unit of the sum of all |K|. A node z is dropped if its product so far, times
        the factor of ``log_rest``, is negligible.

        Args:
            z: real, or on one vertical line from the real axis upward; shape (n,).
            log_rest: logarithm of another factor at each z, shape (n,); if left out, no node is
                dropped.
        """
        line = z.dtype.kind == "c"
        total = np.zeros(z.shape, z.dtype)
        size, grown, reach = np.zeros((3, len(z)))
        alive = np.arange(len(z))
        for kind, losses, counts in self._by_class:
            done = 0
            while done < len(losses) and len(alive):
                rows = slice(done, done + max(1, (1 << 16) // len(alive)))  # limits the memory
                charge(3 * CALL * (1 + (1 if line else len(alive)) * len(losses[rows])))
                k, error = kind.mgfs(losses[rows], z[alive])
                n, done = counts[rows], rows.stop
                total[alive] += np.add.reduce(n[:, None] * k)  # in one thread
                reach[alive] += n @ np.abs(k)
                error = np.log(np.maximum(error, 1e-300))
                if line:
                    log_phi = real_part(k) - real_part(k[:, :1])
                    size[alive] += n @ log_phi
                    error = error - log_phi
                grown[alive] += n @ np.logaddexp(0.0, error)
                if log_rest is not None:
                    # Below e^-50 a node only adds to the error.
                    there = size[alive] + grown[alive] + log_rest[alive] > -50.0
                    if np.count_nonzero(there) < 0.7 * len(alive):
                        total[alive[~there]] += NEGLIGIBLE_K
                        alive = alive[there]
        # A product for each part, and a sum of len(parts) terms.
        # slack: counted
        grown = np.minimum(grown + (len(self.parts) + 4) * UNIT * reach, 700.0 - size)
        factor = np.exp(size)
        error = np.where(grown < 1, factor * np.expm1(np.minimum(grown, 1.0)), np.exp(size + grown))
        if log_rest is None:
            return total, error
        dropped = real_part(total) <= 0.5 * NEGLIGIBLE_K
        return total, np.where(dropped, np.exp(np.minimum(size + grown, 700.0)), error)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return K, mean, and variance of the tilted sum at each tilt; uncertified."""
        total = np.zeros((3, len(tilts)))
        charge(CALL * (5 + len(self.parts)))
        for kind, losses, counts in self._by_class:
            total += kind.sum_of_moments(losses, counts, tilts)
        return total[0], total[1], total[2]

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        """Return the log of a bound on the tilted characteristic function, as `Loss.decay` does.

        Stop adding parts if the sum decays about as fast as for a normal distribution.

        Args:
            need: the decay that is enough: log |phi| <= -need.
        """
        total = np.zeros(len(edges))
        for loss, count in self.laws:
            charge(CALL)
            total = total + count * loss.decay(tilt, edges, -need / count)
            left = np.maximum.accumulate(total[::-1])[::-1]
            # The fourth edge is about twice as far as a normal distribution's end.
            if left[min(4, len(edges) - 1)] <= -need:
                break
        return total
