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
from functools import wraps
from operator import length_hint
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from neyman.numerics.bound import Bound

MOST_OPERATIONS = 2.3e10  # of a question: some seven seconds of one core
RESERVE = 0.1  # of these, for bounds from what is there when they are used up
BATCH = 8  # questions asked at once that one question's operations are for
MOST_BATCHES = 16
MOST_CELLS = 1 << 22  # of one array beside which others of its size stand: 32 MiB each
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
    work: dict[object, object] = field(default_factory=dict[object, object])
    paid: set[object] = field(default_factory=set[object])

    def add(self, count: float, cells: float) -> None:
        """Count operations, and refuse those beyond the most and arrays that are too large."""
        if self.spare:
            self.spared += count
        else:
            self.count += count
        if cells > self.most_cells:
            self.most_cells = cells
        if self.strict:
            used, most = (self.spared, self.reserve) if self.spare else (self.count, self.most)
            if used > most or cells > MOST_CELLS:
                self.reached = True
                raise OperationLimit

    def fits(self, count: float, cells: float) -> bool:
        """Return True if so many more operations, and an array so large, are left."""
        used, most = (self.spared, self.reserve) if self.spare else (self.count, self.most)
        return used + count <= most and cells <= MOST_CELLS


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""The meter of the question that this thread answers; None between two questions."""


def charge(count: float) -> None:
    """Count operations that are about to be done.

    Raises:
        OperationLimit: an engine asks for more than is left.
    """
    meter = _METER.get()
    if meter is not None:
        meter.add(count, 0.0)


def overhead(count: float) -> None:
    """Count operations of an answer from what is there: they never raise."""
    meter = _METER.get()
    if meter is not None:
        meter.count += count


def cells(count: float) -> None:
    """Say how many cells an array is about to have.

    Raises:
        OperationLimit: an engine asks for more than memory should hold.
    """
    meter = _METER.get()
    if meter is not None:
        meter.add(0.0, count)


class _Block:
    """A block that a meter counts; what was set of it before stands again afterwards.

    Args:
        meter: of the question, or a new one.
        token: of a new one.
        settings: of the meter within the block.
    """

    __slots__ = ("_before", "_meter", "_token")

    def __init__(
        self, meter: Meter, token: Token[Meter | None] | None, settings: dict[str, object]
    ) -> None:
        fields = meter.__dict__
        self._meter, self._token, self._before = meter, token, settings
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
            _METER.reset(self._token)


def _block(batches: float = 1.0, **settings: object) -> _Block:
    """Return a block with the meter of the question, or with a new one, and with these settings."""
    meter, token = _METER.get(), None
    if meter is None:
        meter = Meter(batches * MOST_OPERATIONS, batches * RESERVE * MOST_OPERATIONS)
        token = _METER.set(meter)
    return _Block(meter, token, settings)


def question_meter(batches: float = 1.0) -> _Block:
    """Count what the block does: with the meter of the question, or with a new one.

    Args:
        batches: how many times the operations of one question a new meter has.
    """
    return _block(batches)


def apart() -> _Block:
    """Count what the block does with a new meter, also within a question."""
    meter = Meter(MOST_OPERATIONS, RESERVE * MOST_OPERATIONS)
    return _Block(meter, _METER.set(meter), {})


def current_meter() -> Meter | None:
    """Return the meter of the question that this thread answers."""
    return _METER.get()


def in_question(key: object, build: Callable[[], R]) -> R:
    """Return what ``build`` makes, once in a question; between two questions it is made anew.

    Args:
        key: a hashable value, or an object, that says what it is.
        build: a function without arguments.
    """
    meter = _METER.get()
    if meter is None:
        return build()
    if (known := meter.work.get(key)) is None:
        known = meter.work[key] = build()
    return cast("R", known)


def fresh_engines() -> _Block:
    """Within the block engines know nothing, as at the start of a question."""
    return _block(work={})


def limit(share: float, owner: object = None) -> _Block:
    """Give the block a share of the operations, so that others are left.

    Args:
        share: of what is left now, reserve included.
        owner: instead, of what was left when this object began to answer the question. What its
            other blocks took counts, and the reserve is not shared.
    """
    meter = _METER.get() or Meter(MOST_OPERATIONS, RESERVE * MOST_OPERATIONS)
    if owner is None:
        spared = meter.spared + share * max(meter.reserve - meter.spared, 0.0)
        most = meter.count + share * max(meter.most - meter.count, 0.0)
        return _block(most=most, reserve=spared)
    start = meter.starts.setdefault(owner, meter.count)
    return _block(most=start + share * max(meter.most - start, 0.0))


def engine_limit() -> _Block:
    """Within the block operations beyond the most raise `OperationLimit`.

    The meter says after the block whether an engine had to stop in it.
    """
    return _block(strict=True, reached=False)


def reserve() -> _Block:
    """Within the block the reserve is used: for bounds from what is there."""
    return _block(spare=True)


def method_note(method: str) -> str:
    """Return the method of an answer, with a note if an engine had to stop on the way to it."""
    meter = _METER.get()
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

    Each question begins with engines that nobody has asked, so it has the same answer whatever was
    asked before.
    """

    @wraps(ask)
    def answer(self: S, *args: P.args, **options: P.kwargs) -> R:
        if _METER.get() is not None:  # a part of another question
            return ask(self, *args, **options)
        many = length_hint(args[0], 1) if args else 1
        with question_meter(min(max(many / BATCH, 1.0), MOST_BATCHES)) as meter:
            result = ask(self, *args, **options)
        return _with_note(result) if meter.reached else result

    return answer
