"""The ledger's tables and rules (see store) in PostgreSQL's words, and what begins a transaction.

``@`` stands for the schema. Names are written with it everywhere, and every function has a pinned
search path, so that nothing depends on the search path of whoever writes.
"""

from __future__ import annotations

import re

from neyman.ledger.database import TABLES
from neyman.ledger.postgres.event_rules import EVENT_RULES, LAST_EVENT
from neyman.ledger.postgres.statements import function, never, refusing, trigger
from neyman.ledger.published_files import PIECE_BYTES

RULES = 3
"""The version of the rules; `check_pins` replaces those of version 2."""

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


def _in_turn(table: str, events: str) -> list[str]:
    return trigger(f"{table}_in_turn", f"BEFORE {events} ON {table}", "in_turn()", "STATEMENT")


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
    function(
        "never", "BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation'; END"
    ),
    *EVENT_RULES,
    *_in_turn("event", "INSERT"),
    *never("event", "UPDATE OR DELETE OR TRUNCATE", "what happened is kept"),
    *never("account", "UPDATE OR DELETE OR TRUNCATE", "a registered dataset keeps its terms"),
    *never("above", "UPDATE OR DELETE OR TRUNCATE", "an allocation keeps its place"),
    *refusing(
        "purse_new",
        "BEFORE INSERT ON purse",
        """NEW.spent = 0 AND NEW.spent_delta = 0 AND NEW.entries = 0
        AND EXISTS (SELECT 1 FROM @.account WHERE dataset = NEW.dataset
            AND CASE parts WHEN '[]' THEN NEW.part = '' ELSE parts::jsonb ? NEW.part END)
        AND (NEW.holder = '') = (NEW.parent IS NULL)
        AND (NEW.holder = '' OR EXISTS (SELECT 1 FROM @.purse WHERE dataset = NEW.dataset
            AND holder = NEW.parent AND part = NEW.part AND cap >= NEW.cap
            AND delta_cap >= NEW.delta_cap))""",
        "a purse is new, of a declared part, and within what it is part of",
    ),
    # Depth 2: the update comes from an entry's trigger, not from a statement of someone's.
    *refusing(
        "purse_fixed",
        "BEFORE UPDATE ON purse",
        """pg_trigger_depth() >= 2 AND NEW.dataset = OLD.dataset AND NEW.holder = OLD.holder
        AND NEW.part = OLD.part AND NEW.parent IS NOT DISTINCT FROM OLD.parent
        AND NEW.event = OLD.event AND NEW.cap = OLD.cap AND NEW.delta_cap = OLD.delta_cap""",
        "caps do not change, and only entries spend",
    ),
    *never("purse", "DELETE OR TRUNCATE", "what is spent is spent"),
    *_in_turn("entry", "INSERT OR UPDATE"),
    *refusing(
        "entry_new",
        "BEFORE INSERT ON entry",
        f"""NEW.state = 'reserved' AND EXISTS (SELECT 1 FROM @.purse
        WHERE dataset = NEW.dataset AND holder = NEW.holder
            AND (NEW.part = '' OR part = NEW.part))
        AND EXISTS (SELECT 1 FROM {LAST_EVENT} WHERE kind = 'reserve' AND last = NEW.event
            AND (told ->> 'entry')::bigint = NEW.id
            AND told ->> 'dataset' = NEW.dataset AND told ->> 'to' = NEW.holder
            AND told ->> 'part' = NEW.part AND told ->> 'key' = NEW.key
            AND (told ->> 'units')::bigint = NEW.charge
            AND (told ->> 'delta_units')::bigint = NEW.delta)""",
        "an entry is the last event''s, begins reserved, has an account",
    ),
    # With the rights of the schema's owner: no one else needs any to change a purse. So it looks
    # at what called it, which may be a trigger on a table of anyone's.
    function("moves", _MOVES, how="SECURITY DEFINER"),
    *trigger("entry_charged", "AFTER INSERT ON entry", "moves('1')"),
    *trigger("entry_void", "AFTER UPDATE ON entry", "moves('-1')", "ROW WHEN (NEW.state = 'void')"),
    *refusing(
        "entry_fixed",
        "BEFORE UPDATE ON entry",
        f"""NEW.id = OLD.id AND NEW.dataset = OLD.dataset AND NEW.holder = OLD.holder
        AND NEW.part = OLD.part AND NEW.key = OLD.key AND NEW.charge = OLD.charge
        AND NEW.delta = OLD.delta AND NEW.event = OLD.event
        AND EXISTS (SELECT 1 FROM {LAST_EVENT} WHERE (told ->> 'entry')::bigint = NEW.id
            AND CASE kind
                WHEN 'begin' THEN OLD.state = 'reserved' AND NEW.state = 'reading'
                WHEN 'void' THEN OLD.state = 'reserved' AND NEW.state = 'void'
                    AND NEW.ended = last
                WHEN 'finish' THEN OLD.state = 'reading' AND NEW.state = 'released'
                    AND NEW.ended = last
                ELSE false END)""",
        "an entry goes from reserved to reading to released, or is void, as the last event says",
    ),
    *never("entry", "DELETE OR TRUNCATE", "what is spent is spent"),
    *_in_turn("publication", "INSERT"),
    *refusing(
        "publication_once",
        "BEFORE INSERT ON publication",
        f"""EXISTS (SELECT 1 FROM @.entry WHERE id = NEW.entry AND dataset = NEW.dataset
            AND key = NEW.key AND state = 'reading')
        AND EXISTS (SELECT 1 FROM {LAST_EVENT} WHERE kind = 'finish'
            AND (told ->> 'entry')::bigint = NEW.entry
            AND (told ->> 'published')::bigint = NEW.entry)""",
        "a key is published once, by its own entry",
    ),
    *never("publication", "UPDATE OR DELETE OR TRUNCATE", "what is published is kept"),
    *_in_turn("piece", "INSERT OR DELETE"),
    *refusing(
        "piece_new",
        "BEFORE INSERT ON piece",
        f"""octet_length(NEW.content) <= {PIECE_BYTES}
        AND EXISTS (SELECT 1 FROM @.entry WHERE id = NEW.entry AND state = 'reading')""",
        "files are stored once, as their entry finishes",
    ),
    *refusing(
        "piece_kept",
        "BEFORE DELETE ON piece",
        "EXISTS (SELECT 1 FROM @.entry WHERE id = OLD.entry AND state = 'reading')",
        "what is published is kept",
    ),
    *never("piece", "UPDATE OR TRUNCATE", "what is published is kept"),
]

_CHECKED = f"""
    IF version <> {RULES} THEN
        RAISE EXCEPTION '%', {RULES} USING ERRCODE = 'NY001';
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
# transaction, and no one is told of anything before it. So writers that queue for the lock share
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
    number_ bigint;
BEGIN
    {_LOCKED}
    IF NOT EXISTS (SELECT 1 FROM @.account WHERE dataset = dataset_ AND protects = protects_
            AND neighboring = neighboring_ AND rows = rows_)
        OR EXISTS (SELECT 1 FROM @.entry WHERE dataset = dataset_ AND key = key_) THEN
        RETURN NULL;
    END IF;
    SELECT number, hash INTO STRICT last, head FROM @.event ORDER BY number DESC LIMIT 1;
    number_ := coalesce((SELECT max(id) FROM @.entry), 0) + 1;
    told := line_0 || number_ || line_1 || last + 1 || line_2 || head || line_3;
    INSERT INTO @.event (number, line, hash)
        VALUES (last + 1, told, encode(sha256(convert_to(told, 'UTF8')), 'hex'));
    INSERT INTO @.entry (id, dataset, holder, part, key, state, charge, delta, event)
        VALUES (number_, dataset_, holder_, part_, key_, 'reserved', units, delta_units, last + 1);
    RETURN number_;
END"""

_BEGINNINGS = [
    function("reading", f"BEGIN {_CHECKED} END", "version bigint", "void"),
    function("writing", f"BEGIN {_LOCKED} END", "version bigint, patience bigint", "void"),
    function("settled", f"BEGIN {_SETTLED} END", gives="void"),
    function("reserve", _RESERVE, _ASKED, "bigint"),
]


def rules_of(name: str) -> list[str]:
    """Return the statements that make the functions and triggers of a ledger with its tables."""
    return _qualify(name, [*_RULES, *_BEGINNINGS])


def schema_of(name: str) -> list[str]:
    """Return the statements that make a ledger in a schema that exists."""
    return _qualify(name, [*map(_table, TABLES), "CREATE TABLE @.turn ()"]) + rules_of(name)


def _qualify(name: str, statements: list[str]) -> list[str]:
    return [statement.replace("@", f'"{name}"') for statement in statements]
