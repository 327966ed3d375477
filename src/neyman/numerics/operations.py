"""Count the operations of one question, and stop slow computations (engines) at a limit.

A question is one call for an answer. Slow functions count their work before they do it: the entries
(cells) of arrays, and a fixed number per call. An engine runs within `engine_limit`. There, a count
beyond the remaining operations raises `OperationLimit`, and so does an array too large for memory.
The engine's caller catches this error and uses the bounds available so far. Running time decides
nothing, so the answer is reproducible.

Intermediate results of engines belong to the question (`in_question`), so no earlier question
affects a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial, wraps
from operator import length_hint
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from neyman.numerics.bound import Bound

MOST_OPERATIONS = 1.6e10  # of a question: at most about five seconds of one core


@dataclass(frozen=True)
class Limits:
    """Limits on one question besides `MOST_OPERATIONS`: its reserve, batches, and largest array."""

    batches: int = 16
    array_cells: int = 1 << 22  # of one array, with others of its size beside it: 32 MiB each


LIMITS = Limits()

CALL = 2e4  # operations of one call of NumPy functions on short arrays
NOTE = "stopped at its limit of operations"

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


class OperationLimit(Exception):
    """Report that an engine needs more operations than the question has left."""


@dataclass
class Meter:
    """Count the operations of a question.

    Args:
        most: largest count of operations for the engine.
        reserve: largest further count, for bounds from results available when the engine stopped.
        count, spared: operations used so far, outside and within the reserve.
        reached: True if an engine had to stop.
        strict: True if an operation beyond ``most`` raises an error.
        spare: True if operations use the reserve.
        starts: the count at which each ``owner`` of `limit` started.
        most_cells: cells of the largest array.
        work: intermediate results of the question's engines.
        paid: keys of the cached results whose operations this meter has counted.
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

    def fits(self, count: float, cells: float) -> bool:
        """Return True if ``count`` more operations and an array of ``cells`` cells are allowed."""
        used, most = (self.spared, self.reserve) if self.spare else (self.count, self.most)
        return used + count <= most and cells <= LIMITS.array_cells


METER: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""The meter of the question that this thread answers; None outside of a question."""


def charge(count: float, most_cells: float = 0.0) -> None:
    """Count operations before they run, and note the cells of their largest array.

    Raises:
        OperationLimit: within `engine_limit`, more operations or memory than allowed.
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
    if meter.strict:  # this is `Meter.fits`, without a call
        used, most = (meter.spared, meter.reserve) if meter.spare else (meter.count, meter.most)
        if used > most or most_cells > LIMITS.array_cells:
            meter.reached = True
            raise OperationLimit


def overhead(count: float) -> None:
    """Count operations that assemble an answer from available results. This raises no error."""
    meter = METER.get()
    if meter is not None:
        meter.count += count


def cells(count: float) -> None:
    """Report the number of entries of an array before it is created.

    Raises:
        OperationLimit: within `engine_limit`, more memory than allowed.
    """
    charge(0.0, count)


def _new_meter(batches: float = 1.0) -> Meter:
    """Return a meter with ``batches`` times the operations of one question."""
    # Share of operations for bounds after the others are used up.
    return Meter(batches * MOST_OPERATIONS, batches * 0.1 * MOST_OPERATIONS)


class _Block:
    """Use a meter within a ``with`` block, and restore its settings afterwards.

    Args:
        settings: the meter's settings within the block.
        meter: a new meter; by default the question's meter, or a new one.
    """

    __slots__ = ("_before", "_meter", "_token")

    def __init__(self, settings: dict[str, object], meter: Meter | None = None) -> None:
        self._before = {**settings}
        known = METER.get()
        self._token: Token[Meter | None] | None = None
        if meter is not None or known is None:
            known = meter or _new_meter()
            self._token = METER.set(known)
        self._meter, fields = known, known.__dict__
        for name, value in settings.items():
            self._before[name], fields[name] = fields[name], value

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
    """Return a context that counts operations with the question's meter, or a new one.

    Args:
        batches: multiple of one question's operations for a new meter.
    """
    return _Block({}, None if METER.get() else _new_meter(batches))


def apart(*, strict: bool = False) -> _Block:
    """Return a context that counts operations with a new meter, even within a question.

    Args:
        strict: True if operations beyond the limit raise `OperationLimit`.
    """
    return _Block({"strict": strict}, _new_meter())


def in_question(key: object, build: Callable[[], R]) -> R:
    """Return the result of ``build``, computed once per question.

    Outside of a question, it is computed each time.

    Args:
        key: a hashable value or object that identifies the result.
        build: a function without arguments.
    """
    meter = METER.get()
    if meter is None:
        return build()
    if (known := meter.work.get(key)) is None:
        known = meter.work[key] = build()
    return known


def fresh_engines() -> _Block:
    """Return a context without intermediate results, as at the start of a question."""
    return _Block({"work": {}})


def limit(share: float, owner: object = None) -> _Block:
    """Return a context with a share of the remaining operations, so that some are left for others.

    Args:
        share: share of the remaining operations, reserve included.
        owner: if given, the share is of the operations left when this object first called `limit`
            in the question. Its other contexts count, and the reserve is not shared.
    """
    meter = METER.get() or _new_meter()
    if owner is None:
        spared = meter.spared + share * max(meter.reserve - meter.spared, 0.0)
        most = meter.count + share * max(meter.most - meter.count, 0.0)
        return _Block({"most": most, "reserve": spared})
    start = meter.starts.setdefault(owner, meter.count)
    return _Block({"most": start + share * max(meter.most - start, 0.0)})


engine_limit: Callable[[], _Block] = partial(_Block, {"strict": True, "reached": False})
"""Return a context in which operations beyond the limit raise `OperationLimit`.

Afterwards, the meter has ``reached`` = True if an engine had to stop.
"""

reserve: Callable[[], _Block] = partial(_Block, {"spare": True})
"""Return a context whose operations count toward the reserve, for bounds from available results."""


def method_note(method: str) -> str:
    """Return ``method``, with a note if an engine had to stop."""
    meter = METER.get()
    return f"{method}; {NOTE}" if meter is not None and meter.reached else method


def _with_note(answer: Any) -> Any:
    """Return ``answer`` with a note that an engine had to stop, in the method of each bound."""
    if isinstance(answer, Bound):
        said = NOTE in answer.method
        return answer if said else replace(answer, method=f"{answer.method}; {NOTE}")
    if isinstance(answer, list):
        return [_with_note(one) for one in cast("list[Any]", answer)]
    if is_dataclass(answer) and all(isinstance(v, Bound) for v in vars(answer).values()):
        return type(answer)(*map(_with_note, vars(answer).values()))
    return answer


def question(ask: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method that answers a question, to count and limit its operations.

    Each question starts without intermediate results, so its answer does not depend on earlier
    ones.
    """

    @wraps(ask)
    def answer(self: S, *args: P.args, **options: P.kwargs) -> R:
        if METER.get() is not None:  # part of another question
            return ask(self, *args, **options)
        many = length_hint(args[0], 1) if args else 1
        # Questions in one call that share one question's operations.
        with question_meter(min(max(many / 8, 1.0), LIMITS.batches)) as meter:
            result = ask(self, *args, **options)
        return _with_note(result) if meter.reached else result

    return answer
