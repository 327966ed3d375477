"""Write the engines' expressions as SQL of PostgreSQL, with DuckDB's results.

PostgreSQL's SQL differs from DuckDB's in these ways:

- A pattern ends in ``\\Z``, and a pattern that does not match extracts the empty text.
- There is no ``TRY_CAST``. A text is cast only after a pattern has admitted it.
- A text becomes its bytes in UTF-8, and bytes become the text that they encode.
- A truth value becomes a 64-bit number through an `integer`.
- The number of a text or of a decimal is computed in `numeric`, which is exact.
- A sum of 64-bit numbers is exact, so they are not first cast to `numeric`, which is slower.
- The numbers of equal rows come from ``generate_series``, without an array.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import sqlglot as sg
import sqlglot.expressions as sge
from ibis.backends.sql.compilers.postgres import PostgresCompiler

Sql = sge.Expr

_NUMBER = r"^-?([0-9]{1,120}(\.[0-9]{0,120})?|\.[0-9]{1,120})([eE][-+]?[0-9]{1,4})?\Z"
_INFINITE, _MINUS_INFINITE = r"^[iI]nf(inity)?\Z", r"^-[iI]nf(inity)?\Z"
_DOUBLE = r"^-?([0-9]{1,60}(\.[0-9]{0,60})?|\.[0-9]{1,60})([eE][-+]?[0-9]{1,2})?\Z"
_BIGINT = r"^-?[0-9]{1,18}\Z"
_DECIMAL = r"^-?[0-9]{1,38}\Z"
_DATE = r"^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\Z"


class SnapshotCompiler(PostgresCompiler):
    """Compile Ibis expressions to SQL of PostgreSQL, see the module's docstring."""

    __slots__ = ()

    SIMPLE_OPS: dict[Any, str] = {}  # noqa: RUF012  # else Ibis would replace the methods below

    def visit_RegexSearch(self, op: Any, *, arg: Sql, pattern: Sql) -> Sql:
        return _matches(arg, _pattern(op.pattern))

    def visit_RegexExtract(self, op: Any, *, arg: Sql, pattern: Sql, index: Sql) -> Any:
        text = _pattern(op.pattern)
        group = text if op.index.value else sge.convert(f"({text.this})")
        part = self.f.anon.substring(arg, group)
        return self.if_(arg.is_(sg.not_(sge.null())), self.f.coalesce(part, ""), sge.null())

    def visit_RegexReplace(self, op: Any, *, arg: Sql, pattern: Sql, replacement: Sql) -> Any:
        return self.f.anon.regexp_replace(arg, _pattern(op.pattern), replacement, "g")

    def visit_Substring(self, op: Any, *, arg: Sql, start: Sql, length: Sql | None) -> Any:
        """Return a part of a text from a nonnegative position. Positions have the type INT."""
        given = [sge.paren(start) + 1] if length is None else [sge.paren(start) + 1, length]
        places = (sge.Cast(this=one, to=sge.DataType.build("INT")) for one in given)
        return self.f.anon.substring(arg, *places)

    def visit_HexDigest(self, op: Any, *, arg: Sql, how: str) -> Sql:
        if how != "sha256":
            return super().visit_Unsupported(op, arg=arg, how=how)
        return self._c(self.f.anon.encode(self.f.anon.sha256(self._bytes(arg)), "hex"))

    def visit_ScalarUDF(self, op: Any, **given: Any) -> Any:
        """Write the functions that `backends` calls by name."""
        name, arg = self.__sql_name__(op), next(iter(given.values()))
        if name in ("scaled_text", "scaled_decimal"):
            return self._scaled_integer(*given.values(), is_text=name == "scaled_text")
        if name == "encode":
            return self._bytes(arg)
        if name == "hex":
            return self._c(self.f.anon.upper(self._c(self.f.anon.encode(arg, "hex"))))
        if name == "btrim":
            return self._c(self.f.anon.btrim(*given.values()))
        if name == "nfc_normalize":
            return self._c(self.f.anon.normalize(arg, sge.Var(this="NFC")))
        if name == "epoch_us":
            micros = self.f.floor(self.f.extract("epoch", arg) * 1_000_000)
            return sge.Cast(this=micros, to=sge.DataType.build("BIGINT"))
        if name == "make_date":
            epoch = sge.Cast(this=sge.convert("1970-01-01"), to=sge.DataType.build("DATE"))
            return sge.paren(epoch + sge.paren(arg))
        return super().visit_ScalarUDF(op, **given)

    def _scaled_integer(self, value: Sql, decimals: Sql, most: Sql, *, is_text: bool) -> Sql:
        """Return the integer floor(x 10^decimals) within +-most; NULL if x is no number."""
        numeric = sge.DataType.build("NUMERIC")
        number = sge.Cast(this=value, to=numeric)
        floor = self.f.floor(number * sge.convert(10 ** int(decimals.this)))
        inside = self.f.greatest(self.f.least(floor, most), -most)
        result = sge.Cast(this=inside, to=sge.DataType.build("BIGINT"))
        if not is_text:  # GREATEST and LEAST leave NULL out
            return self.if_(value.is_(sg.not_(sge.null())), result, sge.null())
        cases = [(_NUMBER, result), (_INFINITE, most), (_MINUS_INFINITE, -most)]
        ifs = [self.if_(_matches(value, sge.convert(text)), then) for text, then in cases]
        return sge.Case(ifs=ifs)

    def visit_Cast(self, op: Any, *, arg: Sql, to: dt.DataType) -> Any:
        kind = op.arg.dtype
        if kind.is_string() and to.is_binary():
            return self._bytes(arg)
        if kind.is_binary() and to.is_string():
            return self._c(self.f.anon.convert_from(arg, "UTF8"))
        if kind.is_boolean() and to.is_integer():
            return self.cast(sge.Cast(this=arg, to=sge.DataType.build("INT")), to)
        if kind.is_date() and to.is_string():
            return self._c(self.f.anon.to_char(arg, "YYYY-MM-DD"))
        if to.is_string():
            return self._c(super().visit_Cast(op, arg=arg, to=to))
        return super().visit_Cast(op, arg=arg, to=to)

    def visit_TryCast(self, op: Any, *, arg: Sql, to: dt.DataType) -> Sql:
        """Cast a text that a pattern admits; NULL for other texts."""
        if not op.arg.dtype.is_string():
            return super().visit_Unsupported(op, arg=arg, to=to)
        if to.is_date():
            return self._date(arg)
        pattern = _DOUBLE if to.is_floating() else _BIGINT if to.is_integer() else _DECIMAL
        return self.if_(_matches(arg, sge.convert(pattern)), self.cast(arg, to), sge.null())

    def _date(self, text: Sql) -> Sql:
        month = self.f.concat(self.f.anon.substring(text, 1, 8), "01")
        days = sge.Cast(this=self.f.anon.substring(text, 9, 2), to=sge.DataType.build("INT"))
        date = sge.paren(sge.Cast(this=month, to=sge.DataType.build("DATE")) + days - 1)
        same = self._c(self.f.anon.to_char(date, "YYYY-MM-DD")).eq(text)
        known = self.if_(same, date, sge.null())
        return self.if_(_matches(text, sge.convert(_DATE)), known, sge.null())

    def visit_Sum(self, op: Any, *, arg: Sql, where: Sql) -> Sql:
        """Return an exact sum. Sum 64-bit integers without a cast."""
        inner = op.arg
        if isinstance(inner, ops.Cast) and inner.to.is_decimal() and inner.arg.dtype.is_integer():
            sums: Any = self.agg
            return sums.sum(arg.this, where=where)
        return super().visit_Sum(op, arg=arg, where=where)

    def visit_IntegerRange(self, op: Any, *, start: Sql, stop: Sql, step: Sql) -> Sql:
        """Return the integers start <= i < stop, for `visit_Unnest` alone."""
        return self.f.anon.generate_series(start, sge.paren(stop) - 1)

    def visit_Unnest(self, op: Any, *, arg: Sql) -> Sql:
        """Return one row for each number of a range."""
        if isinstance(op.arg, ops.IntegerRange):
            return arg
        return self.f.unnest(arg)

    def _bytes(self, text: Sql) -> Sql:
        return self.f.anon.convert_to(text, "UTF8")

    def _c(self, text: Sql) -> Sql:
        same = sge.Collate(this=sge.paren(text), expression=sg.to_identifier("C", quoted=True))
        return sge.paren(same)


def _pattern(node: Any) -> Sql:
    return sge.convert(node.value.replace(r"\z", r"\Z"))


def _matches(text: Sql, pattern: Sql) -> Sql:
    return sge.RegexpLike(this=sge.paren(text), expression=pattern)
