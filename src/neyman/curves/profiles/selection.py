"""Select the engine that computes the privacy profile of a composition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import cast

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.loss import Part
from neyman.curves.profiles.operation_limits import ExponentProfile, LimitProfile
from neyman.curves.profiles.profile import Profile
from neyman.numerics.array_cache import array_cache
from neyman.numerics.operations import OperationLimit, apart

CLOSED_FORM_PRIORITY = 50  # the priority up to which a rule's profiles have few operations
Build = Callable[[Composition], Profile | None]


@dataclass(frozen=True)
class Rule:
    """Represent one way to compute a privacy profile.

    Args:
        priority: rules are tried in increasing order.
        reason: when the rule applies, in words.
        build: returns the profile, or None if the rule does not apply.
    """

    priority: int
    reason: str
    build: Build


_RULES: dict[int, Rule] = {}


def register(priority: int, reason: str) -> Callable[[Build], Build]:
    """Register a rule of `select`, by decorating its build function.

    Args:
        priority: the rule's place in the order, a unique integer.
        reason: when the rule applies, in words.

    Raises:
        ValueError: another rule has this priority.
    """

    def add(build: Build) -> Build:
        other = _RULES.get(priority)
        if other is not None and other.build.__qualname__ != build.__qualname__:
            raise ValueError(f"priority = {priority!r} is taken by the rule: {other.reason}")
        _RULES[priority] = Rule(priority, reason, build)
        for key in sorted(_RULES):  # the order in which they are tried
            _RULES[key] = _RULES.pop(key)
        return build

    return add


def rules() -> tuple[Rule, ...]:
    """Return all registered rules in the order in which `select` tries them."""
    return tuple(_RULES.values())


def select(composition: Composition) -> Profile:
    """Select the engine for a composition and return its privacy profile.

    The first rule that applies decides. "Held" means bounded; a "line" is a line of integration:

    - 10: nothing is released: perfect privacy.
    - 20: a part is not private at all: delta and power are 1.
    - 30: a part came in from another library, whose numbers are used as they are.
    - 40: only bounds on Renyi divergences are known about a part.
    - 50: one release whose profile has a closed form.
    - 60: a part is a shuffled report: it is held between two finite pairs.
    - 65: very many unlike parts: like ones are held between two of their kind.
    - 70: a part is known between two distributions: each side is composed by itself.
    - 80: several releases of bounded range: an envelope above, two-point mechanisms below.
    - 90: the losses lie on one lattice, or have few sums: lines over a period, or masses.
    - 95: ratios of mixtures of normals, as Gaussian steps on samples: lines by largest step.
    - 96: samples of discrete noise: lines that end where a mean over windows bounds the rest.
    - 97: equal losses with atoms and a bounded density: bent contours, or lines for many.
    - 100: few releases whose K is costly, or K does not decay: discretization on a grid.
    - 110: everything else: the contour, with a grid beside it where the contour is wide.

    A new loss needs no rule if it is a `Loss`: rules 100 and 110 cover it. Add a closed form with
    `neyman.curves.profiles.selection.profile_of_one.register`, any other rule with `register`.

    Engines of rules above 50 stop at the question's limit of operations (`LimitProfile`).

    Args:
        composition: a sum of independent losses of one ordered pair.

    Returns:
        The profile. It stores no arrays, because each question builds a new engine.

    Raises:
        LookupError: no rule applies, because a part is not a distribution and its type has no
            registered rule.
    """
    return _first(composition)


@array_cache
def _first(composition: Composition) -> Profile:
    with apart(strict=True):  # the choice does not depend on the operations left to a question
        for rule in rules():
            try:
                profile = rule.build(composition)
            except OperationLimit:
                return ExponentProfile(composition)
            if profile is None:
                continue
            if rule.priority <= CLOSED_FORM_PRIORITY or isinstance(profile, LimitProfile):
                return profile

            engine = cast("Callable[[], Profile]", partial(rule.build, composition))
            return LimitProfile(("engine", composition), engine, composition, profile)
    kinds = sorted({type(loss).__name__ for loss, _ in composition.parts})
    raise LookupError(f"no engine is registered for a composition of {', '.join(kinds)}")


@singledispatch
def profile_of_one(loss: Part) -> Profile | None:
    """Return the profile of one release with this loss, or None if it has no closed form.

    Register an implementation for a type of loss with ``profile_of_one.register``.
    """
    return None


@register(50, "one release whose profile has a closed form")
def _one_release(composition: Composition) -> Profile | None:
    if len(composition.parts) != 1 or composition.parts[0][1] != 1:
        return None
    return profile_of_one(composition.parts[0][0])
