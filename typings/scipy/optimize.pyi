from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

class OptimizeResult:
    x: Array

def minimize(
    fun: Callable[[Array], tuple[float, Array]],
    x0: Array,
    jac: bool,
    method: str,
    bounds: Sequence[tuple[float, float]] | None = None,
    options: Mapping[str, object] | None = None,
) -> OptimizeResult: ...

class LinearConstraint:
    def __init__(self, A: object, lb: object, ub: object) -> None: ...

def milp(
    c: Array,
    *,
    integrality: Array,
    constraints: LinearConstraint,
    options: Mapping[str, object],
) -> MilpResult: ...

class MilpResult:
    x: Array
    status: int
    mip_dual_bound: float
