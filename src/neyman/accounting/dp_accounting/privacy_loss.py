"""Convert dp_accounting's events, accountant and loss distributions, in both directions.

This needs `neyman[dp-accounting]`, which is imported at its first use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from neyman.accounting.dp_accounting.dp_events import described
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.external_pld import ExternalPld
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.profiles.profile import Profile
from neyman.curves.profiles.selection import select
from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.relation import Neighboring, Relation, neighboring_of, relation_of

if TYPE_CHECKING:
    from dp_accounting import DpEvent  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution  # pyright: ignore[reportMissingTypeStubs]

    from neyman.accounting.dp_accounting.accountant import NeymanAccountant

__all__ = ["NeymanAccountant", "from_dp_event", "from_pld", "to_pld"]


@dataclass(frozen=True)
class Limits:
    """Limit the grid of a privacy loss distribution."""

    interval_epsilon: float = 1e-4  # dp_accounting's own default
    points: int = 1 << 20
    largest_epsilon: float = 600.0  # largest epsilon, far below overflow of e^epsilon
    negligible_mass: float = 1e-15  # P-mass of low losses that may be rounded up to a higher loss


LIMITS = Limits()


def package(module: str = "dp_accounting") -> Any:
    """Return dp_accounting, or one of its modules.

    Raises:
        ModuleNotFoundError: it is not installed. The message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if (missing.name or "dp_accounting").partition(".")[0] != "dp_accounting":
            raise  # a dependency of dp_accounting is missing
        raise ModuleNotFoundError(
            "dp_accounting is not installed: pip install 'neyman[dp-accounting]'", name=missing.name
        ) from missing


def __getattr__(name: str) -> Any:
    if name == "NeymanAccountant":
        package()
        from neyman.accounting.dp_accounting.accountant import NeymanAccountant

        return NeymanAccountant
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def from_dp_event(event: DpEvent, neighboring: Neighboring = "add-remove") -> Mechanism:
    """Return the mechanism that a dp_accounting event describes.

    An event's noise multiplier is relative to the norm of one record. Under replace-one, one record
    leaves and another joins, so the shift is twice as large (the Poisson-subsampled Gaussian has
    its own pair).

    Args:
        event: a tree of events: all events that `pld.PLDAccountant` supports, Poisson subsampling
            of every mechanism that can be subsampled, and fixed-size samples under replace-one.
        neighboring: "add-remove" or "replace-one".

    Raises:
        ValueError: an event or a relation has no certified description, or a parameter is out of
            range.
        TypeError: ``event`` is not an event.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.dp_accounting.privacy_loss import from_dp_event
        >>> from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
        >>> from_dp_event(PoissonSampledDpEvent(0.01, GaussianDpEvent(1)))
        Gaussian(sigma=1.0, sensitivity=1).subsample(rate=0.01)
    """
    neighboring_of(neighboring)
    if not isinstance(event, package().DpEvent):
        raise TypeError(f"event = {event!r} must be a dp_accounting.DpEvent")
    return described(event, neighboring)


def from_pld(
    pld: PrivacyLossDistribution,
    interval: float = LIMITS.interval_epsilon,
    neighboring: Relation = "any",
) -> Tradeoff:
    """Return the curve that a pessimistic dp_accounting loss distribution states.

    The function reads delta at multiples of the interval, in each direction. The curve is linear
    between these points. If the distribution is correct, its mechanism is at least as private as
    the curve. This is not certified here, and the `method` of every answer says so. The ends of an
    answer enclose the stated curve, not the mechanism's.

    Args:
        pld: a distribution rounded up ("pessimistic"). An optimistic one is a lower bound on the
            privacy loss. It proves no guarantee, so it is refused.
        interval: the distribution's value_discretization_interval.
        neighboring: the relation of the distribution, which does not store it.

    Returns:
        A curve that composes with others. Its two directions stay separate.

    Raises:
        ValueError: the estimate is optimistic, the interval or the relation is wrong, or there are
            more than 2^20 points.
        TypeError: ``pld`` is not a `PrivacyLossDistribution`.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.dp_accounting.privacy_loss import from_pld, to_pld
        >>> f = from_pld(to_pld(ny.Laplace(1), interval=0.01), interval=0.01)
        >>> round(float(f.delta(epsilon=0.5)), 4)
        0.2212

    Source: Doroshenko et al. 2022, "Connect the dots".
    """
    step = check.between("interval", interval, 1e-12, 10.0)
    relation_of(neighboring)
    if not isinstance(pld, _distribution()):
        raise TypeError(f"pld = {pld!r} must be a dp_accounting PrivacyLossDistribution")
    removed, added = (pld.compose(part, 0.0) for part in _units(pld, step))
    ahead = _read(removed, step)
    # If the two directions agree, read one.
    behind = ahead if _same_delta(removed, added, ahead, step) else _read(added, step)
    if not ahead.mass or not behind.mass:
        return Tradeoff.of([Composition.of([(NonPrivateLoss(), 1)])], neighboring)
    source = "upper bound stated by a pessimistic PLD, not certified here"
    loss = ExternalPld(_finite(ahead, step), _finite(behind, step), source)
    return Tradeoff.of([Composition.of([(loss, 1)])], neighboring)


def to_pld(
    of: Described, interval: float = LIMITS.interval_epsilon, tail: float = LIMITS.negligible_mass
) -> PrivacyLossDistribution:
    """Return a pessimistic dp_accounting loss distribution that dominates a mechanism or a curve.

    The result connects certified upper ends of delta at multiples of the interval. Its delta is at
    least the mechanism's delta at every epsilon, in each direction.

    Args:
        of: a mechanism, or a `Tradeoff`.
        interval: the value_discretization_interval, from 1e-12 to 10. The excess over the curve is
            of second order in the interval.
        tail: largest delta of high losses that count as infinite, in (0, 1).

    Returns:
        A `PrivacyLossDistribution`. Its remove direction has the order of the mechanism's pairs:
        with the record against without.

    Raises:
        ValueError: the interval is too small: more than 2^20 points would be needed.
        TypeError: ``of`` has no curve.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.dp_accounting.privacy_loss import to_pld
        >>> round(float(to_pld(ny.Laplace(1), interval=0.01).get_delta_for_epsilon(0.5)), 4)
        0.2212

    Source: Doroshenko et al. 2022, "Connect the dots".
    """
    step = check.between("interval", interval, 1e-12, 10.0)
    tail = check.probability("tail", tail)
    if not 0 < tail < 1:
        raise ValueError(f"tail = {tail!r} must be between 0 and 1, both excluded")
    f = check.described("of", of).tradeoff()
    ahead, behind = _orders(f)
    removed, added = _table_of_profiles(ahead, step, tail), None
    if behind != ahead:
        added = _table_of_profiles(behind, step, tail)
    return _distribution().create_from_rounded_probability(
        dict(zip(removed.index, removed.mass, strict=True)),
        removed.infinite,
        step,
        True,
        None if added is None else dict(zip(added.index, added.mass, strict=True)),
        None if added is None else added.infinite,
        symmetric=added is None,
    )


def _distribution() -> Any:
    return package("dp_accounting.pld.privacy_loss_distribution").PrivacyLossDistribution


def _orders(f: Tradeoff) -> tuple[tuple[Profile, ...], tuple[Profile, ...]]:
    """Return the privacy profiles of all pairs as given, and of all pairs with roles exchanged."""
    if f.joined or f.ordered:
        return f.profiles, f.profiles
    forward = tuple(dict.fromkeys(f.alternatives))
    backward = tuple(dict.fromkeys(c.reverse() for c in f.alternatives))
    if set(forward) == set(backward):
        return f.profiles, f.profiles
    return tuple(map(select, forward)), tuple(map(select, backward))


@dataclass(frozen=True, eq=False)
class _Table:
    """Represent a pair (P, Q) whose finite losses are whole multiples of one step."""

    index: list[int]  # losses, in steps
    mass: list[float]  # P's mass at each loss
    infinite: float  # P's mass of infinite loss
    missing: float  # Q's mass where P has none


def _connect_dots(first: int, step: float, delta: Array) -> _Table:
    """Return the pair whose delta is linear in e^epsilon between multiples of ``step`` [DI-4].

    With a_i = (delta_i - delta_{i+1}) / (e^step - 1) the mass at i is delta_{i-1} - delta_i +
    a_{i-1} - a_i. A value above the line between its adjacent values, by rounding or wide bounds,
    is dropped, so no mass is negative. The remaining curve is convex, and an upper bound if all
    values are.

    Args:
        delta: upper bounds at the epsilons first * step, (first + 1) * step, ..., shape (n,), n >=
            2.
    """
    index = np.arange(first, first + len(delta))
    # A mass errs by a few units of its two terms. Telescoped, these are n units of delta [DI-5].
    # slack: delta_of_a_pair_that_is_tabulated
    delta = np.minimum(np.minimum.accumulate(delta) * (1 + 24 * len(delta) * UNIT), 1.0)
    mass = _masses(index, step, delta, 1.0)
    while not (good := mass >= 0).all():
        index, delta = index[good], delta[good]
        mass = _masses(index, step, delta, 1.0)
    above = np.nonzero(np.cumsum(mass) > LIMITS.negligible_mass)[0]
    if len(above) and above[0] > 0:
        # Lower losses together have a negligible mass. Add it to the first remaining loss.
        low = above[0]
        mass[low] += mass[:low].sum()
        mass, index, delta = mass[low:], index[low:], delta[low:]
    used = mass > 0
    infinite, only_q = float(delta[-1]), 1 - float((mass * np.exp(-step * index)).sum())
    return _Table(
        index[used].tolist(), mass[used].tolist(), infinite, float(np.clip(only_q, 0.0, 1.0))
    )


def _masses(index: Array, step: float, delta: Array, top: float) -> Array:
    """Return P's masses at losses index * step, if delta is linear in e^epsilon between them.

    ``top``: delta at -infinity.
    """
    drop = -np.diff(delta)
    rest = np.append(drop / np.expm1(step * np.diff(index)), 0.0)
    return np.append(top - delta[0], drop + rest[:-1]) - rest


def _window(delta: Any, step: float, tail: float) -> tuple[int, int]:
    """Return the first and the last index of losses that have more than a negligible mass.

    Args:
        delta: function from increasing epsilons to upper bounds on delta.
        tail: largest delta that counts as negligible above the last index.
    """
    most = max(min(LIMITS.points, int(LIMITS.largest_epsilon / step)), 1)
    ends = np.unique(np.minimum(2 ** np.arange(0, 24), most))
    index = np.concatenate([-ends[::-1], [0], ends])
    profile = delta(index * step)
    # A mass missing from 1 is rounding, not a loss of -inf.
    top = float(profile[0]) if most * step > 50 else 1.0
    low, high = _bent(index, profile, top, step, tail)
    if most == LIMITS.points and most in (-low, high):
        raise ValueError(
            f"interval = {step!r} is too small: the losses reach over more than {LIMITS.points} "
            "intervals; choose a larger one"
        )
    index = np.unique(np.linspace(low, high, 65).astype(int))
    low, high = _bent(index, delta(index * step), top, step, tail)
    return low, max(high, low + 1)


def _bent(index: Array, delta: Array, top: float, step: float, tail: float) -> tuple[int, int]:
    """Return the entries of ``index`` below and above which the mass of losses is negligible.

    Above, a mass of up to ``tail`` counts as negligible. ``top`` is delta at -infinity.
    """
    delta = np.minimum.accumulate(np.minimum(delta, top))
    mass = np.cumsum(_masses(index, step, delta, top))
    low = max(int(np.argmax(mass > LIMITS.negligible_mass)) - 1, 0)
    high = int(np.argmax(delta <= delta[-1] * (1 + 1e-12) + tail))
    return int(index[low]), int(index[high])


def _table_of_profiles(profiles: tuple[Profile, ...], step: float, tail: float) -> _Table:
    """Return a pair that dominates all profiles, from certified upper bounds on delta.

    Losses are multiples of ``step``. ``tail``: largest delta of losses that count as infinite.
    """
    above = [p.from_above() for p in profiles]

    def delta(epsilon: Array) -> Array:
        highest = np.max([p.log_deltas(epsilon)[1] for p in above], axis=0)
        # exp errs by 2 units, which are among the 24 of `_connect_dots`.
        return np.exp(np.minimum(highest * (1 - 4 * UNIT), 0.0))  # slack: counted

    low, high = _window(delta, step, tail)
    return _connect_dots(low, step, delta(np.arange(low, high + 1) * step))


def _units(pld: PrivacyLossDistribution, step: float) -> tuple[Any, Any]:
    """Return two distributions. Composing ``pld`` with one of them leaves only one direction of it.

    In one direction, its loss is always 0. In the other, it has no mass.
    """
    pmf = package("dp_accounting.pld.pld_pmf")
    law_of = _distribution()

    def dense(mass: float, pessimistic: bool) -> Any:
        return pmf.DensePLDPmf(step, 0, np.array([mass]), 0.0, pessimistic)

    def sparse(mass: float, pessimistic: bool) -> Any:
        return pmf.SparsePLDPmf({0: mass}, step, 0.0, pessimistic)

    def fits(unit: Any) -> bool:
        try:
            pld.validate_composable(unit)
        except ValueError:
            return False
        return True

    for make in (dense, sparse):
        one, none = make(1.0, True), make(0.0, True)
        if fits(law_of(one, none)):
            return law_of(one, none), law_of(none, one)
        if fits(law_of(make(1.0, False), make(0.0, False))):
            raise ValueError(
                "pld: an optimistic estimate is a lower bound on the privacy loss, which proves no "
                "guarantee; build it with pessimistic_estimate=True"
            )
    raise ValueError(
        f"interval = {step!r} is not this distribution's: give its value_discretization_interval"
    )


def _delta(pld: Any, epsilon: Array) -> Array:
    return np.asarray(pld.get_delta_for_epsilon(epsilon), dtype=float)


def _read(pld: PrivacyLossDistribution, step: float) -> _Table:
    """Return the pair of the only direction of ``pld``, from its delta at multiples of ``step``."""
    low, high = _window(partial(_delta, pld), step, 0.0)
    return _connect_dots(low, step, _delta(pld, np.arange(low, high + 1) * step))


def _same_delta(
    one: PrivacyLossDistribution, other: PrivacyLossDistribution, read: _Table, step: float
) -> bool:
    """Return True if both distributions have the same delta at the losses of ``read``.

    One loss below and one above them are compared too.
    """
    index = np.array([-64, *read.index, 64]) if read.index else np.zeros(1)
    if read.index:
        index[0] += read.index[0]
        index[-1] += read.index[-1]
    return bool(np.array_equal(_delta(one, index * step), _delta(other, index * step)))


def _finite(table: _Table, step: float) -> FiniteLoss:
    log_p = tuple(math.log(m) for m in table.mass)
    return FiniteLoss(Fraction(step), tuple(table.index), log_p, table.infinite, table.missing)
