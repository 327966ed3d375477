"""Measure marginals of one table consistently, without measuring anything twice.

Marginals by overlapping sets of attributes repeat each other: age by sex and age by race both
describe age. So the mechanism measures, for each set B of attributes, the *part* of B: the
information of the marginal by B beyond all marginals by fewer of its attributes. With n_i values of
attribute i, and the matrix J of ones, the part is the integer vector

    r_B = (tensor over i in B of (n_i I - J)) x_B,        x_B the marginal by B.

The marginal by A is the sum over B within A of part B, spread evenly over the cells of A. Its parts
are independent [MA-5]. `marginals_sensitivity` bounds how far a record moves r_B, and
`optimal_marginals` finds the best noise variances s_B^2.

Source: Xiao, He, Zhang, Kifer 2023 (residual planner); the integer version is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.discrete_gaussian import LIMITS as DISCRETE_GAUSSIAN_LIMITS
from neyman.curves.losses.discrete_gaussian import integer_mu
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import exact_above_zero
from neyman.mechanisms.marginals_sensitivity import Part, largest, subsets
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import discrete_gaussian
from neyman.noise.parameters import secure_unless
from neyman.numerics import check
from neyman.numerics.relation import Neighboring, neighboring_of, size_known


@dataclass(frozen=True)
class Limits:
    """Limit the attributes, the parts (sets of attributes), and the variance of integer noise."""

    attributes: int = 64
    parts: int = 1 << 17
    variance: int = 1 << 104


LIMITS = Limits()


@dataclass(frozen=True)
class MarginalEstimate:
    """Store an estimated marginal.

    Args:
        values: array with one axis per attribute. Unbiased, and consistent with all other
            estimates.
        standard_error: standard error of each cell, in counts.
    """

    values: NDArray[np.float64]
    standard_error: float


@dataclass(frozen=True, init=False, repr=False)
class Marginals(Mechanism):
    """Measure the parts of some marginals with integer noise. The curve is Gaussian.

    An added, removed or replaced record moves all parts at once. If possible, the worst change is
    found for all parts together (`exact`). Otherwise the largest shifts of the single parts are
    added, which gives an upper bound. rho is the largest sum of shift^2 / (2 s_B^2), exact. The
    curve is G_mu, mu = sqrt(2 rho) (1 + 3e-6), including the cost of integer noise (`integer_mu`).

    Args:
        sizes: number of values of each attribute, at least 2. Each record has one value.
        noise: noise variance s_B^2 on each number of r_B, exact, above 0, for each part B. A part
            requires all parts of fewer of its attributes. "add-remove" also requires ``()``, the
            number of records. "replace-one" forbids it, because the number is known.
        neighboring: "add-remove" or "replace-one".

    You may first drop records with other values, one by one. This also holds under "replace-one",
    because the worst replacement moves more than a dropped record.

    Examples:
        >>> import neyman as ny
        >>> made = ny.Marginals({"sex": 2}, noise={(): 100, ("sex",): 100})
        >>> made.rho(), made.variance(["sex"])
        (Fraction(3, 200), 37.5)
    """

    sizes: tuple[tuple[str, int], ...]
    noise: tuple[tuple[Part, Fraction], ...]
    relation: Neighboring

    def __init__(
        self,
        sizes: Mapping[str, int],
        noise: Mapping[Part, Fraction | int | str],
        neighboring: Neighboring = "add-remove",
    ) -> None:
        own = checked_sizes(sizes)
        neighboring_of(neighboring)
        variances: dict[Part, Fraction] = {}
        for names, variance in check.mapping("noise", noise, "{('age',): 100}").items():
            part = ordered("noise", names, own)
            if part in variances:
                raise ValueError(f"noise has the part {part} twice")
            variances[part] = exact_above_zero(f"noise[{part}]", variance)
        _check_parts(variances, neighboring)
        in_order = sorted(variances.items(), key=lambda item: (len(item[0]), item[0]))
        self._keep(sizes=tuple(own.items()), noise=tuple(in_order), relation=neighboring)
        numbers = sum(math.prod(own[name] for name in part) for part in variances)
        if numbers > DISCRETE_GAUSSIAN_LIMITS.numbers:
            raise ValueError(f"noise: {numbers} numbers in all; at most 2^60 are possible")
        if max(variances.values()) * self.unit**2 > LIMITS.variance:
            part = max(variances, key=lambda part: variances[part])
            raise ValueError(
                f"noise[{part}] = {float(variances[part]):g} is too far from the least, "
                f"{float(min(variances.values())):g}: 64-bit integers must hold both"
            )
        if not self.room():
            raise ValueError(
                f"noise: the least, {float(min(variances.values())):g}, is too small: 64-bit "
                "integers cannot hold the parts at its scale; add noise, or measure smaller parts"
            )

    def __repr__(self) -> str:
        return f"Marginals({dict(self.sizes)}, {dict(self.noise)}, neighboring={self.relation!r})"

    @property
    def neighboring(self) -> Neighboring:
        """Return the neighboring relation of the mechanism."""
        return self.relation

    @cached_property
    def unit(self) -> int:
        """Return the power of two that scales the parts r_B to noise variances of 2^20 or more."""
        least = min(variance for _, variance in self.noise)
        bits = math.log2(least.numerator) - math.log2(least.denominator)
        # Bits of the smallest variance: with fewer, integer noise costs more than 3e-6 in mu.
        return 1 << max(0, math.ceil((20 - bits) / 2) + 1)

    @cached_property
    def _spent(self) -> tuple[Fraction, bool]:
        precisions = {part: 1 / variance for part, variance in self.noise}
        return largest(dict(self.sizes), precisions, self.relation)

    @property
    def exact(self) -> bool:
        """Return True if some possible change attains rho; otherwise rho is an upper bound."""
        return self._spent[1]

    def rho(self) -> Fraction:
        """Return the largest sum of shift^2 / (2 s_B^2).

        Source: Canonne, Kamath and Steinke 2020, theorem 4.
        """
        return self._spent[0] / 2

    def mu(self) -> float:
        """Return the mu of the curve, rounded up [MA-4]."""
        least = min(variance for _, variance in self.noise) * self.unit**2
        return integer_mu(2 * self.rho() * least, least)

    def losses(self) -> tuple[Composition, ...]:
        """Return one Gaussian loss."""
        mu = self.mu()
        return (Composition.of([(GaussianLoss(mu * mu), 1)]),)

    def room(self) -> int:
        """Return the largest number of records for which 64-bit integers hold the parts.

        With more records, numbers wrap around. Then the estimates are wrong, but the guarantee
        holds.
        """
        sizes = dict(self.sizes)
        most = max(math.prod(sizes[i] for i in part) for part, _ in self.noise)
        widest = math.isqrt(math.ceil(max(v for _, v in self.noise) * self.unit**2)) + 1
        return max(0, (1 << 63) - 40 * widest) // (most * self.unit)

    def measure(
        self, tables: Mapping[Part, NDArray[Any]], bits: Bits | None = None
    ) -> dict[Part, NDArray[np.int64]]:
        """Return the noisy parts, for release.

        Args:
            tables: a dict from attributes to the exact marginal, an integer array with one axis per
                attribute. All marginals count the same records, each record once. For each part,
                one table must have all of its attributes.
            bits: the source of randomness, by default `SecureBits`.

        Returns:
            A dict from parts to unit * r_B with noise, an array with one axis per attribute.
        """
        sizes = dict(self.sizes)
        exact: dict[Part, NDArray[np.int64]] = {}
        for names, given in check.mapping("tables", tables, "{('age',): [3, 4]}").items():
            part = ordered("tables", names, sizes)
            exact[part] = _transpose(names, part, given, sizes)
        source = secure_unless(bits)
        covering = {part: _smallest_table(part, exact) for part, _ in self.noise}
        noisy: dict[Part, NDArray[np.int64]] = {}
        for part, variance in self.noise:
            table = exact[covering[part]]
            axes = tuple(i for i, name in enumerate(covering[part]) if name not in part)
            table = table.sum(axis=axes, dtype=np.int64)
            for axis, name in enumerate(part):
                table = sizes[name] * table - table.sum(axis=axis, keepdims=True)
            noise = discrete_gaussian(variance * self.unit**2, math.prod(table.shape), source)
            with np.errstate(over="ignore"):  # wraps: see room
                noisy[part] = np.asarray(table * np.int64(self.unit) + noise.reshape(table.shape))
        return noisy

    def reconstruct(
        self,
        measured: Mapping[Part, NDArray[np.int64]],
        marginals: Iterable[Part] | None = None,
        *,
        total: int | None = None,
    ) -> dict[Part, MarginalEstimate]:
        """Return consistent marginals with their standard errors.

        Args:
            measured: the result of `measure`.
            marginals: the marginals to return. By default, those that no other marginal contains.
            total: the declared number of records, required under "replace-one". It does not come
                from the data. Marginals add up to it.
        """
        if (total is not None) != size_known(self.relation):
            raise ValueError(
                f"total = {total!r}: give the declared number of records under 'replace-one', "
                "where it is public, and leave it out under 'add-remove', where it is measured"
            )
        sizes = dict(self.sizes)
        check.mapping("measured", measured, "the result of measure()")
        parts: dict[Part, NDArray[np.float64]] = {}
        if total is not None:
            parts[()] = np.float64(check.integer("total", total)) + np.zeros(())
        for part, _ in self.noise:
            shape = tuple(sizes[name] for name in part)
            if part not in measured or np.shape(measured[part]) != shape:
                raise ValueError(f"measured: {part} must be there with the shape {shape}")
            values = np.asarray(measured[part], dtype=np.float64)
            for axis in range(len(part)):
                values = values - values.mean(axis=axis, keepdims=True)
            parts[part] = values / (self.unit * math.prod(sizes[name] for name in part))
        if marginals is None:
            marginals = self.finest()
        estimates: dict[Part, MarginalEstimate] = {}
        for names in check.several("marginals", marginals, "[('age', 'sex')]"):
            of = ordered("marginals", names, sizes)
            if of not in parts:
                raise ValueError(f"marginals: {of} was not measured; see the parts of noise")
            values = np.zeros([sizes[name] for name in of])
            for part in subsets(of):
                spread = math.prod(sizes[name] for name in of if name not in part)
                shape = [sizes[name] if name in part else 1 for name in of]
                values += parts[part].reshape(shape) / spread
            estimates[of] = MarginalEstimate(values, math.sqrt(self.variance(of)))
        return estimates

    def variance(self, marginal: Iterable[str]) -> float:
        """Return the variance of each cell of a marginal [MA-5]."""
        sizes = dict(self.sizes)
        of = ordered("marginal", marginal, sizes)
        noise = dict(self.noise)
        return math.fsum(
            float(noise[part])
            * share(of, part, sizes)
            / math.prod(sizes[name] for name in part) ** 2
            for part in subsets(of)
            if part in noise
        )

    def finest(self) -> tuple[Part, ...]:
        """Return the maximal parts, which no other part contains."""
        parts = {part for part, _ in self.noise}
        covered = {p[:i] + p[i + 1 :] for p in parts for i in range(len(p))}
        return tuple(part for part, _ in self.noise if part not in covered)

    def _fields(self) -> dict[str, Any]:
        return {
            "sizes": [{"attribute": name, "values": size} for name, size in self.sizes],
            "noise": [
                {"attributes": list(part), "sigma_squared": str(variance)}
                for part, variance in self.noise
            ],
            "neighboring": self.relation,
        }

    @classmethod
    def _from_fields(cls, given: Mapping[str, Any]) -> Self:
        return cls(
            {entry["attribute"]: entry["values"] for entry in given["sizes"]},
            {tuple(entry["attributes"]): entry["sigma_squared"] for entry in given["noise"]},
            given["neighboring"],
        )


def share(marginal: Part, part: Part, sizes: Mapping[str, int]) -> float:
    """Return c(A, B), the variance that part B of precision 1 adds to each cell of marginal A.

    The precision of part B is the product of n_i^2 over its attributes, divided by s_B^2.
    """
    own = math.prod(1 - 1 / sizes[name] for name in part)
    return own / math.prod(sizes[name] for name in marginal if name not in part) ** 2


def checked_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the number of values of each attribute. Refuse invalid sizes."""
    if not isinstance(sizes, Mapping) or not 1 <= len(sizes) <= LIMITS.attributes:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"sizes = {sizes!r} must give from 1 to {LIMITS.attributes} attributes their number of "
            "values, such as {'age': 10, 'sex': 2}"
        )
    return {str(name): check.integer(f"sizes[{name!r}]", n, 2) for name, n in sizes.items()}


def ordered(argument: str, names: Iterable[str], sizes: Mapping[str, int]) -> Part:
    """Return the ``names`` in the order of ``sizes``. Refuse unknown and repeated names."""
    try:
        given = (names,) if isinstance(names, str) else tuple(names)
    except TypeError:
        message = f"{argument}: {names!r} must be attributes, such as ('age', 'sex')"
        raise TypeError(message) from None
    for name in given:
        if not isinstance(name, str) or name not in sizes:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(
                f"{argument}: {name!r} is not an attribute; there are {', '.join(sizes)}"
            )
    if len(set(given)) != len(given):
        raise ValueError(f"{argument}: {given!r} names an attribute twice")
    return tuple(name for name in sizes if name in given)


def _check_parts(parts: Mapping[Part, Fraction], neighboring: Neighboring) -> None:
    if len(parts) > LIMITS.parts:
        # Guards against seconds of work for a list so long.
        raise ValueError(f"noise has {len(parts)} parts; at most {LIMITS.parts} are possible")
    if not any(parts):
        raise ValueError("noise must have a part with an attribute")
    if size_known(neighboring) and () in parts:
        raise ValueError(
            "noise[()] must be left out under 'replace-one': the number of records is public there"
        )
    for part in parts:
        for i in range(len(part)):
            fewer = part[:i] + part[i + 1 :]
            if fewer not in parts and (fewer or not size_known(neighboring)):
                raise ValueError(f"noise has {part} and not {fewer}: marginals need both")


def _transpose(
    names: Iterable[str], part: Part, table: NDArray[Any], sizes: Mapping[str, int]
) -> NDArray[np.int64]:
    given = (names,) if isinstance(names, str) else tuple(names)
    values = np.asarray(table)
    if values.dtype.kind not in "iu":
        raise TypeError(f"tables[{given}] must be whole numbers, not {values.dtype}")
    if values.shape != tuple(sizes[name] for name in given):
        raise ValueError(
            f"tables[{given}] has the shape {values.shape}; it must be "
            f"{tuple(sizes[name] for name in given)}"
        )
    return values.astype(np.int64).transpose([given.index(name) for name in part])


def _smallest_table(part: Part, tables: Mapping[Part, NDArray[Any]]) -> Part:
    """Return the attributes of the smallest table that contains a part."""
    covering = [names for names in tables if set(part) <= set(names)]
    if not covering:
        raise ValueError(f"tables: none has all of {part}; give their marginal or a finer one")
    return min(covering, key=lambda names: tables[names].size)
