-- The tables and rules of a ledger as version 2 made them, in the schema "SCHEMA".

CREATE TABLE "SCHEMA".event (
    number BIGINT PRIMARY KEY, line TEXT COLLATE "C" NOT NULL, hash TEXT COLLATE "C" NOT NULL
);

CREATE TABLE "SCHEMA".account (
    dataset TEXT COLLATE "C" PRIMARY KEY, protects TEXT COLLATE "C" NOT NULL, neighboring TEXT COLLATE "C" NOT NULL,
    rows BIGINT NOT NULL CHECK (rows >= 1), currency TEXT COLLATE "C" NOT NULL, parts TEXT COLLATE "C" NOT NULL,
    event BIGINT NOT NULL REFERENCES "SCHEMA".event (number)
);

CREATE TABLE "SCHEMA".purse (
    dataset TEXT COLLATE "C" NOT NULL REFERENCES "SCHEMA".account (dataset), holder TEXT COLLATE "C" NOT NULL, part TEXT COLLATE "C" NOT NULL,
    parent TEXT COLLATE "C", event BIGINT NOT NULL REFERENCES "SCHEMA".event (number),
    cap BIGINT NOT NULL CHECK (cap BETWEEN 0 AND 720720000000000000),
    delta_cap BIGINT NOT NULL CHECK (delta_cap BETWEEN 0 AND 720720000000000000),
    spent BIGINT NOT NULL, spent_delta BIGINT NOT NULL,
    entries BIGINT NOT NULL CHECK (entries >= 0),
    PRIMARY KEY (dataset, holder, part),
    CONSTRAINT no_more_than_the_cap CHECK (spent BETWEEN 0 AND cap),
    CONSTRAINT no_more_than_the_delta_cap CHECK (spent_delta BETWEEN 0 AND delta_cap)
) WITH (fillfactor = 10);

CREATE TABLE "SCHEMA".above (
    dataset TEXT COLLATE "C" NOT NULL, holder TEXT COLLATE "C" NOT NULL, ancestor TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (dataset, holder, ancestor)
);

CREATE TABLE "SCHEMA".entry (
    id BIGINT PRIMARY KEY, dataset TEXT COLLATE "C" NOT NULL REFERENCES "SCHEMA".account (dataset),
    holder TEXT COLLATE "C" NOT NULL, part TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL CHECK (state IN ('reserved', 'reading', 'released', 'void')),
    charge BIGINT NOT NULL CHECK (charge BETWEEN 0 AND 720720000000000000),
    delta BIGINT NOT NULL CHECK (delta BETWEEN 0 AND 720720000000000000),
    event BIGINT NOT NULL REFERENCES "SCHEMA".event (number), ended BIGINT REFERENCES "SCHEMA".event (number),
    CHECK ((state IN ('released', 'void')) = (ended IS NOT NULL))
);

CREATE INDEX entry_of_key ON "SCHEMA".entry (dataset, key);

CREATE INDEX entry_in_order ON "SCHEMA".entry (dataset, id);

CREATE TABLE "SCHEMA".publication (
    dataset TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, entry BIGINT NOT NULL REFERENCES "SCHEMA".entry (id),
    attempt TEXT COLLATE "C" NOT NULL, PRIMARY KEY (dataset, key)
);

CREATE TABLE "SCHEMA".piece (
    entry BIGINT NOT NULL REFERENCES "SCHEMA".entry (id), attempt TEXT COLLATE "C" NOT NULL, path TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL, zipped BIGINT NOT NULL CHECK (zipped IN (0, 1)),
    content BYTEA NOT NULL, PRIMARY KEY (entry, attempt, path, number)
);

CREATE FUNCTION "SCHEMA".never() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation'; END $$;

CREATE FUNCTION "SCHEMA".event_next() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM "SCHEMA".event) THEN RAISE EXCEPTION 'events follow one another' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;

CREATE TRIGGER event_next BEFORE INSERT ON "SCHEMA".event FOR EACH ROW EXECUTE FUNCTION "SCHEMA".event_next();

ALTER TABLE "SCHEMA".event ENABLE ALWAYS TRIGGER event_next;

CREATE TRIGGER event_update_delete_truncate BEFORE UPDATE OR DELETE OR TRUNCATE ON "SCHEMA".event FOR EACH STATEMENT EXECUTE FUNCTION "SCHEMA".never('what happened is kept');

ALTER TABLE "SCHEMA".event ENABLE ALWAYS TRIGGER event_update_delete_truncate;

CREATE TRIGGER account_update_delete_truncate BEFORE UPDATE OR DELETE OR TRUNCATE ON "SCHEMA".account FOR EACH STATEMENT EXECUTE FUNCTION "SCHEMA".never('a registered dataset keeps its terms');

ALTER TABLE "SCHEMA".account ENABLE ALWAYS TRIGGER account_update_delete_truncate;

CREATE TRIGGER above_update_delete_truncate BEFORE UPDATE OR DELETE OR TRUNCATE ON "SCHEMA".above FOR EACH STATEMENT EXECUTE FUNCTION "SCHEMA".never('an allocation keeps its place');

ALTER TABLE "SCHEMA".above ENABLE ALWAYS TRIGGER above_update_delete_truncate;

CREATE FUNCTION "SCHEMA".purse_new() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF NEW.spent <> 0 OR NEW.spent_delta <> 0 OR NEW.entries <> 0
        OR NOT EXISTS (SELECT 1 FROM "SCHEMA".account WHERE dataset = NEW.dataset
            AND CASE parts WHEN '[]' THEN NEW.part = '' ELSE parts::jsonb ? NEW.part END)
        OR (NEW.holder = '') <> (NEW.parent IS NULL)
        OR (NEW.holder <> '' AND NOT EXISTS (SELECT 1 FROM "SCHEMA".purse WHERE dataset = NEW.dataset
            AND holder = NEW.parent AND part = NEW.part AND cap >= NEW.cap
            AND delta_cap >= NEW.delta_cap)) THEN RAISE EXCEPTION 'a purse is new, of a declared part, and within what it is part of' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;

CREATE TRIGGER purse_new BEFORE INSERT ON "SCHEMA".purse FOR EACH ROW EXECUTE FUNCTION "SCHEMA".purse_new();

ALTER TABLE "SCHEMA".purse ENABLE ALWAYS TRIGGER purse_new;

CREATE FUNCTION "SCHEMA".purse_fixed() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF pg_trigger_depth() < 2 OR NEW.dataset <> OLD.dataset OR NEW.holder <> OLD.holder
        OR NEW.part <> OLD.part OR NEW.parent IS DISTINCT FROM OLD.parent
        OR NEW.event <> OLD.event OR NEW.cap <> OLD.cap OR NEW.delta_cap <> OLD.delta_cap THEN RAISE EXCEPTION 'caps do not change, and only entries spend' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;

CREATE TRIGGER purse_fixed BEFORE UPDATE ON "SCHEMA".purse FOR EACH ROW EXECUTE FUNCTION "SCHEMA".purse_fixed();

ALTER TABLE "SCHEMA".purse ENABLE ALWAYS TRIGGER purse_fixed;

CREATE TRIGGER purse_delete_truncate BEFORE DELETE OR TRUNCATE ON "SCHEMA".purse FOR EACH STATEMENT EXECUTE FUNCTION "SCHEMA".never('what is spent is spent');

ALTER TABLE "SCHEMA".purse ENABLE ALWAYS TRIGGER purse_delete_truncate;

CREATE FUNCTION "SCHEMA".entry_new() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF NEW.state <> 'reserved' OR NOT EXISTS (SELECT 1 FROM "SCHEMA".purse
        WHERE dataset = NEW.dataset AND holder = NEW.holder
            AND (NEW.part = '' OR part = NEW.part)) THEN RAISE EXCEPTION 'an entry begins reserved, and has an account' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;

CREATE TRIGGER entry_new BEFORE INSERT ON "SCHEMA".entry FOR EACH ROW EXECUTE FUNCTION "SCHEMA".entry_new();

ALTER TABLE "SCHEMA".entry ENABLE ALWAYS TRIGGER entry_new;

CREATE FUNCTION "SCHEMA".moves() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$ 
DECLARE sign CONSTANT bigint := TG_ARGV[0];
BEGIN
    IF TG_RELID <> '"SCHEMA".entry'::regclass THEN
        RAISE EXCEPTION 'only entries spend' USING ERRCODE = 'check_violation';
    END IF;
    UPDATE "SCHEMA".purse SET spent = spent + sign * NEW.charge,
        spent_delta = spent_delta + sign * NEW.delta, entries = entries + sign
    WHERE dataset = NEW.dataset AND (NEW.part = '' OR part = NEW.part) AND holder IN
        (SELECT '' UNION
        SELECT ancestor FROM "SCHEMA".above WHERE dataset = NEW.dataset AND holder = NEW.holder);
    RETURN NULL;
END $$;

CREATE TRIGGER entry_charged AFTER INSERT ON "SCHEMA".entry FOR EACH ROW EXECUTE FUNCTION "SCHEMA".moves('1');

ALTER TABLE "SCHEMA".entry ENABLE ALWAYS TRIGGER entry_charged;

CREATE TRIGGER entry_void AFTER UPDATE ON "SCHEMA".entry FOR EACH ROW WHEN (NEW.state = 'void') EXECUTE FUNCTION "SCHEMA".moves('-1');

ALTER TABLE "SCHEMA".entry ENABLE ALWAYS TRIGGER entry_void;

CREATE FUNCTION "SCHEMA".entry_fixed() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF NOT ((OLD.state = 'reserved' AND NEW.state IN ('reading', 'void')
            OR OLD.state = 'reading' AND NEW.state = 'released')
        AND NEW.id = OLD.id AND NEW.dataset = OLD.dataset AND NEW.holder = OLD.holder
        AND NEW.part = OLD.part AND NEW.key = OLD.key AND NEW.charge = OLD.charge
        AND NEW.delta = OLD.delta AND NEW.event = OLD.event) THEN RAISE EXCEPTION 'an entry goes from reserved to reading to released, or is void' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;

CREATE TRIGGER entry_fixed BEFORE UPDATE ON "SCHEMA".entry FOR EACH ROW EXECUTE FUNCTION "SCHEMA".entry_fixed();

ALTER TABLE "SCHEMA".entry ENABLE ALWAYS TRIGGER entry_fixed;

CREATE TRIGGER entry_delete_truncate BEFORE DELETE OR TRUNCATE ON "SCHEMA".entry FOR EACH STATEMENT EXECUTE FUNCTION "SCHEMA".never('what is spent is spent');

ALTER TABLE "SCHEMA".entry ENABLE ALWAYS TRIGGER entry_delete_truncate;

CREATE FUNCTION "SCHEMA".publication_once() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF NOT EXISTS (SELECT 1 FROM "SCHEMA".entry WHERE id = NEW.entry AND dataset = NEW.dataset
        AND key = NEW.key AND state = 'reading') THEN RAISE EXCEPTION 'a key is published once, by an entry of its own' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;

CREATE TRIGGER publication_once BEFORE INSERT ON "SCHEMA".publication FOR EACH ROW EXECUTE FUNCTION "SCHEMA".publication_once();

ALTER TABLE "SCHEMA".publication ENABLE ALWAYS TRIGGER publication_once;

CREATE TRIGGER publication_update_delete_truncate BEFORE UPDATE OR DELETE OR TRUNCATE ON "SCHEMA".publication FOR EACH STATEMENT EXECUTE FUNCTION "SCHEMA".never('what is published is kept');

ALTER TABLE "SCHEMA".publication ENABLE ALWAYS TRIGGER publication_update_delete_truncate;

CREATE FUNCTION "SCHEMA".piece_new() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF NOT EXISTS (SELECT 1 FROM "SCHEMA".entry WHERE id = NEW.entry AND state = 'reading') THEN RAISE EXCEPTION 'files are stored once, as their entry finishes' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;

CREATE TRIGGER piece_new BEFORE INSERT ON "SCHEMA".piece FOR EACH ROW EXECUTE FUNCTION "SCHEMA".piece_new();

ALTER TABLE "SCHEMA".piece ENABLE ALWAYS TRIGGER piece_new;

CREATE FUNCTION "SCHEMA".piece_kept() RETURNS trigger LANGUAGE plpgsql  AS
$$ BEGIN IF NOT EXISTS (SELECT 1 FROM "SCHEMA".entry WHERE id = OLD.entry AND state = 'reading') THEN RAISE EXCEPTION 'what is published is kept' USING ERRCODE = 'check_violation'; END IF; RETURN OLD; END $$;

CREATE TRIGGER piece_kept BEFORE DELETE ON "SCHEMA".piece FOR EACH ROW EXECUTE FUNCTION "SCHEMA".piece_kept();

ALTER TABLE "SCHEMA".piece ENABLE ALWAYS TRIGGER piece_kept;

CREATE TRIGGER piece_update_truncate BEFORE UPDATE OR TRUNCATE ON "SCHEMA".piece FOR EACH STATEMENT EXECUTE FUNCTION "SCHEMA".never('what is published is kept');

ALTER TABLE "SCHEMA".piece ENABLE ALWAYS TRIGGER piece_update_truncate;

CREATE TABLE "SCHEMA".turn ();

CREATE FUNCTION "SCHEMA".reading(version bigint) RETURNS void LANGUAGE plpgsql  AS
$$ BEGIN 
    IF version <> 2 THEN
        RAISE EXCEPTION '%', 2 USING ERRCODE = 'NY001';
    END IF;
    IF current_setting('search_path') <> '"SCHEMA", pg_temp' THEN
        PERFORM set_config('search_path', '"SCHEMA", pg_temp', true);
    END IF; END $$;

CREATE FUNCTION "SCHEMA".writing(version bigint, patience bigint) RETURNS void LANGUAGE plpgsql  AS
$$ BEGIN 
    IF version <> 2 THEN
        RAISE EXCEPTION '%', 2 USING ERRCODE = 'NY001';
    END IF;
    IF current_setting('search_path') <> '"SCHEMA", pg_temp' THEN
        PERFORM set_config('search_path', '"SCHEMA", pg_temp', true);
    END IF;
    IF current_setting('fsync') <> 'on' OR current_setting('full_page_writes') <> 'on' THEN
        RAISE EXCEPTION 'fsync or full_page_writes is off' USING ERRCODE = 'NY002';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true),
        set_config('lock_timeout', greatest(patience, 1)::text, true),
        set_config('idle_in_transaction_session_timeout', '60s', true);
    LOCK TABLE "SCHEMA".turn IN EXCLUSIVE MODE; END $$;

CREATE FUNCTION "SCHEMA".settled() RETURNS void LANGUAGE plpgsql  AS
$$ BEGIN 
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_logical_emit_message(true, 'neyman', ''); END $$;

CREATE PROCEDURE "SCHEMA".reserve(version bigint, patience bigint, dataset_ text, holder_ text, part_ text, key_ text, protects_ text, neighboring_ text, rows_ bigint, units bigint, delta_units bigint, line_0 text, line_1 text, line_2 text, line_3 text, INOUT entry bigint) LANGUAGE plpgsql AS $$ 
#variable_conflict use_column
DECLARE
    last bigint;
    head text;
    told text;
BEGIN
    
    IF version <> 2 THEN
        RAISE EXCEPTION '%', 2 USING ERRCODE = 'NY001';
    END IF;
    IF current_setting('search_path') <> '"SCHEMA", pg_temp' THEN
        PERFORM set_config('search_path', '"SCHEMA", pg_temp', true);
    END IF;
    IF current_setting('fsync') <> 'on' OR current_setting('full_page_writes') <> 'on' THEN
        RAISE EXCEPTION 'fsync or full_page_writes is off' USING ERRCODE = 'NY002';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true),
        set_config('lock_timeout', greatest(patience, 1)::text, true),
        set_config('idle_in_transaction_session_timeout', '60s', true);
    LOCK TABLE "SCHEMA".turn IN EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT 1 FROM "SCHEMA".account WHERE dataset = dataset_ AND protects = protects_
            AND neighboring = neighboring_ AND rows = rows_)
        OR EXISTS (SELECT 1 FROM "SCHEMA".entry WHERE dataset = dataset_ AND key = key_) THEN
        RETURN;
    END IF;
    SELECT number, hash INTO STRICT last, head FROM "SCHEMA".event ORDER BY number DESC LIMIT 1;
    entry := coalesce((SELECT max(id) FROM "SCHEMA".entry), 0) + 1;
    told := line_0 || entry || line_1 || last + 1 || line_2 || head || line_3;
    INSERT INTO "SCHEMA".event (number, line, hash)
        VALUES (last + 1, told, encode(sha256(convert_to(told, 'UTF8')), 'hex'));
    INSERT INTO "SCHEMA".entry (id, dataset, holder, part, key, state, charge, delta, event)
        VALUES (entry, dataset_, holder_, part_, key_, 'reserved', units, delta_units, last + 1);
    COMMIT;
    
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_logical_emit_message(true, 'neyman', '');
END $$;

