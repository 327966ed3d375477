"""Define `Mechanism`, the base class of private releases, and the composition of mechanisms."""

from __future__ import annotations

import dataclasses
import json
import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import cache, cached_property
from inspect import Parameter, signature
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, cast

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.loss import Part
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.tradeoff.tradeoff import LIMITS as TRADEOFF_LIMITS
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.description import LIMITS as DESCRIPTION_LIMITS
from neyman.mechanisms.description import Description
from neyman.mechanisms.registry import MODULES, combined, load_type
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.canonical_order import order_key
from neyman.numerics.relation import NEIGHBORING, Neighboring, Relation, relation_of
from neyman.storage.reading import read_json

# Fields whose text is not a number.
NAMES = (
    "type",
    "neighboring",
    "relation",
    "noise",
    "sampling",
    "user_sampling",
    "protects",
    "against",
    "norm",
)
STATEMENTS = "statements"  # the field with statements on the distribution of a user's noise
# Groups of argument names with the same meaning, here and in other libraries.
SYNONYMS = (
    ("sigma", "scale", "noise_multiplier", "noise_scale", "noise", "std", "stddev", "stdev", "b"),
    ("sensitivity", "l1_sensitivity", "l2_sensitivity", "max_grad_norm", "l2_norm_clip", "clip"),
    ("batch", "batch_size", "lot_size", "expected_batch_size"),
    ("n", "population", "num_examples", "number_of_examples", "dataset_size", "sample_size"),
    ("epochs", "steps", "rounds", "num_epochs", "num_steps", "iterations", "num_iterations"),
    ("epsilon", "eps"),
    ("rate", "client_rate", "q", "sample_rate", "sampling_rate", "sampling_probability"),
)
TARGETS = ("epsilon", "eps", "delta", "rho", "mu", "gdp", "zcdp", "target_epsilon", "target_delta")


class Mechanism(Description):
    """Describe a private release: immutable, equal by value, without data or random state.

    Mechanisms combine: ``a + b`` releases both with independent noise, ``a * n`` releases a n
    times, and ``sum`` of mechanisms releases all of them. `tradeoff()` returns what they reveal.

    Examples:
        >>> import neyman as ny
        >>> step = ny.Gaussian(sigma=0.8).subsample(rate=0.01)
        >>> training = step * 1000 + ny.Laplace(scale=20)
        >>> training.neighboring
        'add-remove'
        >>> round(float(training.tradeoff().epsilon(delta=1e-5)), 3)
        3.147
        >>> ny.Mechanism.from_json(training.to_json()) == training
        True
    """

    RELATION: ClassVar[str]
    """The neighboring relation of all mechanisms of this type, if they have the same relation."""

    OWN_STEPS: ClassVar[bool] = False
    """True if a run has steps of its own, and says which records take part in them."""

    def __init_subclass__(cls) -> None:
        """Refuse the name of one of Neyman's mechanisms, because JSON would confuse the two."""
        module = MODULES.get(cls.__name__, cls.__module__)
        if module != cls.__module__:
            raise TypeError(f"class {cls.__name__}: the name is that of a mechanism in {module}")
        super().__init_subclass__()

    if not TYPE_CHECKING:  # a type checker already knows the arguments and attributes

        def __new__(cls, *_: object, **named: object) -> Self:
            """Refuse an unknown argument, with a hint for common mistakes."""
            for name in named:
                if name not in (_parameters(cls) or named):
                    raise TypeError(f"{cls.__name__} has no argument {name!r}; {_hint(cls, name)}")
            return object.__new__(cls)

        def __getattr__(self, name: str) -> NoReturn:
            """Raise an error that points to the method of the trade-off curve."""
            kind, hint = type(self).__name__, ""
            if not name.startswith("_") and hasattr(Tradeoff, name):
                hint = f"; its trade-off curve has: use .tradeoff().{name}"
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}")

    @property
    def neighboring(self) -> Relation:
        """Return the neighboring relation, or "any" if a shift alone describes the mechanism."""
        relation = getattr(type(self), "RELATION", None)
        if relation is None:
            raise TypeError(f"{type(self).__name__} must set RELATION, or override neighboring")
        return relation

    @abstractmethod
    def losses(self) -> tuple[Composition, ...]:
        """Return one composition of privacy losses for each possible change of the data."""

    @abstractmethod
    def rho(self) -> Fraction:
        """Return a proven zCDP parameter, exact, for a zCDP ledger to charge."""

    @property
    def leaves(self) -> tuple[tuple[Mechanism, int], ...]:
        """Return the mechanisms that this mechanism composes, each with its count."""
        return ((self, 1),)

    def renyi(self, order: float | Fraction) -> Bound:
        """Bound the largest Renyi divergence of this order between neighbors: ``upper`` is proven.

        Args:
            order: at least 1.

        Raises:
            ValueError: the order is below 1.
        """
        return self.tradeoff().renyi(order)

    def tradeoff(self, neighboring: Relation | None = None) -> Tradeoff:
        """Return the trade-off curve of this mechanism between neighboring datasets.

        Args:
            neighboring: the relation that you expect. The method refuses a mechanism that is
                described under another relation.

        Raises:
            ValueError: the mechanism has another relation, or the relation does not exist.
        """
        if neighboring is None:
            return Tradeoff.of(self.losses(), self.neighboring)
        relation_of(neighboring)
        if self.neighboring not in ("any", neighboring):
            raise ValueError(
                f"neighboring = {neighboring!r}, but this mechanism is described under "
                f"{self.neighboring!r}; describe it under the relation that is meant"
            )
        return Tradeoff.of(self.losses(), neighboring)

    def __add__(self, other: Mechanism) -> Mechanism:
        """Return the release of both mechanisms with independent noise."""
        if not isinstance(other, Mechanism):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Composed.of([(self, 1), (other, 1)])

    def __radd__(self, other: int) -> Mechanism:
        """Return this mechanism if ``other`` is 0, the start value of Python's ``sum``."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __mul__(self, count: int) -> Mechanism:
        """Repeat this mechanism ``count`` times with fresh noise. Count 0 releases nothing."""
        return Composed.of([(self, check.integer("count", count))])

    __rmul__ = __mul__

    def subsample(
        self,
        rate: float | Fraction | None = None,
        *,
        size: int | None = None,
        population: int | None = None,
        neighboring: Neighboring | None = None,
    ) -> Mechanism:
        """Return this mechanism on a random sample of the records, drawn anew for each run.

        Args:
            rate: Poisson: each record enters with this probability, in [0, 1].
            size: fixed size: the number of records in the sample, drawn without replacement.
            population: fixed size: the number of records in the dataset.
            neighboring: for Poisson, "add-remove" (default) or "replace-one". For a fixed size,
                "replace-one".

        Raises:
            ValueError: the scheme does not fit the relation, or no guarantee is proven.
        """
        return combined("subsample", Mechanism, self, rate, size, population, neighboring)

    def user(self, records: int) -> Mechanism:
        """Return this mechanism, described for a user with at most ``records`` records.

        One neighbor contains all records of one user, and the other contains none of them. The
        mechanism describes the shift of one record. The method covers Gaussian noise, its Poisson
        samples under add-remove, `DPSGD` with Poisson batches, and sums of these. Usually the
        result is tighter than ``tradeoff().group(k)``. But only ``group(k)`` covers a mix of added
        and removed records, k in all. If noise is far below the sensitivity, the interval of
        several steps may be wide. Then ``group(k)`` is the better bound.

        In a sum, each part has its own number of records per user. With ``a.user(8) + b`` a user
        has up to 8 records in a, and one in b.

        Args:
            records: k, at least 1.

        Raises:
            ValueError: no guarantee is proven for this mechanism.

        Examples:
            >>> import neyman as ny
            >>> steps = ny.Gaussian(sigma=1).subsample(rate=0.01) * 1000
            >>> round(float(steps.user(8).tradeoff().epsilon(delta=1e-6)), 2)
            23.08
            >>> round(float(steps.tradeoff().group(8).epsilon(delta=1e-6)), 1)
            30.4

        Source: Charles et al. 2024; [SA-8], [SA-9].
        """
        many = check.integer("records", records, 1)
        check.finite("records", many)
        return self if many == 1 else self._of_user(many)

    def _of_user(self, records: int) -> Mechanism:
        raise ValueError(
            f"{self!r}.user({records}): several records of a user are proven here for Gaussian "
            "noise and for its Poisson samples under 'add-remove'. Describe the mechanism by what "
            "all records of a user change together, or use .tradeoff().group(k)"
        )

    def shuffle(self, *, users: int) -> Mechanism:
        """Return the shuffled reports of ``users`` people who each run this mechanism.

        Args:
            users: the number of people, who each report on their own record.

        Raises:
            ValueError: the mechanism is not pure. Amplification is proven for pure mechanisms only.
        """
        return combined("shuffle", Mechanism, self, users)

    def shuffled_batches(self, batches: int) -> Mechanism:
        """Return this mechanism on each batch of one pass over shuffled records.

        Multiply by the number of epochs for several passes. A record is in one batch of a pass, so
        the pass reveals as much as one run. No amplification is claimed. The relation is
        replace-one.

        Args:
            batches: the number of batches per pass, at least 1.
        """
        return combined("shuffled_batches", Mechanism, self, batches)

    def random_allocation(self, batches: int, *, times: int = 1) -> Mechanism:
        """Return this mechanism on each batch of a pass that puts every record into random batches.

        Each record draws its batches independently of the other records (balls in bins). The drawn
        batches stay secret. ``* epochs`` gives several passes with fresh draws. The relation is
        add-remove.

        Args:
            batches: the number of batches per pass, at least 1.
            times: the number of batches per record, at least 1 and at most ``batches``.

        Raises:
            ValueError: the mechanism is not Gaussian noise.
        """
        return combined("random_allocation", Mechanism, self, batches, times)

    @staticmethod
    def nothing() -> Mechanism:
        """Return the mechanism that releases nothing. It equals ``m * 0``."""
        return Composed(())

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON types, which `Mechanism.from_dict` reads."""
        return {"type": type(self).__name__, **self._fields()}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Mechanism:
        """Return the mechanism that `to_dict` described.

        Raises:
            ValueError: the type is unknown, or a field is missing or unreadable. The error names
                the problem.
        """
        check.no_evidence("description", description)
        if not isinstance(description, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"description = {description!r} must be an object with a 'type'")
        kind = description.get("type")
        name = kind if isinstance(kind, str) else ""
        load_type(name)
        if name not in Mechanism._kinds:
            known = ", ".join(sorted({*MODULES, *Mechanism._kinds}))
            raise ValueError(f"description: type = {kind!r} is not a mechanism; known are {known}")
        _check_texts(description)
        try:
            mechanism = Mechanism._kinds[name]._from_fields(description)
        except KeyError as missing:
            raise ValueError(f"{kind} needs the field {missing}") from None
        except (TypeError, AttributeError) as error:
            raise ValueError(f"{kind}: {error}") from None
        unknown = set(description) - set(mechanism.to_dict())
        if unknown:
            raise ValueError(f"{kind} has no field {min(map(repr, unknown))}")
        return mechanism

    def to_json(self) -> str:
        """Return the description as JSON text."""
        return json.dumps(self.to_dict())

    @staticmethod
    def from_json(text: str) -> Mechanism:
        """Return the mechanism that `to_json` wrote."""
        try:
            description = read_json(check.text("text", text, "{}"))
        except (TypeError, ValueError) as error:
            raise ValueError(f"text = {text!r} must be JSON text of a mechanism: {error}") from None
        return Mechanism.from_dict(description)


def check_one_step(mechanism: Mechanism, scheme: str) -> None:
    """Refuse a mechanism with steps of its own: the scheme would run all of them on each batch.

    Raises:
        ValueError: the mechanism, or a part of it, has such steps.
    """
    for leaf, _ in mechanism.leaves:
        if leaf.OWN_STEPS:
            raise ValueError(
                f"mechanism = {leaf!r} has steps of its own, and {scheme} would run all of them on "
                "each batch; if a batch is one step, describe the whole run by ny.DPSGD(n=, "
                "batch=, epochs=, sigma=, sampling=, strategy=)"
            )


@dataclass(frozen=True, repr=False)
class Composed(Mechanism):
    """Compose mechanisms with independent noise. Equal mechanisms are merged, in canonical order.

    Build it with ``+`` and ``*``.

    Args:
        parts: mechanisms that are not compositions themselves, each with its count, at most 1e18.

    If parts have several possible shifts, the guarantee covers every combination that is fixed in
    advance. It does not cover shifts that depend on earlier answers through adaptive queries. For
    such queries, describe each part by one shift that dominates all of its shifts.
    """

    parts: tuple[tuple[Mechanism, int], ...]

    def __post_init__(self) -> None:
        for _, count in self.parts:
            if count > DESCRIPTION_LIMITS.count:
                raise ValueError(f"count = {count!r} must be at most {DESCRIPTION_LIMITS.count:g}")
        _ = self.neighboring  # refuses two relations early

    @staticmethod
    def of(parts: list[tuple[Mechanism, int]]) -> Mechanism:
        """Return the composition in canonical form. A single mechanism is returned itself."""
        first, *rest = (m for m, _ in parts) if len(parts) == 2 else (None,)
        if isinstance(first, Composed) and first.parts and all(n == 1 for _, n in parts):
            (leaf,) = rest
            if not isinstance(leaf, Composed) and (total := first._with(leaf)):
                return total
        counts: dict[Mechanism, int] = {}
        for mechanism, count in parts:
            for leaf, n in mechanism.leaves:
                counts[leaf] = counts.get(leaf, 0) + n * count
        if 0 in counts.values():
            counts = {leaf: n for leaf, n in counts.items() if n}
        ordered = tuple(counts.items())
        if len(ordered) > 1:
            ordered = tuple(sorted(ordered, key=order_key))
        if len(ordered) == 1 and ordered[0][1] == 1:
            return ordered[0][0]
        return Composed(ordered)

    def _with(self, leaf: Mechanism) -> Composed | None:
        """Return the composition with one more part, or None if it already has this part.

        This keeps the time for a long sum linear in the number of its parts.
        """
        key = order_key((leaf, 1))
        at = bisect_left(self._keys, key)  # the place of an equal part, whose count is at least 1
        if at < len(self.parts) and self.parts[at][0] == leaf:
            return None
        parts = (*self.parts[:at], (leaf, 1), *self.parts[at:])
        relations = {self.neighboring, leaf.neighboring} - {"any"}
        if len(relations) > 1:
            return Composed(parts)
        # Only the new part is checked, so the time for a long sum is not quadratic.
        total = object.__new__(Composed)
        keys = (*self._keys[:at], key, *self._keys[at:])
        values = {"parts": parts, "_keys": keys, "_relation": (*relations, "any")[0]}
        for name, value in values.items():
            object.__setattr__(total, name, value)
        return total

    @cached_property
    def _keys(self) -> tuple[tuple[Any, ...], ...]:
        """Return the sort keys of the parts."""
        return tuple(map(order_key, self.parts))

    @property
    def leaves(self) -> tuple[tuple[Mechanism, int], ...]:
        """Return the parts with their counts."""
        return self.parts

    @property
    def neighboring(self) -> Relation:
        """Return the one relation of all parts."""
        return self._relation

    @cached_property
    def _relation(self) -> Relation:
        return one_relation(self.parts)

    def losses(self) -> tuple[Composition, ...]:
        """Return every combination of the possible losses of the parts.

        If there are more than 256 combinations, return the bound by rho-zCDP alone.
        """
        known: list[tuple[Part, int]] = []
        open_: list[list[Composition]] = []
        for mechanism, count in self.parts:
            options = mechanism.losses()
            if len(options) == 1:
                known += [(loss, n * count) for loss, n in options[0].parts]
            else:
                open_.append(_sums(options, count))
        total = [Composition.of(known)]
        for chosen in open_:
            sums: dict[Composition, None] = {}
            for a, b in product(total, chosen):
                sums[a + b] = None
                if len(sums) > TRADEOFF_LIMITS.alternatives:
                    return (Composition.of([(RenyiBound(self.rho()), 1)]),)
            total = list(sums)
        return tuple(total)

    def rho(self) -> Fraction:
        """Return the sum of the parts' rho."""
        return sum((n * mechanism.rho() for mechanism, n in self.parts), Fraction(0))

    def _of_user(self, records: int) -> Mechanism:
        return Composed.of([(mechanism.user(records), n) for mechanism, n in self.parts])

    def renyi(self, order: float | Fraction) -> Bound:
        """Bound the divergence by the curve, or if this is infinite, by the sum over the parts."""
        known = self.tradeoff().renyi(order)
        if known.upper < math.inf:
            return known
        total = math.fsum(n * mechanism.renyi(order).upper for mechanism, n in self.parts)
        return Bound(0.0, total, "upper", "sum of the parts")

    def _fields(self) -> dict[str, Any]:
        return {"parts": [{"count": n, "mechanism": m.to_dict()} for m, n in self.parts]}

    @classmethod
    def _from_fields(cls, given: Mapping[str, Any]) -> Self:
        total = Composed.of(
            [
                (Mechanism.from_dict(p["mechanism"]), check.integer("count", p["count"], 1))
                for p in given["parts"]
            ]
        )
        return cast(Self, total)  # canonical form: a single mechanism is returned itself

    def __repr__(self) -> str:
        if not self.parts:
            return "Mechanism.nothing()"
        return " + ".join(f"{m!r} * {n}" if n > 1 else repr(m) for m, n in self.parts)


class StandIn(Mechanism):
    """Account for a mechanism by the composition that `made_of` returns."""

    @abstractmethod
    def made_of(self) -> Mechanism:
        """Return the composition whose curve equals or bounds the curve of this mechanism."""

    def losses(self) -> tuple[Composition, ...]:
        """Return the losses of the composition that `made_of` returns."""
        return self.made_of().losses()

    def rho(self) -> Fraction:
        """Return the rho of the composition that `made_of` returns."""
        return self.made_of().rho()


def bracketed(mechanism: Mechanism) -> str:
    """Return the repr of a mechanism, with a sum in parentheses, for a method call on it."""
    text = repr(mechanism)
    return f"({text})" if isinstance(mechanism, Composed) else text


@cache
def _parameters(kind: type[Mechanism]) -> tuple[str, ...]:
    """Return the names of the arguments of ``kind``, or () if it takes arbitrary keywords."""
    arguments = signature(kind.__init__).parameters.values()
    free = any(one.kind is Parameter.VAR_KEYWORD for one in arguments)
    return () if free else tuple(one.name for one in arguments)[1:]


def _hint(kind: type[Mechanism], name: str) -> str:
    """Return text for an error about the unknown argument ``name``: the known ones, and a guess."""
    known = _parameters(kind)
    takes = f"it takes {', '.join(known)}"
    noise = next((one for one in ("sigma", "scale") if one in known), None)
    if name in TARGETS and noise is not None:
        needed = (
            one.name
            for one in signature(kind.__init__).parameters.values()
            if one.default is Parameter.empty and one.name not in ("self", noise)
        )
        given = ", ".join([*(f"{one}=..." for one in needed), f"{noise}=x"])
        return (
            f"{takes}. For the {noise} that meets a target, use ny.calibrate(lambda x: "
            f"ny.{kind.__name__}({given}), ny.approximate(1, 1e-6))"
        )
    meant = [one for group in SYNONYMS if name in group for one in known if one in group]
    meant = meant or get_close_matches(name, known, 1)
    return f"{takes}. Did you mean {' or '.join(meant)}?" if meant else takes


def one_relation(parts: Sequence[tuple[Mechanism, int]]) -> Relation:
    """Return the relation of all parts.

    Raises:
        ValueError: two parts have different relations. The message names both, and a remedy.
    """
    relations: dict[Relation, Mechanism] = {
        m.neighboring: m for m, _ in parts if m.neighboring != "any"
    }
    if len(relations) < 2:
        return (*relations, "any")[0]
    named = " and ".join(f"{m!r} has {relation!r}" for relation, m in relations.items())
    raise ValueError(f"neighboring relations cannot be mixed: {named}{_remedy(parts)}")


def _remedy(parts: Sequence[tuple[Mechanism, int]]) -> str:
    """Return advice for an error: how to describe all parts under one relation, if it is proven."""
    for relation in reversed(NEIGHBORING):
        changed = [_under(m, relation) for m, _ in parts]
        if None not in changed:
            same = [f"{m!r} as {c!r}" for (m, _), c in zip(parts, changed, strict=True) if m != c]
            return f". Describe both under {relation!r}: write {', '.join(same)}"
    return ". Neither has a proof under the other relation: account for each by itself"


def _under(mechanism: Mechanism, relation: Relation) -> Mechanism | None:
    """Return the mechanism, described under ``relation``, or None if that is not proven."""
    if mechanism.neighboring in ("any", relation):
        return mechanism
    with suppress(TypeError, ValueError):
        changed = dataclasses.replace(cast(Any, mechanism), neighboring=relation)
        _ = changed.losses()
        return changed
    return None


def _sums(options: tuple[Composition, ...], count: int) -> list[Composition]:
    """Return the distinct sums of ``count`` options. An option may repeat.

    Stop early if there are more sums than a curve may have alternatives.
    """
    sums: dict[Composition, None] = {}
    for chosen in combinations_with_replacement(options, count):
        total = Composition.of(part for c in chosen for part in c.parts)
        sums[total] = None
        if len(sums) > TRADEOFF_LIMITS.alternatives:
            break
    return list(sums)


def _check_texts(description: Mapping[str, Any]) -> None:
    """Refuse text that is not a number in a field of numbers. The error names the field."""
    for name, value in description.items():
        entries = cast(Sequence[object], value if isinstance(value, (list, tuple)) else [value])
        for entry in entries:
            if name not in (*NAMES, STATEMENTS) and isinstance(entry, str):
                check.exact(name, entry)
