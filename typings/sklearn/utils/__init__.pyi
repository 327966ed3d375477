from typing import Any

from numpy.typing import NDArray

def column_or_1d(y: Any, *, dtype: Any = ..., warn: bool = ...) -> NDArray[Any]: ...
