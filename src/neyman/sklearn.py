"""Fit private models with scikit-learn's `fit`, `predict`, and `transform`: ``neyman.sklearn``.

Each `fit` is one release of `ny.estimate`: it charges first, then reads the data and draws exact
noise. The model depends on the data only through this release. So you can publish the model, and
`predict` and `transform` cost nothing. Their results for private rows are as private as the rows.

The public arguments ``radius``, ``bounds``, and ``classes`` replace facts that scikit-learn learns
from the data. Choose them without the data. No content of a row raises an error. No model accepts a
seed, because reproducible noise can be subtracted.

Examples:
    >>> import numpy as np
    >>> import neyman as ny
    >>> from neyman.sklearn import LinearRegression
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = LinearRegression(budget=ny.gdp(1), radius=1, bounds=(-1, 1)).fit(X, X[:, 0] / 2)
    >>> model.coef_.round(2), model.receipt_["ledger"]["charged"]
    (array([0.5]), 'nothing')
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.accounting.calibrate import Budget
from neyman.accounting.charges import charge
from neyman.analysis.estimators.ball_mean import mean_of_array
from neyman.analysis.estimators.estimate import MIN_MISS_PROBABILITY, Estimate
from neyman.analysis.estimators.least_squares import RADIUS_UNITS, Fit, data_region, solve
from neyman.analysis.estimators.logistic import LIMITS as LOGISTIC_LIMITS
from neyman.analysis.estimators.logistic import logistic
from neyman.analysis.estimators.regression import regression
from neyman.analysis.estimators.second_moments import covariance
from neyman.analysis.estimators.shared_arguments import Shared, radius_of, relation_of
from neyman.extras import require
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import BudgetRefused
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, entries_of
from neyman.numerics.relation import Neighboring
from neyman.publishing.release.charged_call import Payer, Payment, opened

require("models for scikit-learn", "sklearn")

from sklearn import base, model_selection  # noqa: E402
from sklearn.utils import column_or_1d  # noqa: E402
from sklearn.utils.validation import check_array, check_is_fitted, validate_data  # noqa: E402

__all__ = [
    "PCA",
    "GridSearchCV",
    "LinearRegression",
    "LogisticRegression",
    "Ridge",
    "StandardScaler",
]

Floats = NDArray[np.float64]
Number = float | Fraction | str
SPLITTERS = model_selection.KFold, model_selection.RepeatedKFold, model_selection.ShuffleSplit


@dataclass(frozen=True)
class Limits:
    """Limit the penalty of a model, and the variance by which a column is scaled."""

    alpha: float = 1e15
    penalty_weight: float = 1e100  # largest penalty in units of the moments: its square is a float


LIMITS = Limits()


_rehearsal: ContextVar[list[PrivateModel] | None] = ContextVar("rehearsal", default=None)
"""This list collects fits on rows of zeros, without a charge, while a search checks its cost."""


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateModel(base.BaseEstimator):
    """Represent a model whose `fit` is one charged release.

    Args:
        budget: the privacy budget of `fit`: a curve such as ``ny.gdp(1)``, ``ny.zcdp``, or
            ``ny.approximate``.
        neighboring: "replace-one" (the number of rows is public) or "add-remove".
        ledger: a `Ledger`, or its path. Without a ledger nothing is charged, and the receipt says
            so. `clone` and searches copy arguments, so give them a path.
        dataset: "name@version" in the ledger, registered with one row per unit.
        account: the allocation of the dataset's account that pays.
        confidence: confidence of each entry of ``interval_`` separately, in (0, 1).

    Attributes:
        receipt_: the release, its guarantee, and its charge.
        mechanism_: the mechanism behind this fit's guarantee.
        tradeoff_: the mechanism's trade-off curve.
        interval_: the lower and upper ends of confidence intervals.
    """

    budget: Budget | None = None
    neighboring: Neighboring = "replace-one"
    ledger: Ledger | str | Path | None = None
    dataset: str | None = None
    account: str | None = None
    confidence: Number = 0.95

    def __sklearn_tags__(self) -> Any:
        """Return tags that allow missing entries, because no content of a row raises an error."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        return tags

    def _check_arguments(self, *names: str) -> None:
        """Refuse an argument that is None, if only the user can choose it."""
        for name in names:
            if getattr(self, name) is None:
                raise ValueError(
                    f"{name} = None: give {name}= to {type(self).__name__}, chosen without the data"
                )

    def _confidence(self) -> Fraction:
        confidence = check.exact("confidence", self.confidence)
        if not 0 < confidence <= 1 - MIN_MISS_PROBABILITY:
            raise ValueError(f"confidence = {self.confidence!r} must be in (0, 1), such as 0.95")
        return confidence

    def _payment(self) -> Payment:
        if _rehearsal.get() is not None:
            return Payment()
        return Payment(ledger=self.ledger, dataset=self.dataset, account=self.account)

    def _rows(self, X: object, *, reset: bool, least: int = 1) -> NDArray[Any]:
        """Return the rows as an array. Check its type and shape, but not its entries.

        Args:
            reset: True for the rows of a fit.
            least: smallest number of rows for a fit, if the number is public.
        """
        array = _array(X, type(self).__name__)
        least = least if reset and self.neighboring == "replace-one" else 0
        blank = np.broadcast_to(0.0, array.shape)
        # scikit-learn's own messages, about the shape alone
        check_array(blank, ensure_min_samples=least, estimator=self, input_name="X")
        validate_data(self, cast(Any, X), skip_check_array=True, reset=reset)
        return array

    def _record_fit(self, estimate: Estimate) -> None:
        self.receipt_, self.mechanism_ = estimate.receipt, estimate.mechanism
        self.tradeoff_ = estimate.tradeoff()
        if (fits := _rehearsal.get()) is not None:
            fits.append(self)

    def _floats(self, X: object) -> Floats:
        check_is_fitted(self)
        return as_floats(self._rows(X, reset=False))


def _array(data: object, name: str) -> NDArray[Any]:
    """Return the data as an array of two dimensions. Refuse types that hold no real numbers."""
    if hasattr(data, "tocsr"):
        raise TypeError(f"{name} has no method for sparse matrices; give X.toarray()")
    frame: Any = data
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        for column, kind in zip(frame.columns, frame.dtypes, strict=True):
            if not _is_numeric(kind):
                raise TypeError(
                    f"column {column!r} of X has the type {kind}; it must have real numbers. Leave "
                    "it out, or map it to numbers by a public rule"
                )
        frame = frame.to_numpy()
    if not hasattr(frame, "__array__"):
        raise TypeError(
            f"X is a {type(data).__name__}, and no row may decide its number of columns; give a "
            "NumPy array of shape (n, d), or a data frame"
        )
    array = np.asarray(frame)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X has the type {array.dtype}")
    if array.dtype.kind not in "fiubO":
        raise TypeError(f"X has the type {array.dtype}; it must have real numbers")
    if array.ndim == 1:
        raise ValueError(
            "X has one dimension. Reshape your data: X.reshape(-1, 1) has one feature, and "
            "X.reshape(1, -1) has one row"
        )
    return array


def _is_numeric(kind: object) -> bool:
    """Return True if a column's type holds real numbers, in pandas or in polars."""
    if hasattr(kind, "is_numeric"):
        return bool(cast(Any, kind).is_numeric()) or str(kind) == "Boolean"
    return getattr(kind, "kind", "O") in "fiub"


def _target(y: object, model: base.BaseEstimator) -> NDArray[Any]:
    """Return the target as an array of one entry per row. Convert a list entry by entry."""
    if y is None:
        raise ValueError(
            f"{type(model).__name__} requires y to be passed, but the target y is None"
        )
    if not hasattr(y, "__array__"):
        return entries_of("y", y)
    array = np.asarray(y)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: y has the type {array.dtype}")
    return column_or_1d(array, warn=True)


def _pair(name: str, bounds: object) -> tuple[Fraction, Fraction]:
    """Return the center and half range of public bounds."""
    if not isinstance(bounds, tuple | list) or len(cast("Sequence[Any]", bounds)) != 2:
        raise TypeError(f"{name} = {bounds!r} must be a pair (low, high)")
    low, high = (check.exact(name, end) for end in cast("Sequence[Any]", bounds))
    if not low < high:
        raise ValueError(f"{name} = {bounds!r} must be a pair (low, high) with low < high")
    return (low + high) / 2, (high - low) / 2


# ---- linear models ----------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(base.RegressorMixin, PrivateModel):
    """Fit least squares from second moments with noise: `ny.estimate.regression`.

    Args:
        radius: radius of the ball around 0, above 0. Longer rows of X are scaled down to it.
        bounds: (low, high): y is clipped to these bounds. Clipping biases the coefficients.
        fit_intercept: if False, the line passes through 0, and y is clipped to [-m, m], with m the
            larger absolute bound; "replace-one" only.

    Attributes:
        coef_, intercept_: coefficients of y on the columns of X.
        interval_: approximate intervals of ``coef_`` for the population. If no y is clipped, they
            cover the coefficients of a linear model with errors of constant variance.
        intercept_interval_: the ends of the interval of ``intercept_``.
    """

    radius: Number | None = None
    bounds: tuple[Number, Number] | None = None
    fit_intercept: bool = True

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Charge, and fit the model by one release.

        Args:
            X: real numbers, one row per record. A row with a nonfinite entry counts as a row of
                zeros.
            y: one real number per row.

        Raises:
            TypeError, ValueError: an argument, a type, or a shape is wrong.
            LedgerError, BudgetRefused: nothing was charged.
        """
        estimate = self._estimate(X, y)
        low, high = (np.asarray(end) for end in estimate.interval(self._confidence()))
        self._set(np.asarray(estimate.value), low, high, 0.0)
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return the prediction for each row. It is NaN if an entry is missing."""
        with np.errstate(all="ignore"):
            return self._floats(X) @ self.coef_ + self.intercept_

    def _estimate(self, X: object, y: object) -> Estimate:
        """Release the second moments, and return the estimate."""
        self._check_arguments("budget", "radius", "bounds")
        self._confidence()
        center, half = _pair("bounds", self.bounds)
        middle = center if self.fit_intercept else Fraction(0)
        target = _target(y, self)
        if target.dtype.kind not in "fiubO":
            raise TypeError(f"y has the type {target.dtype}; it must have real numbers")
        rows = self._rows(X, reset=True)
        estimate = regression(
            rows,
            target,
            radius=cast(Number, self.radius),
            bound=half if self.fit_intercept else max(abs(center + half), abs(center - half)),
            center=middle,
            budget=cast(Budget, self.budget),
            intercept=self.fit_intercept,
            neighboring=self.neighboring,
            **self._payment(),
        )
        self._record_fit(estimate)
        return estimate

    def _set(self, value: Floats, low: Floats, high: Floats, center: float) -> None:
        first = int(self.fit_intercept)
        self.coef_, self.interval_ = value[first:], (low[first:], high[first:])
        self.intercept_ = float(value[0]) + center if first else 0.0
        ends = (float(low[0]) + center, float(high[0]) + center) if first else (0.0, 0.0)
        self.intercept_interval_ = ends


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(LinearRegression):
    """Fit least squares with a penalty ``alpha`` |b|^2, like scikit-learn's `Ridge`.

    Args:
        alpha: from 0 to 1e15, chosen without the data. The intercept has no penalty. The penalty is
            weighed against a sum over the rows, so their number must be public: "replace-one" only.
        radius, bounds, fit_intercept: as for `LinearRegression`.

    Attributes:
        coef_, intercept_: coefficients of y on the columns of X, with the penalty.
        interval_: simultaneous intervals of ``coef_`` for the data, not a population. They cover
            the coefficients with this penalty, computed from the clipped and rounded rows.
        intercept_interval_: the ends of the interval of ``intercept_``.
    """

    alpha: float = field(default=1.0, kw_only=False)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Charge, and fit the model by one release, as in `LinearRegression.fit`."""
        alpha = check.between("alpha", self.alpha, 0, LIMITS.alpha)
        if self.neighboring != "replace-one":
            raise ValueError(
                f"neighboring = {self.neighboring!r}: alpha is weighed against the number of rows, "
                "which is secret then; give neighboring='replace-one', or use LinearRegression"
            )
        self._check_arguments("radius")
        radius = float(radius_of(self.radius))
        # A sum over rows of (x / radius)^2 in units of the grid, like the moments.
        weight = alpha * (RADIUS_UNITS / radius) ** 2
        if weight > LIMITS.penalty_weight:
            raise ValueError(f"alpha = {alpha!r} is too large for radius = {self.radius!r}")
        estimate = self._estimate(X, y)
        noisy = np.array(estimate.receipt["result"]["second_moments"], float)
        penalty = np.full(len(noisy) - 1, weight)
        if self.fit_intercept:
            penalty[0] = 0.0
        noisy[:-1, :-1] += np.diag(penalty)
        sigma, size = cast(RoundedGaussian, estimate.mechanism).sigma, len(noisy) - 1
        fit: Fit = solve(noisy, sigma, float(estimate.receipt["arguments"]["records"]), None)
        half = float(check.exact("bound", estimate.receipt["arguments"]["bound"]))
        scale = np.full(size, half / radius)
        if self.fit_intercept:
            scale[0] = half
        middle, width = data_region(noisy, sigma, float(1 - self._confidence()))
        center = float(check.exact("center", estimate.receipt["arguments"].get("center", 0)))
        ends = (middle - width) * scale, (middle + width) * scale
        self._set(fit.coefficients * scale, *ends, center)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(base.ClassifierMixin, PrivateModel):
    """Fit a logistic regression with a penalty: `ny.estimate.logistic`.

    Args:
        classes: the two labels, the positive one last. A row with another label counts as a row of
            zeros.
        radius: radius of the ball around 0 that each row of X is clipped to, above 0.
        alpha: from 1e-6 to 1e3. The mean loss has the penalty alpha / 2 (a^2 + radius^2 |b|^2), for
            intercept a and coefficients b. A smaller alpha needs more noise.
        fit_intercept: if False, the model has no constant.
        neighboring: only "replace-one", because the number of rows divides the loss.

    Attributes:
        classes_: the two labels.
        coef_, intercept_: arrays of shapes (1, d) and (1,), as in scikit-learn.
        interval_: approximate intervals of ``coef_`` for the population. They cover the
            coefficients of the penalized fit to the distribution of the rows.
    """

    radius: Number | None = None
    classes: Sequence[Any] | None = None
    alpha: float = 0.01
    fit_intercept: bool = True

    def __sklearn_tags__(self) -> Any:
        """Return tags for two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Charge, and fit the model by one release.

        Args:
            X: real numbers, one row per record. A row with a nonfinite entry counts as a row of
                zeros.
            y: one label per row.

        Raises:
            TypeError, ValueError: an argument, a type, or a shape is wrong.
            LedgerError, BudgetRefused: nothing was charged.
        """
        self._check_arguments("budget", "radius", "classes")
        labels = self._labels()
        confidence = self._confidence()
        penalty = check.between(
            "alpha", self.alpha, LOGISTIC_LIMITS.least_penalty, LOGISTIC_LIMITS.largest_penalty
        )
        target = _target(y, self)
        rows = self._rows(X, reset=True)
        estimate = logistic(
            rows,
            target,
            classes=labels.tolist(),
            radius=cast(Number, self.radius),
            penalty=penalty,
            budget=cast(Budget, self.budget),
            intercept=self.fit_intercept,
            sampling=True,
            neighboring=self.neighboring,
            **self._payment(),
        )
        self._record_fit(estimate)
        first = int(self.fit_intercept)
        value = np.asarray(estimate.value)
        self.classes_, self.coef_ = labels, value[None, first:]
        self.intercept_ = value[:first] if first else np.zeros(1)
        low, high = (np.asarray(end) for end in estimate.interval(confidence))
        self.interval_ = low[None, first:], high[None, first:]
        return self

    def _labels(self) -> NDArray[Any]:
        classes = self.classes
        usable = isinstance(classes, tuple | list | np.ndarray) and len(classes) == 2
        labels = np.array(classes if usable else [0, 0])
        usable = usable and labels.shape == (2,) and all(label == label for label in labels)
        if not usable or labels[0] == labels[1] or None in labels.tolist():
            raise ValueError(
                f"classes = {classes!r} must be a list of two different labels of one type, the "
                "positive one last"
            )
        return labels

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the log odds of the second class for each row, or NaN if an entry is missing."""
        with np.errstate(all="ignore"):
            return self._floats(X) @ self.coef_[0] + self.intercept_[0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likelier class of each row, or the first class if an entry is missing."""
        likelier = self.decision_function(X) > 0
        return self.classes_[likelier.astype(int)]

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probabilities of both classes at each row."""
        log_odds = self.decision_function(X)
        with np.errstate(over="ignore"):
            return np.stack([1 / (1 + np.exp(log_odds)), 1 / (1 + np.exp(-log_odds))], axis=1)


# ---- transformers -----------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class StandardScaler(base.OneToOneFeatureMixin, base.TransformerMixin, PrivateModel):
    """Standardize columns by means and variances with noise: `ny.estimate.mean`.

    One release has each column's number of entries, their sum, and their sum of squares. A
    nonfinite entry counts as missing: means and variances use the other entries, as in
    scikit-learn. A declared range much wider than the data costs accuracy.

    Args:
        bounds: (low, high) for all columns, or one pair per column. Entries are clipped to these
            bounds.
        with_mean, with_std: True if `transform` subtracts the mean, or divides by the scale.

    Attributes:
        mean_, var_, scale_: mean, variance, and scale of each column. ``scale_`` is 1 if the
            variance is not above 0.
        interval_: intervals of ``mean_``. Each covers the population mean of a column's clipped
            entries.
    """

    bounds: Sequence[Any] | None = None
    with_mean: bool = True
    with_std: bool = True

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Charge, and release the moments of each column.

        Args:
            X: real numbers, one row per record.
            y: ignored.

        Raises:
            TypeError, ValueError: an argument, a type, or a shape is wrong.
            LedgerError, BudgetRefused: nothing was charged.
        """
        self._check_arguments("budget", "bounds")
        miss = 1 - self._confidence()
        relation_of(Shared(neighboring=self.neighboring))
        rows = self._rows(X, reset=True)
        center, half = self._ranges(rows.shape[1])
        # The squares of the entries add up to at most 1/4 + z^2 + (z^2 - 1/2)^2 <= 3/2 per column.
        radius = Fraction(math.isqrt(6 * rows.shape[1] * 10**12) + 1, 2 * 10**6)
        paid = Shared(neighboring=self.neighboring, **self._payment())
        powers = _Powers(rows, center, half)
        estimate = mean_of_array(powers, False, radius, cast(Budget, self.budget), paid)
        self._record_fit(estimate)
        parts = np.asarray(estimate.value).reshape(3, -1)
        # Share of a column's squared half range. A smaller variance is not used as a scale.
        least_variance_share = 1e-12
        share = np.clip(parts[0] + 0.5, least_variance_share, 1.0)
        first, second = parts[1] / share, parts[2] / share + 0.5
        variance = second - first**2
        self.mean_ = np.clip(first, -1, 1) * half + center
        self.var_ = np.clip(variance, 0.0, 1.0) * half**2
        usable = variance > least_variance_share
        self.scale_ = np.where(usable, np.sqrt(np.where(usable, self.var_, 1.0)), 1.0)
        # Two intervals for a quotient: each misses with half the chance.
        low, high = (np.asarray(e).reshape(3, -1) for e in estimate.interval(1 - miss / 2))
        counts = np.clip(np.stack([low[0], high[0]]) + 0.5, least_variance_share, 1.0)
        ends = np.stack([end / count for end in (low[1], high[1]) for count in counts])
        self.interval_ = (
            np.clip(ends.min(axis=0), -1, 1) * half + center,
            np.clip(ends.max(axis=0), -1, 1) * half + center,
        )
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the rows, centered and scaled. A missing entry gives NaN."""
        rows = self._floats(X)
        with np.errstate(all="ignore"):
            rows = rows - self.mean_ if self.with_mean else rows
            return rows / self.scale_ if self.with_std else rows

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Return rows in their original units, as before `transform`."""
        rows = self._floats(X)
        with np.errstate(all="ignore"):
            rows = rows * self.scale_ if self.with_std else rows
            return rows + self.mean_ if self.with_mean else rows

    def _ranges(self, size: int) -> tuple[Floats, Floats]:
        """Return the centers and the half ranges of the columns."""
        try:
            bounds = list(cast("Sequence[Any]", self.bounds))
        except TypeError as error:
            raise TypeError(
                f"bounds = {self.bounds!r} must be a pair, or one per column"
            ) from error
        pairs = [tuple(bounds)] * size if bounds and np.ndim(bounds[0]) == 0 else bounds
        if len(pairs) != size:
            raise ValueError(
                f"bounds has {len(pairs)} pairs, and X has {size} columns; give one pair for all "
                "columns, or one for each"
            )
        ends = [_pair("bounds", pair) for pair in pairs]
        return np.array([float(c) for c, _ in ends]), np.array([float(h) for _, h in ends])


@dataclass(frozen=True, eq=False)
class _Powers:
    """Represent three numbers per entry, p - 1/2, p z, and p (z^2 - 1/2), computed when read.

    z in [-1, 1] is the clipped entry minus ``center``, divided by ``half``. p is 1 if the entry is
    finite, else 0.
    """

    rows: NDArray[Any]
    center: Floats
    half: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of rows, and of numbers per row."""
        return len(self.rows), 3 * self.rows.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, piece: slice) -> Floats:
        rows = as_floats(self.rows[piece])
        present = np.isfinite(rows)
        with np.errstate(all="ignore"):
            z = np.clip(np.where(present, (rows - self.center) / self.half, 0.0), -1.0, 1.0)
        return np.hstack([present - 0.5, z, np.where(present, z * z - 0.5, 0.0)])


@dataclass(kw_only=True, eq=False, repr=False)
class PCA(base.ClassNamePrefixFeaturesOutMixin, base.TransformerMixin, PrivateModel):
    """Find principal components of a covariance with noise: `ny.estimate.covariance`.

    Args:
        n_components: number of components, from 1 to the number of columns; by default all.
        radius: radius of the ball around 0 that each row is clipped to, above 0.

    Attributes:
        components_: one unit vector per row, by decreasing variance. If two variances differ by
            less than the noise, their components are an arbitrary basis of the plane.
        explained_variance_, explained_variance_ratio_: variance of each component, and its share.
            If noise made a variance negative, it is 0.
        mean_, covariance_: mean and covariance, with noise.
        interval_: intervals of the entries of ``covariance_``, for the population.
    """

    n_components: int | None = field(default=None, kw_only=False)
    radius: Number | None = None

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Charge, and release the covariance and the mean.

        Args:
            X: real numbers, one row per record. A row with a nonfinite entry counts as zeros.
            y: ignored.

        Raises:
            TypeError, ValueError: an argument, a type, or a shape is wrong.
            LedgerError, BudgetRefused: nothing was charged.
        """
        self._check_arguments("budget", "radius")
        confidence = self._confidence()
        rows = self._rows(X, reset=True, least=2)
        size = rows.shape[1]
        components = (
            size
            if self.n_components is None
            else check.integer("n_components", self.n_components, 1)
        )
        if components > size:
            raise ValueError(
                f"n_components = {components}: X has {size} columns; give at most {size}"
            )
        estimate = covariance(
            rows,
            radius=cast(Number, self.radius),
            budget=cast(Budget, self.budget),
            neighboring=self.neighboring,
            **self._payment(),
        )
        self._record_fit(estimate)
        result, public = estimate.receipt["result"], estimate.receipt["arguments"]
        count = max(float(result.get("records", public.get("records"))), 1.0)
        unit = float(check.exact("radius", self.radius)) / public["grid"]
        self.mean_ = np.array(result["total"], float) * (unit / count)
        self.covariance_ = np.asarray(estimate.value)
        low, high = (np.asarray(end) for end in estimate.interval(confidence))
        self.interval_ = low, high
        variance, basis = np.linalg.eigh(self.covariance_)
        variance, vectors = np.maximum(variance[::-1], 0.0), basis[:, ::-1].T
        # The largest entry of each component is positive.
        largest = vectors[np.arange(size), np.argmax(np.abs(vectors), axis=1)]
        vectors = vectors * np.where(largest < 0, -1.0, 1.0)[:, None]
        total = float(variance.sum()) or 1.0
        self.components_, self.explained_variance_ = vectors[:components], variance[:components]
        self.explained_variance_ratio_ = variance[:components] / total
        self.n_components_ = components
        return self

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def transform(self, X: ArrayLike) -> Floats:
        """Return the coordinates of the rows along the components."""
        with np.errstate(all="ignore"):
            return (self._floats(X) - self.mean_) @ self.components_.T

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Return the rows with these coordinates along the components."""
        check_is_fitted(self)
        return as_floats(_array(X, "PCA")) @ self.components_ + self.mean_


# ---- searches ---------------------------------------------------------------------------------


class GridSearchCV(model_selection.GridSearchCV):
    """Search a grid, after checking that the ledger would grant all fits.

    Each fit charges. Before the first fit, the sum of all charges is compared with each account's
    balance. A fit of each candidate on rows of zeros, without a charge, gives the cost of its fits.
    With scikit-learn's own `GridSearchCV`, the refusal comes only at the fit that overspends.

    Folds are `KFold` by default, also for classifiers. If one row changes, a splitter that reads
    labels may move many rows to another fold, and no fit's guarantee covers this.

    The scores are exact functions of private rows, and no charge covers them. So show the scores
    and the best parameters only to people who may see the rows. To publish a choice, use
    `ny.select_best`, or score on public rows.
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Check all charges, and fit as scikit-learn does.

        Raises:
            ValueError: the folds depend on more than the public number of rows.
            BudgetRefused: the fits cost more than the balance; nothing was charged.
        """
        splitter = self._splitter()
        candidates = list(model_selection.ParameterGrid(self.param_grid))
        splits = splitter.get_n_splits(X)
        fits = len(candidates) * splits + bool(self.refit)
        for payer, price in self._prices(X, y, candidates, splits):
            try:
                payer.check(*price)
            except BudgetRefused as error:
                error.add_note(
                    f"The search has {fits} fits, which charge {price[0]} in all. Make the grid "
                    "smaller, lower the number of folds, or give each fit less; ny.select_best "
                    "pays for the best of many fits and not for all."
                )
                raise
        warnings.warn(
            "The scores of this search read private rows without noise or charge. Do not publish "
            "best_params_ or cv_results_; see ny.select_best",
            UserWarning,
            stacklevel=2,
        )
        given, self.cv = self.cv, splitter
        try:
            return super().fit(X, y, **params)
        finally:
            self.cv = given

    def _splitter(self) -> Any:
        """Return a splitter with folds that depend only on the number of rows."""
        if self.cv is None or isinstance(self.cv, int):
            return model_selection.KFold(5 if self.cv is None else self.cv)
        if isinstance(self.cv, SPLITTERS):
            return self.cv
        names = ", ".join(kind.__name__ for kind in SPLITTERS)
        raise ValueError(
            f"cv = {self.cv!r} may split by labels or groups: one row would move others to another "
            f"fold, and no fit covers that. Give a number of folds, or one of {names}"
        )

    def _prices(
        self, X: Any, y: Any, candidates: Iterable[Mapping[str, Any]], splits: int
    ) -> list[tuple[Payer, tuple[Fraction, Fraction]]]:
        """Return each account that pays, with the sums of charges and deltas of all fits.

        A fit on rows of zeros has the same mechanism as the fit on the data, and costs nothing.
        """
        rows, target = _zeros(X), None if y is None else np.arange(len(y)) % 2
        payers: dict[tuple[str, str, str], Payer] = {}
        totals: dict[tuple[str, str, str], list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 4)
        for candidate in candidates:
            fits: list[PrivateModel] = []
            started = _rehearsal.set(fits)
            try:
                base.clone(self.estimator).set_params(**candidate).fit(rows, target)
            finally:
                _rehearsal.reset(started)
            prices: dict[tuple[str, str, str], list[Fraction]] = defaultdict(
                lambda: [Fraction(0)] * 2
            )
            for fit in fits:
                if fit.neighboring != "replace-one":
                    raise ValueError(
                        f"neighboring = {fit.neighboring!r}: the folds depend on the number of "
                        "rows, which is secret then; give neighboring='replace-one'"
                    )
                if fit.ledger is None:
                    continue
                book = opened(fit.ledger)
                Payer(book, fit.dataset or "", "person", fit.neighboring, 1).register()
                account = book.account(fit.dataset or "", fit.account or "")
                key = repr(book), account.dataset, account.to
                payers[key] = Payer.of(book, account)
                more = charge(fit.mechanism_, account.currency)
                prices[key] = [a + b for a, b in zip(prices[key], more, strict=True)]
            for key, (epsilon, delta) in prices.items():
                sums = totals[key]
                # The fit on all rows may use any candidate, so count the most expensive.
                totals[key] = [
                    sums[0] + splits * epsilon,
                    sums[1] + splits * delta,
                    max(sums[2], epsilon),
                    max(sums[3], delta),
                ]
        again = bool(self.refit)
        return [(payers[k], (a + again * c, b + again * d)) for k, (a, b, c, d) in totals.items()]


def _zeros(X: Any) -> Any:
    """Return rows of zeros with the same shape and column names."""
    zeros = np.zeros(np.shape(X))
    if hasattr(X, "iloc"):
        return type(X)(zeros, columns=X.columns)
    return zeros
