-- What else the owner of a grant does: renew, release, abandon, record a step. Answers as `transition/holder.rs` does.

-- The record, locked, if its last grant is this one; a NULL id when not. Of state 8 when another transaction has it
-- and it is not to be waited for, of state 9 when it is damaged.
CREATE FUNCTION held(asked_id bytea, asked_owner uuid, asked_fence bigint, careful boolean) RETURNS records
LANGUAGE plpgsql AS $$
DECLARE
    r records := take(asked_id, careful);
BEGIN
    IF r.mark <> mark_of(r) THEN
        r.state := 9;
    ELSIF r.owner <> asked_owner OR r.fence <> asked_fence THEN
        r := NULL;
    END IF;
    RETURN r;
END
$$;

-- Answers: 0 renewed until `until`, 1 fenced, 8 another transaction has it, 9 damaged.
CREATE FUNCTION renew(
    ids bytea[], owners uuid[], asked_fences bigint[], leases bigint[], patience integer DEFAULT NULL,
    careful boolean DEFAULT false, at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    a answer;
BEGIN
    PERFORM begin_command(patience);
    FOR n IN 1 .. coalesce(cardinality(ids), 0) LOOP
        r := held(ids[n], owners[n], asked_fences[n], careful);
        a.kind := 3;
        a.item := n;
        a.at := clock(at);
        a.answer := CASE WHEN r.state >= 8 THEN r.state
            WHEN r.state = 0 AND a.at < r.due_at AND a.at < r.run_until THEN 0 ELSE 1 END;
        IF a.answer = 0 THEN
            -- Extended, never shortened: renewals may arrive in another order than they were sent.
            r.due_at := least(r.run_until, greatest(r.due_at, a.at + leases[n]));
            PERFORM put(r);
        END IF;
        a.until := r.due_at;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- Answers: 0 released, 1 fenced, 8 another transaction has it, 9 damaged.
CREATE FUNCTION release(
    ids bytea[], owners uuid[], asked_fences bigint[], keep_fingerprints boolean[], patience integer DEFAULT NULL,
    careful boolean DEFAULT false, at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    a answer;
BEGIN
    PERFORM begin_command(patience);
    a.kind := 4;
    FOR n IN 1 .. coalesce(cardinality(ids), 0) LOOP
        a.item := n;
        r := held(ids[n], owners[n], asked_fences[n], careful);
        a.at := clock(at);
        -- A lease that has passed may have been acted upon: only a live owner can say that nothing happened.
        a.answer := CASE WHEN r.state >= 8 THEN r.state WHEN r.state = 0 AND a.at < r.due_at THEN 0 ELSE 1 END;
        IF a.answer = 0 THEN
            r.state := 2;
            r.due_at := a.at + r.retention;
            IF NOT keep_fingerprints[n] THEN
                r.fingerprint := NULL;
            END IF;
            PERFORM put_and_wake(r, a.at);
        END IF;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- Answers: 0 abandoned, 1 fenced, 9 damaged.
CREATE FUNCTION abandon(
    asked_id bytea, asked_owner uuid, asked_fence bigint, patience integer DEFAULT NULL, at bigint DEFAULT NULL
) RETURNS smallint LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    now bigint;
BEGIN
    PERFORM begin_command(patience);
    r := held(asked_id, asked_owner, asked_fence, false);
    now := clock(at);
    IF r.state = 9 THEN
        RETURN 9;
    ELSIF r.state = 0 THEN
        r.state := 3;
        r.since := least(now, r.due_at);
        r.due_at := now + r.unknown_retention;
        PERFORM put_and_wake(r, now);
        RETURN 0;
    ELSIF r.state = 3 AND now < r.due_at THEN
        RETURN 0;
    END IF;
    RETURN 1;
END
$$;

-- Answers: 0 recorded, 1 already (with the value), 2 erased, 3 full, 4 fenced, 9 damaged.
CREATE FUNCTION record_step(
    asked_id bytea, asked_owner uuid, asked_fence bigint, name text, value bytea, steps_max integer,
    steps_bytes_max integer, patience integer DEFAULT NULL, at bigint DEFAULT NULL,
    OUT answer smallint, OUT already bytea
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    position integer;
BEGIN
    PERFORM begin_command(patience);
    r := held(asked_id, asked_owner, asked_fence, false);
    IF r.state = 9 THEN
        answer := 9;
        RETURN;
    ELSIF r.state IS DISTINCT FROM 0 OR clock(at) >= r.due_at THEN
        answer := 4;
        RETURN;
    END IF;
    position := array_position(r.step_names, name);
    IF position IS NOT NULL THEN
        already := r.step_values[position];
        answer := CASE WHEN already IS NULL THEN 2 ELSE 1 END;
    ELSIF coalesce(cardinality(r.step_names), 0) >= steps_max OR octet_length(value) + (
            SELECT coalesce(sum(octet_length(v.value)), 0) FROM unnest(r.step_values) AS v (value)) > steps_bytes_max
    THEN
        answer := 3;
    ELSE
        r.step_names := r.step_names || name;
        r.step_values := r.step_values || value;
        PERFORM put(r);
        answer := 0;
    END IF;
END
$$;
