"""Write functions and triggers for PostgreSQL, each with a pinned search path.

``@`` stands for the schema. Without a pinned search path, a function looks up ``=`` in the path of
its caller, who may have defined one. ``$re$`` quotes a literal with a backslash, because a caller
can also change the meaning of a backslash between plain quotation marks.
"""

from __future__ import annotations

PIN = "search_path=pg_catalog, pg_temp"
"""Every function of a ledger has this setting, in the format of the server's catalog."""


def function(name: str, body: str, takes: str = "", gives: str = "trigger", how: str = "") -> str:
    """Return the statement that creates a function.

    Args:
        name: its name in the ledger's schema.
        body: its body in PL/pgSQL.
        takes, gives: its parameters and the type of its result, in SQL.
        how: further options, such as SECURITY DEFINER.
    """
    head = f"CREATE FUNCTION @.{name}({takes}) RETURNS {gives} LANGUAGE plpgsql {how}"
    return f"{head} SET {PIN} AS\n$body$ {body} $body$"


def trigger(name: str, when: str, does: str, each: str = "ROW", kind: str = "") -> list[str]:
    """Return the statements that create a trigger that fires in every session.

    Args:
        when: the text before FOR EACH, such as "BEFORE INSERT ON table".
        does: the call of the function, such as "name()".
        each: ROW or STATEMENT, with an optional condition.
        kind: "CONSTRAINT" for a trigger that can wait for the commit.
    """
    table = when.split(" ON ")[1].split()[0]
    # ALWAYS: fire even if a session claims to apply changes that another server has checked.
    return [
        f"CREATE {kind} TRIGGER {name} {when.replace(' ON ', ' ON @.')}"
        f" FOR EACH {each} EXECUTE FUNCTION @.{does}",
        f"ALTER TABLE @.{table} ENABLE ALWAYS TRIGGER {name}",
    ]


def refusing(name: str, when: str, allowed: str, why: str) -> list[str]:
    """Return statements for a trigger that refuses a row, with the message ``why``.

    It refuses the row unless the SQL condition ``allowed`` is true. NULL is not true.
    """
    old = "DELETE" in when
    body = f"BEGIN IF ({allowed}) IS NOT TRUE THEN RAISE EXCEPTION '{why}'"
    body += f" USING ERRCODE = 'check_violation'; END IF; RETURN {'OLD' if old else 'NEW'}; END"
    return [function(name, body), *trigger(name, when, f"{name}()")]


def never(table: str, events: str, why: str) -> list[str]:
    """Return statements for a trigger that refuses ``events``, as "UPDATE OR DELETE"."""
    name = f"{table}_{events.lower().replace(' or ', '_')}"
    return trigger(name, f"BEFORE {events} ON {table}", f"never('{why}')", "STATEMENT")
