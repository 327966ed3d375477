"""Mechanisms: frozen descriptions of randomness, and how they combine."""

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

# Fields whose text is no number.
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
STATEMENTS = "statements"  # of the distribution of a user's noise
# Names of arguments that mean one thing, here and in other libraries.
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
    """A description of randomness: no data, no random state, immutable, equal by value.

    Mechanisms combine: ``a + b`` releases both with independent noise, ``a * n`` releases n times,
    and ``sum`` of mechanisms releases all.
    What they reveal is `tradeoff()`.

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
    """The neighboring relation of every mechanism of this type, where all have the same one."""

    def __init_subclass__(cls) -> None:
        """Refuse the name of another mechanism, which JSON would confuse with it."""
        module = MODULES.get(cls.__name__, cls.__module__)
        if module != cls.__module__:
            raise TypeError(f"class {cls.__name__}: the name is that of a mechanism in {module}")
        super().__init_subclass__()

    if not TYPE_CHECKING:  # a type checker knows the arguments and attributes by themselves

        def __new__(cls, *_: object, **named: object) -> Self:
            """Refuse an argument that does not exist, with a hint for the first mistakes."""
            known = _parameters(cls)
            for name in named if known else ():
                if name not in known:
                    raise TypeError(f"{cls.__name__} has no argument {name!r}; {_hint(cls, name)}")
            return object.__new__(cls)

        def __getattr__(self, name: str) -> NoReturn:
            """Say where a question about the curve is asked."""
            kind, hint = type(self).__name__, ""
            if not name.startswith("_") and hasattr(Tradeoff, name):
                hint = f"; its trade-off curve has: use .tradeoff().{name}"
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}")

    @property
    def neighboring(self) -> Relation:
        """Return the neighboring relation; "any" if the mechanism is a shift alone."""
        relation = getattr(type(self), "RELATION", None)
        if relation is None:
            raise TypeError(f"{type(self).__name__} must set RELATION, or override neighboring")
        return relation

    @abstractmethod
    def losses(self) -> tuple[Composition, ...]:
        """Return one composition of privacy losses for each possible change of the data."""

    @abstractmethod
    def rho(self) -> Fraction:
        """Return a proven zCDP parameter as an exact rational, which a zCDP ledger charges."""

    @property
    def leaves(self) -> tuple[tuple[Mechanism, int], ...]:
        """The mechanisms that are composed in this one, each with its count."""
        return ((self, 1),)

    def renyi(self, order: float | Fraction) -> Bound:
        """Return the largest Renyi divergence of this order between neighbors; upper is safe.

        Args:
            order: at least 1.

        Raises:
            ValueError: for an order below 1.
        """
        return self.tradeoff().renyi(order)

    def tradeoff(self, neighboring: Relation | None = None) -> Tradeoff:
        """Return the trade-off curve of this mechanism between neighboring datasets.

        Args:
            neighboring: asserts the relation. It changes nothing: a description that depends on
                another relation is refused.

        Raises:
            ValueError: if the mechanism is described under another relation, or there is no such.
        """
        if neighboring is not None:
            relation_of(neighboring)
        if neighboring is not None and self.neighboring not in ("any", neighboring):
            raise ValueError(
                f"neighboring = {neighboring!r}, but this mechanism is described under "
                f"{self.neighboring!r}; describe it under the relation that is meant"
            )
        relation = self.neighboring if neighboring is None else neighboring
        return Tradeoff.of(self.losses(), relation)

    def __add__(self, other: Mechanism) -> Mechanism:
        """Both, with independent noise."""
        if not isinstance(other, Mechanism):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Composed.of([(self, 1), (other, 1)])

    def __radd__(self, other: int) -> Mechanism:
        """Return this mechanism for 0 + it, where Python's ``sum`` of mechanisms begins."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __mul__(self, count: int) -> Mechanism:
        """Repeat this mechanism ``count`` times, each with fresh noise; 0 releases nothing."""
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
            size: fixed size: so many records are drawn without replacement ...
            population: ... of so many.
            neighboring: for Poisson "add-remove", which is meant if nothing is said, or
                "replace-one"; for a fixed size "replace-one".

        Raises:
            ValueError: where the scheme and the relation do not go together, or nothing is proven.
        """
        return combined("subsample", Mechanism, self, rate, size, population, neighboring)

    def user(self, records: int) -> Mechanism:
        """Return this mechanism, described for a user with at most so many records.

        Neighbors differ in all records of one user: they are in one dataset, and absent from the
        other. Each record alone may do what this mechanism is described for. Gaussian noise, its
        Poisson samples under add-remove, `DPSGD` with Poisson batches, and sums of these have such
        a description. Usually it is tighter than ``tradeoff().group(k)``, which also covers
        datasets that differ by a records added and k - a removed. No proof is known here for that.
        Where noise is far below the sensitivity the interval of several steps may be wide, and
        then ``group(k)`` is the better bound.

        A sum describes a user of each of its parts as that part says. With ``a.user(8) + b`` they
        have up to 8 records in a, and one in b.

        Args:
            records: k, at least 1.

        Raises:
            ValueError: nothing is proven for this mechanism.

        Examples:
            >>> import neyman as ny
            >>> steps = ny.Gaussian(sigma=1).subsample(rate=0.01) * 1000
            >>> round(float(steps.user(8).tradeoff().epsilon(delta=1e-6)), 2)
            23.08
            >>> round(float(steps.tradeoff().group(8).epsilon(delta=1e-6)), 1)
            30.4

        Source: Charles et al. 2024; [SA-9], [SA-10].
        """
        many = check.integer("records", records, 1)
        return self if many == 1 else self._of_user(many)

    def _of_user(self, records: int) -> Mechanism:
        raise ValueError(
            f"{self!r}.user({records}): several records of a user are proven here for Gaussian "
            "noise and for its Poisson samples under 'add-remove'. Describe the mechanism by what "
            "all records of a user change together, or use .tradeoff().group(k)"
        )

    def shuffle(self, *, users: int) -> Mechanism:
        """Return the shuffled reports of this mechanism from each of ``users`` people.

        Args:
            users: how many people report, each on their own record.

        Raises:
            ValueError: unless it is pure: amplification by shuffling is proven for those.
        """
        return combined("shuffle", Mechanism, self, users)

    def shuffled_batches(self, batches: int) -> Mechanism:
        """Return this mechanism on each batch of a pass over shuffled records; ``* epochs`` passes.

        A record is in one batch of a pass: the pass tells what one run does, and no amplification
        is claimed. The relation is replace-one.

        Args:
            batches: how many batches a pass has, at least 1.
        """
        return combined("shuffled_batches", Mechanism, self, batches)

    def random_allocation(self, batches: int, *, times: int = 1) -> Mechanism:
        """Return this mechanism on each batch of a pass that puts every record into random batches.

        Each record draws one of the batches, independently of the others (balls in bins), and
        which one stays secret; ``* epochs`` passes, each drawn afresh. The relation is add-remove.

        Args:
            batches: how many batches a pass has, at least 1.
            times: in how many of them each record takes part, at least 1 and at most ``batches``.

        Raises:
            ValueError: for a mechanism other than Gaussian noise.
        """
        return combined("random_allocation", Mechanism, self, batches, times)

    @staticmethod
    def nothing() -> Mechanism:
        """Return the mechanism that releases nothing, equal to ``m * 0``."""
        return Composed(())

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON types, which `Mechanism.from_dict` reads."""
        return {"type": type(self).__name__, **self._fields()}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Mechanism:
        """Return the mechanism that `to_dict` described.

        Raises:
            ValueError: for an unknown type, a missing field, or one that cannot be read, by name.
        """
        check.no_evidence("description", description)
        if not isinstance(description, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"description = {description!r} must be an object with a 'type'")
        kind = description.get("type")
        name = kind if isinstance(kind, str) else ""
        load_type(name)
        if name not in Mechanism._kinds:
            known = ", ".join(sorted({*MODULES, *Mechanism._kinds}))
            raise ValueError(f"type = {kind!r} is not a mechanism; known are {known}")
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
            description = json.loads(text)
        except (TypeError, ValueError) as error:
            raise ValueError(f"text = {text!r} must be JSON text of a mechanism: {error}") from None
        return Mechanism.from_dict(description)


@dataclass(frozen=True, repr=False)
class Composed(Mechanism):
    """Several mechanisms with independent noise, equal ones grouped, in canonical order.

    Build it with ``+`` and ``*``.

    Args:
        parts: mechanisms that are not compositions themselves, each with its count, at most 1e18.

    Where parts have several possible shifts, every fixed combination of them is accounted for: the
    change of the data, and with it the shift of each part, is fixed beforehand. It does not cover
    later queries that are chosen by earlier answers in such a way that the shift of a later
    release depends on them; describe each part by one shift then that dominates all of its own.
    """

    parts: tuple[tuple[Mechanism, int], ...]

    def __post_init__(self) -> None:
        for _, count in self.parts:
            if count > DESCRIPTION_LIMITS.count:
                raise ValueError(f"count = {count!r} must be at most {DESCRIPTION_LIMITS.count:g}")

    @staticmethod
    def of(parts: list[tuple[Mechanism, int]]) -> Mechanism:
        """Return the composition in canonical form: one mechanism alone is itself."""
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
        return Composed(ordered)._check()

    def _with(self, leaf: Mechanism) -> Composed | None:
        """Put one more part where it belongs: sums of many are made one by one.

        None where it is there already: then it stands here, as no count sorts before 1.
        """
        key = order_key((leaf, 1))
        at = bisect_left(self._keys, key)
        if at < len(self.parts) and self.parts[at][0] == leaf:
            return None
        parts = (*self.parts[:at], (leaf, 1), *self.parts[at:])
        relations = {self.neighboring, leaf.neighboring} - {"any"}
        if len(relations) > 1:
            return Composed(parts)._check()
        # Only the new part is looked at, so that a sum of many takes no square of their number.
        total = object.__new__(Composed)
        keys = (*self._keys[:at], key, *self._keys[at:])
        values = {"parts": parts, "_keys": keys, "_relation": (*relations, "any")[0]}
        for name, value in values.items():
            object.__setattr__(total, name, value)
        return total

    @cached_property
    def _keys(self) -> tuple[tuple[Any, ...], ...]:
        """What the parts are sorted by."""
        return tuple(map(order_key, self.parts))

    def _check(self) -> Composed:
        _ = self.neighboring  # refuses two relations now rather than later
        return self

    @property
    def leaves(self) -> tuple[tuple[Mechanism, int], ...]:
        """The parts."""
        return self.parts

    @property
    def neighboring(self) -> Relation:
        """The one relation of all parts."""
        return self._relation

    @cached_property
    def _relation(self) -> Relation:
        return one_relation(self.parts)

    def losses(self) -> tuple[Composition, ...]:
        """Every combination of what each part's loss may be.

        Where there are more than 256 of them only rho-zCDP is claimed.
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
                if len(sums) > TRADEOFF_LIMITS.alternatives:  # known before they are all made
                    return (Composition.of([(RenyiBound(self.rho()), 1)]),)
            total = list(sums)
        return tuple(total)

    def rho(self) -> Fraction:
        """Return the sum of the parts' rho."""
        return sum((n * mechanism.rho() for mechanism, n in self.parts), Fraction(0))

    def _of_user(self, records: int) -> Mechanism:
        return Composed.of([(mechanism.user(records), n) for mechanism, n in self.parts])

    def renyi(self, order: float | Fraction) -> Bound:
        """Return the curve's, or the sum of the parts' bounds where it has no finite one."""
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
        return cast(Self, total)  # in canonical form: one mechanism alone is itself

    def __repr__(self) -> str:
        if not self.parts:
            return "Mechanism.nothing()"
        return " + ".join(f"{m!r} * {n}" if n > 1 else repr(m) for m, n in self.parts)


class StandIn(Mechanism):
    """A mechanism that stands for the composition `made_of`."""

    @abstractmethod
    def made_of(self) -> Mechanism:
        """Return the composition whose curve is that of this mechanism, or bounds it."""

    def losses(self) -> tuple[Composition, ...]:
        """Return the losses of `made_of`."""
        return self.made_of().losses()

    def rho(self) -> Fraction:
        """Return the rho of `made_of`."""
        return self.made_of().rho()


def bracketed(mechanism: Mechanism) -> str:
    """Return the repr of a mechanism, in brackets where a method is called on a sum."""
    text = repr(mechanism)
    return f"({text})" if isinstance(mechanism, Composed) else text


@cache
def _parameters(kind: type[Mechanism]) -> tuple[str, ...]:
    """Return the names of the arguments of a mechanism; none where it takes any."""
    arguments = signature(kind.__init__).parameters.values()
    free = any(one.kind is Parameter.VAR_KEYWORD for one in arguments)
    return () if free else tuple(one.name for one in arguments)[1:]


def _hint(kind: type[Mechanism], name: str) -> str:
    """Return what a mechanism takes, and what was probably meant by another name."""
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
        ValueError: two parts have different ones; the message names both, and what to write.
    """
    relations: dict[Relation, Mechanism] = {
        m.neighboring: m for m, _ in parts if m.neighboring != "any"
    }
    if len(relations) < 2:
        return (*relations, "any")[0]
    named = " and ".join(f"{m!r} has {relation!r}" for relation, m in relations.items())
    raise ValueError(f"neighboring relations cannot be mixed: {named}{_remedy(parts)}")


def _remedy(parts: Sequence[tuple[Mechanism, int]]) -> str:
    """Return the same parts under one relation, where each part is proven under it."""
    for relation in reversed(NEIGHBORING):
        changed = [_under(m, relation) for m, _ in parts]
        if None not in changed:
            same = [f"{m!r} as {c!r}" for (m, _), c in zip(parts, changed, strict=True) if m != c]
            return f". Describe both under {relation!r}: write {', '.join(same)}"
    return ". Neither has a proof under the other relation: account for each by itself"


def _under(mechanism: Mechanism, relation: Relation) -> Mechanism | None:
    """Return a mechanism under another relation; None if nothing is proven there."""
    if mechanism.neighboring in ("any", relation):
        return mechanism
    with suppress(TypeError, ValueError):
        changed = dataclasses.replace(cast(Any, mechanism), neighboring=relation)
        _ = changed.losses()
        return changed
    return None


def _sums(options: tuple[Composition, ...], count: int) -> list[Composition]:
    """Every way to choose an option for each of ``count`` releases; a few over the limit."""
    sums: dict[Composition, None] = {}
    for chosen in combinations_with_replacement(options, count):
        total = Composition.of(part for c in chosen for part in c.parts)
        sums[total] = None
        if len(sums) > TRADEOFF_LIMITS.alternatives:
            break
    return list(sums)


def _check_texts(description: Mapping[str, Any]) -> None:
    """Refuse text that is not a number, by the name of its field."""
    for name, value in description.items():
        entries = cast(Sequence[object], value if isinstance(value, (list, tuple)) else [value])
        for entry in entries:
            if name not in (*NAMES, STATEMENTS) and isinstance(entry, str):
                check.exact(name, entry)
