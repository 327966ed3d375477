from typing import TypeAlias

import numpy as np
from numpy.linalg import LinAlgError as LinAlgError
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

def cho_factor(a: Array) -> tuple[Array, bool]: ...
def cho_solve(c_and_lower: tuple[Array, bool], b: Array) -> Array: ...
def solve_triangular(a: Array, b: Array, lower: bool = False) -> Array: ...
