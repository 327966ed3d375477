"""Bound the success of named attacks on one record, given a guarantee and a baseline.

The attacker guesses something about the record Z of one target: whose it is, a value in it, or its
approximate content. Z has a prior. Let b, the baseline, be the best chance of a right guess without
the release. Let f be a convex curve below the trade-off functions of all pairs of neighbors. With
the release, the chance is at most 1 - f(b) [RK-1, RK-2]. The conditions are part of the number and
are printed with it. Most important: the prior is the attacker's belief after they know all other
records.

Source: Kulynych et al. 2025; singling out as in Cohen and Nissim 2020, by our own proof [RK-5].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

from neyman import notebook
from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.budget import AtMost, at_most
from neyman.accounting.semantics.digits import article
from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.queries import source_note
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.relation import Relation
from neyman.numerics.rounding import above, below, down, up

AttackName = Literal["re-identification", "attribute inference", "reconstruction", "singling out"]
Share = float | Fraction | str


class PriorMasses(Protocol):
    """Map candidates, values, or records to their prior probabilities."""

    def values(self) -> Iterable[Share]:
        """Return the probabilities."""
        ...


Prior = PriorMasses | Sequence[Share]
"""The prior probability of each candidate, value, or record. The numbers sum to one."""

SUM_TOLERANCE = Fraction(1, 10**9)
"""The largest distance of a prior's sum from one. The baseline grows by this distance [RK-4]."""

PRIOR_CONDITION = (
    "The prior is what the attacker believes after they know all other records. The share of a "
    "value in a population is such a prior only if the target's record is independent of the "
    "others."
)
INDEPENDENT_ROWS = (
    "The units' records are independent draws from one distribution, and a weight is a probability "
    "under it."
)
EQUAL_CANDIDATES = "The candidates are equally likely."
UNIT_CONDITION = "If a unit has several rows, the guarantee is the one of the whole unit."
POPULATION_CONDITION = "What the release teaches about everyone is not limited."
_RELATION_CONDITIONS: dict[Relation, str] = {
    "add-remove": "The target is in the data. Whether they are is another question.",
    "replace-one": (
        "The bound compares the target's record with a default record, which may depend only on "
        "what the attacker already knows."
    ),
    "any": (
        "The guarantee is about leaving the target's record out, or about replacing it by a "
        "default record that depends only on what the attacker already knows."
    ),
}


@dataclass(frozen=True)
class Attack:
    """Represent a named attack on one record, with its best chance without a release.

    Args:
        name: "re-identification", "attribute inference", "reconstruction", or "singling out".
        guess: the attacker's action, such as "name the right one of 20 candidates", with {a} in
            place of the subject.
        chance: b, the largest prior probability that one guess about one target is right; exact.
        conditions: conditions of the bound, one sentence each.
        targets: number of units to choose a target from; 1 except for singling out.
        radius: for a reconstruction, the largest distance of a right guess, if stated.

    Examples:
        >>> import neyman as ny
        >>> attack = ny.risk.reidentification(candidates=20)
        >>> attack.name, attack.baseline
        ('re-identification', Fraction(1, 20))
        >>> sigma = ny.calibrate(ny.Gaussian, attack.at_most(0.25))
        >>> print(f"{sigma:.3f}")
        1.031
    """

    name: AttackName
    guess: str
    chance: Fraction
    conditions: tuple[str, ...]
    targets: int = 1
    radius: Fraction | None = None

    @property
    def baseline(self) -> Fraction:
        """Return the best chance of a right guess without the release; exact for one target."""
        if self.targets == 1:
            return self.chance
        # A predicate of weight w <= 1/n isolates one of n with the chance n w (1 - w)^(n - 1).
        others = math.exp((self.targets - 1) * math.log1p(-float(self.chance)))
        return self.targets * self.chance * Fraction(others)

    def sentence(self, success: Share, subject: str = "person") -> str:
        """Write a chance of success in one sentence, in the style of a report's headline.

        Args:
            success: an upper bound on the chance of a right guess with the release.
        """
        guess = self.guess.format(a=f"{article(subject)} {subject}")
        knows = "" if self.targets > 1 else " knows everyone else’s record and"
        return words.right_guess(guess, self.baseline, success, knows)

    def success(self, guarantee: Described) -> AttackSuccess:
        """Bound the chance of a right guess with the release.

        Args:
            guarantee: a mechanism, its curve, or a named guarantee. For one attribute's value,
                ``plan.concerning(attribute)`` is also valid.
        """
        f: Tradeoff = check.described("guarantee", guarantee).tradeoff()
        bound = f.success(self.chance)
        if self.targets > 1 and not any(c.parts for c in f.alternatives):  # perfect privacy
            bound = Bound(*_baseline_ends(self), "upper", bound.method)
        elif self.targets > 1:  # any unit may be singled out: a union bound [RK-5]
            low, high = (self.targets * end for end in (bound.lower, bound.upper))
            method = f"{bound.method}; summed over {self.targets:,} units"
            bound = Bound(min(down(low), 1.0), min(up(high), 1.0), "upper", method)
        return AttackSuccess(self, bound, f.neighboring, f.sources, f.statements)

    def at_most(self, success: Share) -> AtMost:
        """Return the budget that limits the attack's success to this chance.

        Raises:
            ValueError: the success is not above the baseline, or not below 1.
        """
        exact = check.exact("success", success)
        if not self.baseline < exact < 1:
            raise ValueError(
                f"success = {success!r} must be above the baseline = {float(self.baseline):.6g}, "
                "which is reached without the release, and below 1"
            )
        return at_most(success=exact / self.targets, baseline=self.chance)


@dataclass(frozen=True)
class AttackSuccess:
    """Represent the largest chance that a named attack succeeds, with the bound's conditions.

    Args:
        attack: the attack, with its baseline.
        bound: the chance of a right guess with the release; the upper bound is safe.
        neighboring: the relation of the guarantee.
        sources: uncertified claims, as in `Tradeoff.sources`.
        statements: users' claims about their own distributions.

    Examples:
        >>> import neyman as ny
        >>> risk = ny.risk.reidentification(candidates=20).success(ny.Gaussian(1))
        >>> print(risk.sentence())
        An attacker who knows everyone else’s record and would name the right one of 20 equally
        likely candidates 5% of the time without the release can do so at most 26% of the time with
        it.
        >>> len(risk.conditions)
        5
    """

    attack: Attack
    bound: Bound
    neighboring: Relation
    sources: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """Return the conditions of the bound, one sentence each."""
        claims = (stated_condition(each) for each in self.statements)
        note = source_note(self.sources).strip()
        shared = conditions_of(self.neighboring)
        return (*([note] if note else []), *self.attack.conditions, *shared, *claims)

    def sentence(self, subject: str = "person") -> str:
        """Return the bound in one sentence, in the style of a report's headline."""
        note = source_note(self.sources)
        b, ends = self.attack.baseline, (self.bound.lower, self.bound.upper)
        perfect = ends == _baseline_ends(self.attack)
        success = b if perfect else ends[1]
        return f"{note}{self.attack.sentence(success, subject)}"

    def to_dict(self) -> dict[str, object]:
        """Return the bound with its attack and its conditions, as JSON types."""
        ends = {"lower": self.bound.lower, "upper": self.bound.upper}
        named: dict[str, object] = {
            "attack": self.attack.name,
            "baseline": float(self.attack.baseline),
        }
        if self.attack.targets > 1:
            named |= {"units": self.attack.targets, "weight": float(self.attack.chance)}
        if self.attack.radius is not None:
            named["radius"] = float(self.attack.radius)
        how = {"safe": self.bound.safe, "method": self.bound.method}
        rests = {"sources": list(self.sources), "statements": list(self.statements)}
        return {**named, **ends, **how, **rests, "conditions": list(self.conditions)}

    def __float__(self) -> float:
        return float(self.bound)

    def __repr__(self) -> str:
        conditions = " ".join(self.conditions)
        return (
            f"AttackSuccess({source_note(self.sources)}{self.attack.name}: at most {self.bound}, "
            f"and {float(self.attack.baseline):.6g} without the release. Conditions: {conditions})"
        )

    def _repr_html_(self) -> str:
        rows = [[condition] for condition in self.conditions]
        return notebook.safe_html(
            lambda: (notebook.title(self.sentence()), notebook.table(["Conditions"], rows)), self
        )


def reidentification(candidates: int | None = None, *, prior: Prior | None = None) -> Attack:
    """Return the attack that names the target among candidates.

    Args:
        candidates: number of equally likely candidates, at least 1.
        prior: instead, the prior probability of each candidate.

    Examples:
        >>> import neyman as ny
        >>> attack = ny.risk.reidentification(candidates=10)
        >>> print(f"{attack.success(ny.gdp(1)).bound:.4f}")
        0.3892
    """
    if (candidates is None) == (prior is None):
        raise ValueError("give exactly one of candidates and prior")
    if prior is None:
        count = check.integer("candidates", candidates, 1)
        guess = f"name the right one of {count:,} equally likely candidates"
        conditions = (PRIOR_CONDITION, EQUAL_CANDIDATES)
        return Attack("re-identification", guess, Fraction(1, count), conditions)
    shares = _shares(prior)
    guess = f"name the right one of {len(shares):,} candidates"
    return Attack("re-identification", guess, _safe(max(shares), shares), (PRIOR_CONDITION,))


def attribute_inference(prior: Prior) -> Attack:
    """Return the attack that guesses a value in the target's record.

    Args:
        prior: the prior probability of each value, such as ``{"yes": 0.1, "no": 0.9}``.

    Examples:
        >>> import neyman as ny
        >>> attack = ny.risk.attribute_inference({"yes": 0.1, "no": 0.9})
        >>> attack.baseline
        Fraction(9, 10)
    """
    shares, guess = _shares(prior), "correctly guess an attribute of {a}"
    return Attack("attribute inference", guess, _safe(max(shares), shares), (PRIOR_CONDITION,))


def reconstruction(
    mass: Share | None = None,
    *,
    prior: Mapping[float, Share] | None = None,
    radius: float | Fraction | None = None,
) -> Attack:
    """Return the attack that guesses the target's record, up to a distance.

    Args:
        mass: the prior probability that the record is within the radius of the best guess, in (0,
            1]. You state it.
        prior: instead, a dict from each number that the record can be to its prior probability.
        radius: with a prior: the largest distance of a right guess, at least 0.

    Examples:
        >>> import neyman as ny
        >>> ages = {age: "1/100" for age in range(100)}
        >>> ny.risk.reconstruction(prior=ages, radius=2).chance
        Fraction(1, 20)
    """
    if prior is None:
        if mass is None or radius is not None:
            raise ValueError("give mass, or a prior with a radius")
        exact = check.exact("mass", mass)
        if not 0 < exact <= 1:
            raise ValueError(f"mass = {mass!r} must be above 0 and at most 1")
        guess = "come within the stated distance of the record of {a}"
        return Attack("reconstruction", guess, exact, (PRIOR_CONDITION,))
    if not check.is_mapping(prior):
        raise TypeError(
            f"prior = {prior!r:.80} must be a mapping from each number that the record can be to "
            "its probability, such as {20: 0.5, 40: 0.5}"
        )
    if mass is not None or radius is None:
        raise ValueError("give mass, or a prior with a radius")
    reach = check.exact("radius", radius)
    if reach < 0:
        raise ValueError(f"radius = {radius!r} must be at least 0")
    shares = _shares(prior)
    points = sorted(zip((check.exact("prior", at) for at in prior), shares, strict=True))
    heaviest, start, inside = Fraction(0), 0, Fraction(0)
    for at, share in points:  # the interval of length 2 r that ends at this point
        inside += share
        while at - points[start][0] > 2 * reach:
            inside -= points[start][1]
            start += 1
        heaviest = max(heaviest, inside)
    near = words.number(reach, 15)
    guess = f"come within {near} of the record of {{a}}"
    conditions = (PRIOR_CONDITION, f"A guess is right up to the distance {near}.")
    chance = _safe(heaviest, shares)
    return Attack("reconstruction", guess, chance, conditions, radius=reach)


def singling_out(units: int, weight: Share) -> Attack:
    """Return the attack that names a property of exactly one unit's record.

    You state the weight before the release. The attacker may choose the property after it.

    Args:
        units: number of units, at least 2.
        weight: the largest probability of the property for one record, above 0 and at most 1 /
            units. A property of weight 1 / units isolates a record 37% of the time without any
            release.

    Examples:
        >>> import neyman as ny
        >>> attack = ny.risk.singling_out(units=1_000_000, weight="1e-12")
        >>> print(f"{attack.success(ny.gdp(1)).bound:.6f}")
        0.000798
    """
    count, exact = check.integer("units", units, 2), check.exact("weight", weight)
    if not 0 < exact * count <= 1:
        raise ValueError(f"weight = {weight!r} must be above 0 and at most 1 / units = 1/{count}")
    shown = words.number(exact, 6)
    guess = f"name a property of weight at most {shown} that exactly one of {count:,} records has"
    setting = (
        f"There are {count:,} units. The largest weight, {shown}, is stated before the release, "
        "and the property may be chosen after it."
    )
    return Attack("singling out", guess, exact, (setting, INDEPENDENT_ROWS), count)


def conditions_of(neighboring: Relation) -> tuple[str, ...]:
    """Return the conditions that all attacks share under this relation, one sentence each."""
    return _RELATION_CONDITIONS[neighboring], UNIT_CONDITION, POPULATION_CONDITION


def stated_condition(statement: str) -> str:
    """Return a user's claim about their own distribution, as a condition."""
    return f"stated, and not proven here: {statement}"


def usual_attacks() -> tuple[Attack, ...]:
    """Return the attacks that pages and commands show by default."""
    return (
        reidentification(candidates=20),
        attribute_inference(["1/2", "1/2"]),
        reconstruction(mass="1/1000"),
    )


def _baseline_ends(attack: Attack) -> tuple[float, float]:
    """Return floats on both sides of the best chance of a right guess without the release."""
    b = attack.baseline
    # For several targets, b is within 6 units of rounding: 4 of an exponent above -1, 2 of exp.
    floats = 16 if attack.targets > 1 else 0
    return down(below(b), floats), up(above(b), floats)


def _shares(prior: Prior) -> list[Fraction]:
    """Return the exact probabilities of a prior. Refuse negative ones, or a sum other than one."""
    masses = prior.values() if check.is_mapping(prior) else prior
    values: Iterable[Share] = check.several("prior", masses)
    shares = [check.exact("prior", value) for value in values]
    if not shares or min(shares) < 0:
        raise ValueError(f"prior = {prior!r:.80} must have probabilities of at least 0")
    if abs(sum(shares) - 1) > SUM_TOLERANCE:
        raise ValueError(f"prior sums to {float(sum(shares)):.9g}: its probabilities must sum to 1")
    return shares


def _safe(largest: Fraction, shares: Sequence[Fraction]) -> Fraction:
    return min(largest + abs(sum(shares) - 1), Fraction(1))
