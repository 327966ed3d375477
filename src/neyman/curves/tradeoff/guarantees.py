"""Define guarantees by name: the tightest curve that each definition implies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.discrete_gaussian import root_above
from neyman.curves.losses.finite import LEAST_EPSILON, MOST_EPSILON, FiniteLoss, response_loss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.renyi_bound import RenyiBound, from_orders
from neyman.curves.tradeoff.enclosure import exponential
from neyman.curves.tradeoff.piecewise_linear import Polygon, composition_between, hull
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.rounding import above

MAX_PARAMETER = 10**12  # largest rho, Renyi order, and epsilon of an order


def _single(loss: Part) -> Tradeoff:
    return Tradeoff.of([Composition.of([(loss, 1)])])


def _define(curve: Tradeoff, **numbers: Fraction) -> Tradeoff:
    """Store in ``curve`` the exact numbers, by name, that define it. It must be a new object."""
    object.__setattr__(curve, "definition", tuple(numbers.items()))
    return curve


def _decimal(value: float) -> Fraction:
    """Return the shortest decimal, at most 17 digits, that rounds to ``value`` (nearest or up)."""
    texts = (f"{value:.{digits}g}" for digits in range(1, 18))
    return next(Fraction(text) for text in texts if value in (float(text), above(Fraction(text))))


def perfect() -> Tradeoff:
    """Return the curve of perfect privacy, f(alpha) = 1 - alpha: an attacker can learn nothing.

    Examples:
        >>> import neyman as ny
        >>> round(float(ny.perfect().power(level=0.05)), 6), ny.perfect() >= ny.pure("0.1")
        (0.05, True)
    """
    return Tradeoff.of([Composition()])


def pure(epsilon: float | Fraction | str) -> Tradeoff:
    """Return the curve of pure epsilon-DP.

    f(alpha) = max(0, 1 - e^epsilon alpha, e^-epsilon (1 - alpha)).

    Args:
        epsilon: at least 0.

    Returns:
        The curve of binary randomized response. Every epsilon-DP mechanism is at least as private
        (Kairouz, Oh and Viswanath 2015; Wasserman and Zhou 2010).

    Examples:
        >>> import neyman as ny
        >>> round(float(ny.pure(1).power(level=0.05)), 4)
        0.1359
    """
    return approximate(epsilon, 0.0)


def approximate(epsilon: float | Fraction | str, delta: float | Fraction | str) -> Tradeoff:
    """Return the curve of (epsilon, delta)-DP.

    f = max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)).

    Args:
        epsilon: at least 0.
        delta: in [0, 1). Stored as a float. Other numbers are rounded up.

    Examples:
        >>> import neyman as ny
        >>> round(float(ny.approximate(1, 1e-6).power(level=0.05)), 4)
        0.1359
        >>> ny.Gaussian(sigma=5).tradeoff() >= ny.approximate(1, 1e-6)
        True

    Source: Dong, Roth and Su 2022, proposition 2.5; Kairouz, Oh and Viswanath 2015.
    """
    exact = check.exact("epsilon", epsilon)
    check.non_negative("epsilon", float(exact))
    if exact and not LEAST_EPSILON <= exact <= MOST_EPSILON:
        raise ValueError(f"epsilon = {epsilon!r} must be 0, or from 1e-150 to {MOST_EPSILON:g}")
    share = _float_above("delta", delta)
    if not 0 <= share < 1:
        raise ValueError(f"delta = {delta!r} must be at least 0 and below 1")
    if share == 0:
        return _single(response_loss(exact, failure=share)) if exact else perfect()
    loss = FiniteLoss(Fraction(1), (0,), (math.log1p(-share),), share, share)
    if exact:
        loss = response_loss(exact, failure=share)
    return _define(_single(loss), epsilon=exact, delta=_decimal(share))


def pbdp(epsilon: float | Fraction | str, delta: float | Fraction | str) -> Tradeoff:
    """Return the curve of probabilistically bounded DP.

    It says: a test whose power exceeds e^epsilon times its level has power <= delta. With
    x = delta e^-epsilon, this is f(x) >= 1 - delta and f(1 - delta) >= x. At each level a, the
    smallest such f(a) is the least of three curves: pure epsilon-DP; the leak (1 - d)(1 - a)
    through the first point, with 1 - d = (1 - delta) / (1 - x); and the inverse of the leak. This
    least is not convex, so no single mechanism has it at every level.

    Args:
        epsilon: at least 0.
        delta: in [0, 1]; 1 claims nothing.

    Returns:
        The largest convex curve below these three, which composes. It is the curve of (log((1 - d -
        c) / c), d)-DP with c = 1 / (1 + e^epsilon), or of total variation d if 2 c > 1 - d. Its
        delta(epsilon) equals the delta of the three. `Tradeoff.pbdp` and the power at a level are
        larger than those of the three, because the convex curve has likelihood ratios above
        e^epsilon up to its corner at c.

    Examples:
        >>> import neyman as ny
        >>> f = ny.pbdp(1, "1e-3")
        >>> round(float(f.power(level=0.05)), 4)
        0.1364

    Source: Kifer, Abowd et al. 2022 (the definition); [TC-11] (the curve).
    """
    exact, share = check.exact("epsilon", epsilon), check.exact("delta", delta)
    if not 0 <= exact <= MOST_EPSILON:
        raise ValueError(f"epsilon = {epsilon!r} must be between 0 and {MOST_EPSILON:g}")
    if not 0 <= share <= 1:
        raise ValueError(f"delta = {delta!r} must be between 0 and 1")
    if share == 0:
        return pure(exact)
    if share == 1:
        return _single(NonPrivateLoss())
    sides: list[Polygon] = []
    for ratio in exponential(exact):
        x, y = sorted((share / ratio, 1 - share))  # the point on or above the diagonal [TC-11]
        corner = x / (1 - y + x)
        leak = 1 - y / (1 - x)
        sides.append(hull([(Fraction(0), leak), (corner, 1 - corner), (1 - leak, Fraction(1))]))
    return Tradeoff.of([composition_between((sides[0], sides[1]))])


def gdp(mu: float | Fraction | str) -> Tradeoff:
    """Return the curve of Gaussian DP: f = G_mu, G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu).

    Args:
        mu: at least 0; the distance between two normal distributions, in standard deviations.

    Examples:
        >>> import neyman as ny
        >>> round(float(ny.gdp(1).power(level=0.05)), 4)
        0.2595

    Source: Dong, Roth and Su 2022, definition 2.6.
    """
    mu = check.non_negative("mu", check.plain("mu", mu))
    if mu and not 1e-150 < mu < 1e150:
        raise ValueError(f"mu = {mu!r} must be 0, or between 1e-150 and 1e150")
    if not mu * mu > 0:
        return perfect()
    return _define(_single(GaussianLoss(mu * mu)), gdp=Fraction(repr(mu)))


def gdp_of_square(squared: Fraction) -> Tradeoff:
    """Return the Gaussian DP curve at mu, the root of ``squared``, rounded up."""
    return gdp(root_above(squared))


def zcdp(rho: float | Fraction | str, delta: float | Fraction | str = 0.0) -> Tradeoff:
    """Return the curve of rho-zCDP, or of delta-approximate zCDP.

    D_a <= a rho holds for every order a > 1 in both directions, and the curve uses every real
    order. Bare guarantees compose by adding their bounds, before they become a curve. A zCDP budget
    is checked by rho itself, because the curve that zCDP implies does not imply zCDP. With a delta,
    the bounds hold except on an event of probability delta, which may reveal everything.

    Args:
        rho: at least 0.
        delta: in [0, 1).

    Examples:
        >>> import neyman as ny
        >>> round(float((ny.zcdp("0.01") ** 100).epsilon(delta=1e-6)), 3)
        7.766

    Source: Bun and Steinke 2016, definitions 1.1 and 8.1; Balle et al. 2020.
    """
    exact = _rate("rho", rho)
    bare = _single(RenyiBound(exact)) if exact else perfect()
    named = _decimal(_float_above("delta", delta))
    beside = {"delta": named} if named else {}
    return _define(bare @ approximate(0, delta), zcdp=exact, **beside)


def tcdp(rho: float | Fraction | str, omega: float | Fraction | str) -> Tradeoff:
    """Return the curve of truncated concentrated DP.

    D_a <= a rho holds for 1 < a < omega, in both directions.

    Args:
        rho: at least 0.
        omega: above 1; inf gives `zcdp`.

    Returns:
        The curve that the definition implies. By continuity the bound also holds at omega. Such
        guarantees compose by adding rho and taking the least omega.

    Examples:
        >>> import neyman as ny
        >>> round(float(ny.tcdp("0.1", 20).epsilon(delta=1e-6)), 3)
        2.142

    Source: Bun, Dwork, Rothblum and Steinke 2018, definition 1.
    """
    exact, last = _rate("rho", rho), _order("omega", omega)
    if last == 1:
        raise ValueError(
            f"omega = {omega!r} must be above 1; for the order 1 use ny.renyi({{1: rho}})"
        )
    return _single(RenyiBound(exact, top=last)) if exact else perfect()


def renyi(bounds: Mapping[Any, Any]) -> Tradeoff:
    """Return the curve of Renyi DP at finitely many orders: D_a <= bounds[a] in both directions.

    Bounds between the orders follow from the convexity of (a - 1) D_a. Beyond the largest order
    there is no bound, unless it is inf. Such guarantees compose by adding their bounds, before they
    become a curve. A budget of this kind is checked at each order.

    Args:
        bounds: {order: epsilon}, at least one. Orders are at least 1, each once: 1 is KL, inf is
            the pure epsilon. Epsilons are at least 0. Both are exact, up to 1e12.

    Examples:
        >>> import neyman as ny
        >>> round(float(ny.renyi({2: "0.1", 8: "0.5"}).epsilon(delta=1e-6)), 3)
        2.039

    Source: Mironov 2017, definition 4; van Erven and Harremoes 2014 (convexity).
    """
    if not isinstance(bounds, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"bounds = {bounds!r} must be a mapping of orders to epsilons: {{2: 0.1}}")
    if not bounds:
        raise ValueError("bounds = {} must have at least one order, such as {2: 0.1}")
    rates: dict[Fraction | float, Fraction] = {}
    for order, epsilon in bounds.items():
        exact = _order("bounds: the order", order)
        if exact in rates:
            raise ValueError(f"bounds = {bounds!r} has the order {order!r} twice; keep one of them")
        rates[exact] = _rate(f"bounds[{order!r}]", epsilon)
    if not all(rates.values()):
        return perfect()  # a divergence of 0: equal distributions
    if list(rates) == [math.inf]:
        return pure(rates[math.inf])
    return _single(from_orders(rates))


def _float_above(name: str, value: object) -> float:
    """Return a float unchanged, and any other number as the float at or above it."""
    exact = check.exact(name, value)
    return float(exact) if isinstance(value, float) else above(exact)


def _rate(name: str, value: object) -> Fraction:
    """Return a bound on a divergence, as an exact number: 0, or from 1e-150 to 1e12."""
    exact = check.exact(name, value)
    check.non_negative(name, float(exact))
    if exact and not LEAST_EPSILON <= exact <= MAX_PARAMETER:
        raise ValueError(f"{name} = {value!r} must be 0, or from 1e-150 to 1e12")
    return exact


def _order(name: str, value: object) -> Fraction | float:
    """Return a Renyi order: an exact number of at least 1, or inf."""
    if isinstance(value, float) and value == math.inf:
        return math.inf
    exact = check.exact(name, value)
    if not 1 <= exact <= MAX_PARAMETER:
        raise ValueError(
            f"{name} = {value!r} must be at least 1 (1 is KL, inf is pure), up to 1e12"
        )
    return exact
