-- The words that the commands are written in.

-- This server's clock; `at` is for tests, which must not sleep. Read after a row is locked, never before.
CREATE FUNCTION clock(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- How every command that writes begins. A commit that was answered must be on disk, whatever the server's default
-- is; a stronger setting is left alone. `patience` bounds the wait for a row that another transaction holds; without
-- it the command is in a stranger's transaction, whose own settings hold.
CREATE FUNCTION begin_command(patience integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF patience IS NOT NULL THEN
        PERFORM set_config('lock_timeout', patience::text, true);
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- The mark of a row, by which damage is told from absence. Inlined where it is used.
CREATE FUNCTION mark(
    id bytea, state smallint, fence bigint, attempt bigint, owner uuid, fingerprint bytea, created_at bigint,
    granted_at bigint, run_until bigint, due_at bigint, since bigint, retention bigint, unknown_retention bigint,
    remote boolean, completed_by smallint, content_version integer, kept smallint, head bytea, body_sum integer,
    body_day integer, recovery_owner uuid, recovery_until bigint, late bytea, step_names text[], step_values bytea[]
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hash_record_extended(ROW(
        id, state, fence, attempt, owner, fingerprint, created_at, granted_at, run_until, due_at, since, retention,
        unknown_retention, remote, completed_by, content_version, kept, head, body_sum, body_day, recovery_owner,
        recovery_until, late, step_names, step_values), 0)
$$;

CREATE FUNCTION mark_of(r records) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT mark(
        r.id, r.state, r.fence, r.attempt, r.owner, r.fingerprint, r.created_at, r.granted_at, r.run_until, r.due_at,
        r.since, r.retention, r.unknown_retention, r.remote, r.completed_by, r.content_version, r.kept, r.head,
        r.body_sum, r.body_day, r.recovery_owner, r.recovery_until, r.late, r.step_names, r.step_values)
$$;

-- The body of a record, wherever it is.
CREATE FUNCTION body_of(r records) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF r.body_day IS NULL THEN
        RETURN r.body;
    END IF;
    RETURN (SELECT b.body FROM bodies b WHERE b.day = r.body_day AND b.fence = r.fence AND b.id = r.id);
END
$$;

-- How many bytes of a body stay in the row.
CREATE FUNCTION inline_max() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 1024 $$;

-- Which partition a body lies in: that of the day on which its record expires, and beyond sixty days that of the next
-- full thirty, so that there are never many.
CREATE FUNCTION day_of(due_at bigint, now bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN due_at - now <= 5184000000 THEN due_at / 86400000
        ELSE (due_at / 2592000000 + 1) * 30 END)::integer
$$;

-- The partition for a body that is too large for its row, when there is one. A body whose day has none stays in its
-- row: no command makes a table, because it may be in a stranger's transaction, and all who need the same table would
-- wait for that one to end. The store makes the day as soon as it was missed, in a transaction of its own.
CREATE FUNCTION place_of(body bytea, due_at bigint, now bigint) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN octet_length(body) > inline_max() THEN
        CASE WHEN to_regclass('bodies_' || day_of(due_at, now)) IS NOT NULL THEN day_of(due_at, now) END
    END
$$;

-- Makes the partitions for bodies that expire at these times. The parent is not locked against reads and writes.
-- As its owner: whoever may only call functions must still be able to make the day after tomorrow.
CREATE FUNCTION make_days(dues bigint[], at bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '1s' AS $$
DECLARE
    day integer;
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' bodies', 0));
    FOR day IN SELECT DISTINCT day_of(d.due_at, clock(at)) FROM unnest(dues) AS d (due_at) LOOP
        name := format('bodies_%s', day);
        -- Not `to_regclass`: this session may remember from before the wait that the table was not there.
        IF NOT EXISTS (
            SELECT FROM pg_class c WHERE c.relname = name AND c.relnamespace = current_schema()::regnamespace
        ) THEN
            EXECUTE format('CREATE TABLE %I (LIKE bodies INCLUDING ALL)', name);
            EXECUTE format('ALTER TABLE bodies ATTACH PARTITION %I FOR VALUES IN (%s)', name, day);
        END IF;
    END LOOP;
END
$$;

-- Puts a body where it belongs: into `r`, or into the partition of the day on which `r` expires.
CREATE FUNCTION keep_body(r records, kept_body bytea, kept_sum integer, now bigint) RETURNS records LANGUAGE plpgsql AS $$
BEGIN
    r := drop_body(r);
    r.body_sum := kept_sum;
    r.body_day := place_of(kept_body, r.due_at, now);
    IF r.body_day IS NULL THEN
        r.body := kept_body;
    ELSE
        -- One that is there already was left behind by a record that has been swept.
        INSERT INTO bodies VALUES (r.body_day, r.fence, r.id, kept_body)
        ON CONFLICT (day, fence, id) DO UPDATE SET body = excluded.body;
    END IF;
    RETURN r;
END
$$;

CREATE FUNCTION drop_body(r records) RETURNS records LANGUAGE plpgsql AS $$
BEGIN
    IF r.body_day IS NOT NULL THEN
        DELETE FROM bodies b WHERE b.day = r.body_day AND b.fence = r.fence AND b.id = r.id;
    END IF;
    r.body := NULL;
    r.body_sum := NULL;
    r.body_day := NULL;
    RETURN r;
END
$$;

-- The row of a record, under its lock; a NULL id when there is none. `careful`: one that another transaction holds is
-- not waited for, and is of state 8.
CREATE FUNCTION take(asked_id bytea, careful boolean) RETURNS records LANGUAGE plpgsql AS $$
DECLARE
    r records;
BEGIN
    IF NOT careful THEN
        SELECT * INTO r FROM records WHERE id = asked_id FOR UPDATE;
        RETURN r;
    END IF;
    SELECT * INTO r FROM records WHERE id = asked_id FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND EXISTS (SELECT FROM records WHERE id = asked_id) THEN
        r.state := 8;
    END IF;
    RETURN r;
END
$$;

-- Writes a row that was taken before.
CREATE FUNCTION put(r records) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE records SET
        owner = r.owner, fence = r.fence, attempt = r.attempt, created_at = r.created_at, granted_at = r.granted_at,
        run_until = r.run_until, due_at = r.due_at, since = r.since, retention = r.retention,
        unknown_retention = r.unknown_retention, mark = mark_of(r), recovery_until = r.recovery_until,
        recovery_owner = r.recovery_owner, content_version = r.content_version, body_sum = r.body_sum, body_day = r.body_day,
        state = r.state, completed_by = r.completed_by, kept = r.kept, remote = r.remote,
        fingerprint = r.fingerprint, head = r.head, body = r.body, late = r.late,
        step_names = r.step_names, step_values = r.step_values
    WHERE id = r.id;
END
$$;

-- Writes a row in a way that whoever waits for it must hear of.
CREATE FUNCTION put_and_wake(r records, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM put(r);
    PERFORM wake(ARRAY[r.id], now);
END
$$;

-- Tells whoever still waits for one of `changed`. Only then: a commit that notifies excludes all others that do.
CREATE FUNCTION wake(changed bytea[], now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('onlyonce.' || current_schema(), encode(w.id, 'hex'))
    FROM waiting w WHERE w.id = ANY (changed) AND w.until > now;
END
$$;

-- IN FLIGHT past its lease is UNKNOWN. Counted from now: whoever must find out gets the whole time.
CREATE FUNCTION lapse(r records, now bigint) RETURNS records LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    r.state := 3;
    r.since := r.due_at;
    r.due_at := now + r.unknown_retention;
    RETURN r;
END
$$;
