-- What else the owner of a grant does: renew, release, abandon, record a step. Answers as `transition/holder.rs` does.

-- The record, locked, if its last grant is this one; a NULL id when not. An error when it is damaged.
CREATE FUNCTION held(asked_id bytea, asked_owner uuid, asked_fence bigint) RETURNS records LANGUAGE plpgsql AS $$
DECLARE
    r records;
BEGIN
    SELECT * INTO r FROM records WHERE id = asked_id FOR UPDATE;
    IF r.mark <> mark_of(r) THEN
        r.state := 9;
    ELSIF r.owner <> asked_owner OR r.fence <> asked_fence THEN
        r := NULL;
    END IF;
    RETURN r;
END
$$;

-- Answers: 0 renewed until `until`, 1 fenced, 9 damaged.
CREATE FUNCTION renew(
    ids bytea[], owners uuid[], asked_fences bigint[], leases bigint[], patience integer DEFAULT NULL,
    at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    a answer;
    now bigint;
BEGIN
    PERFORM begin_command(patience);
    FOR n IN 1 .. coalesce(cardinality(ids), 0) LOOP
        r := held(ids[n], owners[n], asked_fences[n]);
        now := clock(at);
        a := NULL;
        a.kind := 3;
        a.item := n;
        a.at := now;
        IF r.state = 9 THEN
            a.answer := 9;
        ELSIF r.state = 0 AND now < r.due_at AND now < r.run_until THEN
            -- Extended, never shortened: renewals may arrive in another order than they were sent.
            r.due_at := least(r.run_until, greatest(r.due_at, now + leases[n]));
            PERFORM put(r);
            a.answer := 0;
            a.until := r.due_at;
        ELSE
            a.answer := 1;
        END IF;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- Answers: 0 released, 1 fenced, 9 damaged.
CREATE FUNCTION release(
    ids bytea[], owners uuid[], asked_fences bigint[], keep_fingerprints boolean[], patience integer DEFAULT NULL,
    at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    a answer;
    now bigint;
BEGIN
    PERFORM begin_command(patience);
    FOR n IN 1 .. coalesce(cardinality(ids), 0) LOOP
        r := held(ids[n], owners[n], asked_fences[n]);
        now := clock(at);
        a := NULL;
        a.kind := 4;
        a.item := n;
        IF r.state = 9 THEN
            a.answer := 9;
        ELSIF r.state = 0 AND now < r.due_at THEN
            -- A lease that has passed may have been acted upon: only a live owner can say that nothing happened.
            r.state := 2;
            r.due_at := now + r.retention;
            IF NOT keep_fingerprints[n] THEN
                r.fingerprint := NULL;
            END IF;
            PERFORM put(r);
            PERFORM wake(ARRAY[r.id]);
            a.answer := 0;
        ELSE
            a.answer := 1;
        END IF;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- Answers: 0 abandoned, 1 fenced, 9 damaged.
CREATE FUNCTION abandon(asked_id bytea, asked_owner uuid, asked_fence bigint, at bigint DEFAULT NULL) RETURNS smallint
LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    now bigint;
BEGIN
    PERFORM begin_command(NULL);
    r := held(asked_id, asked_owner, asked_fence);
    now := clock(at);
    IF r.state = 9 THEN
        RETURN 9;
    ELSIF r.state = 0 THEN
        r.state := 3;
        r.since := least(now, r.due_at);
        r.due_at := now + r.unknown_retention;
        PERFORM put(r);
        PERFORM wake(ARRAY[r.id]);
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
    steps_bytes_max integer, at bigint DEFAULT NULL, OUT answer smallint, OUT already bytea
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    position integer;
BEGIN
    PERFORM begin_command(NULL);
    r := held(asked_id, asked_owner, asked_fence);
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
