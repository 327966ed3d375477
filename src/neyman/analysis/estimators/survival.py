"""Survival curves from noisy counts of events and censorings at declared times [SV-1]."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number, shaped
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import least_noise, normal_half_width
from neyman.analysis.estimators.shared_arguments import Shared, relation_of, shares_arguments
from neyman.noise import Bits, rounded_gaussian
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, one_per_record


@dataclass(frozen=True)
class Limits:
    """The times of a curve, and the noise in a number at risk."""

    times: int = 1000
    at_risk_deviations: float = 4.0  # of noise, below which a number at risk says nothing


LIMITS = Limits()

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


class SurvivalCurve(NamedTuple):
    """Hold the shares that are free of the event after each time, and a band about all of them.

    Examples:
        >>> import neyman as ny
        >>> curve = ny.estimate.survival_curve([50, 40], [5, 3], 902, sigma=2)
        >>> type(curve).__name__, curve.value.round(3).tolist()
        ('SurvivalCurve', [0.95, 0.91])
    """

    value: Floats
    lower: Floats
    upper: Floats


@shares_arguments
def survival(
    durations: object,
    events: object,
    *,
    times: Iterable[float],
    budget: Budget,
    **paid: Unpack[Shared],
) -> Estimate:
    """Estimate a survival curve at declared times, as Kaplan and Meier do.

    One release counts the records that have the event, and those that are censored, in each
    interval between two times, with rounded Gaussian noise, drawn exactly. A record is in one cell:
    replacing it moves two cells by 1, and adding or removing it moves one. The value after time j
    is the product over i <= j of (1 - w_i / n_i)^{d_i / w_i}, with d_i events among the w_i records
    that leave in interval i, and n_i at risk at its start: exact for hazards that are constant in
    an interval, and Kaplan and Meier's factor where no one is censored.

    Args:
        durations: one number per record: the time until the event or the censoring. A record
            without a finite duration from 0 on, or without an event of 0 or 1, takes no part.
        events: one per record: 1 (or True) for an event, 0 for a censoring.
        times: rising positive numbers, at most 1000, chosen without the data. Interval i ends with
            time i; an event at time i counts in it, and a censoring at time i in the next one.

    Returns:
        `Estimate` with one share per time. Its interval is a band: it covers all times together.
        About the data, ``interval(about="data")``, it is proven: it covers the Kaplan-Meier curve
        of the records. About the population it is approximate: limits of a binomial share for the
        number of records that tell as much, and noise to first order, for censoring that does not
        depend on the event, and hazards that change little in an interval. Both are wide where few
        are at risk. ``standard_error`` is that of the population, and ``noise_error`` has the noise
        alone; both are to first order, and too small where there are few events.

    Examples:
        >>> import numpy as np
        >>> import neyman as ny
        >>> months = np.arange(10_000) % 40 + 1
        >>> curve = ny.estimate.survival(months, months <= 30, times=[10, 20, 30], budget=ny.gdp(1))
        >>> curve.value.round(2).tolist()
        [0.75, 0.5, 0.25]

    Source: Kaplan and Meier 1958; Gondara and Wang 2020 (noise in the counts); [SV-1], [SV-2].
    """
    relation = relation_of(paid)
    length = one_per_record("durations", durations, relation=relation)
    event = one_per_record("events", events, relation=relation)
    if len(length) != len(event):
        raise ValueError(
            f"events has {len(event)} records and durations has {len(length)}; give one per record"
        )
    ends = _times(times)
    known = relation == "replace-one"
    noise = least_noise(budget, 2 if known else 1)
    arguments: dict[str, Any] = {"times": ends.tolist()} | (
        {"records": len(length)} if known else {}
    )

    def noisy(bits: Bits) -> Lanes:
        cells = _cells(as_floats(length), as_floats(event), ends)
        return cells + rounded_gaussian(noise.sigma_squared, len(cells), bits)

    def published(cells: Lanes) -> dict[str, object]:
        return {
            "events": cells[:-2:2].tolist(),
            "censored": cells[1:-2:2].tolist(),
            "later": int(cells[-2]),
            "missing": int(cells[-1]),
        }

    statistic = Statistic("survival", arguments, noise, noisy, published, "survival")
    cells, receipt = statistic.release(**paid)
    counts = _Counts.of(cells, noise.sigma, len(length) if known else None)
    value, errors = counts.value, counts.errors()

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        low, high = counts.band_of_data(miss) if about == "data" else counts.band(miss)
        return shaped(low, flat=False), shaped(high, flat=False)

    return Estimate(
        "survival",
        shaped(value, flat=False),
        shaped(errors[0], flat=False),
        shaped(errors[1], flat=False),
        receipt,
        noise,
        "The survival curve at all declared times together: of the population, approximate; and "
        "the Kaplan-Meier curve of the records, proven.",
        limits,
    )


def survival_curve(
    events: ArrayLike,
    censored: ArrayLike,
    later: float,
    *,
    sigma: float,
    confidence: float | str = 0.95,
    about: About = "population",
) -> SurvivalCurve:
    """Return a survival curve of noisy counts, such as those of a plan's table.

    It reads nothing else, so it costs nothing.

    Args:
        events: with noise, the number that has the event in each interval.
        censored: with noise, the number that is censored in each, before its end.
        later: with noise, the number that is free of the event at the end of the last interval.
        sigma: standard deviation of the noise of each of them, at least 0. The noise is Gaussian,
            also rounded or discrete. Bands do not hold for noise with longer tails, as Laplace's.
        confidence: of the band, in (0, 1), for all times together.
        about: "population", approximate, or "data", which is proven.

    Raises:
        ValueError: the counts have different lengths, or an argument is out of its range.

    Examples:
        >>> import neyman as ny
        >>> curve = ny.estimate.survival_curve([50, 40], [5, 3], 902, sigma=2, about="data")
        >>> bool((curve.lower < curve.value).all() and (curve.value < curve.upper).all())
        True
    """
    some, rest = (np.atleast_1d(np.asarray(v, float)) for v in (events, censored))
    end = check.finite("later", later)
    if not np.isfinite([*some.ravel(), *rest.ravel()]).all():
        raise ValueError("events and censored must be finite numbers")
    if some.shape != rest.shape or some.ndim != 1 or not len(some):
        raise ValueError(
            f"events has the shape {some.shape} and censored {rest.shape}; give one number each "
            "per interval"
        )
    chance = check.between(
        "confidence", float(check.exact("confidence", confidence)), 1e-9, 1 - 1e-9
    )
    if about not in ("population", "data"):
        raise ValueError(f"about = {about!r} must be 'population' or 'data'")
    cells = np.append(np.stack([some, rest], axis=1).ravel(), [end, 0.0])
    counts = _Counts.of(cells, check.non_negative("sigma", sigma), None)
    ends = counts.band_of_data(1 - chance) if about == "data" else counts.band(1 - chance)
    return SurvivalCurve(counts.value, *ends)


def _times(times: Iterable[float]) -> Floats:
    ends = np.array([check.finite("times", x) for x in check.several("times", times, "[1, 2, 5]")])
    if not 1 <= len(ends) <= LIMITS.times:
        raise ValueError(f"times has {len(ends)} numbers; it must have from 1 to {LIMITS.times}")
    if ends[0] <= 0 or not (np.diff(ends) > 0).all():
        raise ValueError("times must be positive and rise")
    return ends


def _cells(length: Floats, event: Floats, ends: Floats) -> Lanes:
    """Return the counts of events and censorings by turns, of those later, and of the missing."""
    usable = (length >= 0) & np.isfinite(length) & ((event == 0) | (event == 1))
    at, last = np.where(usable, length, 0.0), 2 * len(ends)
    # Who is censored at a time was free of the event until then: they count in the next interval.
    place = np.where(event == 1, np.searchsorted(ends, at), np.searchsorted(ends, at, "right"))
    cell = np.where(place < len(ends), 2 * place + (event != 1), last)
    return np.bincount(np.where(usable, cell, last + 1), minlength=last + 2).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Counts:
    """Noisy counts, fitted to a public number of records.

    Args:
        raw: the counts of events, of censorings, and of those at risk at each start.
        sigma: standard deviation of the noise of a cell, before it was rounded.
        at_risk: cells x intervals: those at risk are ``cells @ at_risk``, and a constant.
    """

    events: Floats
    censored: Floats
    risk: Floats
    sigma: float
    at_risk: Floats
    project: Floats

    @staticmethod
    def of(cells: NDArray[Any], sigma: float, records: int | None) -> _Counts:
        """Return the counts; ``records`` is None where their number is secret.

        With a public number the cells are moved together so that they add up to it: the noise of
        those at risk is then least, of all linear fits [SV-2].
        """
        size, intervals = len(cells), (len(cells) - 2) // 2
        project = np.eye(size) - (1 / size if records is not None else 0.0)
        fitted = np.asarray(cells, float)
        if records is not None:
            fitted = fitted + (records - fitted.sum()) / size
        # At risk in interval i: all cells from 2 i on but the missing.
        at_risk = (np.arange(size)[:, None] >= 2 * np.arange(intervals)).astype(float)
        at_risk[-1] = 0.0
        return _Counts(fitted[:-2:2], fitted[1:-2:2], fitted @ at_risk, sigma, at_risk, project)

    @property
    def value(self) -> Floats:
        """The curve: falling, in [0, 1]."""
        some, gone, risk = self._positive()
        left = np.maximum(1 - gone / risk, 0.5 / risk if self.sigma else 0.0)
        with np.errstate(all="ignore"):
            free = np.where(some > 0, left ** (some / np.where(gone > 0, gone, 1.0)), 1.0)
        return np.cumprod(np.clip(free, 0.0, 1.0), dtype=float)

    def _positive(self) -> tuple[Floats, Floats, Floats]:
        """Return events, events and censorings, and those at risk: not below 0, 0, and 1."""
        some, rest = np.clip(self.events, 0.0, None), np.clip(self.censored, 0.0, None)
        return some, some + rest, np.maximum(self.risk, np.maximum(some + rest, 1.0))

    def _deviation_at_risk(self) -> Floats:
        return self.sigma * np.sqrt(((self.project @ self.at_risk) ** 2).sum(axis=0))

    def errors(self) -> tuple[Floats, Floats]:
        """Return the standard errors of the curve, with sampling and without [SV-2]."""
        noise, sampling = self._variances()
        with np.errstate(all="ignore"):
            both = self.value * np.sqrt(noise + sampling), self.value * np.sqrt(noise)
        unclear = self.risk < LIMITS.at_risk_deviations * self._deviation_at_risk() + 1
        hidden = np.logical_or.accumulate(unclear)
        return np.where(hidden, math.inf, both[0]), np.where(hidden, math.inf, both[1])

    def _variances(self) -> tuple[Floats, Floats]:
        """Return those of log value: of the noise to first order, and of sampling [SV-2].

        Of g = (1 - w / n)^{d / w}, w = d + c, the slopes of log g = (d / w) log((n - w) / n) are
        (c / w^2) log((n - w) / n) - d / (w (n - w)) in d, the same with -d for c in the first term
        in c, and d / (n (n - w)) in n.
        """
        some, gone, risk = self._positive()
        left, leavers = np.maximum(risk - gone, 0.5), np.maximum(gone, 0.5)
        rate, share = np.log(left / risk) / leavers, some / leavers
        by_event = (1 - share) * rate - share / left
        by_other = -share * rate - share / left
        slope, columns = self.at_risk * (some / (risk * left)), np.arange(len(some))
        slope[2 * columns, columns] += by_event
        slope[2 * columns + 1, columns] += by_other
        moved = self.project @ np.cumsum(slope, axis=1)
        noise = self.sigma**2 + 1 / 12 if self.sigma else 0.0
        mean = some * by_event + (gone - some) * by_other
        squares = some * by_event**2 + (gone - some) * by_other**2
        return noise * (moved**2).sum(axis=0), np.cumsum(np.maximum(squares - mean**2 / risk, 0.0))

    def band(self, miss: float) -> tuple[Floats, Floats]:
        """Return a band about the population, approximate [SV-2]: each time has a share.

        Half of a share is for the noise, which moves the logarithm of the value to first order. The
        other half is for a binomial share of as many records as have the variance of the curve:
        never fewer than stay to the end of an interval, and never more than there are.
        """
        noise, sampling = self._variances()
        share = miss / (2 * len(self.value))
        width = normal_half_width(1.0, share) * np.sqrt(noise)
        _, gone, risk = self._positive()
        stay, everyone = np.maximum(risk - gone, 1.0), np.maximum(risk[0], 1.0)
        ends: list[Floats] = []
        for side in (-1, 1):
            with np.errstate(all="ignore"):
                value = np.clip(self.value * np.exp(side * width), 0.0, 1.0)
                records = (1 - value) / (value * sampling)
            records = np.clip(np.nan_to_num(records, nan=everyone), stay, everyone)
            good, bad = records * value, records * (1 - value)
            with np.errstate(all="ignore"):
                if side < 0:
                    end = np.where(good > 0, betaincinv(good, bad + 1, share / 2), 0.0)
                else:
                    end = np.where(bad > 0, betaincinv(good + 1, bad, 1 - share / 2), 1.0)
            ends.append(np.nan_to_num(end, nan=0.0 if side < 0 else 1.0))
        unclear = self.risk < LIMITS.at_risk_deviations * self._deviation_at_risk() + 1
        hidden = np.logical_or.accumulate(unclear)
        return _monotone_ends(np.where(hidden, 0.0, ends[0]), np.where(hidden, 1.0, ends[1]))

    def band_of_data(self, miss: float) -> tuple[Floats, Floats]:
        """Return a band about the records' own curve, proven [SV-1].

        Of each interval the events, the censorings, and those at risk have a share of the chance.
        """
        share = miss / (3 * len(self.events))
        # Rounding moves each cell by at most half, and so a sum of cells by half of its weights.
        moved = self.project @ self.at_risk
        rounding = 0.5 * np.abs(moved).sum(axis=0) if self.sigma else 0.0
        of_risk = normal_half_width(1.0, share) * self._deviation_at_risk() + rounding
        one = math.sqrt(float((self.project[0] ** 2).sum()))
        of_cell = normal_half_width(self.sigma * one, share)
        of_cell += 0.5 * float(np.abs(self.project[0]).sum()) if self.sigma else 0.0
        most_events = np.maximum(np.floor(self.events + of_cell), 0.0)
        least_events = np.maximum(np.ceil(self.events - of_cell), 0.0)
        most_censored = np.maximum(np.floor(self.censored + of_cell), 0.0)
        most, least = np.maximum(self.risk + of_risk, 0.0), np.maximum(self.risk - of_risk, 0.0)
        # All censorings before the events, or after them: the records' own curve is in between.
        first = np.maximum(least - most_censored, 0.0)
        with np.errstate(all="ignore"):
            lower = np.where(first > most_events, 1 - most_events / first, 0.0)
            upper = np.where(most > least_events, 1 - least_events / most, 0.0)
        upper = np.where(least_events > 0, upper, 1.0)
        return _monotone_ends(np.cumprod(lower, dtype=float), np.cumprod(upper, dtype=float))


def _monotone_ends(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the ends in [0, 1], falling, as the curve does."""
    lower: Floats = np.maximum.accumulate(np.clip(low, 0.0, 1.0)[::-1])[::-1]
    upper: Floats = np.minimum.accumulate(np.clip(high, 0.0, 1.0))
    return lower, upper
