-- The words that the commands are written in.

-- This server's clock; `at` is for tests, which must not sleep. Read after a row is locked, never before.
CREATE FUNCTION clock(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- How every command that writes begins. A commit that was answered must be on disk, whatever the server's default
-- is; a stronger setting is left alone. `patience` bounds the wait for a row that another transaction holds.
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
    SELECT hash_record_extended(ROW(
        r.id, r.state, r.fence, r.attempt, r.owner, r.fingerprint, r.created_at, r.granted_at, r.run_until, r.due_at,
        r.since, r.retention, r.unknown_retention, r.remote, r.completed_by, r.content_version, r.kept, r.head,
        r.body_sum, r.body_day, r.recovery_owner, r.recovery_until, r.late, r.step_names, r.step_values), 0)
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

-- Makes the partition for bodies that expire on `day`, once. The parent is not locked against reads and writes.
-- As its owner: whoever may only call functions must still be able to complete on the first of a new day.
CREATE FUNCTION make_day(day integer) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
    name text := format('bodies_%s', day);
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' bodies', 0));
    -- Not `to_regclass`: this session may remember from before the wait that the table was not there.
    IF NOT EXISTS (
        SELECT FROM pg_class c WHERE c.relname = name AND c.relnamespace = current_schema()::regnamespace
    ) THEN
        EXECUTE format('CREATE TABLE %I (LIKE bodies INCLUDING ALL)', name);
        EXECUTE format('ALTER TABLE bodies ATTACH PARTITION %I FOR VALUES IN (%s)', name, day);
    END IF;
END
$$;

-- Puts a body where it belongs: into `r`, or into the partition of the day on which `r` expires.
CREATE FUNCTION keep_body(r records, kept_body bytea, kept_sum integer, now bigint) RETURNS records LANGUAGE plpgsql AS $$
BEGIN
    r := drop_body(r);
    r.body_sum := kept_sum;
    IF octet_length(kept_body) <= inline_max() THEN
        r.body := kept_body;
    ELSIF kept_body IS NOT NULL THEN
        r.body_day := day_of(r.due_at, now);
        PERFORM make_day(r.body_day);
        INSERT INTO bodies VALUES (r.body_day, r.fence, r.id, kept_body);
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

-- Writes a row that was read and locked before.
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

-- Tells whoever waits for one of `changed`. Only then: a commit that notifies excludes all others that do.
CREATE FUNCTION wake(changed bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('onlyonce.' || current_schema(), encode(w.id, 'hex'))
    FROM waiting w WHERE w.id = ANY (changed);
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
