"""Write the engines' expressions as SQL of MariaDB, with DuckDB's results.

A pattern that does not match extracts the empty text. There is no ``TRY_CAST``, so a text is cast
only after a pattern has admitted it.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import ibis.expr.datatypes as dt
import sqlglot.expressions as sge
from ibis.backends.sql.compilers.mysql import MySQLCompiler

Sql = sge.Expr

_DOUBLE = r"^-?([0-9]{1,60}(\.[0-9]{0,60})?|\.[0-9]{1,60})([eE][-+]?[0-9]{1,2})?\z"
_BIGINT = r"^-?[0-9]{1,18}\z"
_DECIMAL = r"^-?[0-9]{1,38}\z"
_DATE = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}\z"


class MariaDBCompiler(MySQLCompiler):
    """Compile Ibis expressions to SQL of MariaDB."""

    __slots__ = ()

    UNSUPPORTED_OPS = ()

    def visit_RegexExtract(self, op: Any, *, arg: Sql, pattern: Sql, index: Sql) -> Any:
        part = self.f.anon.regexp_substr(arg, pattern)
        if op.index.value:
            part = self.f.anon.regexp_replace(part, pattern, "\\1")
        return sge.Case(
            ifs=[self.if_(arg.rlike(pattern), part), self.if_(arg.is_(sge.null()).not_(), "")]
        )

    def visit_RegexReplace(self, op: Any, *, arg: Sql, pattern: Sql, replacement: Sql) -> Any:
        return self.f.anon.regexp_replace(arg, pattern, replacement)

    def visit_Cast(self, op: Any, *, arg: Sql, to: dt.DataType) -> Any:
        if to.is_binary():
            return sge.Cast(this=arg, to=sge.DataType.build("BINARY", dialect="mysql"))
        return super().visit_Cast(op, arg=arg, to=to)

    def visit_Substring(self, op: Any, *, arg: Sql, start: Sql, length: Sql | None) -> Any:
        given = [sge.paren(start) + 1] if length is None else [sge.paren(start) + 1, length]
        return self.f.anon.substring(arg, *given)

    def visit_IsNan(self, op: Any, *, arg: Sql) -> Any:
        """Return false: no number is NaN."""
        return sge.false()

    def visit_HexDigest(self, op: Any, *, arg: Sql, how: str) -> Any:
        return self.f.anon.sha2(arg, 256)

    def visit_ScalarUDF(self, op: Any, **given: Any) -> Any:
        """Write the functions that `backends` calls by name."""
        name, arg = self.__sql_name__(op), next(iter(given.values()))
        if name == "hex":
            return self.f.anon.hex(arg)
        if name == "btrim":
            ends = f"[{op.args[1].value}]"
            return self.f.anon.regexp_replace(arg, f"^{ends}+|{ends}+\\z", "")
        if name == "epoch_us":
            first = self.f.anon.timestamp("1970-01-01 00:00:00")
            return self.f.anon.timestampdiff(sge.Var(this="MICROSECOND"), first, arg)
        if name == "make_date":
            return self.f.anon.from_days(sge.paren(arg) + 719_528)
        return super().visit_ScalarUDF(op, **given)

    def visit_TryCast(self, op: Any, *, arg: Sql, to: dt.DataType) -> Any:
        """Cast a text that a pattern admits; NULL for other texts and impossible days."""
        pattern = _DOUBLE if to.is_floating() else _BIGINT if to.is_integer() else _DECIMAL
        pattern = _DATE if to.is_date() else pattern
        return self.if_(arg.rlike(sge.convert(pattern)), self.cast(arg, to), sge.null())
