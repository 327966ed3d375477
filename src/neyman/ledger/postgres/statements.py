"""Functions and triggers in PostgreSQL's words, each with a pinned search path.

``@`` stands for the schema. A function without a pinned search path looks up ``=`` in the path of
its caller, who may have defined one. A literal with a backslash is quoted by ``$re$``, because a
caller can also change what a backslash means between plain quotation marks.
"""

from __future__ import annotations

PIN = "search_path=pg_catalog, pg_temp"
"""The setting that every function of a ledger has, as the server's catalog writes it."""


def function(name: str, body: str, takes: str = "", gives: str = "trigger", how: str = "") -> str:
    """Return the statement that creates a function.

    Args:
        name: in the schema of the ledger.
        body: in PL/pgSQL.
        how: further options, such as SECURITY DEFINER.
    """
    head = f"CREATE FUNCTION @.{name}({takes}) RETURNS {gives} LANGUAGE plpgsql {how}"
    return f"{head} SET {PIN} AS\n$body$ {body} $body$"


def trigger(name: str, when: str, does: str, each: str = "ROW", kind: str = "") -> list[str]:
    """Return the statements that create a trigger which fires in every session.

    Args:
        when: "BEFORE INSERT ON table", and what else stands before FOR EACH.
        each: ROW or STATEMENT, and a condition.
        kind: "CONSTRAINT" for one that can wait for the commit.
    """
    table = when.split(" ON ")[1].split()[0]
    # ALWAYS: also while a session says that it only applies what another server has checked.
    return [
        f"CREATE {kind} TRIGGER {name} {when.replace(' ON ', ' ON @.')}"
        f" FOR EACH {each} EXECUTE FUNCTION @.{does}",
        f"ALTER TABLE @.{table} ENABLE ALWAYS TRIGGER {name}",
    ]


def refusing(name: str, when: str, allowed: str, why: str) -> list[str]:
    """Return a trigger that refuses a row unless ``allowed`` is true; NULL is not."""
    old = "DELETE" in when
    body = f"BEGIN IF ({allowed}) IS NOT TRUE THEN RAISE EXCEPTION '{why}'"
    body += f" USING ERRCODE = 'check_violation'; END IF; RETURN {'OLD' if old else 'NEW'}; END"
    return [function(name, body), *trigger(name, when, f"{name}()")]


def never(table: str, events: str, why: str) -> list[str]:
    """Return a trigger that refuses every statement of a kind on a table."""
    name = f"{table}_{events.lower().replace(' or ', '_')}"
    return trigger(name, f"BEFORE {events} ON {table}", f"never('{why}')", "STATEMENT")
