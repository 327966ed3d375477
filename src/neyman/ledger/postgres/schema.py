"""Define the ledger's tables and rules in PostgreSQL, and the functions that begin transactions.

``@`` stands for the schema. Every name includes it, and every function has a pinned search path. So
nothing depends on the writer's search path.
"""

from __future__ import annotations

import re

from neyman.ledger.database import APPROVED, JOIN, TABLES, VERSION, note_rule, population_moves
from neyman.ledger.postgres.event_rules import EVENT_RULES, LAST_EVENT
from neyman.ledger.postgres.statements import function, never, refusing, trigger
from neyman.ledger.published_files import PIECE_BYTES

# Leave room for new versions of rows that each charge changes, so that no index changes.
_STORED = {"purse": " WITH (fillfactor = 10)"}


def _table(statement: str) -> str:
    name = statement.split()[2]
    if not statement.startswith("CREATE TABLE"):
        return statement.replace(" ON ", " ON @.")
    # Compare texts by their bytes, as in SQLite, whatever the database's collation is.
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


_MOVES = f"""
DECLARE sign CONSTANT bigint := TG_ARGV[0];
BEGIN
    IF TG_RELID <> '@.entry'::regclass THEN
        RAISE EXCEPTION 'only entries spend' USING ERRCODE = 'check_violation';
    END IF;
    {population_moves("sign")}
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
    # Depth 2: the update comes from an entry's trigger, not from a user's statement.
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
        f"""NEW.state = 'reserved' AND {APPROVED} AND EXISTS (SELECT 1 FROM @.purse
        WHERE dataset = NEW.dataset AND holder = NEW.holder
            AND (NEW.part = '' OR part = NEW.part))
        AND EXISTS (SELECT 1 FROM {LAST_EVENT} WHERE kind = 'reserve' AND last = NEW.event
            AND (told ->> 'entry')::bigint = NEW.id
            AND told ->> 'dataset' = NEW.dataset AND told ->> 'to' = NEW.holder
            AND told ->> 'part' = NEW.part AND told ->> 'key' = NEW.key
            AND (told ->> 'units')::bigint = NEW.charge
            AND (told ->> 'delta_units')::bigint = NEW.delta)""",
        "an entry is the last event''s, begins reserved, has account and approval",
    ),
    # It has the rights of the schema's owner, so no one else needs rights to change a purse. So it
    # checks its caller, which may be a trigger on anyone's table.
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
    *_in_turn("note", "INSERT"),
    *refusing(
        "note_new",
        "BEFORE INSERT ON note",
        f"""EXISTS (SELECT 1 FROM {LAST_EVENT} WHERE last = NEW.event AND kind = NEW.kind
            AND told ->> 'dataset' = NEW.dataset AND told ->> 'subject' = NEW.subject)
        AND {note_rule(f"(SELECT (told ->> 'entry')::bigint FROM {LAST_EVENT})")}""",
        "a note is what the last event says, and possible",
    ),
    # Only the owner may change a purse, so only the owner can make a dataset an edition.
    function("joins", f"BEGIN {JOIN} RETURN NULL; END"),
    *trigger("note_edition", "AFTER INSERT ON note", "joins()", "ROW WHEN (NEW.kind = 'edition')"),
    *never("note", "UPDATE OR DELETE OR TRUNCATE", "what happened is kept"),
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
    IF version <> {VERSION} THEN
        RAISE EXCEPTION '%', {VERSION} USING ERRCODE = 'NY001';
    END IF;"""

_LOCKED = f"""{_CHECKED}
    IF current_setting('fsync') <> 'on' OR current_setting('full_page_writes') <> 'on' THEN
        RAISE EXCEPTION 'fsync or full_page_writes is off' USING ERRCODE = 'NY002';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true),
        set_config('lock_timeout', greatest(patience, 1)::text, true),
        set_config('idle_in_transaction_session_timeout', '60s', true);
    LOCK TABLE @.turn IN EXCLUSIVE MODE;"""

# The commit releases the lock and does not wait for the disk. `settled` waits, in the next
# transaction, and nothing is reported before. So writers that queue for the lock share
# the disk's time, and earlier changes are on the disk before later ones that rely on them.
_SETTLED = """
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_logical_emit_message(true, 'neyman', '');"""

# Reserve in one round trip if a first try of a registered plan fits. Any other case
# returns NULL or breaks a rule, and the ledger then finds the reason.
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


def schema_of(name: str) -> list[str]:
    """Return the statements that create a ledger in an existing schema."""
    statements = (*map(_table, TABLES), "CREATE TABLE @.turn ()", *_RULES, *_BEGINNINGS)
    return [statement.replace("@", f'"{name}"') for statement in statements]
