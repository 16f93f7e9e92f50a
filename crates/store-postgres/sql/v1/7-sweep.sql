-- The sweep: what has expired goes, what has lapsed becomes unknown. One process at a time does it.

-- `from_due`: what was due before is not looked at; 0 begins a pass. `reached`: where the next call should go on, so that it
-- does not walk again over all that was removed and is not vacuumed yet. `more`: whether there is a next call to make.
CREATE FUNCTION sweep(
    budget integer, from_due bigint, at bigint DEFAULT NULL, OUT removed bigint, OUT made_unknown bigint, OUT more boolean,
    OUT reached bigint
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now bigint := clock(at);
    due bytea[];
    -- Where those rows are. They cannot move or change while they are held, and nobody has to look for them again by their
    -- ids, which lie all over a large index. No other condition on an indexed column below: it would be looked up instead.
    places tid[];
BEGIN
    removed := 0;
    made_unknown := 0;
    more := false;
    reached := from_due;
    -- Whoever comes second has nothing to do, and holds nobody up.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' sweep', 0)) THEN
        RETURN;
    END IF;
    -- Nobody waits for its sync: what a crash takes back has still expired or lapsed, reads so, and is swept again.
    PERFORM set_config('synchronous_commit', 'off', true);
    -- A damaged row is left for someone to look at: it must not come to read as absent.
    SELECT array_agg(d.id), array_agg(d.ctid), max(d.due_at) INTO due, places, reached FROM (
        SELECT r.id, r.ctid, r.due_at FROM records r
        WHERE r.due_at >= from_due AND r.due_at <= now AND r.mark = mark_of(r)
        ORDER BY r.due_at LIMIT budget FOR UPDATE SKIP LOCKED
    ) AS d;
    WITH deleted AS (
        DELETE FROM records r WHERE r.ctid = ANY (places) AND r.state <> 0 RETURNING r.id
    ) SELECT count(*) INTO removed FROM deleted d;
    WITH changed AS (
        UPDATE records r SET state = 3, since = r.due_at, due_at = now + r.unknown_retention, mark = mark(
                r.id, 3::smallint, r.fence, r.attempt, r.owner, r.fingerprint, r.created_at, r.granted_at,
                r.run_until, now + r.unknown_retention, r.due_at, r.retention, r.unknown_retention, r.remote,
                r.completed_by, r.content_version, r.kept, r.head, r.body_sum, r.body_day, r.recovery_owner,
                r.recovery_until, r.late, r.step_names, r.step_values)
        WHERE r.ctid = ANY (places) AND r.state = 0 RETURNING r.id
    ) SELECT count(*) INTO made_unknown FROM changed c;
    IF EXISTS (SELECT FROM waiting) THEN
        PERFORM wake(due, now);
    END IF;
    more := from_due > 0;
    IF cardinality(due) >= budget THEN
        more := true;
    ELSE
        -- Behind it may be what another transaction held, or what came later.
        reached := 0;
    END IF;
    IF NOT more THEN
        DELETE FROM waiting w WHERE w.until <= now;
        DELETE FROM audit a WHERE a.at < now - 7776000000; -- 90 days
    END IF;
END
$$;

-- Drops the bodies of days that are over. Waits for nobody for long, because all who need a body wait behind it: what
-- cannot be dropped now is dropped later.
CREATE FUNCTION drop_days(at bigint DEFAULT NULL) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '20ms' AS $$
DECLARE
    today integer := (clock(at) / 86400000)::integer;
    name text;
    dropped integer := 0;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'bodies'::regclass AND substr(c.relname, 8)::integer < today
        ORDER BY c.relname
    LOOP
        EXECUTE format('DROP TABLE %I', name);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

-- Registers who waits, so that whoever changes one of these records tells.
CREATE FUNCTION wait_for(ids bytea[], wait_ms bigint, at bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    -- For the transaction: a setting of the function's own would be over before it commits.
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO waiting AS w SELECT i.id, clock(at) + wait_ms FROM unnest(ids) AS i (id)
    ON CONFLICT (id) DO UPDATE SET until = greatest(w.until, excluded.until);
END
$$;
