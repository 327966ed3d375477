"""Return an array for an array and a number for a number, as a `ufunc` does."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

bdtr: np.ufunc
bdtrc: np.ufunc
betainc: np.ufunc
betaincc: np.ufunc
betaincinv: np.ufunc
betaln: np.ufunc
chdtri: np.ufunc
erfc: np.ufunc
erfcx: np.ufunc
eval_hermitenorm: np.ufunc
expit: np.ufunc
gamma: np.ufunc
gammaln: np.ufunc
log_ndtr: np.ufunc
ndtr: np.ufunc
ndtri: np.ufunc
ndtri_exp: np.ufunc
stdtrit: np.ufunc

def logsumexp(
    a: ArrayLike, axis: int | None = None, b: ArrayLike | None = None, keepdims: bool = False
) -> Any: ...
