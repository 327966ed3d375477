"""Operations of one question: what its arrays cost, and where its engines have to stop.

The functions that take time count their work before they do it: cells of arrays, and a fixed number
for a call. An engine is asked within `engine_limit`. There a count beyond what is left raises
`OperationLimit`, and so does an array that memory should not hold. The caller of the engine catches
this and takes the bounds that are there. Time never decides: a question has one answer.

What engines learn on the way to an answer stays with the question (`in_question`), so no earlier
question decides a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial, wraps
from operator import length_hint
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from neyman.numerics.bound import Bound

MOST_OPERATIONS = 2.3e10  # of a question: some seven seconds of one core


@dataclass(frozen=True)
class Limits:
    """The operations of a question."""

    reserve_share: float = 0.1  # of these, for bounds from what is there when they are used up
    batch_questions: int = 8  # questions asked at once that one question's operations are for
    batches: int = 16
    array_cells: int = 1 << 22  # of one array beside which others of its size stand: 32 MiB each


LIMITS = Limits()

CALL = 2e4  # operations of one call of NumPy functions on short arrays
NOTE = "stopped at its limit of operations"

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


class OperationLimit(Exception):
    """A question has no operations left for what an engine would do."""


@dataclass
class Meter:
    """Counts the operations of a question.

    Args:
        most: operations that the engine which is asked may bring the count to.
        reserve: the same of operations for bounds from what is there.
        count, spared: those that were taken.
        reached: whether an engine had to stop.
        strict: whether an operation beyond the most raises.
        spare: whether the reserve is used.
        starts: the count at which each owner of a share began.
        most_cells: those of the largest array.
        work: what the engines of the question have computed so far.
        paid: keys of the results in the cache whose operations are counted.
    """

    most: float
    reserve: float
    count: float = 0.0
    spared: float = 0.0
    reached: bool = False
    strict: bool = False
    spare: bool = False
    starts: dict[object, float] = field(default_factory=dict[object, float])
    most_cells: float = 0.0
    work: dict[object, Any] = field(default_factory=dict[object, Any])
    paid: set[object] = field(default_factory=set[object])

    def result(self, key: object, build: Callable[[], R]) -> R:
        """Return what ``build`` makes, once for this meter."""
        if (known := self.work.get(key)) is None:
            known = self.work[key] = build()
        return known

    def fits(self, count: float, cells: float) -> bool:
        """Return True if so many more operations, and an array so large, are left."""
        used, most = (self.spared, self.reserve) if self.spare else (self.count, self.most)
        return used + count <= most and cells <= LIMITS.array_cells


METER: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""The meter of the question that this thread answers; None between two questions."""


def charge(count: float, most_cells: float = 0.0) -> None:
    """Count operations that are about to be done, and the cells of the largest array in them.

    Raises:
        OperationLimit: an engine asks for more than is left, or than memory should hold.
    """
    meter = METER.get()
    if meter is None:
        return
    if meter.spare:
        meter.spared += count
    else:
        meter.count += count
    if most_cells > meter.most_cells:
        meter.most_cells = most_cells
    if meter.strict:
        used, most = (meter.spared, meter.reserve) if meter.spare else (meter.count, meter.most)
        if used > most or most_cells > LIMITS.array_cells:
            meter.reached = True
            raise OperationLimit


def overhead(count: float) -> None:
    """Count operations of an answer from what is there: they never raise."""
    meter = METER.get()
    if meter is not None:
        meter.count += count


def cells(count: float) -> None:
    """Say how many cells an array is about to have.

    Raises:
        OperationLimit: an engine asks for more than memory should hold.
    """
    charge(0.0, count)


class _Block:
    """A block that a meter counts; what was set of it before stands again afterwards.

    Args:
        settings: of the meter within the block.
        meter: a new one; that of the question, or a new one, if left out.
        batches: how many times the operations of one question a new meter has.
    """

    __slots__ = ("_before", "_meter", "_token")

    def __init__(
        self, settings: dict[str, object], meter: Meter | None = None, batches: float = 1.0
    ) -> None:
        settings = {**settings}
        known = METER.get() if meter is None else None
        self._token: Token[Meter | None] | None = None
        if known is None:
            known = meter or Meter(
                batches * MOST_OPERATIONS, batches * LIMITS.reserve_share * MOST_OPERATIONS
            )
            self._token = METER.set(known)
        fields = known.__dict__
        self._meter, self._before = known, settings
        for name, value in settings.items():
            settings[name], fields[name] = fields[name], value

    def __enter__(self) -> Meter:
        return self._meter

    def __exit__(self, *_: object) -> None:
        meter = self._meter
        reached = meter.reached
        meter.__dict__.update(self._before)
        meter.reached |= reached
        if self._token is not None:
            METER.reset(self._token)


def question_meter(batches: float = 1.0) -> _Block:
    """Count what the block does: with the meter of the question, or with a new one.

    Args:
        batches: how many times the operations of one question a new meter has.
    """
    return _Block({}, batches=batches)


def apart(*, strict: bool = False) -> _Block:
    """Count what the block does with a new meter, also within a question.

    Args:
        strict: whether operations beyond the most raise `OperationLimit`.
    """
    meter = Meter(MOST_OPERATIONS, LIMITS.reserve_share * MOST_OPERATIONS)
    meter.strict = strict
    return _Block({}, meter)


def in_question(key: object, build: Callable[[], R]) -> R:
    """Return what ``build`` makes, once in a question; between two questions it is made anew.

    Args:
        key: a hashable value, or an object, that says what it is.
        build: a function without arguments.
    """
    meter = METER.get()
    return build() if meter is None else meter.result(key, build)


def fresh_engines() -> _Block:
    """Within the block engines know nothing, as at the start of a question."""
    return _Block({"work": {}})


def limit(share: float, owner: object = None) -> _Block:
    """Give the block a share of the operations, so that others are left.

    Args:
        share: of what is left now, reserve included.
        owner: instead, of what was left when this object began to answer the question. What its
            other blocks took counts, and the reserve is not shared.
    """
    meter = METER.get() or Meter(MOST_OPERATIONS, LIMITS.reserve_share * MOST_OPERATIONS)
    if owner is None:
        spared = meter.spared + share * max(meter.reserve - meter.spared, 0.0)
        most = meter.count + share * max(meter.most - meter.count, 0.0)
        return _Block({"most": most, "reserve": spared})
    start = meter.starts.setdefault(owner, meter.count)
    return _Block({"most": start + share * max(meter.most - start, 0.0)})


engine_limit: Callable[[], _Block] = partial(_Block, {"strict": True, "reached": False})
"""Within the block operations beyond the most raise `OperationLimit`.

The meter says after the block whether an engine had to stop in it.
"""

reserve: Callable[[], _Block] = partial(_Block, {"spare": True})
"""Within the block the reserve is used: for bounds from what is there."""


def method_note(method: str) -> str:
    """Return the method of an answer, with a note if an engine had to stop on the way to it."""
    meter = METER.get()
    return f"{method}; {NOTE}" if meter is not None and meter.reached else method


def _with_note(answer: Any) -> Any:
    """Return an answer whose bounds all say in their method that an engine had to stop."""
    if isinstance(answer, Bound):
        said = NOTE in answer.method
        return answer if said else replace(answer, method=f"{answer.method}; {NOTE}")
    if isinstance(answer, list):
        return [_with_note(one) for one in cast("list[Any]", answer)]
    if is_dataclass(answer) and all(isinstance(v, Bound) for v in vars(answer).values()):
        return type(answer)(*map(_with_note, vars(answer).values()))
    return answer


def question(ask: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Give a method that answers a question its operations, as a decorator.

    Each question begins with engines that no one has asked, so it has the same answer whatever was
    asked before.
    """

    @wraps(ask)
    def answer(self: S, *args: P.args, **options: P.kwargs) -> R:
        if METER.get() is not None:  # a part of another question
            return ask(self, *args, **options)
        many = length_hint(args[0], 1) if args else 1
        with question_meter(min(max(many / LIMITS.batch_questions, 1.0), LIMITS.batches)) as meter:
            result = ask(self, *args, **options)
        return _with_note(result) if meter.reached else result

    return answer
