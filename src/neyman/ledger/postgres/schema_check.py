"""Check that a ledger's tables and rules in PostgreSQL match this version.

The check creates them once more, for the session alone, and compares both in the server's catalog.
"""

from __future__ import annotations

import re
from typing import Any

from neyman.ledger.database import unlike
from neyman.ledger.postgres.connection import Address, psycopg, sql
from neyman.ledger.postgres.schema import schema_of
from neyman.ledger.postgres.statements import PIN
from neyman.ledger.records import LedgerError

# Kind, name, and definition of each object in a schema. "@" stands for the schema.
_CATALOG = """
SELECT 'table', c.relname, c.relkind::text FROM pg_class c
    WHERE c.relnamespace = @ AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
UNION ALL SELECT 'column', c.relname || '.' || a.attname,
        concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, l.collname,
            a.atthasdef, a.attgenerated, a.attidentity)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = @ AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'constraint', c.relname || '.' || k.conname,
        concat(pg_get_constraintdef(k.oid), k.convalidated)
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE c.relnamespace = @
UNION ALL SELECT 'index', i.indexrelid::regclass::text,
        concat(pg_get_indexdef(i.indexrelid), i.indisvalid)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = @
UNION ALL SELECT 'trigger', c.relname || '.' || t.tgname,
        concat(pg_get_triggerdef(t.oid), t.tgenabled)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = @ AND NOT t.tgisinternal
UNION ALL SELECT 'references of', concat_ws(' ', c.relname, k.conname, t.tgtype), t.tgenabled::text
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_constraint k ON k.oid = t.tgconstraint WHERE c.relnamespace = @ AND t.tgisinternal
UNION ALL SELECT 'rule', c.relname || '.' || r.rulename, pg_get_ruledef(r.oid)
    FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class WHERE c.relnamespace = @
UNION ALL SELECT 'function', p.proname::text, pg_get_functiondef(p.oid)
    FROM pg_proc p WHERE p.pronamespace = @
"""
_UNLOGGED = (
    "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'"
    " AND relpersistence <> 'p'"
)

_FUNCTIONS = """SELECT p.proname, p.oid::regprocedure::text,
    p.proconfig IS NOT DISTINCT FROM ARRAY[%s]
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = %s ORDER BY p.proname"""


def differences(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """List differences of a ledger's tables and rules from this version, in words.

    Args:
        connection: a connection without an open transaction.
    """
    with connection.transaction(force_rollback=True):
        for statement in schema_of("pg_temp"):
            connection.execute(sql(statement), prepare=False)
        ((own,),) = connection.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchall()
        here, ours = _things(connection, schema), _things(connection, own)
        lost = connection.execute(_UNLOGGED, (f'"{schema}"',)).fetchall()
    problems = [f"the table {name} is lost in a crash: it is unlogged" for (name,) in lost]
    return problems + unlike(here, ours)


def _things(connection: psycopg.Connection[Any], schema: str) -> dict[tuple[str, str], str]:
    query = _CATALOG.replace("@", f"'\"{schema}\"'::regnamespace")
    things: dict[tuple[str, str], str] = {}
    prefix = re.compile(rf'("{schema}"|\b{schema}|"pg_temp"|pg_temp(_\d+)?)\.')
    for row in connection.execute(sql(query), prepare=False).fetchall():
        kind, name, definition = (prefix.sub("", text) for text in row)
        for own in (schema, "pg_temp"):
            definition = definition.replace(f'"{own}", pg_temp', "@")
        things[kind, name] = definition
    return things


def check_pins(connection: psycopg.Connection[Any], address: Address) -> None:
    """Refuse a ledger with a function whose search path is not pinned.

    In such a function, a writer could define their own ``=`` and undo a charge.

    Args:
        connection: a connection without an open transaction.
    """
    rows = connection.execute(_FUNCTIONS, (PIN, address.schema)).fetchall()
    loose = [signature for _, signature, pinned in rows if not pinned]
    if not loose or not {"reading", "writing", "settled"} <= {name for name, *_ in rows}:
        return
    listed = "; ".join(f"ALTER FUNCTION {one} SET {PIN.replace('=', ' = ')}" for one in loose)
    raise LedgerError(
        f"{address.shown} cannot be trusted: {len(loose)} of its functions have no pinned search"
        " path, and a writer could take back what was spent. Let the owner of the schema run this"
        f" in it, and then `neyman ledger verify`: {listed}"
    )
