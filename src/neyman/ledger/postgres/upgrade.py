"""Whether the rules of a ledger in PostgreSQL can be trusted, when a session opens it.

Functions of version 2 had no pinned search path: a writer could define an ``=`` of their own and
take back what was spent. The owner's first session replaces them, in one transaction. Everyone
else is refused until then.
"""

from __future__ import annotations

from typing import Any

from neyman.ledger.postgres.connection import Address, psycopg, sql
from neyman.ledger.postgres.schema import rules_of
from neyman.ledger.postgres.statements import PIN
from neyman.ledger.records import LedgerError

_FUNCTIONS = """SELECT p.proname, p.oid::regprocedure::text, p.prokind::text,
    p.proconfig IS NOT DISTINCT FROM ARRAY[%s], pg_has_role(p.proowner, 'USAGE')
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = %s ORDER BY p.proname"""


def check_pins(connection: psycopg.Connection[Any], address: Address, wait: float) -> None:
    """Refuse a ledger whose functions have no pinned search path; replace those of version 2.

    Args:
        connection: with no transaction open.
        wait: seconds to wait for other writers before the rules are replaced.

    Raises:
        LedgerError: a function has no pinned search path, and this role may not replace it.
    """
    where, schema = address.shown, address.schema
    rows = connection.execute(_FUNCTIONS, (PIN, schema)).fetchall()
    names = {name for name, *_ in rows}
    loose = [signature for _, signature, _, pinned, _ in rows if not pinned]
    if not loose or not {"reading", "writing", "settled"} <= names:
        return
    if not any(name == "reserve" and kind == "p" for name, _, kind, _, _ in rows):
        listed = "; ".join(f"ALTER FUNCTION {one} SET {PIN.replace('=', ' = ')}" for one in loose)
        raise LedgerError(
            f"{where} cannot be trusted: {len(loose)} of its functions have no pinned search path,"
            " and a writer could take back what was spent. Let the owner of the schema run this in"
            f" it, and then `neyman ledger verify`: {listed}"
        )
    if not all(owned for *_, owned in rows):
        raise LedgerError(
            f"{where} has rules of an earlier version, under which a writer could take back what"
            " was spent. Let the owner of its functions open it with this version, which replaces"
            " the rules, and then run `neyman ledger verify`"
        )
    _replace(connection, schema, wait)


def _replace(connection: psycopg.Connection[Any], schema: str, wait: float) -> None:
    with connection.transaction():
        run = connection.execute
        run(
            "SELECT set_config('lock_timeout', %s, true),"
            " set_config('synchronous_commit', 'on', true)",
            (str(max(round(wait * 1000), 1)),),
        )
        run(sql(f'LOCK TABLE "{schema}".turn IN ACCESS EXCLUSIVE MODE'))
        rows = run(_FUNCTIONS, (PIN, schema)).fetchall()
        if all(pinned for *_, pinned, _ in rows):
            return  # another session was first
        for _, signature, *_ in rows:
            run(sql(f"DROP ROUTINE {signature} CASCADE"), prepare=False)
        for statement in rules_of(schema):
            run(sql(statement), prepare=False)
