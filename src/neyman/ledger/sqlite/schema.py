"""Define the ledger's tables and rules in SQLite."""

from __future__ import annotations

from neyman.ledger.chain import KINDS, START
from neyman.ledger.database import APPROVED, JOIN, TABLES, note_rule, population_moves

_KEYED_BY_TEXT = ("account", "purse", "above", "publication")


def _strict(statement: str) -> str:
    name = statement.split()[2]
    if not statement.startswith("CREATE TABLE"):
        return f"{statement};"
    return f"{statement} STRICT{', WITHOUT ROWID' if name in _KEYED_BY_TEXT else ''};"


def _never(table: str, events: tuple[str, ...], why: str) -> str:
    return "".join(
        f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table}"
        f" BEGIN SELECT RAISE(ABORT, '{why}'); END;"
        for event in events
    )


def _shared(statement: str) -> str:
    """Return a condition or statement of both dialects without the mark of the schema."""
    return statement.replace("@.", "")


def _moves(sign: str) -> str:
    """Return SQL that adds ``sign`` (1 or -1) times the charge of an entry's new row to purses.

    The purses are those of rule 3 in `neyman.ledger.database`.
    """
    return f"""{_shared(population_moves(sign))}
    UPDATE purse SET spent = spent + {sign} * NEW.charge,
        spent_delta = spent_delta + {sign} * NEW.delta, entries = entries + {sign}
    WHERE dataset = NEW.dataset AND (NEW.part = '' OR part = NEW.part) AND holder IN
        (SELECT '' UNION
        SELECT ancestor FROM above WHERE dataset = NEW.dataset AND holder = NEW.holder);"""


def _field(field: str, line: str = "line") -> str:
    return f"json_extract({line}, '$.{field}')"


_LAST = "(SELECT number, line FROM event ORDER BY number DESC LIMIT 1)"


def _state(states: str) -> str:
    """Return the SQL condition that a new event's entry has one of some states.

    ``states``: SQL literals, separated by commas.
    """
    entry = _field("entry", "NEW.line")
    return f"EXISTS (SELECT 1 FROM entry WHERE id = {entry} AND state IN ({states}))"


# SQLite has no SHA-256 and no check at the commit, so it cannot refuse an event with a wrong hash
# or without its rows. `verify` finds such events. PostgreSQL refuses them.
_EVENT_POSSIBLE = f"""CASE WHEN json_valid(NEW.line) THEN
    length(NEW.hash) = 64 AND NEW.hash NOT GLOB '*[^0-9a-f]*'
    AND {_field("number", "NEW.line")} = NEW.number
    AND {_field("previous", "NEW.line")} = coalesce(
        (SELECT hash FROM event ORDER BY number DESC LIMIT 1), '{START}')
    AND {_field("kind", "NEW.line")} IN {KINDS}
    AND ({_field("kind", "NEW.line")} = 'ledger') = (NEW.number = 1)
    AND CASE {_field("kind", "NEW.line")}
        WHEN 'reserve' THEN {_field("entry", "NEW.line")}
            = (SELECT coalesce(max(id), 0) + 1 FROM entry)
        WHEN 'begin' THEN {_state("'reserved'")}
        WHEN 'void' THEN {_state("'reserved'")}
        WHEN 'finish' THEN {_state("'reading'")}
        ELSE 1 END END"""

# Each primary key also has a trigger on insertion, because INSERT OR REPLACE deletes the old
# row without calling the triggers on deletion.
_RULES = f"""
CREATE TRIGGER event_next BEFORE INSERT ON event
WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM event)
BEGIN SELECT RAISE(ABORT, 'events follow one another'); END;
CREATE TRIGGER event_possible BEFORE INSERT ON event
WHEN ({_EVENT_POSSIBLE}) IS NOT TRUE
BEGIN SELECT RAISE(ABORT, 'an event is a line of the chain, and says what can happen now'); END;
{_never("event", ("update", "delete"), "what happened is kept")}

CREATE TRIGGER account_once BEFORE INSERT ON account
WHEN EXISTS (SELECT 1 FROM account WHERE dataset = NEW.dataset)
BEGIN SELECT RAISE(ABORT, 'a registered dataset keeps its terms'); END;
{_never("account", ("update",), "a registered dataset keeps its terms")}
{_never("account", ("delete",), "a registered dataset is kept")}

CREATE TRIGGER above_once BEFORE INSERT ON above
WHEN EXISTS (SELECT 1 FROM above WHERE dataset = NEW.dataset AND holder = NEW.holder
    AND ancestor = NEW.ancestor)
BEGIN SELECT RAISE(ABORT, 'an allocation keeps its place'); END;
{_never("above", ("update", "delete"), "an allocation keeps its place")}

CREATE TRIGGER purse_new BEFORE INSERT ON purse
WHEN NEW.spent <> 0 OR NEW.spent_delta <> 0 OR NEW.entries <> 0
    OR EXISTS (SELECT 1 FROM purse WHERE dataset = NEW.dataset AND holder = NEW.holder
        AND part = NEW.part)
    OR NOT EXISTS (SELECT 1 FROM account WHERE dataset = NEW.dataset
        AND iif(parts = '[]', NEW.part = '', NEW.part IN (SELECT value FROM json_each(parts))))
    OR (NEW.holder = '') <> (NEW.parent IS NULL)
    OR (NEW.holder <> '' AND NOT EXISTS (SELECT 1 FROM purse WHERE dataset = NEW.dataset
        AND holder = NEW.parent AND part = NEW.part AND cap >= NEW.cap
        AND delta_cap >= NEW.delta_cap))
BEGIN SELECT RAISE(ABORT, 'a purse is new, of a declared part, and within what it is part of'); END;
CREATE TRIGGER purse_fixed BEFORE UPDATE ON purse
WHEN NEW.dataset <> OLD.dataset OR NEW.holder <> OLD.holder OR NEW.part <> OLD.part
    OR NEW.parent IS NOT OLD.parent OR NEW.event <> OLD.event
    OR NEW.cap <> OLD.cap OR NEW.delta_cap <> OLD.delta_cap
    OR NOT (NEW.entries >= OLD.entries AND NEW.spent >= OLD.spent
            AND NEW.spent_delta >= OLD.spent_delta
        OR NEW.entries = OLD.entries - 1 AND NEW.spent <= OLD.spent
            AND NEW.spent_delta <= OLD.spent_delta)
BEGIN SELECT RAISE(ABORT, 'caps do not change, and only entries spend'); END;
{_never("purse", ("delete",), "what is spent is spent")}

CREATE TRIGGER entry_new BEFORE INSERT ON entry
WHEN (NEW.state = 'reserved' AND {_shared(APPROVED)}
    AND NEW.id = (SELECT coalesce(max(id), 0) + 1 FROM entry)
    AND EXISTS (SELECT 1 FROM purse WHERE dataset = NEW.dataset AND holder = NEW.holder
        AND (NEW.part = '' OR part = NEW.part))
    AND EXISTS (SELECT 1 FROM {_LAST} WHERE number = NEW.event
        AND {_field("kind")} = 'reserve' AND {_field("entry")} = NEW.id
        AND {_field("dataset")} = NEW.dataset AND {_field("to")} = NEW.holder
        AND {_field("part")} = NEW.part AND {_field("key")} = NEW.key
        AND {_field("units")} = NEW.charge AND {_field("delta_units")} = NEW.delta)) IS NOT TRUE
BEGIN SELECT
    RAISE(ABORT, 'an entry is the last event''s, begins reserved, has account and approval'); END;
CREATE TRIGGER entry_charged AFTER INSERT ON entry BEGIN {_moves("1")} END;
CREATE TRIGGER entry_void AFTER UPDATE ON entry WHEN NEW.state = 'void'
BEGIN {_moves("-1")} END;
CREATE TRIGGER entry_fixed BEFORE UPDATE ON entry
WHEN NOT ((OLD.state = 'reserved' AND NEW.state IN ('reading', 'void')
        OR OLD.state = 'reading' AND NEW.state = 'released')
    AND NEW.id = OLD.id AND NEW.dataset = OLD.dataset AND NEW.holder = OLD.holder
    AND NEW.part = OLD.part AND NEW.key = OLD.key AND NEW.charge = OLD.charge
    AND NEW.delta = OLD.delta AND NEW.event = OLD.event)
BEGIN SELECT RAISE(ABORT, 'an entry goes from reserved to reading to released, or is void'); END;
CREATE TRIGGER entry_by_event BEFORE UPDATE ON entry
WHEN NOT EXISTS (SELECT 1 FROM {_LAST} WHERE {_field("entry")} = NEW.id
    AND CASE {_field("kind")}
        WHEN 'begin' THEN NEW.state = 'reading'
        WHEN 'void' THEN NEW.state = 'void' AND NEW.ended = number
        WHEN 'finish' THEN NEW.state = 'released' AND NEW.ended = number
        ELSE 0 END)
BEGIN SELECT RAISE(ABORT, 'an entry changes as the last event says'); END;
{_never("entry", ("delete",), "what is spent is spent")}

CREATE TRIGGER note_new BEFORE INSERT ON note
WHEN (EXISTS (SELECT 1 FROM {_LAST} WHERE number = NEW.event AND {_field("kind")} = NEW.kind
        AND {_field("dataset")} = NEW.dataset AND {_field("subject")} = NEW.subject)
    AND NOT EXISTS (SELECT 1 FROM note WHERE event = NEW.event)
    AND {_shared(note_rule(f"(SELECT {_field('entry')} FROM {_LAST})"))}) IS NOT TRUE
BEGIN SELECT RAISE(ABORT, 'a note is what the last event says, and possible'); END;
CREATE TRIGGER note_edition AFTER INSERT ON note WHEN NEW.kind = 'edition'
BEGIN {_shared(JOIN)} END;
{_never("note", ("update", "delete"), "what happened is kept")}

CREATE TRIGGER publication_once BEFORE INSERT ON publication
WHEN EXISTS (SELECT 1 FROM publication WHERE dataset = NEW.dataset AND key = NEW.key)
    OR NOT EXISTS (SELECT 1 FROM entry WHERE id = NEW.entry AND dataset = NEW.dataset
        AND key = NEW.key AND state = 'reading')
    OR NOT EXISTS (SELECT 1 FROM {_LAST} WHERE {_field("kind")} = 'finish'
        AND {_field("entry")} = NEW.entry AND {_field("published")} = NEW.entry)
BEGIN SELECT RAISE(ABORT, 'a key is published once, by an entry of its own'); END;
{_never("publication", ("update", "delete"), "what is published is kept")}

CREATE TRIGGER piece_new BEFORE INSERT ON piece
WHEN EXISTS (SELECT 1 FROM piece
        WHERE (entry = NEW.entry AND attempt = NEW.attempt AND path = NEW.path
            AND number = NEW.number) OR rowid = NEW.rowid)
    OR NOT EXISTS (SELECT 1 FROM entry WHERE id = NEW.entry AND state = 'reading')
BEGIN SELECT RAISE(ABORT, 'files are stored once, as their entry finishes'); END;
{_never("piece", ("update",), "what is published is kept")}
CREATE TRIGGER piece_kept BEFORE DELETE ON piece
WHEN NOT EXISTS (SELECT 1 FROM entry WHERE id = OLD.entry AND state = 'reading')
BEGIN SELECT RAISE(ABORT, 'what is published is kept'); END;
"""

SCHEMA = "\n".join(map(_strict, TABLES)) + _RULES
