from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

def fftconvolve(in1: Array, in2: Array) -> Array: ...
def lfilter(b: Sequence[float], a: Array, x: Array) -> Array: ...
