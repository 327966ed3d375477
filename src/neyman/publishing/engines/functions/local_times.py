"""Compute the local day and hour of timestamps, in the plan's zone if they have a time zone.

A timestamp is the integer number of its microseconds since 1970, rounded down. Days and hours
follow from this number by the same arithmetic on every engine. No engine's calendar or time zones
matter. A zone is a finite list of offsets from UTC, from Python's ``zoneinfo``, up to the year
2128. Later times follow the zone's last rule, which repeats with the calendar.

A timestamp whose day is outside the years 1 to 9999 is missing. A text with a day, a time, and an
offset from UTC, in a column with a zone, is such a timestamp. Other texts are read as written.
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
import ibis.expr.datatypes as dt

from neyman.publishing.engines.backends import Backend, Value, backend_of, step_function
from neyman.publishing.engines.expressions import (
    DAY,
    INSTANT,
    OFFSET,
    day_number,
    quotient,
    remainder,
)
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

    A text with an offset, in a column with a zone, becomes the text of its local day. If
    expressions read the column as dates, the local hour follows.

    Args:
        staged: returns the same rows; the engine computes their columns only once.
    """
    backend, zones, times = backend_of(table), dict(plan.rows.zones), _times(plan, table)
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
        columns |= _local_columns(plan, name, ready[name], ready[local[name]])
    return ready.select(**columns)


def _times(plan: Plan, table: ibis.Table) -> list[str]:
    """Return the columns of timestamps, and those of texts with a zone. An id is neither."""
    zones, kinds = dict(plan.rows.zones), table.schema()
    return [
        name
        for name, kind in kinds.items()
        if name != plan.unit.id and (kind.is_timestamp() or (name in zones and _is_text(kind)))
    ]


def _local_columns(plan: Plan, name: str, column: Value, second: Value) -> dict[str, Value]:
    """Return a column with local days, from its local ``second``, and its hours if they are read.

    A text with an offset becomes the text of its day, with the hour if expressions read a date.
    Other texts stay, but by keys, a text of a day with a time is its day.
    """
    backend = backend_of(column)
    day = backend.date_of(quotient(second, _DAY_SECONDS).cast("int32"))
    hour = quotient(remainder(second, _DAY_SECONDS), 3600)
    if not _is_text(column.type()):
        return {name: day, **({hour_column(name): hour} if name in plan.rows.hours else {})}
    text, local = column.cast("string"), day.cast("string")
    cases: list[Any] = [(text.re_search(INSTANT), local), (text.re_search(DAY), text.substr(0, 10))]
    if any(one == name and kind.type == "date" for one, kind in plan.rows.readings):
        local = local.concat(" ", (hour + 100).cast("string").substr(1, 2), ":00")
        cases = [(text.re_search(INSTANT), local)]
    if column.type().is_binary():
        cases = [(test, backend.encode(own)) for test, own in cases]
    return {name: ibis.cases(*cases, else_=column)}


def _is_text(kind: dt.DataType) -> bool:
    return kind.is_string() or kind.is_binary()  # a joined table has bytes


def _seconds_of_text(column: Value) -> Value:
    """Return the seconds since 1970 of a text that is an instant; NULL for other texts."""
    text = column.cast("string")
    known = text.re_search(INSTANT) & text.substr(0, 10).try_cast("date").notnull()

    def digits(part: Value) -> Value:
        return part.try_cast("int64").coalesce(0)

    year, month, day = (digits(text.substr(a, b)) for a, b in ((0, 4), (5, 2), (8, 2)))
    offset = text.re_extract(f"({OFFSET})\\z", 1).replace(":", "")
    ahead = digits(offset.substr(1, 2)) * 3600 + digits(offset.substr(3, 2)) * 60
    clock = digits(text.substr(11, 2)) * 3600 + digits(text.substr(14, 2)) * 60
    clock = clock + digits(text.re_extract(r"^.{16}:([0-9]{2})", 1))
    clock = clock - ibis.cases((offset.startswith("-"), -ahead), else_=ahead)
    return ibis.cases((known, (day_number(year, month, day) - _EPOCH) * _DAY_SECONDS + clock))


def _seconds(column: Value, backend: Backend) -> Value:
    """Return a timestamp's seconds since 1970; NULL more than a day outside the years 1 to 9999."""
    if _is_text(column.type()):
        return _seconds_of_text(column)
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
