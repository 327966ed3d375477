"""Define the rules on a ledger's events in PostgreSQL.

An event cannot be changed or deleted. So the database refuses an event that `audit` would reject,
because an invalid event would stay in the chain forever. It also refuses an event without the rows
that follow from it, and a row without its event.
"""

from __future__ import annotations

from dataclasses import dataclass

from neyman.ledger.chain import START
from neyman.ledger.postgres.statements import function, trigger
from neyman.ledger.units import DELTA, UNIT


@dataclass(frozen=True)
class Limits:
    """Limit the size of an event."""

    line_bytes: int = 1 << 26  # bytes of an event's line
    list_depth: int = 400  # depth of lists in lists; Python reads 1000
    number_digits: int = 4000  # digits of a number; Python reads 4300


LIMITS = Limits()


_FIELDS = {
    "ledger": "id kind number previous salt version when",
    "account": "approval cap currency dataset delta_cap delta_units kind neighboring number parts"
    " previous protects rows salt units when",
    "allocation": "cap dataset delta_cap delta_units kind number of previous salt to units when",
    "reserve": "charge dataset delta delta_units entry key kind mechanisms number part plan"
    " previous salt to units when",
    "begin": "entry kind number previous salt when",
    "void": "entry kind number previous salt when why",
    "correct": "dataset entry kind number previous salt subject when why",
    "approve": "dataset kind number plan previous public purpose salt signature subject until when"
    " who",
    "revoke": "dataset kind number previous salt subject when who",
    "withdraw": "dataset kind number previous salt subject when why",
    "edition": "dataset kind number previous salt subject when",
    "finish": "digest entry files kind number previous published salt when",
}
"""Each kind of event has these fields, in the order of its line."""
_NUMBERS = ("number", "entry", "units", "delta_units", "published", "rows", "version")

# The formats in which `chain` writes a text, an integer, a list of texts, and hashes by path.
_HEX = "[0-9a-f]"
_ESCAPE = (
    rf"(?:[\"\\bfnrt]|u(?:000[1-7bef]|001{_HEX}|007f|00[89a-f]{_HEX}|0[1-9a-f]{_HEX}{{2}}"
    rf"|[1-9a-f]{_HEX}{{3}}))"
)
_TEXT = rf'"(?:[^"\\]|\\{_ESCAPE})*"'
_INTEGER = "(?:0|[1-9][0-9]{0,17})"
_HASH = rf'{_TEXT}:"{_HEX}{{64}}"'
_TEXTS = rf"\[(?:{_TEXT}(?:,{_TEXT})*)?\]"
_FILES = rf"\{{{_HASH}(?:,{_HASH})*\}}"
_SALT = f'"{_HEX}{{16}}"'
_TIME = r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"'
_RATIO = "(?:0|[1-9][0-9]*)/[1-9][0-9]*"


def _matches(value: str, form: str) -> str:
    return f"{value} ~ $re$^{form}$$re$"


def _line_rule(field: str) -> str:
    """Return the SQL condition that an event's field has 1 to 200 characters on one line."""
    value = f"told ->> '{field}'"
    return f"length({value}) BETWEEN 1 AND 200 AND {value} !~ '[[:cntrl:]]'"


_FORMS = f"""CASE
    WHEN name IN {_NUMBERS} THEN {_matches("value::text", _INTEGER)}
    WHEN name = 'parts' THEN {_matches("value::text", _TEXTS)}
    WHEN name = 'files' THEN {_matches("value::text", _FILES)}
    WHEN name = 'salt' THEN {_matches("value::text", _SALT)}
    WHEN name = 'when' THEN {_matches("value::text", _TIME)}
    ELSE {_matches("value::text", _TEXT)} END"""
_FIELDS_OF = " ".join(f"WHEN '{kind}' THEN '{names}'" for kind, names in _FIELDS.items())

# The number, the kind, and the fields of the last event.
LAST_EVENT = (
    "(SELECT last, told ->> 'kind' AS kind, told FROM (SELECT number AS last, line::jsonb AS told"
    " FROM @.event ORDER BY number DESC LIMIT 1 OFFSET 0) AS line) AS event"
)

# `json` preserves each field as written. `jsonb` would lose order, blanks, and repetition.
_WELL_FORMED = f"""
DECLARE fields text[]; again text; forms boolean; own_kind text;
BEGIN
    IF octet_length(line) > {LIMITS.line_bytes} OR line ~ '[^ -~]' THEN
        RETURN false;
    END IF;
    SELECT array_agg(name ORDER BY place),
        '{{' || string_agg(concat('"', name, '":', value), ',' ORDER BY place) || '}}',
        bool_and({_FORMS}),
        max(value #>> '{{}}') FILTER (WHERE name = 'kind')
        INTO fields, again, forms, own_kind
        FROM json_each(line::json) WITH ORDINALITY AS field (name, value, place);
    RETURN forms AND again = line
        AND fields = string_to_array(CASE own_kind {_FIELDS_OF} END, ' ');
END"""

# The units of an exact amount: the least number of units that is at least the amount.
_UNITS = f"""
DECLARE above numeric; below numeric;
BEGIN
    IF length(ratio) > 2500 OR NOT {_matches("ratio", _RATIO)} THEN
        RETURN NULL;
    END IF;
    above := split_part(ratio, '/', 1)::numeric;
    below := split_part(ratio, '/', 2)::numeric;
    RETURN div(above * per + below - 1, below);
END"""

# Accept a text that Python's JSON reads: lists are not nested too deep, numbers not too long.
# Remove its texts, then its innermost lists, one or two levels at a time.
_READABLE = f"""
DECLARE nested text; brackets CONSTANT text := translate(body, '[{{', '');
BEGIN
    IF body::json IS NULL OR body ~ '[0-9]{{255}}' AND position(repeat('0', {LIMITS.number_digits})
            IN translate(body, '123456789', '000000000')) > 0 THEN
        RETURN false;
    END IF;
    IF length(body) - length(brackets) <= {LIMITS.list_depth} THEN
        RETURN true;
    END IF;
    nested := regexp_replace(body, $re$"(?:[^"\\]|\\.)*"$re$, '', 'g');
    nested := regexp_replace(nested, $re$[^][}}{{]$re$, '', 'g');
    FOR level IN 1 .. {LIMITS.list_depth // 2} LOOP
        nested := replace(replace(nested, '[]', ''), '{{}}', '');
        EXIT WHEN nested = '';
    END LOOP;
    RETURN nested = '';
END"""

_STATE = "(SELECT state FROM @.entry WHERE id = (told ->> 'entry')::bigint)"

# Only the owner can add an account or an allocation: `applied` needs their rows, which others
# may not insert.
_POSSIBLE = f"""
DECLARE kind CONSTANT text := told ->> 'kind'; first bigint; paths text[];
BEGIN
    IF kind = 'reserve' THEN
        RETURN (told ->> 'entry')::bigint = (SELECT coalesce(max(id), 0) + 1 FROM @.entry)
            AND (told ->> 'units')::bigint = @.units_up(told ->> 'charge', {UNIT})
            AND (told ->> 'delta_units')::bigint = @.units_up(told ->> 'delta', {DELTA})
            AND {_line_rule("key")}
            AND @.readable(told ->> 'mechanisms') AND @.readable(told ->> 'plan');
    ELSIF kind = 'begin' THEN
        RETURN {_STATE} = 'reserved';
    ELSIF kind = 'void' THEN
        RETURN {_STATE} = 'reserved' AND {_line_rule("why")};
    ELSIF kind IN ('correct', 'withdraw') THEN
        RETURN {_line_rule("why")};
    ELSIF kind IN ('approve', 'revoke') THEN
        RETURN {_line_rule("who")};
    ELSIF kind = 'finish' THEN
        SELECT array_agg(path ORDER BY place) INTO paths
            FROM json_object_keys(files::json) WITH ORDINALITY AS file (path, place);
        first := (SELECT p.entry FROM @.publication p JOIN @.entry e USING (dataset, key)
            WHERE e.id = (told ->> 'entry')::bigint);
        RETURN {_STATE} = 'reading'
            AND paths = (SELECT array_agg(DISTINCT path COLLATE "C" ORDER BY path COLLATE "C")
                FROM unnest(paths) AS path)
            AND NOT EXISTS (SELECT 1 FROM unnest(paths) AS path
                WHERE path ~ $re$(^|/)\\.{{0,2}}(/|$)|\\\\$re$)
            AND told ->> 'digest'
                = encode(sha256(convert_to(files, 'UTF8')), 'hex')
            AND (told ->> 'published')::bigint = coalesce(first, (told ->> 'entry')::bigint)
            AND (first IS NULL OR files = (SELECT (line::json -> 'files')::text
                FROM @.event JOIN @.entry ON ended = number WHERE id = first));
    END IF;
    RETURN true;
END"""

_EVENT_NEXT = f"""
DECLARE last bigint; head text; told jsonb;
BEGIN
    SELECT number, hash INTO last, head FROM @.event ORDER BY number DESC LIMIT 1;
    IF (NEW.number = coalesce(last, 0) + 1) IS NOT TRUE THEN
        RAISE EXCEPTION 'events follow one another' USING ERRCODE = 'check_violation';
    END IF;
    IF last > 0 AND NOT @.applied(last) THEN
        RAISE EXCEPTION 'event % comes with the rows that follow from it', last
            USING ERRCODE = 'check_violation';
    END IF;
    IF @.well_formed(NEW.line) THEN
        told := NEW.line::jsonb;
    END IF;
    IF (NEW.hash = encode(sha256(convert_to(NEW.line, 'UTF8')), 'hex')
        AND (told ->> 'number')::bigint = NEW.number
        AND told ->> 'previous' = coalesce(head, '{START}')
        AND (told ->> 'kind' = 'ledger') = (NEW.number = 1)) IS NOT TRUE THEN
        RAISE EXCEPTION 'an event is a line of the chain' USING ERRCODE = 'check_violation';
    END IF;
    IF @.possible(told, CASE told ->> 'kind' WHEN 'finish' THEN NEW.line::json ->> 'files' END)
        IS NOT TRUE THEN
        RAISE EXCEPTION 'an event says what can happen now' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END"""

_APPLIED = """
DECLARE
    told jsonb;
    one bigint;
    known record;
    stored record;
BEGIN
    SELECT line::jsonb INTO told FROM @.event WHERE number = last;
    one := (told ->> 'entry')::bigint;
    CASE told ->> 'kind'
    WHEN 'account' THEN
        RETURN EXISTS (SELECT 1 FROM @.account WHERE event = last AND dataset = told ->> 'dataset')
            AND EXISTS (SELECT 1 FROM @.purse WHERE event = last);
    WHEN 'allocation' THEN
        RETURN EXISTS (SELECT 1 FROM @.purse WHERE dataset = told ->> 'dataset'
            AND holder = told ->> 'to' AND event = last);
    WHEN 'reserve' THEN
        RETURN EXISTS (SELECT 1 FROM @.entry WHERE id = one AND event = last);
    WHEN 'begin' THEN
        RETURN EXISTS (SELECT 1 FROM @.entry WHERE id = one AND state IN ('reading', 'released'));
    WHEN 'void' THEN
        RETURN EXISTS (SELECT 1 FROM @.entry WHERE id = one AND ended = last);
    WHEN 'finish' THEN
        SELECT e.state, e.ended, p.entry, p.attempt INTO known
            FROM @.entry e LEFT JOIN @.publication p USING (dataset, key) WHERE e.id = one;
        SELECT array_agg(path ORDER BY path) AS paths,
            bool_and(attempt = known.attempt AND low = 0 AND high = pieces - 1) AS complete
            INTO stored
            FROM (SELECT path, attempt, min(number) AS low, max(number) AS high,
                    count(*) AS pieces
                FROM @.piece WHERE entry = one GROUP BY path, attempt) AS file;
        RETURN coalesce(known.state = 'released' AND known.ended = last
            AND known.entry = (told ->> 'published')::bigint
            AND CASE WHEN known.entry <> one THEN stored.paths IS NULL
                ELSE stored.complete AND stored.paths = ARRAY(SELECT path COLLATE "C"
                    FROM jsonb_object_keys(told -> 'files') AS path ORDER BY 1) END, false);
    WHEN 'ledger', 'location' THEN
        RETURN true;
    ELSE
        RETURN EXISTS (SELECT 1 FROM @.note WHERE event = last);
    END CASE;
END"""

_EVENT_APPLIED = """
BEGIN
    IF NOT @.applied(NEW.number) THEN
        RAISE EXCEPTION 'an event comes with the rows that follow from it'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END"""

# A statement that saw an older state of the ledger could pass rules that no longer hold.
_IN_TURN = """
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a ledger is written at the isolation level read committed'
            USING ERRCODE = 'check_violation';
    END IF;
    LOCK TABLE @.turn IN EXCLUSIVE MODE;
    RETURN NULL;
END"""

EVENT_RULES = [
    function("in_turn", _IN_TURN),
    function("well_formed", _WELL_FORMED, "line text", "boolean"),
    function("units_up", _UNITS, "ratio text, per numeric", "numeric"),
    function("readable", _READABLE, "body text", "boolean"),
    function("possible", _POSSIBLE, "told jsonb, files text", "boolean"),
    function("applied", _APPLIED, "last bigint", "boolean"),
    function("event_next", _EVENT_NEXT),
    *trigger("event_next", "BEFORE INSERT ON event", "event_next()"),
    # Checked at the commit, because the rows come after their event.
    function("event_applied", _EVENT_APPLIED),
    *trigger(
        "event_applied",
        "AFTER INSERT ON event DEFERRABLE INITIALLY DEFERRED",
        "event_applied()",
        kind="CONSTRAINT",
    ),
]
"""These statements create the rules on events, in a schema with the tables."""
