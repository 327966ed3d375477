"""Estimate survival curves from noisy counts of events and censorings at declared times [SV-1]."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number, fixed
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import least_noise, normal_half_width
from neyman.analysis.estimators.shared_arguments import Shared, relation_of, shares_arguments
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import largest_rate, least_rate
from neyman.numerics.raw_values import array_of, as_floats, one_per_record


@dataclass(frozen=True)
class Limits:
    """Limit the number of times, and hold how much noise hides a number at risk."""

    times: int = 1000


LIMITS = Limits()

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


class SurvivalCurve(NamedTuple):
    """Hold the share without the event after each time, and a confidence band for all times.

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

    One release counts the events and the censorings in each interval between two times, with
    rounded Gaussian noise, drawn exactly. Each record is in one count. Replacing it changes two
    counts by 1, and adding or removing it changes one. The value after time j is the product over i
    <= j of (1 - w_i / n_i)^{d_i / w_i}. Here n_i records are at risk at the start of interval i,
    w_i of them leave in it, and d_i of these have the event. The formula is exact if hazards are
    constant in each interval. Without censoring it is Kaplan and Meier's factor.

    Args:
        durations: one number per record: the time until the event or the censoring. A record
            without a finite duration of at least 0, or without an event of 0 or 1, is ignored.
        events: one number per record: 1 (or True) for an event, 0 for a censoring.
        times: rising positive numbers, at most 1000, chosen without the data. Interval i ends with
            time i. An event at time i counts in interval i, and a censoring at time i in the next
            interval.

    Returns:
        An `Estimate` with one share per time. The interval is a band that covers all times
        together. The band about the data, ``interval(about="data")``, is proven to cover the
        Kaplan-Meier curve of the records. The band about the population is approximate. It combines
        binomial limits for an effective number of records with noise to first order. It assumes
        that censoring does not depend on the event, and that hazards change little in an interval.
        Both bands are wide if few records are at risk. ``standard_error`` includes sampling and
        noise. ``noise_error`` includes noise alone. Both are right to first order, and too small if
        there are few events.

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
    counts = _SurvivalCounts.of(cells, noise.sigma, len(length) if known else None)
    value, errors = counts.value, counts.errors()

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        low, high = counts.band_of_data(miss) if about == "data" else counts.band(miss)
        return fixed(low), fixed(high)

    return Estimate(
        "survival",
        fixed(value),
        fixed(errors[0]),
        fixed(errors[1]),
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
    """Return a survival curve from noisy counts, such as the counts in a plan's table.

    It reads only the noisy counts, so it costs no privacy.

    Args:
        events: the noisy number of events in each interval.
        censored: the noisy number of censorings in each interval, before its end.
        later: the noisy number of records without the event at the end of the last interval.
        sigma: standard deviation of the noise of each number, at least 0. The noise is Gaussian,
            also rounded or discrete. Bands do not hold for longer tails, such as Laplace noise.
        confidence: confidence of the band for all times together, in (0, 1).
        about: "population", which is approximate, or "data", which is proven.

    Raises:
        ValueError: the counts have different lengths, or an argument is out of its range.

    Examples:
        >>> import neyman as ny
        >>> curve = ny.estimate.survival_curve([50, 40], [5, 3], 902, sigma=2, about="data")
        >>> bool((curve.lower < curve.value).all() and (curve.value < curve.upper).all())
        True
    """
    given = {"events": events, "censored": censored}
    some, rest = (array_of(name, v, "iuf", 1).astype(float) for name, v in given.items())
    end = check.between("later", later, -1e100, 1e100)
    if not np.isfinite([*some.ravel(), *rest.ravel()]).all():
        raise ValueError("events and censored must be finite numbers")
    if some.shape != rest.shape or not len(some):
        raise ValueError(
            f"events has the shape {some.shape} and censored {rest.shape}; give one number each "
            "per interval"
        )
    chance = check.between(
        "confidence", float(check.exact("confidence", confidence)), 1e-9, 1 - 1e-9
    )
    check.one_of("about", about, ("population", "data"))
    cells = np.append(np.stack([some, rest], axis=1).ravel(), [end, 0.0])
    counts = _SurvivalCounts.of(cells, check.between("sigma", sigma, 0, 1e100), None)
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
    """Return the counts: events and censorings, alternating by interval, then two further counts.

    The last two are records without an event by the last time, and ignored records.
    """
    usable = (length >= 0) & np.isfinite(length) & ((event == 0) | (event == 1))
    at, last = np.where(usable, length, 0.0), 2 * len(ends)
    # A record censored at a time was free of the event until then, so the next interval counts it.
    place = np.where(event == 1, np.searchsorted(ends, at), np.searchsorted(ends, at, "right"))
    cell = np.where(place < len(ends), 2 * place + (event != 1), last)
    return np.bincount(np.where(usable, cell, last + 1), minlength=last + 2).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _SurvivalCounts:
    """Hold noisy counts, fitted to the number of records if it is public.

    Args:
        events, censored, risk: the noisy numbers of events, of censorings, and at risk, per
            interval.
        sigma: standard deviation of the noise of a count in `_cells`, before rounding.
        at_risk: 0-1 matrix of shape (counts, intervals). The fitted counts times it are ``risk``.
        project: matrix that maps the noise of the counts to the noise of the fitted counts.
    """

    events: Floats
    censored: Floats
    risk: Floats
    sigma: float
    at_risk: Floats
    project: Floats

    @staticmethod
    def of(cells: NDArray[Any], sigma: float, records: int | None) -> _SurvivalCounts:
        """Return the counts, from noisy ``cells``. ``records`` is None if their number is secret.

        If it is public, one number is added to all counts so that they sum to it. No linear fit has
        less noise in the numbers at risk [SV-2].
        """
        size, intervals = len(cells), (len(cells) - 2) // 2
        project = np.eye(size) - (1 / size if records is not None else 0.0)
        fitted = np.asarray(cells, float)
        if records is not None:
            fitted = fitted + (records - fitted.sum()) / size
        # At risk in interval i: all cells from 2 i on, except the missing records.
        at_risk = (np.arange(size)[:, None] >= 2 * np.arange(intervals)).astype(float)
        at_risk[-1] = 0.0
        return _SurvivalCounts(
            fitted[:-2:2], fitted[1:-2:2], fitted @ at_risk, sigma, at_risk, project
        )

    @property
    def value(self) -> Floats:
        """Return the curve: one share per time, not increasing, in [0, 1]."""
        some, gone, risk = self._positive()
        left = np.maximum(1 - gone / risk, 0.5 / risk if self.sigma else 0.0)
        with np.errstate(all="ignore"):
            free = np.where(some > 0, left ** (some / np.where(gone > 0, gone, 1.0)), 1.0)
        return np.cumprod(np.clip(free, 0.0, 1.0), dtype=float)

    def _positive(self) -> tuple[Floats, Floats, Floats]:
        """Return events, events plus censorings, and numbers at risk, clipped to >= 0, 0, and 1."""
        some, rest = np.clip(self.events, 0.0, None), np.clip(self.censored, 0.0, None)
        return some, some + rest, np.maximum(self.risk, np.maximum(some + rest, 1.0))

    def _deviation_at_risk(self) -> Floats:
        return self.sigma * np.sqrt(((self.project @ self.at_risk) ** 2).sum(axis=0))

    def _hidden(self) -> NDArray[np.bool_]:
        """Return True from the first time on at which noise may hide all records at risk."""
        # Standard deviations of noise that hide a number at risk.
        unclear = self.risk < 4.0 * self._deviation_at_risk() + 1
        return np.logical_or.accumulate(unclear)

    def errors(self) -> tuple[Floats, Floats]:
        """Return two arrays of standard errors of the curve: with and without sampling [SV-2]."""
        noise, sampling = self._variances()
        with np.errstate(all="ignore"):
            both = self.value * np.sqrt(noise + sampling), self.value * np.sqrt(noise)
        hidden = self._hidden()
        return np.where(hidden, math.inf, both[0]), np.where(hidden, math.inf, both[1])

    def _variances(self) -> tuple[Floats, Floats]:
        """Return two variances of log value: from noise to first order, and from sampling [SV-2].

        For d events, c censorings, w = d + c, and n at risk, the factor g = (1 - w / n)^{d / w} has
        log g = (d / w) log((n - w) / n). With A = log((n - w) / n) / w^2 and B = d / (w (n - w)),
        its derivatives are c A - B in d, -d A - B in c, and d / (n (n - w)) in n.
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
        """Approximate a band about the population's curve [SV-2].

        Each time has an equal part of ``miss``, the probability of a miss. Half of it is for noise
        in the log of the value, to first order. The other half is for a binomial share with the
        curve's sampling variance. Its number of trials is between the numbers at risk at the
        interval's end and at time 0.
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
                end = (least_rate if side < 0 else largest_rate)(good, good + bad, share / 2)
            ends.append(np.nan_to_num(end, nan=0.0 if side < 0 else 1.0))
        hidden = self._hidden()
        return _monotone_ends(np.where(hidden, 0.0, ends[0]), np.where(hidden, 1.0, ends[1]))

    def band_of_data(self, miss: float) -> tuple[Floats, Floats]:
        """Return a proven band about the records' own curve [SV-1].

        In each interval, the number of events, of censorings, and at risk each have an equal part
        of ``miss``, the probability of a miss.
        """
        share = miss / (3 * len(self.events))
        # Rounding moves each cell by at most 1/2, and a sum by at most half of its weights.
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
        # The curve is between two cases: all censorings before the events, or all after them.
        first = np.maximum(least - most_censored, 0.0)
        with np.errstate(all="ignore"):
            # The factors cover the roundings of a quotient and of a product.
            lower = np.where(first > most_events, (first - most_events) / first, 0.0)
            upper = np.where(most > least_events, (most - least_events) / most, 0.0)
            # slack: counted
            lower, upper = lower * (1 - 8 * UNIT), upper * (1 + 8 * UNIT)
        upper = np.where(least_events > 0, upper, 1.0)
        return _monotone_ends(np.cumprod(lower, dtype=float), np.cumprod(upper, dtype=float))


def _monotone_ends(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return both ends of a band, clipped to [0, 1] and tightened to fall, as the curve does."""
    lower: Floats = np.maximum.accumulate(np.clip(low, 0.0, 1.0)[::-1])[::-1]
    upper: Floats = np.minimum.accumulate(np.clip(high, 0.0, 1.0))
    return lower, upper
