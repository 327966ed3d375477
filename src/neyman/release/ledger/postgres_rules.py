"""The ledger's tables and rules (see store) in PostgreSQL's words, and what begins a transaction.

``@`` stands for the schema. Names are written with it everywhere, so that nothing depends on the
search path of whoever writes.
"""

from __future__ import annotations

import re

from neyman.release.ledger.store import TABLES, VERSION

__all__ = ["schema_of"]

# Rows that change with each spend find room beside their old version, and no index is touched.
_STORED = {"purse": " WITH (fillfactor = 10)"}


def _table(statement: str) -> str:
    name = statement.split()[2]
    if not statement.startswith("CREATE TABLE"):
        return statement.replace(" ON ", " ON @.")
    # Texts compare by their bytes, as in SQLite, whatever the database's own collation is.
    for old, new in (
        (r"\bINTEGER\b", "BIGINT"),
        (r"\bBLOB\b", "BYTEA"),
        (r"\bTEXT\b", 'TEXT COLLATE "C"'),
        (r"\bREFERENCES ", "REFERENCES @."),
        (rf"^CREATE TABLE {name}", f"CREATE TABLE @.{name}"),
    ):
        statement = re.sub(old, new, statement)
    return statement + _STORED.get(name, "")


def _function(name: str, body: str, takes: str = "", gives: str = "trigger", how: str = "") -> str:
    made = f"CREATE FUNCTION @.{name}({takes}) RETURNS {gives} LANGUAGE plpgsql {how}"
    return f"{made} AS\n$$ {body} $$"


def _trigger(name: str, when: str, does: str, each: str = "ROW") -> list[str]:
    # ALWAYS: also while a session says that it only applies what another server has checked.
    table = when.split(" ON ")[1].split()[0]
    return [
        f"CREATE TRIGGER {name} {when.replace(' ON ', ' ON @.')}"
        f" FOR EACH {each} EXECUTE FUNCTION @.{does}",
        f"ALTER TABLE @.{table} ENABLE ALWAYS TRIGGER {name}",
    ]


def _refusing(name: str, when: str, refused: str, why: str) -> list[str]:
    """A trigger that refuses a row if ``refused`` is so."""
    old = "DELETE" in when
    body = f"BEGIN IF {refused} THEN RAISE EXCEPTION '{why}' USING ERRCODE = 'check_violation';"
    body += f" END IF; RETURN {'OLD' if old else 'NEW'}; END"
    return [_function(name, body), *_trigger(name, when, f"{name}()")]


def _never(table: str, events: str, why: str) -> list[str]:
    name = f"{table}_{events.lower().replace(' or ', '_')}"
    return _trigger(name, f"BEFORE {events} ON {table}", f"never('{why}')", "STATEMENT")


_MOVES = """
DECLARE sign CONSTANT bigint := TG_ARGV[0];
BEGIN
    IF TG_RELID <> '@.entry'::regclass THEN
        RAISE EXCEPTION 'only entries spend' USING ERRCODE = 'check_violation';
    END IF;
    UPDATE @.purse SET spent = spent + sign * NEW.charge,
        spent_delta = spent_delta + sign * NEW.delta, entries = entries + sign
    WHERE dataset = NEW.dataset AND (NEW.part = '' OR part = NEW.part) AND holder IN
        (SELECT '' UNION
        SELECT ancestor FROM @.above WHERE dataset = NEW.dataset AND holder = NEW.holder);
    RETURN NULL;
END"""

_RULES = [
    _function(
        "never",
        "BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation'; END",
    ),
    *_refusing(
        "event_next",
        "BEFORE INSERT ON event",
        "NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM @.event)",
        "events follow one another",
    ),
    *_never("event", "UPDATE OR DELETE OR TRUNCATE", "what happened is kept"),
    *_never("account", "UPDATE OR DELETE OR TRUNCATE", "a registered dataset keeps its terms"),
    *_never("above", "UPDATE OR DELETE OR TRUNCATE", "an allocation keeps its place"),
    *_refusing(
        "purse_new",
        "BEFORE INSERT ON purse",
        """NEW.spent <> 0 OR NEW.spent_delta <> 0 OR NEW.entries <> 0
        OR NOT EXISTS (SELECT 1 FROM @.account WHERE dataset = NEW.dataset
            AND CASE parts WHEN '[]' THEN NEW.part = '' ELSE parts::jsonb ? NEW.part END)
        OR (NEW.holder = '') <> (NEW.parent IS NULL)
        OR (NEW.holder <> '' AND NOT EXISTS (SELECT 1 FROM @.purse WHERE dataset = NEW.dataset
            AND holder = NEW.parent AND part = NEW.part AND cap >= NEW.cap
            AND delta_cap >= NEW.delta_cap))""",
        "a purse is new, of a declared part, and within what it is part of",
    ),
    # Depth 2: the update comes from an entry's trigger, not from a statement of somebody's.
    *_refusing(
        "purse_fixed",
        "BEFORE UPDATE ON purse",
        """pg_trigger_depth() < 2 OR NEW.dataset <> OLD.dataset OR NEW.holder <> OLD.holder
        OR NEW.part <> OLD.part OR NEW.parent IS DISTINCT FROM OLD.parent
        OR NEW.event <> OLD.event OR NEW.cap <> OLD.cap OR NEW.delta_cap <> OLD.delta_cap""",
        "caps do not change, and only entries spend",
    ),
    *_never("purse", "DELETE OR TRUNCATE", "what is spent is spent"),
    *_refusing(
        "entry_new",
        "BEFORE INSERT ON entry",
        """NEW.state <> 'reserved' OR NOT EXISTS (SELECT 1 FROM @.purse
        WHERE dataset = NEW.dataset AND holder = NEW.holder
            AND (NEW.part = '' OR part = NEW.part))""",
        "an entry begins reserved, and has an account",
    ),
    # With the rights of the schema's owner: nobody else needs any to change a purse. So it looks
    # at what called it, which may be a trigger on a table of anybody's.
    _function("moves", _MOVES, how="SECURITY DEFINER SET search_path = pg_catalog, pg_temp"),
    *_trigger("entry_charged", "AFTER INSERT ON entry", "moves('1')"),
    *_trigger(
        "entry_void", "AFTER UPDATE ON entry", "moves('-1')", "ROW WHEN (NEW.state = 'void')"
    ),
    *_refusing(
        "entry_fixed",
        "BEFORE UPDATE ON entry",
        """NOT ((OLD.state = 'reserved' AND NEW.state IN ('reading', 'void')
            OR OLD.state = 'reading' AND NEW.state = 'released')
        AND NEW.id = OLD.id AND NEW.dataset = OLD.dataset AND NEW.holder = OLD.holder
        AND NEW.part = OLD.part AND NEW.key = OLD.key AND NEW.charge = OLD.charge
        AND NEW.delta = OLD.delta AND NEW.event = OLD.event)""",
        "an entry goes from reserved to reading to released, or is void",
    ),
    *_never("entry", "DELETE OR TRUNCATE", "what is spent is spent"),
    *_refusing(
        "publication_once",
        "BEFORE INSERT ON publication",
        """NOT EXISTS (SELECT 1 FROM @.entry WHERE id = NEW.entry AND dataset = NEW.dataset
        AND key = NEW.key AND state = 'reading')""",
        "a key is published once, by an entry of its own",
    ),
    *_never("publication", "UPDATE OR DELETE OR TRUNCATE", "what is published is kept"),
    *_refusing(
        "piece_new",
        "BEFORE INSERT ON piece",
        "NOT EXISTS (SELECT 1 FROM @.entry WHERE id = NEW.entry AND state = 'reading')",
        "files are stored once, as their entry finishes",
    ),
    *_refusing(
        "piece_kept",
        "BEFORE DELETE ON piece",
        "NOT EXISTS (SELECT 1 FROM @.entry WHERE id = OLD.entry AND state = 'reading')",
        "what is published is kept",
    ),
    *_never("piece", "UPDATE OR TRUNCATE", "what is published is kept"),
]

_CHECKED = f"""
    IF version <> {VERSION} THEN
        RAISE EXCEPTION '%', {VERSION} USING ERRCODE = 'NY001';
    END IF;
    IF current_setting('search_path') <> '@, pg_temp' THEN
        PERFORM set_config('search_path', '@, pg_temp', true);
    END IF;"""

_LOCKED = f"""{_CHECKED}
    IF current_setting('fsync') <> 'on' OR current_setting('full_page_writes') <> 'on' THEN
        RAISE EXCEPTION 'fsync or full_page_writes is off' USING ERRCODE = 'NY002';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true),
        set_config('lock_timeout', greatest(patience, 1)::text, true),
        set_config('idle_in_transaction_session_timeout', '60s', true);
    LOCK TABLE @.turn IN EXCLUSIVE MODE;"""

# The lock is let go at the commit, which does not wait for the disk; `settled` does, in the next
# transaction, and nobody is told of anything before it. So writers that queue for the lock share
# the disk's time, and what a later one relies on is on the disk before its own is.
_SETTLED = """
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_logical_emit_message(true, 'neyman', '');"""

# What the book does where a first try of a registered plan fits, in one round trip. Whatever is
# otherwise gives NULL or breaks a rule, and the book then looks why.
_ASKED = (
    "version bigint, patience bigint, dataset_ text, holder_ text, part_ text, key_ text,"
    " protects_ text, neighboring_ text, rows_ bigint, units bigint, delta_units bigint,"
    " line_0 text, line_1 text, line_2 text, line_3 text"
)
_RESERVE = f"""
#variable_conflict use_column
DECLARE
    last bigint;
    head text;
    told text;
BEGIN
    {_LOCKED}
    IF NOT EXISTS (SELECT 1 FROM @.account WHERE dataset = dataset_ AND protects = protects_
            AND neighboring = neighboring_ AND rows = rows_)
        OR EXISTS (SELECT 1 FROM @.entry WHERE dataset = dataset_ AND key = key_) THEN
        RETURN;
    END IF;
    SELECT number, hash INTO STRICT last, head FROM @.event ORDER BY number DESC LIMIT 1;
    entry := coalesce((SELECT max(id) FROM @.entry), 0) + 1;
    told := line_0 || entry || line_1 || last + 1 || line_2 || head || line_3;
    INSERT INTO @.event (number, line, hash)
        VALUES (last + 1, told, encode(sha256(convert_to(told, 'UTF8')), 'hex'));
    INSERT INTO @.entry (id, dataset, holder, part, key, state, charge, delta, event)
        VALUES (entry, dataset_, holder_, part_, key_, 'reserved', units, delta_units, last + 1);
    COMMIT;
    {_SETTLED}
END"""

_BEGINNINGS = [
    "CREATE TABLE @.turn ()",
    _function("reading", f"BEGIN {_CHECKED} END", "version bigint", "void"),
    _function("writing", f"BEGIN {_LOCKED} END", "version bigint, patience bigint", "void"),
    _function("settled", f"BEGIN {_SETTLED} END", gives="void"),
    f"CREATE PROCEDURE @.reserve({_ASKED}, INOUT entry bigint)"
    f" LANGUAGE plpgsql AS $$ {_RESERVE} $$",
]


def schema_of(name: str) -> list[str]:
    """The statements that make a ledger in a schema that is there.

    Args:
        name: of the schema.
    """
    statements = [*map(_table, TABLES), *_RULES, *_BEGINNINGS]
    return [statement.replace("@", f'"{name}"') for statement in statements]
