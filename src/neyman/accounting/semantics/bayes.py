"""Bound an attacker's posterior belief, relative to the posterior without the person's record.

The attacker holds a prior over whole datasets, sees the output, and updates. Compare two posteriors
for the person's record. In the second world, a draw from the attacker's prediction, given the rest
of the data, replaced the record before the release [PO-1]. So the attacker can still learn about
the person from others. Let A and B be the distributions of the output in both worlds. The ratio of
the posteriors is dA/dB, and

    A(dA/dB > e^eps) <= inf over h < eps of delta(h) / (1 - e^{h - eps}) =: tail(eps) [PO-2].

Source: Kifer, Abowd et al. 2022, section 7. By our own short proof, the trade-off curve bounds the
posteriors of an uncertain attacker at least as well as any Renyi order [PO-3, PO-7].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from neyman.accounting.semantics.counterfactuals import COUNTERFACTUALS, Counterfactual, two_factors
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import exact_log
from neyman.curves.losses.loss import Part
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.profiles.profile import Interval, Profile
from neyman.curves.profiles.selection import select
from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.queries import pbdp_delta
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound
from neyman.numerics.operations import LIMITS as OPERATIONS_LIMITS
from neyman.numerics.operations import question_meter
from neyman.numerics.rounding import above, below, exp_down, exp_up, log_of

Attacker = Literal["knows-the-rest", "true-record", "arbitrary-prior"]
ATTACKERS = get_args(Attacker)
"""The kinds of attackers: see `posterior_ratio`."""

Claim = Literal["record", "membership"]
CLAIMS = get_args(Claim)
"""The kinds of claims: see `posterior_chance`."""

# Gaps below epsilon, relative to the distance at which all losses are above.
EPSILON_GAPS = np.geomspace(1e-4, 1.0, 40)
ORDER_FACTORS = np.geomspace(1e-3, 1e3, 60)  # first orders, relative to zCDP's best


BRACKET_WIDTHS = 10.0 ** np.arange(0, -11, -1)  # widths of the brackets that certify a lower bound


def posterior_ratio(
    guarantee: Described,
    epsilon: float | Fraction,
    attacker: Attacker = "arbitrary-prior",
    counterfactual: Counterfactual = "predicted-record",
) -> Bound:
    """Bound the chance that a posterior exceeds e^epsilon times its counterfactual.

    P( posterior / counterfactual > e^epsilon ). The counterfactual is the posterior in a world
    where another record, or none, replaced the person's record before the release.

    Args:
        guarantee: a mechanism, its curve, or a named guarantee. Neighbors must differ by replacing
            one record ("replace-one", or "any" if its shift is from a replacement).
        epsilon: the logarithm of the factor, at least 0. A float is read as the decimal it prints.
        attacker: the attacker, their claim, and the distribution of the probability:

            - "knows-the-rest": they know all other records. The claim is any one fixed statement
              about the person's record (that it is r, or that its race is x), true or not. The
              record is drawn from their prior, which is their counterfactual. This condition is
              necessary: under a wrong prior the ratio may be large every time.
            - "true-record": they know all other records. The claim is the whole true record. The
              probability is over the noise only, for every record possible under their prior. It is
              the pbdp curve, ``guarantee.pbdp(epsilon)``.
            - "arbitrary-prior": they are uncertain about the other records too, and records may
              depend on each other in any way. The claim is the true record (or a true statement
              about it). The other records are drawn from their prior given the claim.
        counterfactual: the replacement of the record:

            - "predicted-record": a draw from the attacker's prediction from the rest of the data
              (option 3 of the source).
            - "default-record": a fixed record, or a draw that does not depend on the data (option
              2). If the attacker knows all other records, nothing changes, because their
              counterfactual is still their prior [PO-10]. For "arbitrary-prior", the release has
              another marginal distribution in that world, and the truth is also drawn from the
              prior. The bound is the least tail(h) + e^{h - epsilon} tail(epsilon - h), which is 0
              from *twice* the pure epsilon on [PO-11].
            - "no-record": the record is dropped (option 1). Neighbors must differ by adding or
              removing a record. If the attacker knows all other records, the bound uses the curve
              of a group of 2, because two records differ by a removal and an addition. For
              "arbitrary-prior", the bound has the same two terms as with a default record.

    Returns:
        A probability; upper is safe. It holds for any processing of the output, and for every
        prior. It is 0 from the pure epsilon on (then also for a wrong prior, for each output).
        Without the record, and for an arbitrary prior with a default record, it is 0 from twice the
        pure epsilon on. The bound of two terms is not exact: its lower end is 0.

        The rest is about a predicted record, or a default one if the attacker knows all other
        records. From a mechanism or a curve, the bound is exact for the worst prior and the worst
        processing of the output: tail(epsilon) for the true record and for an arbitrary prior,
        e^-epsilon tail(epsilon) for "knows-the-rest". For (epsilon_0, delta_0)-DP it is also exact:
        delta_0 / (1 - e^{epsilon_0 - epsilon}) beyond epsilon_0. From a bare Renyi or zCDP
        guarantee, the bound is the theorem of that definition, over every real order a with a bound
        g_a on D_a:

        - "arbitrary-prior": the least e^{(a - 1)(g_a - epsilon)}; for rho-zCDP e^{-(epsilon -
          rho)^2 / 4 rho} for epsilon > rho, 1 below;
        - "knows-the-rest": this bound times e^-epsilon: the least e^{(a - 1) g_a - a epsilon}; for
          rho-zCDP e^{-(epsilon + rho)^2 / 4 rho} for epsilon > rho, e^-epsilon below;
        - "true-record": the pbdp curve of the implied curve.

        A posterior *below* e^-epsilon of its counterfactual never occurs from the pure epsilon on.
        For the true record, its probability is at most e^-epsilon times the bound above. The Renyi
        and zCDP theorems are only about a posterior above its counterfactual.

    Raises:
        ValueError: an argument is out of range, the attacker or counterfactual is unknown, or the
            counterfactual needs another neighboring relation.
        TypeError: ``guarantee`` has no curve.

    Examples:
        >>> import neyman as ny
        >>> f = ny.gdp(1)
        >>> round(float(ny.posterior_ratio(f, epsilon=2, attacker="true-record")), 4)
        0.1428
        >>> round(float(ny.posterior_ratio(f, epsilon=2, attacker="knows-the-rest")), 4)
        0.0193
        >>> pure = ny.pure(1)  # a default record allows twice the epsilon
        >>> [ny.posterior_ratio(pure, e, counterfactual="default-record").upper for e in (1.5, 2)]
        [0.49351961271..., 0.0]

    Source: Kifer, Abowd et al. 2022, section 7.
    """
    return posterior_ratios(guarantee, [epsilon], attacker, counterfactual)[0]


def posterior_ratios(
    guarantee: Described,
    epsilons: Iterable[float | Fraction],
    attacker: Attacker = "arbitrary-prior",
    counterfactual: Counterfactual = "predicted-record",
) -> list[Bound]:
    """Return `posterior_ratio` at many epsilons, at little more than the cost of one.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.semantics.bayes import posterior_ratios
        >>> found = posterior_ratios(ny.gdp(1), [1, 2, 3], attacker="true-record")
        >>> [round(float(chance), 4) for chance in found]
        [0.5826, 0.1428, 0.0142]
    """
    check.one_of("attacker", attacker, ATTACKERS)
    check.one_of("counterfactual", counterfactual, COUNTERFACTUALS)
    exact = [_exact_epsilon(e) for e in check.several("epsilons", epsilons)]
    f = _removal(guarantee) if counterfactual == "no-record" else _replacement(guarantee)
    # All searches of this call share their engines.
    with question_meter(OPERATIONS_LIMITS.batches):
        if attacker == "arbitrary-prior" and counterfactual != "predicted-record":
            return two_factors(
                lambda at: _predicted_record_bounds(f, at, attacker), exact, f.exact_pure()
            )
        return _predicted_record_bounds(
            f.group(2) if counterfactual == "no-record" else f, exact, attacker
        )


def tails(guarantee: Described, epsilons: list[Fraction]) -> list[Bound]:
    """Bound the chance that a likelihood ratio of two mixtures exceeds e^epsilon [PO-2].

    Both mixtures have the same weights, and their components are pairs of neighbors, under any
    relation. The chance is under the numerator's distribution.
    """
    f: Tradeoff = check.described("guarantee", guarantee).tradeoff()
    return _predicted_record_bounds(f, epsilons, "arbitrary-prior")


def _predicted_record_bounds(f: Tradeoff, exact: list[Fraction], attacker: Attacker) -> list[Bound]:
    """Return the bounds of `posterior_ratio` for the counterfactual "predicted-record".

    ``exact``: the epsilons.
    """
    if attacker == "true-record":
        # A whole record has one distribution, so no two directions mix [PO-4].
        tails = _curve_tails(f, exact, [(c,) for c in f.directions])
        method = f.method
    elif any(c.infinite for c in f.directions) or not _bare(f):
        tails, method = _curve_tails(f, exact, [f.directions]), f.method
    else:
        tails, method = _chernoff(f.directions, exact), "Renyi divergences of every order"
    top = f.exact_pure()
    tails = [t if top > e else (-math.inf, -math.inf) for t, e in zip(tails, exact, strict=True)]
    if attacker == "knows-the-rest":
        # slack: chances_that_the_rest_does_not_explain/a; chances_that_the_rest_does_not_explain/b
        # same: 1 - 2 * UNIT -> (1): exp_up covers it: float(e) and t - e round by half a float
        # each, and 2 units of the sum are at least one float.
        # same: * UNIT), -> * 0.0),: exp_up covers it: float(e) and t - e round by half a float
        # each, and 2 units of the sum are at least one float.
        # same: 1 + 2 * UNIT -> (1): exp_down covers it: float(e) and t - e round by half a float
        # each, and 2 units of the sum are at least one float.
        # same: * UNIT)) -> * 0.0)): exp_down covers it: float(e) and t - e round by half a float
        # each, and 2 units of the sum are at least one float.
        less = [(float(e) * (1 - 2 * UNIT), float(e) * (1 + 2 * UNIT)) for e in exact]
        tails = [(t[0] - e[1], t[1] - e[0]) for t, e in zip(tails, less, strict=True)]
    return [_probability(f, t, method) for t in tails]


def posterior_chance(
    guarantee: Described,
    prior: float | Fraction,
    posterior: float | Fraction,
    claim: Claim = "record",
) -> Bound:
    """Bound the chance that an attacker's belief in a statement exceeds ``posterior`` [PO-5].

    For a prior p, the posterior exceeds q if the likelihood ratio exceeds c = q (1 - p) / ((1 - q)
    p). If the statement is true, this has probability at most pbdp(log c). If it is false, the
    probability is at most pbdp(log c) / c. So

        P(posterior > q) <= (p + (1 - p) / c) pbdp(log c) = p pbdp(log c) / q.

    In odds: the posterior odds exceed c times the prior odds. No release multiplies the odds by
    more than e^``guarantee.pure()``.

    Args:
        guarantee: as for `posterior_ratio`; for "membership", under any relation.
        prior: p, the prior probability of the statement, in (0, 1).
        posterior: q, at least p, below 1.
        claim: "record" for a statement about a person's record. "membership" for a choice between
            two given neighbors: under add-remove, that the person is in the data or not.

    Returns:
        A probability, over the prior and the noise; upper is safe. It holds if all other records
        are independent of the statement (the attacker knows them, or considers the person
        independent of them). If other records depend on the statement, no guarantee bounds this
        chance, because they may be informative: see docs/semantics.md.

    Raises:
        ValueError: a number is out of range, or neighbors do not replace a record.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.semantics.bayes import posterior_chance
        >>> round(float(posterior_chance(ny.gdp(1), prior=0.1, posterior=0.5)), 4)
        0.0195
    """
    p, q = check.exact("prior", prior), check.exact("posterior", posterior)
    if not 0 < p < 1:
        raise ValueError(f"prior = {prior!r} must be above 0 and below 1")
    if not p <= q < 1:
        raise ValueError(
            f"posterior = {posterior!r} must be at least the prior = {prior!r} and below 1"
        )
    check.one_of("claim", claim, CLAIMS)
    factor = q * (1 - p) / ((1 - q) * p)
    near = Fraction(exact_log(factor))
    # A logarithm of an exact number errs by 2 units, and a sum with it by one.
    slack = Fraction(8 * UNIT) * (1 + near) if q > p else Fraction(0)  # slack: counted
    if claim == "record":
        f = _replacement(guarantee)
        groups = [f.directions]
    else:  # two distributions, no mixtures
        f = check.described("guarantee", guarantee).tradeoff()
        groups = [(c,) for c in f.directions]
    ends = [max(near - slack, Fraction(0)), near + slack]
    (_, high), (low, _) = _curve_tails(f, ends, groups)
    share = exact_log(p / q)
    size = 8 * UNIT * (1 + abs(share))  # slack: counted
    return _probability(f, (low + share - size, high + share + size), f.method)


def membership_success(guarantee: Described, prior: float | Fraction = Fraction(1, 2)) -> Bound:
    """Bound the chance that a Bayes-optimal membership attack is right [PO-15].

    The attacker knows all other records, and that the person is in the data with probability p.
    They see the release, and answer "in" or "not in". They are right with probability

        max over levels a of p (1 - f(a)) + (1 - p) (1 - a) = 1 - p + p delta(log((1 - p) / p)),

    and, for p above 1/2, this formula with 1 - p and the reversed pair. Without the release, they
    are right with probability max(p, 1 - p). This counts right answers "in" and "not in". It does
    not bound attacks that name a record, a value, or one of several candidates. Those attacks start
    from a baseline, and f allows them up to 1 - f(baseline).

    Args:
        guarantee: a mechanism, its curve, or a named guarantee. Under add-remove, the claim is
            presence. Under replace-one, the claim is which of two given records is in the data.
        prior: p, in (0, 1), read as the decimal that it prints. For a curve of one ordered pair, p
            is the probability of the first distribution.

    Returns:
        A probability, at least max(p, 1 - p); the upper bound is safe. At p = 1/2, it is (1 + total
        variation) / 2.

    Raises:
        ValueError: the prior is out of its range.
        TypeError: ``guarantee`` has no curve.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.semantics.bayes import membership_success
        >>> f = ny.gdp(1)
        >>> round(float(membership_success(f)), 4), round(1 - f(0.5).lower, 4)
        (0.6915, 0.8413)
        >>> round(float(membership_success(f, prior=0.1)), 4)
        0.9013
    """
    f: Tradeoff = check.described("guarantee", guarantee).tradeoff()
    p = check.exact("prior", prior)
    if not 0 < p < 1:
        raise ValueError(f"prior = {prior!r} must be above 0 and below 1")
    if p > Fraction(1, 2):  # exchange the two distributions
        f, p = f.inverse(), 1 - p
    epsilon = exact_log((1 - p) / p)
    # The logarithm errs by 2 units of itself, and delta falls by less than epsilon rises.
    slack = Fraction(4 * UNIT * epsilon)  # slack: counted
    delta = f.delta(max(epsilon, 0.0))
    if f.exact_pure() <= Fraction(epsilon) - slack:  # no output outweighs the prior
        slack = Fraction(0)
    low = 1 - p + p * max(Fraction(delta.lower) - slack, Fraction(0))
    high = min(1 - p + p * (Fraction(delta.upper) + slack), Fraction(1))
    return Bound(below(low), above(high), "upper", delta.method)


def _replacement(guarantee: Described) -> Tradeoff:
    """Return the curve of ``guarantee``. Refuse the add-remove relation."""
    f: Tradeoff = check.described("guarantee", guarantee).tradeoff()
    if f.neighboring == "add-remove":
        raise ValueError(
            "neighboring = 'add-remove', but the counterfactual replaces a record, which is a "
            "removal and an addition: describe the mechanism under replace-one, as with "
            ".subsample(rate=, neighboring='replace-one'); or ask posterior_ratio for "
            "counterfactual='no-record', or posterior_chance for claim='membership'"
        )
    return f


def _removal(guarantee: Described) -> Tradeoff:
    """Return the curve of ``guarantee``. Refuse the replace-one relation."""
    f: Tradeoff = check.described("guarantee", guarantee).tradeoff()
    if f.neighboring == "replace-one":
        raise ValueError(
            "neighboring = 'replace-one', but counterfactual = 'no-record' removes a record, and "
            "then the number of records changes: describe the mechanism under add-remove, or use "
            "counterfactual='default-record'"
        )
    return f


def _bare(f: Tradeoff) -> bool:
    """Return True if some part of the curve is known only by its Renyi divergences."""
    return any(isinstance(loss, RenyiBound) for c in f.alternatives for loss, _ in c.parts)


def _exact_epsilon(epsilon: float | Fraction) -> Fraction:
    check.non_negative("epsilon", epsilon)
    return check.exact("epsilon", epsilon)


def _probability(f: Tradeoff, logs: Interval, method: str) -> Bound:
    high = exp_up(logs[1])
    said = [source for source in f.sources if source not in method]
    return Bound(min(exp_down(logs[0]), high), high, "upper", "; ".join([*said, method]))


# ---- tail(epsilon), in logarithms -------------------------------------------------------------


def _curve_tails(
    f: Tradeoff, epsilons: list[Fraction], groups: list[tuple[Composition, ...]]
) -> list[Interval]:
    """Bound the log of tail(epsilon), the largest of all groups of ordered pairs, at each epsilon.

    The distributions of pairs in one group may be mixed [PO-1].
    """
    if _bare(f):  # each delta is costly here
        profiles = f.symmetric().profiles if len(groups) == 1 else f.profiles
        each = [[_pbdp(p, float(e)) for e in epsilons] for p in profiles]
    else:
        each = [_tails(group, epsilons) for group in groups]
    return [(max(t[0] for t in at), max(t[1] for t in at)) for at in zip(*each, strict=True)]


def _pbdp(profile: Profile, epsilon: float) -> Interval:
    low, high = pbdp_delta(profile, math.nextafter(epsilon, 0.0))
    return log_of(low), log_of(high)


def _tails(pairs: tuple[Composition, ...], epsilons: list[Fraction]) -> list[Interval]:
    """Bound the log of tail(epsilon) for mixtures of these pairs, at every epsilon [PO-2]."""
    # No ratio, even of mixtures, is beyond the largest loss.
    most = max(math.inf if c.infinite else c.supremum for c in pairs)
    asked = [e for e in epsilons if most > e]
    if not asked:
        return [(-math.inf, -math.inf)] * len(epsilons)
    profiles = [select(c) for c in pairs]
    at = np.array([float(e) for e in asked])
    kinks = [float(c.supremum) for c in pairs if math.isfinite(c.supremum)]

    def log_deltas(h: Array) -> tuple[Array, Array]:
        pairs = [p.log_deltas(h.ravel()) for p in profiles]
        low, high = (np.max([f[side] for f in pairs], axis=0) for side in (0, 1))
        return low.reshape(h.shape), high.reshape(h.shape)

    def value(h: Array) -> Array:
        """Bound log(delta(h) / (1 - e^{h - eps})) from above; h: shape (epsilons, points)."""
        above = log_deltas(h)[1]
        gap = at[:, None] - h
        # Epsilon and the gap are rounded, which is divided by the gap. Both logarithms err by 2
        # units, and the difference by one. If log delta is not the larger one, the bound is 1.
        # slack: counted
        error = 4 * UNIT * (at[:, None] + np.abs(h)) / gap + 8 * UNIT * (4 + np.abs(above))
        return above - np.log(-np.expm1(-gap)) + error

    first = at[:, None] - EPSILON_GAPS * (at[:, None] + 12 * max(_size(c) for c in pairs))
    first = np.concatenate([first, *(np.minimum(k, first[:, :1]) for k in kinks)], axis=1)
    high, places = _row_minima(value, np.sort(first, axis=1))
    high = np.minimum(high, 0.0)
    low = np.minimum(_beneath(log_deltas, at, places), high)
    ends = dict(zip(asked, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    ends[Fraction(0)] = (0.0, 0.0)  # almost any ratio exceeds 1 almost surely
    return [ends[e] if most > e else (-math.inf, -math.inf) for e in epsilons]


def _size(c: Composition) -> float:
    """Estimate the size of a composition's losses: |mean| + standard deviation, or 1."""
    _, mean, variance = (float(x[0]) for x in c.moments(np.zeros(1)))
    scale = abs(mean) + math.sqrt(abs(variance))
    return scale if 0 < scale < math.inf else 1.0


def _beneath(
    log_deltas: Callable[[Array], tuple[Array, Array]], epsilons: Array, places: Array
) -> Array:
    """Return lower bounds on the log of tail(epsilon), by extended chords of delta.

    tail(epsilon) is the largest x with delta >= x (1 - u) for all u = e^{h - epsilon} < 1. Delta is
    convex in u, so extended chords bound it from below, from points near the minima h = ``places``
    [PO-8].
    """
    e, b = epsilons[:, None], places[:, None]
    h = np.stack(
        [b - BRACKET_WIDTHS, b + 0 * BRACKET_WIDTHS, np.minimum(b + BRACKET_WIDTHS, (b + e) / 2)]
    )
    low, high = log_deltas(h)
    unit = high[1]
    slope = np.abs(high[0] - low[2]) / (h[2] - h[0])
    # Logarithms and powers: 4 units of each. A u errs by 2 units, which moves a chord by the slope
    # times that; and so does 1 - u, which at the least value is 1 / (1 + slope).
    size = 64 * UNIT * (4 + np.abs(unit) + np.abs(h[1]) + e) * (1 + slope)  # slack: counted
    low, high = (np.exp(np.minimum(v - unit, 700.0)) for v in (low - size, high + size))
    u = np.exp(h - e)
    (ab, bc), far = (u[1] - u[0], u[2] - u[1]), 1 - u
    with np.errstate(all="ignore"):  # if floats do not separate a, b and c, nothing is claimed
        steep, flat = (low[0] - high[1]) / ab, (high[1] - low[2]) / bc
        left = low[1] + (low[1] - high[2]) / bc * ab  # the chord of [b, c] at a
        right = low[1] - (high[0] - low[1]) / ab * bc  # the chord of [a, b] at c
        x = np.min([*(low / far), left / far[0], right / far[2]], axis=0)
    x = np.minimum(x, np.maximum(steep, low[0]))  # delta falls: left of a it is at least delta(a)
    sure = np.isfinite(steep) & np.isfinite(flat) & (x > 0) & (x >= flat)
    best = np.max(np.where(sure, np.log(np.maximum(x, 1e-300)) + unit, -np.inf), 1)
    # A dozen sums, products, and quotients, a logarithm, and a sum: 20 units.
    return best - 64 * UNIT * (4 + np.abs(best))  # slack: counted


def _exact_rho(parts: Collection[tuple[Part, int]]) -> Fraction | None:
    """Return rho if the only part is one zCDP guarantee of an exact rho."""
    if len(parts) == 1:
        ((loss, count),) = parts
        if isinstance(loss, RenyiBound) and loss.quadratic and count == 1:
            return loss.exact_rho
    return None


def _chernoff(pairs: tuple[Composition, ...], epsilons: list[Fraction]) -> list[Interval]:
    """Bound the log of the least e^{z (D_{1+z} - epsilon)} over z >= 0, at each epsilon [PO-7].

    D_{1+z} is the largest Renyi divergence of the pairs.
    """
    parts = {part for c in pairs for part in c.parts}
    bare = {loss for loss, _ in parts if isinstance(loss, RenyiBound)}
    rho = _exact_rho(parts)
    if rho:
        exact = [-float(max(e - rho, Fraction(0)) ** 2 / (4 * rho)) for e in epsilons]
        # slack: chances_that_a_belief_grows, chances_that_the_rest_does_not_explain/c;
        # slack: chances_that_a_belief_grows, chances_that_the_rest_does_not_explain/d
        return [(v * (1 + 4 * UNIT), v * (1 - 4 * UNIT)) for v in exact]
    at = np.array([float(e) for e in epsilons])
    most = max(c.rho for c in pairs)
    near = (at - most) / (2 * most) if 0 < most < math.inf else np.ones(len(at))
    orders = [float(a) for loss in bare for a in (*(a for a, _ in loss.corners), loss.top)]
    corners = {z for a in orders if a < math.inf for z in (a - 1, math.nextafter(a - 1, 0.0))}
    fixed = np.broadcast_to([0.0, *corners], (len(at), 1 + len(corners)))
    first = np.concatenate([fixed, np.maximum(near, 1e-3)[:, None] * ORDER_FACTORS], axis=1)

    def value(z: Array) -> Array:
        flat = z.ravel()
        each: list[Array] = []
        for c in pairs:
            k: Array = np.real(c.log_mgf(flat))
            error = sum((n * loss.mgf_rounding(flat) for loss, n in c.parts), np.zeros(len(flat)))
            # A product and a sum for each part; below, two products and a difference.
            each.append(k + error + 16 * UNIT * (1 + len(c.parts)) * np.abs(k))  # slack: counted
        # slack: counted
        return np.max(each, axis=0).reshape(z.shape) - z * at[:, None] * (1 - 8 * UNIT)

    high = np.minimum(_row_minima(value, np.sort(first, axis=1))[0], 0.0)
    return [(v * (1 + 1e-9), v) for v in high.tolist()]


def _row_minima(value: Callable[[Array], Array], points: Array) -> tuple[Array, Array]:
    """Search each row for the minimum of a function that falls and then rises.

    Return the least values found, which are upper bounds on the minima, and their arguments.

    Args:
        value: function of an array of shape (rows, points).
        points: first arguments to try, increasing in each row.
    """
    rows = np.arange(len(points))
    least, place = np.full(len(points), np.inf), points[:, 0]
    for _ in range(12):
        values = value(points)
        best = np.argmin(values, axis=1)
        better = values[rows, best] < least
        least = np.where(better, values[rows, best], least)
        place = np.where(better, points[rows, best], place)
        left, right = np.maximum(best - 1, 0), np.minimum(best + 1, points.shape[1] - 1)
        if np.all(np.maximum(values[rows, left], values[rows, right]) - least < 1e-11):
            break
        points = np.linspace(points[rows, left], points[rows, right], 9, axis=1)
    return least, place
