"""Compute the local day and hour of timestamps, in the plan's zone if they have a time zone.

A timestamp is the integer number of its microseconds since 1970, rounded down. Days and hours
follow from this number by the same arithmetic on every engine. No engine's calendar or time zones
matter. A zone is a finite list of offsets from UTC, from Python's ``zoneinfo``, up to the year
2128. Later times follow the zone's last rule, which repeats with the calendar.

A timestamp whose day is outside the years 1 to 9999 is missing.
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import ibis

from neyman.publishing.engines.backends import Backend, Value, backend_of, step_function
from neyman.publishing.engines.expressions import quotient, remainder
from neyman.publishing.plan.plan import Plan

_DAY_SECONDS = 86_400
_SECOND_MICROSECONDS = 1_000_000
_EPOCH = date(1970, 1, 1).toordinal()


def _second(year: int, month: int = 1) -> int:
    return (date(year, month, 1).toordinal() - _EPOCH) * _DAY_SECONDS


_FIRST, _LAST = _second(1), (date.max.toordinal() + 1 - _EPOCH) * _DAY_SECONDS - 1
_FIRST_LISTED, _RULED = _second(1800), _second(2129)
_CALENDAR_CYCLE_SECONDS = 146_097 * _DAY_SECONDS  # 400 years: the calendar and its weekdays repeat
_SHORT_CYCLE, _SHORT_START = 10_227 * _DAY_SECONDS, _second(2101)
"""A cycle of 28 years from 2101. Calendar and weekdays repeat if no century omits a leap day."""


def hour_column(name: str) -> str:
    """Return the name of the column with the hours of a column's timestamps."""
    return f"neyman:hour:{name}"


def local_days(
    plan: Plan, table: ibis.Table, staged: Callable[[ibis.Table], ibis.Table]
) -> ibis.Table:
    """Return the table with a date in place of each timestamp, and the hours that the plan reads.

    Args:
        staged: returns the same rows; the engine computes their columns only once.
    """
    backend, zones = backend_of(table), dict(plan.rows.zones)
    kinds = table.schema()  # no plan has a timestamp as an id
    times = [name for name, kind in kinds.items() if kind.is_timestamp() and name != plan.unit.id]
    if not times:
        return table
    utc, listed, local = (
        {name: f"neyman:{stage}:{name}" for name in times} for stage in ("utc", "listed", "local")
    )
    ready = staged(table.mutate(**{utc[name]: _seconds(table[name], backend) for name in times}))
    own = {name: _listed_second(ready[utc[name]], zones.get(name) or "UTC") for name in times}
    ready = staged(ready.mutate(**{listed[name]: second for name, second in own.items()}))
    for name in times:
        ahead = backend.step_value(ready[listed[name]], *offsets(zones.get(name) or "UTC"))
        second = ready[utc[name]] + ahead
        inside = ibis.cases((second.between(_FIRST, _LAST), second))
        own[name] = backend.barrier(inside)
    ready = staged(ready.mutate(**{local[name]: second for name, second in own.items()}))
    columns: dict[str, Any] = {name: ready[name] for name in table.columns}
    for name in times:
        second = ready[local[name]]
        columns[name] = backend.date_of(quotient(second, _DAY_SECONDS).cast("int32"))
        if name in plan.rows.hours:
            columns[hour_column(name)] = quotient(remainder(second, _DAY_SECONDS), 3600)
    return ready.select(**columns)


def _seconds(column: Value, backend: Backend) -> Value:
    """Return a timestamp's seconds since 1970; NULL more than a day outside the years 1 to 9999."""
    micros = backend.micros(column)
    near = micros.between(
        (_FIRST - _DAY_SECONDS) * _SECOND_MICROSECONDS,
        (_LAST + _DAY_SECONDS) * _SECOND_MICROSECONDS,
    )
    return quotient(ibis.cases((near, micros)), _SECOND_MICROSECONDS)


def _listed_second(seconds: Value, zone: str) -> Value:
    """Return a second, up to the year 2128, with the zone's offset from UTC at ``seconds``.

    A second from the year 2129 on maps to the years 2101 to 2128, with the same weekday and
    calendar day.
    """
    starts, _ = offsets(zone)
    if not starts or starts[-1] < _SHORT_START:
        return seconds
    place = _RULED + remainder(seconds - _RULED, _CALENDAR_CYCLE_SECONDS)
    breaks: list[int] = []
    shifts = [0]
    for century in (2200, 2300, 2500):  # without a leap day
        # From March on, the calendar matches a year with the same weekdays.
        begin = _second(century, 3)
        same = (_second(year, 3) for year in range(2104, 2132, 4))
        breaks.append(begin)
        shifts.append(
            next(begin - other for other in same if (begin - other) % (7 * _DAY_SECONDS) == 0)
        )
    moved = place - _SHORT_START - step_function(place, breaks, shifts)
    listed = _SHORT_START + remainder(moved, _SHORT_CYCLE)
    return ibis.cases((seconds < _RULED, seconds), else_=listed)


@cache
def offsets(zone: str) -> tuple[list[int], list[int]]:
    """Return the seconds since 1970 at which a zone's offset from UTC changes, and the offsets.

    The offsets have one more entry, for the time before the first change. The changes cover the
    years 1800 to 2128. No zone has an earlier change, and each zone's last rule holds from 2101 on.
    """
    clock, epoch = ZoneInfo(zone), datetime(1970, 1, 1, tzinfo=UTC)

    def offset(second: int) -> int:
        ahead = (epoch + timedelta(seconds=second)).astimezone(clock).utcoffset()
        return 0 if ahead is None else round(ahead.total_seconds())

    days = range(_FIRST_LISTED, _RULED + 1, _DAY_SECONDS)
    starts: list[int] = []
    values = [offset(days[0])]
    for (day, before), (_, after) in pairwise((day, offset(day)) for day in days):
        if before != after:
            changed = bisect_left(
                range(_DAY_SECONDS), True, key=lambda i: offset(day + i + 1) != before
            )
            starts.append(day + changed + 1)
            values.append(after)
    return starts, values
