from collections.abc import Iterator
from typing import Any, Self

from sklearn.base import BaseEstimator

class KFold:
    def __init__(self, n_splits: int = ...) -> None: ...

class RepeatedKFold: ...
class ShuffleSplit: ...

class ParameterGrid:
    def __init__(self, param_grid: Any) -> None: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...

class GridSearchCV(BaseEstimator):
    estimator: Any
    param_grid: Any
    cv: Any
    refit: Any
    def fit(self, X: Any, y: Any = ..., **params: Any) -> Self: ...
